//! File data: reads it, and decides and carries out how it is stored.
//!
//! Read [`decide`] from top to bottom for the decision. [`write`] is the frame around it.

pub(crate) mod behind;
pub(crate) mod clone;
pub(crate) mod decide;
pub(crate) mod edges;
pub(crate) mod extents;
pub(crate) mod fetch;
pub(crate) mod quarantine;
pub(crate) mod read;
pub(crate) mod resize;
pub(crate) mod share;
pub(crate) mod write;

use std::sync::Arc;

use onefold_block::Polling;

use crate::engine::Engine;
use crate::engine::memory_plan::MemoryPlan;
use crate::readers::Readers;
use behind::{Losses, SeenLosses, WriteQueue};

/// The data of a pool's files, above the engine that keeps their metadata.
pub(crate) struct Data {
    pub(crate) engine: Arc<Engine>,
    readers: Arc<Readers>,
    pub(crate) behind: WriteQueue,
    pub(crate) losses: Losses,
    /// The losses seen by callers of [`crate::Pool::fsync`], who have no opening.
    pub(crate) losses_seen: SeenLosses,
    /// Polls during waits for accepted writes.
    settling: Polling,
}

impl Data {
    /// Returns the data of an open pool.
    pub(crate) fn new(engine: Arc<Engine>) -> Data {
        let options = &engine.options;
        let plan = MemoryPlan::new(options.memory_bytes, engine.meta().geometry.total_blocks);
        let behind_blocks = if options.accepts_writes() { plan.behind_blocks } else { 0 };
        Data {
            behind: WriteQueue::new(behind_blocks, behind::writers() / 2),
            losses: Losses::default(),
            losses_seen: SeenLosses::default(),
            settling: Polling::new(options.processors.clone(), Arc::clone(&engine.environment.clock)),
            readers: Arc::clone(&engine.readers),
            engine,
        }
    }
}
