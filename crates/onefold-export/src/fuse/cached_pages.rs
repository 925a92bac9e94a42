//! Which parts of a file the kernel may have in its page cache while processes write to the file past that cache.
//!
//! The kernel drops cached pages of a range *before* it sends a direct write, and after a synchronous one. After an
//! asynchronous one (`io_uring`, libaio) it does not, so pages that a reader brings in meanwhile hold the old content
//! for ever. The door therefore notes what is read through the cache of such a file, and has the kernel drop those
//! pages once more before the write counts as complete.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use onefold_block::BLOCK_BYTES_U64;

/// Pages of a region: 1 MiB. One word has the marks of 64.
const REGION_PAGES: u64 = 256;
const WORD_PAGES: u64 = u64::BITS as u64;
const WORDS: usize = (REGION_PAGES / WORD_PAGES) as usize;

/// Memory of a region that is told apart, in bytes, with what a hash map needs to grow.
const REGION_BYTES: u64 = 64;

/// Marks may take this share of the pool's `memory` setting: with 1 GiB they tell 256 GiB of cached files apart.
const MEMORY_SHARE: u64 = 64;

/// Regions of all files that can still be told apart.
#[derive(Debug)]
pub(super) struct RegionRoom(usize);

impl RegionRoom {
    /// Returns the room of a mount whose pool has this `memory` setting.
    pub(super) fn new(memory_bytes: u64) -> RegionRoom {
        RegionRoom(usize::try_from(memory_bytes / MEMORY_SHARE / REGION_BYTES).unwrap_or(usize::MAX))
    }
}

/// The pages of a file that the kernel may have cached since its cache was last known not to have them.
#[derive(Debug, Default)]
pub(super) struct CachedPages {
    regions: HashMap<u64, [u64; WORDS]>,
    /// There were too many to tell apart: any page may be cached.
    is_everything: bool,
}

/// What the kernel has to drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    /// The range of the write.
    Range,
    /// All pages of the file: nobody knows which of them it has.
    Everything,
}

impl CachedPages {
    /// Notes that pages which touch a range of bytes may come into the cache. Where there is no `room` for more
    /// regions, the pages of this file are told apart no more.
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

    /// Returns what the kernel has to drop of a range of bytes, if anything, and takes it for dropped.
    pub(super) fn take(&mut self, bytes: Range<u64>, room: &mut RegionRoom) -> Option<Stale> {
        if std::mem::take(&mut self.is_everything) {
            return Some(Stale::Everything);
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
        is_cached.then_some(Stale::Range)
    }
}

/// Returns the region, the word in it, and the bits of the word, of all pages that a range of bytes touches.
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
        assert_eq!(pages.take(19 * PAGE..21 * PAGE, &mut room), Some(Stale::Range));
        assert_eq!(pages.take(19 * PAGE..21 * PAGE, &mut room), None);
        // A byte of a page brings the page in.
        pages.note(5 * PAGE + 1..5 * PAGE + 2, &mut room);
        assert_eq!(pages.take(5 * PAGE + 100..5 * PAGE + 101, &mut room), Some(Stale::Range));
        assert_eq!(pages.take(0..PAGE << 20, &mut room), Some(Stale::Range));
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
                assert_eq!(pages.take(bytes, &mut room), is_there.then_some(Stale::Range));
            }
        }
    }

    /// What was wrong: each file had room of its own, so that many files took memory without bound.
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
        assert_eq!(pages.take(0..PAGE, &mut room), Some(Stale::Everything));
        assert_eq!(pages.take(0..PAGE, &mut room), None);
        pages.note(0..PAGE, &mut room);
        assert_eq!(pages.take(0..PAGE, &mut room), Some(Stale::Range));
        assert_eq!(other.take(place(5), &mut room), Some(Stale::Range), "others keep their marks");
        other.forget(&mut room);
        assert_eq!(room.0 as u64, regions);
    }

    #[test]
    fn the_last_bytes_of_the_largest_file_are_no_special_case() {
        let (mut pages, mut room) = (CachedPages::default(), RegionRoom(1000));
        pages.note(u64::MAX - 10..u64::MAX, &mut room);
        assert_eq!(pages.take(u64::MAX - 10..u64::MAX, &mut room), Some(Stale::Range));
    }
}
