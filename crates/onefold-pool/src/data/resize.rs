//! Changes a file's length and its holes: truncate, punch, zero, reserve, seek.
//!
//! Bytes past the end of a file, in its last block, are always zero. A truncate therefore rewrites the last block in
//! the same operation that changes the length.

use std::ops::Range;

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, Timestamp};

use super::Data;
use super::write::StoreRequest;
use crate::attr::{AllocateMode, Ino, SeekTarget};
use crate::error::{PoolError, Result};
use crate::format::inode::Inode;
use crate::format::map_node::FAN_OUT;
use crate::format::state::Field;
use crate::map::reserve::RESERVE_STEP_BLOCKS;
use crate::map::seek::SeekStep;
use crate::meta::{Op, OpResult, Privilege};
use crate::names::inodes::blocks_spanned;
use crate::readers::range_lock::LockMode;

/// A further change of an inode in the operation that changes its length.
pub(crate) type InodeChange<'a> = dyn FnMut(&mut Op<'_>, &mut Inode) -> OpResult<()> + 'a;

impl Data {
    /// Sets a file's length, and calls `also` in the same operation.
    ///
    /// # Errors
    /// [`PoolError::FileTooLarge`], no space, device errors.
    pub(crate) fn truncate_file(&self, ino: Ino, bytes: u64, now: Timestamp, also: &mut InodeChange<'_>) -> Result<()> {
        if bytes > crate::FILE_BYTES_MAX {
            return Err(PoolError::FileTooLarge);
        }
        let whole = bytes / BLOCK_BYTES_U64;
        let within = usize::try_from(bytes % BLOCK_BYTES_U64).expect("below 4096");
        let _guard = self.readers.range_locks.lock(ino, whole..u64::MAX, LockMode::Exclusive);
        let mut change = |op: &mut Op<'_>, inode: &mut Inode| {
            if bytes < inode.attr.size_bytes {
                op.map_clear(inode, blocks_spanned(bytes), u64::MAX)?;
            }
            op.set_length(inode, bytes);
            inode.attr.modified = now;
            inode.attr.changed = now;
            also(op, inode)
        };
        let old = self.engine.view(|op| op.regular(ino))?.attr.size_bytes;
        if bytes < old && within != 0 {
            let mut last = self.file_block(ino, whole)?;
            if !onefold_block::zero::is_zero(&last[within..]) {
                last[within..].fill(0);
                let data = [(whole, &last[..])];
                return self.store_blocks(&StoreRequest::now(ino, &data, Privilege::Shrinking), &mut 0, &mut change);
            }
        }
        self.change_file(ino, Privilege::Shrinking, &mut change)
    }

    /// Reserves, punches or zeroes a range. Each piece of about a gibibyte is done as a whole or not at all.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for an empty range; [`PoolError::FileTooLarge`]; no space, after which earlier pieces may
    /// be done.
    pub(crate) fn allocate_range(&self, ino: Ino, offset: u64, bytes: u64, mode: AllocateMode) -> Result<()> {
        if bytes == 0 {
            return Err(PoolError::Invalid("an empty range"));
        }
        let end =
            offset.checked_add(bytes).filter(|&end| end <= crate::FILE_BYTES_MAX).ok_or(PoolError::FileTooLarge)?;
        if mode != AllocateMode::PunchHole {
            self.make_space_for_range(ino, offset / BLOCK_BYTES_U64, blocks_spanned(end))?;
        }
        let _guard = self.readers.range_locks.lock(ino, offset / BLOCK_BYTES_U64..u64::MAX, LockMode::Exclusive);
        let now = self.engine.environment.clock.now();
        let touch = |inode: &mut Inode| {
            inode.attr.modified = now;
            inode.attr.changed = now;
        };
        if mode == AllocateMode::PunchHole {
            return self.zero_range(ino, offset..end, Privilege::Shrinking, &mut |_, inode| {
                touch(inode);
                Ok(())
            });
        }
        let zeroes = matches!(mode, AllocateMode::ZeroRange | AllocateMode::ZeroRangeKeepSize);
        let grows = matches!(mode, AllocateMode::Extend | AllocateMode::ZeroRange);
        let (mut at, mut step) = (offset, RESERVE_STEP_BLOCKS * BLOCK_BYTES_U64);
        while at < end {
            let next = ((at / step + 1) * step).min(end);
            let mut reserve = |op: &mut Op<'_>, inode: &mut Inode| {
                op.map_reserve(inode, at / BLOCK_BYTES_U64..blocks_spanned(next))?;
                // The length grows with the last piece: it says that the whole range is done.
                if grows && next == end && end > inode.attr.size_bytes {
                    op.set_length(inode, end);
                }
                touch(inode);
                Ok(())
            };
            let done = if zeroes {
                self.zero_range(ino, at..next, Privilege::Normal, &mut reserve)
            } else {
                self.change_file(ino, Privilege::Normal, &mut reserve)
            };
            match done {
                Ok(()) => at = next,
                // The step stays a divisor of the largest step, so that each step lies below one node.
                Err(PoolError::TooLargeForJournal) if step == RESERVE_STEP_BLOCKS * BLOCK_BYTES_U64 => {
                    step = FAN_OUT * BLOCK_BYTES_U64;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Refuses a reservation that cannot succeed, before a part of it is made. All blocks of the file may lie outside
    /// the range, so this check may let an impossible reservation pass, but never refuses a possible one.
    fn make_space_for_range(&self, ino: Ino, first: u64, end: u64) -> Result<()> {
        let inode = self.engine.view(|op| op.regular(ino))?;
        let missing = (end - first).saturating_sub(inode.mapped + inode.reserved_blocks);
        while missing > self.unpromised_blocks() {
            if !self.engine.make_space()? {
                return Err(PoolError::NoSpace);
            }
        }
        Ok(())
    }

    /// Returns the number of free blocks that are not promised to reserved places.
    fn unpromised_blocks(&self) -> u64 {
        let meta = self.engine.meta();
        meta.blocks_free().saturating_sub(meta.state(Field::ReservedBlocks))
    }

    /// Changes a file's inode and map in one operation.
    fn change_file(&self, ino: Ino, privilege: Privilege, change: &mut InodeChange<'_>) -> Result<()> {
        self.engine.run(privilege, |op| {
            let mut inode = op.regular(ino)?;
            change(op, &mut inode)?;
            op.put_inode(&inode)
        })
    }

    /// Makes a range of bytes read as zeros and calls `also`, in one operation: whole blocks become holes, and the
    /// edges are written.
    fn zero_range(&self, ino: Ino, range: Range<u64>, privilege: Privilege, also: &mut InodeChange<'_>) -> Result<()> {
        let edges = self.zeroed_edges(ino, &range)?;
        let edges: Vec<(u64, &[u8])> = edges.iter().map(|(index, block)| (*index, &block[..])).collect();
        let whole = range.start.div_ceil(BLOCK_BYTES_U64)..range.end / BLOCK_BYTES_U64;
        let mut change = |op: &mut Op<'_>, inode: &mut Inode| {
            if !whole.is_empty() {
                op.map_clear(inode, whole.start, whole.end)?;
            }
            also(op, inode)
        };
        if edges.is_empty() {
            self.change_file(ino, privilege, &mut change)
        } else {
            self.store_blocks(&StoreRequest::now(ino, &edges, privilege), &mut 0, &mut change)
        }
    }

    /// Returns the blocks that a range covers in part, with the range zeroed. Leaves out blocks that this does not
    /// change.
    fn zeroed_edges(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<(u64, AlignedBuffer)>> {
        let (first, last) = (range.start / BLOCK_BYTES_U64, range.end / BLOCK_BYTES_U64);
        let within = |place: u64| usize::try_from(place % BLOCK_BYTES_U64).expect("below 4096");
        let partly = if first == last {
            [(first, within(range.start)..within(range.end)), (last, 0..0)]
        } else {
            // If the range begins at a block boundary, that block is cleared as a whole.
            let from = Some(within(range.start)).filter(|&from| from > 0).unwrap_or(BLOCK_BYTES);
            [(first, from..BLOCK_BYTES), (last, 0..within(range.end))]
        };
        let mut edges = Vec::new();
        for (index, bytes) in partly.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let mut block = self.file_block(ino, index)?;
            if !onefold_block::zero::is_zero(&block[bytes.clone()]) {
                block[bytes].fill(0);
                edges.push((index, block));
            }
        }
        Ok(edges)
    }

    /// Finds the next data or hole at or after `offset`.
    ///
    /// # Errors
    /// [`PoolError::NoSuchOffset`] past the end, or if no data follows.
    pub(crate) fn seek_file(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        let mut from = offset / BLOCK_BYTES_U64;
        loop {
            let (sought, size) = self.engine.view(|op| {
                let inode = op.regular(ino)?;
                let size = inode.attr.size_bytes;
                if offset >= size {
                    return Err(PoolError::NoSuchOffset.into());
                }
                let data = target == SeekTarget::Data;
                Ok((op.map_seek(&inode, from, blocks_spanned(size), data)?, size))
            })?;
            match sought {
                SeekStep::GoOn(at) => from = at,
                SeekStep::Found(index) => {
                    let found = (index * BLOCK_BYTES_U64).max(offset);
                    return match target {
                        SeekTarget::Data if found >= size => Err(PoolError::NoSuchOffset),
                        SeekTarget::Data | SeekTarget::Hole => Ok(found.min(size)),
                    };
                }
            }
        }
    }
}
