//! Inodes: metadata of a file, and the two forks that map its content and its attributes.
//!
//! From "XFS Filesystem Structure", chapter "On-disk Inode". Fields that are used here:
//!
//! | bytes    | field                  | notes                                                     |
//! |----------|------------------------|-----------------------------------------------------------|
//! | 0..2     | magic                  | `IN`                                                      |
//! | 2..4     | mode                   | 0: not in use                                             |
//! | 4        | version                | 1 and 2 in file systems of version 4, 3 in version 5      |
//! | 5        | form of the data fork  | device, inline, list, tree                                |
//! | 6..8     | links of version 1     |                                                           |
//! | 8..20    | user, group, links     |                                                           |
//! | 24..32   | extents of the data    | only with large extent counts                             |
//! | 32..56   | times of access, modification, change | seconds and nanoseconds, or a 64-bit counter |
//! | 56..72   | size, blocks           |                                                           |
//! | 76..80   | extents of the data    | of the attributes with large extent counts                |
//! | 80..82   | extents of the attributes | zero with large extent counts                          |
//! | 82       | start of the attribute fork | in units of 8 bytes behind the record; 0: there is none |
//! | 83       | form of the attribute fork |                                                       |
//! | 92..96   | generation             |                                                           |
//! | 100..176 | version 3: checksum, flags, time of creation (144), own number (152), UUID (160) |         |

use super::Xfs;
use super::seal::{OwnerField, Seal, StructureBytes};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::{FileKind, FileNumber, FileStat, Timestamp};

const STRUCTURE: &str = "inode";
/// `IN`
const MAGIC: u16 = 0x494e;
const SEAL: Seal = Seal { checksum: 100, uuid: 160, place: None, owner: OwnerField::Long(152) };
/// Bits of the flags of version 3.
const FLAG_REFLINK: u64 = 0x2;
const FLAG_BIG_TIME: u64 = 0x8;
const FLAG_LARGE_EXTENT_COUNTS: u64 = 0x10;
/// The first second of the 64-bit counter of nanoseconds.
const BIG_TIME_EPOCH_SECONDS: i64 = i32::MIN as i64;
const SECOND_NANOSECONDS: u64 = 1_000_000_000;

/// Form in which a fork stores its content or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForkForm {
    /// The number of a device.
    Device,
    /// The content itself.
    Inline,
    /// A list of extents.
    List,
    /// A B+tree of extents.
    Tree,
}

/// A fork of an inode: its part of the inode's bytes, and how to read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fork<'b> {
    /// The form.
    pub(super) form: ForkForm,
    /// Its bytes in the inode.
    pub(super) bytes: Bytes<'b>,
    /// Its first byte in the volume.
    pub(super) place: u64,
    /// The number of its extents, if it has a list of them.
    pub(super) extents: u64,
    /// Place for damage of its map: the inode.
    pub(super) inode_place: u64,
    /// The owner that its blocks record.
    pub(super) owner: u64,
}

/// A decoded inode that is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inode<'b> {
    /// Its number.
    pub(super) number: FileNumber,
    /// Its first byte in the volume.
    pub(super) place: u64,
    /// The kind of file.
    pub(super) kind: FileKind,
    /// Length of the content in bytes.
    pub(super) size_bytes: u64,
    /// The content.
    pub(super) data: Fork<'b>,
    /// Extended attributes, if it has any.
    pub(super) attributes: Option<Fork<'b>>,
    bytes: Bytes<'b>,
    flags: u64,
}

impl Xfs<'_> {
    /// Reads the bytes of an inode.
    ///
    /// # Errors
    /// [`GuestError::NotFound`] if there can be no inode with this number; and those of the disk.
    pub(super) fn inode_record(&self, number: FileNumber) -> Result<Vec<u8>, GuestError> {
        let place = self.superblock.inode_place(number).ok_or(GuestError::NotFound)?;
        self.reader.bytes(place, self.superblock.inode_bytes, STRUCTURE)
    }

    /// Decodes and checks an inode.
    ///
    /// # Errors
    /// [`GuestError::NotFound`] if it is not in use, [`GuestError::Damaged`] if it contradicts itself.
    pub(super) fn inode<'b>(&self, number: FileNumber, record: &'b [u8]) -> Result<Inode<'b>, GuestError> {
        let place = self.superblock.inode_place(number).ok_or(GuestError::NotFound)?;
        let found = StructureBytes { bytes: Bytes(record), place, structure: STRUCTURE };
        let damage = |problem| GuestError::from(self.damage_of(found, problem));
        if found.bytes.be16(0) != Some(MAGIC) {
            return Err(damage("it is something else"));
        }
        self.check_seal(found, &SEAL, number.0)?;
        let short = || damage("it is too short");
        if found.bytes.be16(2).ok_or_else(short)? == 0 {
            return Err(GuestError::NotFound);
        }
        let is_v5 = self.superblock.features.is_v5();
        match found.bytes.u8(4) {
            Some(3) if is_v5 => {}
            Some(1 | 2) if !is_v5 => {}
            _ => return Err(damage("its version is impossible")),
        }
        let inode = Inode::decode(number, place, found.bytes, is_v5).ok_or_else(short)?;
        inode.map_err(damage)
    }
}

/// Returns whether bytes claim to be an inode in use, even if they are invalid.
pub(super) fn claims_use(record: &[u8]) -> bool {
    Bytes(record).be16(0) == Some(MAGIC) && Bytes(record).be16(2).is_some_and(|mode| mode != 0)
}

/// Returns the kind of file for a mode.
fn kind_of(mode: u16) -> Option<FileKind> {
    Some(match mode >> 12 {
        0o1 => FileKind::Fifo,
        0o2 => FileKind::CharacterDevice,
        0o4 => FileKind::Directory,
        0o6 => FileKind::BlockDevice,
        0o10 => FileKind::Regular,
        0o12 => FileKind::SymbolicLink,
        0o14 => FileKind::Socket,
        _ => return None,
    })
}

fn form_of(form: u8) -> Option<ForkForm> {
    Some(match form {
        0 => ForkForm::Device,
        1 => ForkForm::Inline,
        2 => ForkForm::List,
        3 => ForkForm::Tree,
        _ => return None,
    })
}

impl<'b> Inode<'b> {
    /// Decodes an inode: `None` if bytes are missing, a problem if it contradicts itself.
    fn decode(
        number: FileNumber,
        place: u64,
        bytes: Bytes<'b>,
        is_v5: bool,
    ) -> Option<Result<Inode<'b>, &'static str>> {
        let flags = if is_v5 { bytes.be64(120)? } else { 0 };
        let record_bytes = if is_v5 { 176 } else { 100 };
        let (Some(kind), Some(form)) = (kind_of(bytes.be16(2)?), form_of(bytes.u8(5)?)) else {
            return Some(Err("its kind is unknown"));
        };
        let size_bytes = bytes.be64(56)?;
        if i64::try_from(size_bytes).is_err() {
            return Some(Err("its length is impossible"));
        }
        let forks_at = record_bytes;
        let attributes_at = forks_at + usize::from(bytes.u8(82)?) * 8;
        if attributes_at >= bytes.len() {
            return Some(Err("its attribute fork begins behind its end"));
        }
        let has_attributes = attributes_at > forks_at;
        let (data_extents, attribute_extents) = extent_counts(bytes, flags)?;
        let data_end = if has_attributes { attributes_at } else { bytes.len() };
        let fork = |form, at: usize, end: usize, extents| {
            let bytes = bytes.part(at, end.checked_sub(at)?)?;
            Some(Fork { form, bytes, place: place + at as u64, extents, inode_place: place, owner: number.0 })
        };
        let data = fork(form, forks_at, data_end, data_extents)?;
        let attributes = match (has_attributes, form_of(bytes.u8(83)?)) {
            (false, _) => None,
            (true, Some(form)) if form != ForkForm::Device => {
                Some(fork(form, attributes_at, bytes.len(), attribute_extents)?)
            }
            (true, _) => return Some(Err("the form of its attributes is unknown")),
        };
        let is_right = match form {
            ForkForm::Device => !matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::SymbolicLink),
            ForkForm::Inline => matches!(kind, FileKind::Directory | FileKind::SymbolicLink),
            ForkForm::List | ForkForm::Tree => {
                matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::SymbolicLink)
            }
        };
        if !is_right || (form == ForkForm::Inline && size_bytes > data.bytes.len() as u64) {
            return Some(Err("its form does not fit its kind"));
        }
        Some(Ok(Inode { number, place, kind, size_bytes, data, attributes, bytes, flags }))
    }

    /// Returns whether its blocks may be shared.
    pub(super) fn may_share(&self) -> bool {
        self.flags & FLAG_REFLINK != 0
    }

    /// Returns the metadata of the file; `None` if the record is too short.
    pub(super) fn stat(&self, block_log: u32) -> Option<FileStat> {
        let bytes = self.bytes;
        let links = if bytes.u8(4)? == 1 { u32::from(bytes.be16(6)?) } else { bytes.be32(16)? };
        let device = match self.kind {
            FileKind::CharacterDevice | FileKind::BlockDevice => self.data.bytes.be32(0),
            _ => None,
        };
        Some(FileStat {
            kind: self.kind,
            mode: bytes.be16(2)? & 0o7777,
            user: bytes.be32(8)?,
            group: bytes.be32(12)?,
            links,
            size_bytes: self.size_bytes,
            allocated_bytes: bytes.be64(64)?.checked_shl(block_log)?,
            modified: self.time(40)?,
            changed: self.time(48)?,
            accessed: self.time(32)?,
            created: if bytes.u8(4)? == 3 { Some(self.time(144)?) } else { None },
            device: device.map(|number| (number >> 18 & 0x3fff, number & 0x3_ffff)),
            generation: u64::from(bytes.be32(92)?),
            encoding: None,
        })
    }

    fn time(&self, at: usize) -> Option<Timestamp> {
        if self.flags & FLAG_BIG_TIME == 0 {
            let seconds = i64::from(self.bytes.be32(at)?.cast_signed());
            return Some(Timestamp { seconds, nanoseconds: self.bytes.be32(at + 4)?.min(999_999_999) });
        }
        let counter = self.bytes.be64(at)?;
        let seconds = i64::try_from(counter / SECOND_NANOSECONDS).ok()? + BIG_TIME_EPOCH_SECONDS;
        Some(Timestamp { seconds, nanoseconds: u32::try_from(counter % SECOND_NANOSECONDS).ok()? })
    }
}

/// Returns the numbers of extents of the data and of the attributes.
fn extent_counts(bytes: Bytes<'_>, flags: u64) -> Option<(u64, u64)> {
    if flags & FLAG_LARGE_EXTENT_COUNTS == 0 {
        return Some((u64::from(bytes.be32(76)?), u64::from(bytes.be16(80)?)));
    }
    Some((bytes.be64(24)?, u64::from(bytes.be32(76)?)))
}
