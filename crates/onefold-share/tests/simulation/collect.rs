//! What only the arena refers to comes free, on a file system whose maps do not tell it: also while hosts share, die at
//! it, and mend.

use std::path::{Path, PathBuf};

use onefold_block::BLOCK_BYTES_U64;
use onefold_share::mend::declared;
use onefold_share::references::{References, count};
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_substrate::{ListedKind, Names};
use onefold_testing::simulated::{HostNo, Simulation, SimulationOptions, seeds};

use super::holes::{Tally, mend_scan_and_pass, options};
use super::{cut, go_on, tell};
use crate::declared::decode_declared;

/// Returns how many slots nobody but the arena refers to, and how many others do.
fn slots(simulation: &Simulation) -> (u64, u64) {
    let observer = simulation.file_system().observe();
    let state = State::open(&observer.substrate, &*observer.clock, &*observer.random, &|_| {})
        .expect("no fault hits an observer");
    let files = Marks::load(&state).expect("as above");
    let References { slots, unmapped, .. } = count(&state, &files).expect("as above").expect("few arena files");
    assert_eq!(unmapped, 0);
    let all: u64 = slots.values().sum();
    let unneeded = slots.get(&0).copied().unwrap_or(0);
    (unneeded, all - unneeded)
}

/// Returns how many blocks are declared: slots from which an image in doubt may want something are kept.
fn declared_blocks(simulation: &Simulation) -> u64 {
    let observer = simulation.file_system().observe();
    let state = State::open(&observer.substrate, &*observer.clock, &*observer.random, &|_| {});
    let state = state.expect("no fault hits an observer");
    declared(&state).expect("as above").iter().map(|declared| declared.bytes / BLOCK_BYTES_U64).sum()
}

/// Removes all but every third image.
fn remove_images(simulation: &Simulation) {
    let file_system = simulation.file_system();
    let observer = file_system.observe();
    let mut folders = vec![PathBuf::from("images")];
    let mut images = Vec::new();
    while let Some(folder) = folders.pop() {
        for listed in observer.substrate.list(&folder).expect("no fault hits an observer") {
            let path = folder.join(&listed.name);
            if listed.kind == ListedKind::Folder { folders.push(path) } else { images.push(path) }
        }
    }
    // They are listed in any order.
    images.sort();
    for (_, path) in images.iter().enumerate().filter(|(at, _)| at % 3 > 0) {
        file_system.remove_image(HostNo(0), Path::new(path)).expect("the host is up");
    }
    // A crash would bring them back.
    file_system.sync_all();
}

fn simulation(options: &SimulationOptions) -> Simulation {
    Simulation::new(options, |host| drop(mend_scan_and_pass(host, &Tally::default())))
}

#[test]
fn what_removed_images_shared_comes_free() {
    let (mut given_back, mut without_doubt, mut hosts) = (0, 0, 0);
    let mut outcomes = Vec::new();
    for seed in seeds(6300, 16) {
        let what = format!("seed {seed}");
        let options = SimulationOptions { contents: 60, ..options(seed, 8000) };
        hosts += u64::from(options.hosts);
        let mut simulation = simulation(&options);
        go_on(&mut simulation, 8000, &what);
        simulation.calm();
        go_on(&mut simulation, 30_000, &what);
        let (before, kept) = (slots(&simulation), declared_blocks(&simulation));
        remove_images(&simulation);
        go_on(&mut simulation, 40_000, &what);
        let after = slots(&simulation);
        assert!(after.0 <= kept, "{what}: of {before:?}, {after:?} are left, {kept} are declared");
        without_doubt += u64::from(kept == 0);
        given_back += (before.0 + before.1).saturating_sub(after.1);
        outcomes.push(simulation.finish().unwrap_or_else(|failure| panic!("{failure}")));
    }
    tell(&outcomes, hosts);
    println!("{given_back} slots came free, in {without_doubt} runs nothing was declared");
    assert!(outcomes.len() < 16 || (given_back > 50 && without_doubt > 4), "{given_back}, {without_doubt}: hardly any");
}

/// A host is cut off at a call of the passes after images were removed. The others, or it itself, do the rest.
#[test]
fn a_host_may_crash_at_every_call_while_what_is_unneeded_is_collected() {
    let options = |seed| SimulationOptions {
        seed,
        hosts: 2,
        images: 6,
        image_blocks_max: 12,
        contents: 20,
        writer_percent: 0,
        ..SimulationOptions::default().in_two_steps(decode_declared)
    };
    let mut given_back = 0;
    let mut outcomes = Vec::new();
    for (seed, calls) in seeds(6400, 2).flat_map(|seed| (0..600).step_by(6).map(move |calls| (seed, calls))) {
        let what = format!("seed {seed}, crash after {calls} calls");
        let mut simulation = simulation(&options(seed));
        go_on(&mut simulation, 4000, &what);
        let before = slots(&simulation);
        remove_images(&simulation);
        cut(&mut simulation, calls, 8000, &what);
        let after = slots(&simulation);
        assert_eq!(after.0, 0, "{what}: of {before:?}");
        given_back += before.1 - after.1;
        outcomes.push(simulation.finish().unwrap_or_else(|failure| panic!("{failure}")));
    }
    tell(&outcomes, 2 * outcomes.len() as u64);
    println!("{given_back} slots came free");
    assert!(outcomes.len() < 200 || given_back > 50, "{given_back} slots: hardly any");
}
