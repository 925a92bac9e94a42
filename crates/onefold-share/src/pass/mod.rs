//! A pass: takes in the logs that there are, has the file system share what is equal, and brings the index up to date.
//!
//! The order of its steps, each of which may be the last one that a host does:
//!
//! 1. `plan`: index and logs side by side; says what is to be done and changes nothing. No lock is held on the index.
//! 2. `promote`: blocks that are at several places are cloned into arena slots, and the slots read.
//! 3. `share`: the other places share with the slots. The kernel compares. Where a share may leave a hole, it is declared.
//!    Where room comes free by whole extents only, `pinned` moves away what keeps those that lost blocks.
//! 4. `requests`: who has the other places that this host may not touch is told of them.
//! 5. `publish`: new generations of the shards. Only now do entries name the slots; a pass that ended before leaves slots
//!    that nobody names, which a later one empties.
//! 6. The logs go. Whoever takes them in twice finds all of it shared already.
//! 7. `collect`, where maps do not tell what only the arena refers to: that is found out now and then, and dropped of the index.
//! 8. Slots that no entry names are emptied.

mod again;
mod arenas;
mod collect;
mod copies;
mod images;
mod join;
mod pinned;
mod plan;
mod promote;
mod publish;
mod requests;
mod room;
mod rows;
mod share;
pub(crate) mod slots;
#[cfg(test)]
mod tests;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::Show;
use onefold_block::substrate::{Refusal, ShareError};
use onefold_block::{BLOCK_BYTES_U64, Clock, Substrate, Timestamp};
use onefold_sort::{Batch, Merge, Ordered, Row, Sorter, Spool, SpoolWriter};

use self::again::{Again, Because};
use self::arenas::Arenas;
use self::collect::{Occasion, collect};
use self::images::Images;
use self::plan::{Plan, Sinks, Sources, plan};
use self::publish::{Known, KnownShards, News};
use self::room::RecordsRoom;
use self::rows::{Seen, Source, Target};
use self::slots::SlotSet;
use self::written::WrittenRanges;
use crate::format::entry::Place;
use crate::format::log::{LogKind, Note};
use crate::format::prefix::Prefix;
use crate::format::shard::EntryCounts;
use crate::format::{FileBlock, FileNo, FormatError};
use crate::pace::Pace;
use crate::selection::Selection;
use crate::state::arena::ArenaWriter;
use crate::state::files::Files;
use crate::state::hosts::HostNo;
use crate::state::logs::{LogError, LogName};
use crate::state::shards::Shard;
use crate::state::{State, StateError};

pub use self::plan::PlanCounts;
use self::share::Noted;
pub use self::share::Shared;

/// As many places of a content are tried as candidates. Whoever is overwritten that fast is left for another time.
const PROMOTE_ROUNDS: u32 = 8;

/// A shard of the index with more entries is split, unless somebody wants it otherwise: 64 GiB of distinct blocks, whose
/// entries take about 300 MiB. Chosen by reasoning, not by measurement.
pub const SHARD_ENTRIES_MAX: u64 = 1 << 24;

/// How a pass goes about it.
pub struct PassOptions<'a> {
    /// Which files may be shared in. Of others neither logs nor entries are touched.
    pub selection: Selection<'a>,
    /// For what does not fit into memory; best on another disk than the images.
    pub temporary_folder: &'a Path,
    /// Memory for sorting, in bytes.
    pub memory_bytes: usize,
    /// The longest range that the file system is asked about at once, in bytes: files are locked meanwhile.
    pub call_bytes: u64,
    /// Shorter runs are left alone, in bytes: they cost a file more seeks than they save room.
    pub min_run_bytes: u64,
    /// What it does beside sharing, so that room really comes free.
    pub space: SpaceOptions,
    /// How hard it works.
    pub pace: &'a Pace<'a>,
    /// Threads that read and digest slots; none where the caller does that.
    pub threads: usize,
    /// Ends after the plan.
    pub is_dry_run: bool,
    /// A shard of the index with more entries is split: it is how long one host has to be waited for.
    pub shard_entries_max: u64,
    /// For waiting.
    pub clock: &'a dyn Clock,
    /// Told how far the pass is; `Break` ends it.
    pub progress: &'a dyn Fn(PassProgress) -> ControlFlow<()>,
}

/// What a pass does so that room really comes free, and stays free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceOptions {
    /// Where room comes free only by whole extents (Btrfs): what is left of an extent that lost blocks is copied if it is at
    /// most so much of it, in percent. With 50, at least as much comes free as is written. 0 never copies.
    pub rewrite_percent: u32,
    /// Where a small write into shared blocks has room set aside around it (XFS): files that share are told to do without
    /// ([`Substrate::keep_copies_small`]).
    pub keeps_copies_small: bool,
}

impl Default for SpaceOptions {
    fn default() -> SpaceOptions {
        SpaceOptions { rewrite_percent: 50, keeps_copies_small: true }
    }
}

/// How far a pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassProgress {
    /// The plan is made.
    Planned {
        /// Bytes that are to be shared, or are shared already.
        targets: u64,
    },
    /// Places share with slots.
    Sharing {
        /// Bytes done.
        bytes: u64,
    },
}

/// How long the parts of a pass took. What a pass does at its end is in none of them: it removes logs, looks for what only the
/// arena refers to where maps do not tell, and empties slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTimes {
    /// Reading the logs and sorting what they tell.
    pub logs: Duration,
    /// Going through the index.
    pub plan: Duration,
    /// Putting blocks into the arena.
    pub promote: Duration,
    /// Sharing with the arena.
    pub share: Duration,
    /// Bringing the index up to date.
    pub publish: Duration,
}

/// What a pass did.
#[derive(Debug, Default)]
pub struct Passed {
    /// Logs that were taken in.
    pub logs: u64,
    /// Logs left to other hosts, which have the files.
    pub logs_elsewhere: u64,
    /// Logs left to runs that include their files.
    pub logs_outside: u64,
    /// What was decided.
    pub planned: PlanCounts,
    /// What came of it.
    pub shared: Shared,
    /// The index afterwards: what it holds, and its length in bytes. None where there was nothing to do, or other hosts were
    /// always first: then the logs are still there.
    pub index: Option<(EntryCounts, u64)>,
    /// Slots that were emptied.
    pub swept_slots: u64,
    /// How long it took; nothing for parts that it did not come to.
    pub times: PassTimes,
    /// What went wrong, with files.
    pub trouble: Trouble,
}

impl Passed {
    /// Tells whether there was something to do, for this host or another one.
    #[must_use]
    pub fn has_found_work(&self) -> bool {
        self.logs > 0 || self.logs_elsewhere > 0 || self.index.is_some()
    }
}

/// What went wrong with files, and how often. The pass goes on.
#[derive(Debug, Default)]
pub struct Trouble {
    /// Files that the file system refuses, and why.
    pub refused: BTreeMap<PathBuf, Refusal>,
    /// Files whose reading or sharing failed, with the first reason.
    pub failed: BTreeMap<PathBuf, io::Error>,
    /// Files that were busy.
    pub busy: BTreeMap<PathBuf, u64>,
    /// The file system is full: nothing more was tried.
    pub is_full: bool,
    /// Nothing more was tried, before the file system was full: so many bytes were left for its own records.
    pub records_left: Option<u64>,
    /// Blocks that were overwritten between their reading and their sharing.
    pub changed: u64,
    /// Where something was left undone that may succeed another time: that is read again then.
    again: Again,
}

impl Trouble {
    /// Ends all sharing where too little is left for records; tells whether it does.
    fn is_short_of_records<S: Substrate>(&mut self, room: &mut RecordsRoom, substrate: &S) -> bool {
        if !self.is_full
            && let Some(left) = room.lacks(substrate)
        {
            (self.is_full, self.records_left) = (true, Some(left));
        }
        self.is_full
    }

    /// Notes that what files share was not made durable, if that failed.
    fn note_unsynced<S: Substrate>(&mut self, files: &[FileNo], images: &Images<'_, '_, S>, synced: io::Result<()>) {
        let Err(why) = synced else { return };
        for number in files {
            let why = io::Error::new(why.kind(), why.to_string());
            self.again.add_file(*number);
            self.note(images.path(*number), ShareError::Io(why));
        }
    }

    /// Notes why blocks of a file were left alone, and has them read again where that may not be for good.
    fn note_blocks(&mut self, (file, first, count): (FileNo, FileBlock, u64), path: PathBuf, why: ShareError) {
        if !matches!(why, ShareError::Refused(_)) {
            self.again.add(file, first, count, Because::Failed);
        }
        self.note(path, why);
    }

    fn note(&mut self, path: PathBuf, why: ShareError) {
        match why {
            ShareError::Refused(refusal) => drop(self.refused.insert(path, refusal)),
            ShareError::Full => self.is_full = true,
            ShareError::Busy => *self.busy.entry(path).or_default() += 1,
            ShareError::Io(error) => drop(self.failed.entry(path).or_insert(error)),
        }
    }
}

/// Why a pass did not come to its end. Nothing is lost but its work.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
    /// Temporary files, mostly: no space.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The index turned out to be damaged. It was dropped; the next pass begins with an empty one.
    #[error("shard {prefix} of the index cannot be read: {why}")]
    Index {
        /// Which.
        prefix: Prefix,
        /// Why.
        why: FormatError,
    },
    /// A share was cut short, and what it took away could not be put back at once, or not be made durable. What is needed
    /// for it is kept.
    #[error("`{}` may read zeros in some places now: {why}", path.shown())]
    Unmended {
        /// The image.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
}

impl PassError {
    /// Drops a shard that is damaged, and returns that this is why the pass ends.
    fn damaged<S: Substrate>(state: &State<'_, S>, shard: &Shard<'_, S>, why: FormatError) -> Result<Self, Self> {
        state.refuse_shard(shard, FormatError::Damaged("its entries cannot be read"))?;
        Ok(PassError::Index { prefix: shard.prefix, why })
    }
}

/// Does a pass over all logs of files that this host has, or can have. Other hosts may do theirs at the same time.
///
/// # Errors
/// As [`PassError`] says.
pub fn pass<S: Substrate>(
    state: &State<'_, S>,
    files: &mut Files,
    options: &PassOptions<'_>,
) -> Result<Passed, PassError> {
    let images = Images::new(state, files, options.selection)?;
    let mut pass = Pass { state, options, images, told_blocks: 0, passed: Passed::default() };
    let result = pass.run();
    let Pass { passed, images, .. } = pass;
    drop(images);
    match result {
        Err(PassError::Index { prefix, why }) => {
            // What lay there is found again, but only by reading everything.
            state.take_loss();
            files.forget_scans(state)?;
            return Err(PassError::Index { prefix, why });
        }
        result => result?,
    }
    if state.take_loss() {
        files.forget_scans(state)?;
    }
    state.leave();
    Ok(passed)
}

struct Pass<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    options: &'a PassOptions<'a>,
    images: Images<'a, 'b, S>,
    /// Blocks that logs told of.
    told_blocks: u64,
    passed: Passed,
}

/// What makes a pass worth its while.
struct Causes {
    /// Logs that were read.
    logs: Vec<LogName>,
    /// Hosts that died, and may have left slots that nobody names.
    dead: Vec<HostNo>,
    /// Files that are known and gone, or have gone a short while ago.
    gone: Vec<FileNo>,
}

impl<'b, S: Substrate> Pass<'_, 'b, S> {
    fn run(&mut self) -> Result<(), PassError> {
        let state = self.state;
        let folder = self.options.temporary_folder;
        let mut watch = StopWatch::start(self.options.clock);
        // Read, sorted, sorted again: three sorts are never at their most at once, two may be.
        let part = self.options.memory_bytes / 4;
        let [seen, targets, candidates, requests] = [(); 4].map(|()| Sorter::new(folder));
        let (mut seen_batch, mut targets_batch) = (seen.batch(part), targets.batch(part));
        let mut written = WrittenRanges::default();
        let dead = state.dead_hosts()?;
        let logs = self.read_logs(&mut seen_batch, &mut targets_batch, &mut written)?;
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
        let shards = state.open_shards(Prefix::WHOLE)?;
        if state.take_loss() {
            self.images.forget_scans()?;
        }
        let generations: Vec<(Prefix, u64, u64)> =
            shards.iter().map(|shard| (shard.prefix, shard.generation, shard.bytes)).collect();
        // After the shards, so that whatever these name is there to be seen.
        let arenas = Arenas::look(state, self.options.pace)?;
        let mut named = SlotSet::default();
        let seen = spool(seen.merged(vec![seen_batch.finish()])?, folder, part / 8)?;
        self.passed.times.logs = watch.lap();
        let mut candidates_batch = candidates.batch(part / 2);
        let mut requests_batch = requests.batch(part / 8);
        let sources = Sources { state, shards, seen: &seen, written: &written, arenas: &arenas };
        let sinks = Sinks {
            folder,
            memory_bytes: part / 8,
            candidates: &mut candidates_batch,
            targets: &mut targets_batch,
            requests: &mut requests_batch,
            named: &mut named,
        };
        let Plan { changes, others, counts, entries } = plan(&mut self.images, sources, sinks, self.options.pace)?;
        self.passed.planned = counts;
        self.passed.times.plan = watch.lap();
        let targets_bytes = counts.targets * BLOCK_BYTES_U64;
        if (self.options.progress)(PassProgress::Planned { targets: targets_bytes }).is_break() {
            return Err(StateError::Interrupted.into());
        }
        if self.options.is_dry_run {
            return Ok(());
        }

        let mut arena = ArenaWriter::new(state);
        let entered = Sorter::new(folder);
        let mut entered_batch = entered.batch(part / 4);
        let waiting = Waiting { candidates: candidates.merged(vec![candidates_batch.finish()])?, others };
        let mut noted = Noted::default();
        self.promote(&mut arena, waiting, &mut targets_batch, &mut entered_batch, (&mut noted.touched, part / 4))?;
        arena.sync()?;
        self.passed.times.promote = watch.lap();
        let targets = targets.merged(vec![targets_batch.finish()])?;
        let losses = Sorter::new(folder);
        let mut losses_batch = losses.batch(part / 8);
        let trouble = &mut self.passed.trouble;
        self.passed.shared =
            share::share(state, &self.images, targets, &mut losses_batch, self.options, (&mut noted, &mut *trouble))?;
        let losses = losses.merged(vec![losses_batch.finish()])?;
        let remnants = std::mem::take(&mut noted.remnants);
        let results = (&mut self.passed.shared, trouble);
        pinned::release(state, &mut self.images, losses, remnants, self.options, results)?;
        for (number, (before, after)) in std::mem::take(&mut noted.retimed) {
            self.images.restamp(number, before, after)?;
        }
        if self.options.space.keeps_copies_small {
            copies::keep_small(state, &mut self.images, &noted.touched)?;
        }
        self.passed.times.share = watch.lap();

        requests::write(state, requests.merged(vec![requests_batch.finish()])?)?;
        let entered = entered.merged(vec![entered_batch.finish()])?;
        let changes = merged(changes, entered, folder, part / 8)?;
        let mut known: KnownShards = generations
            .into_iter()
            .zip(entries)
            .map(|((prefix, generation, bytes), counts)| (prefix, Known { generation, counts, bytes }))
            .collect();
        let again = Sorter::new(folder);
        let mut again_batch = again.batch(part / 8);
        let keys = self.images.keys();
        let news = News {
            changes: &changes,
            seen: &seen,
            suspects: &noted.suspects,
            unneeded: &SlotSet::default(),
            keys: &keys,
            entries_max: self.options.shard_entries_max,
            folder,
            pace: self.options.pace,
        };
        let clock = self.options.clock;
        let is_all_there = publish::publish(state, clock, &news, &mut known, &mut named, &mut again_batch)?;
        // The logs are there until these are: between the two nothing is lost.
        requests::write(state, again.merged(vec![again_batch.finish()])?)?;
        self.passed.times.publish = watch.lap();
        if !is_all_there {
            return Ok(());
        }
        if !self.passed.trouble.again.is_empty() {
            let now = self.state.now()?;
            self.passed.trouble.again.note(&mut self.images, now)?;
        }
        for log in &causes.logs {
            state.remove_log(log)?;
        }
        let filled: BTreeSet<u32> = arena.numbers().collect();
        drop(arena);
        let is_left = self.collect(now, &causes.gone, &arenas, (&mut known, &mut named), &filled)?;
        let declared = state.intent_paths()?;
        for host in &causes.dead {
            // As long as holes wait to be filled, the host has left something.
            if !declared.iter().any(|path| host.has_named(path)) {
                state.forget_host(*host)?;
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
        (known, named): (&mut KnownShards, &mut SlotSet),
        filled: &BTreeSet<u32>,
    ) -> Result<bool, PassError> {
        let Some(now) = now else { return self.sweep(filled, arenas, known, named).map(|()| false) };
        let occasion = Occasion { now, gone, told: self.told_blocks };
        let (state, options) = (self.state, self.options);
        let collected = collect(state, &mut self.images, options, &occasion, arenas, (known, named))?;
        self.passed.planned.collected += collected.dropped;
        self.sweep(filled, arenas, known, named)?;
        Ok(collected.is_left)
    }

    /// Empties the slots that no entry names.
    fn sweep(
        &mut self,
        filled: &BTreeSet<u32>,
        arenas: &Arenas,
        known: &KnownShards,
        named: &mut SlotSet,
    ) -> Result<(), PassError> {
        let mut locks = Vec::new();
        for number in self.state.arenas()? {
            if filled.contains(&number) || arenas.filled.has_more(number, named) {
                locks.extend(self.state.lock_arena(number)?);
            }
        }
        if locks.is_empty() {
            return Ok(());
        }
        // Who fills an arena file has its lock until the entries that name its slots are published.
        for mut shard in self.state.open_shards(Prefix::WHOLE)? {
            if known.get(&shard.prefix).is_some_and(|known| known.generation == shard.generation) {
                continue;
            }
            loop {
                match shard.next_entry() {
                    Ok(Some(entry)) => {
                        if let Place::Shared(slot) = entry.place {
                            named.insert(slot);
                        }
                    }
                    Ok(None) => break,
                    Err(FormatError::Io(error)) => return Err(error.into()),
                    Err(why) => return Err(PassError::damaged(self.state, &shard, why)?),
                }
            }
        }
        // What is declared is all that is left of what was in the holes of a host that died.
        match self.state.each_declared_slot(|slot| named.insert(slot)) {
            Err(StateError::Damaged { .. } | StateError::Newer { .. }) => return Ok(()),
            read => read?,
        }
        for lock in &locks {
            self.passed.swept_slots += self.state.sweep_arena(lock, |slot| named.contains(slot))?;
        }
        Ok(())
    }

    /// Has candidates put into the arena, and the next place of a content where that failed, until none is left.
    fn promote(
        &mut self,
        arena: &mut ArenaWriter<'_, 'b, S>,
        mut waiting: Waiting,
        targets: &mut Batch<'_>,
        changes: &mut Batch<'_>,
        (touched, memory_bytes): (&mut BTreeSet<FileNo>, usize),
    ) -> Result<(), PassError> {
        let folder = self.options.temporary_folder;
        let trouble = &mut self.passed.trouble;
        for round in 1.. {
            let promoted = Sorter::new(folder);
            let mut promoted_batch = promoted.batch(memory_bytes);
            let pace = (self.options.pace, self.options.threads);
            let noted = (&mut *touched, &mut *trouble);
            promote::promote(self.state, &self.images, arena, waiting.candidates, &mut promoted_batch, noted, pace)?;
            let promoted = promoted.merged(vec![promoted_batch.finish()])?;
            let next = Sorter::new(folder);
            let mut next_batch = next.batch(memory_bytes);
            let is_last = trouble.is_full || round == PROMOTE_ROUNDS;
            let given_up = is_last.then_some(&mut trouble.again);
            let sinks = join::Sinks { targets, changes, candidates: &mut next_batch, given_up, folder, memory_bytes };
            let (others, count) = join::join(promoted, waiting.others, sinks)?;
            if count == 0 {
                break;
            }
            waiting = Waiting { candidates: next.merged(vec![next_batch.finish()])?, others };
        }
        Ok(())
    }

    /// Reads the logs of all files that are this host's, or can be, and that no other host is about to read. Returns those
    /// that may go once the index is published.
    fn read_logs(
        &mut self,
        seen: &mut Batch<'_>,
        targets: &mut Batch<'_>,
        written: &mut WrittenRanges,
    ) -> Result<Vec<LogName>, PassError> {
        let mut done = Vec::new();
        // Of two logs that tell of one block the newer one is right, whichever number of their file they have. Requests say what
        // was known before any of them.
        let (requests, mut logs): (Vec<LogName>, Vec<LogName>) =
            self.state.logs()?.into_iter().partition(|log| log.kind == LogKind::Request);
        logs.sort_by_key(LogName::order);
        let mut present = BTreeMap::new();
        for log in logs.into_iter().rev().chain(requests) {
            self.options.pace.boundary()?;
            if !self.images.is_selected(log.file) {
                self.passed.logs_outside += 1;
                continue;
            }
            if log.kind == LogKind::Request && log.host != self.state.host() {
                // Whoever wrote it may not have published yet what it tells of; then it would be taken for known.
                let is_present = match present.get(&log.host) {
                    Some(is_present) => *is_present,
                    None => self.state.is_present(log.host)?,
                };
                present.insert(log.host, is_present);
                if is_present {
                    self.passed.logs_elsewhere += 1;
                    continue;
                }
            }
            if !self.images.own(log.file)? {
                self.passed.logs_elsewhere += 1;
                continue;
            }
            // Nobody else reads the file now, so that what is known of its name is the latest.
            if !self.images.is_there(log.file)? {
                // It may come back as it was, under another name of its folder, or in again.
                self.images.forget_scan(log.file)?;
                self.state.remove_log(&log)?;
                continue;
            }
            let file = self.images.first_number(log.file)?;
            let is_reserved = self.images.is_reserved(file);
            let is_unnoted = self.images.is_unnoted(&log);
            let read = self.state.read_log(&log, |note| -> Result<(), PassError> {
                self.options.pace.boundary()?;
                self.told_blocks += match (log.kind, note) {
                    (LogKind::Log, Note::Changed { count, .. }) => count,
                    (LogKind::Log, Note::Written(_)) => 1,
                    (LogKind::Request, _) => 0,
                };
                if is_unnoted {
                    // A scan that did not know this log may have read these blocks later.
                    let (first, count) = note.blocks();
                    self.passed.trouble.again.add(file, first, count, Because::Changed);
                }
                let told = match (log.kind, note) {
                    (LogKind::Log, note) => written.news(file, note),
                    (LogKind::Request, Note::Written(told)) if !written.contains(file, told.block) => Some(told),
                    (LogKind::Request, _) => None,
                };
                let Some(block) = told else { return Ok(()) };
                match block.digest {
                    Some(digest) => seen.push(Seen { digest, file, block: block.block }.row())?,
                    // Whoever has reserved the room of the file wants to have it.
                    None if is_reserved => {}
                    None => targets.push(Target { file, block: block.block, source: Source::Zeros }.row())?,
                }
                Ok(())
            });
            match read {
                Ok(()) => done.push(log),
                Err(LogError::Each(error)) => return Err(error),
                // Another host had the file until a moment ago, and has taken the log in.
                Err(LogError::Log(FormatError::Io(why))) if why.kind() == io::ErrorKind::NotFound => continue,
                // What was read of it counts; the rest is found when the file is read again.
                Err(LogError::Log(why)) => {
                    self.images.forget_scan(file)?;
                    self.state.refuse_log(&log, why)?;
                }
            }
            written.seal();
            self.passed.logs += 1;
        }
        Ok(done)
    }
}

/// Measures what follows on each other.
struct StopWatch<'a> {
    clock: &'a dyn Clock,
    since: Duration,
}

impl StopWatch<'_> {
    fn start(clock: &dyn Clock) -> StopWatch<'_> {
        StopWatch { clock, since: clock.monotonic() }
    }

    /// Returns the time since the last look.
    fn lap(&mut self) -> Duration {
        let now = self.clock.monotonic();
        now.saturating_sub(std::mem::replace(&mut self.since, now))
    }
}

/// What is to be put into the arena, and the places that wait for it.
struct Waiting {
    candidates: Merge,
    others: Ordered,
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
fn merged(planned: Ordered, entered: Merge, folder: &Path, memory_bytes: usize) -> io::Result<Spool> {
    let (mut planned, mut entered) = (planned.peekable(), entered.peekable());
    let both = std::iter::from_fn(|| match (planned.peek(), entered.peek()) {
        // Those of one digest may come in any order; an error comes first.
        (Some(Ok(one)), Some(Ok(other))) if one > other => entered.next(),
        (Some(Ok(_)), Some(Err(_))) | (None, Some(_)) => entered.next(),
        _ => planned.next(),
    });
    spool(both, folder, memory_bytes)
}
