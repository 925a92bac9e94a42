//! Owners of the bytes of images, in the form of the results.
//!
//! A block of 4 KiB counts as a whole. If it has bytes of several uses, it counts for the first of them in the order of
//! the disk that is not free. A block of several files counts for the first of their folders. Packages come before
//! other files.

use serde::Serialize;

/// Owners of the bytes of a set of images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FilesAnalysis {
    /// All images together: each number is the sum over the images. The total has every part that any image has.
    pub total: BytesUse,
    /// Each image that was read, in the given order.
    pub images: Vec<ImageFiles>,
    /// Packages that are installed in several versions, sorted by name.
    pub versions: Vec<PackageVersions>,
    /// The most repeated blocks, as in [`Analysis::top_blocks`](crate::Analysis::top_blocks), with their owners.
    pub top_blocks: Vec<TopBlockFiles>,
    /// Bytes that cross blocks of 4 KiB, by cause. A cause without a volume is omitted.
    pub misaligned: Vec<MisalignedBytes>,
}

/// Owners of the bytes of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImageFiles {
    /// The name of the image.
    pub name: String,
    /// Whether a machine had the image open for writing, or the image was written during the analysis. The maps of its
    /// files may then be out of date.
    pub is_in_use: bool,
    /// Uncertain facts, and parts that could not be read: one sentence each, at most 20.
    pub doubts: Vec<String>,
    /// Whether some of these are damage, which was skipped.
    pub has_damage: bool,
    /// Its bytes.
    #[serde(flatten)]
    pub bytes: BytesUse,
    /// Bytes that cross blocks of 4 KiB, by cause.
    pub misaligned: Vec<MisalignedBytes>,
}

/// The use of the bytes of an image, or of all images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BytesUse {
    /// Its bytes by class.
    pub classes: ClassBytes,
    /// Bytes that are not zero: one group for each non-empty [`GroupName`], in their order. The groups together cover
    /// all classes except `zero_bytes`.
    pub groups: Vec<GroupShare>,
}

/// Bytes by class. Each byte is in one class, so the sum is the length, rounded up to blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassBytes {
    /// Content of files, and allocated blocks that belong to no file.
    pub file_data_bytes: u64,
    /// Metadata of file systems.
    pub metadata_bytes: u64,
    /// Headers of swap areas, and swap areas that hold a hibernated system.
    pub swap_bytes: u64,
    /// Between volumes, and in volumes outside of their file systems.
    pub gap_bytes: u64,
    /// Free but not zero: trimming would save these bytes. They include unused pages of swap areas.
    pub stale_bytes: u64,
    /// Holes and blocks of zeros, allocated or free.
    pub zero_bytes: u64,
    /// In volumes without a reader, and wherever a map is uncertain and no file is known.
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

/// The groups of bytes, in the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupName {
    /// Files of packages. Its parts are packages, and the parts of these are folders.
    Packages,
    /// Files of no package. Its parts are the first folders of their paths (`/var`). The parts of these are the first
    /// two folders (`/var/log`).
    Files,
    /// Metadata. Its parts are kinds of metadata, and the parts of these are kinds of file systems.
    Metadata,
    /// Swap areas.
    Swap,
    /// Bytes outside of file systems. Its parts name the place.
    Gaps,
    /// Free blocks that are not zero. Its parts are kinds of file systems, and swap areas.
    Stale,
    /// Bytes that are not read. Its parts name them.
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

    /// Returns the name for users.
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
/// In the total of all images, each number is the sum over the images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShareBytes {
    /// All of them.
    pub bytes: u64,
    /// Contents that other images also have, each counted once per image.
    pub shared_with_others_bytes: u64,
    /// Contents that no other image has, each counted once.
    pub only_here_bytes: u64,
    /// Repetitions of contents that occur earlier in the same image.
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
    /// Its parts, the largest first.
    pub parts: Vec<PartShare>,
}

/// A part of a group or of another part: a package, a folder, a kind of metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartShare {
    /// Its name. Names from a guest may contain anything. Bytes that are not UTF-8 are replaced. [`OTHERS`] stands for
    /// all small parts together if there are too many.
    pub name: String,
    /// Its bytes: the sum of its parts, if it has any.
    #[serde(flatten)]
    pub share: ShareBytes,
    /// Its parts, the largest first. Empty if no smaller parts are known.
    pub parts: Vec<PartShare>,
}

/// The name for parts that are counted together because there are too many to keep.
pub const OTHERS: &str = "others";

/// A package that is installed in several versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PackageVersions {
    /// Its name.
    pub name: String,
    /// Its versions, the most common first.
    pub versions: Vec<PackageVersion>,
}

/// A version of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PackageVersion {
    /// The version.
    pub version: String,
    /// The images with this version, in the given order.
    pub images: Vec<String>,
}

/// A frequent block with its owners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopBlockFiles {
    /// Number of its places.
    pub times: u64,
    /// Space that its repetitions take without sharing.
    pub repeated_bytes: u64,
    /// Some of its places: the first ones in different images or folders.
    pub places: Vec<BlockPlace>,
}

/// A place of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockPlace {
    /// The image.
    pub image: String,
    /// Offset of the block.
    pub offset_bytes: u64,
    /// The group of the block.
    pub group: GroupName,
    /// The part of the group, and the part of that part. Fewer if no smaller parts are known.
    pub parts: Vec<String>,
    /// The path of a file that has the block, within the file's own file system. Only given for the first place, and
    /// only if the block belongs to a file. Bytes that are not UTF-8 are replaced.
    pub path: Option<String>,
}

/// Why bytes cross blocks of 4 KiB. Other images can only share such bytes if they have the same alignment there.
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
    /// Returns the cause as a clause.
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
    /// Additional space that a pool would save, for all images together. For [`MisalignedCause::VolumeStart`]: with the
    /// partitions that begin within a block moved to whole blocks, as in [`Realignment`](crate::Realignment). For
    /// [`MisalignedCause::DataArea`]: the further gain from moving the data areas within their volumes. There is no
    /// gain for small blocks, because moving their volume does not enlarge them.
    pub gained_bytes: Option<u64>,
}
