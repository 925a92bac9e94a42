//! Doors that tell write monitors of what is written through their host, beside scans and passes.

use onefold_block::clock::ManualClock;
use onefold_share::pace::Pace;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use onefold_block::Clock;
use onefold_share::monitor::{HashPolicy, Monitor, MonitorError, MonitorPolicy};
use onefold_share::pass::{PassError, PassOptions, pass};
use onefold_share::scan::{ScanOptions, scan};
use onefold_share::state::files::Marks;
use onefold_share::state::{State, StateError};
use onefold_substrate::Substrate;
use onefold_testing::simulated::{
    Faults, Host, SeenKind, SeenWrite, SimulatedSubstrate, Simulation, SimulationOptions, seeds,
};

use super::simulate_all_with;

/// How many images a host has open at once.
const DOORS: u64 = 3;

/// Why a host gives up what it was doing.
enum FailureCause {
    State,
    Pass,
}

impl From<StateError> for FailureCause {
    fn from(_: StateError) -> FailureCause {
        FailureCause::State
    }
}

impl From<PassError> for FailureCause {
    fn from(_: PassError) -> FailureCause {
        FailureCause::Pass
    }
}

fn scan_all<S: Substrate>(state: &State<'_, S>, files: &mut Marks) -> Result<(), FailureCause> {
    scan(state, files, &ScanOptions::new(&Pace::unlimited()))?;
    Ok(())
}

fn pass_all<S: Substrate>(state: &State<'_, S>, files: &mut Marks) -> Result<(), FailureCause> {
    let (pace, clock) = (Pace::unlimited(), ManualClock::default());
    let options = PassOptions {
        memory_bytes: 1 << 20,
        shard_entries_max: 12,
        ..PassOptions::new(Path::new("/var/tmp"), &pace, &clock)
    };
    pass(state, files, &options)?;
    Ok(())
}

type TestMonitor<'run> = Monitor<SimulatedSubstrate<'run>>;

/// Tells the monitors what was done through the host since this was last called. Returns all of it; none where there
/// was more than the host keeps.
fn tell(host: &Host<'_>, monitors: &[TestMonitor<'_>]) -> Option<Vec<SeenWrite>> {
    let seen = host.take_writes();
    if seen.len() == SeenWrite::KEPT_MAX {
        monitors.iter().for_each(Monitor::lost_track);
        return None;
    }
    for write in &seen {
        for monitor in monitors.iter().filter(|monitor| *monitor.handle() == write.handle) {
            match write.kind {
                SeenKind::Written => monitor.wrote_unseen(write.offset, write.length),
                SeenKind::Zeroed => monitor.zeroed(write.offset, write.length),
                SeenKind::Truncated => monitor.truncated(write.length),
            }
        }
    }
    Some(seen)
}

/// Has images open for a while, and shares them meanwhile and afterwards.
fn watch_for_a_while(host: &Host<'_>, hashing: HashPolicy) -> Result<(), FailureCause> {
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {})?;
    let mut files = Marks::load(&state)?;
    scan_all(&state, &mut files)?;
    let paths: Vec<PathBuf> = files.iter().map(|mark| mark.path.clone()).collect();
    let memory_bytes = if host.random.below(4) == 0 { 1024 } else { 1 << 20 };
    let mut monitors = Vec::new();
    for _ in 0..DOORS.min(paths.len() as u64) {
        let path = &paths[usize::try_from(host.random.below(paths.len() as u64)).expect("an index")];
        let policy = MonitorPolicy { hashing, memory_bytes, ..MonitorPolicy::default() };
        match Monitor::open(&state, &mut files, path, policy, host.clock.clone()) {
            Ok(monitor) => monitors.push(monitor),
            Err(MonitorError::File { .. } | MonitorError::Elsewhere { .. }) => {}
            Err(MonitorError::State(error)) => return Err(error.into()),
        }
        tell(host, &monitors);
    }
    for _ in 0..host.random.below(12) {
        tell(host, &monitors);
        for monitor in &monitors {
            match host.random.below(4) {
                0 => drop(monitor.tick(&state)?),
                1 => monitor.flush(&state)?,
                _ => {}
            }
        }
        if host.random.below(6) == 0
            && let Some(monitor) = monitors.first()
        {
            monitor.lend(&state, || pass_all(&state, &mut files))??;
        }
        host.clock.sleep(Duration::from_millis(host.random.below(500)));
    }
    while let Some(monitor) = monitors.pop() {
        monitors.push(monitor);
        tell(host, &monitors);
        let Some(monitor) = monitors.pop() else { break };
        let handle = monitor.handle().clone();
        monitor.close(&state, &mut files)?;
        // Guests do not stop for a door that closes here: what came too late for it is for the scan.
        let is_late = |seen: Vec<SeenWrite>| seen.iter().any(|write| write.handle == handle);
        if tell(host, &monitors).is_none_or(is_late)
            && let Some(number) = files.of(&handle).map(|mark| mark.number)
        {
            files.forget_scan(&state, number)?;
        }
    }
    pass_all(&state, &mut files)
}

/// What each host does, by chance.
fn work(host: &Host<'_>) {
    let rate = HashPolicy::Adaptive { bytes_per_second: 20_000 };
    let hashing =
        [HashPolicy::Deferred, rate, HashPolicy::InBand][usize::try_from(host.random.below(3)).expect("below 3")];
    drop(watch_for_a_while(host, hashing));
}

#[test]
fn images_read_as_written_while_doors_tell_what_they_write() {
    let hosts = |seed: u64| 1 + u32::try_from(seed % 5).expect("below 5");
    let options =
        |seed| SimulationOptions { tells_writes: true, ..SimulationOptions::drawn(seed, hosts(seed), 10_000) };
    simulate_all_with(seeds(5200, 25), options, work);
}

/// One host whose door tells everything: nothing stays unshared for it that a scan would have found.
#[test]
fn what_a_monitor_spares_the_scan_is_shared_all_the_same() {
    for seed in seeds(5300, 8) {
        let mut options = SimulationOptions::drawn(seed, 1, 6000);
        (options.tells_writes, options.total_blocks, options.faults) = (true, 1 << 16, Faults::none());
        (options.crashes_per_million, options.stalls_per_million, options.clock_jumps_per_million) = (0, 0, 0);
        options.refuses_files = false;
        let hashing =
            if seed % 2 == 0 { HashPolicy::Deferred } else { HashPolicy::Adaptive { bytes_per_second: 1 << 20 } };
        let work = Rc::new(move |host: &Host<'_>| drop(watch_for_a_while(host, hashing)));
        let mut simulation = Simulation::new(&options, move |host| work(host));
        simulation.run(options.steps).unwrap_or_else(|failure| panic!("{failure}"));
        simulation.calm();
        simulation.run(30_000).unwrap_or_else(|failure| panic!("{failure}"));
        let outcome = simulation.finish().unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(outcome.census.physical, outcome.census.distinct, "{outcome}");
    }
}
