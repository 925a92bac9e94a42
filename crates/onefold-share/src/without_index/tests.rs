//! A full file system is relieved, within the bounds of memory, and no byte of a file changes.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use onefold_block::random::{Random, SeededRandom};
use onefold_substrate::{Access, CpuTime, Files, ListedKind, Names};
use onefold_testing::simulated::{Host, HostNo, SimulatedFileSystem, SimulationOptions};

use super::*;
use crate::pace::{Limits, Wish};

const BLOCKS: u64 = 300;

fn content(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(BLOCKS * BLOCK_BYTES_U64).unwrap()];
    SeededRandom::new(seed).fill(&mut bytes).unwrap();
    bytes
}

fn write(host: &Host<'_>, path: &str, bytes: &[u8]) {
    let file = host.substrate.create(Path::new(path)).unwrap();
    host.substrate.write_at(&file, 0, bytes).unwrap();
}

fn read(host: &Host<'_>, path: &str) -> Vec<u8> {
    let file = host.substrate.open(Path::new(path), Access::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(host.substrate.stat(&file).unwrap().length).unwrap()];
    host.substrate.read_at(&file, 0, &mut bytes).unwrap();
    bytes
}

fn relieve(host: &Host<'_>, memory_bytes: usize) -> WithoutIndexReport {
    relieve_at(host, memory_bytes, 0, &Pace::unlimited()).unwrap().unwrap()
}

fn relieve_at(
    host: &Host<'_>,
    memory_bytes: usize,
    min_run_bytes: u64,
    pace: &Pace<'_>,
) -> Result<Option<WithoutIndexReport>, StateError> {
    let seams = Seams { substrate: &host.substrate, clock: &*host.clock, random: &*host.random, notices: &|_| {} };
    let roots = [PathBuf::new()];
    let wants = |_: &Path, _: ListedKind| true;
    let selection = Selection::new(&roots, &wants);
    let progress = &|_: ScanProgress| ControlFlow::Continue(());
    let options = WithoutIndexOptions { selection, memory_bytes, min_run_bytes, pace, progress };
    share_without_index(&seams, &options)
}

/// Makes a file system that is nearly full with three images, two of which are equal.
fn full() -> SimulatedFileSystem {
    let options =
        SimulationOptions { images: 0, total_blocks: u32::try_from(3 * BLOCKS + 20).unwrap(), ..Default::default() };
    let file_system = SimulatedFileSystem::new(&options);
    let host = file_system.observe();
    for (path, seed) in [("a.raw", 1), ("b.raw", 2), ("c.raw", 1)] {
        write(&host, path, &content(seed));
    }
    file_system.sync_all();
    file_system
}

#[test]
fn equal_blocks_are_shared_and_nothing_is_written() {
    let file_system = full();
    let host = file_system.observe();
    let names = |host: &Host<'_>| host.substrate.list(Path::new("")).unwrap().len();
    let before = names(&host);
    let done = relieve(&host, 1 << 20);
    assert_eq!(done.shared, BLOCKS * BLOCK_BYTES_U64, "{done:?}");
    assert_eq!(done.read, 3 * BLOCKS * BLOCK_BYTES_U64, "{done:?}");
    assert_eq!(names(&host), before, "no state folder is made");
    for (path, seed) in [("a.raw", 1), ("b.raw", 2), ("c.raw", 1)] {
        assert!(read(&host, path) == content(seed), "{path}");
    }
    let again = relieve(&host, 1 << 20);
    assert_eq!(again.shared, 0, "what is at one place is not shared again: {again:?}");
}

#[test]
fn a_table_without_room_still_finds_the_contents_that_it_has() {
    let file_system = full();
    let host = file_system.observe();
    let entries = 10;
    let done = relieve(&host, entries * ENTRY_BYTES);
    assert_eq!(done.shared, entries as u64 * BLOCK_BYTES_U64, "{done:?}");
    assert!(read(&host, "c.raw") == content(1));
}

#[test]
fn repeats_within_a_file_become_one_block_and_opted_out_files_stay() {
    let options = SimulationOptions { images: 0, total_blocks: 1 << 10, ..Default::default() };
    let file_system = SimulatedFileSystem::new(&options);
    let host = file_system.observe();
    let block = &content(3)[..BLOCK_BYTES];
    write(&host, "a.raw", &block.repeat(9));
    write(&host, "b.raw", &block.repeat(9));
    crate::opt_out::exclude(&host.substrate, Path::new("b.raw")).unwrap();
    file_system.sync_all();
    let done = relieve(&host, 1 << 20);
    assert_eq!(done.shared, 8 * BLOCK_BYTES_U64, "{done:?}");
    assert!(read(&host, "a.raw") == block.repeat(9));
}

/// Processor time that nobody counts.
struct NoCpu;

impl CpuTime for NoCpu {
    fn used(&self) -> Duration {
        Duration::ZERO
    }
}

/// Relieves the file system, and calls `change` when the work asks for the given time whether to go on.
fn relieve_while(host: &Host<'_>, at: u32, change: &dyn Fn()) -> WithoutIndexReport {
    let asked = Cell::new(0);
    let wish = || {
        if asked.replace(asked.get() + 1) == at {
            change();
        }
        Wish::GoOn
    };
    relieve_at(host, 1 << 20, 0, &Pace::new(Limits::default(), &*host.clock, &NoCpu, &wish)).unwrap().unwrap()
}

/// The work asks once at each file, and once at each further read: two of them a file.
#[test]
fn a_file_that_gets_another_owner_or_opts_out_meanwhile_is_left_alone() {
    for (path, last) in [("c.raw", 4), ("a.raw", 5)] {
        for at in 0..=last {
            for is_given in [true, false] {
                let file_system = full();
                let host = file_system.observe();
                let done = relieve_while(&host, at, &|| {
                    if is_given {
                        file_system.give_image(HostNo(0), path, 4711).unwrap();
                    } else {
                        crate::opt_out::exclude(&host.substrate, Path::new(path)).unwrap();
                    }
                });
                assert_eq!(done.shared, 0, "{path} at {at}, given: {is_given}");
            }
        }
    }
    let file_system = full();
    let done = relieve_while(&file_system.observe(), 0, &|| {});
    assert_eq!(done.shared, BLOCKS * BLOCK_BYTES_U64, "without a change, they share");
}

/// Makes a nearly full file system with two equal images, of one run and several calls.
fn full_with_a_long_run() -> SimulatedFileSystem {
    let (count, block) = (RUN_BLOCKS_MAX, BLOCK_BYTES_U64);
    let total_blocks = u32::try_from(2 * count + 20).unwrap();
    let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, total_blocks, ..Default::default() });
    let host = file_system.observe();
    let mut bytes = vec![0; usize::try_from(count * block).unwrap()];
    SeededRandom::new(9).fill(&mut bytes).unwrap();
    write(&host, "a.raw", &bytes);
    write(&host, "b.raw", &bytes);
    file_system.sync_all();
    file_system
}

#[test]
fn a_long_run_ends_once_there_is_room_and_can_be_interrupted_at_each_call() {
    let file_system = full_with_a_long_run();
    let asked = Cell::new(0);
    let host = file_system.observe();
    let done = {
        let wish = || {
            asked.set(asked.get() + 1);
            Wish::GoOn
        };
        relieve_at(&host, 1 << 20, 0, &Pace::new(Limits::default(), &*host.clock, &NoCpu, &wish)).unwrap().unwrap()
    };
    assert!(done.has_room() && !done.is_full, "{done:?}");
    assert!(done.shared < 10 << 20, "the rest is left to the usual run: {done:?}");
    for last in [0, asked.get() / 2, asked.get() - 2, asked.get() - 1] {
        let file_system = full_with_a_long_run();
        let (host, at) = (file_system.observe(), Cell::new(0));
        let wish = || if at.replace(at.get() + 1) >= last { Wish::StopNow } else { Wish::GoOn };
        let pace = Pace::new(Limits::default(), &*host.clock, &NoCpu, &wish);
        let ended = relieve_at(&host, 1 << 20, 0, &pace);
        assert!(matches!(ended, Err(StateError::Interrupted)), "{last} of {}: {ended:?}", asked.get());
        assert!(pace.calls().shares < done.shared >> 20, "{last}: {:?}", pace.calls());
    }
}

#[test]
fn a_file_system_with_room_is_left_alone() {
    let options = SimulationOptions { images: 0, total_blocks: 1 << 14, ..Default::default() };
    let file_system = SimulatedFileSystem::new(&options);
    let host = file_system.observe();
    write(&host, "a.raw", &content(1));
    write(&host, "b.raw", &content(1));
    file_system.sync_all();
    let done = relieve_at(&host, 1 << 20, 0, &Pace::unlimited()).unwrap();
    assert_eq!(done, None, "a quota is the limit, and no sharing helps");
}

#[test]
fn another_writer_that_takes_a_block_does_not_end_the_work() {
    let file_system = full();
    let host = file_system.observe();
    let done = relieve_while(&host, 1, &|| write(&host, "other", &content(4)[..BLOCK_BYTES]));
    assert_eq!(done.shared, BLOCKS * BLOCK_BYTES_U64, "{done:?}");
}

#[test]
fn runs_below_the_wanted_minimum_stay_apart() {
    for (min_run_bytes, expected) in [(BLOCK_BYTES_U64, 3), (2 * BLOCK_BYTES_U64, 2), (3 * BLOCK_BYTES_U64, 0)] {
        let options = SimulationOptions { images: 0, total_blocks: 1 << 10, ..Default::default() };
        let file_system = SimulatedFileSystem::new(&options);
        let host = file_system.observe();
        let (first, other) = (content(1), content(2));
        write(&host, "a.raw", &first[..8 * BLOCK_BYTES]);
        // Two equal blocks, another one, and one more that is equal.
        let own = &other[..BLOCK_BYTES];
        let parts = [&first[..2 * BLOCK_BYTES], own, &first[5 * BLOCK_BYTES..6 * BLOCK_BYTES]];
        write(&host, "b.raw", &parts.concat());
        file_system.sync_all();
        let done = relieve_at(&host, 1 << 20, min_run_bytes, &Pace::unlimited()).unwrap().unwrap();
        assert_eq!(done.shared, expected * BLOCK_BYTES_U64, "{min_run_bytes}: {done:?}");
    }
}
