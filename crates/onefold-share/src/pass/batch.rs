//! A batch: its candidates go into slots, the places that wait for them share with these, and its entries are published.

use std::io;

use onefold_sort::{Merge, Row, SortWriter};
use onefold_substrate::Substrate;

use super::again::Because;
use super::elsewhere::Elsewhere;
use super::lists::part_bytes;
use super::outcome::{PassError, Passed};
use super::promote::{self, Notes};
use super::publish::{LOCK_PAUSE, LOCK_TRIES};
use super::publish_batch::{Planned, publish_batch};
use super::rows::{Candidate, Change, Other, Source, Step, Target};
use super::run::Pass;
use super::share::{Sinks, share};
use super::stop_watch::StopWatch;
use super::stretches::Others;
use super::{copies, pinned, requests};
use crate::format::entry::{Entry, Place};
use crate::policy::FreedUnit;
use crate::state::StateError;
use crate::state::arena::ArenaWriter;

/// Maximum number of places tried as the source of one content. Content that is overwritten that fast is left for
/// another pass.
const PROMOTE_ROUNDS: u32 = 8;

/// The lists of one batch.
struct BatchLists {
    /// Places that are to share with slots.
    targets: SortWriter,
    /// Places that other hosts have.
    elsewhere: Elsewhere,
}

impl<'b, S: Substrate> Pass<'_, 'b, S> {
    /// Has places share with slots that the index knows. Nothing is published.
    pub(super) fn share_known(&mut self, targets: impl Iterator<Item = io::Result<Row>>) -> Result<(), PassError> {
        let elsewhere = Elsewhere::new(self.options.temporary_folder, 0);
        self.share_all(targets, elsewhere).map(drop)
    }

    /// Does all of a batch.
    pub(super) fn work_on(
        &mut self,
        candidates: Vec<Candidate>,
        others: &mut Others,
        arena: &mut ArenaWriter<'_, 'b, S>,
        planned: &Planned,
        entered: &mut SortWriter,
    ) -> Result<(), PassError> {
        let (folder, part) = (self.options.temporary_folder, part_bytes(self.options));
        let mut watch = StopWatch::start(self.options.clock);
        let targets = SortWriter::new(folder, part / 2);
        let mut lists = BatchLists { targets, elsewhere: Elsewhere::new(folder, part / 8) };
        let mut entries = self.promote(candidates, others, arena, entered, &mut lists)?;
        arena.sync()?;
        self.passed.times.promote += watch.lap();
        let requests = if self.passed.trouble.is_full {
            // Nothing shares with the slots: they are emptied.
            entries.clear();
            self.left.append(&mut lists.elsewhere.left);
            None
        } else {
            entries.sort_unstable_by_key(|entry| entry.place);
            lists.elsewhere.by_slot.clone_from(&entries);
            Some(self.share_all(lists.targets.finish()?, lists.elsewhere)?)
        };
        watch.lap();
        entries.sort_unstable_by_key(|entry| entry.digest);
        let again = match self.publish_entries(entries, requests, planned) {
            // To empty a slot takes nothing from the images that share with it.
            Err(PassError::State(StateError::Io { source, .. }))
                if self.passed.trouble.is_full && source.kind() == io::ErrorKind::StorageFull =>
            {
                return Ok(());
            }
            published => published?,
        };
        let mut rows = SortWriter::new(folder, part / 8);
        again.into_iter().try_for_each(|place| rows.push(place.row()))?;
        requests::write(self.state, rows.finish()?)?;
        self.filled.extend(arena.numbers());
        arena.note_published();
        self.passed.times.publish += watch.lap();
        Ok(())
    }

    /// Publishes the entries of a batch, and before them what they hide: the pass may be cut off in between. Returns places that have to be
    /// looked at again.
    fn publish_entries(
        &mut self,
        entries: Vec<Entry>,
        requests: Option<Merge>,
        planned: &Planned,
    ) -> Result<Vec<Candidate>, PassError> {
        self.note_again()?;
        requests::write(self.state, requests.into_iter().flatten())?;
        publish_batch(self.state, planned, &mut self.index, entries)
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

    /// Has targets share, and has room come free by it. Returns the places that other hosts have, as rows of merge
    /// requests.
    fn share_all(
        &mut self,
        targets: impl Iterator<Item = io::Result<Row>>,
        mut elsewhere: Elsewhere,
    ) -> Result<Merge, PassError> {
        let (state, options) = (self.state, self.options);
        let mut watch = StopWatch::start(options.clock);
        let mut losses = SortWriter::new(options.temporary_folder, part_bytes(options) / 8);
        let sinks = Sinks {
            losses: &mut losses,
            elsewhere: &mut elsewhere,
            noted: &mut self.noted,
            trouble: &mut self.passed.trouble,
            shared: &mut self.passed.shared,
        };
        share(state, &mut self.images, targets, options, sinks)?;
        if state.policy().freed == FreedUnit::Extent {
            let remnants = std::mem::take(&mut self.noted.remnants);
            let Passed { shared, trouble, .. } = &mut self.passed;
            pinned::release(state, &mut self.images, losses.finish()?, remnants, options, shared, trouble)?;
        }
        let touched = std::mem::take(&mut self.noted.touched);
        if options.space.keeps_copies_small {
            copies::keep_small(state, &mut self.images, &touched)?;
        }
        self.passed.times.share += watch.lap();
        self.left.append(&mut elsewhere.left);
        Ok(elsewhere.requests.finish()?)
    }

    /// Has candidates put into the arena, and the next place of a content where that failed, until none is left. Returns entries that
    /// name the slots.
    fn promote(
        &mut self,
        mut candidates: Vec<Candidate>,
        others: &mut Others,
        arena: &mut ArenaWriter<'_, 'b, S>,
        entered: &mut SortWriter,
        lists: &mut BatchLists,
    ) -> Result<Vec<Entry>, PassError> {
        let (state, options) = (self.state, self.options);
        let mut entries = Vec::with_capacity(candidates.len());
        // Those that wait for the candidates of later rounds.
        let mut waiting: Option<Others> = None;
        for round in 1.. {
            let trouble = &mut self.passed.trouble;
            let notes = Notes { touched: &mut self.noted.touched, elsewhere: &mut lists.elsewhere, trouble };
            let slots = promote::promote(state, &mut self.images, arena, &candidates, notes, options)?;
            let mut next_others = SortWriter::new(options.temporary_folder, part_bytes(options) / 4);
            let mut next = Vec::new();
            let is_last = self.passed.trouble.is_full || round == PROMOTE_ROUNDS;
            let others = waiting.as_mut().unwrap_or(&mut *others);
            for (candidate, slot) in candidates.iter().zip(slots) {
                let (digest, of) = (candidate.digest, candidate.key());
                if let Some(slot) = slot {
                    entries.push(Entry { digest, place: Place::Shared(slot) });
                    while let Some((file, block)) = others.take(of)? {
                        lists.targets.push(Target { file, block, source: Source::Slot(slot) }.row())?;
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
                next_others.push(Other { of: of_next, file: second_file, block: second_block }.row())?;
                while let Some((file, block)) = others.take(of)? {
                    next_others.push(Other { of: of_next, file, block }.row())?;
                }
            }
            if next.is_empty() {
                break;
            }
            next.sort_unstable_by_key(|candidate| candidate.row());
            waiting = Some(Others::new(next_others.finish()?));
            candidates = next;
        }
        Ok(entries)
    }
}
