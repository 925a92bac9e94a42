//! Results of an analysis. All sizes are in bytes. The documentation of each structure says which sizes add up.

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
    /// Images that could not be read. No figure includes them.
    pub left_out: Vec<SkippedImage>,
    /// The same images with blocks of 4 KiB to 1 MiB.
    pub block_sizes: Vec<BlockSize>,
    /// The same with zeros put before every image; empty unless requested.
    pub shifts: Vec<Shift>,
    /// Savings from moving partitions to whole blocks.
    pub realignment: Realignment,
    /// The most frequent blocks of 4 KiB, the most repeated first.
    pub top_blocks: Vec<TopBlockReport>,
    /// Growth of the storage as the images are added in the given order.
    pub growth: Vec<Growth>,
    /// Averages of the named groups.
    pub groups: Vec<GroupReport>,
    /// Similarity of the first images to each other.
    pub similarity: Similarity,
    /// How sequential a deduplicated layout would be.
    pub runs: Runs,
    /// Space that each way of storing the images would take.
    pub ways: Ways,
    /// Effort of the analysis itself.
    pub effort: Effort,
    /// Owners of the bytes, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesAnalysis>,
}

/// All images together: `apparent = zero + distinct + saved`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Lengths, each rounded up to blocks of 4 KiB.
    pub apparent_bytes: u64,
    /// Space that the images' files occupy now.
    pub allocated_bytes: u64,
    /// Holes and blocks of zeros.
    pub zero_bytes: u64,
    /// Distinct blocks of 4 KiB that are not zero: a pool stores these.
    pub distinct_bytes: u64,
    /// Blocks that equal some block in `distinct_bytes`.
    pub saved_bytes: u64,
}

/// One image: `apparent = zero + repeated_within + distinct`, and `distinct = only_here + shared_with_others`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImageReport {
    /// Its name.
    pub name: String,
    /// The group to which it was assigned.
    pub group: Option<String>,
    /// Whether the image was written during the analysis. Its numbers then describe no single moment.
    pub changed_meanwhile: bool,
    /// Length, rounded up to blocks of 4 KiB.
    pub apparent_bytes: u64,
    /// Space that its files occupy now.
    pub allocated_bytes: u64,
    /// Holes and blocks of zeros.
    pub zero_bytes: u64,
    /// Equal to another block of the same image.
    pub repeated_within_bytes: u64,
    /// Distinct blocks that are not zero.
    pub distinct_bytes: u64,
    /// Of these: blocks that other images also have.
    pub shared_with_others_bytes: u64,
    /// Of these: blocks that no other image has.
    pub only_here_bytes: u64,
    /// Of the distinct ones: blocks that no earlier image has.
    pub new_bytes: u64,
    /// The image's map in a pool.
    pub map_bytes: u64,
    /// Space that a pool needs to keep this image in addition to all others: the blocks that are only here, their part
    /// of the pool's fixed metadata, and the map.
    pub marginal_bytes: u64,
    /// Space that its deletion from a pool would free: the same without fixed metadata, which stays.
    pub freed_bytes: u64,
}

/// An image that no figure includes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedImage {
    /// Its name.
    pub name: String,
    /// The reason.
    pub why: String,
}

/// Result for one block size: `nonzero = distinct + saved`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockSize {
    /// The size.
    pub block_bytes: u64,
    /// Blocks that are not zero.
    pub nonzero_bytes: u64,
    /// Distinct ones among them.
    pub distinct_bytes: u64,
    /// The others.
    pub saved_bytes: u64,
    /// Fingerprints, bitmaps and maps that Onefold would keep for them.
    pub metadata_bytes: u64,
    /// Distinct ones among them if only blocks at the same offset can be shared: the minimum that linked clones need.
    pub linked_clone_bytes: u64,
    /// Number of places of the most repeated block.
    pub repeats_max: u64,
    /// Numbers of distinct blocks by their number of places, cumulative.
    pub repeats: Vec<RepeatsPoint>,
}

/// A point of a cumulative distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RepeatsPoint {
    /// A number of places.
    pub times: u64,
    /// Distinct blocks that are in at most this many places.
    pub blocks: u64,
}

/// All images with zeros put before them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shift {
    /// Number of zeros, in bytes.
    pub shift_bytes: u64,
    /// Result for each block size.
    pub block_sizes: Vec<BlockSize>,
}

/// Savings from moving partitions to whole blocks, in blocks of 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Realignment {
    /// Partitions that begin inside a block. If there are none, nothing would change.
    pub misaligned: Vec<MisalignedPartition>,
    /// Blocks that are not zero, after all partitions are moved.
    pub nonzero_bytes: u64,
    /// Distinct ones among them.
    pub distinct_bytes: u64,
    /// Space that a pool would save in addition.
    pub gained_bytes: u64,
}

/// A partition that begins inside a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MisalignedPartition {
    /// The image.
    pub image: String,
    /// Start of the partition.
    pub start_bytes: u64,
    /// Length of the partition.
    pub length_bytes: u64,
}

impl MisalignedPartition {
    pub(crate) fn new(image: &str, partition: &Partition) -> MisalignedPartition {
        MisalignedPartition {
            image: image.to_owned(),
            start_bytes: partition.start_bytes,
            length_bytes: partition.length_bytes,
        }
    }
}

/// A frequent block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopBlockReport {
    /// Number of its places.
    pub times: u64,
    /// Space that its repetitions take without sharing.
    pub repeated_bytes: u64,
    /// The first image that has it.
    pub image: String,
    /// Offset of its first place in that image.
    pub offset_bytes: u64,
}

/// Storage after an image was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// The image.
    pub name: String,
    /// Blocks of all images so far that are not zero. Storage without sharing takes this space.
    pub nonzero_bytes: u64,
    /// Distinct ones among them.
    pub distinct_bytes: u64,
}

/// A group of images on its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// Images in it.
    pub images: u64,
    /// Blocks that are not zero.
    pub nonzero_bytes: u64,
    /// Distinct ones among them, counted within the group.
    pub distinct_bytes: u64,
}

/// Similarity of images: contents that both have, divided by those that at least one of them has.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Similarity {
    /// The compared images as indices into `images`, with similar ones next to each other. At most the first 64.
    pub order: Vec<usize>,
    /// For each of them, in that order, its similarity to each image: 0 to 1.
    pub likeness: Vec<Vec<f64>>,
    /// For each of them, the bytes that it has in common with each image.
    pub common_bytes: Vec<Vec<u64>>,
}

/// Runs of shared blocks that are adjacent at the first places of their contents. They show how sequential reads of
/// such an image are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Runs {
    /// Number of runs.
    pub runs: u64,
    /// Blocks in them: all blocks that are stored at an earlier place.
    pub shared_bytes: u64,
    /// Their mean length.
    pub mean_bytes: u64,
    /// By length.
    pub lengths: Vec<RunsOfLength>,
}

/// Runs that are longer than half of `at_most_bytes`, and not longer than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunsOfLength {
    /// Maximum length.
    pub at_most_bytes: u64,
    /// Number of runs.
    pub runs: u64,
    /// Bytes in these runs.
    pub shared_bytes: u64,
}

/// Space that the images take now and would take in other forms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ways {
    /// Space that their files occupy now.
    pub now_bytes: u64,
    /// In a pool: distinct blocks and metadata.
    pub pool_bytes: u64,
    /// Of these: fingerprints and bitmaps.
    pub pool_fixed_bytes: u64,
    /// Of these: file maps.
    pub pool_map_bytes: u64,
    /// With equal blocks shared by their file system if the images are plain files, and an index to find the blocks.
    /// Images in other formats stay unchanged.
    pub sharing_bytes: u64,
    /// As linked clones of each other, at 4 KiB: the minimum that they would need.
    pub linked_clone_bytes: u64,
    /// Recommendation in a sentence or two.
    pub recommendation: String,
}

/// Effort of an analysis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Effort {
    /// Bytes that were read, without holes.
    pub read_bytes: u64,
    /// Bytes that were written to temporary files.
    pub spilled_bytes: u64,
}
