//! Counting in several passes, as in a check of a large pool: here the memory is too small for two groups.

use std::sync::Arc;

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_block::{AlignedBuffer, BlockDevice, Random};
use onefold_testing::device::MemoryDevice;

use super::{CheckOptions, find};
use crate::format::geometry::{GROUP_BLOCKS, Geometry};
use crate::format::header;
use crate::format::store_page;
use crate::{
    CreateOptions, Durability, Environment, FileKind, Ino, NewFile, NoProgress, OpenOptions, Pool, StorePlacement,
};

/// Too little memory for the blocks of two groups.
const LITTLE: CheckOptions = CheckOptions {
    memory_bytes: 1 << 19,
    verify_data: false,
    host: None,
    unproven_names: super::UnprovenNames::Refuse,
};
const BLOCKS: u64 = 70_000;

/// Returns a pool whose second group is in use, with a file and its clone across both groups.
fn two_groups() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(BLOCKS));
    let seam: Arc<dyn BlockDevice> = device.clone();
    let environment =
        Environment { clock: Arc::new(ManualClock::starting_at(1)), random: Arc::new(SeededRandom::new(1)) };
    Pool::create(&seam, &CreateOptions::default(), &environment).unwrap();
    let options = OpenOptions { background: false, memory_bytes: 64 << 20, ..OpenOptions::default() };
    let pool = Pool::open(seam, options, environment).unwrap();
    let new = NewFile { kind: FileKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let file = pool.create_file(Ino::ROOT, b"file", &new).unwrap().ino;
    let mut bytes = vec![0; 1 << 20];
    for piece in 0..136 {
        SeededRandom::new(piece).fill(&mut bytes).unwrap();
        pool.write(file, piece << 20, &bytes, Durability::Later).unwrap();
    }
    let clone = pool.create_file(Ino::ROOT, b"clone", &new).unwrap().ino;
    pool.clone_file(file, clone).unwrap();
    pool.write(clone, 0, b"own", Durability::Later).unwrap();
    pool.close().unwrap();
    device
}

#[test]
fn references_counted_group_by_group_come_out_the_same() {
    let device = two_groups();
    let (report, _) = find(&*device, &LITTLE, &NoProgress).unwrap();
    assert!(report.is_clean(), "{report:#?}");
    let geometry = Geometry::plan(BLOCKS, None, StorePlacement::InGroups).unwrap();
    for block in [GROUP_BLOCKS - 1000, GROUP_BLOCKS + 500] {
        let device = MemoryDevice::from(device.image());
        let place = geometry.store_place(onefold_block::BlockNo(block));
        let mut page = AlignedBuffer::zeroed(1);
        device.read(place.page, &mut page).unwrap();
        let mut bytes = *page.block(0).unwrap();
        bytes[store_page::count_range(place.index)].copy_from_slice(&9_u32.to_le_bytes());
        header::seal(&mut bytes);
        device.write(place.page, &AlignedBuffer::copy_of(&bytes)).unwrap();
        let (report, _) = find(&device, &LITTLE, &NoProgress).unwrap();
        let told: Vec<u64> = report.problems.iter().filter_map(|problem| Some(problem.block?.0)).collect();
        assert!(told.contains(&block), "{block}: {report:#?}");
    }
}
