//! Reads all inodes in the order of their tables, in long reads.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::{Inode, InodePlace, STRUCTURE};
use crate::error::GuestError;
use crate::ext::group::Group;
use crate::ext::superblock::features;
use crate::ext::tables::{Tables, Window};

/// Bytes of an inode table that are read at once. The number is large enough to bypass the pages of a cached disk, and
/// small enough for the processor's cache.
const WINDOW_BYTES: usize = 256 << 10;
const BITMAP: &str = "inode bitmap";

/// The inodes that a pass visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ext) enum Selection {
    /// Inodes that are used according to the bitmap.
    Used,
    /// Also inodes with links, whatever the bitmap says. The file system's own checker finds them, too.
    UsedOrLinked,
}

/// The part of a group's inodes that a pass visits.
pub(super) struct Stretch<'b> {
    pub(super) group: &'b Group,
    pub(super) bitmap: Option<&'b [u8]>,
    /// Inodes of the group, by their index in its table.
    pub(super) range: Range<u32>,
    /// Whether the group counts them as never used, so that other bytes than those of an inode are no damage.
    pub(super) is_never_used: bool,
}

impl Stretch<'_> {
    /// Returns whether the bitmap has one of the inodes.
    pub(super) fn is_in_bitmap(&self) -> bool {
        self.bitmap.is_some() && self.range.clone().any(|within| is_used(self.bitmap, within))
    }
}

impl Tables<'_> {
    /// Calls `visit` with each selected inode in order, until it breaks. Damaged inodes and groups are recorded and
    /// skipped. Of the inodes that a group counts as never used, it visits those that the bitmap has, and their
    /// neighbours with links.
    pub(in crate::ext) fn each_inode(
        &self,
        selection: Selection,
        visit: &mut dyn FnMut(Inode) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        for number in 0..self.group_count() {
            let Some(group) = self.skip_file(self.group(number))? else { continue };
            // The bitmap of a group without a used inode may never have been written.
            let bitmap = if group.is_table_unused { None } else { self.skip_file(self.inode_bitmap(&group))? };
            let (bits, unused) = (bitmap.as_deref(), self.unused_range(&group));
            let used = Stretch { group: &group, bitmap: bits, range: 0..unused.start, is_never_used: false };
            if self.each_inode_of(&used, selection, visit)?.is_break() {
                break;
            }
            let unused = Stretch { range: unused, is_never_used: true, ..used };
            if !unused.range.is_empty() && self.each_in_bitmap(&unused, selection, visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn each_inode_of(
        &self,
        stretch: &Stretch<'_>,
        selection: Selection,
        visit: &mut dyn FnMut(Inode) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, GuestError> {
        for part in self.parts(stretch) {
            let mut selected = part.range.clone();
            if (selection != Selection::Used || selected.any(|within| is_used(part.bitmap, within)))
                && self.each_inode_in(&part, selection, visit)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Visits inodes that a group counts as never used, but that its bitmap has.
    fn each_in_bitmap(
        &self,
        stretch: &Stretch<'_>,
        selection: Selection,
        visit: &mut dyn FnMut(Inode) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, GuestError> {
        if selection != Selection::Used && !self.superblock.features.has(features::METADATA_CSUM) {
            self.skip_file(self.check_counts(stretch))?;
        }
        for part in self.parts(stretch) {
            if part.is_in_bitmap() && self.each_inode_in(&part, selection, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the parts of a stretch that are read at once.
    pub(super) fn parts<'s>(&self, stretch: &'s Stretch<'s>) -> impl Iterator<Item = Stretch<'s>> + use<'s> {
        let step = WINDOW_BYTES.checked_div(self.superblock.inode_bytes).unwrap_or(0).max(1);
        let Range { start, end } = stretch.range;
        (start..end).step_by(step).map(move |first| {
            let last = u32::try_from(step).map_or(end, |step| first.saturating_add(step).min(end));
            Stretch { range: first..last, ..*stretch }
        })
    }

    pub(super) fn each_inode_in(
        &self,
        stretch: &Stretch<'_>,
        selection: Selection,
        visit: &mut dyn FnMut(Inode) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let window = match self.read_window(stretch) {
            // A bad sector takes a few inodes, and not all of a long read.
            Err(GuestError::Damaged(damage)) if damage.is_unreadable() && stretch.range.len() > 1 => {
                return self.each_inode_in_halves(stretch, selection, visit);
            }
            outcome => outcome,
        };
        let Some(window) = self.skip_file(window)? else { return Ok(ControlFlow::Continue(())) };
        for (index, within) in stretch.range.clone().enumerate() {
            let is_used = is_used(stretch.bitmap, within);
            let start = index * self.superblock.inode_bytes;
            let mode_and_links =
                |at: usize| window.bytes.get(start + at..start + at + 2).is_some_and(|two| two != [0; 2]);
            // Without a bitmap, links decide.
            let (has_mode, is_linked) = (mode_and_links(0), mode_and_links(0x1a));
            let is_wanted = match (stretch.bitmap, selection) {
                (None, _) => is_linked,
                (Some(_), Selection::Used) => is_used,
                (Some(_), Selection::UsedOrLinked) => is_used || is_linked,
            };
            // The checker also reads the attributes of inodes that are no file.
            if !is_wanted || !has_mode && (selection == Selection::Used || !is_linked) {
                continue;
            }
            let place = InodePlace {
                number: window.first + (within - stretch.range.start),
                offset: window.offset + start as u64,
                bytes: Arc::clone(&window.bytes),
                start,
            };
            let inode = match self.decode_inode(place) {
                Err(GuestError::Damaged(_)) if stretch.is_never_used && !(stretch.bitmap.is_some() && is_used) => {
                    continue;
                }
                decoded => self.skip_file(decoded)?,
            };
            let Some(inode) = inode else { continue };
            *self.last_inode.lock() = Some(inode.clone());
            if visit(inode).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn each_inode_in_halves(
        &self,
        stretch: &Stretch<'_>,
        selection: Selection,
        visit: &mut dyn FnMut(Inode) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let middle = stretch.range.start.midpoint(stretch.range.end);
        for range in [stretch.range.start..middle, middle..stretch.range.end] {
            if self.each_inode_in(&Stretch { range, ..*stretch }, selection, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads inodes, and caches them, because a visitor requests the same ones again. The memory of the previous inodes
    /// is reused, unless one of those is still in use.
    pub(super) fn read_window(&self, stretch: &Stretch<'_>) -> Result<Window, GuestError> {
        let superblock = &self.superblock;
        let offset = self.inode_offset(stretch);
        let length = stretch.range.len() * superblock.inode_bytes;
        // It refers to that memory.
        *self.last_inode.lock() = None;
        let mut bytes = self.window.lock().take().map_or_else(|| Arc::from([]), |window| window.bytes);
        if Arc::get_mut(&mut bytes).is_none_or(|known| known.len() < length) {
            bytes = std::iter::repeat_n(0, WINDOW_BYTES.max(length)).collect();
        }
        let into = Arc::get_mut(&mut bytes).and_then(|bytes| bytes.get_mut(..length)).unwrap_or_default();
        self.source.read(offset, into, STRUCTURE)?;
        let first = stretch.group.number * superblock.inodes_per_group + stretch.range.start + 1;
        let window = Window { first, offset, length, bytes };
        *self.window.lock() = Some(window.clone());
        Ok(window)
    }

    /// Returns the first byte of inodes in the volume.
    pub(super) fn inode_offset(&self, stretch: &Stretch<'_>) -> u64 {
        stretch.group.inode_table * self.superblock.block_bytes
            + u64::from(stretch.range.start) * self.superblock.inode_bytes as u64
    }

    /// Returns the bitmap of a group's inodes.
    pub(in crate::ext) fn inode_bitmap(&self, group: &Group) -> Result<Vec<u8>, GuestError> {
        let offset = group.inode_bitmap * self.superblock.block_bytes;
        let length = self.superblock.inodes_per_group as usize / 8;
        let bitmap = self.source.bytes(offset, self.superblock.block_length, BITMAP)?;
        if self.superblock.features.has(features::METADATA_CSUM)
            && !self.is_bitmap_sum(bitmap.get(..length).unwrap_or_default(), group.inode_bitmap_sum)
        {
            return Err(self.source.damage(offset, BITMAP, "its checksum is wrong").into());
        }
        Ok(bitmap)
    }

    /// Returns whether this is the checksum of a bitmap. Short group descriptors contain only its lower half.
    pub(in crate::ext) fn is_bitmap_sum(&self, bitmap: &[u8], sum: u32) -> bool {
        let mask = if self.superblock.descriptor_bytes >= 64 { u32::MAX } else { 0xffff };
        crate::ext::checksum::crc32c(self.superblock.checksum_seed, bitmap) & mask == sum
    }
}

/// Returns whether a bit of a bitmap is set. Without a bitmap, everything counts as used.
pub(super) fn is_used(bitmap: Option<&[u8]>, within: u32) -> bool {
    bitmap.is_none_or(|bitmap| bitmap.get(within as usize / 8).is_some_and(|byte| byte >> (within % 8) & 1 == 1))
}
