//! The scheduler: picks the host that makes the next call, or another event, step by step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use onefold_block::random::SeededRandom;

use super::clock::SimulatedClock;
use super::dice::Dice;
use super::file_system::SimulatedFileSystem;
use super::host::{Host, HostNo};
use super::mount::SimulatedSubstrate;
use super::options::{Faults, SimulationOptions};
use super::outcome::{Outcome, RunFailure};

/// Maximum number of times that a crashed host is resumed so that it ends by itself.
const LAST_RESUMES: u32 = 3;
/// Maximum offset of a host's time of day: an hour.
const SKEW_MAX_NS: u64 = 3_600_000_000_000;

type HostWork = Rc<dyn Fn(&Host<'_>)>;

/// The scheduler's record of a host.
struct HostSlot {
    /// Its work; `None` while the host is down or rests.
    coroutine: Option<Coroutine<(), (), ()>>,
    clock: Arc<SimulatedClock>,
    state: HostPhase,
    /// Number of the only valid entry for this host in the queue.
    wake: u64,
    starts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostPhase {
    /// Its next call may be made; the index is its place among the runnable hosts.
    Runnable(usize),
    /// It waits for a time: to start, to wake, or to resume after a suspension.
    Waiting,
}

/// N hosts that do the same work over one simulated file system.
///
/// Every step is one call of one host, with all its work until its next call, one change by a writer, or one event. The
/// seed decides all of it; with [`SimulationOptions::drawn`] it also decides the options.
pub struct Simulation {
    // Before the file system: dropping the stacks closes the files that hosts hold open.
    slots: Vec<HostSlot>,
    file_system: SimulatedFileSystem,
    work: HostWork,
    options: SimulationOptions,
    dice: Dice,
    runnable: Vec<HostNo>,
    /// When each waiting host goes on, with the number in its slot if the entry is still valid.
    waiting: BinaryHeap<Reverse<(u64, HostNo, u64)>>,
    current: Option<HostNo>,
    stacks: Vec<DefaultStack>,
}

impl Simulation {
    /// Makes the file system with its first images, and schedules the start of every host. Each host runs `work`; when
    /// it returns, the host rests and runs it again.
    #[must_use]
    pub fn new(options: &SimulationOptions, work: impl Fn(&Host<'_>) + 'static) -> Simulation {
        let file_system = SimulatedFileSystem::new(options);
        let mut simulation = Simulation {
            slots: Vec::new(),
            file_system,
            work: Rc::new(work),
            options: options.clone(),
            dice: Dice::new(options.seed, 0x5ced),
            runnable: Vec::new(),
            waiting: BinaryHeap::new(),
            current: None,
            stacks: Vec::new(),
        };
        for host in (0..options.hosts).map(HostNo) {
            let clock = simulation.file_system.clock(host);
            simulation.slots.push(HostSlot { coroutine: None, clock, state: HostPhase::Waiting, wake: 0, starts: 0 });
            let start = if host.0 == 0 { 1 } else { simulation.dice.time_ns(options.rest_time_max) };
            simulation.wait_until(host, start);
        }
        simulation
    }

    /// Returns the file system, for inspection from outside.
    #[must_use]
    pub fn file_system(&self) -> &SimulatedFileSystem {
        &self.file_system
    }

    /// Runs this many steps.
    ///
    /// # Errors
    /// The first violation of an invariant, or panic of the work.
    pub fn run(&mut self, steps: u64) -> Result<(), RunFailure> {
        let run = AssertUnwindSafe(|| {
            for _ in 0..steps {
                self.step();
                if let Some(problem) = self.file_system.violation() {
                    return Err(problem);
                }
                let taken = self.file_system.world().counters.steps;
                if self.options.full_check_steps > 0 && taken.is_multiple_of(self.options.full_check_steps) {
                    self.file_system.check()?;
                }
            }
            Ok(())
        });
        let result = catch_unwind(run).unwrap_or_else(|panic| Err(panic_message(&*panic)));
        result.map_err(|problem| self.failure(problem))
    }

    /// Ends faults, crashes, suspensions and writing, makes every file shareable and resumes every host, so that the
    /// hosts can finish their work.
    pub fn calm(&mut self) {
        self.options.writer_percent = 0;
        (self.options.crashes_per_million, self.options.stalls_per_million) = (0, 0);
        (self.options.clock_jumps_per_million, self.options.crash_at_share_percent) = (0, 0);
        self.options.identity_losses_per_million = 0;
        self.file_system.world_mut().options.faults = Faults::none();
        self.file_system.world_mut().files.all_mut().for_each(|file| (file.refusal, file.in_use) = (None, None));
        for host in (0..self.options.hosts).map(HostNo) {
            let is_stalled = self.file_system.world().machine(host).is_stalled;
            let is_down = self.slot(host).coroutine.is_none();
            if is_stalled || is_down {
                self.wait_until(host, self.now());
            }
        }
    }

    /// Crashes a host: its calls fail from now on, so that its work ends. It starts again after a while.
    pub fn crash(&mut self, host: HostNo) {
        self.file_system.world_mut().tell(|_| format!("{host} crashes"));
        self.file_system.crash(host);
        if let Some(mut coroutine) = self.slot_mut(host).coroutine.take() {
            let mut resumes = 0;
            while resumes < LAST_RESUMES && !coroutine.done() {
                coroutine.resume(());
                resumes += 1;
            }
            if coroutine.done() {
                self.stacks.push(coroutine.into_stack());
            }
        }
        let start = self.now() + self.dice.time_ns(self.options.down_time_max);
        self.wait_until(host, start);
    }

    /// Suspends a host for some time, without its knowledge.
    pub fn stall(&mut self, host: HostNo, time: Duration) {
        if self.slot(host).coroutine.is_some() {
            self.file_system.world_mut().tell(|_| format!("{host} is suspended for {time:?}"));
            self.file_system.stall(host);
            self.wait_until(host, self.now() + super::dice::nanoseconds(time));
        }
    }

    /// Ends the run, and checks all invariants a last time.
    ///
    /// # Errors
    /// See [`Simulation::run`].
    pub fn finish(mut self) -> Result<Outcome, RunFailure> {
        let checked = self.file_system.check();
        // Closes the files that hosts have open.
        self.slots.clear();
        checked.and_then(|()| self.file_system.check()).map_err(|problem| self.failure(problem))?;
        Ok(self.outcome())
    }

    /// Returns the result of the run so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome {
            seed: self.options.seed,
            counters: self.file_system.counters(),
            census: self.file_system.census(),
            seconds: self.now() / 1_000_000_000,
            trail: self.dice.clone().next() ^ self.file_system.world().dice.clone().next() ^ self.now(),
        }
    }

    fn failure(&self, problem: String) -> RunFailure {
        let world = self.file_system.world();
        RunFailure { seed: self.options.seed, step: world.counters.steps, problem, story: world.story() }
    }

    fn now(&self) -> u64 {
        self.file_system.world().time.load(Ordering::Relaxed)
    }

    fn slot(&self, host: HostNo) -> &HostSlot {
        &self.slots[host.0 as usize]
    }

    fn slot_mut(&mut self, host: HostNo) -> &mut HostSlot {
        &mut self.slots[host.0 as usize]
    }

    fn step(&mut self) {
        let passed = self.dice.time_ns(self.options.step_time_max);
        {
            let mut world = self.file_system.world_mut();
            world.counters.steps += 1;
            world.pass(passed);
        }
        self.wake();
        if self.event() {
            return;
        }
        if self.dice.below(100) < u64::from(self.options.writer_percent) {
            self.file_system.let_writers_write();
        } else if let Some(host) = self.choose() {
            self.resume(host);
            self.crash_at_share(host);
        } else if let Some(Reverse((at, _, _))) = self.waiting.peek() {
            let passed = at.saturating_sub(self.now());
            self.file_system.world().pass(passed);
        }
    }

    /// Makes a random event happen to a host, or none.
    fn event(&mut self) -> bool {
        let drawn = self.dice.below(1_000_000);
        let crashes = u64::from(self.options.crashes_per_million);
        let stalls = crashes + u64::from(self.options.stalls_per_million);
        let jumps = stalls + u64::from(self.options.clock_jumps_per_million);
        let losses = jumps + u64::from(self.options.identity_losses_per_million);
        if (jumps..losses).contains(&drawn) {
            self.file_system.lose_identity();
            return true;
        }
        if drawn >= jumps {
            return false;
        }
        let host = HostNo(u32::try_from(self.dice.below(u64::from(self.options.hosts))).expect("below a u32"));
        let is_up = self.file_system.world().machine(host).is_up;
        if !is_up {
            return false;
        }
        if drawn < crashes {
            self.crash(host);
        } else if drawn < stalls {
            let time = Duration::from_nanos(self.dice.time_ns(self.options.stall_time_max));
            self.stall(host, time);
        } else {
            let skew = i64::try_from(self.dice.below(2 * SKEW_MAX_NS)).expect("two hours") - SKEW_MAX_NS as i64;
            self.file_system.world().machine(host).skew_ns.store(skew, Ordering::Relaxed);
        }
        true
    }

    /// Crashes a host now and then while it may be in the middle of a share.
    fn crash_at_share(&mut self, host: HostNo) {
        let percent = u64::from(self.options.crash_at_share_percent);
        if percent > 0 && self.file_system.world().is_sharing(host) && self.dice.below(100) < percent {
            self.crash(host);
        }
    }

    /// Chooses the host that makes its call: often the same one as last time.
    fn choose(&mut self) -> Option<HostNo> {
        let stays = self.dice.below(100) < u64::from(self.options.burst_percent);
        let current = self.current.filter(|host| stays && matches!(self.slot(*host).state, HostPhase::Runnable(_)));
        let count = self.runnable.len();
        let chosen = current.or_else(|| (count > 0).then(|| self.runnable[self.dice.index(count)]));
        self.current = chosen;
        chosen
    }

    /// Lets a host make its call and run to its next one.
    fn resume(&mut self, host: HostNo) {
        let slot = self.slot_mut(host);
        let coroutine = slot.coroutine.as_mut().expect("a runnable host has something to do");
        match coroutine.resume(()) {
            CoroutineResult::Yield(()) => {
                if let Some(until) = slot.clock.asleep_until() {
                    self.wait_until(host, until);
                }
            }
            CoroutineResult::Return(()) => {
                let (stack, asleep_until) =
                    (slot.coroutine.take().map(Coroutine::into_stack), slot.clock.asleep_until());
                self.stacks.extend(stack);
                self.file_system.end_work(host);
                let start = asleep_until.unwrap_or(self.now()) + self.dice.time_ns(self.options.rest_time_max);
                self.wait_until(host, start);
            }
        }
    }

    /// Resumes hosts whose time has come.
    fn wake(&mut self) {
        let now = self.now();
        while let Some(Reverse((at, host, wake))) = self.waiting.peek().copied()
            && at <= now
        {
            self.waiting.pop();
            if self.slot(host).wake == wake && self.slot(host).state == HostPhase::Waiting {
                self.go_on(host);
            }
        }
    }

    fn go_on(&mut self, host: HostNo) {
        if self.file_system.world().machine(host).is_stalled {
            self.file_system.unstall(host);
        }
        if self.slot(host).coroutine.is_none() {
            self.start(host);
        }
        match self.slot(host).clock.asleep_until() {
            Some(until) => self.wait_until(host, until),
            None => {
                self.slot_mut(host).state = HostPhase::Runnable(self.runnable.len());
                self.runnable.push(host);
            }
        }
    }

    /// Makes a host wait until a time, whatever it did or waited for before.
    fn wait_until(&mut self, host: HostNo, time: u64) {
        if let HostPhase::Runnable(place) = self.slot(host).state {
            self.runnable.swap_remove(place);
            if let Some(moved) = self.runnable.get(place).copied() {
                self.slot_mut(moved).state = HostPhase::Runnable(place);
            }
        }
        let slot = self.slot_mut(host);
        slot.state = HostPhase::Waiting;
        slot.wake += 1;
        let wake = slot.wake;
        self.waiting.push(Reverse((time, host, wake)));
    }

    /// Starts a host's work on its own stack.
    fn start(&mut self, host: HostNo) {
        let clock = self.file_system.clock(host);
        let mount = self.file_system.start(host, Arc::clone(&clock));
        let stack = self.stacks.pop().unwrap_or_else(|| {
            DefaultStack::new(self.options.stack_bytes).expect("there is address space for one more stack")
        });
        let (seed, work) = (self.dice.next(), Rc::clone(&self.work));
        let slot = self.slot_mut(host);
        let incarnation = slot.starts;
        slot.starts += 1;
        slot.clock = Arc::clone(&clock);
        slot.coroutine = Some(Coroutine::with_stack(stack, move |yielder, ()| {
            let substrate = SimulatedSubstrate::new(mount, Some(yielder));
            work(&Host { no: host, incarnation, substrate, clock, random: Arc::new(SeededRandom::new(seed)) });
        }));
    }
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the work panicked: {}", text.unwrap_or("without a message"))
}
