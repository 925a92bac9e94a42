//! Group descriptors: the places of each group's bitmaps and inodes.
//!
//! Kernel documentation, "ext4 Data Structures and Algorithms", section "Block Group Descriptors". Numbers are
//! little-endian; the high halves exist where a descriptor has 64 bytes or more.
//!
//! | byte | high | field |
//! |------|------|-------|
//! | 0x0  | 0x20 | block of the block bitmap |
//! | 0x4  | 0x24 | block of the inode bitmap |
//! | 0x8  | 0x28 | first block of the inode table |
//! | 0xc  | 0x2c | free clusters |
//! | 0xe  | 0x2e | free inodes |
//! | 0x12 |      | flags: 1 no inode was ever used, 2 the block bitmap was never written |
//! | 0x18 | 0x38 | checksum of the block bitmap |
//! | 0x1a | 0x3a | checksum of the inode bitmap |
//! | 0x1c | 0x32 | inodes at the end of the table that were never used |
//! | 0x1e |      | checksum of the descriptor |

use super::checksum::{crc16, crc32c};
use super::superblock::{Superblock, features};
use super::tables::Tables;
use crate::bytes::Bytes;
use crate::error::GuestError;

const STRUCTURE: &str = "group descriptor";
const CHECKSUM_AT: usize = 0x1e;
const INODES_UNINIT: u16 = 1;
const BLOCKS_UNINIT: u16 = 2;

/// A group of blocks according to its descriptor.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) number: u32,
    pub(super) block_bitmap: u64,
    pub(super) inode_bitmap: u64,
    pub(super) inode_table: u64,
    pub(super) free_clusters: u32,
    pub(super) free_inodes: u32,
    /// Number of inodes at the end of the table that were never used.
    pub(super) unused_inodes: u32,
    /// Whether the block bitmap was never written, so that only metadata is allocated.
    pub(super) is_bitmap_unwritten: bool,
    /// Whether no inode was ever used.
    pub(super) is_table_unused: bool,
    /// Checksums of the bitmaps.
    pub(super) block_bitmap_sum: u32,
    pub(super) inode_bitmap_sum: u32,
}

impl Tables<'_> {
    /// Returns a group.
    ///
    /// # Errors
    /// When its descriptor is damaged: its checksum, or a place outside of the file system.
    pub(super) fn group(&self, number: u32) -> Result<Group, GuestError> {
        let offset = self.superblock.descriptor_offset(number);
        let bytes = self.source.bytes(offset, self.superblock.descriptor_bytes, STRUCTURE)?;
        Group::decode(&self.superblock, number, &bytes)
            .map_err(|problem| self.source.damage(offset, STRUCTURE, problem).into())
    }

    /// As [`Tables::group`], but `None` for a damaged group, which another pass records.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn sound_group(&self, number: u32) -> Result<Option<Group>, GuestError> {
        match self.group(number) {
            Err(GuestError::Damaged(_)) => Ok(None),
            group => group.map(Some),
        }
    }

    /// Returns the number of groups that are read: those with their first block in the volume (a superblock may claim
    /// more), except those that are skipped.
    pub(super) fn group_count(&self) -> u32 {
        let volume_blocks = self.source.reader().size_bytes() / self.superblock.block_bytes;
        let blocks = volume_blocks.saturating_sub(self.superblock.first_data_block);
        u32::try_from(blocks.div_ceil(self.superblock.blocks_per_group))
            .unwrap_or(u32::MAX)
            .min(self.superblock.group_count)
            .min(self.first_group_left_out().unwrap_or(u32::MAX))
    }
}

impl Group {
    /// Decodes a group from its descriptor.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub(super) fn decode(superblock: &Superblock, number: u32, bytes: &[u8]) -> Result<Group, &'static str> {
        let has_sums = check_sum(superblock, number, bytes)?;
        let group = Group::fields(superblock, number, Bytes(bytes), has_sums).ok_or("it is too short")?;
        let table_blocks = superblock.inodes_per_group as usize * superblock.inode_bytes / superblock.block_length;
        let is_inside = superblock.has_blocks(group.block_bitmap, 1)
            && superblock.has_blocks(group.inode_bitmap, 1)
            && superblock.has_blocks(group.inode_table, table_blocks as u64);
        if !is_inside {
            return Err("it names a place outside of the file system");
        }
        if group.unused_inodes > superblock.inodes_per_group {
            return Err("it has more unused inodes than inodes");
        }
        Ok(group)
    }

    fn fields(superblock: &Superblock, number: u32, bytes: Bytes<'_>, has_sums: bool) -> Option<Group> {
        let is_wide = superblock.descriptor_bytes >= 64;
        let block = |low: usize, high: usize| {
            let high = if is_wide { bytes.le32(high)? } else { 0 };
            Some(u64::from(high) << 32 | u64::from(bytes.le32(low)?))
        };
        let count = |low: usize, high: usize| {
            let high = if is_wide { bytes.le16(high)? } else { 0 };
            Some(u32::from(high) << 16 | u32::from(bytes.le16(low)?))
        };
        // Without checksums the flags and the count of unused inodes are meaningless.
        let flags = if has_sums { bytes.le16(0x12)? } else { 0 };
        Some(Group {
            number,
            block_bitmap: block(0x0, 0x20)?,
            inode_bitmap: block(0x4, 0x24)?,
            inode_table: block(0x8, 0x28)?,
            free_clusters: count(0xc, 0x2c)?,
            free_inodes: count(0xe, 0x2e)?,
            unused_inodes: if has_sums { count(0x1c, 0x32)? } else { 0 },
            is_bitmap_unwritten: flags & BLOCKS_UNINIT != 0,
            is_table_unused: flags & INODES_UNINIT != 0,
            block_bitmap_sum: count(0x18, 0x38)?,
            inode_bitmap_sum: count(0x1a, 0x3a)?,
        })
    }
}

/// Checks the checksum of a descriptor. Returns whether it has one.
fn check_sum(superblock: &Superblock, number: u32, bytes: &[u8]) -> Result<bool, &'static str> {
    let (before, after) = bytes.split_at_checked(CHECKSUM_AT).ok_or("it is too short")?;
    let rest = after.get(2..).ok_or("it is too short")?;
    let found = Bytes(bytes).le16(CHECKSUM_AT);
    let number = number.to_le_bytes();
    let expected = if superblock.features.has(features::METADATA_CSUM) {
        let sum =
            [&number[..], before, &[0, 0], rest].iter().fold(superblock.checksum_seed, |sum, part| crc32c(sum, part));
        u16::try_from(sum & 0xffff).unwrap_or_default()
    } else if superblock.features.has(features::UNINIT_BG) {
        [&superblock.uuid[..], &number, before, rest].iter().fold(u16::MAX, |sum, part| crc16(sum, part))
    } else {
        return Ok(false);
    };
    if found == Some(expected) { Ok(true) } else { Err("its checksum is wrong") }
}
