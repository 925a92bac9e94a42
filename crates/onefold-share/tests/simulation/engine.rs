//! The engine itself, as `share run` has it: a scan and a pass, again and again, on every host.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::Random;
use onefold_block::Substrate;
use onefold_share::pace::Pace;
use onefold_share::pass::{PassError, PassOptions, Passed, pass};
use onefold_share::scan::{ScanOptions, scan};
use onefold_share::simulated::{Faults, Host, Simulation, SimulationOptions, seeds};
use onefold_share::state::State;
use onefold_share::state::files::Files;

use super::simulate_all_with;

/// Scans all images and does one pass.
fn scan_and_pass<S: Substrate>(substrate: &S, random: &dyn Random) -> Result<Passed, PassError> {
    let state = State::open(substrate, random, &|_| {})?;
    let mut files = Files::load(&state)?;
    let options = ScanOptions {
        roots: &[PathBuf::new()],
        wants: &|_, _| true,
        // A coroutine does not leave its thread.
        threads: 0,
        stable_for: Duration::ZERO,
        pace: &Pace::unlimited(),
        progress: &|_| ControlFlow::Continue(()),
    };
    scan(&state, &mut files, &options)?;
    let options = PassOptions {
        temporary_folder: Path::new("/var/tmp"),
        memory_bytes: 1 << 20,
        call_bytes: 1 << 20,
        min_run_bytes: 4096,
        pace: &Pace::unlimited(),
        is_dry_run: false,
        progress: &|_| ControlFlow::Continue(()),
    };
    pass(&state, &mut files, &options)
}

fn work(host: &Host<'_>) {
    drop(scan_and_pass(&host.substrate, &*host.random));
}

#[test]
fn images_read_as_written_while_hosts_run_the_engine() {
    let hosts = |seed: u64| 1 + u32::try_from(seed % 7).expect("below 7");
    simulate_all_with(seeds(5000, 60), |seed| SimulationOptions::drawn(seed, hosts(seed), 10_000), work);
}

/// One host, and no crash or fault before. With several hosts, or after crashes, some duplicates are left for now.
#[test]
fn once_all_is_calm_one_host_has_shared_everything() {
    for seed in seeds(5100, 20) {
        let mut options = SimulationOptions::drawn(seed, 1, 6000);
        options.total_blocks = 1 << 16;
        options.faults = Faults::none();
        (options.crashes_per_million, options.stalls_per_million, options.clock_jumps_per_million) = (0, 0, 0);
        options.refuses_files = false;
        let mut simulation = Simulation::new(&options, work);
        simulation.run(options.steps).unwrap_or_else(|failure| panic!("{failure}"));
        simulation.calm();
        simulation.run(30_000).unwrap_or_else(|failure| panic!("{failure}"));
        let outcome = simulation.finish().unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(outcome.census.physical, outcome.census.distinct, "{outcome}");
    }
}
