//! Changing a file's length and its holes: truncate, punch, zero, reserve, seek.
//!
//! Bytes past the end of a file, in its last block, are always zero: a truncate writes the last block anew, in the
//! same operation that changes the length.

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, Timestamp};

use super::range_lock::Access;
use crate::attr::{AllocateMode, Ino, SeekTarget};
use crate::engine::Engine;
use crate::error::{PoolError, Result};
use crate::format::inode::Inode;
use crate::format::state::Field;
use crate::map::reserve::RESERVE_STEP_BLOCKS;
use crate::map::seek::Sought;
use crate::meta::{Op, OpResult, Privilege};
use crate::names::inodes::blocks_spanned;

/// What is done to an inode in the operation that changes its length.
pub(crate) type AlsoChange<'a> = dyn FnMut(&mut Op<'_>, &mut Inode) -> OpResult<()> + 'a;

impl Engine {
    /// Sets a file's length, and does `also` in the same operation.
    ///
    /// # Errors
    /// [`PoolError::FileTooLarge`], no space, device errors.
    pub(crate) fn truncate_file(&self, ino: Ino, bytes: u64, now: Timestamp, also: &mut AlsoChange<'_>) -> Result<()> {
        if bytes > crate::FILE_BYTES_MAX {
            return Err(PoolError::FileTooLarge);
        }
        let whole = bytes / BLOCK_BYTES_U64;
        let within = usize::try_from(bytes % BLOCK_BYTES_U64).expect("below 4096");
        let _guard = self.range_locks.lock(ino, whole..u64::MAX, Access::Exclusive);
        let mut change = |op: &mut Op<'_>, inode: &mut Inode| {
            if bytes < inode.attr.size_bytes {
                op.map_clear(inode, blocks_spanned(bytes), u64::MAX)?;
            }
            op.set_length(inode, bytes);
            inode.attr.modified = now;
            inode.attr.changed = now;
            also(op, inode)
        };
        let old = self.view(|op| op.regular(ino))?.attr.size_bytes;
        if bytes < old && within != 0 {
            let mut last = self.file_block(ino, whole)?;
            if !onefold_block::zero::is_zero(&last[within..]) {
                last[within..].fill(0);
                return self.store_blocks(ino, whole, &[&last], Privilege::Freeing, &mut change);
            }
        }
        self.run(Privilege::Freeing, |op| {
            let mut inode = op.regular(ino)?;
            change(op, &mut inode)?;
            op.put_inode(&inode)
        })
    }

    /// Reserves, punches or zeroes a range.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for an empty range, [`PoolError::FileTooLarge`], no space (a part may be reserved then).
    pub(crate) fn allocate_range(&self, ino: Ino, offset: u64, bytes: u64, mode: AllocateMode) -> Result<()> {
        if bytes == 0 {
            return Err(PoolError::Invalid("an empty range"));
        }
        let end =
            offset.checked_add(bytes).filter(|&end| end <= crate::FILE_BYTES_MAX).ok_or(PoolError::FileTooLarge)?;
        let inode = self.view(|op| op.regular(ino))?;
        if mode != AllocateMode::PunchHole {
            // What can't succeed is refused before a part of it is reserved. What the file has may all lie elsewhere, so
            // this lets too much pass, never too little.
            let wanted = blocks_spanned(end) - offset / BLOCK_BYTES_U64;
            let missing = wanted.saturating_sub(inode.mapped + inode.reserved_blocks);
            while missing > self.unpromised_blocks() {
                if !self.make_space()? {
                    return Err(PoolError::NoSpace);
                }
            }
        }
        let grows = matches!(mode, AllocateMode::Extend | AllocateMode::ZeroRange);
        let _guard = self.range_locks.lock(ino, offset / BLOCK_BYTES_U64..u64::MAX, Access::Exclusive);
        if matches!(mode, AllocateMode::PunchHole | AllocateMode::ZeroRange | AllocateMode::ZeroRangeKeepSize) {
            self.zero_range(ino, offset, end)?;
        }
        if mode != AllocateMode::PunchHole {
            self.reserve_range(ino, offset / BLOCK_BYTES_U64, end.div_ceil(BLOCK_BYTES_U64))?;
        }
        let now = self.environment.clock.now();
        self.run(Privilege::Freeing, |op| {
            let mut inode = op.regular(ino)?;
            if grows && end > inode.attr.size_bytes {
                op.set_length(&mut inode, end);
            }
            inode.attr.modified = now;
            inode.attr.changed = now;
            op.put_inode(&inode)
        })
    }

    /// Returns how many free blocks nobody was promised.
    fn unpromised_blocks(&self) -> u64 {
        let meta = self.meta();
        meta.blocks_free().saturating_sub(meta.state(Field::ReservedBlocks))
    }

    /// Makes a range read as zeros: whole blocks become holes, the edges are written.
    fn zero_range(&self, ino: Ino, offset: u64, end: u64) -> Result<()> {
        let (first, last) = (offset / BLOCK_BYTES_U64, end / BLOCK_BYTES_U64);
        let within = |place: u64| usize::try_from(place % BLOCK_BYTES_U64).expect("below 4096");
        if first == last {
            return self.zero_within(ino, first, within(offset)..within(end));
        }
        if within(offset) != 0 {
            self.zero_within(ino, first, within(offset)..BLOCK_BYTES)?;
        }
        self.zero_within(ino, last, 0..within(end))?;
        let whole = offset.div_ceil(BLOCK_BYTES_U64)..last;
        if whole.is_empty() {
            return Ok(());
        }
        self.run(Privilege::Freeing, |op| {
            let mut inode = op.regular(ino)?;
            op.map_clear(&mut inode, whole.start, whole.end)?;
            op.put_inode(&inode)
        })
    }

    fn zero_within(&self, ino: Ino, index: u64, range: std::ops::Range<usize>) -> Result<()> {
        let mut block: AlignedBuffer = self.file_block(ino, index)?;
        if range.is_empty() || onefold_block::zero::is_zero(&block[range.clone()]) {
            return Ok(());
        }
        block[range].fill(0);
        self.store_blocks(ino, index, &[&block], Privilege::Freeing, &mut |_, _| Ok(()))
    }

    fn reserve_range(&self, ino: Ino, first: u64, end: u64) -> Result<()> {
        let mut at = first;
        let mut step = RESERVE_STEP_BLOCKS;
        while at < end {
            let next = ((at / step + 1) * step).min(end);
            let reserved = self.run(Privilege::Normal, |op| {
                let mut inode = op.regular(ino)?;
                op.map_reserve(&mut inode, at..next)?;
                op.put_inode(&inode)
            });
            match reserved {
                Ok(()) => at = next,
                // Steps stay divisors of the largest, so that each lies below one node.
                Err(PoolError::TooLargeForJournal) if step == RESERVE_STEP_BLOCKS => {
                    step = crate::format::map_node::FAN_OUT;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Finds the next data or hole at or after `offset`.
    ///
    /// # Errors
    /// [`PoolError::NoSuchOffset`] past the end, or where no data follows.
    pub(crate) fn seek_file(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        let mut from = offset / BLOCK_BYTES_U64;
        loop {
            let (sought, size) = self.view(|op| {
                let inode = op.regular(ino)?;
                let size = inode.attr.size_bytes;
                if offset >= size {
                    return Err(PoolError::NoSuchOffset.into());
                }
                let data = target == SeekTarget::Data;
                Ok((op.map_seek(&inode, from, blocks_spanned(size), data)?, size))
            })?;
            match sought {
                Sought::GoOn(at) => from = at,
                Sought::Found(index) => {
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
