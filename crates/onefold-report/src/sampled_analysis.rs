//! Results of a sampled analysis. Sizes are in bytes. A figure that is estimated from the sample is a range.
//!
//! Some figures of an [`Analysis`](crate::Analysis) are omitted on purpose, because a sample does not support them.

use std::fmt;

use onefold_block::size::human;
use serde::Serialize;

use crate::analysis::{Effort, MisalignedPartition, SkippedImage};

/// A figure that is estimated from a sample: its best guess and its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Range {
    /// The true figure is hardly smaller.
    pub low: u64,
    /// The best guess.
    pub best: u64,
    /// The true figure is hardly larger.
    pub high: u64,
}

/// A range for a part of a whole, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ShareRange {
    /// The true figure is hardly smaller.
    pub low: f64,
    /// The best guess.
    pub best: f64,
    /// The true figure is hardly larger.
    pub high: f64,
}

/// All findings about a set of images of which a sample was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampledAnalysis {
    /// Amount that was read, and reliability of the ranges.
    pub sample: SampleReport,
    /// All images together.
    pub total: SampledTotal,
    /// Each image, in the given order.
    pub images: Vec<SampledImage>,
    /// Images that could not be read. No figure includes them.
    pub left_out: Vec<SkippedImage>,
    /// The same images with blocks of 4 KiB to 1 MiB.
    pub block_sizes: Vec<SampledBlockSize>,
    /// Partitions that begin inside a block of 4 KiB.
    pub misaligned: Vec<MisalignedPartition>,
    /// Space that each way of storing the images would take.
    pub ways: SampledWays,
    /// Effort of the analysis itself.
    pub effort: Effort,
}

/// The sample that was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampleReport {
    /// The requested part of regions, from 0 to 1.
    pub share: f64,
    /// Length of a region. The same regions are read in every image.
    pub region_bytes: u64,
    /// Regions in which some image may hold data.
    pub regions: u64,
    /// Of these: in the sample.
    pub regions_read: u64,
    /// The part of the possible data that was read, from 0 to 1.
    pub read_share: f64,
    /// Minimum probability that a range contains the true figure, over all possible samples, from 0 to 1.
    pub confidence: f64,
    /// Whether there are too few regions for useful ranges.
    pub is_small: bool,
}

impl SampledAnalysis {
    /// Figures that a sample does not include, in sentences.
    pub const NOT_TOLD: &str = "A sample does not show what each image shares with others and costs, how often blocks \
                                repeat, likeness, growth, runs, groups, and what realigning brings. Leave out --sample to \
                                see these.";
}

impl fmt::Display for SampleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "A sample: {} of {} regions of {} with data were read, the same ones in every image, {:.1} % of what is no hole. \
             In at least {:.0} of 100 such samples, the ranges contain the true values; each run draws another.",
            self.regions_read,
            self.regions,
            human(self.region_bytes),
            self.read_share * 100.0,
            self.confidence * 100.0
        )
    }
}

/// All images together: `apparent = zero + distinct + saved`, which holds for the best guesses.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampledTotal {
    /// Lengths, each rounded up to blocks of 4 KiB.
    pub apparent_bytes: u64,
    /// Space that the images' files occupy now.
    pub allocated_bytes: u64,
    /// Bytes outside of holes. They may be zero or not.
    pub data_bytes: u64,
    /// Holes and blocks of zeros.
    pub zero_bytes: Range,
    /// Blocks of 4 KiB that are not zero.
    pub nonzero_bytes: Range,
    /// Distinct ones among them: a pool stores these.
    pub distinct_bytes: Range,
    /// The others.
    pub saved_bytes: Range,
    /// The others, as a part of the blocks that are not zero.
    pub saved_share: ShareRange,
}

/// One image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SampledImage {
    /// Its name.
    pub name: String,
    /// Whether the image was written during the analysis. Its numbers then describe no single moment.
    pub changed_meanwhile: bool,
    /// Length, rounded up to blocks of 4 KiB.
    pub apparent_bytes: u64,
    /// Space that its files occupy now.
    pub allocated_bytes: u64,
    /// Bytes outside of holes.
    pub data_bytes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Holes and blocks of zeros.
    pub zero_bytes: Range,
}

/// Result for one block size.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampledBlockSize {
    /// The size.
    pub block_bytes: u64,
    /// Blocks that are not zero.
    pub nonzero_bytes: Range,
    /// Distinct ones among them.
    pub distinct_bytes: Range,
    /// Saved part of the blocks that are not zero.
    pub saved_share: ShareRange,
    /// Distinct ones among them if only blocks at the same offset can be shared: the minimum that linked clones need.
    pub linked_clone_bytes: Range,
}

/// Space that the images take now and would take in other forms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SampledWays {
    /// Space that their files occupy now.
    pub now_bytes: u64,
    /// In a pool: distinct blocks and metadata.
    pub pool_bytes: Range,
    /// With equal blocks shared by their file system, and an index to find the blocks; `None` if some image is not a
    /// plain file.
    pub sharing_bytes: Option<Range>,
    /// As linked clones of each other, at 4 KiB: the minimum that they would need.
    pub linked_clone_bytes: Range,
    /// Recommendation in a sentence or two.
    pub recommendation: String,
}
