//! Merges a shard and its news, in order of their digests.

use std::collections::BTreeSet;
use std::io;
use std::iter::Peekable;
use std::path::Path;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64, FingerprintKey};
use onefold_sort::{OrderedWriter, Row, SortWriter, SpoolReader};
use onefold_substrate::{Access, Substrate};

use super::AGAIN_BYTES;
use crate::format::entry::{ContentEntry, ContentPlace};
use crate::format::shard::{EntryCounts, ShardWriter};
use crate::format::{FingerprintPrefix, FormatError};
use crate::pace::Pace;
use crate::pass::arenas::Arenas;
use crate::pass::rows::{Candidate, Change, SeenContent, Step};
use crate::pass::slots::SlotSet;
use crate::pass::{PassError, requests};
use crate::state::shards::Shard;
use crate::state::{State, StateError};

/// Rows in order of their digests, one row ahead.
pub(super) struct Stream<'a> {
    pub(super) rows: Peekable<SpoolReader<'a>>,
}

impl Stream<'_> {
    /// Returns the next row if `is_it` says so of its first two words, which hold the digest.
    fn next_if(&mut self, is_it: impl Fn(FingerprintPrefix) -> bool) -> io::Result<Option<Row>> {
        self.rows.next_if(|row| row.as_ref().map_or(true, |row| is_it(Change::of(*row).digest))).transpose()
    }

    fn digest(&mut self) -> io::Result<Option<FingerprintPrefix>> {
        match self.rows.peek() {
            None => Ok(None),
            Some(Ok(row)) => Ok(Some(Change::of(*row).digest)),
            Some(Err(_)) => self.rows.next().transpose().map(|_| None),
        }
    }
}

/// A shard and its news, side by side.
pub(super) struct Merge<'a, 'b, S: Substrate> {
    pub(super) state: &'a State<'b, S>,
    pub(super) pace: &'a Pace<'a>,
    pub(super) changes: Stream<'a>,
    pub(super) seen: Stream<'a>,
    pub(super) planned: Stream<'a>,
    /// Places that batches hide, unless this pass has handled them.
    pub(super) hidden: Option<SortWriter>,
    /// Folder for data that does not fit into memory.
    pub(super) folder: &'a Path,
    pub(super) named: &'a mut SlotSet,
    pub(super) suspects: &'a SlotSet,
    pub(super) unneeded: &'a SlotSet,
    pub(super) keys: &'a [FingerprintKey],
    /// The arena file from which a suspect slot was read last.
    pub(super) arena: Option<(u32, S::File)>,
    /// Arena files that were looked at since this began.
    pub(super) looked_at: BTreeSet<u32>,
    pub(super) arenas: Arenas,
    pub(super) again: OrderedWriter<'a>,
    pub(super) has_changed: bool,
    pub(super) counts: EntryCounts,
    pub(super) failure: Option<Failure>,
}

/// Why a merge ended early.
pub(super) enum Failure {
    Shard(FormatError),
    Pass(PassError),
}

impl<'b, S: Substrate> Merge<'_, 'b, S> {
    pub(super) fn run(&mut self, shard: &mut Shard<'b, S>, writer: &mut ShardWriter<'b, S>) -> io::Result<()> {
        let mut next = self.next_entry(shard)?;
        loop {
            if self.pace.go_on().is_err() {
                self.failure = Some(Failure::Pass(StateError::Interrupted.into()));
                return Err(io::ErrorKind::Interrupted.into());
            }
            let change = self.changes.digest()?;
            if let Some(entry) = next.take_if(|entry| change.is_none_or(|change| entry.digest < change)) {
                self.keep(shard, writer, entry, change)?;
                next = self.next_entry(shard)?;
                continue;
            }
            let Some(digest) = change else { return Ok(()) };
            let before = match next.take_if(|entry| entry.digest == digest) {
                Some(entry) => {
                    next = self.next_entry(shard)?;
                    Some(entry.place)
                }
                None => None,
            };
            let after = self.change(digest, before)?;
            self.has_changed |= before != after;
            let Some(place) = after else { continue };
            if let ContentPlace::Shared(slot) = place {
                self.named.insert(slot);
            }
            let entry = ContentEntry { digest, place };
            self.counts.count(&entry);
            writer.push(&entry)?;
        }
    }

    /// Writes an entry, and the unchanged entries behind it before the next change at once.
    fn keep(
        &mut self,
        shard: &mut Shard<'b, S>,
        writer: &mut ShardWriter<'b, S>,
        entry: ContentEntry,
        change: Option<FingerprintPrefix>,
    ) -> io::Result<()> {
        if let ContentPlace::Shared(slot) = entry.place {
            self.named.insert(slot);
        }
        self.counts.count(&entry);
        writer.push(&entry)?;
        let stretch = match shard.take_below(change) {
            Ok(stretch) => stretch,
            Err(why) => {
                self.failure = Some(Failure::Shard(why));
                return Err(io::ErrorKind::InvalidData.into());
            }
        };
        writer.push_stretch(&stretch)?;
        self.counts += stretch.counts();
        if stretch.counts().shared > 0 {
            for entry in stretch.entries() {
                if let ContentPlace::Shared(slot) = entry.place {
                    self.named.insert(slot);
                }
            }
        }
        Ok(())
    }

    /// Returns the new place of an entry.
    fn change(&mut self, digest: FingerprintPrefix, before: Option<ContentPlace>) -> io::Result<Option<ContentPlace>> {
        let (mut after, mut dropped) = (before, None);
        // Whether this pass has seen, or shared with, another place than the index will have.
        let mut is_apart = false;
        let mut put = None;
        while let Some(row) = self.changes.next_if(|next| next == digest)? {
            match Change::of(row).step {
                Step::Drop(place) => {
                    dropped = Some(place);
                    if before == Some(place) && !self.is_taken_back(place)? {
                        after = None;
                    }
                }
                Step::Put(place) => put = Some(place),
                Step::Agree(place) if before == Some(place) => {
                    if self.holds_something_else(place, digest) {
                        // The place that was seen is looked at again, and put into a slot anew.
                        (after, is_apart) = (None, true);
                    }
                }
                Step::Agree(_) => is_apart = true,
            }
        }
        match (after, put) {
            (_, None) => {}
            (None, Some(place)) => after = Some(place),
            (Some(there), Some(place)) if there == place => {}
            // Another host has seen it at another place meanwhile.
            (Some(ContentPlace::Unique(file, block)), Some(ContentPlace::Shared(slot))) => {
                self.look_again(Candidate { file, block, digest })?;
                after = Some(ContentPlace::Shared(slot));
            }
            (Some(_), Some(ContentPlace::Unique(file, block))) => self.look_again(Candidate { file, block, digest })?,
            // Another host has put it into the arena, too.
            (Some(ContentPlace::Shared(_)), Some(ContentPlace::Shared(_))) => {
                is_apart = true;
                if let Some(ContentPlace::Unique(file, block)) = dropped {
                    self.look_again(Candidate { file, block, digest })?;
                }
            }
        }
        while let Some(row) = self.seen.next_if(|next| next <= digest)? {
            let SeenContent { digest: seen, file, block } = SeenContent::of(row);
            if is_apart && seen == digest {
                self.look_again(Candidate { file, block, digest })?;
            }
        }
        Ok(after)
    }

    /// Returns whether another file refers again to a slot that only the arena had when the plan was made.
    fn is_taken_back(&mut self, place: ContentPlace) -> io::Result<bool> {
        let ContentPlace::Shared(slot) = place else { return Ok(false) };
        if self.unneeded.contains(slot) {
            return Ok(false);
        }
        if self.looked_at.insert(slot.arena())
            && let Err(error) = self.arenas.look_at(self.state, slot.arena())
        {
            self.failure = Some(Failure::Pass(error));
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(self.arenas.wanted.contains(slot))
    }

    /// Returns whether a slot from which some block differed is known to hold another content than its entry says. A
    /// host that had lost its lock has filled it, or the arena file was damaged. Nothing could ever share with it.
    fn holds_something_else(&mut self, place: ContentPlace, digest: FingerprintPrefix) -> bool {
        let ContentPlace::Shared(slot) = place else { return false };
        if !self.suspects.contains(slot) {
            return false;
        }
        if self.arena.as_ref().is_none_or(|(number, _)| *number != slot.arena()) {
            let opened = self.state.open_arena(slot.arena(), Access::Read);
            self.arena = opened.ok().flatten().map(|file| (slot.arena(), file));
        }
        let Some((_, file)) = &self.arena else { return false };
        let mut bytes = [0; BLOCK_BYTES];
        self.pace.read(BLOCK_BYTES_U64);
        // A slot that cannot be read is not known to be wrong.
        let read = self.state.substrate().read_at(file, slot.index() * BLOCK_BYTES_U64, &mut bytes);
        // The entry does not say to which domain it belongs. There are few domains, and few slots are looked at.
        let is_it = |key: &FingerprintKey| FingerprintPrefix::of(key.fingerprint(&bytes)) == digest;
        let is_wrong = read.is_ok_and(|count| count < BLOCK_BYTES || !self.keys.iter().any(is_it));
        if is_wrong {
            // It is emptied, like all slots that no entry names.
            self.named.remove(slot);
        }
        is_wrong
    }

    fn look_again(&mut self, place: Candidate) -> io::Result<()> {
        self.again.push(place.row())
    }

    fn next_entry(&mut self, shard: &mut Shard<'b, S>) -> io::Result<Option<ContentEntry>> {
        let next = shard.next_entry().map_err(|why| {
            self.failure = Some(Failure::Shard(why));
            io::Error::from(io::ErrorKind::InvalidData)
        })?;
        if let Some(hidden) = shard.take_hidden() {
            self.note_hidden(hidden)?;
        }
        Ok(next)
    }

    /// Keeps a place that a batch hides, unless this pass has handled it.
    fn note_hidden(&mut self, ContentEntry { digest, place }: ContentEntry) -> io::Result<()> {
        let ContentPlace::Unique(file, block) = place else { return Ok(()) };
        let mut is_planned = false;
        while let Some(row) = self.planned.next_if(|planned| planned <= digest)? {
            is_planned |= Change::of(row) == Change { digest, step: Step::Drop(place) };
        }
        if is_planned {
            return Ok(());
        }
        let hidden = self.hidden.get_or_insert_with(|| SortWriter::new(self.folder, AGAIN_BYTES));
        hidden.push(Candidate { file, block, digest }.row())
    }

    /// Writes merge requests for places.
    pub(super) fn request(&mut self, places: onefold_sort::Merge) -> io::Result<()> {
        requests::write(self.state, places).map_err(|error| {
            self.failure = Some(Failure::Pass(error));
            io::ErrorKind::Interrupted.into()
        })
    }
}
