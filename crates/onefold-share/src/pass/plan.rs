//! The merge: index and new digests side by side, both in order of the digests, once. Decides what is to be done with each
//! content; does nothing yet.
//!
//! DeDe's transitions (section 3.2, Figure 4) are decided here: absent to unique, unique to shared, shared to shared, and
//! what is dropped of the index. The first place where a content was seen by this pass goes into the arena rather than
//! the one that the index knows: it was read more recently.

use std::io;
use std::path::Path;
use std::vec;

use onefold_sort::{Batch, Ordered, OrderedWriter, Spool, SpoolReader};
use onefold_substrate::Substrate;

use super::PassError;
use super::arenas::Arenas;
use super::images::Images;
use super::rows::{Candidate, Change, Other, Seen, Source, Step, Target};
use super::slots::SlotSet;
use super::written::WrittenRanges;
use crate::format::entry::{Entry, Place};
use crate::format::shard::{EntryCounts, Stretch};
use crate::format::{FingerprintPrefix, FormatError};
use crate::pace::Pace;
use crate::state::State;
use crate::state::shards::Shard;

/// What the plan looks at.
pub(super) struct Sources<'a, 'b, S: Substrate> {
    pub(super) state: &'a State<'b, S>,
    /// All of the index, in order, with what batches hold.
    pub(super) shards: Vec<Shard<'b, S>>,
    /// In order of the digests.
    pub(super) seen: &'a Spool,
    pub(super) written: &'a WrittenRanges,
    /// As they were after the shards were opened.
    pub(super) arenas: &'a Arenas,
}

/// Where the plan puts what is to be done.
pub(super) struct Sinks<'a, 'b> {
    /// For lists that are read in the order in which they are written.
    pub(super) folder: &'a Path,
    pub(super) memory_bytes: usize,
    pub(super) candidates: &'a mut Batch<'b>,
    /// Places that are to share with what becomes of the candidates.
    pub(super) others: &'a mut Batch<'b>,
    pub(super) targets: &'a mut Batch<'b>,
    /// Places in files outside of the selection whose entries go to a place inside.
    pub(super) requests: &'a mut Batch<'b>,
    /// Slots that entries name which stay as they are.
    pub(super) named: &'a mut SlotSet,
    /// Slots that entries name which are to be dropped.
    pub(super) dropped: &'a mut SlotSet,
}

/// What is to be done.
pub(super) struct Plan {
    /// What becomes of entries, in order of their digests.
    pub(super) changes: Ordered,
    pub(super) counts: PlanCounts,
    /// How many entries each shard has.
    pub(super) entries: Vec<EntryCounts>,
}

/// How often each transition was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanCounts {
    /// Contents that are new to the index.
    pub new: u64,
    /// Contents that are to get a slot.
    pub promoted: u64,
    /// Places that are to share with one.
    pub targets: u64,
    /// Entries dropped because what they name was overwritten, or is gone.
    pub stale: u64,
    /// Entries dropped because nobody but the arena had the block.
    pub collected: u64,
    /// Places that belong to another host.
    pub elsewhere: u64,
    /// Places in files outside of the selection: a run that includes them shares there.
    pub outside: u64,
}

pub(super) fn plan<S: Substrate>(
    images: &mut Images<'_, '_, S>,
    sources: Sources<'_, '_, S>,
    sinks: Sinks<'_, '_>,
    pace: &Pace<'_>,
) -> Result<Plan, PassError> {
    let Sources { state, shards, seen, written, arenas } = sources;
    let changes = OrderedWriter::new(sinks.folder, sinks.memory_bytes);
    let mut planner = Planner { changes, sinks, written, arenas, counts: PlanCounts::default() };
    let mut entries = Entries { state, shards: shards.into_iter(), shard: None, counts: Vec::new(), next: None };
    entries.advance()?;
    let mut seen = SeenStream { rows: seen.read(0, u64::MAX), next: None };
    seen.advance()?;
    loop {
        pace.boundary()?;
        let next = seen.next.map(|seen| seen.digest);
        if let Some(entry) = entries.next.take_if(|entry| next.is_none_or(|next| entry.digest < next)) {
            planner.decide_unseen(images, entry)?;
            // Most entries are of contents that were not seen, so that many of these follow on each other.
            let others = match entries.take_below(next) {
                Ok(others) => others,
                Err(why) => return Err(entries.failed(why)?),
            };
            for entry in others.entries() {
                planner.decide_unseen(images, entry)?;
            }
            entries.advance()?;
            continue;
        }
        let Some(digest) = next else { break };
        let entry = entries.next.take_if(|entry| entry.digest == digest);
        if entry.is_some() {
            entries.advance()?;
        }
        planner.decide(images, digest, entry.map(|entry| entry.place), &mut seen)?;
    }
    Ok(Plan { changes: planner.changes.finish()?, counts: planner.counts, entries: entries.counts })
}

/// The index, one entry ahead.
struct Entries<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    shards: vec::IntoIter<Shard<'b, S>>,
    /// The one that is being read.
    shard: Option<Shard<'b, S>>,
    /// How many entries were read of each so far.
    counts: Vec<EntryCounts>,
    next: Option<Entry>,
}

impl<S: Substrate> Entries<'_, '_, S> {
    fn advance(&mut self) -> Result<(), PassError> {
        loop {
            if let Some(shard) = &mut self.shard {
                match shard.next_entry() {
                    Ok(Some(entry)) => {
                        self.counts.last_mut().expect("one for each shard").count(&entry);
                        self.next = Some(entry);
                        return Ok(());
                    }
                    Ok(None) => {}
                    Err(why) => return Err(self.failed(why)?),
                }
            }
            self.shard = self.shards.next();
            if self.shard.is_none() {
                self.next = None;
                return Ok(());
            }
            self.counts.push(EntryCounts::default());
        }
    }

    /// Returns what comes behind the entry that was taken last, as [`Shard::take_below`].
    fn take_below(&mut self, limit: Option<FingerprintPrefix>) -> Result<Stretch<'_>, FormatError> {
        let Some(shard) = &mut self.shard else { return Ok(Stretch::default()) };
        let stretch = shard.take_below(limit)?;
        *self.counts.last_mut().expect("one for each shard") += stretch.counts();
        Ok(stretch)
    }

    /// Returns why the pass ends, now that an entry could not be read.
    fn failed(&self, why: FormatError) -> Result<PassError, PassError> {
        match (why, &self.shard) {
            (FormatError::Io(error), _) => Ok(error.into()),
            (why, Some(shard)) => PassError::damaged(self.state, shard, why),
            (why, None) => Ok(io::Error::other(why).into()),
        }
    }
}

/// What was seen, one place ahead.
struct SeenStream<'a> {
    rows: SpoolReader<'a>,
    next: Option<Seen>,
}

impl SeenStream<'_> {
    fn advance(&mut self) -> Result<(), PassError> {
        // Two logs may tell of one block, and both be right.
        let last = self.next;
        loop {
            self.next = self.rows.next().transpose()?.map(Seen::of);
            if self.next.is_none() || self.next != last {
                return Ok(());
            }
        }
    }

    /// Returns the next place of a content.
    fn take(&mut self, digest: FingerprintPrefix) -> Result<Option<Seen>, PassError> {
        let Some(seen) = self.next.filter(|seen| seen.digest == digest) else { return Ok(None) };
        self.advance()?;
        Ok(Some(seen))
    }
}

struct Planner<'a, 'b> {
    changes: OrderedWriter<'a>,
    sinks: Sinks<'a, 'b>,
    written: &'a WrittenRanges,
    arenas: &'a Arenas,
    counts: PlanCounts,
}

impl Planner<'_, '_> {
    /// Decides what is done with a content that the index knows and that was not seen.
    fn decide_unseen<S: Substrate>(&mut self, images: &mut Images<'_, '_, S>, entry: Entry) -> Result<(), PassError> {
        if !self.is_true(images, entry.place, false)? {
            if let Place::Shared(slot) = entry.place {
                self.sinks.dropped.insert(slot);
            }
            self.note_dropped(entry.place);
            self.change(entry.digest, Step::Drop(entry.place))?;
        } else if let Place::Shared(slot) = entry.place {
            self.sinks.named.insert(slot);
        }
        Ok(())
    }

    /// Decides what is done with a content that was seen, and that the index may know.
    fn decide<S: Substrate>(
        &mut self,
        images: &mut Images<'_, '_, S>,
        digest: FingerprintPrefix,
        entry: Option<Place>,
        seen: &mut SeenStream<'_>,
    ) -> Result<(), PassError> {
        let known = match entry {
            Some(place) if self.is_true(images, place, true)? => Some(place),
            _ => None,
        };
        if let Some(Place::Shared(slot)) = known {
            self.sinks.named.insert(slot);
            self.change(digest, Step::Agree(Place::Shared(slot)))?;
            while let Some(Seen { file, block, .. }) = seen.take(digest)? {
                self.counts.targets += 1;
                self.sinks.targets.push(Target { file, block, source: Source::Slot(slot) }.row())?;
            }
            return Ok(());
        }
        // The place that the index names may be seen once more; it is one place all the same.
        let mut next = || -> Result<Option<Seen>, PassError> {
            loop {
                let next = seen.take(digest)?;
                if next.is_none_or(|next| known != Some(Place::Unique(next.file, next.block))) {
                    return Ok(next);
                }
            }
        };
        let (first, second) = match next()? {
            Some(first) => (Some(first), next()?),
            None => (None, None),
        };
        let Some(first) = first else {
            // It was seen where the index has it, and nowhere else.
            return known.map_or(Ok(()), |place| self.change(digest, Step::Agree(place)));
        };
        if known.is_none() {
            self.counts.new += 1;
        }
        // Of a file outside of the selection nothing changes: should a run include it, its request brings it together with this.
        let is_apart = match known {
            Some(Place::Unique(file, _)) => !images.is_selected(file),
            _ => false,
        };
        if let Some(Place::Unique(file, block)) = known.filter(|_| is_apart && second.is_none()) {
            self.counts.outside += 1;
            self.sinks.requests.push(Candidate { file, block, digest }.row())?;
            self.change(digest, Step::Drop(Place::Unique(file, block)))?;
            return self.change(digest, Step::Put(Place::Unique(first.file, first.block)));
        }
        if known.is_none() && second.is_none() {
            let place = Place::Unique(first.file, first.block);
            if entry == Some(place) {
                return self.change(digest, Step::Agree(place));
            }
            if let Some(place) = entry {
                self.note_dropped(place);
                self.change(digest, Step::Drop(place))?;
            }
            return self.change(digest, Step::Put(place));
        }
        self.counts.promoted += 1;
        let candidate = Candidate { file: first.file, block: first.block, digest };
        self.sinks.candidates.push(candidate.row())?;
        let other_of = |file, block| Other { of: candidate.key(), file, block }.row();
        let mut other = second;
        while let Some(Seen { file, block, .. }) = other {
            self.counts.targets += 1;
            self.sinks.others.push(other_of(file, block))?;
            other = next()?;
        }
        if let Some(place) = entry {
            self.change(digest, Step::Drop(place))?;
            if known.is_none() {
                self.note_dropped(place);
            }
        }
        if let Some(Place::Unique(file, block)) = known {
            if is_apart {
                self.counts.outside += 1;
            } else if images.own(file)? {
                self.counts.targets += 1;
            } else {
                self.counts.elsewhere += 1;
            }
            // Whether it can be shared in is found out when it is its turn.
            self.sinks.others.push(other_of(file, block))?;
        }
        Ok(())
    }

    /// Tells whether what an entry says can still be so.
    fn is_true<S: Substrate>(
        &self,
        images: &mut Images<'_, '_, S>,
        place: Place,
        is_seen: bool,
    ) -> Result<bool, PassError> {
        let Arenas { filled, wanted } = self.arenas;
        Ok(match place {
            Place::Unique(file, block) => !self.written.contains(file, block) && images.may_have(file, block)?,
            // A block that only the arena has left is taken back where it is wanted again.
            Place::Shared(slot) => filled.contains(slot) && (is_seen || wanted.contains(slot)),
        })
    }

    fn note_dropped(&mut self, place: Place) {
        match place {
            Place::Shared(slot) if self.arenas.filled.contains(slot) => self.counts.collected += 1,
            _ => self.counts.stale += 1,
        }
    }

    fn change(&mut self, digest: FingerprintPrefix, step: Step) -> Result<(), PassError> {
        Ok(self.changes.push(Change { digest, step }.row())?)
    }
}
