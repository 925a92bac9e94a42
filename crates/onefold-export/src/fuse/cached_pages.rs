//! Tracks the parts of a file that may be in the kernel's page cache while processes write to the file past that cache.
//!
//! The kernel drops cached pages of a range *before* it sends a direct write, and again after a synchronous one. After
//! an asynchronous one (`io_uring`, libaio) it does not, so pages that a reader brings in meanwhile keep the old
//! content for ever. The door therefore notes each read of such a file through the cache. Before the write counts as
//! complete, the door makes the kernel drop those pages once more.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use onefold_block::BLOCK_BYTES_U64;

/// Pages of a region: 1 MiB. One word holds the marks of 64 pages.
const REGION_PAGES: u64 = 256;
const WORD_PAGES: u64 = u64::BITS as u64;
const WORDS: usize = (REGION_PAGES / WORD_PAGES) as usize;

/// Memory for the marks of one region, in bytes, including the spare room of a growing hash map.
const REGION_BYTES: u64 = 64;

/// The marks may take this share of the pool's `memory` setting. With 1 GiB, they cover 256 GiB of cached files.
const MEMORY_SHARE: u64 = 64;

/// Number of further regions, of all files together, that marks may cover.
#[derive(Debug)]
pub(super) struct RegionRoom(usize);

impl RegionRoom {
    /// Returns the room of a mount whose pool has this `memory` setting.
    pub(super) fn new(memory_bytes: u64) -> RegionRoom {
        RegionRoom(usize::try_from(memory_bytes / MEMORY_SHARE / REGION_BYTES).unwrap_or(usize::MAX))
    }
}

/// The pages of a file that the kernel may have cached since they were last known to be dropped.
#[derive(Debug, Default)]
pub(super) struct CachedPages {
    regions: HashMap<u64, [u64; WORDS]>,
    /// Set when the marks ran out of room: any page may be cached.
    is_everything: bool,
}

/// The pages that the kernel has to drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StaleScope {
    /// The range of the write.
    Range,
    /// All pages of the file, because the marks do not tell which of them are cached.
    Everything,
}

impl CachedPages {
    /// Notes that pages touching a range of bytes may enter the cache. If `room` has no more regions, the whole file
    /// counts as cached.
    pub(super) fn note(&mut self, bytes: Range<u64>, room: &mut RegionRoom) {
        if self.is_everything {
            return;
        }
        for (region, word, mask) in words(bytes) {
            let marks = match self.regions.entry(region) {
                Entry::Occupied(marks) => marks.into_mut(),
                Entry::Vacant(_) if room.0 == 0 => {
                    self.forget(room);
                    self.is_everything = true;
                    return;
                }
                Entry::Vacant(vacant) => {
                    room.0 -= 1;
                    vacant.insert([0; WORDS])
                }
            };
            marks[word] |= mask;
        }
    }

    /// Forgets all marks and gives their room back.
    pub(super) fn forget(&mut self, room: &mut RegionRoom) {
        room.0 += std::mem::take(&mut self.regions).len();
    }

    /// Returns the pages of a range of bytes that the kernel has to drop, if any, and removes their marks.
    pub(super) fn take(&mut self, bytes: Range<u64>, room: &mut RegionRoom) -> Option<StaleScope> {
        if std::mem::take(&mut self.is_everything) {
            return Some(StaleScope::Everything);
        }
        let mut is_cached = false;
        for (region, word, mask) in words(bytes) {
            let Some(marks) = self.regions.get_mut(&region) else { continue };
            is_cached |= marks[word] & mask != 0;
            marks[word] &= !mask;
            if marks.iter().all(|word| *word == 0) {
                self.regions.remove(&region);
                room.0 += 1;
            }
        }
        is_cached.then_some(StaleScope::Range)
    }
}

/// Returns, for all pages that a range of bytes touches, the region, the word in it, and the bits of the word.
fn words(bytes: Range<u64>) -> impl Iterator<Item = (u64, usize, u64)> {
    let pages = bytes.start / BLOCK_BYTES_U64..bytes.end.div_ceil(BLOCK_BYTES_U64);
    (pages.start / WORD_PAGES..pages.end.div_ceil(WORD_PAGES)).map(move |word| {
        let first = pages.start.saturating_sub(word * WORD_PAGES);
        let end = (pages.end - word * WORD_PAGES).min(WORD_PAGES);
        let below_end = if end == WORD_PAGES { u64::MAX } else { (1 << end) - 1 };
        let mask = below_end & !((1 << first) - 1);
        let words = REGION_PAGES / WORD_PAGES;
        (word / words, usize::try_from(word % words).expect("a small number"), mask)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use onefold_block::random::SeededRandom;

    use super::*;

    const PAGE: u64 = BLOCK_BYTES_U64;

    #[test]
    fn pages_are_taken_once_and_only_where_they_were_noted() {
        let (mut pages, mut room) = (CachedPages::default(), RegionRoom(1000));
        pages.note(10 * PAGE..20 * PAGE, &mut room);
        assert_eq!(pages.take(0..10 * PAGE, &mut room), None);
        assert_eq!(pages.take(20 * PAGE..30 * PAGE, &mut room), None);
        assert_eq!(pages.take(19 * PAGE..21 * PAGE, &mut room), Some(StaleScope::Range));
        assert_eq!(pages.take(19 * PAGE..21 * PAGE, &mut room), None);
        // Reading one byte brings the whole page into the cache.
        pages.note(5 * PAGE + 1..5 * PAGE + 2, &mut room);
        assert_eq!(pages.take(5 * PAGE + 100..5 * PAGE + 101, &mut room), Some(StaleScope::Range));
        assert_eq!(pages.take(0..PAGE << 20, &mut room), Some(StaleScope::Range));
        assert!(pages.regions.is_empty() && room.0 == 1000);
    }

    #[test]
    fn pages_agree_with_a_plain_set() {
        let random = SeededRandom::new(3);
        let (mut pages, mut room, mut model) = (CachedPages::default(), RegionRoom(1000), BTreeSet::new());
        for _ in 0..20_000 {
            let first = random.below(3 * REGION_PAGES);
            let range = first..first + random.below(2 * REGION_PAGES);
            let bytes = range.start * PAGE..range.end * PAGE;
            if random.below(2) == 0 {
                pages.note(bytes, &mut room);
                model.extend(range);
            } else {
                let mut is_there = false;
                range.for_each(|page| is_there |= model.remove(&page));
                assert_eq!(pages.take(bytes, &mut room), is_there.then_some(StaleScope::Range));
            }
        }
    }

    /// Regression: each file had room of its own, so many files took unbounded memory.
    #[test]
    fn what_no_longer_fits_beside_other_files_is_dropped_as_a_whole() {
        let mut room = RegionRoom::new(64 << 20);
        let regions = u64::try_from(room.0).unwrap();
        assert_eq!(regions, 1 << 14);
        let (mut other, mut pages) = (CachedPages::default(), CachedPages::default());
        let place = |region: u64| region * REGION_PAGES * PAGE..region * REGION_PAGES * PAGE + 1;
        (0..regions - 2).for_each(|region| other.note(place(region), &mut room));
        (0..3).for_each(|region| pages.note(place(region), &mut room));
        assert_eq!((pages.regions.len(), room.0), (0, 2));
        assert_eq!(pages.take(0..PAGE, &mut room), Some(StaleScope::Everything));
        assert_eq!(pages.take(0..PAGE, &mut room), None);
        pages.note(0..PAGE, &mut room);
        assert_eq!(pages.take(0..PAGE, &mut room), Some(StaleScope::Range));
        assert_eq!(other.take(place(5), &mut room), Some(StaleScope::Range), "others keep their marks");
        other.forget(&mut room);
        assert_eq!(room.0 as u64, regions);
    }

    #[test]
    fn the_last_bytes_of_the_largest_file_are_no_special_case() {
        let (mut pages, mut room) = (CachedPages::default(), RegionRoom(1000));
        pages.note(u64::MAX - 10..u64::MAX, &mut room);
        assert_eq!(pages.take(u64::MAX - 10..u64::MAX, &mut room), Some(StaleScope::Range));
    }
}
