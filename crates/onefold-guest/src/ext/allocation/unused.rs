//! Files of inodes that their groups count as never used: a mount and a checker read those that something names.
//!
//! The tables of these inodes are up to 1/64 of a disk without holes, and nearly always zeros. So names decide: the
//! blocks of all directories are read in the order of their places, and only those tables are read that have an inode
//! which an entry, the superblock or the list of orphans names. Such a table is read to its end, because the checker
//! then takes all of its inodes for used. The tables are read whole if
//! - they are shorter than all directories;
//! - a part of a file is damaged, or entries of a directory cannot be followed to the end of its block;
//! - one of these inodes is a directory, which may name others;
//! - values of attributes are inodes, which no directory names (`ea_inode`);
//! - groups or directories are too many for the memory.

use super::reach::{DIRECTORY, Reach};
use crate::error::GuestError;
use crate::ext::superblock::features;
use crate::ext::tables::Tables;
use crate::filesystem::FileKind;

/// Maximum number of groups of which names are known: 16 MiB of them.
pub(super) const GROUPS_MAX: usize = 4 << 20;
/// In place of a group's first unused inode, if something names an unused one.
const NAMED: u32 = u32::MAX;

/// The groups with inodes that count as never used, although something names them.
struct NamedGroups {
    inodes_per_group: u32,
    /// For each group, the index of its first inode that was never used, or [`NAMED`].
    first_unused: Vec<u32>,
}

impl NamedGroups {
    /// Returns the groups before any name is known; `None` if one is damaged, or if there are more than `groups_max`.
    fn of(tables: &Tables<'_>, groups_max: usize) -> Result<Option<NamedGroups>, GuestError> {
        let count = tables.group_count() as usize;
        if count > groups_max {
            return Ok(None);
        }
        let mut first_unused = Vec::with_capacity(count);
        for number in 0..tables.group_count() {
            let Some(group) = tables.sound_group(number)? else { return Ok(None) };
            let unused = tables.unused_range(&group);
            // The checker does not believe a group that has fewer free inodes than unused ones.
            let is_right = unused.len() <= group.free_inodes as usize;
            first_unused.push(if is_right { unused.start } else { NAMED });
        }
        Ok(Some(NamedGroups { inodes_per_group: tables.superblock.inodes_per_group, first_unused }))
    }

    /// Notes that something names an inode, which need not exist.
    fn name(&mut self, inode: u32) {
        let Some(index) = inode.checked_sub(1) else { return };
        let (group, within) = (index / self.inodes_per_group, index % self.inodes_per_group);
        if let Some(first_unused) = self.first_unused.get_mut(group as usize).filter(|first| within >= **first) {
            *first_unused = NAMED;
        }
    }

    fn is_named(&self, group: u32) -> bool {
        self.first_unused.get(group as usize) == Some(&NAMED)
    }
}

impl Reach<'_, '_, '_> {
    /// Visits the files of inodes that their groups count as never used, if they may be in use. All other files have
    /// been visited. The names of at most `groups_max` groups are remembered.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn run_never_used(&mut self, groups_max: usize) -> Result<(), GuestError> {
        let tables = self.tables;
        let has_sums = tables.superblock.features.has(features::METADATA_CSUM);
        if self.has_too_many || !has_sums && tables.is_file_lost() {
            // Nothing is free.
            return Ok(());
        }
        let directory_bytes = self.records.blocks_of(DIRECTORY).saturating_mul(tables.superblock.block_bytes);
        let unused_bytes = tables.never_used_bytes(directory_bytes)?;
        if unused_bytes == 0 {
            return Ok(());
        }
        // Without checksums, a former user's bytes look like inodes.
        let has_names = !has_sums || unused_bytes > directory_bytes;
        let named = if has_names { self.named_groups(groups_max)? } else { None };
        let Some(named) = named else { return self.never_used_of(&|_| true).map(|_| ()) };
        let has_directory = self.never_used_of(&|group| named.is_named(group))?;
        if has_directory && !self.has_too_many {
            self.never_used_of(&|group| !named.is_named(group))?;
        }
        Ok(())
    }

    /// Visits the inodes that these groups count as never used, unless files reach too much. Returns whether one is a
    /// directory.
    fn never_used_of(&mut self, is_read: &dyn Fn(u32) -> bool) -> Result<bool, GuestError> {
        let tables = self.tables;
        let (mut has_directory, mut outcome) = (false, Ok(()));
        for number in (0..tables.group_count()).filter(|number| is_read(*number)) {
            let visited = tables.each_never_used(number, &mut |inode| {
                has_directory |= inode.kind() == FileKind::Directory;
                outcome = self.file(&inode);
                self.go_on(&outcome)
            })?;
            if visited.is_break() {
                break;
            }
        }
        outcome.map(|()| has_directory)
    }

    /// Returns the groups of all inodes that something names; `None` if not all names are known.
    fn named_groups(&mut self, groups_max: usize) -> Result<Option<NamedGroups>, GuestError> {
        if self.tables.is_file_lost() || self.tables.superblock.features.has(features::EA_INODE) {
            return Ok(None);
        }
        let Some(mut named) = NamedGroups::of(self.tables, groups_max)? else { return Ok(None) };
        match self.each_named(&mut |inode| named.name(inode)) {
            Err(GuestError::Disk(error)) => Err(GuestError::Disk(error)),
            Ok(true) => Ok(Some(named)),
            Ok(false) | Err(_) => Ok(None),
        }
    }

    /// Calls `visit` with each inode that something names. Returns whether that was all.
    fn each_named(&mut self, visit: &mut dyn FnMut(u32)) -> Result<bool, GuestError> {
        let (tables, superblock) = (self.tables, &self.tables.superblock);
        (1..superblock.first_inode.min(superblock.inodes_per_group)).for_each(&mut *visit);
        let own = [superblock.journal_inode, superblock.project_quota_inode, superblock.orphan_file_inode];
        own.into_iter().chain(superblock.quota_inodes).for_each(&mut *visit);
        if !tables.each_orphan(visit)? {
            return Ok(false);
        }
        let Some(inline) = &self.inline_directories else { return Ok(false) };
        for directory in inline {
            if !tables.each_inline_number(&tables.inode(*directory)?, visit)? {
                return Ok(false);
            }
        }
        let Some(directories) = self.records.of(DIRECTORY) else { return Ok(false) };
        let mut memory = Vec::new();
        for blocks in directories {
            if !tables.each_number_in(blocks, &mut memory, visit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
