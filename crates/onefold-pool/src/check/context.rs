//! What all parts of a check share.

use std::sync::Arc;

use onefold_block::BlockDevice;

use super::CheckOptions;
use super::findings::Findings;
use super::fixed;
use super::reader::{CheckError, Reader};
use crate::engine::open;
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::geometry::{GROUP_BLOCKS, Geometry};
use crate::format::state::Field;
use crate::format::superblock::Superblock;
use crate::journal::replay;
use crate::progress::Progress;

/// Tells how far the check is.
pub(super) struct Meter<'a> {
    progress: &'a dyn Progress,
    done: u64,
    total: u64,
}

impl Meter<'_> {
    /// Notes that `count` more blocks are done with.
    ///
    /// # Errors
    /// [`CheckError::Stopped`] when the caller wants no more.
    pub(super) fn advance(&mut self, count: u64) -> std::result::Result<(), CheckError> {
        self.done = (self.done + count).min(self.total);
        match self.progress.update(self.done, self.total) {
            std::ops::ControlFlow::Continue(()) => Ok(()),
            std::ops::ControlFlow::Break(()) => Err(CheckError::Stopped),
        }
    }
}

/// A pool being examined.
pub(super) struct Context<'a> {
    pub(super) superblock: Superblock,
    pub(super) geometry: Geometry,
    pub(super) state: Box<BlockBytes>,
    /// For the names tree.
    pub(super) tree: Reader<'a>,
    /// For everything that is looked at while the tree is walked.
    pub(super) blocks: Reader<'a>,
    pub(super) findings: Findings,
    pub(super) meter: Meter<'a>,
    pub(super) memory_bytes: u64,
    /// Something that holds references could not be read: counts that come out too low prove nothing.
    pub(super) is_incomplete: bool,
    pub(super) inodes_checked: u64,
    pub(super) data_blocks_hashed: u64,
}

impl<'a> Context<'a> {
    /// Finds the pool and recovers it in memory. `None` if what is damaged leaves nothing to go on with.
    pub(super) fn open(
        device: &'a dyn BlockDevice,
        options: &CheckOptions,
        progress: &'a dyn Progress,
        findings: &mut Findings,
    ) -> Result<Option<Context<'a>>> {
        let superblock = open::read_superblock(device)?;
        open::check_length(device, &superblock)?;
        let (geometry, pool_tag) = (superblock.geometry, superblock.pool_tag());
        fixed::check_superblocks(device, &superblock, findings)?;
        fixed::check_journal_headers(device, &superblock, findings)?;
        let replayed = match replay::replay(device, &geometry, pool_tag) {
            Ok(replayed) => replayed,
            Err(PoolError::Damaged { structure, block, what }) => {
                findings.tell(
                    structure,
                    Some(block),
                    format!("{what}; nothing else can be judged without the journal"),
                );
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let overlay = Arc::new(replayed.blocks);
        let reader = || Reader::new(device, pool_tag, geometry.total_blocks, Arc::clone(&overlay));
        let (tree, mut blocks) = (reader(), reader());
        let Some(state) = fixed::state(&mut blocks, &geometry, findings) else { return Ok(None) };
        let ready = Field::GroupsReady.get(&state);
        let passes = if options.verify_data { 2 } else { 1 };
        let total = ready.saturating_mul(GROUP_BLOCKS).min(geometry.total_blocks) * passes;
        Ok(Some(Context {
            superblock,
            geometry,
            state,
            tree,
            blocks,
            findings: Findings::default(),
            meter: Meter { progress, done: 0, total },
            memory_bytes: options.memory_bytes,
            is_incomplete: false,
            inodes_checked: 0,
            data_blocks_hashed: 0,
        }))
    }

    /// Returns a number of the pool state.
    pub(super) fn field(&self, field: Field) -> u64 {
        field.get(&self.state)
    }

    /// Returns how many block groups are in use.
    pub(super) fn groups_ready(&self) -> u64 {
        self.field(Field::GroupsReady)
    }

    /// Returns the metadata blocks read.
    pub(super) fn blocks_checked(&self) -> u64 {
        self.tree.blocks_read + self.blocks.blocks_read
    }
}

/// Refuses to go on when `count` things of `bytes` each take more than `limit` bytes of a check's memory.
///
/// # Errors
/// [`PoolError::MemoryTooSmall`].
pub(super) fn ensure_fits(
    count: usize,
    bytes: usize,
    limit: u64,
    memory_bytes: u64,
) -> std::result::Result<(), CheckError> {
    let taken = count as u64 * bytes as u64;
    if taken <= limit {
        return Ok(());
    }
    let needed = memory_bytes.saturating_mul(2);
    Err(CheckError::Fatal(PoolError::MemoryTooSmall { given: memory_bytes, needed }))
}
