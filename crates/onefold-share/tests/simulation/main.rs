//! Hosts that share one file system, simulated: a stand-in for the engine goes over images that writers change, hosts
//! crash, are suspended and come back, and after every step all files read as they are to.
//!
//! `ONEFOLD_SIMULATIONS=n` sets how many seeds each test runs, `ONEFOLD_SEED=n` runs one alone, as failures say.

mod asking;
mod collect;
mod concluded;
mod declared;
mod domains;
mod engine;
mod finders;
mod holes;
mod interrupted;
mod monitor;
mod rereading;
mod selections;
mod stand_in;
mod states;
#[path = "../common/states/mod.rs"]
mod states_walk;
mod trust;
mod volumes;
mod watches;

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use onefold_block::Clock;
use onefold_substrate::{Files, Names};
use onefold_testing::simulated::{
    Counters, Faults, Host, HostNo, Mistake, Outcome, Simulation, SimulationOptions, seeds, simulate,
};

/// What each host does: one pass. A pass that fails is given up, and the host does another one later.
fn work(host: &Host<'_>) {
    drop(stand_in::pass(&host.substrate, &*host.clock, host.no.0));
}

/// Runs the stand-in on each seed, and returns what happened.
fn simulate_all(seeds: impl Iterator<Item = u64>, options: impl Fn(u64) -> SimulationOptions) -> Vec<Outcome> {
    simulate_all_with(seeds, options, work)
}

/// Runs a simulation of each seed, and returns what happened.
fn simulate_all_with(
    seeds: impl Iterator<Item = u64>,
    options: impl Fn(u64) -> SimulationOptions,
    work: fn(&Host<'_>),
) -> Vec<Outcome> {
    let start = Instant::now();
    let mut hosts = 0;
    let outcomes: Vec<Outcome> = seeds
        .map(|seed| {
            let options = options(seed);
            hosts += u64::from(options.hosts);
            simulate(&options, work)
        })
        .collect();
    let rate = tell(&outcomes, hosts) as f64 / start.elapsed().as_secs_f64() / 1000.0;
    println!("{rate:.0} thousand steps a second");
    if let Some(last) = outcomes.last() {
        println!("{last}");
    }
    outcomes
}

/// Tells of runs with so many hosts in all. `make sim` adds these lines up. Returns how many steps they had.
fn tell(outcomes: &[Outcome], hosts: u64) -> u64 {
    let [steps, shares] = [total(outcomes, |counters| counters.steps), total(outcomes, |counters| counters.shares)];
    println!("{} simulations, {steps} steps, {hosts} hosts, {shares} shares", outcomes.len());
    steps
}

fn total(outcomes: &[Outcome], counter: impl Fn(&Counters) -> u64) -> u64 {
    outcomes.iter().map(|outcome| counter(&outcome.counters)).sum()
}

/// Takes so many steps. `what` says in a failure which run it was.
fn go_on(simulation: &mut Simulation, steps: u64, what: &str) {
    simulation.run(steps).unwrap_or_else(|failure| panic!("{what}: {failure}"));
}

/// Goes on until hosts have made so many calls more, crashes the first, and takes so many steps. Returns whether the
/// work of a host had ended before the crash.
fn cut(simulation: &mut Simulation, calls: u64, steps: u64, what: &str) -> bool {
    let calls = simulation.file_system().counters().calls + calls;
    while simulation.file_system().counters().calls < calls {
        go_on(simulation, 1, what);
    }
    let has_ended = simulation.file_system().counters().ends > 0;
    simulation.crash(HostNo(0));
    go_on(simulation, steps, what);
    has_ended
}

#[test]
fn images_read_as_written_whatever_happens_to_a_few_hosts() {
    let outcomes = simulate_all(seeds(1, 300), |seed| {
        SimulationOptions::drawn(seed, 1 + u32::try_from(seed % 7).expect("below 7"), 10_000)
    });
    if outcomes.len() >= 100 {
        for (what, count) in [
            ("crashes", total(&outcomes, |counters| counters.crashes)),
            ("suspensions", total(&outcomes, |counters| counters.stalls)),
            ("expired locks", total(&outcomes, |counters| counters.locks_expired)),
            ("lost blocks", total(&outcomes, |counters| counters.blocks_lost)),
            ("lost names", total(&outcomes, |counters| counters.names_lost)),
            ("faults", total(&outcomes, |counters| counters.faults)),
            ("shares", total(&outcomes, |counters| counters.shares)),
            ("differences", total(&outcomes, |counters| counters.differs)),
            ("refusals", total(&outcomes, |counters| counters.refusals)),
            ("saved blocks", total(&outcomes, |counters| counters.blocks_freed_by_sharing)),
        ] {
            println!("{count:>9} {what}");
            assert!(count > 100, "hardly any {what}: {count}");
        }
    }
}

#[test]
fn images_read_as_written_whatever_happens_to_many_hosts() {
    simulate_all(seeds(1000, 12), |seed| SimulationOptions::drawn(seed, 50, 60_000));
}

#[test]
fn images_read_as_written_whatever_happens_to_a_thousand_hosts() {
    simulate_all(seeds(2000, 2), |seed| SimulationOptions::drawn(seed, 1000, 300_000));
}

/// The rate is told, not asserted: machines differ.
#[test]
fn steps_are_cheap() {
    simulate_all(seeds(3000, 1), |seed| SimulationOptions { seed, hosts: 16, steps: 500_000, ..Default::default() });
}

#[test]
fn equal_seeds_run_equally() {
    for seed in seeds(10, 5) {
        let options = SimulationOptions::drawn(seed, 5, 5000);
        assert_eq!(simulate(&options, work), simulate(&options, work));
    }
}

#[test]
fn once_all_is_calm_everything_is_shared() {
    for seed in seeds(20, 20) {
        let mut options = SimulationOptions::drawn(seed, 4, 10_000);
        options.total_blocks = 1 << 16;
        options.contents = 64;
        let mut simulation = Simulation::new(&options, work);
        simulation.run(options.steps).unwrap_or_else(|failure| panic!("{failure}"));
        simulation.calm();
        simulation.run(60_000).unwrap_or_else(|failure| panic!("{failure}"));
        let outcome = simulation.finish().unwrap_or_else(|failure| panic!("{failure}"));
        let census = outcome.census;
        assert!(outcome.counters.blocks_freed_by_sharing > 0 && census.physical == census.distinct, "{outcome}");
    }
}

/// The first pass of a host on fresh images, cut at each of its calls; the next passes come to the same end.
#[test]
fn a_host_may_crash_at_every_call_of_a_pass() {
    let options = |seed| SimulationOptions {
        seed,
        hosts: 2,
        images: 4,
        image_blocks_max: 12,
        contents: 8,
        writer_percent: 0,
        ..SimulationOptions::default()
    };
    for seed in seeds(40, 3) {
        for calls in 0..150 {
            let what = format!("crash after {calls} calls");
            let mut simulation = Simulation::new(&options(seed), work);
            cut(&mut simulation, calls, 3000, &what);
            let outcome = simulation.finish().unwrap_or_else(|failure| panic!("{what}: {failure}"));
            assert_eq!(outcome.census.physical, outcome.census.distinct, "{what}: {outcome}");
        }
    }
}

#[test]
fn mistakes_of_a_file_system_are_found() {
    let mistakes = [
        Mistake::ShareDoesNotCompare,
        Mistake::CountNotRaised,
        Mistake::CountNotLowered,
        Mistake::SharedBlockOverwritten,
    ];
    for mistake in mistakes {
        let found = (1..=8).filter(|seed| {
            let options = SimulationOptions { mistake: Some(mistake), ..SimulationOptions::drawn(*seed, 3, 20_000) };
            let mut simulation = Simulation::new(&options, work);
            simulation.run(options.steps).is_err()
        });
        assert!(found.count() >= 7, "{mistake:?}");
    }
}

/// An engine that writes into an image is found out, whatever it writes there.
#[test]
fn an_engine_that_changes_an_image_is_found() {
    use onefold_substrate::Access;
    use std::path::Path;

    let spoil = |host: &Host<'_>| -> io::Result<()> {
        for listed in host.substrate.list(Path::new("images/a"))? {
            let file = host.substrate.open(&Path::new("images/a").join(listed.name), Access::Write)?;
            host.substrate.write_at(&file, 100, b"mine")?;
        }
        host.clock.sleep(Duration::from_secs(1));
        Ok(())
    };
    let mut simulation = Simulation::new(&SimulationOptions::default(), move |host| drop(spoil(host)));
    let failure = simulation.run(10_000).expect_err("the image differs");
    assert!(failure.problem.contains("differs from its reference copy"), "{failure}");
}

/// A failure names the seed and the step, and tells the steps before it, that of the failure last.
#[test]
fn a_failure_says_how_to_replay_it() {
    let panic = std::panic::catch_unwind(|| {
        let options = SimulationOptions { seed: 77, faults: Faults::each(1000), ..SimulationOptions::default() };
        simulate(&options, |host| {
            let pass = stand_in::pass(&host.substrate, &*host.clock, host.no.0);
            assert!(pass.is_ok(), "a pass failed: {pass:?}");
        })
    });
    let panic = panic.expect_err("a pass fails");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("the work panicked: a pass failed"), "{message}");
    assert!(message.contains("again with ONEFOLD_SEED=77, step "), "{message}");
    assert!(message.lines().count() > 10, "{message}");
}

/// A work that never gives up is dropped with its host.
#[test]
fn work_that_does_not_end_after_a_crash_is_dropped() {
    struct DropCounter(Rc<Cell<u32>>);
    impl Drop for DropCounter {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let counted = Rc::clone(&dropped);
    let options = SimulationOptions { crashes_per_million: 2000, ..SimulationOptions::default() };
    let mut simulation = Simulation::new(&options, move |host| {
        let _dropped = DropCounter(Rc::clone(&counted));
        loop {
            drop(stand_in::pass(&host.substrate, &*host.clock, host.no.0));
        }
    });
    simulation.run(10_000).unwrap_or_else(|failure| panic!("{failure}"));
    let outcome = simulation.finish().unwrap_or_else(|failure| panic!("{failure}"));
    assert!(outcome.counters.crashes > 5, "{outcome}");
    assert_eq!(u64::from(dropped.get()), outcome.counters.starts);
}
