//! The content of files and symbolic links.

use std::ops::ControlFlow;

use super::inode::{Inode, MAP_AT};
use super::map::MapRun;
use super::tables::Tables;
use crate::error::GuestError;
use crate::filesystem::{Extent, ExtentKind};

/// Maximum length of the target of a symbolic link.
const LINK_BYTES_MAX: u64 = 4096;

impl Tables<'_> {
    /// Calls `visit` with each extent of a file's content, until it breaks.
    ///
    /// # Errors
    /// When the map is damaged; extents before the damage have been visited.
    pub(super) fn each_extent(
        &self,
        inode: &Inode,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        if inode.is_inline() {
            return self.each_inline_extent(inode, visit);
        }
        if inode.is_fast_link(&self.superblock) {
            let place = inode.offset + MAP_AT as u64;
            let extent = Extent { offset: 0, length_bytes: inode.size_bytes, place, kind: ExtentKind::Inline };
            // A damaged link may have no target.
            let _ = if extent.length_bytes > 0 { visit(extent) } else { ControlFlow::Continue(()) };
            return Ok(());
        }
        let block_bytes = self.superblock.block_bytes;
        self.each_run(inode, 0, &mut |run| {
            let kind = match inode.encoding() {
                _ if !run.is_written => ExtentKind::Unwritten,
                Some(encoding) => ExtentKind::Encoded(encoding),
                None => ExtentKind::Written,
            };
            visit(Extent {
                offset: run.first * block_bytes,
                length_bytes: run.count * block_bytes,
                place: run.block * block_bytes,
                kind,
            })
        })
    }

    fn each_inline_extent(
        &self,
        inode: &Inode,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        let mut offset = 0;
        for (place, bytes) in self.inline_parts(inode)? {
            let length_bytes = (bytes.len() as u64).min(inode.size_bytes - offset);
            let extent = Extent { offset, length_bytes, place, kind: ExtentKind::Inline };
            if length_bytes > 0 && visit(extent).is_break() {
                break;
            }
            offset += length_bytes;
        }
        Ok(())
    }

    /// Fills `into` from byte `offset` of a file. Returns how many bytes there were before its end.
    ///
    /// # Errors
    /// When the content is encoded, or its map damaged.
    pub(super) fn read_content(&self, inode: &Inode, offset: u64, into: &mut [u8]) -> Result<usize, GuestError> {
        if let Some(encoding) = inode.encoding() {
            return Err(GuestError::Encoded(encoding));
        }
        let rest = inode.size_bytes.saturating_sub(offset);
        let length = usize::try_from(rest).unwrap_or(usize::MAX).min(into.len());
        let into = &mut into[..length];
        if inode.is_inline() {
            into.fill(0);
            self.read_inline(inode, offset, into)?;
        } else if inode.is_fast_link(&self.superblock) {
            into.fill(0);
            copy_part(inode.map_bytes().0, 0, offset, into);
        } else {
            self.read_runs(inode, offset, into)?;
        }
        Ok(length)
    }

    fn read_inline(&self, inode: &Inode, offset: u64, into: &mut [u8]) -> Result<(), GuestError> {
        let mut first = 0;
        for (_, bytes) in self.inline_parts(inode)? {
            copy_part(&bytes, first, offset, into);
            first += bytes.len() as u64;
        }
        Ok(())
    }

    fn read_runs(&self, inode: &Inode, offset: u64, into: &mut [u8]) -> Result<(), GuestError> {
        let block_bytes = self.superblock.block_bytes;
        let end = offset.saturating_add(into.len() as u64);
        let mut outcome = Ok(());
        // Parts without a run are holes. Usually the first run covers everything.
        let mut is_filled = false;
        let walked = self.each_run(inode, offset / block_bytes, &mut |run| {
            if run.first * block_bytes >= end {
                return ControlFlow::Break(());
            }
            let has_all = run.is_written && run.first * block_bytes <= offset && end <= run.end() * block_bytes;
            if !has_all && !is_filled {
                into.fill(0);
            }
            is_filled = true;
            outcome = self.read_run(&run, offset, into);
            if outcome.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if !is_filled {
            into.fill(0);
        }
        walked?;
        outcome
    }

    /// Fills the part of `into` that a run holds. `into` begins at byte `offset` of the file.
    fn read_run(&self, run: &MapRun, offset: u64, into: &mut [u8]) -> Result<(), GuestError> {
        let block_bytes = self.superblock.block_bytes;
        let start = (run.first * block_bytes).max(offset);
        let end = (run.end() * block_bytes).min(offset + into.len() as u64);
        let range = start.checked_sub(offset).zip(end.checked_sub(offset));
        let range = range.and_then(|(start, end)| Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?));
        match range.and_then(|range| into.get_mut(range)) {
            Some(part) if run.is_written => {
                let place = run.block * block_bytes + (start - run.first * block_bytes);
                self.source.read(place, part, "content of a file")
            }
            _ => Ok(()),
        }
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// When its content is encoded or damaged.
    pub(super) fn link_target(&self, inode: &Inode) -> Result<Vec<u8>, GuestError> {
        if inode.size_bytes == 0 || inode.size_bytes > LINK_BYTES_MAX {
            return Err(self.source.damage(inode.offset, "symbolic link", "its length is impossible").into());
        }
        let mut target = vec![0; usize::try_from(inode.size_bytes).unwrap_or_default()];
        self.read_content(inode, 0, &mut target)?;
        Ok(target)
    }
}

/// Copies the overlap of `bytes` and `into`. `bytes` begin at byte `first` of a file, and `into` at byte `offset`.
fn copy_part(bytes: &[u8], first: u64, offset: u64, into: &mut [u8]) {
    let skipped = usize::try_from(offset.saturating_sub(first)).unwrap_or(usize::MAX);
    let before = usize::try_from(first.saturating_sub(offset)).unwrap_or(usize::MAX);
    if let (Some(from), Some(into)) = (bytes.get(skipped..), into.get_mut(before..)) {
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
    }
}
