//! Properties of a file system, and the reliability of its maps.

use std::fmt;

/// The kinds of file systems that have readers here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileSystemKind {
    /// ext2: no journal.
    Ext2,
    /// ext3: a journal, block maps.
    Ext3,
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// NTFS.
    Ntfs,
    /// FAT with 12-bit entries.
    Fat12,
    /// FAT with 16-bit entries.
    Fat16,
    /// FAT with 32-bit entries.
    Fat32,
}

impl FileSystemKind {
    /// Returns the name for users, in lower case, as in `/etc/fstab`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FileSystemKind::Ext2 => "ext2",
            FileSystemKind::Ext3 => "ext3",
            FileSystemKind::Ext4 => "ext4",
            FileSystemKind::Xfs => "xfs",
            FileSystemKind::Ntfs => "ntfs",
            FileSystemKind::Fat12 => "fat12",
            FileSystemKind::Fat16 => "fat16",
            FileSystemKind::Fat32 => "fat32",
        }
    }
}

impl fmt::Display for FileSystemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Properties of a file system, and its usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemFacts {
    /// Its kind.
    pub kind: FileSystemKind,
    /// Its features, under the names of its own tools.
    pub features: Vec<String>,
    /// Its label, in bytes of the guest; empty if there is none.
    pub label: Vec<u8>,
    /// Its UUID or serial number as tools (`blkid`) print it; empty if there is none.
    pub uuid: String,
    /// Bytes of a block (a cluster).
    pub block_bytes: u64,
    /// Bytes of the file system, which may be less than its volume.
    pub size_bytes: u64,
    /// Bytes of its blocks that the file system counts as free; `None` if the count cannot be read.
    pub free_bytes: Option<u64>,
    /// The maximum number of files; `None` if there is no limit.
    pub files_max: Option<u64>,
    /// The number of files in use; `None` if the file system keeps no count.
    pub files_used: Option<u64>,
}

/// Reliability of the maps of a volume, provided that the disk does not change while it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The file system was cleanly unmounted, or was recovered in memory.
    Certain,
    /// Metadata on the disk may be out of date, for these reasons. For capture, the whole volume counts as allocated.
    Unsure(Vec<Doubt>),
}

impl State {
    /// Adds a reason for uncertainty.
    pub(crate) fn add(&mut self, doubt: Doubt) {
        let mut doubts = match std::mem::replace(self, State::Certain) {
            State::Certain => Vec::new(),
            State::Unsure(doubts) => doubts,
        };
        doubts.push(doubt);
        doubts.sort_unstable();
        doubts.dedup();
        *self = State::Unsure(doubts);
    }
}

/// A reason for uncertainty of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Doubt {
    /// The journal lies on another device.
    ExternalJournal,
    /// The journal has fast-commit records that were not applied.
    FastCommits,
    /// The journal is damaged, or cannot be replayed completely.
    JournalDamaged,
    /// The log has changes that no reader here applies.
    DirtyLog,
    /// The file system was not cleanly unmounted, and has no journal.
    NotUnmounted,
    /// The file system has errors that its own checker has not repaired yet.
    HasErrors,
    /// A system is hibernated on it.
    Hibernated,
    /// A machine has it mounted.
    InUse,
    /// It is longer than its volume.
    LongerThanVolume,
    /// Metadata is damaged, so files or maps are missing.
    MetadataDamaged,
    /// It has a feature that no reader here knows, and that may change the meaning of its maps.
    UnknownFeature,
    /// The disk cannot read all places in which another kind of volume would have its header.
    HeadersUnreadable,
    /// Only one of its tables is current. Windows goes by that one, Linux by the first one.
    OneCurrentTable,
    /// Its partition is of a type that may have partitions of its own.
    MayHaveSlices,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doubt::ExternalJournal => "its journal is on another device",
            Doubt::FastCommits => "its journal has fast commits, which are not applied",
            Doubt::JournalDamaged => "its journal is damaged",
            Doubt::DirtyLog => "its log has changes that are not applied",
            Doubt::NotUnmounted => "it was not cleanly unmounted and has no journal",
            Doubt::HasErrors => "it has errors that its checker has not repaired",
            Doubt::Hibernated => "a system is hibernated on it",
            Doubt::InUse => "a machine has it mounted",
            Doubt::LongerThanVolume => "its file system is longer than the volume; the image may be cut off",
            Doubt::MetadataDamaged => "its metadata is damaged",
            Doubt::UnknownFeature => "it has a feature that is unknown here",
            Doubt::MayHaveSlices => "its partition may have partitions of its own",
            Doubt::OneCurrentTable => "only one of its tables is current, and not all systems know that",
            Doubt::HeadersUnreadable => "the disk cannot read the places where another kind of volume has its header",
        })
    }
}
