//! A batch: its candidates go into slots, the places that wait for them share with these, and its entries are published.

use std::io;

use onefold_sort::{Batch, Merge, Row, Sorter};
use onefold_substrate::Substrate;

use super::again::Because;
use super::elsewhere::Elsewhere;
use super::outcome::PassError;
use super::promote::{self, Notes};
use super::publish::{LOCK_PAUSE, LOCK_TRIES};
use super::publish_batch::{Planned, publish_batch};
use super::rows::{Candidate, Change, Other, Source, Step, Target};
use super::run::{Pass, StopWatch};
use super::share::{Sinks, share};
use super::stretches::Others;
use super::{copies, pinned, requests};
use crate::format::entry::{Entry, Place};
use crate::state::StateError;
use crate::state::arena::ArenaWriter;

/// As many places of a content are tried as candidates. Content that is overwritten that fast is left for another pass.
const PROMOTE_ROUNDS: u32 = 8;

impl<'b, S: Substrate> Pass<'_, 'b, S> {
    /// Has places share with slots that the index knows. Nothing is published.
    pub(super) fn share_known(&mut self, targets: impl Iterator<Item = io::Result<Row>>) -> Result<(), PassError> {
        let requests = Sorter::new(self.options.temporary_folder);
        let mut left = std::mem::take(&mut self.left);
        let elsewhere = Elsewhere { left: &mut left, requests: requests.batch(0), by_slot: Vec::new() };
        let shared = self.share_all(targets, elsewhere);
        self.left = left;
        shared.map(drop)
    }

    /// Does all of a batch.
    pub(super) fn work_on(
        &mut self,
        candidates: Vec<Candidate>,
        others: &mut Others,
        arena: &mut ArenaWriter<'_, 'b, S>,
        planned: &Planned<'_>,
        entered: &mut Batch<'_>,
    ) -> Result<(), PassError> {
        let (folder, part) = (self.options.temporary_folder, self.options.memory_bytes / 4);
        let mut watch = StopWatch::start(self.options.clock);
        let [targets, requests] = [(); 2].map(|()| Sorter::new(folder));
        let mut left = std::mem::take(&mut self.left);
        let mut elsewhere = Elsewhere { left: &mut left, requests: requests.batch(part / 8), by_slot: Vec::new() };
        let mut targets_batch = targets.batch(part / 2);
        let promoted = self.promote(candidates, others, arena, &mut targets_batch, entered, &mut elsewhere);
        let worked = promoted.and_then(|mut entries| {
            arena.sync()?;
            self.passed.times.promote += watch.lap();
            if self.passed.trouble.is_full {
                // Nothing shares with the slots: they are emptied.
                return Ok((Vec::new(), Vec::new()));
            }
            entries.sort_unstable_by_key(|entry| entry.place);
            elsewhere.by_slot.clone_from(&entries);
            let left_undone = self.share_all(targets.merged(vec![targets_batch.finish()])?, elsewhere)?;
            Ok((entries, left_undone))
        });
        self.left = left;
        let (mut entries, elsewhere) = worked?;
        watch.lap();
        entries.sort_unstable_by_key(|entry| entry.digest);
        let elsewhere = requests.merged(vec![elsewhere])?;
        let published = self.publish_all(entries, elsewhere, planned);
        let again = match published {
            // To empty a slot takes nothing from the images that share with it.
            Err(PassError::State(StateError::Io { source, .. }))
                if self.passed.trouble.is_full && source.kind() == io::ErrorKind::StorageFull =>
            {
                return Ok(());
            }
            published => published?,
        };
        let rows = Sorter::new(folder);
        let mut rows_batch = rows.batch(part / 8);
        again.into_iter().try_for_each(|place| rows_batch.push(place.row()))?;
        requests::write(self.state, rows.merged(vec![rows_batch.finish()])?)?;
        self.filled.extend(arena.numbers());
        arena.note_published();
        self.passed.times.publish += watch.lap();
        Ok(())
    }

    /// Publishes the entries of a batch, and before them what they hide: the pass may be cut off in between. Returns places that have to be
    /// looked at again.
    fn publish_all(
        &mut self,
        entries: Vec<Entry>,
        elsewhere: Merge,
        planned: &Planned<'_>,
    ) -> Result<Vec<Candidate>, PassError> {
        self.note_again()?;
        requests::write(self.state, elsewhere)?;
        publish_batch(self.state, planned, &mut self.index, entries, &mut self.named)
    }

    /// Writes down what has to be read again, but for what other hosts have just now.
    pub(super) fn note_again(&mut self) -> Result<(), PassError> {
        let again = &mut self.passed.trouble.again;
        if !again.is_empty() {
            let now = self.state.now()?;
            again.note(&mut self.images, now)?;
        }
        Ok(())
    }

    /// Writes down what has to be read again, and waits for files that other hosts have. Of those that they do not give back the logs stay.
    pub(super) fn note_again_at_end(&mut self) -> Result<(), PassError> {
        for _ in 0..LOCK_TRIES {
            self.note_again()?;
            if self.passed.trouble.again.is_empty() {
                return Ok(());
            }
            self.options.clock.sleep(LOCK_PAUSE);
            self.options.pace.waited();
            self.options.pace.boundary()?;
        }
        self.left.extend(self.passed.trouble.again.files());
        Ok(())
    }

    /// Has targets share, and has room come free by it. Returns the places that others have, as rows of merge requests.
    fn share_all(
        &mut self,
        targets: impl Iterator<Item = io::Result<Row>>,
        mut elsewhere: Elsewhere<'_>,
    ) -> Result<Vec<Row>, PassError> {
        let (state, options) = (self.state, self.options);
        let mut watch = StopWatch::start(options.clock);
        let losses = Sorter::new(options.temporary_folder);
        let mut losses_batch = losses.batch(options.memory_bytes / 32);
        let sinks = Sinks {
            losses: &mut losses_batch,
            elsewhere: &mut elsewhere,
            noted: &mut self.noted,
            trouble: &mut self.passed.trouble,
            shared: &mut self.passed.shared,
        };
        share(state, &mut self.images, targets, options, sinks)?;
        let losses = losses.merged(vec![losses_batch.finish()])?;
        let remnants = std::mem::take(&mut self.noted.remnants);
        let results = (&mut self.passed.shared, &mut self.passed.trouble);
        pinned::release(state, &mut self.images, losses, remnants, options, results)?;
        let touched = std::mem::take(&mut self.noted.touched);
        if options.space.keeps_copies_small {
            copies::keep_small(state, &mut self.images, &touched)?;
        }
        self.passed.times.share += watch.lap();
        Ok(elsewhere.requests.finish())
    }

    /// Has candidates put into the arena, and the next place of a content where that failed, until none is left. Returns entries that
    /// name the slots.
    fn promote(
        &mut self,
        mut candidates: Vec<Candidate>,
        others: &mut Others,
        arena: &mut ArenaWriter<'_, 'b, S>,
        targets: &mut Batch<'_>,
        entered: &mut Batch<'_>,
        elsewhere: &mut Elsewhere<'_>,
    ) -> Result<Vec<Entry>, PassError> {
        let (state, options) = (self.state, self.options);
        let mut entries = Vec::with_capacity(candidates.len());
        // Those that wait for the candidates of later rounds.
        let mut waiting: Option<Others> = None;
        for round in 1.. {
            let trouble = &mut self.passed.trouble;
            let notes = Notes { touched: &mut self.noted.touched, elsewhere: &mut *elsewhere, trouble };
            let pace = (options.pace, options.threads);
            let slots = promote::promote(state, &mut self.images, arena, &candidates, notes, pace)?;
            let next_others = Sorter::new(options.temporary_folder);
            let mut next_others_batch = next_others.batch(options.memory_bytes / 16);
            let mut next = Vec::new();
            let is_last = self.passed.trouble.is_full || round == PROMOTE_ROUNDS;
            let others = waiting.as_mut().unwrap_or(&mut *others);
            for (candidate, slot) in candidates.iter().zip(slots) {
                let (digest, of) = (candidate.digest, candidate.key());
                if let Some(slot) = slot {
                    entries.push(Entry { digest, place: Place::Shared(slot) });
                    while let Some((file, block)) = others.take(of)? {
                        targets.push(Target { file, block, source: Source::Slot(slot) }.row())?;
                    }
                    continue;
                }
                let Some((file, block)) = others.take(of)? else { continue };
                let Some((second_file, second_block)) = others.take(of)? else {
                    entered.push(Change { digest, step: Step::Put(Place::Unique(file, block)) }.row())?;
                    continue;
                };
                if is_last {
                    entered.push(Change { digest, step: Step::Put(Place::Unique(file, block)) }.row())?;
                    let again = &mut self.passed.trouble.again;
                    again.add(second_file, second_block, 1, Because::Changed);
                    while let Some((file, block)) = others.take(of)? {
                        again.add(file, block, 1, Because::Changed);
                    }
                    continue;
                }
                let candidate = Candidate { file, block, digest };
                next.push(candidate);
                let of_next = candidate.key();
                next_others_batch.push(Other { of: of_next, file: second_file, block: second_block }.row())?;
                while let Some((file, block)) = others.take(of)? {
                    next_others_batch.push(Other { of: of_next, file, block }.row())?;
                }
            }
            if next.is_empty() {
                break;
            }
            next.sort_unstable_by_key(|candidate| candidate.row());
            waiting = Some(Others::new(next_others.merged(vec![next_others_batch.finish()])?));
            candidates = next;
        }
        Ok(entries)
    }
}
