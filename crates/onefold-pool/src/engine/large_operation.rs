//! Operations that need more metadata than the cache holds.
//!
//! An operation runs when all blocks that it needs are in memory. The largest operations, such as a hole in a file
//! whose map nodes are scattered, need several thousand. With little memory, the cache would evict some of them while
//! it reads the others, for ever. So an operation that has missed more blocks than the cache holds borrows room for as
//! many blocks as any operation can need. One operation at a time has this room; until then, the others go on reading.

use std::sync::atomic::Ordering;

use super::Engine;
use crate::error::Result;
use crate::meta::op::BlockFault;
use crate::sync;

/// More blocks than any operation needs. A hole that ends within two leaves needs most. For each of these leaves it
/// needs 508 children on each of two levels and 33 on the third, a store page for each of these, and a store page and a
/// bitmap for each of the leaf's 508 blocks.
const OPERATION_BLOCKS: usize = 8192;
/// Number of blocks that are evicted under one hold of the metadata lock.
const EVICTIONS_PER_HOLD: usize = 256;

/// The blocks that one operation has missed.
pub(super) struct CacheMisses<'e> {
    engine: &'e Engine,
    count: usize,
    is_lent_room: bool,
}

impl<'e> CacheMisses<'e> {
    /// Returns the record of an operation that has missed nothing yet.
    pub(super) fn new(engine: &'e Engine) -> CacheMisses<'e> {
        CacheMisses { engine, count: 0, is_lent_room: false }
    }

    /// Reads blocks that the operation has missed.
    ///
    /// # Errors
    /// See [`Engine::load`].
    pub(super) fn load(&mut self, faults: &[BlockFault]) -> Result<()> {
        self.count += faults.len();
        if !self.is_lent_room && self.count > self.engine.meta().cache.capacity() {
            let is_other_under_way = self.engine.has_large_operation.swap(true, Ordering::Relaxed);
            self.is_lent_room = !is_other_under_way;
            if self.is_lent_room {
                self.engine.meta().cache.lend(OPERATION_BLOCKS);
            }
        }
        self.engine.load(faults)
    }
}

impl Drop for CacheMisses<'_> {
    fn drop(&mut self) {
        if !self.is_lent_room {
            return;
        }
        self.engine.meta().cache.lend(0);
        self.engine.has_large_operation.store(false, Ordering::Relaxed);
        loop {
            let mut meta = self.engine.meta();
            let has_more = meta.cache.shrink(EVICTIONS_PER_HOLD);
            sync::unlock_fairly(meta);
            if !has_more {
                return;
            }
        }
    }
}
