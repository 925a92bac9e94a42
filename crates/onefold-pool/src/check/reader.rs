//! Reads metadata as it will be after recovery: from the journal if that has the block, otherwise from its place.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, BlockNo, ReadOp};

use crate::error::PoolError;
use crate::format::BlockBytes;
use crate::format::header::{self, BlockKind};
use crate::meta::hash::BlockMap;
use crate::tree::{Pages, TreeError};

/// Number of blocks kept, the most recently read: tree pages and map nodes to which several others lead.
const KEPT_BLOCKS: usize = 1024;

/// Why a step of a check did not finish.
#[derive(Debug)]
pub(super) enum CheckError {
    /// One block is unusable. The check reports it and continues.
    Unusable(String),
    /// The check itself cannot continue.
    Fatal(PoolError),
    /// The caller asked to stop.
    Stopped,
}

impl From<TreeError> for CheckError {
    fn from(error: TreeError) -> CheckError {
        CheckError::Unusable(error.to_string())
    }
}

impl From<PoolError> for CheckError {
    fn from(error: PoolError) -> CheckError {
        CheckError::Fatal(error)
    }
}

/// Reads and verifies metadata blocks, and never writes.
pub(super) struct MetadataReader<'a> {
    device: &'a dyn BlockDevice,
    pool_tag: u32,
    total_blocks: u64,
    /// The blocks that recovery would put in place.
    overlay: Arc<BTreeMap<BlockNo, Box<BlockBytes>>>,
    kept: BlockMap<Box<BlockBytes>>,
    kept_order: VecDeque<BlockNo>,
    /// Buffer for reading runs.
    buffer: AlignedBuffer,
    /// Number of blocks read so far.
    pub(super) blocks_read: u64,
}

impl<'a> MetadataReader<'a> {
    pub(super) fn new(
        device: &'a dyn BlockDevice,
        pool_tag: u32,
        total_blocks: u64,
        overlay: Arc<BTreeMap<BlockNo, Box<BlockBytes>>>,
    ) -> MetadataReader<'a> {
        let (kept, kept_order) = (BlockMap::default(), VecDeque::new());
        let buffer = AlignedBuffer::zeroed(0);
        MetadataReader { device, pool_tag, total_blocks, overlay, kept, kept_order, buffer, blocks_read: 0 }
    }

    /// Returns a block that must have this kind, or its problem.
    pub(super) fn block(&mut self, at: BlockNo, kind: BlockKind) -> Result<&BlockBytes, String> {
        if at.0 >= self.total_blocks {
            return Err("lies past the end of the pool".to_owned());
        }
        if self.overlay.contains_key(&at) {
            let bytes = &self.overlay[&at];
            header::verify(bytes, self.pool_tag, kind, at).map_err(|error| error.to_string())?;
            return Ok(bytes);
        }
        if !self.kept.contains_key(&at) {
            let mut buffer = AlignedBuffer::zeroed(1);
            self.device.read(at, &mut buffer).map_err(|error| format!("cannot be read: {error}"))?;
            self.blocks_read += 1;
            self.keep(at, Box::new(*buffer.block(0).expect("one block was read")));
        }
        let bytes = &self.kept[&at];
        header::verify(bytes, self.pool_tag, kind, at).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// Returns `count` consecutive blocks, each of this kind or its problem. They are not kept.
    pub(super) fn run(
        &mut self,
        first: BlockNo,
        count: usize,
        kind: BlockKind,
    ) -> Vec<Result<Box<BlockBytes>, String>> {
        if self.buffer.block_count() < count {
            self.buffer = AlignedBuffer::zeroed(count);
        }
        let whole = self.device.read(first, &mut self.buffer[..count * BLOCK_BYTES]);
        self.blocks_read += count as u64;
        let mut blocks = Vec::with_capacity(count);
        for (offset, place) in (0..).zip(self.buffer.blocks_mut().take(count)) {
            let at = first.plus(offset);
            let bytes = match (self.overlay.get(&at), &whole) {
                (Some(bytes), _) => bytes.clone(),
                (None, Ok(())) => Box::new(*place),
                // One bad sector must not hide its neighbours.
                (None, Err(_)) => match self.device.read(at, place) {
                    Ok(()) => Box::new(*place),
                    Err(error) => {
                        blocks.push(Err(format!("cannot be read: {error}")));
                        continue;
                    }
                },
            };
            blocks.push(match header::verify(&bytes, self.pool_tag, kind, at) {
                Ok(()) => Ok(bytes),
                Err(error) => Err(error.to_string()),
            });
        }
        blocks
    }

    /// Reads together the blocks that will be needed one after another, as far as they fit.
    pub(super) fn prefetch(&mut self, blocks: impl Iterator<Item = BlockNo>) {
        let wanted =
            |at: &BlockNo| at.0 < self.total_blocks && !self.overlay.contains_key(at) && !self.kept.contains_key(at);
        let mut blocks: Vec<BlockNo> = blocks.filter(wanted).take(KEPT_BLOCKS / 2).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let mut buffer = AlignedBuffer::zeroed(blocks.len());
        let mut batch: Vec<ReadOp<'_>> = blocks
            .iter()
            .zip(buffer.chunks_exact_mut(BLOCK_BYTES))
            .map(|(&first, into)| ReadOp { first, into })
            .collect();
        // Unreadable blocks are read again one by one, and reported then.
        if blocks.is_empty() || self.device.read_batch(&mut batch).is_err() {
            return;
        }
        drop(batch);
        self.blocks_read += blocks.len() as u64;
        for (at, bytes) in blocks.into_iter().zip(buffer.blocks_mut()) {
            self.keep(at, Box::new(*bytes));
        }
    }

    fn keep(&mut self, at: BlockNo, bytes: Box<BlockBytes>) {
        if self.kept_order.len() == KEPT_BLOCKS
            && let Some(oldest) = self.kept_order.pop_front()
        {
            self.kept.remove(&oldest);
        }
        self.kept.insert(at, bytes);
        self.kept_order.push_back(at);
    }

    /// Forgets the cached content of a block that changes.
    pub(super) fn forget(&mut self, at: BlockNo) {
        if self.kept.remove(&at).is_some() {
            self.kept_order.retain(|kept| *kept != at);
        }
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &'a dyn BlockDevice {
        self.device
    }
}

impl Pages for MetadataReader<'_> {
    type Error = CheckError;

    fn page(&mut self, at: BlockNo) -> Result<&[u8; BLOCK_BYTES], CheckError> {
        self.block(at, BlockKind::TreePage).map_err(CheckError::Unusable)
    }

    fn edit(&mut self, _: BlockNo, _: Range<usize>) -> Result<&mut [u8], CheckError> {
        Err(read_only())
    }

    fn allocate(&mut self) -> Result<BlockNo, CheckError> {
        Err(read_only())
    }

    fn free(&mut self, _: BlockNo) -> Result<(), CheckError> {
        Err(read_only())
    }
}

fn read_only() -> CheckError {
    CheckError::Fatal(PoolError::ReadOnly)
}
