//! Sharing in two steps, as on OCFS2: the range becomes a hole, and then refers to the source's blocks.
//!
//! Living hosts see both steps as one. A crash may leave the hole until the share is durable; so may a call that fails,
//! and even one that reports success. In this mode images are *used*: a writer opens one through its host and keeps it
//! open for a while. While it is open, the engine on the same host cannot have exclusive use of it. The image's owner
//! lock, which a door would hold, keeps out engines on other hosts.

use std::path::Path;
use std::sync::atomic::Ordering;

use onefold_block::BLOCK_BYTES_U64;

use super::content::reads_same;
use super::files::FileNo;
use super::host::{HostNo, OpenNo};
use super::names::NameTarget;
use super::options::DeclaredShare;
use super::sharing::SharedRanges;
use super::world::World;

const INTENTS: &str = ".onefold/intents";

/// An opening with exclusive use of a file, on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExclusiveOpening {
    pub(super) host: HostNo,
    pub(super) open: OpenNo,
    /// Whether a writer waits to open it.
    pub(super) is_wanted: bool,
}

impl World {
    pub(super) fn shares_in_two_steps(&self) -> bool {
        self.options.habits.shares_in_two_steps
    }

    /// Notes a share into a file: until it is durable, a crash may undo it. If it has two steps, that leaves holes.
    pub(super) fn note_shared(&mut self, host: HostNo, ranges: SharedRanges) {
        let into = ranges.into.0;
        let is_lost = match self.shares_in_two_steps() {
            true => self.files.get(into).is_image,
            false => self.options.habits.loses_shares,
        };
        if !is_lost {
            return;
        }
        self.mark_unsynced(host, into);
        let end = ranges.into.1 + ranges.count;
        self.files.get_mut(into).unsynced.shared.extend(ranges.into.1..end);
    }

    /// Returns whether a crash of a host may leave holes.
    pub(super) fn is_sharing(&self, host: HostNo) -> bool {
        self.machine(host).unsynced.iter().any(|no| {
            let unsynced = &self.files.get(*no).unsynced;
            self.shares_in_two_steps() && !unsynced.shared.is_empty() || !unsynced.filled.is_empty()
        })
    }

    /// Makes part of the rest of a failed share a hole.
    pub(super) fn leave_rest(&mut self, ranges: SharedRanges, done: u64) {
        let into = ranges.into.0;
        if !self.shares_in_two_steps() || !self.files.get(into).is_image || done == ranges.count {
            return;
        }
        let punched = 1 + self.dice.below(ranges.count - done);
        for index in ranges.into.1 + done..ranges.into.1 + done + punched {
            self.leave_hole(into, index);
        }
    }

    /// Makes a block of an image an unwanted hole.
    pub(super) fn leave_hole(&mut self, no: FileNo, index: u64) {
        let reads_zero = reads_same(self.content_at(no, index), None);
        if index < self.files.get(no).block_count() && (!reads_zero || !reads_same(self.reference.get(no, index), None))
        {
            self.left.insert((no, index));
            self.counters.holes_left += 1;
        }
        self.remap(no, index, None);
    }

    /// Ends the record of a hole, as a writer has decided the block's content. Returns whether a share had left the
    /// hole.
    pub(super) fn forget_hole(&mut self, no: FileNo, index: u64) -> bool {
        !self.left.is_empty() && self.left.remove(&(no, index))
    }

    pub(super) fn has_holes_left(&self, no: FileNo) -> bool {
        self.left.range((no, 0)..=(no, u64::MAX)).next().is_some()
    }

    /// Returns whether a block is a hole that a share has left and that can be filled: an intent names it, and its slot
    /// holds the right content.
    pub(super) fn can_be_filled(&self, no: FileNo, index: u64) -> bool {
        self.left.contains(&(no, index))
            && self.content_at(no, index).is_none()
            && self.declared().iter().any(|declared| self.fills(declared, no, index))
    }

    fn fills(&self, declared: &DeclaredShare, no: FileNo, index: u64) -> bool {
        if declared.handle != self.handle(no) {
            return false;
        }
        declared.runs.iter().any(|run| {
            let Some(within) = index.checked_sub(run.first).filter(|within| *within < run.count) else {
                return false;
            };
            let arena = self.find_file(&run.arena);
            arena
                .is_ok_and(|arena| reads_same(self.content_at(arena, run.slot + within), self.reference.get(no, index)))
        })
    }

    /// Returns all readable declarations of shares by hosts.
    fn declared(&self) -> Vec<DeclaredShare> {
        let Ok(folder) = self.names.find_folder(Path::new(INTENTS)) else { return Vec::new() };
        let files = self.names.folder(folder).entries.values();
        let read = |entry: &NameTarget| {
            let NameTarget::File(no) = entry else { return None };
            let mut bytes = vec![0; usize::try_from(self.files.get(*no).length).ok()?];
            self.read(*no, 0, &mut bytes);
            (self.options.decode_declared)(&bytes)
        };
        files.filter_map(read).collect()
    }

    /// Takes a file for one opening, unless a writer has it open on this host.
    pub(super) fn try_exclusive(&mut self, host: HostNo, open: OpenNo, no: FileNo) -> bool {
        let file = self.files.get_mut(no);
        if file.in_use == Some(host) || file.exclusive.is_some_and(|exclusive| exclusive.open != open) {
            return false;
        }
        file.exclusive = Some(ExclusiveOpening { host, open, is_wanted: false });
        true
    }

    /// Opens an image for a writer, unless an engine prevents it.
    pub(super) fn open_for_writer(&mut self, host: HostNo, no: FileNo) -> bool {
        if let Some(exclusive) = &mut self.files.get_mut(no).exclusive
            && exclusive.host == host
        {
            exclusive.is_wanted = true;
            return false;
        }
        let now = self.time.load(Ordering::Relaxed);
        let owner = self.find_file(Path::new(&format!(".onefold/locks/file.{}", self.handle(no))));
        let lock = owner.ok().and_then(|owner| self.files.get(owner).lock);
        if lock.is_some_and(|lock| lock.host != host && !lock.has_expired(now)) {
            return false;
        }
        self.files.get_mut(no).in_use = Some(host);
        true
    }

    /// Returns whether a file is the owner lock of an image that a writer has open on another host.
    pub(super) fn is_owned_elsewhere(&self, host: HostNo, lock: FileNo) -> bool {
        if !self.shares_in_two_steps() {
            return false;
        }
        let path = self.names.path_of(lock);
        let Some((_, handle)) = path.split_once(".onefold/locks/file.") else { return false };
        let user = self.files.all().find(|(no, _)| self.handle(*no).to_string() == handle);
        user.and_then(|(_, file)| file.in_use).is_some_and(|user| user != host)
    }

    /// Ends all uses of files by a crashed host.
    pub(super) fn leave_all(&mut self, host: HostNo) {
        for file in self.files.all_mut() {
            file.in_use.take_if(|user| *user == host);
            file.exclusive.take_if(|exclusive| exclusive.host == host);
        }
    }

    /// Undoes some of a crashed host's undurable shares. Those in two steps, and filled holes, become holes.
    pub(super) fn lose_shares(&mut self, no: FileNo) {
        let unsynced = &mut self.files.get_mut(no).unsynced;
        let (shared, filled) = (std::mem::take(&mut unsynced.shared), std::mem::take(&mut unsynced.filled));
        for index in shared.into_iter().chain(filled) {
            let content = self.content_at(no, index).cloned();
            if reads_same(content.as_ref(), None) || !self.dice.one_in(3) {
                continue;
            }
            if self.shares_in_two_steps() {
                self.leave_hole(no, index);
            } else if self.replace_block(no, index, content).is_ok() {
                self.counters.shares_lost += 1;
            }
        }
    }

    /// Returns a message if a whole block of an image has the wrong content and cannot be filled.
    pub(super) fn lost_hole(&self) -> Option<String> {
        let is_lost = |(no, index): &&(FileNo, u64)| {
            let is_right = reads_same(self.content_at(*no, *index), self.reference.get(*no, *index));
            !is_right && !self.can_be_filled(*no, *index)
        };
        let (no, index) = self.left.iter().find(is_lost)?;
        let bytes = index * BLOCK_BYTES_U64;
        Some(format!("nothing can fill the hole in {} at byte {bytes}", self.names.path_of(*no)))
    }
}
