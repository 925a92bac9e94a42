//! A pass from its beginning to its end.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use onefold_block::{BLOCK_BYTES_U64, Clock, Timestamp};
use onefold_sort::{Merge, Row, Sorter, Spool, SpoolWriter};
use onefold_substrate::Substrate;

use super::arenas::Arenas;
use super::collect::{self, Occasion, collect};
use super::images::Images;
use super::intake::{self, Taken};
use super::outcome::{PassError, Passed};
use super::plan::{Plan, Sinks, Sources, plan};
use super::publish::{self, Known, KnownShards, News};
use super::publish_batch::Planned;
use super::share::Noted;
use super::since::SeenIndex;
use super::slots::SlotSet;
use super::stretches::{Candidates, Others, Targets};
use super::sweep::{discard, sweep};
use super::written::WrittenRanges;
use super::{PassOptions, PassProgress, requests};
use crate::format::FileNo;
use crate::format::prefix::Prefix;
use crate::format::shard::EntryCounts;
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
    /// Files whose logs stay: somebody else had them when it was their turn.
    pub(super) left: BTreeSet<FileNo>,
    /// What was read of the index.
    pub(super) index: SeenIndex,
    /// Slots that entries name, as far as they are to stay.
    pub(super) named: SlotSet,
    /// Arena files that were filled.
    pub(super) filled: BTreeSet<u32>,
    pub(super) noted: Noted,
    pub(super) passed: Passed,
}

/// What makes a pass worth its while.
struct Causes {
    /// Logs that were read.
    logs: Vec<Taken>,
    /// Hosts that died, and may have left slots that nobody names.
    dead: Vec<HostNo>,
    /// Files that are known and gone, or have gone a short while ago.
    gone: Vec<FileNo>,
}

/// What is to be done.
struct Work {
    candidates: Candidates,
    others: Others,
    targets: Targets,
    /// What becomes of entries, but for those of candidates.
    changes: Spool,
    seen: Spool,
    /// Places whose entries go to others.
    requests: Merge,
    known: KnownShards,
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
            named: SlotSet::default(),
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

    pub(super) fn run(&mut self) -> Result<(), PassError> {
        let state = self.state;
        let folder = self.options.temporary_folder;
        let mut watch = StopWatch::start(self.options.clock);
        // Read, sorted, sorted again: three sorts are never at their most at once, two may be.
        let part = self.options.memory_bytes / 4;
        let [seen, targets, candidates, others, requests] = [(); 5].map(|()| Sorter::new(folder));
        let (mut seen_batch, mut targets_batch) = (seen.batch(part), targets.batch(part));
        let mut written = WrittenRanges::default();
        let dead = state.dead_hosts()?;
        let sinks = intake::Sinks { seen: &mut seen_batch, targets: &mut targets_batch, written: &mut written };
        let logs = self.take_logs(sinks)?;
        let causes = Causes { logs, dead, gone: self.images.gone()? };
        if causes.logs.is_empty() && causes.dead.is_empty() && causes.gone.is_empty() {
            return Ok(());
        }
        if !self.options.is_dry_run {
            state.be_present()?;
        }
        // Before the maps are looked at.
        let is_asked = !causes.gone.is_empty() || collect::is_needed(state.substrate().abilities());
        let now = if is_asked { Some(state.now()?) } else { None };
        self.index.generations = state.newest_generations()?;
        let (shards, batches) = state.open_index(Prefix::WHOLE, &mut None)?;
        self.index.batches = batches.borrow().numbers().collect();
        drop(batches);
        if state.take_loss() {
            self.images.forget_scans()?;
        }
        let generations: Vec<(Prefix, u64, u64)> =
            shards.iter().map(|shard| (shard.prefix, shard.generation, shard.bytes)).collect();
        // After the index, so that whatever it names is there to be seen.
        let arenas = Arenas::look(state, self.options.pace)?;
        let seen = spool(seen.merged(vec![seen_batch.finish()])?, folder, part / 8)?;
        self.passed.times.logs = watch.lap();
        let mut candidates_batch = candidates.batch(part / 2);
        let mut others_batch = others.batch(part / 2);
        let mut requests_batch = requests.batch(part / 8);
        let mut dropped = SlotSet::default();
        let sources = Sources { state, shards, seen: &seen, written: &written, arenas: &arenas };
        let sinks = Sinks {
            folder,
            memory_bytes: part / 8,
            candidates: &mut candidates_batch,
            others: &mut others_batch,
            targets: &mut targets_batch,
            requests: &mut requests_batch,
            named: &mut self.named,
            dropped: &mut dropped,
        };
        let Plan { changes, counts, entries } = plan(&mut self.images, sources, sinks, self.options.pace)?;
        self.passed.planned = counts;
        self.passed.times.plan = watch.lap();
        let targets_bytes = counts.targets * BLOCK_BYTES_U64;
        if (self.options.progress)(PassProgress::Planned { targets: targets_bytes }).is_break() {
            return Err(StateError::Interrupted.into());
        }
        if self.options.is_dry_run {
            return Ok(());
        }
        let known = generations.into_iter().zip(entries);
        let known = known.map(|((prefix, generation, bytes), counts)| (prefix, Known { generation, counts, bytes }));
        let work = Work {
            candidates: Candidates::new(candidates.merged(vec![candidates_batch.finish()])?),
            others: Others::new(others.merged(vec![others_batch.finish()])?),
            targets: Targets::new(targets.merged(vec![targets_batch.finish()])?),
            changes: spool(changes, folder, part / 8)?,
            seen,
            requests: requests.merged(vec![requests_batch.finish()])?,
            known: known.collect(),
        };
        self.sweep_unnamed(&arenas, &dropped, &work.seen)?;
        let mut arena = ArenaWriter::new(state);
        let worked = self.work(work, &mut arena);
        // Who was suspended may have lost the lock of an arena file: what others have published since is not emptied.
        if !matches!(worked, Ok(Some(_))) && self.index.read_news(state, &mut self.named, None).is_ok() {
            discard(state, &mut arena, &self.named);
        }
        self.filled.extend(arena.numbers());
        drop(arena);
        match worked? {
            Some(known) => self.finish(causes, now, &arenas, known),
            None => Ok(()),
        }
    }

    /// Empties what a pass has left that was killed. Entries that are to be dropped are still there: their slots stay for now.
    fn sweep_unnamed(&mut self, arenas: &Arenas, dropped: &SlotSet, seen: &Spool) -> Result<(), PassError> {
        let (mut named, nothing) = (std::mem::take(&mut self.named), BTreeSet::new());
        named.add(dropped);
        let swept = sweep(self.state, &nothing, arenas, (&mut self.index, Some(seen)), &mut named);
        named.remove_all(dropped);
        self.named = named;
        self.passed.swept_slots += swept?;
        Ok(())
    }

    /// Shares, batch by batch, and brings the index up to date. Returns what the shards hold then; none where something was left undone, so
    /// that the logs have to stay.
    fn work(&mut self, work: Work, arena: &mut ArenaWriter<'_, 'b, S>) -> Result<Option<KnownShards>, PassError> {
        let Work { mut candidates, mut others, mut targets, changes, seen, requests, mut known } = work;
        let (folder, part) = (self.options.temporary_folder, self.options.memory_bytes / 4);
        while !targets.is_empty() {
            self.options.pace.boundary()?;
            self.share_known(targets.stretch(self.options.batch.slots))?;
            if self.passed.trouble.is_full {
                return Ok(None);
            }
        }
        let entered = Sorter::new(folder);
        let mut entered_batch = entered.batch(part / 4);
        let planned = Planned { changes: &changes, seen: &seen };
        let index_bytes: u64 = known.values().map(|known| known.bytes).sum();
        while !candidates.is_empty() {
            self.options.pace.boundary()?;
            if self.are_batches_worth_merging(index_bytes)? {
                self.merge_batches(&planned, &mut known)?;
            }
            let batch = candidates.take(self.batch_blocks())?;
            self.work_on(batch, &mut others, arena, &planned, &mut entered_batch)?;
            if self.passed.trouble.is_full {
                return Ok(None);
            }
        }
        let mut watch = StopWatch::start(self.options.clock);
        requests::write(self.state, requests)?;
        let merged_changes = merged(&changes, entered.merged(vec![entered_batch.finish()])?, folder, part / 8)?;
        let is_all_there = self.publish(&merged_changes, &planned, &mut known)?;
        self.index.note(&known);
        self.passed.times.publish += watch.lap();
        Ok(is_all_there.then_some(known))
    }

    /// Returns how many candidates are a batch: in memory they are held with what becomes of them.
    fn batch_blocks(&self) -> usize {
        /// A candidate, its slot and its entry.
        const BYTES: usize = 96;
        let most = usize::try_from(self.options.batch.slots).unwrap_or(usize::MAX);
        most.min(self.options.memory_bytes / 4 / BYTES).max(1)
    }

    /// Tells whether there are so many batches, or they are so long, that the shards had better have their entries.
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

    fn merge_batches(&mut self, planned: &Planned<'_>, known: &mut KnownShards) -> Result<(), PassError> {
        // What other hosts have published since is in the new generations, too: these are read like theirs.
        let nothing = SpoolWriter::new(self.options.temporary_folder, 0).finish()?;
        self.publish(&nothing, planned, known).map(drop)
    }

    /// Publishes new generations of the shards with all that changes, and with what batches hold. Returns false where other hosts
    /// were always first.
    fn publish(
        &mut self,
        changes: &Spool,
        Planned { changes: planned, seen }: &Planned<'_>,
        known: &mut KnownShards,
    ) -> Result<bool, PassError> {
        let (folder, part) = (self.options.temporary_folder, self.options.memory_bytes / 4);
        let again = Sorter::new(folder);
        let mut again_batch = again.batch(part / 8);
        let keys = self.images.keys();
        let news = News {
            changes,
            planned,
            seen,
            suspects: &self.noted.suspects,
            unneeded: &SlotSet::default(),
            keys: &keys,
            merges: true,
            entries_max: self.options.shard_entries_max,
            folder,
            pace: self.options.pace,
        };
        let is_all_there =
            publish::publish(self.state, self.options.clock, &news, known, &mut self.named, &mut again_batch)?;
        // The logs are there until these are: between the two nothing is lost.
        requests::write(self.state, again.merged(vec![again_batch.finish()])?)?;
        Ok(is_all_there)
    }

    /// Removes what was taken in, and empties what nobody names.
    fn finish(
        &mut self,
        causes: Causes,
        now: Option<Timestamp>,
        arenas: &Arenas,
        mut known: KnownShards,
    ) -> Result<(), PassError> {
        self.note_again_at_end()?;
        for (_, log) in causes.logs.iter().filter(|(file, _)| !self.left.contains(file)) {
            self.state.remove_log(log)?;
        }
        let is_left = self.collect(now, &causes.gone, arenas, &mut known)?;
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
        // What others kept this pass from looking after is a cause for the next one.
        let done = causes.gone.into_iter().filter(|_| !is_left);
        for (number, now) in done.filter_map(|number| Some((number, now?))) {
            self.images.let_go(number, now)?;
        }
        Ok(())
    }

    /// Drops what only the arena refers to, where maps do not tell it, and empties the slots that no entry names. Tells whether
    /// something is left that others kept it from.
    fn collect(
        &mut self,
        now: Option<Timestamp>,
        gone: &[FileNo],
        arenas: &Arenas,
        known: &mut KnownShards,
    ) -> Result<bool, PassError> {
        let mut is_left = false;
        let mut kept = None;
        if let Some(now) = now {
            let occasion = Occasion { now, gone, told: self.told_blocks };
            let (state, options) = (self.state, self.options);
            let collected = collect(state, &mut self.images, options, &occasion, arenas, (known, &mut self.named))?;
            self.passed.planned.collected += collected.dropped;
            self.index.note(known);
            is_left = collected.is_left;
            // Until the slots are empty nobody shares with them.
            kept = Some(collected);
        }
        self.passed.swept_slots += sweep(self.state, &self.filled, arenas, (&mut self.index, None), &mut self.named)?;
        drop(kept);
        Ok(is_left)
    }
}

/// Measures what follows on each other.
pub(super) struct StopWatch<'a> {
    clock: &'a dyn Clock,
    since: Duration,
}

impl StopWatch<'_> {
    pub(super) fn start(clock: &dyn Clock) -> StopWatch<'_> {
        StopWatch { clock, since: clock.monotonic() }
    }

    /// Returns the time since the last look.
    pub(super) fn lap(&mut self) -> Duration {
        let now = self.clock.monotonic();
        now.saturating_sub(std::mem::replace(&mut self.since, now))
    }
}

/// Keeps rows that come in order.
fn spool(rows: impl Iterator<Item = io::Result<Row>>, folder: &Path, memory_bytes: usize) -> io::Result<Spool> {
    let mut writer = SpoolWriter::new(folder, memory_bytes);
    for row in rows {
        writer.push(row?)?;
    }
    writer.finish()
}

/// Keeps the rows of two lists that each come in order.
fn merged(planned: &Spool, entered: Merge, folder: &Path, memory_bytes: usize) -> io::Result<Spool> {
    let (mut planned, mut entered) = (planned.read(0, planned.len()).peekable(), entered.peekable());
    let both = std::iter::from_fn(|| match (planned.peek(), entered.peek()) {
        // Those of one digest may come in any order; an error comes first.
        (Some(Ok(one)), Some(Ok(other))) if one > other => entered.next(),
        (Some(Ok(_)), Some(Err(_))) | (None, Some(_)) => entered.next(),
        _ => planned.next(),
    });
    spool(both, folder, memory_bytes)
}
