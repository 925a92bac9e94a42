//! Allocated places that nothing reads: the log of a clean journal, and ends of inode tables that were never used.
//!
//! A mount and the file system's own checker take the log for empty if the journal's superblock says so, and pass over
//! inodes that their group counts as unused. No other file can have these blocks: the kernel refuses files with blocks
//! of the journal or of inode tables.

use std::ops::Range;

use super::group::Group;
use super::journal;
use super::superblock::features;
use super::tables::Tables;
use crate::error::GuestError;

impl Tables<'_> {
    /// Calls `visit` with ranges of bytes of the volume, for [`crate::filesystem::FileSystem::each_unread`]. There are
    /// none unless the file system was cleanly unmounted.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn each_unread(&self, visit: &mut dyn FnMut(Range<u64>)) -> Result<(), GuestError> {
        let superblock = &self.superblock;
        let needs_recovery = superblock.features.has(features::NEEDS_RECOVERY) || !self.source.overlay().is_empty();
        if !superblock.is_clean || superblock.has_errors || needs_recovery {
            return Ok(());
        }
        journal::each_unread(self, visit)?;
        for number in 0..self.group_count() {
            let Some(group) = self.damage.skip(self.group(number))? else { continue };
            if let Some(range) = self.unused_inodes(&group)? {
                visit(range);
            }
        }
        Ok(())
    }

    /// Returns the whole blocks of a group's inode table in which no inode was ever used; `None` if there are none, or
    /// if the group's bitmap says otherwise. Without checksums of descriptors, all inodes count as used.
    fn unused_inodes(&self, group: &Group) -> Result<Option<Range<u64>>, GuestError> {
        let superblock = &self.superblock;
        let count = superblock.inodes_per_group;
        let unused = if group.is_table_unused { count } else { group.unused_inodes };
        if unused == 0 || !group.is_table_unused && !self.are_unused(group, count - unused..count)? {
            return Ok(None);
        }
        let table = group.inode_table * superblock.block_bytes;
        let at = |inodes: u32| u64::from(inodes) * superblock.inode_bytes as u64;
        let start = at(count - unused).next_multiple_of(superblock.block_bytes);
        let end = at(count) / superblock.block_bytes * superblock.block_bytes;
        Ok((start < end).then(|| table + start..table + end))
    }

    /// Returns whether the bitmap of a group has no inode of a range; false without a sound bitmap.
    fn are_unused(&self, group: &Group, mut range: Range<u32>) -> Result<bool, GuestError> {
        let Some(bitmap) = self.damage.skip(self.inode_bitmap(group))? else { return Ok(false) };
        let is_used = |within: u32| bitmap.get(within as usize / 8).is_none_or(|byte| byte >> (within % 8) & 1 == 1);
        Ok(!range.any(is_used))
    }
}
