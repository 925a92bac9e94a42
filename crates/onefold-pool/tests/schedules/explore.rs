//! Runs a scenario in many orders, and repeats a given one.

use std::io::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use onefold_pool::OpenOptions;
use shuttle::scheduler::{
    PctScheduler, RandomScheduler, ReplayScheduler, Scheduler, UncontrolledNondeterminismCheckScheduler,
};
use shuttle::{Config, Runner};

use crate::common::{number_from, seed_or};
use crate::script::{Beliefs, Files, Script};
use crate::stage::{InitialState, Stage};

/// Number of schedules of each scenario, unless `ONEFOLD_SCHEDULES` sets it.
const SCHEDULES: u64 = 400;
/// Number of priority changes in one schedule: races that need more of them are not searched systematically.
const PRIORITY_CHANGES: usize = 4;
/// Stack of one explored thread, in bytes.
const STACK_BYTES: usize = 1 << 20;

/// Threads that meet on a pool.
pub struct Scenario {
    pub name: &'static str,
    /// Options for opening the pool.
    pub options: OpenOptions,
    /// Its files.
    pub files: Files,
    /// Returns the script of each thread; called in each schedule, so that it may use the explorer's random numbers.
    pub scripts: fn() -> Vec<Script>,
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config
}

/// Explores: half of the schedules switch threads at random, and half by priorities that rarely change (which finds
/// orders in which a thread pauses for long).
pub fn explore(scenario: &Arc<Scenario>) {
    let began = Instant::now();
    let prepared = prepare(scenario);
    if let Ok(path) = std::env::var("ONEFOLD_SCHEDULE") {
        let scheduler = ReplayScheduler::new_from_file(path).expect("a schedule is in the file");
        run(scheduler, scenario, &prepared);
        return;
    }
    let seed = seed_or(1);
    let each = usize::try_from(number_from("ONEFOLD_SCHEDULES").unwrap_or(SCHEDULES).div_ceil(2)).expect("a count");
    let mut done = run(RandomScheduler::new_from_seed(seed, each), scenario, &prepared);
    done += run(PctScheduler::new_from_seed(seed, PRIORITY_CHANGES, each), scenario, &prepared);
    let seconds = began.elapsed().as_secs_f64();
    // Prints directly, as the test harness captures what tests print.
    let _ =
        writeln!(std::io::stderr(), "schedules: {}, seed {seed}: {done} schedules in {seconds:.1} s", scenario.name);
}

/// Plays each of a few schedules twice and panics if the second run differs from the first.
pub fn replays(scenario: &Arc<Scenario>, schedules: usize) {
    let prepared = prepare(scenario);
    let random = RandomScheduler::new_from_seed(seed_or(1), schedules);
    run(UncontrolledNondeterminismCheckScheduler::new(random), scenario, &prepared);
}

/// Makes the scenario's pool. This takes the explorer's locks, so it must happen under the explorer.
fn prepare(scenario: &Arc<Scenario>) -> Arc<InitialState> {
    let prepared = Arc::new(OnceLock::new());
    let (scenario, out) = (Arc::clone(scenario), Arc::clone(&prepared));
    Runner::new(RandomScheduler::new_from_seed(0, 1), config()).run(move || {
        out.set(InitialState::new(&scenario.options, &scenario.files)).ok().expect("there is one schedule");
    });
    let prepared = Arc::into_inner(prepared).expect("the schedule has ended");
    Arc::new(prepared.into_inner().expect("set by the schedule"))
}

fn run(scheduler: impl Scheduler + 'static, scenario: &Arc<Scenario>, prepared: &Arc<InitialState>) -> usize {
    let (scenario, prepared) = (Arc::clone(scenario), Arc::clone(prepared));
    Runner::new(scheduler, config()).run(move || play(&scenario, &prepared))
}

/// Number of threads that carry out accepted writes: two, so that a later write can be ready before an earlier one.
const WORKERS: usize = 2;

/// Plays a scenario once.
fn play(scenario: &Arc<Scenario>, prepared: &InitialState) {
    let scripts = Arc::new((scenario.scripts)());
    let beliefs = Arc::new(Beliefs::new(&scenario.files, &scripts));
    let stage = Arc::new(Stage::open(prepared));
    let threads: Vec<_> = (0..scripts.len())
        .map(|thread| {
            let (stage, scripts, beliefs) = (Arc::clone(&stage), Arc::clone(&scripts), Arc::clone(&beliefs));
            let scenario = Arc::clone(scenario);
            shuttle::thread::spawn(move || stage.play(thread, &scripts[thread], &beliefs, &scenario.files))
        })
        .collect();
    // Carry out accepted writes, as the pool's own threads do elsewhere.
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let stage = Arc::clone(&stage);
            shuttle::thread::spawn(move || stage.work())
        })
        .collect();
    for thread in threads {
        thread.join().expect("ends");
    }
    stage.end_workers();
    for worker in workers {
        worker.join().expect("ends");
    }
    let stage = Arc::into_inner(stage).expect("all threads have ended");
    stage.close(&scripts, &beliefs, &scenario.files);
}
