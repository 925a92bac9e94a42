//! The merge: index and new digests side by side, both in order of the digests, once. Decides what is to be done with each
//! content; does nothing yet.
//!
//! DeDe's transitions (section 3.2, Figure 4) are decided here: absent to unique, unique to shared, shared to shared, and
//! what is dropped of the index. The first place where a content was seen by this pass goes into the arena rather than
//! the one that the index knows: it was read more recently.

use std::path::Path;

use onefold_block::Substrate;
use onefold_sort::{Batch, Merge, Ordered, OrderedWriter};

use super::PassError;
use super::images::Images;
use super::rows::{Candidate, Seen, Source, Target, entry_row};
use super::slots::SlotSet;
use super::written::WrittenRanges;
use crate::format::entry::{Entry, Place};
use crate::format::{Digest, FormatError};
use crate::pace::Pace;
use crate::state::shards::Index;

/// What the plan looks at.
pub(super) struct Sources<'a, S: Substrate> {
    pub(super) index: Index<'a, S>,
    pub(super) seen: Merge,
    pub(super) written: &'a WrittenRanges,
    /// Slots that hold a block.
    pub(super) filled: &'a SlotSet,
    /// Those of them that somebody else refers to, too.
    pub(super) wanted: &'a SlotSet,
}

/// Where the plan puts what is to be done.
pub(super) struct Sinks<'a, 'b> {
    /// For lists that are read in the order in which they are written.
    pub(super) folder: &'a Path,
    pub(super) memory_bytes: usize,
    pub(super) candidates: &'a mut Batch<'b>,
    pub(super) targets: &'a mut Batch<'b>,
}

/// What is to be done.
pub(super) struct Plan {
    /// Entries that stay as they are or are new, in order.
    pub(super) kept: Ordered,
    /// Places that are to share with what becomes of the candidates, in order of their digests.
    pub(super) others: Ordered,
    pub(super) counts: PlanCounts,
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
}

pub(super) fn plan<S: Substrate>(
    images: &mut Images<'_, '_, S>,
    sources: Sources<'_, S>,
    sinks: Sinks<'_, '_>,
    pace: &Pace<'_>,
) -> Result<Plan, PassError> {
    let Sinks { folder, memory_bytes, candidates, targets } = sinks;
    let [kept, others] = [(); 2].map(|()| OrderedWriter::new(folder, memory_bytes));
    let mut planner = Planner { kept, others, candidates, targets, counts: PlanCounts::default() };
    let mut entries = Entries { index: sources.index, next: None };
    entries.advance()?;
    let mut seen = SeenStream { rows: sources.seen, next: None };
    seen.advance()?;
    loop {
        pace.boundary()?;
        let digest = match (&entries.next, &seen.next) {
            (None, None) => break,
            (Some(entry), None) => entry.digest,
            (None, Some(seen)) => seen.digest,
            (Some(entry), Some(seen)) => entry.digest.min(seen.digest),
        };
        let mut known = None;
        if let Some(entry) = entries.next.take_if(|entry| entry.digest == digest) {
            entries.advance()?;
            let is_seen = seen.has(digest);
            known = planner.check(images, sources.written, sources.filled, sources.wanted, entry, is_seen)?;
        }
        planner.decide(images, digest, known, &mut seen)?;
    }
    Ok(Plan { kept: planner.kept.finish()?, others: planner.others.finish()?, counts: planner.counts })
}

/// The index, one entry ahead.
struct Entries<'a, S: Substrate> {
    index: Index<'a, S>,
    next: Option<Entry>,
}

impl<S: Substrate> Entries<'_, S> {
    fn advance(&mut self) -> Result<(), PassError> {
        let Some(entries) = &mut self.index.entries else { return Ok(()) };
        self.next = match entries.next_entry() {
            Ok(next) => next,
            Err(FormatError::Io(error)) => return Err(error.into()),
            Err(why) => return Err(PassError::Index { generation: self.index.generation, why }),
        };
        Ok(())
    }
}

/// What was seen, one place ahead.
struct SeenStream {
    rows: Merge,
    next: Option<Seen>,
}

impl SeenStream {
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

    fn has(&self, digest: Digest) -> bool {
        self.next.is_some_and(|seen| seen.digest == digest)
    }

    /// Returns the next place of a content.
    fn take(&mut self, digest: Digest) -> Result<Option<Seen>, PassError> {
        let Some(seen) = self.next.filter(|seen| seen.digest == digest) else { return Ok(None) };
        self.advance()?;
        Ok(Some(seen))
    }
}

struct Planner<'a, 'b> {
    kept: OrderedWriter<'a>,
    others: OrderedWriter<'a>,
    candidates: &'a mut Batch<'b>,
    targets: &'a mut Batch<'b>,
    counts: PlanCounts,
}

impl Planner<'_, '_> {
    /// Returns an entry's place if it can still be true.
    fn check<S: Substrate>(
        &mut self,
        images: &mut Images<'_, '_, S>,
        written: &WrittenRanges,
        filled: &SlotSet,
        wanted: &SlotSet,
        entry: Entry,
        is_seen: bool,
    ) -> Result<Option<Place>, PassError> {
        let is_true = match entry.place {
            Place::Unique(file, block) => !written.contains(file, block) && images.has(file, block)?,
            // A block that only the arena has left is taken back where it is wanted again.
            Place::Shared(slot) => filled.contains(slot) && (is_seen || wanted.contains(slot)),
        };
        if is_true {
            return Ok(Some(entry.place));
        }
        match entry.place {
            Place::Shared(slot) if filled.contains(slot) => self.counts.collected += 1,
            _ => self.counts.stale += 1,
        }
        Ok(None)
    }

    /// Decides what is done with a content that the index knows, that was seen, or both.
    fn decide<S: Substrate>(
        &mut self,
        images: &mut Images<'_, '_, S>,
        digest: Digest,
        known: Option<Place>,
        seen: &mut SeenStream,
    ) -> Result<(), PassError> {
        if let Some(Place::Shared(slot)) = known {
            self.kept.push(entry_row(Entry { digest, place: Place::Shared(slot) }))?;
            while let Some(Seen { file, block, .. }) = seen.take(digest)? {
                self.counts.targets += 1;
                self.targets.push(Target { file, block, source: Source::Slot(slot) }.row())?;
            }
            return Ok(());
        }
        let Some(first) = seen.take(digest)? else {
            if let Some(place) = known {
                self.kept.push(entry_row(Entry { digest, place }))?;
            }
            return Ok(());
        };
        if known.is_none() {
            self.counts.new += 1;
            if !seen.has(digest) {
                let place = Place::Unique(first.file, first.block);
                self.kept.push(entry_row(Entry { digest, place }))?;
                return Ok(());
            }
        }
        self.counts.promoted += 1;
        self.candidates.push(Candidate { file: first.file, block: first.block, digest }.row())?;
        if let Some(Place::Unique(file, block)) = known {
            if images.is_owned(file)? {
                self.counts.targets += 1;
                self.others.push(Seen { digest, file, block }.row())?;
            } else {
                self.counts.elsewhere += 1;
            }
        }
        while let Some(other) = seen.take(digest)? {
            self.counts.targets += 1;
            self.others.push(other.row())?;
        }
        Ok(())
    }
}
