//! Which parts of a file the kernel may have in its page cache while processes write to the file past that cache.
//!
//! The kernel drops cached pages of a range *before* it sends a direct write, and after a synchronous one. After an
//! asynchronous one (`io_uring`, libaio) it does not, so pages that a reader brings in meanwhile hold the old content for
//! ever. The door therefore notes what is read through the cache of such a file, and has the kernel drop those pages once
//! more before the write counts as complete.

use std::collections::HashMap;
use std::ops::Range;

use onefold_block::BLOCK_BYTES_U64;

/// Pages of a region: 1 MiB. One word has the marks of 64.
const REGION_PAGES: u64 = 256;
const WORD_PAGES: u64 = u64::BITS as u64;
const WORDS: usize = (REGION_PAGES / WORD_PAGES) as usize;

/// Regions of a file that are told apart: 64 GiB of a file, in about 4 MiB of memory.
const REGIONS_MAX: usize = 1 << 16;

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
    /// Notes that pages which touch a range of bytes may come into the cache.
    pub(super) fn note(&mut self, bytes: Range<u64>) {
        if self.is_everything {
            return;
        }
        for (region, word, mask) in words(bytes) {
            if self.regions.len() == REGIONS_MAX && !self.regions.contains_key(&region) {
                (self.regions, self.is_everything) = (HashMap::new(), true);
                return;
            }
            self.regions.entry(region).or_default()[word] |= mask;
        }
    }

    /// Returns what the kernel has to drop of a range of bytes, if anything, and takes it for dropped.
    pub(super) fn take(&mut self, bytes: Range<u64>) -> Option<Stale> {
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
        let mut pages = CachedPages::default();
        pages.note(10 * PAGE..20 * PAGE);
        assert_eq!(pages.take(0..10 * PAGE), None);
        assert_eq!(pages.take(20 * PAGE..30 * PAGE), None);
        assert_eq!(pages.take(19 * PAGE..21 * PAGE), Some(Stale::Range));
        assert_eq!(pages.take(19 * PAGE..21 * PAGE), None);
        // A byte of a page brings the page in.
        pages.note(5 * PAGE + 1..5 * PAGE + 2);
        assert_eq!(pages.take(5 * PAGE + 100..5 * PAGE + 101), Some(Stale::Range));
        assert_eq!(pages.take(0..PAGE << 20), Some(Stale::Range));
        assert!(pages.regions.is_empty());
    }

    #[test]
    fn pages_agree_with_a_plain_set() {
        let random = SeededRandom::new(3);
        let (mut pages, mut model) = (CachedPages::default(), BTreeSet::new());
        for _ in 0..20_000 {
            let first = random.below(3 * REGION_PAGES);
            let range = first..first + random.below(2 * REGION_PAGES);
            let bytes = range.start * PAGE..range.end * PAGE;
            if random.below(2) == 0 {
                pages.note(bytes);
                model.extend(range);
            } else {
                let mut is_there = false;
                range.for_each(|page| is_there |= model.remove(&page));
                assert_eq!(pages.take(bytes), is_there.then_some(Stale::Range));
            }
        }
    }

    #[test]
    fn what_no_longer_fits_is_dropped_as_a_whole() {
        let mut pages = CachedPages::default();
        for region in 0..=REGIONS_MAX as u64 {
            pages.note(region * REGION_PAGES * PAGE..region * REGION_PAGES * PAGE + 1);
        }
        assert_eq!(pages.take(0..PAGE), Some(Stale::Everything));
        assert_eq!(pages.take(0..PAGE), None);
        pages.note(0..PAGE);
        assert_eq!(pages.take(0..PAGE), Some(Stale::Range));
    }

    #[test]
    fn the_last_bytes_of_the_largest_file_are_no_special_case() {
        let mut pages = CachedPages::default();
        pages.note(u64::MAX - 10..u64::MAX);
        assert_eq!(pages.take(u64::MAX - 10..u64::MAX), Some(Stale::Range));
    }
}
