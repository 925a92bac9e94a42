//! Finds the use of each byte of a disk: takes the map of the disk, and overlays it with the files in the order of the
//! disk.

use std::collections::BTreeMap;
use std::io;
use std::iter::Peekable;

use onefold_guest::volume::DiskRange;
use onefold_sort::Merge;

use super::blocks::BlockWriter;

/// The owner of a run of the disk's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunOwner {
    pub(super) rank: u32,
    pub(super) is_free: bool,
    /// Whether files at this place own it. Metadata and bytes outside of file systems do not belong to files.
    pub(super) takes_files: bool,
}

/// Writes the owners of all bytes: the owner of the map's run, or the first file at that place by rank. `extents` have
/// a first byte, a rank and a byte after the last, in order. `runs` cover the disk.
///
/// # Errors
/// Those of temporary files.
pub(super) fn sweep(
    runs: impl Iterator<Item = io::Result<(DiskRange, RunOwner)>>,
    extents: Merge,
    into: &mut BlockWriter<'_>,
) -> io::Result<()> {
    let mut files = Files { extents: extents.peekable(), active: BTreeMap::new() };
    for run in runs {
        let (range, owner) = run?;
        let end = range.end_bytes();
        if !owner.takes_files {
            into.push(end, owner.rank, owner.is_free)?;
            continue;
        }
        let mut at = range.start_bytes;
        while at < end {
            let next_start = files.go_to(at)?;
            let (stop, rank) = files.first(at);
            let stop = stop.min(next_start).min(end);
            match rank {
                Some(rank) => into.push(stop, rank, false)?,
                None => into.push(stop, owner.rank, owner.is_free)?,
            }
            at = stop;
        }
    }
    Ok(())
}

/// The files at a place of the disk. Each owner is kept once, however many extents it has there.
struct Files {
    extents: Peekable<Merge>,
    /// The end of each owner's extents among those that have begun.
    active: BTreeMap<u64, u64>,
}

impl Files {
    /// Takes all extents that begin at or before `place`. Returns the start of the next extent.
    fn go_to(&mut self, place: u64) -> io::Result<u64> {
        loop {
            match self.extents.peek() {
                None => return Ok(u64::MAX),
                Some(Ok([start, ..])) if *start > place => return Ok(*start),
                Some(_) => {}
            }
            if let Some(row) = self.extents.next() {
                let [_, rank, end] = row?;
                let active_end = self.active.entry(rank).or_insert(end);
                *active_end = end.max(*active_end);
            }
        }
    }

    /// Returns the first owner with an extent at `place`, and the end of that extent. If there is none, returns the end
    /// of everything.
    fn first(&mut self, place: u64) -> (u64, Option<u32>) {
        while let Some(first) = self.active.first_entry() {
            if *first.get() > place {
                return (*first.get(), u32::try_from(*first.key()).ok());
            }
            first.remove();
        }
        (u64::MAX, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_sort::Sorter;

    const FILES: RunOwner = RunOwner { rank: 0, is_free: false, takes_files: true };
    const FREE: RunOwner = RunOwner { rank: 1, is_free: true, takes_files: true };
    const TABLE: RunOwner = RunOwner { rank: 2, is_free: false, takes_files: false };

    /// Returns the owners of blocks; runs and extents are in blocks.
    fn swept(runs: &[(u64, RunOwner)], extents: &[(u64, u64, u64)]) -> Vec<u16> {
        let folder = std::env::temp_dir();
        let mut rows: Vec<[u64; 3]> =
            extents.iter().map(|&(start, rank, end)| [start * 4096, rank, end * 4096]).collect();
        rows.sort_unstable();
        let extents = Sorter::new(&folder).merged(vec![rows]).unwrap();
        let mut into = BlockWriter::new(&folder, 1 << 20, 100);
        let starts = std::iter::once(0).chain(runs.iter().map(|run| run.0));
        let runs = starts.zip(runs).map(|(start, &(end, owner))| {
            let range = DiskRange { start_bytes: start * 4096, length_bytes: (end - start) * 4096 };
            Ok((range, owner))
        });
        sweep(runs, extents, &mut into).unwrap();
        let (runs, _) = into.finish().unwrap();
        super::super::blocks::BlockOwners::new(runs, (0..100).collect()).piece(0).unwrap().to_vec()
    }

    #[test]
    fn files_own_data_and_no_metadata() {
        let found = swept(&[(4, FILES), (8, TABLE), (12, FREE), (16, FILES)], &[(2, 10, 6), (11, 11, 14)]);
        assert_eq!(found[..16], [0, 0, 10, 10, 2, 2, 2, 2, 1, 1, 1, 11, 11, 11, 0, 0]);
    }

    #[test]
    fn a_block_of_several_files_is_that_of_the_first_of_their_names() {
        let found = swept(&[(12, FILES)], &[(0, 20, 8), (2, 10, 4), (3, 30, 10), (6, 20, 7), (9, 20, 10)]);
        assert_eq!(found[..12], [20, 20, 10, 10, 20, 20, 20, 20, 30, 20, 0, 0]);
    }

    #[test]
    fn a_million_extents_of_two_files_are_two_owners() {
        let extents: Vec<(u64, u64, u64)> = (0..1_000_000).map(|at| (at % 200, 10 + at % 2, 250 - at % 7)).collect();
        let found = swept(&[(256, FILES)], &extents);
        assert!(found[..244].iter().all(|owner| *owner == 10), "{found:?}");
        assert_eq!(found[250..], [0; 6]);
    }
}
