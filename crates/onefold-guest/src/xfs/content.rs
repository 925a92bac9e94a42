//! The content of files, and its places.

use std::ops::ControlFlow;

use super::Xfs;
use super::btree::Step;
use super::group::{self, must_be_whole};
use super::inode::{ForkForm, Inode};
use super::map::Mapping;
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::{Extent, ExtentKind, FileKind};

/// The bit of a reference count's first block that marks blocks set aside for copy-on-write.
const STAGING: u32 = 1 << 31;

/// Called with each extent, until it breaks.
type ExtentVisit<'v> = dyn FnMut(Extent) -> ControlFlow<()> + 'v;

impl Xfs<'_> {
    /// Visits the extents of a file's content in order, until `visit` breaks.
    pub(super) fn extents(&self, inode: &Inode<'_>, visit: &mut ExtentVisit<'_>) -> Result<(), GuestError> {
        if inode.data.form == ForkForm::Inline {
            let extent =
                Extent { offset: 0, length_bytes: inode.size_bytes, place: inode.data.place, kind: ExtentKind::Inline };
            if inode.size_bytes > 0 {
                let _ = visit(extent);
            }
            return Ok(());
        }
        let may_share = inode.may_share() && self.superblock.features.has_reference_counts();
        self.each_mapping(&inode.data, 0, &mut |mapping| {
            if mapping.is_unwritten || !may_share {
                let kind = if mapping.is_unwritten { ExtentKind::Unwritten } else { ExtentKind::Written };
                return Ok(visit(self.extent(mapping, 0, mapping.count, kind)));
            }
            self.extents_by_sharing(mapping, visit)
        })
    }

    /// Returns blocks `from` to `to` of a part of a map as an extent.
    fn extent(&self, mapping: Mapping, from: u32, to: u32, kind: ExtentKind) -> Extent {
        let superblock = &self.superblock;
        let place = superblock.place_of_run(mapping.block, mapping.count).unwrap_or_default();
        Extent {
            offset: (mapping.offset + u64::from(from)) << superblock.block_log,
            length_bytes: u64::from(to - from) << superblock.block_log,
            place: place + (u64::from(from) << superblock.block_log),
            kind,
        }
    }

    /// Visits a written part of a map in pieces: those that other files also have, and the others.
    fn extents_by_sharing(&self, mapping: Mapping, visit: &mut ExtentVisit<'_>) -> Result<ControlFlow<()>, GuestError> {
        let group = u32::try_from(mapping.block >> self.superblock.group_log).unwrap_or(u32::MAX);
        let first = u32::try_from(mapping.block & ((1 << self.superblock.group_log) - 1)).unwrap_or(u32::MAX);
        let Some(root) = self.free_space(group)?.reference_counts else {
            return Ok(visit(self.extent(mapping, 0, mapping.count, ExtentKind::Written)));
        };
        let (mut done, mut flow) = (0, ControlFlow::Continue(()));
        self.walk_group(&group::REFERENCE_COUNTS, group, root, u64::from(first), &mut |step| {
            let Step::Record(record) = must_be_whole(step)? else { return Ok(ControlFlow::Continue(())) };
            let Some((start, end)) = shared_run(record) else { return Ok(ControlFlow::Continue(())) };
            let (start, end) = (start.max(first) - first, end.saturating_sub(first).min(mapping.count));
            if start >= mapping.count {
                return Ok(ControlFlow::Break(()));
            }
            if end <= start.max(done) {
                return Ok(ControlFlow::Continue(()));
            }
            for (from, to, kind) in [(done, start, ExtentKind::Written), (start.max(done), end, ExtentKind::Shared)] {
                if from < to && flow.is_continue() {
                    flow = visit(self.extent(mapping, from, to, kind));
                }
            }
            done = end;
            Ok(flow)
        })?;
        if done < mapping.count && flow.is_continue() {
            flow = visit(self.extent(mapping, done, mapping.count, ExtentKind::Written));
        }
        Ok(flow)
    }

    /// Fills `into` with content from byte `offset`. Returns how many bytes there were before the end.
    pub(super) fn read_content(&self, inode: &Inode<'_>, offset: u64, into: &mut [u8]) -> Result<usize, GuestError> {
        if !matches!(inode.kind, FileKind::Regular | FileKind::Directory | FileKind::SymbolicLink) {
            return Ok(0);
        }
        let rest = inode.size_bytes.saturating_sub(offset);
        let length = usize::try_from(rest).unwrap_or(usize::MAX).min(into.len());
        let into = into.get_mut(..length).unwrap_or_default();
        into.fill(0);
        if length == 0 {
            return Ok(0);
        }
        if inode.data.form == ForkForm::Inline {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            if let Some(part) = inode.data.bytes.part(at, length) {
                into.copy_from_slice(part.0);
            }
            return Ok(length);
        }
        let block_log = self.superblock.block_log;
        self.each_mapping(&inode.data, offset >> block_log, &mut |mapping| {
            let (start, end) = (mapping.offset << block_log, mapping.end() << block_log);
            if start >= offset + length as u64 {
                return Ok(ControlFlow::Break(()));
            }
            if !mapping.is_unwritten {
                self.read_part(mapping, start, end, offset, into)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(length)
    }

    /// Reads the bytes from `offset` on that a part of a map contains.
    fn read_part(
        &self,
        mapping: Mapping,
        start: u64,
        end: u64,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), GuestError> {
        let from = start.max(offset);
        let to = end.min(offset + into.len() as u64);
        let (Some(place), true) = (self.superblock.place_of_run(mapping.block, mapping.count), from < to) else {
            return Ok(());
        };
        let within = usize::try_from(from - offset).unwrap_or(usize::MAX);
        let length = usize::try_from(to - from).unwrap_or(usize::MAX);
        if let Some(part) = into.get_mut(within..within.saturating_add(length)) {
            self.reader.read(place + (from - start), part, "content of a file")?;
        }
        Ok(())
    }
}

/// Returns the first block of a run of shared blocks in its group, and the block after the last one; `None` for blocks
/// set aside.
fn shared_run(record: Bytes<'_>) -> Option<(u32, u32)> {
    let (start, count, references) = (record.be32(0)?, record.be32(4)?, record.be32(8)?);
    (start & STAGING == 0 && references > 1).then_some((start, start.saturating_add(count)))
}
