//! What an analysis found. All sizes are in bytes and add up; how is said at each structure.

use onefold_guest::Partition;
use serde::Serialize;

use crate::files::FilesAnalysis;

/// All findings about a set of images.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Analysis {
    /// All images together.
    pub total: Total,
    /// Each image, in the given order.
    pub images: Vec<ImageReport>,
    /// What could not be read and is in no number.
    pub left_out: Vec<LeftOut>,
    /// The same images with blocks of 4 KiB to 1 MiB.
    pub block_sizes: Vec<BlockSize>,
    /// The same with zeros put before every image; empty unless asked for.
    pub shifts: Vec<Shift>,
    /// What moving partitions to whole blocks would bring.
    pub realignment: Realignment,
    /// The blocks of 4 KiB that are there most often, the most repeated first.
    pub top_blocks: Vec<TopBlockReport>,
    /// How storage grows as the images are added in the given order.
    pub growth: Vec<Growth>,
    /// Averages of the groups that were named.
    pub groups: Vec<GroupReport>,
    /// Which of the first images resemble which.
    pub similarity: Similarity,
    /// How sequential a deduplicated layout would be.
    pub runs: Runs,
    /// What each way of storing the images would take.
    pub ways: Ways,
    /// What the analysis itself took.
    pub effort: Effort,
    /// What the bytes belong to, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesAnalysis>,
}

/// All images together: `apparent = zero + distinct + saved`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Lengths, each rounded up to blocks of 4 KiB.
    pub apparent_bytes: u64,
    /// What the images' files occupy now.
    pub allocated_bytes: u64,
    /// Holes and blocks of zeros.
    pub zero_bytes: u64,
    /// Different blocks of 4 KiB that are not zero: what a pool stores.
    pub distinct_bytes: u64,
    /// Equal to some block that is counted in `distinct_bytes`.
    pub saved_bytes: u64,
}

/// One image: `apparent = zero + repeated_within + distinct`, and `distinct = only_here + shared_with_others`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImageReport {
    /// Its name.
    pub name: String,
    /// The group it was put in.
    pub group: Option<String>,
    /// Whether somebody wrote to it meanwhile: then its numbers are of no single moment.
    pub changed_meanwhile: bool,
    /// Length, rounded up to blocks of 4 KiB.
    pub apparent_bytes: u64,
    /// What its files occupy now.
    pub allocated_bytes: u64,
    /// Holes and blocks of zeros.
    pub zero_bytes: u64,
    /// Equal to another block of the same image.
    pub repeated_within_bytes: u64,
    /// Different blocks that are not zero.
    pub distinct_bytes: u64,
    /// Of these: in other images too.
    pub shared_with_others_bytes: u64,
    /// Of these: in no other image.
    pub only_here_bytes: u64,
    /// Of the distinct ones: in no image before this one.
    pub new_bytes: u64,
    /// The image's map in a pool.
    pub map_bytes: u64,
    /// What a pool needs to keep this image besides all others: the blocks that are only here, their part of the pool's
    /// fixed metadata, and the map.
    pub marginal_bytes: u64,
    /// What deleting it from a pool would free: the same without fixed metadata, which stays.
    pub freed_bytes: u64,
}

/// An image that is in no number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

/// What blocks of one size would bring: `nonzero = distinct + saved`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockSize {
    /// The size.
    pub block_bytes: u64,
    /// Blocks that are not zero.
    pub nonzero_bytes: u64,
    /// Different ones among them.
    pub distinct_bytes: u64,
    /// The rest of them.
    pub saved_bytes: u64,
    /// Fingerprints, bitmaps and maps that Onefold would keep for them.
    pub metadata_bytes: u64,
    /// Different ones among them where only blocks at the same offset can be shared: the least that linked clones need.
    pub linked_clone_bytes: u64,
    /// How often the most repeated block is there.
    pub repeats_max: u64,
    /// How many different blocks are there at most so many times.
    pub repeats: Vec<RepeatsAtMost>,
}

/// A point of a cumulative distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RepeatsAtMost {
    /// A number of places.
    pub times: u64,
    /// Different blocks that are in at most so many.
    pub blocks: u64,
}

/// All images with zeros put before them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shift {
    /// How many zeros.
    pub shift_bytes: u64,
    /// What each block size would bring then.
    pub block_sizes: Vec<BlockSize>,
}

/// What moving partitions to whole blocks would bring, in blocks of 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Realignment {
    /// Partitions that begin inside a block. Where there are none, nothing would change.
    pub misaligned: Vec<Misaligned>,
    /// Blocks that are not zero, with all partitions moved.
    pub nonzero_bytes: u64,
    /// Different ones among them.
    pub distinct_bytes: u64,
    /// What a pool would store less.
    pub gained_bytes: u64,
}

/// A partition that begins inside a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Misaligned {
    /// The image.
    pub image: String,
    /// Where the partition begins.
    pub start_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
}

impl Misaligned {
    pub(crate) fn new(image: &str, partition: &Partition) -> Misaligned {
        Misaligned { image: image.to_owned(), start_bytes: partition.start_bytes, length_bytes: partition.length_bytes }
    }
}

/// A block that is there often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopBlockReport {
    /// How often.
    pub times: u64,
    /// What its repetitions take without sharing.
    pub repeated_bytes: u64,
    /// The first image that has it.
    pub image: String,
    /// Where it is first in that image.
    pub offset_bytes: u64,
}

/// Storage after an image was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// The image.
    pub name: String,
    /// Blocks that are not zero of all images so far: what storing without sharing takes.
    pub nonzero_bytes: u64,
    /// Different ones among them.
    pub distinct_bytes: u64,
}

/// A group of images by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// Images in it.
    pub images: u64,
    /// Blocks that are not zero.
    pub nonzero_bytes: u64,
    /// Different ones among them, counted within the group.
    pub distinct_bytes: u64,
}

/// Likeness of images: contents that both have, of those that one of them has.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Similarity {
    /// The images that are compared, by their place in `images`, the like beside each other. At most the first 64.
    pub order: Vec<usize>,
    /// For each of them, in that order, its likeness to each: 0 to 1.
    pub likeness: Vec<Vec<f64>>,
    /// For each of them, what it has in common with each.
    pub common_bytes: Vec<Vec<u64>>,
}

/// Runs of shared blocks that lie together where their contents were first: what reading such an image feels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Runs {
    /// How many runs.
    pub runs: u64,
    /// Blocks in them: all that is stored at an earlier place.
    pub shared_bytes: u64,
    /// Their mean length.
    pub mean_bytes: u64,
    /// By length.
    pub lengths: Vec<RunsOfLength>,
}

/// Runs that are longer than half of `at_most_bytes`, and not longer than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunsOfLength {
    /// The longest.
    pub at_most_bytes: u64,
    /// How many.
    pub runs: u64,
    /// What is in them.
    pub shared_bytes: u64,
}

/// What the images take now, and what they would take otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ways {
    /// What their files occupy now.
    pub now_bytes: u64,
    /// In a pool: distinct blocks and metadata.
    pub pool_bytes: u64,
    /// Of these: fingerprints and bitmaps.
    pub pool_fixed_bytes: u64,
    /// Of these: file maps.
    pub pool_map_bytes: u64,
    /// With equal blocks shared by the file system that they lie on, where they are plain files, and an index to find
    /// them; other formats stay as they are.
    pub sharing_bytes: u64,
    /// As linked clones of each other, at 4 KiB: the least they would need.
    pub linked_clone_bytes: u64,
    /// What to do, in a sentence or two.
    pub recommendation: String,
}

/// What an analysis took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Effort {
    /// What was read, holes left out.
    pub read_bytes: u64,
    /// What was written into temporary files meanwhile.
    pub spilled_bytes: u64,
}
