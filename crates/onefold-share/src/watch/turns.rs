//! How much of a changed image is read again in a round of the watch.
//!
//! The amount written to an image comes from the processes that have it open: how much each has written in total,
//! divided among its images. A process's writes to other files count, too, so this is an estimate. For an image that no
//! process has open, the amount is not known. It is read to its end once it is quiet for a second for each
//! [`QUIET_BYTES`] of its length: an image to which the kernel or another host writes is not read as a whole in each
//! pause of its writer.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use onefold_block::Timestamp;
use onefold_substrate::{FileHandle, FileStat, OpenImages, WrittenBytes};

use crate::scan::Turn;

/// Maximum amount that is read again of an image that no process has open, in bytes for each second without a change.
pub(crate) const QUIET_BYTES: u64 = 16 << 20;

/// Amounts written to images since their last turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The total that each process had written at the last look.
    processes: BTreeMap<u32, WrittenBytes>,
    open: BTreeSet<FileHandle>,
    /// By image, in bytes, since its last turn.
    written: RefCell<BTreeMap<FileHandle, u64>>,
}

impl Turns {
    /// Takes in the open images, and the amounts that their writers have written.
    pub(super) fn look(&mut self, open: &OpenImages) {
        let mut processes = BTreeMap::new();
        let written = self.written.get_mut();
        for writer in &open.writers {
            // For a new process, it is not known when it has written how much.
            let before = self.processes.get(&writer.process).copied().unwrap_or(writer.written);
            let since = writer.written.since(before);
            processes.insert(writer.process, writer.written);
            let images = writer.images.len().max(1) as u64;
            for image in &writer.images {
                *written.entry(image.clone()).or_default() += since / images;
            }
        }
        self.processes = processes;
        self.open.clone_from(&open.handles);
        written.retain(|image, _| open.handles.contains(image));
    }

    /// Returns how much of an image is read again.
    pub(super) fn of(&self, stat: &FileStat, now: Timestamp) -> Turn {
        if self.open.contains(&stat.handle) {
            return Turn::Within(self.written.borrow_mut().insert(stat.handle.clone(), 0).unwrap_or(0));
        }
        // Anybody may set the time of the content; only the file system sets the other one.
        let quiet = now.as_nanoseconds() - stat.changed.as_nanoseconds();
        let wanted = i128::from(stat.length) * 1_000_000_000 / i128::from(QUIET_BYTES);
        if quiet >= wanted { Turn::Whole } else { Turn::Within(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_substrate::Writer;

    fn image(number: u8) -> FileHandle {
        FileHandle::new(&[number]).unwrap()
    }

    fn open(writers: &[(u32, u64, &[u8])]) -> OpenImages {
        let writer = |&(process, written_bytes, images): &(u32, u64, &[u8])| Writer {
            process,
            written: WrittenBytes { by_pages: written_bytes, by_calls: None },
            images: images.iter().map(|number| image(*number)).collect(),
        };
        let writers: Vec<Writer> = writers.iter().map(writer).collect();
        let handles = writers.iter().flat_map(|writer| writer.images.clone()).collect();
        OpenImages { handles, writers, unseen_processes: 0 }
    }

    fn stat(number: u8, length: u64, changed: i64) -> FileStat {
        let changed = Timestamp { seconds: changed, nanoseconds: 0 };
        FileStat { handle: image(number), length, allocated: 0, names: 1, owner: 0, modified: changed, changed }
    }

    #[test]
    fn what_processes_write_is_shared_out_among_their_images_and_counts_once() {
        let mut turns = Turns::default();
        let now = Timestamp { seconds: 1000, nanoseconds: 0 };
        let of = |turns: &Turns, number| turns.of(&stat(number, 1 << 30, 1000), now);
        turns.look(&open(&[(7, 5000, &[1, 2]), (8, 100, &[3])]));
        assert_eq!(of(&turns, 1), Turn::Within(0), "when that was written nobody knows");
        turns.look(&open(&[(7, 9000, &[1, 2]), (8, 150, &[3, 1])]));
        turns.look(&open(&[(7, 9000, &[1, 2]), (8, 150, &[3, 1])]));
        assert_eq!([1, 2, 3].map(|number| of(&turns, number)), [2025, 2000, 25].map(Turn::Within));
        assert_eq!(of(&turns, 1), Turn::Within(0));
        // Another process with the same number.
        turns.look(&open(&[(7, 300, &[1])]));
        assert_eq!(of(&turns, 1), Turn::Within(300));
    }

    #[test]
    fn an_image_that_nobody_has_open_is_read_to_its_end_once_it_was_quiet_for_long_enough() {
        let turns = Turns::default();
        let now = Timestamp { seconds: 1000, nanoseconds: 0 };
        for (length, changed, expected) in [
            (QUIET_BYTES * 60, 940, Turn::Whole),
            (QUIET_BYTES * 60, 941, Turn::Within(0)),
            (4096, 999, Turn::Whole),
            (4096, 2000, Turn::Within(0)),
        ] {
            assert_eq!(turns.of(&stat(1, length, changed), now), expected, "{length} {changed}");
        }
    }
}
