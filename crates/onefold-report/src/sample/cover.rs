//! Facts about images that are known without reading them: which of their regions may hold data.

use std::collections::BTreeMap;
use std::ops::Range;

use onefold_block::BLOCK_BYTES_U64;

use super::{REGION_BYTES, Sample};
use crate::histogram::bucket_of;
use crate::map_nodes::MapNodes;

/// Places where one image, or all of them, may hold data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cover {
    /// Bytes that may hold data.
    pub(crate) data_bytes: u64,
    /// Regions that may hold data: one bit each, in words that exist only if one of their bits is set.
    regions: BTreeMap<u64, u64>,
    /// Bytes that may hold data in regions of the sample, by bucket.
    sampled_bytes: BTreeMap<usize, u64>,
}

/// Known facts about the regions of one bucket, independent of their content.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ground {
    /// Regions of the sample in which some image may hold data.
    pub(crate) regions: f64,
    /// Bytes that may hold data, in all images.
    pub(crate) data_bytes: f64,
}

impl Cover {
    /// Records that `data`, within one region, may hold data.
    pub(crate) fn note(&mut self, region: u64, data: &Range<u64>, is_sampled: bool) {
        let bytes = data.end - data.start;
        self.data_bytes = self.data_bytes.saturating_add(bytes);
        *self.regions.entry(region / 64).or_default() |= 1 << (region % 64);
        if is_sampled {
            *self.sampled_bytes.entry(bucket_of(region)).or_default() += bytes;
        }
    }

    /// Adds the cover of another image.
    pub(crate) fn add(&mut self, other: &Cover) {
        self.data_bytes = self.data_bytes.saturating_add(other.data_bytes);
        for (word, bits) in &other.regions {
            *self.regions.entry(*word).or_default() |= bits;
        }
        for (bucket, bytes) in &other.sampled_bytes {
            *self.sampled_bytes.entry(*bucket).or_default() += bytes;
        }
    }

    /// Returns how many regions may hold data.
    pub(crate) fn region_count(&self) -> u64 {
        self.regions.values().map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// Returns the regions of the sample, by bucket. Empty buckets are left out.
    pub(crate) fn grounds(&self, sample: &Sample) -> BTreeMap<usize, Ground> {
        let mut grounds: BTreeMap<usize, Ground> = BTreeMap::new();
        let regions = self
            .regions
            .iter()
            .flat_map(|(word, bits)| (0..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| word * 64 + bit));
        for region in regions.filter(|&region| sample.has(region)) {
            grounds.entry(bucket_of(region)).or_default().regions += 1.0;
        }
        for (bucket, bytes) in &self.sampled_bytes {
            grounds.entry(*bucket).or_default().data_bytes = *bytes as f64;
        }
        grounds
    }
}

/// Records in `nodes` all blocks that `data` touches.
pub(crate) fn note_mapped(nodes: &mut MapNodes, data: &Range<u64>) {
    nodes.note_range(data.start / BLOCK_BYTES_U64, data.end.div_ceil(BLOCK_BYTES_U64));
}

/// Returns the region at `offset`.
pub(crate) fn region_at(offset: u64) -> u64 {
    offset / REGION_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Share;

    #[test]
    fn covers_of_images_add_up_and_a_region_of_both_is_one() {
        let sample = Sample::new([1; 32], Share::MAX);
        let cover = |regions: Range<u64>| {
            let mut cover = Cover::default();
            for region in regions {
                let start = region * REGION_BYTES;
                cover.note(region, &(start..start + 4096), sample.has(region));
                cover.note(region, &(start + 8192..start + 16384), sample.has(region));
            }
            cover
        };
        let mut both = cover(0..100);
        both.add(&cover(50..200));
        assert_eq!((both.region_count(), both.data_bytes), (200, 250 * 12288));
        let grounds = both.grounds(&sample);
        let read: Vec<u64> = (0..200).filter(|&region| sample.has(region)).collect();
        assert!((grounds.values().map(|ground| ground.regions).sum::<f64>() - read.len() as f64).abs() < 1e-9);
        let twice = read.iter().filter(|region| (50..100).contains(*region)).count();
        let bytes: f64 = grounds.values().map(|ground| ground.data_bytes).sum();
        assert!((bytes - ((read.len() + twice) * 12288) as f64).abs() < 1e-9);
    }
}
