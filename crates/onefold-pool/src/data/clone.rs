//! Cloning files and ranges of files.

use std::ops::Range;

use onefold_block::block::BLOCK_BYTES_U64;

use super::Data;
use crate::attr::{Durability, FileKind, Ino, NewFile, RangePair};
use crate::engine::Engine;
use crate::error::{PoolError, Result};
use crate::format::inode::MapRoot;
use crate::format::map_node::FAN_OUT;
use crate::map::clone::ClonePosition;
use crate::map::seek::SeekStep;
use crate::meta::{OpError, Privilege};
use crate::names::inodes::blocks_spanned;
use crate::readers::range_lock::{LockMode, RangeGuard};

/// Maximum number of blocks that one call clones: 1 GiB, cut so that the next call begins at a leaf.
const CLONE_BLOCKS_MAX: u64 = (1 << 18) / FAN_OUT * FAN_OUT;
/// Maximum number of bytes that one call examines: the kernel's call returns 32 bits.
const CLONE_BYTES_MAX: u64 = 1 << 30;
/// Bytes copied at once if a range is not aligned to blocks.
const COPY_BYTES: usize = 1 << 20;

impl Data {
    /// Makes an empty file a clone of another one.
    ///
    /// # Errors
    /// [`PoolError::CrossDomain`]; [`PoolError::Invalid`] if the target is not empty or the same file.
    pub(crate) fn clone_whole(&self, source: Ino, target: Ino) -> Result<()> {
        if source == target {
            return Err(PoolError::Invalid("source and target are the same file"));
        }
        let (lower, higher) = (source.min(target), source.max(target));
        let access = |ino| if ino == source { LockMode::Shared } else { LockMode::Exclusive };
        let _one = self.readers.range_locks.lock(lower, 0..u64::MAX, access(lower));
        let _two = self.readers.range_locks.lock(higher, 0..u64::MAX, access(higher));
        let from = self.engine.view(|op| op.regular(source))?;
        if from.reserved_blocks > 0 && matches!(from.map, MapRoot::Tree { .. }) {
            let (draft, _held) = self.draft_clone(source)?;
            return self.take_clone(source, target, Some(draft));
        }
        self.take_clone(source, target, None)
    }

    /// Gives the target the map of the source, or that of a `draft` of it, which is then removed.
    fn take_clone(&self, source: Ino, target: Ino, draft: Option<Ino>) -> Result<()> {
        let now = self.engine.environment.clock.now();
        self.engine.run(Privilege::Normal, |op| {
            let from = op.regular(source)?;
            let mut to = op.regular(target)?;
            if from.attr.domain != to.attr.domain {
                return Err(PoolError::CrossDomain.into());
            }
            if to.attr.size_bytes != 0 || to.mapped != 0 || to.reserved_blocks != 0 {
                return Err(PoolError::Invalid("the target of a clone is an empty file").into());
            }
            // A map without mapped blocks may still have nodes.
            op.map_detach_all(&mut to)?;
            match draft {
                None => op.map_clone_all(&from, &mut to)?,
                Some(draft) => {
                    let mut drafted = op.regular(draft)?;
                    to.map = std::mem::replace(&mut drafted.map, MapRoot::EMPTY);
                    to.mapped = std::mem::take(&mut drafted.mapped);
                    op.put_inode(&drafted)?;
                    op.reap_orphan(draft)?;
                }
            }
            op.set_length(&mut to, from.attr.size_bytes);
            to.attr.modified = now;
            to.attr.changed = now;
            op.put_inode(&to)
        })
    }

    /// Makes a nameless file whose map is the source's, without its reserved places. That takes a step for each leaf,
    /// so the draft is invisible meanwhile, and after a crash it is removed like any orphan.
    fn draft_clone(&self, source: Ino) -> Result<(Ino, InodeHold<'_>)> {
        let now = self.engine.environment.clock.now();
        let new = NewFile { kind: FileKind::Regular, mode: 0o600, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let (draft, end) = self.engine.run(Privilege::Normal, |op| {
            let from = op.regular(source)?;
            let root = op.directory(Ino::ROOT)?;
            let mut inode = op.new_inode(&root, &new, now)?;
            inode.attr.domain = from.attr.domain;
            inode.attr.link_count = 1;
            op.hold_on_success(inode.attr.ino);
            op.drop_link(&mut inode, now)?;
            Ok((inode.attr.ino, blocks_spanned(from.attr.size_bytes)))
        })?;
        let held = InodeHold { engine: &self.engine, ino: draft };
        let mut at = 0;
        while at < end {
            let sought = self.engine.view(|op| {
                let from = op.regular(source)?;
                op.map_seek(&from, at, end, true)
            })?;
            match sought {
                SeekStep::GoOn(next) => at = next,
                SeekStep::Found(data) if data >= end => break,
                SeekStep::Found(data) => {
                    let first = data / FAN_OUT * FAN_OUT;
                    let range = ClonePosition { source: first, target: first, count: FAN_OUT.min(end - first) };
                    at = first + self.clone_step(source, draft, range, u64::MAX)?;
                }
            }
        }
        Ok((draft, held))
    }

    /// Clones a range: shares whole blocks and copies the rest. Returns the number of bytes done, which may be fewer.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] if the ranges overlap in one file; no space; device errors.
    pub(crate) fn clone_part(&self, ranges: RangePair) -> Result<u64> {
        self.engine.ensure_writable()?;
        let ranges = RangePair { bytes: ranges.bytes.min(CLONE_BYTES_MAX), ..ranges };
        let RangePair { source, source_offset, target, target_offset, bytes } = ranges;
        let (source_end, target_end) = ranges.ends().ok_or(PoolError::FileTooLarge)?;
        let blocks_of = |first: u64, end: u64| first / BLOCK_BYTES_U64..end.div_ceil(BLOCK_BYTES_U64);
        // Locked before any decision: an appended byte would change whether the last block may be shared.
        let guards = self
            .lock_two((source, blocks_of(source_offset, source_end)), (target, blocks_of(target_offset, target_end)));
        let (size, target_size, same_domain) = self.engine.view(|op| {
            let (from, to) = (op.regular(source)?, op.regular(target)?);
            Ok((from.attr.size_bytes, to.attr.size_bytes, from.attr.domain == to.attr.domain))
        })?;
        let bytes = bytes.min(size.saturating_sub(source_offset));
        if target_offset + bytes > crate::FILE_BYTES_MAX {
            return Err(PoolError::FileTooLarge);
        }
        let overlap = source_offset < target_offset + bytes && target_offset < source_offset + bytes;
        if source == target && overlap && bytes > 0 {
            return Err(PoolError::Invalid("the ranges overlap"));
        }
        if bytes == 0 {
            return Ok(0);
        }
        let aligned = source_offset.is_multiple_of(BLOCK_BYTES_U64) && target_offset.is_multiple_of(BLOCK_BYTES_U64);
        // A last block that is cut by the source's end can be shared if it also ends the target.
        let ends_both = source_offset + bytes == size && target_offset + bytes >= target_size;
        let blocks = if ends_both { bytes.div_ceil(BLOCK_BYTES_U64) } else { bytes / BLOCK_BYTES_U64 };
        if !aligned || blocks == 0 || !same_domain {
            drop(guards);
            return self.copy_part(RangePair { bytes, ..ranges });
        }
        let mut range = ClonePosition {
            source: source_offset / BLOCK_BYTES_U64,
            target: target_offset / BLOCK_BYTES_U64,
            count: blocks.min(CLONE_BLOCKS_MAX - source_offset / BLOCK_BYTES_U64 % FAN_OUT),
        };
        let mut done = 0;
        while range.count > 0 {
            let step = self.clone_step(source, target, range, bytes - done)?;
            range =
                ClonePosition { source: range.source + step, target: range.target + step, count: range.count - step };
            done = (done + step * BLOCK_BYTES_U64).min(bytes);
        }
        Ok(done)
    }

    /// Clones one piece. In the same operation, makes the target long enough to show it.
    fn clone_step(&self, source: Ino, target: Ino, range: ClonePosition, bytes_left: u64) -> Result<u64> {
        let now = self.engine.environment.clock.now();
        self.engine.run(Privilege::Normal, |op| {
            let from = op.regular(source)?;
            let mut to = op.regular(target)?;
            let step = op.map_clone_step(&from, &mut to, range)?;
            if step == 0 || step > range.count {
                return Err(OpError::Fail(PoolError::Invalid("a clone made no progress")));
            }
            let end = range.target * BLOCK_BYTES_U64 + (step * BLOCK_BYTES_U64).min(bytes_left);
            if end > to.attr.size_bytes {
                op.set_length(&mut to, end);
            }
            to.attr.modified = now;
            to.attr.changed = now;
            op.put_inode(&to)?;
            Ok(step)
        })
    }

    /// Locks a range for reading and another for writing, in an order that all callers follow.
    pub(super) fn lock_two(
        &self,
        (source, source_range): (Ino, Range<u64>),
        (target, target_range): (Ino, Range<u64>),
    ) -> Vec<RangeGuard<'_>> {
        if source == target {
            let all = source_range.start.min(target_range.start)..source_range.end.max(target_range.end);
            return vec![self.readers.range_locks.lock(source, all, LockMode::Exclusive)];
        }
        let mut wanted = [(source, source_range, LockMode::Shared), (target, target_range, LockMode::Exclusive)];
        wanted.sort_by_key(|(ino, _, _)| *ino);
        wanted.into_iter().map(|(ino, range, access)| self.readers.range_locks.lock(ino, range, access)).collect()
    }

    /// Copies data that cannot be cloned. The ordinary write path finds content that is already stored.
    fn copy_part(&self, ranges: RangePair) -> Result<u64> {
        let RangePair { source, source_offset, target, target_offset, bytes } = ranges;
        let until_aligned = BLOCK_BYTES_U64 - source_offset % BLOCK_BYTES_U64;
        let congruent = source_offset % BLOCK_BYTES_U64 == target_offset % BLOCK_BYTES_U64;
        // After the unaligned beginning, the rest may be clonable; the caller calls again.
        let bytes = if congruent && until_aligned < BLOCK_BYTES_U64 { bytes.min(until_aligned) } else { bytes };
        let length = usize::try_from(bytes).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let mut buffer = vec![0; length];
        let got = self.read_file(source, source_offset, &mut buffer)?;
        self.write_file(target, target_offset, &buffer[..got], Durability::Later)?;
        Ok(got as u64)
    }
}

/// A hold on an inode, released when dropped.
struct InodeHold<'e> {
    engine: &'e Engine,
    ino: Ino,
}

impl Drop for InodeHold<'_> {
    fn drop(&mut self) {
        self.engine.release(self.ino, 1);
    }
}
