//! The last step: brings the changes into the index, shard by shard.
//!
//! Only now a shard is locked, and only for the time that it takes to write it anew. So hosts that share at the same
//! time do not wait for each other. Other hosts may have published since the plan was made, and their entries are kept.
//! If both have found the same content, the places of this pass become merge requests, so that the next pass brings
//! them together with the entry of the other host.
//!
//! A batch hides the entry that the shard beside it has for the same content. When the batch is merged into the shard,
//! the hidden place is dropped. Only the pass that made the batch knows whether it has shared that place. For all other
//! passes, the place becomes a merge request, before a generation without it is published.

mod merge;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use onefold_block::{Clock, FingerprintKey};
use onefold_sort::{OrderedWriter, SortWriter, Spool};
use onefold_substrate::Substrate;

use self::merge::{Failure, Merge, Stream};
use super::PassError;
use super::arenas::Arenas;
use super::slots::SlotSet;
use crate::format::FormatError;
use crate::format::entry::ENTRY_BYTES_MAX;
use crate::format::prefix::Prefix;
use crate::format::shard::EntryCounts;
use crate::pace::Pace;
use crate::state::State;
use crate::state::batches::SharedBatches;
use crate::state::locks::Subject;
use crate::state::shards::{NextGeneration, PublishOutcome, Shard};

/// Pause between two attempts to take a lock.
pub(super) const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of attempts. If a host has not released the lock by then, it is suspended, or dead and not known to
/// be. The name of a shard's next generation is taken only once, whichever host has the lock.
pub(super) const LOCK_TRIES: u32 = 600;
/// Maximum number of times that a shard is written only to find another host first. Then the logs are left for another
/// time.
const PUBLISH_TRIES: u32 = 20;

/// Memory for places that are looked at again, in bytes. There are few, unless hosts begin at the same time.
const AGAIN_BYTES: usize = 1 << 20;

/// A shard's generation and its contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardFacts {
    pub(super) generation: u64,
    pub(super) counts: EntryCounts,
    pub(super) bytes: u64,
}

/// The shards whose named slots are all known.
pub(super) type KnownShards = BTreeMap<Prefix, ShardFacts>;

/// Changes for the index.
pub(super) struct News<'a> {
    /// Changes in order of the digests.
    pub(super) changes: &'a Spool,
    /// The changes that this pass has planned, in order of the digests. It has handled the places that they drop.
    pub(super) planned: &'a Spool,
    /// All places that were seen, in order of the digests.
    pub(super) seen: &'a Spool,
    /// Slots that may hold the wrong content.
    pub(super) suspects: &'a SlotSet,
    /// Slots to which no file refers, and to which no file can come to refer until this is over.
    pub(super) unneeded: &'a SlotSet,
    /// The keys of all domains.
    pub(super) keys: &'a [FingerprintKey],
    /// Whether the entries of batches are merged into all shards, and the batches are removed.
    pub(super) merges: bool,
    /// Maximum number of entries of a shard, beyond which it is split.
    pub(super) entries_max: u64,
    /// Folder for data that does not fit into memory.
    pub(super) folder: &'a Path,
    /// Limits on the effort.
    pub(super) pace: &'a Pace<'a>,
}

/// Brings the news into the index. Returns false if other hosts published first each time, so that not all of it is
/// there.
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
            ahead.push_back(PendingShard { prefix, locked: 0, late: 0 });
        }
    }
    // Number of consecutive shards that were locked.
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
struct PendingShard {
    prefix: Prefix,
    /// How often other hosts had its lock.
    locked: u32,
    /// How often other hosts published first.
    late: u32,
}

struct Publisher<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    news: &'a News<'a>,
    known: &'a mut KnownShards,
    named: &'a mut SlotSet,
    again: &'a mut SortWriter,
    /// Whether the entries of batches go into the shards.
    merges: bool,
    /// The batches that were opened.
    opened: Option<SharedBatches<'b, S>>,
}

impl<'b, S: Substrate> Publisher<'_, 'b, S> {
    /// Publishes the news of some digests. Returns false if another host published first.
    fn publish_within(&mut self, within: Prefix) -> Result<bool, PassError> {
        // The shard may have been split, or merged with others, since the plan was made.
        let (shards, batches) = self.state.open_index(within, &mut self.opened)?;
        if self.state.take_loss() {
            // A new generation would hide that its other entries are gone.
            return Err(PassError::Index { prefix: within, why: FormatError::Damaged("it was dropped") });
        }
        for shard in shards {
            let narrower = if within.covers(shard.prefix) { shard.prefix } else { within };
            if !self.publish_shard(shard, narrower)? {
                return Ok(false);
            }
        }
        // A batch that was published meanwhile hides the entries that this pass puts beside it, so their places have to
        // be looked at again.
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
        let next = NextGeneration { prefix, generation, is_split };
        let published = self.state.publish_shard(next, |writer| {
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
            PublishOutcome::Late => return Ok(false),
            PublishOutcome::Done(published) => (generation, published.counts, published.bytes),
            PublishOutcome::Unneeded => (shard.generation, counts, shard.bytes),
        };
        for place in again.finish()? {
            self.again.push(place?)?;
        }
        self.known.retain(|other, _| !other.covers(prefix) && !prefix.covers(*other));
        self.known.insert(prefix, ShardFacts { generation, counts, bytes });
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
