//! The states of blocks, on the simulated file system.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_share::block_state::{CountOptions, ImageStates, StateBytes, count};
use onefold_share::scan::list;
use onefold_share::selection::Selection;
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_share::status::status;
use onefold_substrate::Files;
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

/// A file that came into another domain has a number in each until a scan reads it.
#[test]
fn a_file_with_two_numbers_is_counted_once() {
    let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..Default::default() });
    let host = file_system.observe();
    let file = host.substrate.create(Path::new("one")).unwrap();
    host.substrate.write_at(&file, 0, &[7; 3 * 4096]).unwrap();
    host.substrate.sync(&file).unwrap();
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
    for owner in [1000, 1001] {
        file_system.give_image(host.no, "one", owner).unwrap();
        list(&state, &mut Marks::load(&state).unwrap(), &Selection::all()).unwrap();
    }
    assert_eq!(Marks::load(&state).unwrap().iter().count(), 2);
    let options = CountOptions { since: None, temporary_folder: Path::new("/var/tmp"), memory_bytes: 1 << 10 };
    let counted = count(&state, &options).unwrap();
    let bytes = StateBytes { own: 3 * 4096, ..StateBytes::default() };
    assert_eq!(counted.images, [ImageStates { path: PathBuf::from("one"), template: None, length: 3 * 4096, bytes }]);
    assert_eq!(status(&state).unwrap().files.known, 1);
}
