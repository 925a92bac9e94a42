//! The merge: reads the index and the new digests side by side, once, both in order of the digests. It decides the work
//! for each content, and changes nothing yet.
//!
//! It decides DeDe's transitions (section 3.3, Figure 4): absent to unique, unique to shared, shared to shared, and
//! which entries are dropped from the index. If this pass has seen a content at several places, the first of them goes
//! into the arena rather than the one in the index: it was read more recently.

use std::io;
use std::vec;

use onefold_sort::{Spool, SpoolWriter, SpooledMerge};
use onefold_substrate::Substrate;

use super::arenas::Arenas;
use super::images::Images;
use super::lists::{Lists, part_bytes};
use super::publish::{KnownShards, ShardFacts};
use super::rows::{Candidate, Change, SeenContent, Step, Target, WaitingPlace};
use super::slots::SlotSet;
use super::written::WrittenRanges;
use super::{PassError, PassOptions};
use crate::format::entry::{ContentEntry, ContentPlace};
use crate::format::prefix::Prefix;
use crate::format::shard::{EntryCounts, Stretch};
use crate::format::{FingerprintPrefix, FormatError, Slot};
use crate::state::State;
use crate::state::shards::Shard;

/// Inputs of the plan.
pub(super) struct Sources<'b, S: Substrate> {
    /// All of the index, in order, with the entries of batches. The plan consumes them.
    pub(super) shards: Vec<Shard<'b, S>>,
    /// Places in order of the digests. They are stored as the plan reads them.
    pub(super) seen: SpooledMerge,
    pub(super) written: WrittenRanges,
    /// The arena files after the shards were opened.
    pub(super) arenas: Arenas,
}

/// The decisions.
pub(super) struct Plan {
    /// Changes of entries, in order of their digests.
    pub(super) changes: Spool,
    pub(super) counts: PlanCounts,
    /// The shards that were read.
    pub(super) known: KnownShards,
    /// Slots named by entries that are to be dropped.
    pub(super) dropped: SlotSet,
}

/// How often each transition was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanCounts {
    /// Contents that are new to the index.
    pub new: u64,
    /// Contents that are to get a slot.
    pub promoted: u64,
    /// Places that are to share with a slot.
    pub targets: u64,
    /// Entries dropped because their place was overwritten, or is gone.
    pub stale: u64,
    /// Entries dropped because only the arena had the block.
    pub collected: u64,
    /// Places that belong to another host.
    pub elsewhere: u64,
    /// Places in files outside the selection. A run that includes these files shares there.
    pub outside: u64,
}

/// Decides the work, and puts it into `lists`. Slots of unchanged entries go into `named`.
pub(super) fn plan<'b, S: Substrate>(
    state: &State<'b, S>,
    images: &mut Images<'_, '_, S>,
    sources: &mut Sources<'b, S>,
    lists: &mut Lists,
    named: &mut SlotSet,
    options: &PassOptions<'_>,
) -> Result<Plan, PassError> {
    let Sources { shards, seen, written, arenas } = sources;
    let changes = SpoolWriter::new(options.temporary_folder, part_bytes(options) / 8);
    let (dropped, counts) = (SlotSet::default(), PlanCounts::default());
    let mut planner = Planner { changes, lists, named, dropped, written, arenas, counts };
    let shards = std::mem::take(shards).into_iter();
    let mut entries = Entries { state, shards, shard: None, known: Vec::new(), next: None };
    entries.advance()?;
    let mut seen = SeenStream { rows: seen, next: None };
    seen.advance()?;
    loop {
        options.pace.boundary()?;
        let next = seen.next.map(|seen| seen.digest);
        if let Some(entry) = entries.next.take_if(|entry| next.is_none_or(|next| entry.digest < next)) {
            planner.decide_unseen(images, entry)?;
            // Most entries are of contents that were not seen, so many of them are consecutive.
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
    let Planner { changes, counts, dropped, .. } = planner;
    Ok(Plan { changes: changes.finish()?, counts, known: entries.known.into_iter().collect(), dropped })
}

/// The index, one entry ahead.
struct Entries<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    shards: vec::IntoIter<Shard<'b, S>>,
    /// The shard that is being read.
    shard: Option<Shard<'b, S>>,
    /// The shards that were read, the current one last, and the number of entries read of each.
    known: Vec<(Prefix, ShardFacts)>,
    next: Option<ContentEntry>,
}

impl<S: Substrate> Entries<'_, '_, S> {
    fn advance(&mut self) -> Result<(), PassError> {
        loop {
            if let Some(shard) = &mut self.shard {
                match shard.next_entry() {
                    Ok(Some(entry)) => {
                        self.next = Some(entry);
                        self.counts().count(&entry);
                        return Ok(());
                    }
                    Ok(None) => {}
                    Err(why) => return Err(self.failed(why)?),
                }
            }
            self.shard = self.shards.next();
            let Some(Shard { prefix, generation, bytes, .. }) = self.shard else {
                self.next = None;
                return Ok(());
            };
            self.known.push((prefix, ShardFacts { generation, counts: EntryCounts::default(), bytes }));
        }
    }

    /// Returns the number of entries read of the current shard.
    fn counts(&mut self) -> &mut EntryCounts {
        &mut self.known.last_mut().expect("a shard is being read").1.counts
    }

    /// Returns the entries behind the one that was taken last, as [`Shard::take_below`].
    fn take_below(&mut self, limit: Option<FingerprintPrefix>) -> Result<Stretch<'_>, FormatError> {
        let Some(shard) = &mut self.shard else { return Ok(Stretch::default()) };
        let stretch = shard.take_below(limit)?;
        self.known.last_mut().expect("a shard is being read").1.counts += stretch.counts();
        Ok(stretch)
    }

    /// Returns the error that ends the pass, after an entry could not be read.
    fn failed(&self, why: FormatError) -> Result<PassError, PassError> {
        match (why, &self.shard) {
            (FormatError::Io(error), _) => Ok(error.into()),
            (why, Some(shard)) => PassError::damaged(self.state, shard, why),
            (why, None) => Ok(io::Error::other(why).into()),
        }
    }
}

/// The places that were seen, one place ahead.
struct SeenStream<'a> {
    rows: &'a mut SpooledMerge,
    next: Option<SeenContent>,
}

impl SeenStream<'_> {
    fn advance(&mut self) -> Result<(), PassError> {
        // Two logs may report one block, and both be right.
        let last = self.next;
        loop {
            self.next = self.rows.next().transpose()?.map(SeenContent::of);
            if self.next.is_none() || self.next != last {
                return Ok(());
            }
        }
    }

    /// Returns the next place of a content.
    fn take(&mut self, digest: FingerprintPrefix) -> Result<Option<SeenContent>, PassError> {
        let Some(seen) = self.next.filter(|seen| seen.digest == digest) else { return Ok(None) };
        self.advance()?;
        Ok(Some(seen))
    }

    /// Returns the next place of a content, except the one in the index: seen once more, it is still one place.
    fn take_other(&mut self, content: &Content) -> Result<Option<SeenContent>, PassError> {
        loop {
            let next = self.take(content.digest)?;
            if next.is_none_or(|next| content.known != Some(ContentPlace::Unique(next.file, next.block))) {
                return Ok(next);
            }
        }
    }
}

/// A content that was seen, and that has no slot.
struct Content {
    digest: FingerprintPrefix,
    /// The place in the index.
    entry: Option<ContentPlace>,
    /// The same, if it may still be right.
    known: Option<ContentPlace>,
}

struct Planner<'a> {
    changes: SpoolWriter,
    lists: &'a mut Lists,
    /// Slots named by unchanged entries.
    named: &'a mut SlotSet,
    dropped: SlotSet,
    written: &'a WrittenRanges,
    arenas: &'a Arenas,
    counts: PlanCounts,
}

impl Planner<'_> {
    /// Decides about a content that the index knows and that was not seen.
    fn decide_unseen<S: Substrate>(
        &mut self,
        images: &mut Images<'_, '_, S>,
        entry: ContentEntry,
    ) -> Result<(), PassError> {
        if !self.is_true(images, entry.place, false)? {
            if let ContentPlace::Shared(slot) = entry.place {
                self.dropped.insert(slot);
            }
            self.note_dropped(entry.place);
            self.change(entry.digest, Step::Drop(entry.place))?;
        } else if let ContentPlace::Shared(slot) = entry.place {
            self.named.insert(slot);
        }
        Ok(())
    }

    /// Decides about a content that was seen, and that the index may know.
    fn decide<S: Substrate>(
        &mut self,
        images: &mut Images<'_, '_, S>,
        digest: FingerprintPrefix,
        entry: Option<ContentPlace>,
        seen: &mut SeenStream<'_>,
    ) -> Result<(), PassError> {
        let known = match entry {
            Some(place) if self.is_true(images, place, true)? => Some(place),
            _ => None,
        };
        if let Some(ContentPlace::Shared(slot)) = known {
            return self.share_with_slot(digest, slot, seen);
        }
        let content = Content { digest, entry, known };
        let Some(first) = seen.take_other(&content)? else {
            // It was seen where the index has it, and nowhere else.
            return known.map_or(Ok(()), |place| self.change(digest, Step::Agree(place)));
        };
        let second = seen.take_other(&content)?;
        if known.is_none() {
            self.counts.new += 1;
        }
        // Nothing changes in a file outside the selection. If a later run includes that file, a request brings its
        // place together with this one.
        let is_apart = matches!(known, Some(ContentPlace::Unique(file, _)) if !images.is_selected(file));
        match (known, second) {
            (Some(ContentPlace::Unique(file, block)), None) if is_apart => {
                self.counts.outside += 1;
                self.lists.requests.push(Candidate { file, block, digest }.row())?;
                self.change(digest, Step::Drop(ContentPlace::Unique(file, block)))?;
                self.change(digest, Step::Put(ContentPlace::Unique(first.file, first.block)))
            }
            (None, None) => self.name_place(&content, ContentPlace::Unique(first.file, first.block)),
            _ => {
                let candidate = Candidate { file: first.file, block: first.block, digest };
                self.promote(&content, candidate, second, seen)?;
                match known {
                    Some(ContentPlace::Unique(file, block)) => {
                        if is_apart {
                            self.counts.outside += 1;
                        } else if images.own(file)? {
                            self.counts.targets += 1;
                        } else {
                            self.counts.elsewhere += 1;
                        }
                        // Whether its file can be shared in is found out at its turn.
                        let of = candidate.key();
                        Ok(self.lists.others.push(WaitingPlace { of, file, block, is_of_index: true }.row())?)
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Makes all places of a content share with the slot in the index.
    fn share_with_slot(
        &mut self,
        digest: FingerprintPrefix,
        slot: Slot,
        seen: &mut SeenStream<'_>,
    ) -> Result<(), PassError> {
        self.named.insert(slot);
        self.change(digest, Step::Agree(ContentPlace::Shared(slot)))?;
        while let Some(SeenContent { file, block, .. }) = seen.take(digest)? {
            self.counts.targets += 1;
            self.lists.targets.push(Target { file, block, slot: Some(slot) }.row())?;
        }
        Ok(())
    }

    /// Makes the index name the only place of a content.
    fn name_place(&mut self, &Content { digest, entry, .. }: &Content, place: ContentPlace) -> Result<(), PassError> {
        if entry == Some(place) {
            return self.change(digest, Step::Agree(place));
        }
        if let Some(place) = entry {
            self.note_dropped(place);
            self.change(digest, Step::Drop(place))?;
        }
        self.change(digest, Step::Put(place))
    }

    /// Plans a slot for a content. The places that were seen besides the candidate, `second` and the rest of `seen`,
    /// wait for it.
    fn promote(
        &mut self,
        content: &Content,
        candidate: Candidate,
        second: Option<SeenContent>,
        seen: &mut SeenStream<'_>,
    ) -> Result<(), PassError> {
        self.counts.promoted += 1;
        self.lists.candidates.push(candidate.row())?;
        let mut other = second;
        while let Some(SeenContent { file, block, .. }) = other {
            self.counts.targets += 1;
            self.lists.others.push(WaitingPlace { of: candidate.key(), file, block, is_of_index: false }.row())?;
            other = seen.take_other(content)?;
        }
        if let Some(place) = content.entry {
            self.change(content.digest, Step::Drop(place))?;
            if content.known.is_none() {
                self.note_dropped(place);
            }
        }
        Ok(())
    }

    /// Returns whether the place of an entry may still be right.
    fn is_true<S: Substrate>(
        &self,
        images: &mut Images<'_, '_, S>,
        place: ContentPlace,
        is_seen: bool,
    ) -> Result<bool, PassError> {
        let Arenas { filled, wanted } = self.arenas;
        Ok(match place {
            ContentPlace::Unique(file, block) => !self.written.contains(file, block) && images.may_have(file, block)?,
            // A block that only the arena still has is taken back if it is wanted again.
            ContentPlace::Shared(slot) => filled.contains(slot) && (is_seen || wanted.contains(slot)),
        })
    }

    fn note_dropped(&mut self, place: ContentPlace) {
        match place {
            ContentPlace::Shared(slot) if self.arenas.filled.contains(slot) => self.counts.collected += 1,
            _ => self.counts.stale += 1,
        }
    }

    fn change(&mut self, digest: FingerprintPrefix, step: Step) -> Result<(), PassError> {
        Ok(self.changes.push(Change { digest, step }.row())?)
    }
}
