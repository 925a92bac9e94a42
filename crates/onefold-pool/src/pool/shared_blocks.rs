//! Remembers blocks that a walk over a file may meet more than once, in bounded memory.
//!
//! As long as they fit, all of them are kept and all numbers are exact. When they do not fit, the walk continues with a
//! sample: the blocks whose hash ends in a certain number of zero bits, one bit more each time that the sample is full.
//! The sample depends only on block numbers, so a sampled block is counted wherever it is met. The numbers of all
//! blocks are then extrapolated from the ratio of all places met to those in the sample. With n blocks in the sample
//! the error is about 1 in sqrt(n): 1 % for ten thousand.

use onefold_block::BlockNo;

use crate::meta::hash::BlockMap;

/// Memory of a bucket of the hash map, in bytes: the entry, a control byte, and half as much again while the map grows.
const BUCKET_BYTES: usize = (size_of::<(BlockNo, PlaceCount)>() + 1) * 3 / 2;

/// Marks references by leaves that other files also have: no walk meets so many.
const OF_OTHERS: u32 = 0;

#[derive(Clone, Copy, Debug)]
struct PlaceCount {
    /// Number of places in the file that name the block.
    here: u32,
    /// Number of leaves that name it, in all files, or [`OF_OTHERS`].
    references: u32,
}

/// The blocks that were met, or a sample of them.
#[derive(Debug)]
pub(super) struct SharedBlockSample {
    kept: BlockMap<PlaceCount>,
    entries_max: usize,
    /// Number of a block's hash bits that must be zero.
    zero_bits: u32,
    /// Number of places that were met, for all blocks.
    places: u64,
}

/// Result of a walk, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SharedCount {
    /// Different blocks.
    pub(super) distinct: u64,
    /// Those of them that no other file names.
    pub(super) only_here: u64,
    pub(super) is_estimated: bool,
}

impl SharedBlockSample {
    /// Returns an empty set that takes at most `bytes_max` bytes of memory, but always keeps a few blocks.
    pub(super) fn new(bytes_max: usize) -> SharedBlockSample {
        // A map has a power of two of buckets, and uses seven of eight. It grows when asked for one more than that.
        let buckets = (bytes_max / BUCKET_BYTES).checked_ilog2().map_or(8, |bits| 1 << bits.max(3));
        SharedBlockSample { kept: BlockMap::default(), entries_max: buckets / 8 * 7 - 1, zero_bits: 0, places: 0 }
    }

    /// Notes a place that names a block of `references` references in all.
    pub(super) fn add(&mut self, block: BlockNo, references: u32) {
        self.note(block, |places| {
            if places.here == 0 {
                places.references = references;
            }
        });
    }

    /// Notes a place that names a block through a node that another file also has.
    pub(super) fn add_of_others(&mut self, block: BlockNo) {
        self.note(block, |places| places.references = OF_OTHERS);
    }

    fn note(&mut self, block: BlockNo, change: impl FnOnce(&mut PlaceCount)) {
        self.places += 1;
        if !is_sampled(block, self.zero_bits) {
            return;
        }
        while self.kept.len() >= self.entries_max && !self.kept.contains_key(&block) {
            self.halve();
            if !is_sampled(block, self.zero_bits) {
                return;
            }
        }
        let places = self.kept.entry(block).or_insert(PlaceCount { here: 0, references: 0 });
        change(places);
        places.here = places.here.saturating_add(1);
    }

    /// Continues with a sample of half as many blocks.
    fn halve(&mut self) {
        self.zero_bits += 1;
        let zero_bits = self.zero_bits;
        let sampled: Vec<(BlockNo, PlaceCount)> =
            self.kept.drain().filter(|(block, _)| is_sampled(*block, zero_bits)).collect();
        // Reuses the same memory. A map from which half is removed one by one may grow for later entries.
        self.kept.extend(sampled);
    }

    /// Returns the result so far.
    pub(super) fn count(&self) -> SharedCount {
        let is_only_here = |places: &&PlaceCount| places.here == places.references;
        let (distinct, only_here) = (self.kept.len() as u64, self.kept.values().filter(is_only_here).count() as u64);
        if self.zero_bits == 0 {
            return SharedCount { distinct, only_here, is_estimated: false };
        }
        let sampled_places: u64 = self.kept.values().map(|places| u64::from(places.here)).sum();
        let of_all = |count: u64| {
            let scaled = u128::from(count) * u128::from(self.places) / u128::from(sampled_places.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        SharedCount { distinct: of_all(distinct), only_here: of_all(only_here), is_estimated: true }
    }
}

/// Returns whether a block is in a sample of those whose hash ends in `zero_bits` zero bits.
fn is_sampled(block: BlockNo, zero_bits: u32) -> bool {
    // The last steps of SplitMix64 spread blocks of any pattern evenly.
    let mut hash = block.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ hash >> 31).trailing_zeros() >= zero_bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In each group of three blocks, one is named once here and once elsewhere, one twice here, and one by a node that
    /// a clone has.
    fn walk(shared: &mut SharedBlockSample, thirds: u64) {
        for third in 0..thirds {
            let block = BlockNo(1_000_000 + third * 3);
            shared.add(block, 2);
            shared.add(block.plus(1), 2);
            shared.add_of_others(block.plus(2));
        }
        for third in (0..thirds).rev() {
            shared.add(BlockNo(1_000_000 + third * 3 + 1), 2);
        }
    }

    #[test]
    fn what_fits_is_counted_exactly() {
        let mut shared = SharedBlockSample::new(4096 * BUCKET_BYTES);
        walk(&mut shared, 1000);
        assert_eq!(shared.count(), SharedCount { distinct: 3000, only_here: 1000, is_estimated: false });
    }

    #[test]
    fn what_does_not_fit_is_estimated_in_bounded_memory() {
        let thirds = 200_000;
        let mut shared = SharedBlockSample::new(128 << 10);
        walk(&mut shared, thirds);
        let (kept, capacity) = (shared.kept.len(), shared.kept.capacity());
        assert!((1000..3584).contains(&kept) && capacity == 3584, "{kept} of {capacity}");
        let found = shared.count();
        assert!(found.is_estimated);
        let is_near = |found: u64, exact: u64| found.abs_diff(exact) < exact / 20;
        assert!(is_near(found.distinct, 3 * thirds) && is_near(found.only_here, thirds), "{found:?}");
    }

    #[test]
    fn where_no_block_is_met_twice_an_estimate_is_exact() {
        let mut shared = SharedBlockSample::new(0);
        (0..100_000).for_each(|number| shared.add_of_others(BlockNo(number * 512)));
        assert_eq!(shared.count(), SharedCount { distinct: 100_000, only_here: 0, is_estimated: true });
    }

    #[test]
    fn a_block_that_a_clone_has_too_is_not_only_here_in_whatever_order() {
        for clone_first in [true, false] {
            let mut shared = SharedBlockSample::new(1000);
            if clone_first {
                shared.add_of_others(BlockNo(5));
            }
            shared.add(BlockNo(5), 2);
            if !clone_first {
                shared.add_of_others(BlockNo(5));
            }
            assert_eq!(shared.count(), SharedCount { distinct: 1, only_here: 0, is_estimated: false });
        }
    }
}
