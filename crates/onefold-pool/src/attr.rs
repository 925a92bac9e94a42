//! Attributes of files as a door shows them.

use onefold_block::Timestamp;

/// Inode number. Never reused in the life of a pool.
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

/// What a file is.
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

/// What doors show as the space that a regular file takes. The pool only keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceShown {
    /// As each door has been told.
    ByDoor,
    /// The whole length, holes included.
    Length,
    /// What is mapped or reserved.
    Mapped,
}

/// Attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, with set-uid, set-gid and sticky: the low 12 bits of `st_mode`.
    pub mode: u16,
    /// Directory entries that lead here (for a directory: 2 + its subdirectories).
    pub link_count: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a special file, as in `st_rdev`.
    pub rdev: u32,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Blocks of 4 KiB that are mapped or reserved: holes and zero blocks do not count, shared blocks do.
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
    /// What it shows as its space; of a directory, what is made in it will show.
    pub space_shown: SpaceShown,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The pool's clock.
    Now,
    /// This time.
    At(Timestamp),
}

/// Changes to attributes; `None` leaves as it is.
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
    pub accessed: Option<SetTime>,
    /// New modification time.
    pub modified: Option<SetTime>,
}

/// A file to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// What it will be.
    pub kind: FileKind,
    /// Permission bits asked for (12 bits), before umask and ACLs.
    pub mode: u16,
    /// The caller's umask; ignored where the directory has a default ACL.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group; a set-gid directory gives its own instead.
    pub gid: u32,
    /// Device number of a special file.
    pub rdev: u32,
}

/// One entry of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode it names.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Its name.
    pub name: Vec<u8>,
    /// Where a listing goes on *after* this entry; stable while the entry exists, positive as a signed number.
    pub cookie: u64,
}

/// How `rename` treats an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// The target is replaced.
    Replace,
    /// An existing target is an error.
    NoReplace,
    /// Source and target change places.
    Exchange,
    /// The target is replaced, and the source leaves a whiteout behind: the character device 0/0 of this owner and
    /// group, by which an overlay hides a name of its lower layer.
    Whiteout {
        /// Owner of the whiteout.
        uid: u32,
        /// Its group; a set-gid directory gives its own instead.
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

/// What `fallocate` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserve space, grow the file where the range ends past it.
    Extend,
    /// Reserve space, keep the length.
    KeepSize,
    /// Make a hole, keep the length.
    PunchHole,
    /// Make the range read as zeros and reserve its space; grow the file where the range ends past it.
    ZeroRange,
    /// The same, but keep the length.
    ZeroRangeKeepSize,
}

/// Two ranges of files, as long as each other; both may be in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangePair {
    /// File whose blocks are to be referred to once more.
    pub source: Ino,
    /// Where its range begins, in bytes.
    pub source_offset: u64,
    /// File that is to refer to them.
    pub target: Ino,
    /// Where its range begins, in bytes.
    pub target_offset: u64,
    /// Length of each, in bytes.
    pub bytes: u64,
}

impl RangePair {
    /// Returns what is left when the first `done` bytes are done, at most all.
    #[must_use]
    pub fn after(self, done: u64) -> RangePair {
        let (source_offset, target_offset) = (self.source_offset + done, self.target_offset + done);
        RangePair { source_offset, target_offset, bytes: self.bytes - done, ..self }
    }

    /// Returns where the ranges end, in bytes: that of the source, then that of the target. `None` past the largest
    /// number.
    pub(crate) fn ends(&self) -> Option<(u64, u64)> {
        Some((self.source_offset.checked_add(self.bytes)?, self.target_offset.checked_add(self.bytes)?))
    }
}

/// What `seek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset; the end of the file counts as one.
    Hole,
}

/// When a write may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the device has the data; a commit comes later.
    Later,
    /// When data and metadata would survive loss of power.
    Now,
}
