//! Places of blocks and inodes.
//!
//! A block number contains the number of its group in the upper bits and its place in the group in the lower
//! [`Superblock::group_log`] bits. An inode number has the same structure: below the number of the group, it counts
//! inodes from the group's first byte. The runs of the allocation map count blocks from the first block of the file
//! system without gaps ("linear").

use super::superblock::Superblock;
use crate::filesystem::FileNumber;

/// Runs and trees stay within their group.
impl Superblock {
    /// Returns the number of blocks of a group; 0 if the group does not exist.
    pub(super) fn blocks_of(&self, group: u32) -> u32 {
        let before = u64::from(group) * u64::from(self.group_blocks);
        let rest = self.blocks.saturating_sub(before);
        u32::try_from(rest).unwrap_or(u32::MAX).min(self.group_blocks)
    }

    /// Returns the linear number of the first of `count` blocks from place `first` of a group; `None` if they are not
    /// all in the group.
    pub(super) fn linear(&self, group: u32, first: u32, count: u32) -> Option<u64> {
        let end = first.checked_add(count)?;
        (count > 0 && end <= self.blocks_of(group))
            .then(|| u64::from(group) * u64::from(self.group_blocks) + u64::from(first))
    }

    /// Returns the linear number of the first of `count` blocks from block number `block`; `None` if they are not all
    /// in its group.
    pub(super) fn linear_run(&self, block: u64, count: u32) -> Option<u64> {
        let (group, first) = self.split(block)?;
        self.linear(group, first, count)
    }

    /// Returns the byte of the volume at which `count` blocks from block number `block` begin; `None` if they are not
    /// all in its group.
    pub(super) fn place_of_run(&self, block: u64, count: u32) -> Option<u64> {
        Some(self.linear_run(block, count)? << self.block_log)
    }

    /// Returns the first byte of a group, which must exist.
    pub(super) fn group_place(&self, group: u32) -> u64 {
        (u64::from(group) * u64::from(self.group_blocks)) << self.block_log
    }

    fn split(&self, block: u64) -> Option<(u32, u32)> {
        let group = u32::try_from(block >> self.group_log).ok()?;
        let first = u32::try_from(block & ((1 << self.group_log) - 1)).ok()?;
        Some((group, first))
    }

    /// Returns the number of bits of an inode number below the number of its group.
    fn inode_bits(&self) -> u32 {
        self.group_log + self.block_log - self.inode_log
    }

    /// Returns the number of an inode from its group and its number there; `None` if a group has no such number.
    pub(super) fn inode_number(&self, group: u32, inode: u32) -> Option<FileNumber> {
        let bits = self.inode_bits();
        (u64::from(inode) >> bits == 0).then_some(FileNumber(u64::from(group) << bits | u64::from(inode)))
    }

    /// Returns the byte of the volume at which an inode begins; `None` if the number is invalid.
    pub(super) fn inode_place(&self, inode: FileNumber) -> Option<u64> {
        let group = u32::try_from(inode.0 >> self.inode_bits()).ok()?;
        let within = inode.0 & ((1 << self.inode_bits()) - 1);
        let block = u32::try_from(within >> (self.block_log - self.inode_log)).ok()?;
        self.linear(group, block, 1)?;
        Some(self.group_place(group) + (within << self.inode_log))
    }
}
