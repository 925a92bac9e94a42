//! Maps of whole extents: the extents in which a file's data is. Like all maps, they are hints.

use std::io;

use onefold_substrate::{Slice, Substrate};

/// Maximum number of slices of a file that are kept at once, beside those of one further answer: 2 MiB of them.
const WINDOW_MAX: usize = 1 << 15;

/// A part of a file's map of slices.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    slices: Vec<Slice>,
    /// The slices cover everything from here.
    from: u64,
    to: u64,
}

impl Slices {
    /// Returns the slices that overlap a range, in order. Cheap if offsets only rise.
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
        // Look-ups rely on their order.
        self.slices.sort_unstable_by_key(|slice| slice.offset);
        Ok(())
    }
}
