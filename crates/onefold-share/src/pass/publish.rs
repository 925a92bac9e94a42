//! The last step: what has changed is brought into the index, shard by shard.
//!
//! Only now a shard is locked, and only for the time that it takes to write it anew. So hosts that share at the same time do
//! not wait for each other. Other hosts may have published since the plan was made: what they have put in is kept, and
//! where both have found the same content, the places of this pass become merge requests, so that the next pass over them
//! meets what the other host has put in.
//!
//! A batch hides what the shard beside it says of the same content. Where the batch goes into the shard, a place that it hides is
//! dropped. Only the pass that made the batch knows whether it has shared there. For all others the place becomes a merge request, before
//! the generation is published that does without it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::iter::Peekable;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64, Clock, FingerprintKey};
use onefold_sort::{OrderedWriter, Row, SortWriter, Spool, SpoolReader};
use onefold_substrate::{Access, Substrate};

use super::arenas::Arenas;
use super::rows::{Candidate, Change, Seen, Step};
use super::slots::SlotSet;
use super::{PassError, requests};
use crate::format::entry::{ENTRY_BYTES_MAX, Entry, Place};
use crate::format::prefix::Prefix;
use crate::format::shard::{EntryCounts, ShardWriter};
use crate::format::{FingerprintPrefix, FormatError};
use crate::pace::Pace;
use crate::state::batches::SharedBatches;
use crate::state::locks::Subject;
use crate::state::shards::{Published, Shard};
use crate::state::{State, StateError};

/// How long a pass waits before it looks again for what others work on.
pub(super) const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// As often it looks. Whoever has not let go by then is suspended, or dead and not known to be: the name of a
/// shard's next generation is taken once, whoever has the lock.
pub(super) const LOCK_TRIES: u32 = 600;
/// As often a shard is written for the others to be first. Then the logs are left for another time.
const PUBLISH_TRIES: u32 = 20;

/// Memory for places that are looked at again, in bytes. There are few, but for hosts that begin at the same time.
const AGAIN_BYTES: usize = 1 << 20;

/// A shard's generation and what it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) generation: u64,
    pub(super) counts: EntryCounts,
    pub(super) bytes: u64,
}

/// The shards of which all slots are known that they name.
pub(super) type KnownShards = BTreeMap<Prefix, Known>;

/// What is brought into the index.
pub(super) struct News<'a> {
    /// In order of the digests.
    pub(super) changes: &'a Spool,
    /// What this pass has planned, in order of the digests: it has seen to the places that it drops.
    pub(super) planned: &'a Spool,
    /// All places that were seen, in order of the digests.
    pub(super) seen: &'a Spool,
    /// Slots that may not hold what they should.
    pub(super) suspects: &'a SlotSet,
    /// Slots that nobody refers to, and nobody can come to refer to until this is over.
    pub(super) unneeded: &'a SlotSet,
    /// The keys of all domains.
    pub(super) keys: &'a [FingerprintKey],
    /// Whether what batches hold is brought into all shards, and they go.
    pub(super) merges: bool,
    /// A shard with more entries is split.
    pub(super) entries_max: u64,
    /// For what does not fit into memory.
    pub(super) folder: &'a Path,
    /// How hard it works.
    pub(super) pace: &'a Pace<'a>,
}

/// Brings the news into the index. Returns false where other hosts were always first, so that not all of it is there.
///
/// Slots that published shards name go into `named`, places that have to be looked at again into `again`.
pub(super) fn publish<S: Substrate>(
    state: &State<'_, S>,
    clock: &dyn Clock,
    news: &News<'_>,
    known: &mut KnownShards,
    named: &mut SlotSet,
    again: &mut SortWriter,
) -> Result<bool, PassError> {
    let batches = state.open_batches()?;
    let merged: BTreeSet<u64> = batches.numbers().collect();
    let merges = news.merges && batches.has_entries();
    let opened = Some(Rc::new(RefCell::new(batches)));
    let mut publisher = Publisher { state, news, known, named, again, merges, opened };
    let mut ahead = VecDeque::new();
    for prefix in publisher.known.keys().copied() {
        if merges || !publisher.rows(news.changes, prefix)?.is_empty() {
            ahead.push_back(Ahead { prefix, locked: 0, late: 0 });
        }
    }
    // How many in a row were locked.
    let mut locked = 0;
    while let Some(mut next) = ahead.pop_front() {
        news.pace.boundary()?;
        let lock = state.try_lock(&Subject::Shard(next.prefix))?;
        if lock.is_none() && next.locked < LOCK_TRIES {
            next.locked += 1;
            locked += 1;
            ahead.push_back(next);
            if locked >= ahead.len() {
                clock.sleep(LOCK_PAUSE);
                news.pace.waited();
                locked = 0;
            }
            continue;
        }
        locked = 0;
        if !publisher.publish_within(next.prefix)? {
            next.late += 1;
            if next.late == PUBLISH_TRIES {
                return Ok(false);
            }
            ahead.push_back(next);
        }
    }
    if merges {
        state.remove_batches(&merged)?;
    }
    Ok(true)
}

/// A shard that is to be published.
struct Ahead {
    prefix: Prefix,
    /// How often others had it.
    locked: u32,
    /// How often others were first.
    late: u32,
}

struct Publisher<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    news: &'a News<'a>,
    known: &'a mut KnownShards,
    named: &'a mut SlotSet,
    again: &'a mut SortWriter,
    /// Whether what batches hold goes into the shards.
    merges: bool,
    /// Batches, as far as they were read.
    opened: Option<SharedBatches<'b, S>>,
}

impl<'b, S: Substrate> Publisher<'_, 'b, S> {
    /// Publishes the news of some digests. Returns false where another host was first.
    fn publish_within(&mut self, within: Prefix) -> Result<bool, PassError> {
        // It may have been split, or be a part of a whole again, since the plan was made.
        let (shards, batches) = self.state.open_index(within, &mut self.opened)?;
        if self.state.take_loss() {
            // A new generation would hide that the others of its entries are gone.
            return Err(PassError::Index { prefix: within, why: FormatError::Damaged("it was dropped") });
        }
        for shard in shards {
            let narrower = if within.covers(shard.prefix) { shard.prefix } else { within };
            if !self.publish_shard(shard, narrower)? {
                return Ok(false);
            }
        }
        // What this pass has put in beside a batch that came meanwhile is hidden by it: it has to be looked at again.
        let batches: BTreeSet<u64> = batches.borrow().numbers().collect();
        Ok(self.state.batch_numbers()?.is_subset(&batches))
    }

    /// Publishes the next generation of a shard with the news of the digests that begin with `within`.
    fn publish_shard(&mut self, mut shard: Shard<'b, S>, within: Prefix) -> Result<bool, PassError> {
        let changes = self.rows(self.news.changes, within)?;
        if changes.is_empty() && !self.merges {
            return Ok(true);
        }
        let (prefix, generation) = (shard.prefix, shard.generation + 1);
        let entries = shard.bytes / ENTRY_BYTES_MAX as u64 + (changes.end - changes.start);
        let is_split = entries > self.news.entries_max && prefix.halves().is_some();
        let seen = self.rows(self.news.seen, within)?;
        let planned = self.rows(self.news.planned, prefix)?;
        let mut merge = Merge {
            state: self.state,
            pace: self.news.pace,
            changes: Stream { rows: self.news.changes.read(changes.start, changes.end).peekable() },
            seen: Stream { rows: self.news.seen.read(seen.start, seen.end).peekable() },
            planned: Stream { rows: self.news.planned.read(planned.start, planned.end).peekable() },
            hidden: None,
            folder: self.news.folder,
            named: &mut *self.named,
            suspects: self.news.suspects,
            unneeded: self.news.unneeded,
            keys: self.news.keys,
            arena: None,
            looked_at: BTreeSet::new(),
            arenas: Arenas::default(),
            again: OrderedWriter::new(self.news.folder, AGAIN_BYTES),
            has_changed: false,
            counts: EntryCounts::default(),
            failure: None,
        };
        let merges = self.merges;
        let published = self.state.publish_shard((prefix, generation), is_split, |writer| {
            merge.run(&mut shard, writer)?;
            let is_needed = merge.has_changed || merges && shard.batched_entries() > 0;
            if is_needed && let Some(places) = merge.hidden.take() {
                merge.request(places.finish()?)?;
            }
            Ok(is_needed.then_some(()))
        });
        let Merge { again, counts, failure, .. } = merge;
        match failure {
            Some(Failure::Shard(FormatError::Io(error))) => return Err(error.into()),
            Some(Failure::Shard(why)) => return Err(PassError::damaged(self.state, &shard, why)?),
            Some(Failure::Pass(error)) => return Err(error),
            None => {}
        }
        let (generation, counts, bytes) = match published? {
            Published::Late => return Ok(false),
            Published::Done(published) => (generation, published.counts, published.bytes),
            Published::Unneeded => (shard.generation, counts, shard.bytes),
        };
        for place in again.finish()? {
            self.again.push(place?)?;
        }
        self.known.retain(|other, _| !other.covers(prefix) && !prefix.covers(*other));
        self.known.insert(prefix, Known { generation, counts, bytes });
        Ok(true)
    }

    fn rows(&self, spool: &Spool, prefix: Prefix) -> io::Result<Range<u64>> {
        let from = spool.lower_bound(prefix.first_word())?;
        let to = match prefix.last_word().checked_add(1) {
            Some(word) => spool.lower_bound(word)?,
            None => spool.len(),
        };
        Ok(from..to)
    }
}

/// Rows in order of their digests, one ahead.
struct Stream<'a> {
    rows: Peekable<SpoolReader<'a>>,
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

/// A shard and the news of it, side by side.
struct Merge<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    pace: &'a Pace<'a>,
    changes: Stream<'a>,
    seen: Stream<'a>,
    planned: Stream<'a>,
    /// Places that batches hide, and that this pass has not seen to.
    hidden: Option<SortWriter>,
    /// For what does not fit into memory.
    folder: &'a Path,
    named: &'a mut SlotSet,
    suspects: &'a SlotSet,
    unneeded: &'a SlotSet,
    keys: &'a [FingerprintKey],
    /// The arena file that a suspect was read from last.
    arena: Option<(u32, S::File)>,
    /// Arena files that were looked at since this began.
    looked_at: BTreeSet<u32>,
    arenas: Arenas,
    again: OrderedWriter<'a>,
    has_changed: bool,
    counts: EntryCounts,
    failure: Option<Failure>,
}

/// Why a merge ended early.
enum Failure {
    Shard(FormatError),
    Pass(PassError),
}

impl<'b, S: Substrate> Merge<'_, 'b, S> {
    fn run(&mut self, shard: &mut Shard<'b, S>, writer: &mut ShardWriter<'b, S>) -> io::Result<()> {
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
            if let Place::Shared(slot) = place {
                self.named.insert(slot);
            }
            let entry = Entry { digest, place };
            self.counts.count(&entry);
            writer.push(&entry)?;
        }
    }

    /// Writes down an entry, and those behind it at once that stay as they are, too: all before the next change.
    fn keep(
        &mut self,
        shard: &mut Shard<'b, S>,
        writer: &mut ShardWriter<'b, S>,
        entry: Entry,
        change: Option<FingerprintPrefix>,
    ) -> io::Result<()> {
        if let Place::Shared(slot) = entry.place {
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
                if let Place::Shared(slot) = entry.place {
                    self.named.insert(slot);
                }
            }
        }
        Ok(())
    }

    /// Returns what becomes of an entry.
    fn change(&mut self, digest: FingerprintPrefix, before: Option<Place>) -> io::Result<Option<Place>> {
        let (mut after, mut dropped) = (before, None);
        // Whether what this pass has seen, or shared with, is not what the index will say.
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
                        // What was seen is looked at again, and put into a slot anew.
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
            (Some(Place::Unique(file, block)), Some(Place::Shared(slot))) => {
                self.look_again(Candidate { file, block, digest })?;
                after = Some(Place::Shared(slot));
            }
            (Some(_), Some(Place::Unique(file, block))) => self.look_again(Candidate { file, block, digest })?,
            // Another host has put it into the arena, too.
            (Some(Place::Shared(_)), Some(Place::Shared(_))) => {
                is_apart = true;
                if let Some(Place::Unique(file, block)) = dropped {
                    self.look_again(Candidate { file, block, digest })?;
                }
            }
        }
        while let Some(row) = self.seen.next_if(|next| next <= digest)? {
            let Seen { digest: seen, file, block } = Seen::of(row);
            if is_apart && seen == digest {
                self.look_again(Candidate { file, block, digest })?;
            }
        }
        Ok(after)
    }

    /// Tells whether somebody refers to a slot again that only the arena had when the plan was made.
    fn is_taken_back(&mut self, place: Place) -> io::Result<bool> {
        let Place::Shared(slot) = place else { return Ok(false) };
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

    /// Tells whether a slot that something differed from is known to hold another content than its entry says: a host that
    /// had lost its lock has filled it, or the arena file was damaged. Nobody could ever share with it.
    fn holds_something_else(&mut self, place: Place, digest: FingerprintPrefix) -> bool {
        let Place::Shared(slot) = place else { return false };
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
        // What cannot be read is not known to be wrong.
        let read = self.state.substrate().read_at(file, slot.index() * BLOCK_BYTES_U64, &mut bytes);
        // Which domain the entry is of, it does not say. There are few, and few slots are looked at.
        let is_it = |key: &FingerprintKey| FingerprintPrefix::of(key.fingerprint(&bytes)) == digest;
        let is_wrong = read.is_ok_and(|count| count < BLOCK_BYTES || !self.keys.iter().any(is_it));
        if is_wrong {
            // It is emptied, like all that no entry names.
            self.named.remove(slot);
        }
        is_wrong
    }

    fn look_again(&mut self, place: Candidate) -> io::Result<()> {
        self.again.push(place.row())
    }

    fn next_entry(&mut self, shard: &mut Shard<'b, S>) -> io::Result<Option<Entry>> {
        let next = shard.next_entry().map_err(|why| {
            self.failure = Some(Failure::Shard(why));
            io::Error::from(io::ErrorKind::InvalidData)
        })?;
        if let Some(hidden) = shard.take_hidden() {
            self.note_hidden(hidden)?;
        }
        Ok(next)
    }

    /// Keeps a place that a batch hides, unless this pass has seen to it.
    fn note_hidden(&mut self, Entry { digest, place }: Entry) -> io::Result<()> {
        let Place::Unique(file, block) = place else { return Ok(()) };
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
    fn request(&mut self, places: onefold_sort::Merge) -> io::Result<()> {
        requests::write(self.state, places).map_err(|error| {
            self.failure = Some(Failure::Pass(error));
            io::ErrorKind::Interrupted.into()
        })
    }
}
