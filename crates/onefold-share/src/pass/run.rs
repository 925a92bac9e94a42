//! A pass from its beginning to its end: one function for each step that the documentation of `pass` lists.

use std::collections::BTreeSet;

use onefold_block::{BLOCK_BYTES_U64, Timestamp};
use onefold_sort::{Merge, SortWriter, Spool, SpoolWriter};
use onefold_substrate::Substrate;

use super::arenas::Arenas;
use super::collect::{Collected, Occasion, collect};
use super::images::Images;
use super::intake::Taken;
use super::lists::{Lists, Told, part_bytes, spool, spool_both};
use super::outcome::{PassError, Passed};
use super::plan::{Plan, Sources, plan};
use super::publish::{self, KnownShards, News};
use super::publish_batch::Planned;
use super::share::Noted;
use super::since::SeenIndex;
use super::slots::SlotSet;
use super::stop_watch::StopWatch;
use super::stretches::{Candidates, Others, Targets};
use super::sweep::{discard, sweep};
use super::{PassOptions, PassProgress, requests};
use crate::format::FileNo;
use crate::format::prefix::Prefix;
use crate::format::shard::EntryCounts;
use crate::policy::UnneededSlots;
use crate::state::arena::ArenaWriter;
use crate::state::files::Marks;
use crate::state::hosts::HostNo;
use crate::state::{State, StateError};

/// A pass, as far as it is.
pub(super) struct Pass<'a, 'b, S: Substrate> {
    pub(super) state: &'a State<'b, S>,
    pub(super) options: &'a PassOptions<'a>,
    pub(super) images: Images<'a, 'b, S>,
    /// Blocks that logs told of.
    pub(super) told_blocks: u64,
    /// Whether other passes see which files are this one's.
    pub(super) has_claimed: bool,
    /// Files whose logs stay: another host had them when it was their turn.
    pub(super) left: BTreeSet<FileNo>,
    /// What was read of the index.
    pub(super) index: SeenIndex,
    /// Arena files that were filled.
    pub(super) filled: BTreeSet<u32>,
    pub(super) noted: Noted,
    pub(super) passed: Passed,
}

/// What makes a pass worth its while.
struct Causes {
    /// Logs that were read.
    logs: Vec<Taken>,
    /// Hosts that died, and may have left slots that no entry names.
    dead: Vec<HostNo>,
    /// Files that are known and gone, or have gone a short while ago.
    gone: Vec<FileNo>,
    /// When the pass began, if it is to find out what only the arena refers to.
    began: Option<Timestamp>,
}

/// What is to be done. Step 6 takes it apart.
struct Work {
    candidates: Candidates,
    others: Others,
    targets: Targets,
    planned: Planned,
    /// Places whose entries go to others.
    requests: Merge,
    /// What the shards hold, as far as this pass has read or published them.
    known: KnownShards,
    /// As the arena was when the plan was made.
    arenas: Arenas,
    /// Slots that entries name which are to be dropped.
    dropped: SlotSet,
}

/// What a pass knows of the index and the arena once its work is done.
struct Outlook {
    /// What the shards hold.
    known: KnownShards,
    /// As the arena was when the plan was made.
    arenas: Arenas,
}

impl<'a, 'b, S: Substrate> Pass<'a, 'b, S> {
    pub(super) fn new(
        state: &'a State<'b, S>,
        files: &'a mut Marks,
        options: &'a PassOptions<'a>,
    ) -> Result<Self, StateError> {
        Ok(Pass {
            state,
            options,
            images: Images::new(state, files, options)?,
            told_blocks: 0,
            has_claimed: false,
            left: BTreeSet::new(),
            index: SeenIndex::default(),
            filled: BTreeSet::new(),
            noted: Noted::default(),
            passed: Passed::default(),
        })
    }

    /// Gives up what this pass has claimed, and returns what it did.
    pub(super) fn end(self) -> Passed {
        if self.has_claimed {
            self.state.unclaim();
        }
        self.passed
    }

    /// Does one step after the other.
    pub(super) fn run(&mut self) -> Result<(), PassError> {
        let mut watch = StopWatch::start(self.options.clock);
        let (mut told, mut lists) = (Told::new(self.options), Lists::new(self.options));
        let Some(causes) = self.take_in(&mut told, &mut lists.targets)? else { return Ok(()) };
        let sources = self.open_index(told)?;
        self.passed.times.logs = watch.lap();
        let Some(work) = self.plan(sources, lists, &mut watch)? else { return Ok(()) };
        self.sweep_left(&work)?;
        // The work frees its lists before the next steps: these sort lists of their own in the same memory.
        let Some(mut outlook) = self.work(work)? else {
            // Something was left undone: the logs stay.
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

    /// Step 1: reads the logs of the files that are this pass's. Returns what there is to do; none where that is
    /// nothing.
    fn take_in(&mut self, told: &mut Told, targets: &mut SortWriter) -> Result<Option<Causes>, PassError> {
        let dead = self.state.dead_hosts()?;
        let logs = self.take_logs(told, targets)?;
        let gone = self.images.gone()?;
        if logs.is_empty() && dead.is_empty() && gone.is_empty() {
            return Ok(None);
        }
        if !self.options.is_dry_run {
            self.state.be_present()?;
        }
        // The time is taken before any map is looked at.
        let is_asked = !gone.is_empty() || self.state.policy().unneeded == UnneededSlots::Compared;
        let began = if is_asked { Some(self.state.now()?) } else { None };
        Ok(Some(Causes { logs, dead, gone, began }))
    }

    /// Opens what the plan looks at: the index beside what logs tell.
    fn open_index(&mut self, told: Told) -> Result<Sources<'b, S>, PassError> {
        let state = self.state;
        self.index.generations = state.newest_generations()?;
        let (shards, batches) = state.open_index(Prefix::WHOLE, &mut None)?;
        self.index.batches = batches.borrow().numbers().collect();
        drop(batches);
        if state.take_loss() {
            self.images.forget_scans()?;
        }
        // The arena is looked at after the index, so that whatever the index names is there to be seen.
        let arenas = Arenas::look(state, self.options.pace)?;
        let seen = self.spool(told.seen.finish()?)?;
        Ok(Sources { shards, seen, written: told.written, arenas })
    }

    /// Step 2: decides what is done with each content. Returns none where nothing more is wanted.
    fn plan(
        &mut self,
        mut sources: Sources<'b, S>,
        mut lists: Lists,
        watch: &mut StopWatch<'_>,
    ) -> Result<Option<Work>, PassError> {
        let Plan { changes, counts, known, dropped } =
            plan(self.state, &mut self.images, &mut sources, &mut lists, &mut self.index.named, self.options)?;
        self.passed.planned = counts;
        self.passed.times.plan = watch.lap();
        let targets = counts.targets * BLOCK_BYTES_U64;
        if (self.options.progress)(PassProgress::Planned { targets }).is_break() {
            return Err(StateError::Interrupted.into());
        }
        if self.options.is_dry_run {
            return Ok(None);
        }
        Ok(Some(Work {
            candidates: Candidates::new(lists.candidates.finish()?),
            others: Others::new(lists.others.finish()?),
            targets: Targets::new(lists.targets.finish()?),
            planned: Planned { changes: self.spool(changes)?, seen: sources.seen },
            requests: lists.requests.finish()?,
            known,
            arenas: sources.arenas,
            dropped,
        }))
    }

    /// Step 3: empties what a pass has left that was killed. Entries that are to be dropped are still there: their
    /// slots stay for now.
    fn sweep_left(&mut self, work: &Work) -> Result<(), PassError> {
        let seen = Some(&work.planned.seen);
        self.index.named.add(&work.dropped);
        let swept = sweep(self.state, &BTreeSet::new(), &work.arenas, &mut self.index, seen);
        self.index.named.remove_all(&work.dropped);
        self.passed.swept_slots += swept?;
        Ok(())
    }

    /// Steps 4 to 6. Returns none where something was left undone.
    fn work(&mut self, work: Work) -> Result<Option<Outlook>, PassError> {
        let mut arena = ArenaWriter::new(self.state);
        let worked = self.share_and_publish(work, &mut arena);
        // A host that was suspended may have lost the lock of an arena file: what other hosts have published since is
        // not emptied.
        if !matches!(worked, Ok(Some(_))) && self.index.read_news(self.state, None).is_ok() {
            discard(self.state, &mut arena, &self.index.named);
        }
        self.filled.extend(arena.numbers());
        worked
    }

    fn share_and_publish(
        &mut self,
        mut work: Work,
        arena: &mut ArenaWriter<'_, 'b, S>,
    ) -> Result<Option<Outlook>, PassError> {
        let mut entered = SortWriter::new(self.options.temporary_folder, part_bytes(self.options) / 4);
        let is_shared = self.share_with_known_slots(&mut work.targets)?
            && self.work_through_batches(&mut work, arena, &mut entered)?;
        if is_shared { self.publish_rest(work, entered) } else { Ok(None) }
    }

    /// Step 4: places share with slots that the index knows. Returns false where the file system is full.
    fn share_with_known_slots(&mut self, targets: &mut Targets) -> Result<bool, PassError> {
        while !targets.is_empty() {
            self.options.pace.boundary()?;
            self.share_known(targets.stretch(self.options.batch.slots))?;
            if self.passed.trouble.is_full {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Step 5: one batch after the other. Returns false where the file system is full.
    fn work_through_batches(
        &mut self,
        work: &mut Work,
        arena: &mut ArenaWriter<'_, 'b, S>,
        entered: &mut SortWriter,
    ) -> Result<bool, PassError> {
        let index_bytes: u64 = work.known.values().map(|known| known.bytes).sum();
        while !work.candidates.is_empty() {
            self.options.pace.boundary()?;
            if self.are_batches_worth_merging(index_bytes)? {
                self.merge_batches(&work.planned, &mut work.known)?;
            }
            let candidates = work.candidates.take(self.batch_blocks())?;
            self.work_on(candidates, &mut work.others, arena, &work.planned, entered)?;
            if self.passed.trouble.is_full {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Step 6: new generations of the shards, with all that changes. Returns none where other hosts were always first.
    fn publish_rest(&mut self, work: Work, entered: SortWriter) -> Result<Option<Outlook>, PassError> {
        let mut watch = StopWatch::start(self.options.clock);
        let Work { candidates, others, targets, planned, requests, mut known, arenas, dropped: _ } = work;
        drop((candidates, others, targets));
        requests::write(self.state, requests)?;
        let (folder, memory_bytes) = (self.options.temporary_folder, part_bytes(self.options) / 8);
        let changes = spool_both(&planned.changes, entered.finish()?, folder, memory_bytes)?;
        let is_all_there = self.publish(&changes, &planned, &mut known)?;
        self.index.note(&known);
        self.passed.times.publish += watch.lap();
        Ok(is_all_there.then_some(Outlook { known, arenas }))
    }

    /// Returns how many candidates are a batch: in memory they are held with what becomes of them.
    fn batch_blocks(&self) -> usize {
        /// A candidate, its slot and its entry.
        const BYTES: usize = 96;
        let most = usize::try_from(self.options.batch.slots).unwrap_or(usize::MAX);
        most.min(part_bytes(self.options) / BYTES).max(1)
    }

    /// Tells whether batches are so many, or so long, that their entries are worth merging into the shards.
    fn are_batches_worth_merging(&self, index_bytes: u64) -> Result<bool, PassError> {
        use crate::state::batches::{BATCHES_MAX, MERGE_BYTES_MIN, MERGE_PART};
        let numbers = self.state.batch_numbers()?;
        if numbers.len() >= BATCHES_MAX {
            return Ok(true);
        }
        if numbers.len() < 2 {
            return Ok(false);
        }
        let bytes = self.state.open_batches()?.bytes();
        Ok(bytes >= MERGE_BYTES_MIN.max(index_bytes / MERGE_PART))
    }

    fn merge_batches(&mut self, planned: &Planned, known: &mut KnownShards) -> Result<(), PassError> {
        // What other hosts have published since is in the new generations, too: these are read like theirs.
        let nothing = SpoolWriter::new(self.options.temporary_folder, 0).finish()?;
        self.publish(&nothing, planned, known).map(drop)
    }

    /// Publishes new generations of the shards with what changes, and with what batches hold. Returns false where
    /// other hosts were always first.
    fn publish(&mut self, changes: &Spool, planned: &Planned, known: &mut KnownShards) -> Result<bool, PassError> {
        let folder = self.options.temporary_folder;
        let mut again = SortWriter::new(folder, part_bytes(self.options) / 8);
        let news = News {
            changes,
            planned: &planned.changes,
            seen: &planned.seen,
            suspects: &self.noted.suspects,
            unneeded: &SlotSet::default(),
            keys: &self.images.keys(),
            merges: true,
            entries_max: self.options.shard_entries_max,
            folder,
            pace: self.options.pace,
        };
        let clock = self.options.clock;
        let is_all_there = publish::publish(self.state, clock, &news, known, &mut self.index.named, &mut again)?;
        // The logs are there until these are: between the two nothing is lost.
        requests::write(self.state, again.finish()?)?;
        Ok(is_all_there)
    }

    /// Step 7: removes what was taken in.
    fn remove_logs(&mut self, causes: &Causes) -> Result<(), PassError> {
        self.note_again_at_end()?;
        for (_, log) in causes.logs.iter().filter(|(file, _)| !self.left.contains(file)) {
            self.state.remove_log(log)?;
        }
        Ok(())
    }

    /// Step 8: drops what only the arena refers to, where maps do not tell it. As long as what is returned is kept, no
    /// host shares with the slots.
    fn collect(&mut self, causes: &Causes, outlook: &mut Outlook) -> Result<Option<Collected<'a, 'b, S>>, PassError> {
        let Some(now) = causes.began else { return Ok(None) };
        let (state, options) = (self.state, self.options);
        let occasion = Occasion { now, gone: &causes.gone, told: self.told_blocks };
        let Outlook { known, arenas } = outlook;
        let collected = collect(state, &mut self.images, options, &occasion, arenas, known, &mut self.index.named)?;
        self.passed.planned.collected += collected.dropped;
        self.index.note(known);
        Ok(Some(collected))
    }

    /// Step 9: empties the slots that no entry names.
    fn sweep_unnamed(&mut self, arenas: &Arenas) -> Result<(), PassError> {
        self.passed.swept_slots += sweep(self.state, &self.filled, arenas, &mut self.index, None)?;
        Ok(())
    }

    /// Forgets the causes of this pass, so that they are none of the next one, and notes what the index holds.
    /// `is_left` says that other hosts kept this pass from looking after files that are gone.
    fn settle(&mut self, causes: Causes, is_left: bool, known: &KnownShards) -> Result<(), PassError> {
        let declared = self.state.intent_paths()?;
        for host in &causes.dead {
            // As long as holes wait to be filled, the host has left something.
            if !declared.iter().any(|path| host.has_named(path)) {
                self.state.forget_host(*host)?;
            }
        }
        let totals = known.values().fold((EntryCounts::default(), 0), |(mut counts, bytes), shard| {
            counts += shard.counts;
            (counts, bytes + shard.bytes)
        });
        self.passed.index = Some(totals);
        let done = causes.gone.into_iter().filter(|_| !is_left);
        for (number, now) in done.filter_map(|number| Some((number, causes.began?))) {
            self.images.let_go(number, now)?;
        }
        Ok(())
    }

    /// Keeps rows that come in order.
    fn spool(&self, rows: impl Iterator<Item = std::io::Result<onefold_sort::Row>>) -> Result<Spool, PassError> {
        Ok(spool(rows, self.options.temporary_folder, part_bytes(self.options) / 8)?)
    }
}
