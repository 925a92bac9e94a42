//! Scrub: the pool is open, damaged data is found and its files are named.

use std::ops::ControlFlow;

use onefold_block::BlockDevice;
use onefold_pool::check::ScrubOptions;
use onefold_pool::format::header::BlockKind;
use onefold_pool::format::map_node::entries_range;
use onefold_pool::{Durability, Ino, NoProgress, PoolError, Progress};

use super::common::*;

fn first_data_block(device: &onefold_block::device::MemoryDevice) -> onefold_block::BlockNo {
    let (_, leaf) = &blocks_of_kind(&device.image(), BlockKind::MapNode(0))[0];
    onefold_block::BlockNo(u64::from_le_bytes(leaf[entries_range(5, 1)].try_into().unwrap()))
}

#[test]
fn sound_data_is_read_once_and_found_sound() {
    let device = sample();
    let pool = open(&device);
    let report = pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap();
    assert!(report.is_clean() && !report.stopped, "{report:#?}");
    assert_eq!(report.data_blocks_hashed, 517);
}

#[test]
fn damaged_data_is_told_with_all_its_files_even_if_it_was_read_before() {
    let device = sample();
    let pool = open(&device);
    let images = pool.lookup(Ino::ROOT, b"images").unwrap().ino;
    let golden = pool.lookup(images, b"golden.raw").unwrap().ino;
    let block = first_data_block(&device);
    for at in 0..20 {
        pool.read(golden, at * 4096, &mut [0; 4096]).unwrap();
    }
    flip(&device, block, 9);
    let report = pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap();
    assert_eq!(report.problems_total, 1, "{report:#?}");
    let problem = &report.problems[0];
    assert_eq!((problem.structure, problem.block), ("data", Some(block)));
    assert_eq!(problem.files, ["/images/golden.raw", "/images/clone.raw"]);
    pool.close().unwrap();
}

#[test]
fn a_scrub_leaves_nothing_pinned() {
    let device = new_pool(8192);
    let pool = open(&device);
    let ino = make(&pool, Ino::ROOT, b"file", onefold_pool::FileKind::Regular);
    for round in 0..20 {
        // Most of the pool each time: space that stayed pinned would run out.
        pool.write(ino, 0, &noise(round, 6 << 20), Durability::Now).unwrap();
        assert!(pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap().is_clean());
    }
    pool.close().unwrap();
    assert_clean(&device);
}

struct Never;

impl Progress for Never {
    fn update(&self, _: u64, _: u64) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

#[test]
fn a_scrub_keeps_below_its_rate_and_stops_when_asked() {
    let device = sample();
    let pool = open(&device);
    assert!(pool.scrub(&ScrubOptions { bytes_per_second: Some(1) }, &Never).unwrap().stopped);
    let refused = pool.scrub(&ScrubOptions { bytes_per_second: Some(0) }, &NoProgress);
    assert!(matches!(refused, Err(PoolError::Invalid(_))), "{refused:?}");
    let started = std::time::Instant::now();
    pool.scrub(&ScrubOptions { bytes_per_second: Some(8 << 20) }, &NoProgress).unwrap();
    assert!(started.elapsed().as_millis() >= 200, "2 MB at 8 MiB/s take a quarter of a second");
    let _ = device.block_count();
}
