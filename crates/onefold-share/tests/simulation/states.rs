//! The states of blocks, on the simulated file system.

use std::collections::BTreeSet;
use std::time::Duration;

use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions, seeds};

use crate::states_walk::{Walk, hold_figure};

#[test]
fn blocks_go_the_ways_of_the_figure_and_no_others() {
    let mut seen = BTreeSet::new();
    let seeds: Vec<u64> = seeds(9000, 40).collect();
    for seed in &seeds {
        let mut options = SimulationOptions { seed: *seed, images: 0, total_blocks: 1 << 14, ..Default::default() };
        options.habits.overwrites_in_place = seed % 2 == 0;
        options.habits.frees_whole_extents = seed % 4 == 1;
        options.habits.tells_last_reference = seed % 4 != 1;
        let file_system = SimulatedFileSystem::new(&options);
        let host = file_system.observe();
        let settle = || {
            file_system.sync_all();
            file_system.pass(Duration::from_secs(1));
        };
        seen.extend(Walk::new(&host.substrate, *seed, true, &settle).go(150));
        file_system.check().unwrap();
    }
    if seeds.len() >= 40 {
        hold_figure(&seen, true);
    }
}
