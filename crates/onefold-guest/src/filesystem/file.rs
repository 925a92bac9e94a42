//! Files of a guest.

use crate::error::Encoding;

/// The number of a file: its inode, or its MFT record. FAT has no such number; there it is the place of the directory
/// entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileNumber(pub u64);

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link, or something with the same effect (a junction).
    SymbolicLink,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// Something else: a reparse point that no reader here knows.
    Other,
}

/// A time: seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC; negative before.
    pub seconds: i64,
    /// Nanoseconds after these, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// Metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky (`07777`). For file systems without them, the default
    /// of a mount.
    pub mode: u16,
    /// The user that owns it; 0 if there is none.
    pub user: u32,
    /// The group that owns it; 0 if there is none.
    pub group: u32,
    /// The number of its names.
    pub links: u32,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// The bytes that are allocated for its content and its map, as `st_blocks` counts them.
    pub allocated_bytes: u64,
    /// When the content changed.
    pub modified: Timestamp,
    /// When the record changed.
    pub changed: Timestamp,
    /// When the content was read.
    pub accessed: Timestamp,
    /// When the file was created, if this is recorded.
    pub created: Option<Timestamp>,
    /// Number of the device for a device file: major and minor.
    pub device: Option<(u32, u32)>,
    /// The number that distinguishes this file from an earlier one with the same [`FileNumber`].
    pub generation: u64,
    /// How the content is encoded, if it is.
    pub encoding: Option<Encoding>,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name: bytes of the guest, without a slash or zero byte, not empty. NTFS and FAT names are given in UTF-8.
    pub name: Vec<u8>,
    /// The file.
    pub file: FileNumber,
    /// The kind, if the directory records it.
    pub kind: Option<FileKind>,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedAttribute {
    /// The full name, such as `user.comment`.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// The digest of a file's content as fs-verity defines it: the digest of the root of a tree of digests, and the
/// parameters of the tree. It is displayed like `fsverity digest` does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerityDigest {
    /// The algorithm: `sha256` or `sha512`.
    pub algorithm: &'static str,
    /// The digest.
    pub bytes: Vec<u8>,
}

impl std::fmt::Display for VerityDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", self.algorithm)?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A contiguous part of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte of the part in the file.
    pub offset: u64,
    /// Its length in bytes. Whole blocks, except for [`ExtentKind::Inline`].
    pub length_bytes: u64,
    /// First byte in the volume.
    pub place: u64,
    /// How it is stored.
    pub kind: ExtentKind,
}

/// How a part of a file's content is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExtentKind {
    /// The bytes at the place are the content.
    Written,
    /// The place is reserved, and the content is zeros.
    Unwritten,
    /// The place holds the content in another form. The length is that of the stored bytes. The offset is that of the
    /// content with which they begin, as far as the file system states it.
    Encoded(Encoding),
    /// The content is inside a metadata structure (an inode, an MFT record). It has no block of its own.
    Inline,
    /// As [`ExtentKind::Written`], but other files of the same guest have the same blocks.
    Shared,
}
