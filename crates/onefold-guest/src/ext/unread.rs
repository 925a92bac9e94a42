//! Allocated places that nothing reads: the log of a clean journal, and ends of inode tables that were never used.
//!
//! A mount and the file system's own checker take the log for empty if the journal's superblock says so, and pass over
//! inodes that their group counts as unused. Descriptors and maps alone are not believed: an inode with a right
//! checksum there counts as used whatever its group says, and all files and all other metadata keep the blocks that
//! they lead to.

use std::ops::Range;

use super::allocation::each_claim;
use super::group::Group;
use super::inode::{Inode, Leftover};
use super::journal;
use super::map::MapPiece;
use super::superblock::features;
use super::tables::Tables;
use crate::error::GuestError;

/// Maximum number of ranges. A volume with more has none.
const RANGES_MAX: usize = 1 << 17;

/// Ranges of blocks that nothing reads, unless something else lays claim to them.
#[derive(Debug, Default)]
struct Candidates {
    /// In order, without overlap, and each with whether it has a claim.
    ranges: Vec<(Range<u64>, bool)>,
}

impl Candidates {
    /// Returns the candidates. Those that overlap have claims on one another.
    fn of(mut ranges: Vec<Range<u64>>) -> Candidates {
        ranges.sort_unstable_by_key(|range| range.start);
        let mut candidates = Candidates::default();
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            match candidates.ranges.last_mut() {
                Some((last, is_claimed)) if range.start < last.end => {
                    last.end = last.end.max(range.end);
                    *is_claimed = true;
                }
                _ => candidates.ranges.push((range, false)),
            }
        }
        candidates
    }

    /// Notes that blocks belong to something that is read.
    fn claim(&mut self, blocks: Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|(range, _)| range.end <= blocks.start);
        for (_, is_claimed) in self.ranges[first..].iter_mut().take_while(|(range, _)| range.start < blocks.end) {
            *is_claimed = true;
        }
    }
}

/// What the unused end of a group's inode table is.
enum UnusedTail {
    /// These whole blocks, which may be none.
    Blocks(Range<u64>),
    /// It has an inode with links: the group's descriptor is wrong.
    Linked,
}

impl Tables<'_> {
    /// Calls `visit` with ranges of bytes of the volume, for [`crate::filesystem::FileSystem::each_unread`]. There are
    /// none unless the file system was cleanly unmounted, and all groups and files can be read.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn each_unread(&self, visit: &mut dyn FnMut(Range<u64>)) -> Result<(), GuestError> {
        let superblock = &self.superblock;
        let needs_recovery = superblock.features.has(features::NEEDS_RECOVERY) || !self.source.overlay().is_empty();
        if !superblock.is_clean || superblock.has_errors || needs_recovery || self.first_group_left_out().is_some() {
            return Ok(());
        }
        let log = journal::unread(self)?;
        let mut ranges = log.blocks;
        let Some(tables) = self.unused_tables()? else { return Ok(()) };
        ranges.extend(tables.iter().cloned());
        if ranges.len() > RANGES_MAX {
            return Ok(());
        }
        let mut candidates = Candidates::of(ranges);
        self.claim_tables(&tables, &mut candidates)?;
        let is_whole = each_claim(self, &mut |inode: &Inode, piece: &MapPiece| match piece {
            MapPiece::Node(block) => candidates.claim(*block..*block + 1),
            // The log itself, from its first block to its last, is no claim on the log.
            MapPiece::Run(run) if inode.number == superblock.journal_inode => {
                let at = |block: u64| run.block + (block.clamp(run.first, run.end()) - run.first);
                candidates.claim(run.block..at(log.log.start));
                candidates.claim(at(log.log.end)..run.block + run.count);
            }
            MapPiece::Run(run) => candidates.claim(run.block..run.block + run.count),
        })?;
        if is_whole {
            for (range, _) in candidates.ranges.into_iter().filter(|(_, is_claimed)| !is_claimed) {
                visit(range.start * superblock.block_bytes..range.end * superblock.block_bytes);
            }
        }
        Ok(())
    }

    /// Returns for each group the whole blocks of its inode table in which no inode was ever used; `None` if groups are
    /// damaged or wrong.
    fn unused_tables(&self) -> Result<Option<Vec<Range<u64>>>, GuestError> {
        let mut tables = Vec::new();
        for number in 0..self.group_count() {
            let Some(group) = self.damage.skip(self.group(number))? else { return Ok(None) };
            match self.unused_inodes(&group)? {
                UnusedTail::Blocks(blocks) => tables.push(blocks),
                UnusedTail::Linked => return Ok(None),
            }
            if tables.len() > RANGES_MAX {
                return Ok(None);
            }
        }
        Ok(Some(tables))
    }

    /// Returns the unused end of a group's inode table. Without checksums of inodes, which alone tell an inode from a
    /// former user's bytes, all of them count as used. So do those of the first group, which has the root's.
    fn unused_inodes(&self, group: &Group) -> Result<UnusedTail, GuestError> {
        let superblock = &self.superblock;
        let count = superblock.inodes_per_group;
        let unused = self.unused_range(group);
        let none = UnusedTail::Blocks(group.inode_table..group.inode_table);
        if group.number == 0 && group.is_table_unused {
            return Ok(UnusedTail::Linked);
        }
        if unused.is_empty() || !superblock.features.has(features::METADATA_CSUM) {
            return Ok(none);
        }
        match self.damage.skip(self.leftover_inodes(group, unused.clone()))? {
            Some(Leftover::None) => {}
            Some(Leftover::Deleted) | None => return Ok(none),
            Some(Leftover::Linked) => return Ok(UnusedTail::Linked),
        }
        if group.number == 0 || !self.are_unused(group, unused.clone())? {
            return Ok(none);
        }
        let at = |inodes: u32| u64::from(inodes) * superblock.inode_bytes as u64;
        let start = at(unused.start).div_ceil(superblock.block_bytes);
        let end = at(count) / superblock.block_bytes;
        Ok(UnusedTail::Blocks(group.inode_table + start..group.inode_table + end.max(start)))
    }

    /// Returns whether the bitmap of a group has no inode of a range; false without a sound bitmap, unless the bitmap
    /// was never written.
    fn are_unused(&self, group: &Group, mut range: Range<u32>) -> Result<bool, GuestError> {
        let bitmap = match self.inode_bitmap(group) {
            Ok(bitmap) => bitmap,
            Err(GuestError::Damaged(damage)) if group.is_table_unused && !damage.is_unreadable() => return Ok(true),
            Err(GuestError::Damaged(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let is_used = |within: u32| bitmap.get(within as usize / 8).is_none_or(|byte| byte >> (within % 8) & 1 == 1);
        Ok(!range.any(is_used))
    }

    /// Notes the places of all metadata that is not in files. `unused` has the unused blocks of each group's table.
    fn claim_tables(&self, unused: &[Range<u64>], candidates: &mut Candidates) -> Result<(), GuestError> {
        let superblock = &self.superblock;
        let table_bytes = superblock.inodes_per_group as usize * superblock.inode_bytes;
        let table_blocks = table_bytes.div_ceil(superblock.block_length) as u64;
        if superblock.features.has(features::MMP) {
            candidates.claim(superblock.mmp_block..superblock.mmp_block.saturating_add(1));
        }
        candidates.claim(0..superblock.first_data_block + 1);
        for (number, unused) in (0..self.group_count()).zip(unused) {
            let start = superblock.group_start(number);
            candidates.claim(start..start + superblock.header_blocks(number));
            let descriptor = superblock.descriptor_offset(number) / superblock.block_bytes;
            candidates.claim(descriptor..descriptor + 1);
            let group = self.group(number)?;
            candidates.claim(group.block_bitmap..group.block_bitmap + 1);
            candidates.claim(group.inode_bitmap..group.inode_bitmap + 1);
            candidates.claim(group.inode_table..unused.start);
            candidates.claim(unused.end..group.inode_table + table_blocks);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_drops_the_ranges_that_it_meets() {
        let mut candidates = Candidates::of(vec![30..40, 10..20, 20..25, 50..60, 55..58, 70..70_u64]);
        candidates.claim(40..50);
        candidates.claim(25..30);
        candidates.claim(35..35);
        candidates.claim(19..20);
        assert_eq!(candidates.ranges, [(10..20, true), (20..25, false), (30..40, false), (50..60, true)]);
        candidates.claim(0..100);
        assert!(candidates.ranges.iter().all(|(_, is_claimed)| *is_claimed));
    }
}
