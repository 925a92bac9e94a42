//! Maps of whole extents: in which of them the data of a file lies. Hints, as all maps.

use std::io;

use onefold_substrate::{Slice, Substrate};

/// Slices of a file that are kept at once, at most, but for those of one answer more: 2 MiB of them.
const WINDOW_MAX: usize = 1 << 15;

/// A part of a file's map of slices.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    slices: Vec<Slice>,
    /// What the slices say all of.
    from: u64,
    to: u64,
}

impl Slices {
    /// Returns the slices that have something of a range, in order. Cheap when offsets only rise.
    ///
    /// # Errors
    /// Errors of [`WholeExtents::slices`].
    pub(crate) fn within<S: Substrate>(
        &mut self,
        substrate: &S,
        file: &S::File,
        offset: u64,
        end: u64,
    ) -> io::Result<&[Slice]> {
        if offset < self.from || end > self.to {
            self.fill(substrate, file, offset, end)?;
        }
        let first = self.slices.partition_point(|slice| slice.end() <= offset);
        let count = self.slices[first..].partition_point(|slice| slice.offset < end);
        Ok(&self.slices[first..first + count])
    }

    /// Asks for slices from an offset on until there are enough, or no more.
    fn fill<S: Substrate>(&mut self, substrate: &S, file: &S::File, from: u64, end: u64) -> io::Result<()> {
        self.slices.clear();
        (self.from, self.to) = (from, from);
        while self.to < end || self.slices.len() < WINDOW_MAX {
            let more = substrate.slices(file, self.to)?;
            let Some(next) = more.last().map(Slice::end).filter(|next| *next > self.to) else {
                self.to = u64::MAX;
                break;
            };
            let to = self.to;
            self.slices.extend(more.into_iter().filter(|slice| slice.end() > to));
            self.to = next;
        }
        // Their order is what look-ups rest on.
        self.slices.sort_unstable_by_key(|slice| slice.offset);
        Ok(())
    }
}
