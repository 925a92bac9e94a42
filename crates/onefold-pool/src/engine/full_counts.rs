//! Copies of blocks whose reference counts are full.
//!
//! A reference count has 32 bits. A write that meets a block with the highest count stores its content anew. But a
//! clone and the copy of a shared map leaf have only the block's number. They give up the operation
//! ([`OpError::CountFull`](crate::meta::OpError)). The engine stores the content once more with the metadata lock
//! released, and runs the operation again, which then refers to the copy. Each leaf gets copies of its own: 2^32
//! references to one block are too rare to search for a copy with room.
//!
//! **Readers.** The copy of a leaf changes map entries outside the range that its writer has locked. A reader of
//! another range may have looked up the full block, and its range lock does not keep that block from being freed. So
//! the block stays pinned until all uses of ranges that had begun before have ended ([`Engine::unpin_unread`]).

use onefold_block::{AlignedBuffer, BlockNo};

use super::Engine;
use crate::error::{PoolError, Result};
use crate::format::store_page::BlockUse;
use crate::meta::Privilege;
use crate::meta::group_run::GroupRun;
use crate::meta::in_flight::{DeviceWrite, InFlightBlock};

/// A copy that operations may refer to. Dropping it gives the copy back, unless an operation refers to it.
pub(super) struct SpareCopy<'e> {
    engine: &'e Engine,
    full: BlockNo,
    flight: InFlightBlock,
}

impl Drop for SpareCopy<'_> {
    fn drop(&mut self) {
        let until = self.engine.readers.range_locks.next_ticket();
        self.engine.pinned_for_readers.lock().push(ReaderPin { block: self.full, until });
        let mut meta = self.engine.meta();
        if meta.in_flight.leave(self.flight.block) {
            meta.free_again(&[GroupRun { first: self.flight.block, count: 1 }]);
        }
    }
}

/// A pin of a block that readers may have looked up.
#[derive(Debug)]
pub(super) struct ReaderPin {
    block: BlockNo,
    /// Range locks with lower tickets may belong to such readers.
    until: u64,
}

impl Engine {
    /// Ends the pins of blocks that no reader can be reading any more.
    pub(super) fn unpin_unread(&self) {
        let mut pins = self.pinned_for_readers.lock();
        if pins.is_empty() {
            return;
        }
        let oldest = self.readers.range_locks.oldest_ticket().unwrap_or(u64::MAX);
        let unread: Vec<ReaderPin> = pins.extract_if(.., |pin| pin.until <= oldest).collect();
        drop(pins);
        let mut meta = self.meta();
        unread.iter().for_each(|pin| meta.in_flight.unpin(pin.block));
    }

    /// Stores the content of a block once more and offers the copy to operations. `None` if the block has lost its last
    /// reference since it was found full.
    ///
    /// # Errors
    /// No space; device errors, after which the pool is stopped.
    pub(super) fn copy_full(&self, full: BlockNo, privilege: Privilege) -> Result<Option<SpareCopy<'_>>> {
        let flight = self.run(privilege, |op| {
            // Does not check the count: the rolled back operation itself may have added references up to the maximum.
            if op.entry(full)?.usage != BlockUse::Data {
                return Ok(None);
            }
            let reserved = op.reserve_data(1, 0, 0)?;
            // In use now, and pinned from now on: its content stays the same even if it loses its last reference.
            op.meta.in_flight.pin(full);
            Ok(reserved.first().map(|run| op.meta.in_flight.enter(run.first, None, &DeviceWrite::begin())))
        })?;
        let Some(flight) = flight else { return Ok(None) };
        let spare = SpareCopy { engine: self, full, flight };
        let copy = spare.flight.block;
        let mut content = AlignedBuffer::zeroed(1);
        if !self.readers.cache.read(full, &mut content) {
            let unread = |source| PoolError::Io { action: "read", block: full, source };
            self.device.read(full, &mut content).map_err(unread)?;
            // Meanwhile, the pin keeps the block from being freed and rewritten.
            self.readers.cache.insert(full, &content);
        }
        self.readers.cache.forget(copy);
        if let Err(source) = self.device.write(copy, &content) {
            let error = PoolError::of_write(copy, source);
            self.write_failed(&error, copy);
            return Err(error);
        }
        // Not earlier: an operation that refers to the copy makes it part of a transaction.
        self.meta().in_flight.offer_copy(full, copy);
        Ok(Some(spare))
    }
}
