//! State shared by all parts of a check.

use std::sync::Arc;

use onefold_block::BlockDevice;

use super::CheckOptions;
use super::findings::CheckFindings;
use super::fixed;
use super::ground::Ground;
use super::reader::{CheckError, MetadataReader};
use crate::engine::open;
use crate::error::PoolError;
use crate::format::BlockBytes;
use crate::format::geometry::{GROUP_BLOCKS, Geometry};
use crate::format::state::Field;
use crate::format::superblock::Superblock;
use crate::progress::Progress;

/// Reports the progress of the check.
pub(super) struct CheckMeter<'a> {
    progress: &'a dyn Progress,
    done: u64,
    total: u64,
}

impl CheckMeter<'_> {
    /// Counts `count` more finished blocks.
    ///
    /// # Errors
    /// [`CheckError::Stopped`] when the caller asks to stop.
    pub(super) fn advance(&mut self, count: u64) -> Result<(), CheckError> {
        self.done = (self.done + count).min(self.total);
        match self.progress.update(self.done, self.total) {
            std::ops::ControlFlow::Continue(()) => Ok(()),
            std::ops::ControlFlow::Break(()) => Err(CheckError::Stopped),
        }
    }
}

/// A pool being checked.
pub(super) struct Context<'a> {
    pub(super) superblock: Superblock,
    pub(super) geometry: Geometry,
    pub(super) state: Box<BlockBytes>,
    /// Reads the names tree.
    pub(super) tree: MetadataReader<'a>,
    /// Reads everything needed during a walk over the tree.
    pub(super) blocks: MetadataReader<'a>,
    pub(super) findings: CheckFindings,
    pub(super) meter: CheckMeter<'a>,
    pub(super) memory_bytes: u64,
    /// Something that holds references could not be read, so counts that come out too low prove nothing.
    pub(super) is_incomplete: bool,
    /// The pool state was rebuilt, so its counters prove nothing.
    pub(super) is_state_rebuilt: bool,
    /// The chosen ground, if an opening of the pool would fail.
    pub(super) chosen: Option<Ground>,
    pub(super) inodes_checked: u64,
    pub(super) data_blocks_hashed: u64,
}

impl<'a> Context<'a> {
    /// Returns a pool that is checked on a given ground, or why the pool state is unusable.
    pub(super) fn on(
        device: &'a dyn BlockDevice,
        superblock: &Superblock,
        options: &CheckOptions,
        progress: &'a dyn Progress,
        ground: &Ground,
    ) -> Result<Context<'a>, String> {
        let geometry = superblock.geometry;
        let reader =
            || MetadataReader::new(device, superblock.pool_tag(), geometry.total_blocks, Arc::clone(&ground.blocks));
        let (tree, mut blocks) = (reader(), reader());
        let state = fixed::usable_state(&mut blocks, &geometry)?;
        let ready = Field::GroupsReady.get(&state);
        let passes = if options.verify_data { 2 } else { 1 };
        let total = ready.saturating_mul(GROUP_BLOCKS).min(geometry.total_blocks) * passes;
        let mut findings = CheckFindings::default();
        fixed::check_state(&state, &mut findings);
        Ok(Context {
            superblock: superblock.clone(),
            geometry,
            state,
            tree,
            blocks,
            findings,
            meter: CheckMeter { progress, done: 0, total },
            memory_bytes: options.memory_bytes,
            is_incomplete: false,
            is_state_rebuilt: ground.is_state_rebuilt,
            chosen: None,
            inodes_checked: 0,
            data_blocks_hashed: 0,
        })
    }

    /// Returns a pool whose fixed structures are known to be sound, because a repair has just ensured that.
    ///
    /// # Errors
    /// Device errors; damage that occurred since.
    pub(super) fn reopen(
        device: &'a dyn BlockDevice,
        options: &CheckOptions,
        progress: &'a dyn Progress,
    ) -> Result<Context<'a>, CheckError> {
        let superblock = open::read_superblock(device)?;
        let ground = Ground::recover(device, &superblock)?;
        Context::on(device, &superblock, options, progress, &ground).map_err(CheckError::Unusable)
    }

    /// Returns a number of the pool state.
    pub(super) fn field(&self, field: Field) -> u64 {
        field.get(&self.state)
    }

    /// Returns the number of block groups in use.
    pub(super) fn groups_ready(&self) -> u64 {
        self.field(Field::GroupsReady)
    }

    /// Returns the number of metadata blocks read.
    pub(super) fn blocks_checked(&self) -> u64 {
        self.tree.blocks_read + self.blocks.blocks_read
    }
}

/// Fails if `count` items of `bytes` each take more than `limit` bytes of a check's memory.
///
/// # Errors
/// [`PoolError::MemoryTooSmall`].
pub(super) fn ensure_fits(count: usize, bytes: usize, limit: u64, memory_bytes: u64) -> Result<(), CheckError> {
    let taken = count as u64 * bytes as u64;
    if taken <= limit {
        return Ok(());
    }
    let needed = memory_bytes.saturating_mul(2);
    Err(CheckError::Fatal(PoolError::MemoryTooSmall { given: memory_bytes, needed }))
}
