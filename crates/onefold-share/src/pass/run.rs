//! A pass from its beginning to its end: one function for each step that the documentation of `pass` lists.

use std::collections::BTreeSet;

use onefold_block::{BLOCK_BYTES_U64, Timestamp};
use onefold_sort::{Merge, SortWriter, SpooledMerge};
use onefold_substrate::Substrate;

use super::arenas::Arenas;
use super::batch::{PlanResult, ScanFinder};
use super::collect::{CollectionResult, Occasion, collect};
use super::dry_run::PlannedPlaces;
use super::engine::Engine;
use super::indexing::FinderState;
use super::lists::{Lists, LogContents, part_bytes, spool_both};
use super::outcome::{PassError, PassReport};
use super::plan::{Plan, Sources, plan};
use super::publish::{KnownShards, LOCK_PAUSE, LOCK_TRIES};
use super::publish_batch::PlannedChanges;
use super::resumption::Resumption;
use super::rows::{Target, WaitingPlace};
use super::slots::SlotSet;
use super::stop_watch::StopWatch;
use super::stretches::{Candidates, Targets, WaitingPlaces};
use super::sweep::{discard, sweep};
use super::{PassOptions, PassProgress, requests};
use crate::format::FileNo;
use crate::format::prefix::Prefix;
use crate::format::shard::EntryCounts;
use crate::policy::UnneededSlots;
use crate::state::arena::ArenaWriter;
use crate::state::files::Marks;
use crate::state::hosts::HostNo;
use crate::state::logs::LogName;
use crate::state::{State, StateError};

/// A log that was read, and the number that stands for its file.
pub(super) type TakenLog = (FileNo, LogName);

/// A pass and its state so far.
pub(super) struct Pass<'a, 'b, S: Substrate> {
    pub(super) engine: Engine<'a, 'b, S>,
    /// Number of blocks that logs reported.
    pub(super) told_blocks: u64,
    /// Whether other passes see the claims of this one.
    pub(super) has_claimed: bool,
    /// The work of an interrupted pass, which this pass need not do again.
    pub(super) resumption: Resumption,
    pub(super) indexing: FinderState,
}

/// Reasons for a pass to do its work.
struct Causes {
    /// Logs that were read: the newest first, then merge requests.
    logs: Vec<TakenLog>,
    /// Hosts that died, and may have left slots that no entry names.
    dead: Vec<HostNo>,
    /// Files that are known and gone, or that went a short while ago.
    gone: Vec<FileNo>,
    /// When the pass began, if it is to collect what only the arena refers to.
    began: Option<Timestamp>,
}

/// The planned work. Step 6 takes it apart.
struct PlannedWork {
    planning: PlanResult,
    /// Places that get merge requests because other places take over their entries.
    requests: Merge,
    /// The arena files when the plan was made.
    arenas: Arenas,
    /// Slots named by entries that are to be dropped.
    dropped: SlotSet,
}

/// Knowledge of a pass about the index and the arena after its work.
struct Outlook {
    /// The contents of the shards.
    known: KnownShards,
    /// The arena files when the plan was made.
    arenas: Arenas,
}

impl<'a, 'b, S: Substrate> Pass<'a, 'b, S> {
    pub(super) fn new(
        state: &'a State<'b, S>,
        files: &'a mut Marks,
        options: &'a PassOptions<'a>,
    ) -> Result<Self, StateError> {
        let engine = Engine::new(state, files, options)?;
        let (resumption, indexing) = (Resumption::default(), FinderState::default());
        Ok(Pass { engine, told_blocks: 0, has_claimed: false, resumption, indexing })
    }

    /// Releases the claims of this pass, and returns its results.
    pub(super) fn end(self) -> PassReport {
        if self.has_claimed {
            self.engine.state.unclaim();
        }
        self.engine.passed
    }

    /// Does one step after the other.
    pub(super) fn run(&mut self) -> Result<(), PassError> {
        let mut watch = StopWatch::start(self.engine.options.clock);
        self.engine.passed.to_free = self.engine.options.is_dry_run.then_some(0);
        let (mut told, mut lists) = (LogContents::new(self.engine.options), Lists::new(self.engine.options));
        let Some(causes) = self.take_in(&mut told, &mut lists.targets)? else { return Ok(()) };
        let sources = self.open_index(told)?;
        self.engine.passed.shared.before = self.resumption.shared_blocks() * BLOCK_BYTES_U64;
        self.engine.passed.times.logs = watch.lap();
        let Some(work) = self.plan(sources, lists, &mut watch)? else { return Ok(()) };
        self.sweep_left(&work)?;
        // The work frees its lists before the next steps, which sort lists of their own in the same memory.
        let Some(mut outlook) = self.work(work)? else {
            // Some work was left undone, so the logs stay.
            return Ok(());
        };
        self.remove_logs(&causes)?;
        let collected = self.collect(&causes, &mut outlook)?;
        self.sweep_unnamed(&outlook.arenas)?;
        let is_left = collected.as_ref().is_some_and(|collected| collected.is_left);
        // Until here, where the slots are empty, no host shared with them.
        drop(collected);
        self.settle(causes, is_left, &outlook.known)
    }

    /// Step 1: reads the logs of the files of this pass. Returns the reasons to go on; `None` if there is nothing to
    /// do.
    fn take_in(&mut self, told: &mut LogContents, targets: &mut SortWriter) -> Result<Option<Causes>, PassError> {
        let dead = self.engine.state.dead_hosts()?;
        let logs = self.take_logs(told, targets)?;
        let gone = self.engine.images.gone()?;
        if logs.is_empty() && dead.is_empty() && gone.is_empty() {
            return Ok(None);
        }
        if !self.engine.options.is_dry_run {
            self.engine.state.be_present()?;
        }
        // The time is taken before any map is looked at.
        let is_asked = !gone.is_empty() || self.engine.state.policy().unneeded == UnneededSlots::Compared;
        let began = if is_asked { Some(self.engine.state.now()?) } else { None };
        Ok(Some(Causes { logs, dead, gone, began }))
    }

    /// Opens the inputs of the plan: the index, and the contents of the logs.
    fn open_index(&mut self, told: LogContents) -> Result<Sources<'b, S>, PassError> {
        let (folder, memory_bytes) = (self.engine.options.temporary_folder, part_bytes(self.engine.options) / 8);
        // They are merged while the plan reads them.
        let seen = SpooledMerge::new(told.seen.finish()?, folder, memory_bytes);
        let state = self.engine.state;
        self.indexing.index.generations = state.newest_generations()?;
        let (shards, batches) = state.open_index(Prefix::WHOLE, &mut None)?;
        self.indexing.index.batches = batches.borrow().numbers().collect();
        drop(batches);
        if state.take_loss() {
            self.engine.images.forget_scans()?;
        }
        // The arena is looked at after the index, so that it shows every slot that the index names.
        let arenas = Arenas::look(state, self.engine.options.pace)?;
        Ok(Sources { shards, seen, written: told.written, arenas })
    }

    /// Step 2: decides about each content. Returns `None` if no further step is wanted.
    fn plan(
        &mut self,
        mut sources: Sources<'b, S>,
        mut lists: Lists,
        watch: &mut StopWatch<'_>,
    ) -> Result<Option<PlannedWork>, PassError> {
        let Plan { changes, mut counts, known, dropped } = plan(
            self.engine.state,
            &mut self.engine.images,
            &mut sources,
            &mut lists,
            &mut self.indexing.index.named,
            self.engine.options,
        )?;
        counts.targets += self.resumption.shared_blocks();
        self.engine.passed.planned = counts;
        self.engine.passed.times.plan = watch.lap();
        let targets = counts.targets * BLOCK_BYTES_U64;
        if (self.engine.options.progress)(PassProgress::Planned { targets }).is_break() {
            return Err(StateError::Interrupted.into());
        }
        if self.engine.options.is_dry_run {
            self.engine.passed.to_free = self.bytes_to_free(lists)?;
            return Ok(None);
        }
        let planning = PlanResult {
            candidates: Candidates::new(lists.candidates.finish()?),
            others: WaitingPlaces::new(lists.others.finish()?),
            targets: Targets::new(lists.targets.finish()?),
            planned: PlannedChanges { changes, seen: sources.seen.finish()? },
            known,
        };
        Ok(Some(PlannedWork { planning, requests: lists.requests.finish()?, arenas: sources.arenas, dropped }))
    }

    /// Returns the bytes that come free once the planned places share. `None` if the file system shows no maps.
    fn bytes_to_free(&self, lists: Lists) -> Result<Option<u64>, PassError> {
        let mut planned = PlannedPlaces::new(self.engine.options);
        for row in lists.others.finish()? {
            let WaitingPlace { file, block, .. } = WaitingPlace::of(row?);
            planned.add(file, block, 1)?;
        }
        for row in lists.targets.finish()? {
            let Target { file, block, .. } = Target::of(row?);
            planned.add(file, block, 1)?;
        }
        planned.bytes_to_free(self.engine.state, &self.engine.images)
    }

    /// Step 3: empties the slots that a killed pass has left. Entries that are to be dropped still exist, so their
    /// slots stay for now.
    fn sweep_left(&mut self, work: &PlannedWork) -> Result<(), PassError> {
        let seen = Some(&work.planning.planned.seen);
        self.indexing.index.named.add(&work.dropped);
        let swept = sweep(self.engine.state, &BTreeSet::new(), &work.arenas, &mut self.indexing.index, seen);
        self.indexing.index.named.remove_all(&work.dropped);
        self.engine.passed.swept_slots += swept?;
        Ok(())
    }

    /// Steps 4 to 6: the engine shares the runs of the finder, and the remaining changes are published. Returns `None`
    /// if some work was left undone.
    fn work(&mut self, work: PlannedWork) -> Result<Option<Outlook>, PassError> {
        let mut arena = ArenaWriter::new(self.engine.state);
        let worked = self.share_and_publish(work, &mut arena);
        // A host that was suspended may have lost the lock of an arena file. Slots that other hosts have published
        // since are not emptied.
        if !matches!(worked, Ok(Some(_))) && self.indexing.index.read_news(self.engine.state, None).is_ok() {
            discard(self.engine.state, &mut arena, &self.indexing.index.named);
        }
        // There may be room now for what a full file system kept from being noted: slots were emptied, and copies.
        let noted = if self.engine.passed.trouble.is_full { self.engine.note_again_or_fill() } else { Ok(()) };
        self.indexing.filled.extend(arena.numbers());
        let done = worked?;
        noted.map(|()| done)
    }

    fn share_and_publish(
        &mut self,
        mut work: PlannedWork,
        arena: &mut ArenaWriter<'_, 'b, S>,
    ) -> Result<Option<Outlook>, PassError> {
        let mut entered = SortWriter::new(self.engine.options.temporary_folder, part_bytes(self.engine.options) / 4);
        let Pass { engine, indexing, .. } = self;
        let mut finder = ScanFinder::new(engine, indexing, &mut work.planning, arena, &mut entered);
        if engine.share_found(&mut finder)? { self.publish_rest(work, entered) } else { Ok(None) }
    }

    /// Step 6: writes new generations of the shards, with all changes. Returns `None` if other hosts published first
    /// each time.
    fn publish_rest(&mut self, work: PlannedWork, entered: SortWriter) -> Result<Option<Outlook>, PassError> {
        let mut watch = StopWatch::start(self.engine.options.clock);
        let PlannedWork { planning, requests, arenas, dropped: _ } = work;
        let PlanResult { candidates, others, targets, planned, mut known } = planning;
        drop((candidates, others, targets));
        requests::write(self.engine.state, requests)?;
        let (folder, memory_bytes) = (self.engine.options.temporary_folder, part_bytes(self.engine.options) / 8);
        let changes = spool_both(&planned.changes, entered.finish()?, folder, memory_bytes)?;
        let is_all_there = self.indexing.publish(&self.engine, &changes, &planned, &mut known)?;
        self.indexing.index.note(&known);
        self.engine.passed.times.publish += watch.lap();
        Ok(is_all_there.then_some(Outlook { known, arenas }))
    }

    /// Step 7: removes the logs that were taken in, the newest of each file last. A crash may leave some of them: an
    /// older log without the newer one would have the next pass drop the entries of what the newer one told.
    fn remove_logs(&mut self, causes: &Causes) -> Result<(), PassError> {
        self.resumption.sync(&mut self.engine)?;
        self.note_again_at_end()?;
        for (_, log) in causes.logs.iter().rev().filter(|(file, _)| !self.indexing.left.contains(file)) {
            self.engine.state.remove_log(log)?;
        }
        Ok(())
    }

    /// Notes the ranges that have to be read again, and waits for files that other hosts have. If a file is not
    /// released, its logs stay.
    fn note_again_at_end(&mut self) -> Result<(), PassError> {
        let Pass { engine, indexing, .. } = self;
        for _ in 0..LOCK_TRIES {
            engine.note_again()?;
            if engine.passed.trouble.again.is_empty() {
                return Ok(());
            }
            engine.options.clock.sleep(LOCK_PAUSE);
            engine.options.pace.waited();
            engine.options.pace.boundary()?;
        }
        indexing.left.extend(engine.passed.trouble.again.files());
        Ok(())
    }

    /// Step 8: drops what only the arena refers to, if maps do not show this. As long as the result is kept, no host
    /// shares with the slots.
    fn collect(
        &mut self,
        causes: &Causes,
        outlook: &mut Outlook,
    ) -> Result<Option<CollectionResult<'a, 'b, S>>, PassError> {
        let Some(now) = causes.began else { return Ok(None) };
        let (state, options) = (self.engine.state, self.engine.options);
        let occasion = Occasion { now, gone: &causes.gone, told: self.told_blocks };
        let Outlook { known, arenas } = outlook;
        let collected =
            collect(state, &mut self.engine.images, options, &occasion, arenas, known, &mut self.indexing.index.named)?;
        self.engine.passed.planned.collected += collected.dropped;
        self.indexing.index.note(known);
        Ok(Some(collected))
    }

    /// Step 9: empties the slots that no entry names.
    fn sweep_unnamed(&mut self, arenas: &Arenas) -> Result<(), PassError> {
        self.engine.passed.swept_slots +=
            sweep(self.engine.state, &self.indexing.filled, arenas, &mut self.indexing.index, None)?;
        Ok(())
    }

    /// Clears the reasons of this pass, so that the next pass does not see them, and notes the contents of the index.
    /// `is_left` says that other hosts kept this pass from collecting.
    fn settle(&mut self, causes: Causes, is_left: bool, known: &KnownShards) -> Result<(), PassError> {
        let declared = self.engine.state.intent_paths()?;
        for host in &causes.dead {
            // As long as holes wait to be filled, the host has left some work.
            if !declared.iter().any(|path| host.has_named(path)) {
                self.engine.state.forget_host(*host)?;
            }
        }
        let totals = known.values().fold((EntryCounts::default(), 0), |(mut counts, bytes), shard| {
            counts += shard.counts;
            (counts, bytes + shard.bytes)
        });
        self.engine.passed.index = Some(totals);
        let done = causes.gone.into_iter().filter(|_| !is_left);
        for (number, now) in done.filter_map(|number| Some((number, causes.began?))) {
            self.engine.images.let_go(number, now)?;
        }
        Ok(())
    }
}
