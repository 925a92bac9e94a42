//! Crashes: everything that the host did and did not make durable is lost or kept, by chance.
//!
//! Data is lost block by block; names are lost in order, so that a prefix of the host's changes is kept. Before a
//! crash, other hosts have seen all changes. A host that builds on another host's unsynced changes first makes them
//! durable, as the lock manager of a cluster file system does. So a crash undoes nothing that other hosts have built
//! upon. This holds for each file (its data and length) and each folder (its names).
//!
//! This is harsher than real file systems. Data is never written back by itself, however old it is, and data that other
//! hosts have only read may be lost. Names become durable by themselves after a while.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use onefold_block::BLOCK_BYTES_U64;

use super::checks::StepChange;
use super::content::{Content, cut};
use super::dice::nanoseconds;
use super::files::{FileNo, UnsyncedState};
use super::host::HostNo;
use super::names::{FolderNo, Name, NameTarget};
use super::world::World;

/// A change of what a name leads to.
#[derive(Debug)]
pub(super) struct NameChange {
    pub(super) folder: FolderNo,
    pub(super) name: Name,
    pub(super) before: Option<NameTarget>,
    pub(super) after: Option<NameTarget>,
}

/// Changes of names that become durable together or not at all.
#[derive(Debug)]
pub(super) struct UnsyncedNames {
    pub(super) at: u64,
    pub(super) changes: Vec<NameChange>,
}

impl UnsyncedNames {
    /// Returns the folders that undoing the changes would affect, including new ones.
    fn folders(&self) -> impl Iterator<Item = FolderNo> {
        self.changes.iter().flat_map(|change| {
            let made = if let Some(NameTarget::Folder(folder)) = change.after { Some(folder) } else { None };
            std::iter::once(change.folder).chain(made)
        })
    }
}

impl World {
    /// Makes other hosts' unsynced changes of a file durable, before a host changes or syncs it.
    pub(super) fn take_over(&mut self, host: HostNo, no: FileNo) {
        if self.files.get(no).unsynced.by.is_some_and(|by| by != host) {
            self.make_durable(no);
        }
    }

    /// Notes that a file has unsynced changes.
    pub(super) fn mark_unsynced(&mut self, host: HostNo, no: FileNo) {
        if self.files.get_mut(no).unsynced.by.replace(host).is_none() {
            self.machine_mut(host).unsynced.insert(no);
        }
    }

    /// Keeps the durable content of a block before its first unsynced change.
    pub(super) fn note_durable(&mut self, no: FileNo, index: u64) {
        let file = self.files.get_mut(no);
        let durable = file.unsynced.blocks.entry(index);
        durable.or_insert_with(|| file.map.get(index).map(|block| self.blocks.content(*block).clone()));
        file.unsynced.shared.remove(&index);
    }

    /// Makes all of a file durable.
    pub(super) fn make_durable(&mut self, no: FileNo) {
        let file = self.files.get_mut(no);
        let unsynced = std::mem::take(&mut file.unsynced);
        file.unsynced.modified = file.modified;
        if let Some(by) = unsynced.by {
            self.machine_mut(by).unsynced.remove(&no);
        }
    }

    /// Makes the blocks of a range durable, as a share does before it compares.
    pub(super) fn make_range_durable(&mut self, host: HostNo, no: FileNo, first: u64, count: u64) {
        self.take_over(host, no);
        let blocks = &mut self.files.get_mut(no).unsynced.blocks;
        if !blocks.is_empty() {
            let in_range: Vec<u64> = blocks.range(first..first + count).map(|(index, _)| *index).collect();
            in_range.iter().for_each(|index| drop(blocks.remove(index)));
        }
        let filled = &mut self.files.get_mut(no).unsynced.filled;
        filled.retain(|index| !(first..first + count).contains(index));
    }

    /// Syncs a file for a host, and its names if the file system does that.
    pub(super) fn sync(&mut self, host: HostNo, no: FileNo) {
        self.make_durable(no);
        if self.options.habits.syncs_names_with_data {
            self.settle_first_names(host, usize::MAX);
        } else if self.shares_in_two_steps() {
            // The name with which it was created. Where no test depends on this, names are lost more often than
            // necessary.
            let is_named = |change: &NameChange| change.after == Some(NameTarget::File(no));
            let names = &self.machine(host).unsynced_names;
            let last = names.iter().rposition(|names| names.changes.iter().any(is_named));
            self.settle_first_names(host, last.map_or(0, |last| last + 1));
        }
    }

    /// Fails a sync: some of the changes that it should make durable are lost.
    pub(super) fn fail_sync(&mut self, no: FileNo) {
        let unsynced = std::mem::take(&mut self.files.get_mut(no).unsynced.blocks);
        self.lose_blocks(no, unsynced);
    }

    /// Loses or keeps the data that a crashed host left unsynced.
    pub(super) fn lose_data(&mut self, host: HostNo) {
        while let Some(no) = self.machine_mut(host).unsynced.pop_first() {
            // Making room for older bytes may make names durable and so free nameless files; this pin keeps the file
            // itself.
            self.files.get_mut(no).opens += 1;
            let filled = self.files.get(no).unsynced.filled.clone();
            self.files.get_mut(no).unsynced.blocks.retain(|index, _| !filled.contains(index));
            self.lose_shares(no);
            let UnsyncedState { blocks, length, modified, .. } = std::mem::take(&mut self.files.get_mut(no).unsynced);
            if let Some(length) = length.filter(|_| self.dice.one_in(2)) {
                self.lose_length(no, length);
            }
            // Where the modification time tells a punched hole from one that a share has left, both are durable
            // together or not at all.
            let changed: Vec<u64> =
                if self.shares_in_two_steps() { blocks.keys().copied().collect() } else { Vec::new() };
            let is_hole = |world: &World| changed.iter().any(|index| world.content_at(no, *index).is_none());
            let was_hole = is_hole(self);
            self.lose_blocks(no, blocks);
            let is_older = self.dice.one_in(2) && !was_hole && !is_hole(self);
            let file = self.files.get_mut(no);
            if is_older {
                file.modified = modified;
            }
            if self.options.habits.loss_changes_times {
                self.touch(host, no);
            }
            let file = self.files.get_mut(no);
            file.unsynced.modified = file.modified;
            file.opens -= 1;
            self.reap(no);
        }
    }

    fn lose_length(&mut self, no: FileNo, length: u64) {
        let whole = length.div_ceil(BLOCK_BYTES_U64);
        let dropped: Vec<u64> = self.files.get(no).map.indices_from(whole);
        dropped.into_iter().for_each(|index| self.remap(no, index, None));
        let file = self.files.get_mut(no);
        let is_shorter = length < file.length;
        file.length = length;
        self.reference.set_length(no, length);
        self.changes.push(StepChange::Length(no));
        if is_shorter && let Some(content) = self.content_at(no, length / BLOCK_BYTES_U64).cloned() {
            self.lose_block(no, length / BLOCK_BYTES_U64, Some(content));
        }
    }

    fn lose_blocks(&mut self, no: FileNo, blocks: BTreeMap<u64, Option<Content>>) {
        let count = self.files.get(no).block_count();
        for (index, durable) in blocks {
            if index < count && self.dice.one_in(2) {
                self.counters.blocks_lost += 1;
                let is_zeroed = self.dice.one_in(8);
                self.lose_block(no, index, durable.filter(|_| !is_zeroed));
            }
        }
    }

    /// Restores a block's earlier content, as far as the file's length includes it.
    fn lose_block(&mut self, no: FileNo, index: u64, durable: Option<Content>) {
        let left = self.files.get(no).length - index * BLOCK_BYTES_U64;
        let durable = match (durable, usize::try_from(left)) {
            (Some(content), Ok(left)) if left < content.len() => Some(cut(&content, left)),
            (durable, _) => durable,
        };
        // Without room for the older bytes, the block becomes zeros.
        let found = match self.replace_block(no, index, durable.clone()) {
            Ok(()) => durable,
            Err(_) => {
                self.remap(no, index, None);
                None
            }
        };
        self.reference.set(no, index, found);
    }

    /// Makes other hosts' changes of names in a folder durable, and all that they did before, as a host is about to use
    /// or change names there.
    pub(super) fn settle_names(&mut self, host: HostNo, folder: FolderNo) {
        let Some(other) = self.names.folder(folder).changed_by.filter(|by| *by != host) else { return };
        let unsynced = &self.machine(other).unsynced_names;
        let last = unsynced.iter().rposition(|names| names.folders().any(|touched| touched == folder));
        let count = last.expect("a folder knows how many changes of it are unsynced") + 1;
        self.settle_first_names(other, count);
    }

    /// Makes all names durable; returns whether any were not.
    pub(super) fn settle_all_names(&mut self) -> bool {
        let mut any = false;
        for host in self.hosts() {
            any |= !self.machine(host).unsynced_names.is_empty();
            self.settle_first_names(host, usize::MAX);
        }
        any
    }

    /// Adds to the changes that a crash of the host may undo, and drops those that have become durable by their age.
    pub(super) fn note_names(&mut self, host: HostNo, names: UnsyncedNames) {
        for folder in names.folders() {
            let folder = self.names.folder_mut(folder);
            folder.changed_by = Some(host);
            folder.changes += 1;
        }
        self.machine_mut(host).unsynced_names.push_back(names);
        self.settle_old_names(host);
    }

    fn settle_old_names(&mut self, host: HostNo) {
        let since = self.time.load(Ordering::Relaxed).saturating_sub(nanoseconds(self.options.names_unsynced_max));
        let count = self.machine(host).unsynced_names.iter().take_while(|names| names.at < since).count();
        self.settle_first_names(host, count);
    }

    /// Makes the first `count` of a host's changes of names durable.
    fn settle_first_names(&mut self, host: HostNo, count: usize) {
        for _ in 0..count {
            let Some(names) = self.machine_mut(host).unsynced_names.pop_front() else { break };
            self.release_folders(&names);
            for change in names.changes {
                if let Some(NameTarget::File(no)) = change.before {
                    self.files.get_mut(no).pins -= 1;
                    self.reap(no);
                }
            }
        }
    }

    fn release_folders(&mut self, names: &UnsyncedNames) {
        for folder in names.folders() {
            let folder = self.names.folder_mut(folder);
            folder.changes -= 1;
            if folder.changes == 0 {
                folder.changed_by = None;
            }
        }
    }

    /// Undoes the changes of names of a crashed host from a random point on.
    pub(super) fn lose_names(&mut self, host: HostNo) {
        self.settle_old_names(host);
        let kept = self.dice.index(self.machine(host).unsynced_names.len() + 1);
        self.settle_first_names(host, kept);
        while let Some(names) = self.machine_mut(host).unsynced_names.pop_back() {
            self.counters.names_lost += 1;
            self.release_folders(&names);
            for change in names.changes.into_iter().rev() {
                self.set_entry(change.folder, &change.name, change.before, true);
                if let Some(NameTarget::File(no)) = change.before {
                    self.files.get_mut(no).pins -= 1;
                }
                if let Some(NameTarget::File(no)) = change.after {
                    self.reap(no);
                }
            }
        }
    }
}
