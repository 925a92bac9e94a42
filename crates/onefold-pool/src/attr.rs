//! Attributes of files, as doors show them.

use onefold_block::Timestamp;

/// Inode number. Never reused during the life of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(1);
}

impl std::fmt::Display for Ino {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A file with data.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// Whether a file's blocks are looked up and offered for sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedup {
    /// Equal blocks are shared.
    On,
    /// Blocks are fingerprinted (it is their checksum) but private to the file.
    Off,
}

/// The space of a regular file that doors show. The pool only stores this setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceShown {
    /// As set for each door.
    ByDoor,
    /// The whole length, holes included.
    Length,
    /// Mapped or reserved blocks.
    Mapped,
}

/// Attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Kind of the file.
    pub kind: FileKind,
    /// Permission bits, with set-uid, set-gid and sticky: the low 12 bits of `st_mode`.
    pub mode: u16,
    /// Number of directory entries that lead here (for a directory: 2 + its subdirectories).
    pub link_count: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a special file, as in `st_rdev`.
    pub rdev: u32,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Number of mapped or reserved blocks of 4 KiB: holes and zero blocks do not count, shared blocks do.
    pub mapped_blocks: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of content or attributes.
    pub changed: Timestamp,
    /// Creation.
    pub created: Timestamp,
    /// Sharing domain, fixed at creation.
    pub domain: u16,
    /// Whether its blocks are shared.
    pub dedup: Dedup,
    /// The space that doors show; for a directory, the setting of files created in it.
    pub space_shown: SpaceShown,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    /// The pool's clock.
    Now,
    /// This time.
    At(Timestamp),
}

/// Changes to attributes; `None` leaves an attribute unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits (12 bits).
    pub mode: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length in bytes: a truncate.
    pub size_bytes: Option<u64>,
    /// New access time.
    pub accessed: Option<TimeChange>,
    /// New modification time.
    pub modified: Option<TimeChange>,
}

/// A file to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Kind of the file.
    pub kind: FileKind,
    /// Requested permission bits (12 bits), before umask and ACLs.
    pub mode: u16,
    /// The caller's umask; ignored if the directory has a default ACL.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group; in a set-gid directory, the directory's group replaces it.
    pub gid: u32,
    /// Device number of a special file.
    pub rdev: u32,
}

/// One entry of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode it names.
    pub ino: Ino,
    /// Kind of that inode.
    pub kind: FileKind,
    /// Its name.
    pub name: Vec<u8>,
    /// Position for continuing a listing *after* this entry; stable while the entry exists, positive as a signed
    /// number.
    pub cookie: u64,
}

/// How `rename` treats an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// The target is replaced.
    Replace,
    /// An existing target is an error.
    NoReplace,
    /// Source and target swap places.
    Exchange,
    /// The target is replaced, and the source leaves a whiteout: the character device 0/0 of this owner and group, with
    /// which an overlay hides a name of its lower layer.
    Whiteout {
        /// Owner of the whiteout.
        uid: u32,
        /// Its group; in a set-gid directory, the directory's group replaces it.
        gid: u32,
    },
}

/// How `set_xattr` treats an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Either,
    /// An existing attribute is an error.
    Create,
    /// A missing attribute is an error.
    Replace,
}

/// Modes of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserve space, and extend the file if the range ends past it.
    Extend,
    /// Reserve space, keep the length.
    KeepSize,
    /// Make a hole, keep the length.
    PunchHole,
    /// Make the range read as zeros and reserve its space; extend the file if the range ends past it.
    ZeroRange,
    /// Like [`AllocateMode::ZeroRange`], but keep the length.
    ZeroRangeKeepSize,
}

/// Two ranges of files, of equal length; both may be in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangePair {
    /// File whose blocks get another reference.
    pub source: Ino,
    /// Start of its range, in bytes.
    pub source_offset: u64,
    /// File that will refer to them.
    pub target: Ino,
    /// Start of its range, in bytes.
    pub target_offset: u64,
    /// Length of each, in bytes.
    pub bytes: u64,
}

impl RangePair {
    /// Returns the rest after the first `done` bytes, at most all of them.
    #[must_use]
    pub fn after(self, done: u64) -> RangePair {
        let (source_offset, target_offset) = (self.source_offset + done, self.target_offset + done);
        RangePair { source_offset, target_offset, bytes: self.bytes - done, ..self }
    }

    /// Returns the ends of the ranges in bytes, source first. `None` if one exceeds the largest number.
    pub(crate) fn ends(&self) -> Option<(u64, u64)> {
        Some((self.source_offset.checked_add(self.bytes)?, self.target_offset.checked_add(self.bytes)?))
    }
}

/// The target of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset; the end of the file counts as one.
    Hole,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once the device has the data; a commit follows later.
    Later,
    /// Once data and metadata would survive loss of power.
    Now,
}
