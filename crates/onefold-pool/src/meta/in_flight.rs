//! Data blocks whose writes are in progress, and blocks that are being compared.
//!
//! A block is entered under its fingerprint before its write begins. A second writer of the same content attaches to
//! it: it waits for the write and shares its outcome. The writer that commits first makes the entry in the fingerprint
//! store.

use std::sync::Arc;

use onefold_block::{BlockNo, Fingerprint};

use super::hash::{BlockMap, PlainMap};
use crate::sync::{Condvar, Mutex};

/// Identity of a block's content: fingerprint and sharing domain.
pub(crate) type ContentKey = (Fingerprint, u16);

/// State of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteState {
    /// In progress.
    Writing,
    /// The data can be read: the device has it, or gets it with the next commit ([`crate::engine::late_writes`]).
    Written,
    /// The write failed; attached writers must find another way.
    Failed,
}

/// A write of blocks to the device, which all end together.
#[derive(Debug)]
pub(crate) struct DeviceWrite {
    state: Mutex<WriteState>,
    changed: Condvar,
}

impl DeviceWrite {
    /// Returns a write in progress.
    pub(crate) fn begin() -> Arc<DeviceWrite> {
        Arc::new(DeviceWrite { state: Mutex::new(WriteState::Writing), changed: Condvar::new() })
    }

    /// Sets the outcome of the write.
    pub(crate) fn finish(&self, state: WriteState) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Marks the write as failed, unless it has ended.
    pub(crate) fn fail_if_unfinished(&self) {
        let mut state = self.state.lock();
        if *state == WriteState::Writing {
            *state = WriteState::Failed;
            self.changed.notify_all();
        }
    }

    /// Waits for the end of the write. A writer never waits for others before it has ended its own writes.
    pub(crate) fn wait(&self) -> WriteState {
        let mut state = self.state.lock();
        while *state == WriteState::Writing {
            self.changed.wait(&mut state);
        }
        *state
    }
}

/// One block in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlightBlock {
    pub(crate) block: BlockNo,
    pub(crate) write: Arc<DeviceWrite>,
}

/// An entry of the table.
#[derive(Debug)]
struct InFlightEntry {
    write: Arc<DeviceWrite>,
    content: Option<ContentKey>,
    /// The block with a full count that this block is offered as a copy of, if it is.
    copy_of: Option<BlockNo>,
    /// Writers that may still refer to the block: the writing one and the attached ones.
    users: u32,
    /// Whether the fingerprint store has the block, so that the filter finds it.
    initialised: bool,
}

/// All blocks in flight. Protected by the metadata lock.
#[derive(Debug, Default)]
pub(crate) struct InFlightTable {
    by_block: BlockMap<InFlightEntry>,
    by_content: PlainMap<ContentKey, BlockNo>,
    pins: BlockMap<u32>,
    /// Copies that can replace blocks with full counts.
    copies: BlockMap<Vec<BlockNo>>,
}

impl InFlightTable {
    /// Enters a block before it is written. Without `content`, no writer can attach to it.
    pub(crate) fn enter(
        &mut self,
        block: BlockNo,
        content: Option<ContentKey>,
        write: &Arc<DeviceWrite>,
    ) -> InFlightBlock {
        // If two blocks have the same content, writers attach to the first.
        let content = content.filter(|content| !self.by_content.contains_key(content));
        if let Some(content) = content {
            self.by_content.insert(content, block);
        }
        let row = InFlightEntry { write: Arc::clone(write), content, copy_of: None, users: 1, initialised: false };
        self.by_block.insert(block, row);
        InFlightBlock { block, write: Arc::clone(write) }
    }

    /// Attaches to the block in flight with this content, if there is one.
    pub(crate) fn attach(&mut self, content: ContentKey) -> Option<InFlightBlock> {
        let &block = self.by_content.get(&content)?;
        let row = self.by_block.get_mut(&block)?;
        row.users += 1;
        Some(InFlightBlock { block, write: Arc::clone(&row.write) })
    }

    /// Offers a block in flight whose data is on the device as a copy of one with a full count.
    pub(crate) fn offer_copy(&mut self, full: BlockNo, copy: BlockNo) {
        if let Some(row) = self.by_block.get_mut(&copy) {
            row.copy_of = Some(full);
            self.copies.entry(full).or_default().push(copy);
        }
    }

    /// Returns the copies that are offered for a block with a full count.
    pub(crate) fn copies_of(&self, full: BlockNo) -> &[BlockNo] {
        self.copies.get(&full).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the fingerprint store lacks the block so far.
    pub(crate) fn is_uninitialised(&self, block: BlockNo) -> bool {
        self.by_block.get(&block).is_some_and(|row| !row.initialised)
    }

    /// Returns whether a block with this content is being written.
    pub(crate) fn is_under_way(&self, content: ContentKey) -> bool {
        self.by_content.contains_key(&content)
    }

    /// Notes that the fingerprint store has the block.
    pub(crate) fn set_initialised(&mut self, block: BlockNo) {
        if let Some(row) = self.by_block.get_mut(&block) {
            row.initialised = true;
        }
        self.forget_block(block);
    }

    /// Ends new attachments to the block, for example after its write has failed.
    pub(crate) fn forget_block(&mut self, block: BlockNo) {
        let Some(row) = self.by_block.get_mut(&block) else { return };
        if let Some(content) = row.content.take() {
            self.by_content.remove(&content);
        }
        if let Some(full) = row.copy_of.take()
            && let Some(copies) = self.copies.get_mut(&full)
        {
            copies.retain(|copy| *copy != block);
            if copies.is_empty() {
                self.copies.remove(&full);
            }
        }
    }

    /// Ends one writer's use of the block. Returns true if it was the last one and the block never got into the store:
    /// the block is then free again.
    pub(crate) fn leave(&mut self, block: BlockNo) -> bool {
        let Some(row) = self.by_block.get_mut(&block) else { return false };
        row.users -= 1;
        if row.users > 0 {
            return false;
        }
        let unused = !row.initialised;
        self.forget_block(block);
        self.by_block.remove(&block);
        unused
    }

    /// Keeps a block from being reallocated while it is compared or about to be shared.
    pub(crate) fn pin(&mut self, block: BlockNo) {
        *self.pins.entry(block).or_insert(0) += 1;
    }

    /// Ends one [`InFlightTable::pin`].
    pub(crate) fn unpin(&mut self, block: BlockNo) {
        if let Some(count) = self.pins.get_mut(&block) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&block);
            }
        }
    }

    /// Returns whether a block must not be reallocated yet.
    pub(crate) fn is_held(&self, block: BlockNo) -> bool {
        self.pins.contains_key(&block) || self.by_block.contains_key(&block)
    }

    /// Returns whether no block is in flight.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.by_block.is_empty() && self.by_content.is_empty() && self.pins.is_empty() && self.copies.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: ContentKey = (Fingerprint([3; 16]), 0);

    #[test]
    fn a_block_whose_writers_all_gave_up_is_free_again() {
        let mut table = InFlightTable::default();
        table.enter(BlockNo(9), Some(CONTENT), &DeviceWrite::begin());
        assert_eq!(table.attach(CONTENT).unwrap().block, BlockNo(9));
        assert!(!table.leave(BlockNo(9)));
        assert!(table.leave(BlockNo(9)));
        assert!(table.is_empty() && table.attach(CONTENT).is_none());
    }

    #[test]
    fn an_initialised_block_is_held_until_its_last_writer_leaves_but_attracts_no_new_ones() {
        let mut table = InFlightTable::default();
        table.enter(BlockNo(9), Some(CONTENT), &DeviceWrite::begin());
        table.attach(CONTENT);
        table.set_initialised(BlockNo(9));
        assert!(table.attach(CONTENT).is_none() && table.is_held(BlockNo(9)));
        assert!(!table.leave(BlockNo(9)) && !table.leave(BlockNo(9)));
        assert!(table.is_empty());
    }

    #[test]
    fn a_copy_is_offered_until_it_is_referred_to_or_given_up() {
        let mut table = InFlightTable::default();
        for copy in [BlockNo(9), BlockNo(10)] {
            table.enter(copy, None, &DeviceWrite::begin());
            table.offer_copy(BlockNo(1), copy);
        }
        assert_eq!(table.copies_of(BlockNo(1)), [BlockNo(9), BlockNo(10)]);
        table.set_initialised(BlockNo(9));
        assert_eq!(table.copies_of(BlockNo(1)), [BlockNo(10)]);
        assert!(!table.leave(BlockNo(9)) && table.leave(BlockNo(10)));
        assert!(table.is_empty() && table.copies_of(BlockNo(1)).is_empty());
    }

    #[test]
    fn pins_count() {
        let mut table = InFlightTable::default();
        table.pin(BlockNo(1));
        table.pin(BlockNo(1));
        table.unpin(BlockNo(1));
        assert!(table.is_held(BlockNo(1)));
        table.unpin(BlockNo(1));
        assert!(!table.is_held(BlockNo(1)));
    }
}
