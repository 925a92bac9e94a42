//! The file system itself: one for all hosts, changed by one call at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_block::BLOCK_BYTES;

use super::blocks::{BlockTable, PhysicalNo};
use super::checks::{StepChange, StepChecker};
use super::clock::EPOCH_NS;
use super::content::Content;
use super::dice::{Dice, nanoseconds};
use super::files::{FileNo, FileTable};
use super::host::{HostNo, HostState, OpenNo};
use super::names::FolderTable;
use super::options::{Faults, Mistake, SimulationOptions};
use super::outcome::Counters;
use super::reference::ReferenceCopy;

/// Number of last steps that are kept as text.
const STORY_LINES: usize = 40;

/// The origin of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Actor {
    /// The engine on a host, which may only share blocks of images.
    Engine(HostNo),
    /// A writer on a host; a crash of the host loses its unsynced changes. Its changes define the content of images.
    Writer(HostNo),
}

impl Actor {
    pub(super) fn host(self) -> HostNo {
        match self {
            Actor::Engine(host) | Actor::Writer(host) => host,
        }
    }
}

/// The file system that all hosts mount.
///
/// The neighbouring modules, each about one subject, have the verbs that change its parts. All of them change blocks
/// through [`World::remap`] and [`World::fill`], so that the checks miss no change.
#[derive(Debug)]
pub(super) struct World {
    pub(super) options: SimulationOptions,
    /// Nanoseconds since the simulation began.
    pub(super) time: Arc<AtomicU64>,
    pub(super) dice: Dice,
    pub(super) files: FileTable,
    pub(super) blocks: BlockTable,
    pub(super) names: FolderTable,
    machines: Vec<HostState>,
    opened: u64,
    /// The content of blocks that are set aside but not written: zeros, distinct from written ones.
    pub(super) unwritten: Content,
    pub(super) reference: ReferenceCopy,
    pub(super) checker: StepChecker,
    /// Blocks of images that a share has left as holes, until they are written or filled.
    pub(super) left: BTreeSet<(FileNo, u64)>,
    /// For a place in a host's file: the owner of the image whose block was cloned there.
    pub(super) cloned_from: BTreeMap<(FileNo, u64), u32>,
    /// Unreadable blocks of files.
    pub(super) bad: BTreeSet<(FileNo, u64)>,
    /// Files whose maps cannot be read.
    pub(super) unmappable: BTreeSet<FileNo>,
    /// The changes of the present step.
    pub(super) changes: Vec<StepChange>,
    pub(super) counters: Counters,
    /// The first violation that was found.
    pub(super) violation: Option<String>,
    story: VecDeque<String>,
}

impl World {
    pub(super) fn new(options: &SimulationOptions) -> World {
        World {
            time: Arc::new(AtomicU64::new(0)),
            dice: Dice::new(options.seed, 0x000f),
            files: FileTable::default(),
            blocks: BlockTable::new(options.total_blocks),
            names: FolderTable::new(),
            machines: (0..=options.hosts).map(|host| HostState::new(options.user_of(host))).collect(),
            opened: 0,
            unwritten: Rc::new([0; BLOCK_BYTES]),
            reference: ReferenceCopy::default(),
            checker: StepChecker::default(),
            left: BTreeSet::new(),
            cloned_from: BTreeMap::new(),
            bad: BTreeSet::new(),
            unmappable: BTreeSet::new(),
            changes: Vec::new(),
            counters: Counters::default(),
            violation: None,
            story: VecDeque::new(),
            options: options.clone(),
        }
    }

    pub(super) fn machine(&self, host: HostNo) -> &HostState {
        &self.machines[host.0 as usize]
    }

    pub(super) fn machine_mut(&mut self, host: HostNo) -> &mut HostState {
        &mut self.machines[host.0 as usize]
    }

    /// Returns all hosts, and last the observer, which meets no faults.
    pub(super) fn hosts(&self) -> impl Iterator<Item = HostNo> + use<> {
        (0..=self.options.hosts).map(HostNo)
    }

    pub(super) fn observer(&self) -> HostNo {
        HostNo(self.options.hosts)
    }

    /// Returns whether a call of a host fails in a way that has this rate in a million.
    pub(super) fn fails(&mut self, host: HostNo, rate: impl FnOnce(&Faults) -> u32) -> bool {
        let fails = host != self.observer() && self.dice.happens(rate(&self.options.faults));
        self.counters.faults += u64::from(fails);
        fails
    }

    /// Lets time pass.
    pub(super) fn pass(&self, time_ns: u64) {
        self.time.fetch_add(time_ns, Ordering::Relaxed);
    }

    /// Returns the time that a host now gives to a file.
    pub(super) fn file_time(&self, host: HostNo) -> u64 {
        let skew = self.machine(host).skew_ns.load(Ordering::Relaxed);
        let now = (EPOCH_NS + self.time.load(Ordering::Relaxed)).saturating_add_signed(skew);
        now - now % nanoseconds(self.options.time_unit).max(1)
    }

    /// Notes that a host changes a file's content now.
    pub(super) fn touch(&mut self, host: HostNo, no: FileNo) {
        let now = self.file_time(host);
        let file = self.files.get_mut(no);
        (file.modified, file.changed) = (now, now);
    }

    /// Makes a place of a file refer to another block, and updates the counts.
    pub(super) fn remap(&mut self, no: FileNo, index: u64, after: Option<PhysicalNo>) {
        let before = self.files.get_mut(no).map.set(index, after);
        if before == after {
            return;
        }
        let generation = self.blocks.generation();
        self.files.get_mut(no).touched.insert(index, generation);
        if after.is_some() {
            self.forget_hole(no, index);
        }
        let content = before.map(|block| self.blocks.content(block).clone());
        if let Some(block) = after {
            let is_forgotten = self.options.mistake == Some(Mistake::CountNotRaised) && self.blocks.count(block) > 0;
            if !is_forgotten {
                self.blocks.raise(block);
            }
        }
        if let Some(block) = before {
            let is_forgotten = self.options.mistake == Some(Mistake::CountNotLowered) && self.blocks.count(block) > 1;
            if !is_forgotten {
                self.blocks.lower(block);
            }
        }
        self.changes.push(StepChange::Mapped { file: no, index, before, content, after });
    }

    /// Changes the content of a block, in place.
    pub(super) fn fill(&mut self, block: PhysicalNo, content: Content) {
        let before = self.blocks.content(block).clone();
        self.blocks.set_content(block, content);
        self.changes.push(StepChange::Filled { block, before });
    }

    /// Opens a file on a host.
    pub(super) fn add_open(&mut self, host: HostNo, no: FileNo) -> OpenNo {
        let open = OpenNo(self.opened);
        self.opened += 1;
        self.files.get_mut(no).opens += 1;
        self.machine_mut(host).opens.insert(open, no);
        open
    }

    /// Closes a file on a host and releases its lock. Does nothing if a crash has closed it before.
    pub(super) fn close(&mut self, host: HostNo, open: OpenNo) {
        if let Some(no) = self.machine_mut(host).opens.remove(&open) {
            self.unlock(host, open, no);
            let file = self.files.get_mut(no);
            file.exclusive.take_if(|exclusive| exclusive.open == open);
            file.opens -= 1;
            self.reap(no);
        }
    }

    /// Frees a file that no name or opening leads to any more.
    pub(super) fn reap(&mut self, no: FileNo) {
        let file = self.files.get(no);
        if (file.names, file.opens, file.pins) != (0, 0, 0) {
            return;
        }
        let by = file.unsynced.by;
        for index in file.map.indices_from(0) {
            self.remap(no, index, None);
        }
        if let Some(host) = by {
            self.machine_mut(host).unsynced.remove(&no);
        }
        self.drop_lock(no);
        self.left.retain(|(left, _)| *left != no);
        self.forget_clones(no);
        self.reference.remove(no);
        self.files.remove(no);
    }

    /// Crashes a host: its unsynced changes are lost or kept, its files are closed, and its locks will expire.
    pub(super) fn crash(&mut self, host: HostNo) {
        self.counters.crashes += 1;
        self.fall_silent(host);
        self.lose_names(host);
        self.lose_data(host);
        self.leave_all(host);
        let machine = self.machine_mut(host);
        (machine.is_up, machine.is_stalled) = (false, false);
        machine.incarnation += 1;
        machine.seen_writes.clear();
        for no in std::mem::take(&mut machine.opens).into_values() {
            self.files.get_mut(no).opens -= 1;
            self.reap(no);
        }
    }

    /// Ends the work of a host and closes the files that it left open. The host itself stays up.
    pub(super) fn end_work(&mut self, host: HostNo) {
        self.counters.ends += 1;
        self.machine_mut(host).incarnation += 1;
        while let Some((open, _)) = self.machine(host).opens.first_key_value() {
            self.close(host, *open);
        }
    }

    /// Suspends a host: it no longer responds.
    pub(super) fn stall(&mut self, host: HostNo) {
        self.counters.stalls += 1;
        self.machine_mut(host).is_stalled = true;
        self.fall_silent(host);
    }

    /// Resumes a suspended host, without its knowledge.
    pub(super) fn unstall(&mut self, host: HostNo) {
        self.machine_mut(host).is_stalled = false;
        self.be_heard(host);
    }

    /// Records a violation, unless an earlier one was recorded.
    pub(super) fn violated(&mut self, problem: String) {
        self.violation.get_or_insert(problem);
    }

    /// Keeps a line about the present step, if lines are kept.
    pub(super) fn tell(&mut self, line: impl FnOnce(&World) -> String) {
        if self.options.tells_steps {
            let line = format!("{:>8}  {}", self.counters.steps, line(self));
            if self.story.len() == STORY_LINES {
                self.story.pop_front();
            }
            self.story.push_back(line);
        }
    }

    pub(super) fn story(&self) -> Vec<String> {
        self.story.iter().cloned().collect()
    }
}
