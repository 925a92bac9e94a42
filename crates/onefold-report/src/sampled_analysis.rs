//! What a sampled analysis found. Sizes are in bytes; what was not counted but told from the sample is a range.
//!
//! Which figures of an [`Analysis`](crate::Analysis) are not here is on purpose: a sample tells nothing sound about
//! them.

use std::fmt;

use onefold_block::size::human;
use serde::Serialize;

use crate::analysis::{Effort, LeftOut, Misaligned};

/// A figure that was told from a sample: what it is about, and what it is not below and not above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Range {
    /// It is hardly less.
    pub low: u64,
    /// The best guess.
    pub best: u64,
    /// It is hardly more.
    pub high: u64,
}

/// The same for a part of a whole, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ShareRange {
    /// It is hardly less.
    pub low: f64,
    /// The best guess.
    pub best: f64,
    /// It is hardly more.
    pub high: f64,
}

/// All findings about a set of images of which a sample was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampledAnalysis {
    /// What was read, and how far the ranges can be trusted.
    pub sample: SampleReport,
    /// All images together.
    pub total: SampledTotal,
    /// Each image, in the given order.
    pub images: Vec<SampledImage>,
    /// What could not be read and is in no number.
    pub left_out: Vec<LeftOut>,
    /// The same images with blocks of 4 KiB to 1 MiB.
    pub block_sizes: Vec<SampledBlockSize>,
    /// Partitions that begin inside a block of 4 KiB.
    pub misaligned: Vec<Misaligned>,
    /// What each way of storing the images would take.
    pub ways: SampledWays,
    /// What the analysis itself took.
    pub effort: Effort,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampleReport {
    /// The part of regions that was to be read, from 0 to 1.
    pub share: f64,
    /// Length of a region: the same ones are read in every image.
    pub region_bytes: u64,
    /// Regions in which some image may hold data.
    pub regions: u64,
    /// Of these: in the sample.
    pub regions_read: u64,
    /// The part of what may hold data that was read, from 0 to 1.
    pub read_share: f64,
    /// How often a range holds the true figure, at the least: of all samples that could have been drawn, from 0 to 1.
    pub confidence: f64,
    /// Whether there are too few regions for ranges that say much.
    pub is_small: bool,
}

impl SampledAnalysis {
    /// What is not in it, in a sentence.
    pub const NOT_TOLD: &str = "What each image shares with others and costs, how often blocks repeat, likeness, growth, \
                                runs, groups, and what realigning brings needs all to be read: leave out --sample.";
}

impl fmt::Display for SampleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "A sample: {} of {} regions of {} with data were read, the same ones in every image, {:.1} % of what is no hole. \
             Of 100 samples as could be drawn, the ranges of {:.0} or more hold the true figures; each run draws another.",
            self.regions_read,
            self.regions,
            human(self.region_bytes),
            self.read_share * 100.0,
            self.confidence * 100.0
        )
    }
}

/// All images together: `apparent = zero + distinct + saved`, of which the best guesses add up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampledTotal {
    /// Lengths, each rounded up to blocks of 4 KiB.
    pub apparent_bytes: u64,
    /// What the images' files occupy now.
    pub allocated_bytes: u64,
    /// What is no hole: it may be zero or not.
    pub data_bytes: u64,
    /// Holes and blocks of zeros.
    pub zero_bytes: Range,
    /// Blocks of 4 KiB that are not zero.
    pub nonzero_bytes: Range,
    /// Different ones among them: what a pool stores.
    pub distinct_bytes: Range,
    /// The rest of them.
    pub saved_bytes: Range,
    /// The rest of them, as a part of them.
    pub saved_share: ShareRange,
}

/// One image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SampledImage {
    /// Its name.
    pub name: String,
    /// Whether somebody wrote to it meanwhile: then its numbers are of no single moment.
    pub changed_meanwhile: bool,
    /// Length, rounded up to blocks of 4 KiB.
    pub apparent_bytes: u64,
    /// What its files occupy now.
    pub allocated_bytes: u64,
    /// What is no hole.
    pub data_bytes: u64,
    /// What was read of it.
    pub read_bytes: u64,
    /// Holes and blocks of zeros.
    pub zero_bytes: Range,
}

/// What blocks of one size would bring.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampledBlockSize {
    /// The size.
    pub block_bytes: u64,
    /// Blocks that are not zero.
    pub nonzero_bytes: Range,
    /// Different ones among them.
    pub distinct_bytes: Range,
    /// What is saved, as a part of what is not zero.
    pub saved_share: ShareRange,
    /// Different ones where only blocks at the same offset can be shared: the least that linked clones need.
    pub linked_clone_bytes: Range,
}

/// What the images take now, and what they would take otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SampledWays {
    /// What their files occupy now.
    pub now_bytes: u64,
    /// In a pool: distinct blocks and metadata.
    pub pool_bytes: Range,
    /// With equal blocks shared by the file system that they lie on, and an index to find them; nothing where some
    /// image is no plain file.
    pub sharing_bytes: Option<Range>,
    /// As linked clones of each other, at 4 KiB: the least they would need.
    pub linked_clone_bytes: Range,
    /// What to do, in a sentence or two.
    pub recommendation: String,
}
