//! Changes metadata without the engine: whole blocks, always through the journal.
//!
//! If a crash interrupts a change, the recovery of the next opening finishes it. Each change is independent: a repair
//! that is interrupted between two of them is finished by running it again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, BlockNo};

use crate::check::reader::{CheckError, MetadataReader};
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::header::{self, BlockKind};
use crate::format::journal::TransactionBuilder;
use crate::format::superblock::Superblock;
use crate::journal::log::{self, JournalLog};
use crate::journal::replay;
use crate::tree::Pages;

/// Maximum number of blocks in one transaction: half of the smallest log.
const BATCH_BLOCKS: usize = 100;

/// Metadata with changes that are not on the device yet.
pub(super) struct Patch<'a> {
    device: &'a dyn BlockDevice,
    reader: MetadataReader<'a>,
    dirty: BTreeMap<BlockNo, Box<BlockBytes>>,
    log: JournalLog,
    next_sequence: u64,
    pool_tag: u32,
    /// Free blocks for new pages of the names tree.
    pub(super) free: Vec<BlockNo>,
}

impl<'a> Patch<'a> {
    /// Recovers the pool on the device, so that all blocks are in place and the journal is empty.
    pub(super) fn recover(device: &'a dyn BlockDevice, superblock: &Superblock) -> Result<Patch<'a>> {
        let (geometry, pool_tag) = (superblock.geometry, superblock.pool_tag());
        let replayed = replay::replay(device, superblock)?;
        let mut patch = Patch {
            device,
            reader: MetadataReader::new(device, pool_tag, geometry.total_blocks, Arc::default()),
            dirty: BTreeMap::new(),
            log: JournalLog::new(superblock, replayed.position, 0),
            next_sequence: replayed.next_sequence,
            pool_tag,
            free: Vec::new(),
        };
        patch.put_in_place(&replayed.blocks)?;
        // Twice, so that both header slots are good.
        patch.log.move_tail(device, patch.next_sequence, false)?;
        patch.log.move_tail(device, patch.next_sequence, false)?;
        Ok(patch)
    }

    /// Returns a block of this kind, changed or not, or its problem.
    pub(super) fn block(&mut self, at: BlockNo, kind: BlockKind) -> std::result::Result<&BlockBytes, String> {
        match self.dirty.get(&at) {
            Some(bytes) if header::kind(bytes) == Some(kind) => Ok(bytes),
            Some(_) => Err("is of another kind".to_owned()),
            None => self.reader.block(at, kind),
        }
    }

    /// Replaces a block.
    pub(super) fn put(&mut self, at: BlockNo, bytes: Box<BlockBytes>) -> Result<()> {
        self.dirty.insert(at, bytes);
        self.flush_if_many()
    }

    /// Makes the changes so far durable if they are many: no change may span two calls.
    pub(super) fn flush_if_many(&mut self) -> Result<()> {
        if self.dirty.len() >= BATCH_BLOCKS { self.flush() } else { Ok(()) }
    }

    /// Makes all changes so far durable.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.dirty.is_empty() {
            return Ok(());
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.values_mut().for_each(|bytes| {
            header::seal(bytes);
        });
        let mut builder = TransactionBuilder::new(dirty.len() * (BLOCK_BYTES + 16));
        for (at, bytes) in &dirty {
            builder.whole(*at, bytes);
            self.reader.forget(*at);
        }
        self.log.append(self.device, builder, self.next_sequence)?;
        self.next_sequence += 1;
        self.put_in_place(&dirty)?;
        self.log.move_tail(self.device, self.next_sequence, false)
    }

    fn put_in_place(&mut self, blocks: &BTreeMap<BlockNo, Box<BlockBytes>>) -> Result<()> {
        for (at, bytes) in blocks {
            let buffer = AlignedBuffer::copy_of(&bytes[..]);
            self.device.write(*at, &buffer).map_err(|source| PoolError::Io { action: "write", block: *at, source })?;
        }
        log::sync(self.device, BlockNo(0))
    }
}

impl Pages for Patch<'_> {
    type Error = CheckError;

    fn page(&mut self, at: BlockNo) -> std::result::Result<&[u8; BLOCK_BYTES], CheckError> {
        self.block(at, BlockKind::TreePage).map_err(CheckError::Unusable)
    }

    fn edit(&mut self, at: BlockNo, range: Range<usize>) -> std::result::Result<&mut [u8], CheckError> {
        if !self.dirty.contains_key(&at) {
            let bytes = Box::new(*self.page(at)?);
            self.dirty.insert(at, bytes);
        }
        let bytes = self.dirty.get_mut(&at).expect("it was just put there");
        Ok(&mut bytes[range])
    }

    fn allocate(&mut self) -> std::result::Result<BlockNo, CheckError> {
        let at = self.free.pop().ok_or(CheckError::Fatal(PoolError::NoSpace))?;
        self.dirty.insert(at, Box::new(header::blank(self.pool_tag, BlockKind::TreePage, at)));
        Ok(at)
    }

    fn free(&mut self, at: BlockNo) -> std::result::Result<(), CheckError> {
        self.dirty.remove(&at);
        Ok(())
    }
}
