//! The inodes that their group counts as never used. Their tables are mostly zeros, or a former user's bytes.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::table::{Selection, Stretch, is_used};
use super::{Inode, InodePlace, STRUCTURE};
use crate::error::GuestError;
use crate::ext::group::Group;
use crate::ext::superblock::features;
use crate::ext::tables::Tables;

const DESCRIPTOR: &str = "group descriptor";
/// Place of the number of links in an inode.
const LINKS_AT: usize = 0x1a;

/// Findings in inodes that the file system calls unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ext) enum Leftover {
    /// None of them is an inode.
    None,
    /// At least one is an inode, and none has links.
    Deleted,
    /// At least one has links: a directory may have it.
    Linked,
}

impl Tables<'_> {
    /// Returns the bytes of all inodes that groups count as never used, without those in holes of the disk; a part of
    /// them if that is more than `enough`. Damaged groups are skipped.
    ///
    /// # Errors
    /// Those of the disk.
    pub(in crate::ext) fn never_used_bytes(&self, enough: u64) -> Result<u64, GuestError> {
        let (mut bytes, mut hole) = (0, 0..0);
        for number in 0..self.group_count() {
            let Some(group) = self.sound_group(number)? else { continue };
            let range = self.unused_range(&group);
            for part in self.parts(&Stretch { group: &group, bitmap: None, range, is_never_used: true }) {
                if !self.is_hole(&part, &mut hole)? {
                    bytes += self.inode_bytes_of(&part);
                }
                if bytes > enough {
                    return Ok(bytes);
                }
            }
        }
        Ok(bytes)
    }

    /// Calls `visit` with each inode with links among those that a group counts as never used, until it breaks;
    /// [`Tables::each_inode`] has visited those near an inode in the bitmap. An inode needs a right checksum, which
    /// alone tells it from other bytes. Without checksums, a part of a file is lost if there are links. Holes of the
    /// disk are not read, and a damaged group is skipped.
    ///
    /// # Errors
    /// Those of the disk.
    pub(in crate::ext) fn each_never_used(
        &self,
        number: u32,
        visit: &mut dyn FnMut(Inode) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let Some(group) = self.sound_group(number)? else { return Ok(ControlFlow::Continue(())) };
        let bitmap = if group.is_table_unused { Ok(None) } else { self.inode_bitmap(&group).map(Some) };
        let bitmap = match bitmap {
            // The visit of all others has recorded it.
            Err(GuestError::Damaged(_)) => None,
            bitmap => bitmap?,
        };
        let stretch =
            Stretch { group: &group, bitmap: bitmap.as_deref(), range: self.unused_range(&group), is_never_used: true };
        let mut hole = 0..0;
        for part in self.parts(&stretch) {
            if part.is_in_bitmap() || self.is_hole(&part, &mut hole)? {
                continue;
            }
            if !self.superblock.features.has(features::METADATA_CSUM) {
                self.skip_file(self.check_unlinked(&part))?;
            } else if self.each_inode_in(&part, Selection::UsedOrLinked, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Checks that no inode has links.
    fn check_unlinked(&self, stretch: &Stretch<'_>) -> Result<(), GuestError> {
        let window = self.read_window(stretch)?;
        let inodes = window.bytes.get(..window.length).unwrap_or_default().chunks_exact(self.superblock.inode_bytes);
        let is_linked = |inode: &[u8]| inode.get(LINKS_AT..LINKS_AT + 2).is_some_and(|links| links != [0; 2]);
        if inodes.into_iter().any(is_linked) {
            let problem = "it has links, although its group counts it as never used";
            return Err(self.source.damage(window.offset, STRUCTURE, problem).into());
        }
        Ok(())
    }

    /// Checks the counts of a group whose inodes have no checksums, so that those that it counts as never used cannot
    /// be told from other bytes. If its counts contradict each other, files of such inodes are lost.
    pub(super) fn check_counts(&self, unused: &Stretch<'_>) -> Result<(), GuestError> {
        let (group, count) = (unused.group, self.superblock.inodes_per_group);
        let are_right = match unused.bitmap {
            Some(bits) => {
                let free = (0..count).filter(|within| !is_used(Some(bits), *within)).count();
                u32::try_from(free) == Ok(group.free_inodes)
            }
            // The first group has the inode of the root directory.
            None if group.is_table_unused => group.number > 0 && group.free_inodes == count,
            // A damaged bitmap is noted.
            None => true,
        };
        if are_right {
            return Ok(());
        }
        let offset = self.superblock.descriptor_offset(group.number);
        Err(self.source.damage(offset, DESCRIPTOR, "its counts of inodes contradict each other").into())
    }

    /// Returns the inodes at the end of a group's table that it counts as never used.
    pub(in crate::ext) fn unused_range(&self, group: &Group) -> Range<u32> {
        let count = self.superblock.inodes_per_group;
        if group.is_table_unused { 0..count } else { count - group.unused_inodes..count }
    }

    /// Returns whether neither the disk nor the journal has anything in the place of inodes. `hole` is the last known
    /// hole of the disk, which may have many tables.
    fn is_hole(&self, stretch: &Stretch<'_>, hole: &mut Range<u64>) -> Result<bool, GuestError> {
        let start = self.inode_offset(stretch);
        let end = start + self.inode_bytes_of(stretch);
        if !(hole.start <= start && end <= hole.end) {
            *hole = start..self.source.reader().next_data(start)?.unwrap_or(u64::MAX);
        }
        Ok(end <= hole.end && self.source.overlay().overlapping(start, end - start).is_empty())
    }

    fn inode_bytes_of(&self, stretch: &Stretch<'_>) -> u64 {
        (stretch.range.len() * self.superblock.inode_bytes) as u64
    }

    /// Returns what a range of a group's inodes holds. Holes of the disk are not read.
    ///
    /// # Errors
    /// Those of the disk, and unreadable sectors.
    pub(in crate::ext) fn leftover_inodes(&self, group: &Group, range: Range<u32>) -> Result<Leftover, GuestError> {
        let (mut leftover, mut hole) = (Leftover::None, 0..0);
        for stretch in self.parts(&Stretch { group, bitmap: None, range, is_never_used: true }) {
            if self.is_hole(&stretch, &mut hole)? {
                continue;
            }
            let window = self.read_window(&stretch)?;
            for (index, number) in (window.first..).take(stretch.range.len()).enumerate() {
                let start = index * self.superblock.inode_bytes;
                let is_set = |at: usize| window.bytes.get(start + at..start + at + 2).is_some_and(|two| two != [0; 2]);
                let (has_mode, has_links) = (is_set(0), is_set(0x1a));
                let place = InodePlace { number, offset: window.offset, bytes: Arc::clone(&window.bytes), start };
                if (has_mode || has_links) && Inode::decode(&self.superblock, place).is_ok() {
                    leftover = leftover.max(if has_links { Leftover::Linked } else { Leftover::Deleted });
                }
            }
        }
        Ok(leftover)
    }
}
