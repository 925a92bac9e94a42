//! What the bytes of images belong to, as results show it.
//!
//! A block of 4 KiB counts as a whole. Where it has bytes of several uses, it counts for the first of them in the order
//! of the disk that is not free. A block of several files counts for the first of their folders, packages before
//! others.

use serde::Serialize;

/// What the bytes of a set of images belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FilesAnalysis {
    /// All images together: each number is the sum of those of the images. The parts have the names that they have in
    /// any image.
    pub total: BytesUse,
    /// Each image that was read, in the given order.
    pub images: Vec<ImageFiles>,
    /// Packages that are installed in several versions, in the order of their names.
    pub versions: Vec<PackageVersions>,
    /// The most repeated blocks, as in [`Analysis::top_blocks`](crate::Analysis::top_blocks), with what has them.
    pub top_blocks: Vec<TopBlockFiles>,
    /// Bytes that lie across blocks of 4 KiB, by their cause; a cause that no volume has is missing.
    pub misaligned: Vec<MisalignedBytes>,
}

/// What the bytes of an image belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImageFiles {
    /// The name of the image.
    pub name: String,
    /// Whether a machine had the image open for writing, or somebody wrote to it meanwhile: the maps of its files may
    /// be out of date.
    pub is_in_use: bool,
    /// What is not certain, and what could not be read, a sentence each; at most 20 of them.
    pub doubts: Vec<String>,
    /// Its bytes.
    #[serde(flatten)]
    pub bytes: BytesUse,
    /// Bytes that lie across blocks of 4 KiB, by their cause.
    pub misaligned: Vec<MisalignedBytes>,
}

/// The use of the bytes of an image, or of all images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BytesUse {
    /// Its bytes by class.
    pub classes: ClassBytes,
    /// Its bytes that are not zero: one group for each [`GroupName`] that has any, in their order. The groups together
    /// are all classes but `zero_bytes`.
    pub groups: Vec<GroupShare>,
}

/// Bytes by class. Each is in one class: together they are the length, rounded up to blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassBytes {
    /// Content of files, and allocated blocks that no file has.
    pub file_data_bytes: u64,
    /// Metadata of file systems.
    pub metadata_bytes: u64,
    /// Headers of swap areas, and swap areas in which a system is hibernated.
    pub swap_bytes: u64,
    /// Between volumes, and in volumes but outside of their file systems.
    pub gap_bytes: u64,
    /// Free, and not zero: trimming would save them. Unused pages of swap areas are among them.
    pub stale_bytes: u64,
    /// Holes and blocks of zeros, allocated or free.
    pub zero_bytes: u64,
    /// In volumes without a reader, and wherever a map is not certain and no file is known.
    pub not_read_bytes: u64,
}

impl ClassBytes {
    /// Returns the sum of all classes.
    #[must_use]
    pub fn sum(&self) -> u64 {
        let classes = [
            self.file_data_bytes,
            self.metadata_bytes,
            self.swap_bytes,
            self.gap_bytes,
            self.stale_bytes,
            self.zero_bytes,
            self.not_read_bytes,
        ];
        classes.into_iter().fold(0, u64::saturating_add)
    }
}

/// The groups that bytes are in. The order is that of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupName {
    /// Files of packages. Its parts are packages, and the parts of these are folders.
    Packages,
    /// Files of no package. Its parts are the first folders of their paths (`/var`), and the parts of these the first
    /// two (`/var/log`).
    Files,
    /// Metadata. Its parts are kinds of metadata, and the parts of these are kinds of file systems.
    Metadata,
    /// Swap areas.
    Swap,
    /// What belongs to no file system. Its parts say where it lies.
    Gaps,
    /// Free blocks that are not zero. Its parts are kinds of file systems, and swap areas.
    Stale,
    /// What is not read. Its parts name it.
    NotRead,
}

impl GroupName {
    /// All groups, in their order.
    pub const ALL: [GroupName; 7] = [
        GroupName::Packages,
        GroupName::Files,
        GroupName::Metadata,
        GroupName::Swap,
        GroupName::Gaps,
        GroupName::Stale,
        GroupName::NotRead,
    ];

    /// Returns the name that people read.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            GroupName::Packages => "packages",
            GroupName::Files => "files of no package",
            GroupName::Metadata => "metadata",
            GroupName::Swap => "swap",
            GroupName::Gaps => "outside of file systems",
            GroupName::Stale => "stale",
            GroupName::NotRead => "not read",
        }
    }
}

/// Bytes of one use that are not zero: `bytes = shared_with_others + only_here + repeated_within`.
///
/// In the total of all images, each number is the sum of those of the images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShareBytes {
    /// All of them.
    pub bytes: u64,
    /// Contents that other images have, too: each once for an image.
    pub shared_with_others_bytes: u64,
    /// Contents that no other image has: each once.
    pub only_here_bytes: u64,
    /// Repetitions of contents that lie before in the same image.
    pub repeated_within_bytes: u64,
}

/// A group of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupShare {
    /// Its name.
    pub name: GroupName,
    /// Its bytes: the sum of its parts.
    #[serde(flatten)]
    pub share: ShareBytes,
    /// What it consists of, the largest first.
    pub parts: Vec<PartShare>,
}

/// A part of a group, or of a part: a package, a folder, a kind of metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartShare {
    /// Its name. Names of the guest may hold anything; bytes that are not UTF-8 are replaced. [`OTHERS`] is what small
    /// parts are together where there are too many of them.
    pub name: String,
    /// Its bytes: the sum of its parts, if it has any.
    #[serde(flatten)]
    pub share: ShareBytes,
    /// What it consists of, the largest first. Empty where nothing smaller is known.
    pub parts: Vec<PartShare>,
}

/// The name of parts that are counted together because there are too many to keep.
pub const OTHERS: &str = "others";

/// A package that is installed in several versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PackageVersions {
    /// Its name.
    pub name: String,
    /// Its versions, the one that most images have first.
    pub versions: Vec<PackageVersion>,
}

/// A version of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PackageVersion {
    /// The version.
    pub version: String,
    /// The images that have it, in the given order.
    pub images: Vec<String>,
}

/// A block that is there often, with what has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopBlockFiles {
    /// How often.
    pub times: u64,
    /// What its repetitions take without sharing.
    pub repeated_bytes: u64,
    /// Places of it: the first ones in images or folders that differ.
    pub places: Vec<BlockPlace>,
}

/// A place of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockPlace {
    /// The image.
    pub image: String,
    /// Where the block begins.
    pub offset_bytes: u64,
    /// The group that it is in.
    pub group: GroupName,
    /// The part of the group, and the part of that; fewer where nothing smaller is known.
    pub parts: Vec<String>,
    /// The path of a file that has it, within its own file system. Only of the first place, and only where a file has
    /// it; bytes that are not UTF-8 are replaced.
    pub path: Option<String>,
}

/// Why bytes lie across blocks of 4 KiB, so that other images cannot share them unless they lie the same way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MisalignedCause {
    /// The volume begins within a block.
    VolumeStart,
    /// The blocks or clusters of the file system are smaller than 4 KiB.
    SmallBlocks,
    /// The data area of a FAT begins within a block.
    DataArea,
}

impl MisalignedCause {
    /// Returns the cause in a clause.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            MisalignedCause::VolumeStart => "the volume begins within a block of 4 KiB",
            MisalignedCause::SmallBlocks => "the blocks of the file system are smaller than 4 KiB",
            MisalignedCause::DataArea => "the data area of the FAT begins within a block of 4 KiB",
        }
    }
}

/// Misaligned bytes of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MisalignedBytes {
    /// The cause.
    pub cause: MisalignedCause,
    /// Bytes of such volumes that are neither free nor zero.
    pub bytes: u64,
    /// What a pool would store less, of all images together. For [`MisalignedCause::VolumeStart`]: with the partitions
    /// that begin within a block moved to whole blocks, as in [`Realignment`](crate::Realignment). For
    /// [`MisalignedCause::DataArea`]: with the data areas moved within their volumes, beyond that. Small blocks stay
    /// small wherever their volume lies.
    pub gained_bytes: Option<u64>,
}
