//! The scan as a finder: merges the logs with the index, and yields runs between files and arena slots.
//!
//! First come the places that share with slots in the index, in stretches; nothing is published for them. Then come
//! batches: candidates are put into slots, the places that wait for them share with these, and the batch's entries are
//! published.

use std::io;

use onefold_sort::{Merge, SortWriter};
use onefold_substrate::Substrate;

use super::again::RereadCause;
use super::elsewhere::LockedPlaces;
use super::engine::{Engine, Finder};
use super::indexing::{FinderState, are_batches_worth_merging};
use super::lists::part_bytes;
use super::outcome::PassError;
use super::promote::{self, Notes, Promotion};
use super::publish::KnownShards;
use super::publish_batch::{PlannedChanges, publish_batch};
use super::requests;
use super::rows::{Candidate, Change, Step, Target, WaitingPlace};
use super::runs::{ContentKey, FinderRun, RunBatch, Source};
use super::stop_watch::StopWatch;
use super::stretches::{Candidates, Targets, WaitingPlaces};
use crate::format::entry::{ContentEntry, ContentPlace};
use crate::state::StateError;
use crate::state::arena::ArenaWriter;

/// Maximum number of places tried as the source of one content. Content that is overwritten that fast is left for
/// another pass.
const PROMOTE_ROUNDS: u32 = 8;

/// The decisions of a plan, and what it knew.
pub(super) struct PlanResult {
    pub(super) candidates: Candidates,
    pub(super) others: WaitingPlaces,
    pub(super) targets: Targets,
    pub(super) planned: PlannedChanges,
    /// The contents of the shards, as far as this pass has read or published them.
    pub(super) known: KnownShards,
}

/// Yields the decisions of a plan as runs.
pub(super) struct ScanFinder<'p, 'c, 'b, S: Substrate> {
    indexing: &'p mut FinderState,
    planning: &'p mut PlanResult,
    arena: &'p mut ArenaWriter<'c, 'b, S>,
    /// Changes of entries whose contents got no slot.
    entered: &'p mut SortWriter,
    /// Length of the index when the plan was made, in bytes.
    index_bytes: u64,
    /// Maximum number of targets of a stretch.
    stretch: u64,
    /// Places that other hosts have.
    elsewhere: LockedPlaces,
    /// Places of the batch that only the index names, and no log.
    of_index: SortWriter,
    batch: ScanBatch,
}

/// The current batch.
enum ScanBatch {
    /// A stretch of the targets for which the index has slots.
    Known,
    /// Places that waited for candidates.
    Promoted {
        /// The places in order; `None` if the file system was full before any of them shared.
        targets: Option<Merge>,
        /// Entries that name the slots.
        entries: Vec<ContentEntry>,
    },
}

impl<'p, 'c, 'b, S: Substrate> ScanFinder<'p, 'c, 'b, S> {
    pub(super) fn new(
        engine: &Engine<'_, 'b, S>,
        indexing: &'p mut FinderState,
        planning: &'p mut PlanResult,
        arena: &'p mut ArenaWriter<'c, 'b, S>,
        entered: &'p mut SortWriter,
    ) -> Self {
        let index_bytes = planning.known.values().map(|known| known.bytes).sum();
        let folder = engine.options.temporary_folder;
        let (elsewhere, of_index) = (LockedPlaces::new(folder, 0), SortWriter::new(folder, 0));
        let (stretch, batch) = (engine.options.batch.slots, ScanBatch::Known);
        ScanFinder { indexing, planning, arena, entered, index_bytes, stretch, elsewhere, of_index, batch }
    }
}

impl<S: Substrate> RunBatch for ScanFinder<'_, '_, '_, S> {
    fn next_run(&mut self) -> io::Result<Option<FinderRun>> {
        let target = match &mut self.batch {
            ScanBatch::Known => self.planning.targets.take(self.stretch)?,
            ScanBatch::Promoted { targets, .. } => {
                targets.as_mut().and_then(Iterator::next).transpose()?.map(Target::of)
            }
        };
        Ok(target.map(|Target { file, block, slot }| {
            let source = slot.map_or(Source::Zeros, Source::Slot);
            FinderRun { file, first: block.0, source, count: 1, key: ContentKey::default() }
        }))
    }

    fn leave(&mut self, part: &FinderRun) -> Result<(), PassError> {
        for block in 0..part.count {
            let part = part.part(block, 1);
            let slot = match part.source {
                Source::Slot(slot) => Some(slot),
                Source::Zeros | Source::File(_) => None,
            };
            self.elsewhere.leave_target(part.file, part.first_block(), slot)?;
        }
        Ok(())
    }
}

impl<'b, S: Substrate> Finder<'b, S> for ScanFinder<'_, '_, 'b, S> {
    fn next_batch(&mut self, engine: &mut Engine<'_, 'b, S>) -> Result<Option<&mut dyn RunBatch>, PassError> {
        let options = engine.options;
        if !self.planning.targets.is_empty() {
            options.pace.boundary()?;
            self.planning.targets.begin_stretch();
            return Ok(Some(self));
        }
        if self.planning.candidates.is_empty() {
            return Ok(None);
        }
        options.pace.boundary()?;
        if are_batches_worth_merging(engine.state, self.index_bytes)? {
            self.indexing.merge_batches(engine, &self.planning.planned, &mut self.planning.known)?;
        }
        let candidates = self.planning.candidates.take(batch_blocks(engine))?;
        let mut watch = StopWatch::start(options.clock);
        let (folder, part) = (options.temporary_folder, part_bytes(options));
        let mut targets = SortWriter::new(folder, part / 2);
        self.elsewhere = LockedPlaces::new(folder, part / 8);
        self.of_index = SortWriter::new(folder, part / 8);
        let (mut entries, is_cut) = self.promote(engine, candidates, &mut targets)?;
        self.arena.sync()?;
        engine.passed.times.promote += watch.lap();
        let targets = if engine.passed.trouble.is_full {
            // Nothing shares with the slots, so they are emptied.
            entries.clear();
            None
        } else {
            entries.sort_unstable_by_key(|entry| entry.place);
            self.elsewhere.by_slot.clone_from(&entries);
            Some(targets.finish()?)
        };
        self.batch = ScanBatch::Promoted { targets, entries };
        if is_cut { Err(StateError::Interrupted.into()) } else { Ok(Some(self)) }
    }

    fn end_batch(&mut self, engine: &mut Engine<'_, 'b, S>) -> Result<(), PassError> {
        let mut elsewhere = self.take_elsewhere(engine);
        self.indexing.left.append(&mut elsewhere.left);
        let ScanBatch::Promoted { targets, entries } = std::mem::replace(&mut self.batch, ScanBatch::Known) else {
            return Ok(());
        };
        let requests = if targets.is_some() { Some(elsewhere.requests.finish()?) } else { None };
        if self.publish(engine, entries, requests)? {
            self.indexing.filled.extend(self.arena.numbers());
            self.arena.note_published();
        }
        Ok(())
    }

    /// Publishes the slots that hold the right content, whatever shares with them by now. The logs stay, so that the
    /// next pass shares all of their places. Places that only the index named get merge requests, because the batch
    /// hides their entries.
    fn cut_batch(&mut self, engine: &mut Engine<'_, 'b, S>) -> Result<(), PassError> {
        let elsewhere = self.take_elsewhere(engine);
        let mut requests = std::mem::replace(&mut self.of_index, SortWriter::new(engine.options.temporary_folder, 0));
        match std::mem::replace(&mut self.batch, ScanBatch::Known) {
            ScanBatch::Promoted { targets: Some(_), entries } if !entries.is_empty() => {
                elsewhere.requests.finish()?.try_for_each(|row| requests.push(row?))?;
                // The pass empties the other slots of the batch.
                self.publish(engine, entries, Some(requests.finish()?)).map(drop)
            }
            ScanBatch::Promoted { .. } | ScanBatch::Known => Ok(()),
        }
    }
}

impl<'b, S: Substrate> ScanFinder<'_, '_, 'b, S> {
    fn take_elsewhere(&mut self, engine: &Engine<'_, 'b, S>) -> LockedPlaces {
        std::mem::replace(&mut self.elsewhere, LockedPlaces::new(engine.options.temporary_folder, 0))
    }

    /// Publishes the entries of a batch. Before that, publishes the places that the batch hides, because the pass may
    /// be cut off in between. Returns false if the file system is full.
    fn publish(
        &mut self,
        engine: &mut Engine<'_, 'b, S>,
        mut entries: Vec<ContentEntry>,
        requests: Option<Merge>,
    ) -> Result<bool, PassError> {
        let mut watch = StopWatch::start(engine.options.clock);
        let is_full = engine.passed.trouble.is_full;
        entries.sort_unstable_by_key(|entry| entry.digest);
        let again = match self.publish_entries(engine, entries, requests) {
            // Emptying a slot takes nothing from the images that share with it.
            Err(PassError::State(StateError::Io { source, .. }))
                if is_full && source.kind() == io::ErrorKind::StorageFull =>
            {
                return Ok(false);
            }
            published => published?,
        };
        let options = engine.options;
        let mut rows = SortWriter::new(options.temporary_folder, part_bytes(options) / 8);
        again.into_iter().try_for_each(|place| rows.push(place.row()))?;
        requests::write(engine.state, rows.finish()?)?;
        engine.passed.times.publish += watch.lap();
        Ok(true)
    }

    /// Returns places that have to be looked at again.
    fn publish_entries(
        &mut self,
        engine: &mut Engine<'_, 'b, S>,
        entries: Vec<ContentEntry>,
        requests: Option<Merge>,
    ) -> Result<Vec<Candidate>, PassError> {
        engine.note_again()?;
        requests::write(engine.state, requests.into_iter().flatten())?;
        publish_batch(engine.state, &self.planning.planned, &mut self.indexing.index, entries)
    }

    /// Puts candidates into the arena. If that fails for one, tries the next place of its content, until none is left.
    /// Returns entries that name the slots, and whether the work was told to end before.
    fn promote(
        &mut self,
        engine: &mut Engine<'_, 'b, S>,
        mut candidates: Vec<Candidate>,
        targets: &mut SortWriter,
    ) -> Result<(Vec<ContentEntry>, bool), PassError> {
        let (state, options) = (engine.state, engine.options);
        let mut entries = Vec::with_capacity(candidates.len());
        // Places that wait for the candidates of later rounds.
        let mut waiting: Option<WaitingPlaces> = None;
        for round in 1.. {
            let trouble = &mut engine.passed.trouble;
            let notes = Notes { touched: &mut engine.noted.touched, elsewhere: &mut self.elsewhere, trouble };
            let Promotion { slots, is_cut } =
                promote::promote(state, &mut engine.images, self.arena, &candidates, notes, options)?;
            let mut next_others = SortWriter::new(options.temporary_folder, part_bytes(options) / 4);
            let mut next = Vec::new();
            let is_last = engine.passed.trouble.is_full || round == PROMOTE_ROUNDS;
            let others = waiting.as_mut().unwrap_or(&mut self.planning.others);
            for (candidate, slot) in candidates.iter().zip(slots) {
                let (digest, of) = (candidate.digest, candidate.key());
                if let Some(slot) = slot {
                    entries.push(ContentEntry { digest, place: ContentPlace::Shared(slot) });
                    while let Some(WaitingPlace { file, block, is_of_index, .. }) = others.take(of)? {
                        targets.push(Target { file, block, slot: Some(slot) }.row())?;
                        if is_of_index {
                            self.of_index.push(Candidate { file, block, digest }.row())?;
                        }
                    }
                    continue;
                }
                if is_cut {
                    continue;
                }
                let Some(WaitingPlace { file, block, .. }) = others.take(of)? else { continue };
                let Some(second) = others.take(of)? else {
                    self.entered.push(Change { digest, step: Step::Put(ContentPlace::Unique(file, block)) }.row())?;
                    continue;
                };
                if is_last {
                    self.entered.push(Change { digest, step: Step::Put(ContentPlace::Unique(file, block)) }.row())?;
                    let again = &mut engine.passed.trouble.again;
                    again.add(second.file, second.block, 1, RereadCause::Changed);
                    while let Some(other) = others.take(of)? {
                        again.add(other.file, other.block, 1, RereadCause::Changed);
                    }
                    continue;
                }
                let candidate = Candidate { file, block, digest };
                next.push(candidate);
                let of_next = candidate.key();
                next_others.push(WaitingPlace { of: of_next, ..second }.row())?;
                while let Some(other) = others.take(of)? {
                    next_others.push(WaitingPlace { of: of_next, ..other }.row())?;
                }
            }
            if is_cut {
                return Ok((entries, true));
            }
            if next.is_empty() {
                break;
            }
            next.sort_unstable_by_key(|candidate| candidate.row());
            waiting = Some(WaitingPlaces::new(next_others.finish()?));
            candidates = next;
        }
        Ok((entries, false))
    }
}

/// Returns the number of candidates of a batch. They are held in memory with their results.
fn batch_blocks<S: Substrate>(engine: &Engine<'_, '_, S>) -> usize {
    /// A candidate, its slot and its entry.
    const BYTES: usize = 96;
    let most = usize::try_from(engine.options.batch.slots).unwrap_or(usize::MAX);
    most.min(part_bytes(engine.options) / BYTES).max(1)
}
