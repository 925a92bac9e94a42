//! Inodes.
//!
//! Kernel documentation, "ext4 Data Structures and Algorithms", section "Index Nodes". Numbers are little-endian. A
//! field behind byte 0x80 exists if the inode is long enough and its own length (0x80) includes the field.
//!
//! | byte | field | byte | field |
//! |------|-------|------|-------|
//! | 0x0  | mode | 0x68 | block of attributes, low; high at 0x76 |
//! | 0x2  | user, low; high at 0x78 | 0x6c | size, high (of regular files, and directories of `large_dir`) |
//! | 0x4  | size, low | 0x74 | blocks, high (`huge_file`) |
//! | 0x8  | time of access | 0x7a | group, high |
//! | 0xc  | time of change of the inode | 0x7c | checksum, low; high at 0x82 |
//! | 0x10 | time of change of the content | 0x80 | bytes behind 0x80 that are used |
//! | 0x14 | time of deletion | 0x84 | time of change of the inode, more |
//! | 0x18 | group, low | 0x88 | time of change of the content, more |
//! | 0x1a | links | 0x8c | time of access, more |
//! | 0x1c | blocks, low | 0x90 | time of creation |
//! | 0x20 | flags | 0x94 | time of creation, more |
//! | 0x28 | map, link or inline data: 60 bytes | 0x64 | generation |

mod table;
mod unused;

use std::sync::Arc;

pub(super) use table::Selection;
pub(super) use unused::Leftover;

use super::attributes;
use super::checksum::crc32c;
use super::superblock::{Superblock, features};
use super::tables::Tables;
use crate::bytes::Bytes;
use crate::error::{Encoding, GuestError};
use crate::filesystem::{FileKind, FileStat, Timestamp};

pub(super) const STRUCTURE: &str = "inode";
/// Bytes of an inode that every file system has.
pub(in crate::ext) const BASE_BYTES: usize = 0x80;
const CHECKSUM_LOW_AT: usize = 0x7c;
const CHECKSUM_HIGH_AT: usize = 0x82;
/// Number of bytes that contain both halves of an inode's checksum. Most inodes have this length.
const CHECKED_BYTES: usize = 256;
/// Place of map, link or inline data in an inode.
pub(super) const MAP_AT: usize = 0x28;
/// Their length.
pub(super) const MAP_BYTES: usize = 60;

/// The flags of an inode.
pub(super) mod flags {
    /// The content is encrypted; for a directory, the names are.
    pub(in crate::ext) const ENCRYPT: u32 = 0x800;
    /// A directory has a tree of hashes.
    pub(in crate::ext) const INDEX: u32 = 0x1000;
    /// The number of blocks is in blocks of the file system.
    pub(in crate::ext) const HUGE_FILE: u32 = 0x4_0000;
    /// The map is a tree of extents.
    pub(in crate::ext) const EXTENTS: u32 = 0x8_0000;
    /// The digest of the content is stored behind its end (fs-verity).
    pub(in crate::ext) const VERITY: u32 = 0x10_0000;
    /// The inode holds the value of an attribute.
    pub(in crate::ext) const EA_INODE: u32 = 0x20_0000;
    /// The content is in the inode.
    pub(in crate::ext) const INLINE_DATA: u32 = 0x1000_0000;
    /// Names in a directory are compared without regard to case.
    pub(in crate::ext) const CASEFOLD: u32 = 0x4000_0000;
}

/// An inode, with its bytes.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) number: u32,
    /// First byte in the volume.
    pub(super) offset: u64,
    pub(super) mode: u16,
    pub(super) links: u16,
    pub(super) flags: u32,
    pub(super) size_bytes: u64,
    /// Allocated bytes according to its number of blocks.
    pub(super) allocated_bytes: u64,
    /// Allocated bytes as the guest's programs see them.
    shown_bytes: u64,
    pub(super) generation: u32,
    /// The block of its extended attributes; 0 if there is none.
    pub(super) attribute_block: u64,
    /// The seed of checksums of its own structures.
    pub(super) checksum_seed: u32,
    bytes: Arc<[u8]>,
    /// Its start in `bytes`, and its length.
    start: usize,
    length: usize,
}

/// Place of an inode's bytes.
struct InodePlace {
    number: u32,
    offset: u64,
    bytes: Arc<[u8]>,
    start: usize,
}

impl Tables<'_> {
    /// Returns an inode, used or not.
    ///
    /// # Errors
    /// When the inode does not exist, or is damaged.
    pub(super) fn inode(&self, number: u32) -> Result<Inode, GuestError> {
        if number == 0 || number > self.superblock.inode_count {
            return Err(GuestError::NotFound);
        }
        if let Some(inode) = self.last_inode.lock().as_ref().filter(|inode| inode.number == number) {
            return Ok(inode.clone());
        }
        let place = match self.inode_in_window(number) {
            Some(place) => place,
            None => self.read_inode(number)?,
        };
        let inode = self.decode_inode(place)?;
        *self.last_inode.lock() = Some(inode.clone());
        Ok(inode)
    }

    fn read_inode(&self, number: u32) -> Result<InodePlace, GuestError> {
        let (group, within) =
            ((number - 1) / self.superblock.inodes_per_group, (number - 1) % self.superblock.inodes_per_group);
        let known = self.last_group.lock().clone().filter(|known| known.number == group);
        let group = match known {
            Some(known) => known,
            None => self.group(group)?,
        };
        let offset =
            group.inode_table * self.superblock.block_bytes + u64::from(within) * self.superblock.inode_bytes as u64;
        *self.last_group.lock() = Some(group);
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, self.superblock.inode_bytes).collect();
        self.source.read(offset, Arc::get_mut(&mut bytes).unwrap_or_default(), STRUCTURE)?;
        Ok(InodePlace { number, offset, bytes, start: 0 })
    }

    fn inode_in_window(&self, number: u32) -> Option<InodePlace> {
        let window = self.window.lock();
        let window = window.as_ref()?;
        let start = (number.checked_sub(window.first)? as usize).checked_mul(self.superblock.inode_bytes)?;
        (start.checked_add(self.superblock.inode_bytes)? <= window.length).then(|| InodePlace {
            number,
            offset: window.offset + start as u64,
            bytes: Arc::clone(&window.bytes),
            start,
        })
    }

    fn decode_inode(&self, place: InodePlace) -> Result<Inode, GuestError> {
        let offset = place.offset;
        Inode::decode(&self.superblock, place).map_err(|problem| self.source.damage(offset, STRUCTURE, problem).into())
    }
}

impl Inode {
    fn decode(superblock: &Superblock, place: InodePlace) -> Result<Inode, &'static str> {
        let InodePlace { number, offset, bytes, start } = place;
        let mut inode = Inode {
            number,
            offset,
            mode: 0,
            links: 0,
            flags: 0,
            size_bytes: 0,
            allocated_bytes: 0,
            shown_bytes: 0,
            generation: 0,
            attribute_block: 0,
            checksum_seed: 0,
            bytes,
            start,
            length: superblock.inode_bytes,
        };
        inode.fill(superblock).ok_or("it is too short")?;
        if superblock.features.has(features::METADATA_CSUM) && !inode.has_right_checksum() {
            return Err("its checksum is wrong");
        }
        if inode.own_bytes().is_none() {
            return Err("it is longer than its place");
        }
        Ok(inode)
    }

    fn fill(&mut self, superblock: &Superblock) -> Option<()> {
        // Borrows from a clone, because the fields below are written while the bytes are read.
        let shared = Arc::clone(&self.bytes);
        let bytes = Bytes(&shared).part(self.start, self.length)?;
        self.mode = bytes.le16(0)?;
        self.links = bytes.le16(0x1a)?;
        self.flags = bytes.le32(0x20)?;
        self.generation = bytes.le32(0x64)?;
        let has_long_size = self.kind() == FileKind::Regular || superblock.features.has(features::LARGE_DIR);
        let size_high = if has_long_size { bytes.le32(0x6c)? } else { 0 };
        self.size_bytes = u64::from(size_high) << 32 | u64::from(bytes.le32(0x4)?);
        let is_huge = superblock.features.has(features::HUGE_FILE);
        let blocks_high = if is_huge { u64::from(bytes.le16(0x74)?) } else { 0 };
        let unit = if is_huge && self.flags & flags::HUGE_FILE != 0 { superblock.block_bytes } else { 512 };
        self.allocated_bytes = (blocks_high << 32 | u64::from(bytes.le32(0x1c)?)).saturating_mul(unit);
        // The kernel counts content in the inode, so that programs do not mistake the file for a hole.
        let is_inline = self.kind() == FileKind::Regular && self.is_inline();
        let inline_bytes = if is_inline { self.size_bytes.checked_next_multiple_of(512)? } else { 0 };
        self.shown_bytes = self.allocated_bytes.saturating_add(inline_bytes);
        let wide = if superblock.features.has(features::BITS_64) { u64::from(bytes.le16(0x76)?) } else { 0 };
        self.attribute_block = wide << 32 | u64::from(bytes.le32(0x68)?);
        let own = u64::from(self.generation) << 32 | u64::from(self.number);
        self.checksum_seed = crc32c(superblock.checksum_seed, &own.to_le_bytes());
        Some(())
    }

    /// Returns the bytes of the whole inode.
    pub(super) fn bytes(&self) -> Bytes<'_> {
        Bytes(self.bytes.get(self.start..self.start + self.length).unwrap_or_default())
    }

    /// Returns the bytes that hold its map, link or inline data.
    pub(super) fn map_bytes(&self) -> Bytes<'_> {
        self.bytes().part(MAP_AT, MAP_BYTES).unwrap_or(Bytes(&[]))
    }

    /// Returns the length of its fields; `None` if this exceeds the inode. Attributes follow.
    pub(super) fn own_bytes(&self) -> Option<usize> {
        if self.length == BASE_BYTES {
            return Some(BASE_BYTES);
        }
        let own = BASE_BYTES + usize::from(self.bytes().le16(BASE_BYTES)?);
        (own <= self.length && own.is_multiple_of(4)).then_some(own)
    }

    /// Returns the number of four bytes at `at`, if the inode has that field.
    fn extra(&self, at: usize) -> Option<u32> {
        (self.own_bytes()? >= at + 4).then(|| self.bytes().le32(at))?
    }

    fn has_right_checksum(&self) -> bool {
        let bytes = self.bytes();
        let low = bytes.le16(CHECKSUM_LOW_AT);
        let is_long = self.length > BASE_BYTES;
        let has_high = is_long && self.own_bytes().is_some_and(|own| own >= CHECKSUM_HIGH_AT + 2);
        let high = if has_high { bytes.le16(CHECKSUM_HIGH_AT) } else { None };
        // Both halves count as zero. A copy without them is checksummed in one call.
        let mut start = [0; CHECKED_BYTES];
        let (head, rest) = bytes.0.split_at(bytes.len().min(CHECKED_BYTES));
        let Some(copy) = start.get_mut(..head.len()) else { return false };
        copy.copy_from_slice(head);
        for at in [Some(CHECKSUM_LOW_AT), has_high.then_some(CHECKSUM_HIGH_AT)].into_iter().flatten() {
            let Some(half) = copy.get_mut(at..at + 2) else { return false };
            half.fill(0);
        }
        let sum = crc32c(crc32c(self.checksum_seed, copy), rest);
        match (low, high) {
            (Some(low), Some(high)) => sum == u32::from(high) << 16 | u32::from(low),
            (Some(low), None) => sum & 0xffff == u32::from(low),
            (None, _) => false,
        }
    }

    /// Returns the kind of the file.
    pub(super) fn kind(&self) -> FileKind {
        match self.mode >> 12 {
            0x1 => FileKind::Fifo,
            0x2 => FileKind::CharacterDevice,
            0x4 => FileKind::Directory,
            0x6 => FileKind::BlockDevice,
            0x8 => FileKind::Regular,
            0xa => FileKind::SymbolicLink,
            0xc => FileKind::Socket,
            _ => FileKind::Other,
        }
    }

    /// Returns whether a flag is set.
    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns whether its content is in the inode, in place of a map. A flag alone does not tell: without an attribute
    /// for such content, the kernel ignores the flag and follows the map.
    pub(super) fn is_inline(&self) -> bool {
        self.has(flags::INLINE_DATA) && attributes::has_inline_data(self)
    }

    /// Returns whether it is a symbolic link whose target is in the inode, in place of a map. With `ea_inode`, the
    /// blocks for values of its attributes count as its own, so only its length decides.
    pub(super) fn is_fast_link(&self, superblock: &Superblock) -> bool {
        let attributes =
            if self.attribute_block == 0 { 0 } else { superblock.block_bytes * superblock.blocks_per_cluster };
        self.kind() == FileKind::SymbolicLink
            && !self.is_inline()
            && (superblock.features.has(features::EA_INODE) || self.allocated_bytes <= attributes)
            && self.size_bytes < MAP_BYTES as u64
    }

    /// Returns whether the inode maps blocks of its content.
    pub(super) fn has_map(&self, superblock: &Superblock) -> bool {
        let is_mapped = match self.kind() {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::SymbolicLink => !self.is_fast_link(superblock),
            _ => false,
        };
        is_mapped && !self.is_inline()
    }

    /// Returns the encoding of the content.
    pub(super) fn encoding(&self) -> Option<Encoding> {
        let holds_content = matches!(self.kind(), FileKind::Regular | FileKind::SymbolicLink);
        (holds_content && self.has(flags::ENCRYPT)).then_some(Encoding::Encrypted)
    }

    /// Returns the metadata of the file.
    pub(super) fn stat(&self) -> FileStat {
        let bytes = self.bytes();
        let half = |at| u32::from(bytes.le16(at).unwrap_or(0));
        FileStat {
            kind: self.kind(),
            mode: self.mode & 0o7777,
            user: half(0x78) << 16 | half(0x2),
            group: half(0x7a) << 16 | half(0x18),
            links: u32::from(self.links),
            size_bytes: self.size_bytes,
            allocated_bytes: self.shown_bytes,
            modified: self.time(0x10, 0x88),
            changed: self.time(0xc, 0x84),
            accessed: self.time(0x8, 0x8c),
            created: self.extra(0x90).map(|_| self.time(0x90, 0x94)),
            device: self.device(),
            generation: u64::from(self.generation),
            encoding: self.encoding(),
        }
    }

    /// Returns a time: 32 bits of signed seconds, then two more bits of seconds and the nanoseconds.
    fn time(&self, at: usize, more_at: usize) -> Timestamp {
        let seconds = i64::from(self.bytes().le32(at).unwrap_or(0).cast_signed());
        let more = self.extra(more_at).unwrap_or(0);
        Timestamp { seconds: seconds + (i64::from(more & 3) << 32), nanoseconds: (more >> 2).min(999_999_999) }
    }

    /// Returns the number of a device, in the old or the new form.
    fn device(&self) -> Option<(u32, u32)> {
        if !matches!(self.kind(), FileKind::CharacterDevice | FileKind::BlockDevice) {
            return None;
        }
        let (old, new) = (self.map_bytes().le32(0)?, self.map_bytes().le32(4)?);
        if old != 0 {
            return Some((old >> 8 & 0xff, old & 0xff));
        }
        Some((new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xf_ff00))
    }
}
