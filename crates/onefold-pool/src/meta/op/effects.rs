//! What an operation changes besides blocks, once it has succeeded: the filter, freed blocks, held inodes.

use onefold_block::{BlockNo, Fingerprint};

use super::Op;
use crate::attr::Ino;
use crate::filter::StorePageNo;
use crate::meta::Meta;
use crate::meta::group_run::GroupRun;
use crate::meta::indexing::RemovalTime;
use crate::meta::shared_filter::FilterChange;

/// A result of the operation that is applied once it has succeeded.
#[derive(Debug)]
pub(super) enum Effect {
    Index(Fingerprint, BlockNo),
    Unindex(Fingerprint, BlockNo),
    UnbusyRun(GroupRun),
    FreedData(BlockNo),
    FreedMetadata(BlockNo),
    Initialised(BlockNo),
    Hold(Ino),
    LostName(Ino),
    GotName(Ino),
}

impl Op<'_> {
    /// On success: adds a block to the filter.
    pub(crate) fn index(&mut self, fingerprint: Fingerprint, block: BlockNo) {
        self.effects.push(Effect::Index(fingerprint, block));
    }

    /// On success: removes a block from the filter.
    pub(crate) fn unindex(&mut self, fingerprint: Fingerprint, block: BlockNo) {
        self.effects.push(Effect::Unindex(fingerprint, block));
    }

    /// Makes removals from the filter wait until the caller carries them out.
    pub(crate) fn unindex_later(&mut self) {
        self.leave = RemovalTime::Later;
    }

    /// On success: ends the busy state of a run within one group, whose bitmap bits now mark it as used.
    pub(crate) fn unbusy(&mut self, run: GroupRun) {
        self.claimed += run.count;
        self.effects.push(Effect::UnbusyRun(run));
    }

    /// On success: a data block's free waits for the commit.
    pub(crate) fn freed_data(&mut self, block: BlockNo) {
        self.effects.push(Effect::FreedData(block));
    }

    /// On success: a metadata block's free waits until the journal no longer names it.
    pub(crate) fn freed_metadata(&mut self, block: BlockNo) {
        self.effects.push(Effect::FreedMetadata(block));
    }

    /// On success: the fingerprint store has a block that was in flight.
    pub(crate) fn initialised(&mut self, block: BlockNo) {
        self.effects.push(Effect::Initialised(block));
        self.wrote_data = true;
    }

    /// On success: a door holds an inode. Set in the operation that makes the inode visible, as reclaim might otherwise
    /// come first.
    pub(crate) fn hold_on_success(&mut self, ino: Ino) {
        self.effects.push(Effect::Hold(ino));
    }

    /// On success: an inode has lost its last name.
    pub(crate) fn lost_name(&mut self, ino: Ino) {
        self.effects.push(Effect::LostName(ino));
    }

    /// On success: an inode without a name has one again.
    pub(crate) fn got_name(&mut self, ino: Ino) {
        self.effects.push(Effect::GotName(ino));
    }

    /// Applies all that was noted.
    pub(super) fn apply_effects(&mut self) {
        let Meta { geometry, filter, indexing, groups, running, cache, in_flight, orphans, .. } = &mut *self.meta;
        let page_of = |block| StorePageNo(geometry.store_page_no(block));
        // Locked for the first entry, and only once for all of them.
        let mut change: Option<FilterChange<'_>> = None;
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Index(fingerprint, block) => {
                    indexing.enter(change.get_or_insert_with(|| filter.change()), fingerprint, page_of(block));
                }
                Effect::Unindex(fingerprint, block) => {
                    let change = change.get_or_insert_with(|| filter.change());
                    indexing.leave(change, fingerprint, page_of(block), self.leave);
                }
                Effect::UnbusyRun(run) => {
                    groups.busy.clear_run(run.first, run.count);
                }
                Effect::FreedData(block) => {
                    // Set again: an operation that claims a block and drops its only reference has just ended the busy
                    // state. Otherwise the block would be allocated at once, and a second time when its free is
                    // durable.
                    groups.busy.set(block);
                    running.freed.push(block);
                }
                Effect::FreedMetadata(block) => {
                    cache.remove(block);
                    running.forgotten.push(block);
                }
                Effect::Initialised(block) => in_flight.set_initialised(block),
                Effect::Hold(ino) => orphans.hold(ino),
                Effect::LostName(ino) => orphans.lost_name(ino),
                Effect::GotName(ino) => orphans.got_name(ino),
            }
        }
    }
}
