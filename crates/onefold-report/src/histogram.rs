//! Number of regions of the sample that contain each content. Figures for the whole are estimated from it.

use crate::sizes::SIZES;

/// Contents in up to this number of regions of the sample are distinguished by the number. Contents in more regions of
/// the sample are in so many regions of the whole that almost none of them went unseen.
pub(crate) const TOLD_APART: usize = 8;
/// Number of buckets. If there are more regions, several share a bucket. This bounds memory to 3 MiB, and only makes
/// bounds wider.
const BUCKETS: usize = 4096;

/// Returns the bucket of a region. Neighbours have different buckets.
pub(crate) fn bucket_of(region: u64) -> usize {
    // The upper bits of a product with an irregular number (2^64 divided by the golden ratio).
    usize::try_from(region.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.trailing_zeros())).expect("few bits")
}

/// Content of one region, or of several regions of one bucket, in blocks of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Contents here by their number of regions in the sample: one, two, and so on, up to one more than [`TOLD_APART`].
    pub(crate) contents: [u64; TOLD_APART + 1],
    /// Blocks that are not zero, in all images.
    pub(crate) references: u64,
    /// Distinct pairs of content and offset.
    pub(crate) at_offset: u64,
}

/// The regions of the sample, for each block size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    sizes: Vec<Vec<Bucket>>,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram { sizes: vec![vec![Bucket::default(); BUCKETS]; usize::from(SIZES)] }
    }

    /// Returns the buckets of a block size.
    pub(crate) fn buckets(&self, size: u8) -> &[Bucket] {
        &self.sizes[usize::from(size)]
    }

    fn bucket(&mut self, size: u8, region: u64) -> &mut Bucket {
        &mut self.sizes[usize::from(size)][bucket_of(region)]
    }

    /// Counts a block that is not zero.
    pub(crate) fn add_reference(&mut self, size: u8, index: u64) {
        self.bucket(size, region_of(size, index)).references += 1;
    }

    /// Counts an offset of a content, once for all images that have it there.
    pub(crate) fn add_offset(&mut self, size: u8, index: u64) {
        self.bucket(size, region_of(size, index)).at_offset += 1;
    }

    /// Counts a content, all of whose places in the sample are known.
    pub(crate) fn add_content(&mut self, size: u8, places: &RegionPlaces) {
        let count = places.regions.len();
        if count <= TOLD_APART + 1 {
            for &region in &places.regions {
                self.bucket(size, region).contents[count - 1] += 1;
            }
        }
    }
}

/// Returns the region of the block `index`.
fn region_of(size: u8, index: u64) -> u64 {
    index >> (SIZES - 1 - size)
}

/// The regions that hold one content, as far as they matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionPlaces {
    /// Each region once. If there are too many, one more than [`TOLD_APART`] is kept.
    regions: Vec<u64>,
}

impl RegionPlaces {
    /// Removes all regions, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.regions.clear();
    }

    /// Records that the content is at block `index`.
    pub(crate) fn note(&mut self, size: u8, index: u64) {
        let region = region_of(size, index);
        // Blocks come in the order of an image, so the region is usually the last one again.
        if self.regions.last() != Some(&region)
            && self.regions.len() <= TOLD_APART + 1
            && !self.regions.contains(&region)
        {
            self.regions.push(region);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_counts_in_each_of_its_regions_by_how_many_they_are() {
        let mut histogram = Histogram::new();
        let mut places = RegionPlaces::default();
        // Three blocks in two regions of 256 blocks.
        for index in [0, 255, 256] {
            places.note(0, index);
            histogram.add_reference(0, index);
        }
        histogram.add_content(0, &places);
        for (region, references) in [(0, 2), (1, 1)] {
            let bucket = histogram.buckets(0)[bucket_of(region)];
            assert_eq!((bucket.contents[0], bucket.contents[1], bucket.references), (0, 1, references));
        }
        assert_eq!(region_of(8, 5), 5, "a block of 1 MiB is a region");
    }

    #[test]
    fn contents_in_very_many_regions_are_told_by_none() {
        let mut histogram = Histogram::new();
        let mut places = RegionPlaces::default();
        for region in 0..50 {
            places.note(8, region);
        }
        histogram.add_content(8, &places);
        assert!(histogram.buckets(8).iter().all(|bucket| *bucket == Bucket::default()));
        assert!(places.regions.len() < 12);
    }
}
