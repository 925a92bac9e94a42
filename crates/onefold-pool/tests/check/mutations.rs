//! Arbitrary damage: gives a report or an error, never a panic, and never a clean report if a relevant block changed.

use onefold_block::BlockNo;
use onefold_block::random::SeededRandom;
use onefold_pool::NoProgress;
use onefold_pool::check::check;
use onefold_pool::format::header::BlockKind;
use onefold_testing::device::MemoryDevice;

use super::common::*;
use super::shared::{seed_moved, tries};

const KINDS: [BlockKind; 8] = [
    BlockKind::Superblock,
    BlockKind::State,
    BlockKind::JournalHeader,
    BlockKind::Bitmap,
    BlockKind::StorePage,
    BlockKind::MapNode(0),
    BlockKind::MapNode(1),
    BlockKind::TreePage,
];

/// Returns the places of all metadata blocks.
fn targets(device: &MemoryDevice) -> Vec<Vec<BlockNo>> {
    let image = device.image();
    KINDS.iter().map(|kind| blocks_of_kind(&image, *kind).into_iter().map(|(at, _)| at).collect()).collect()
}

#[test]
fn mutated_pools_with_right_checksums_never_stop_a_check() {
    let sample = sample();
    let targets = targets(&sample);
    let random = SeededRandom::new(seed_moved(9));
    for _ in 0..tries(800) {
        let device = MemoryDevice::from(sample.image());
        for _ in 0..=random.below(3) {
            let of_kind = &targets[random.below(KINDS.len() as u64) as usize];
            let at = of_kind[random.below(of_kind.len() as u64) as usize];
            reseal(&device, at, |bytes| {
                for _ in 0..=random.below(5) {
                    // Most fields are near the front.
                    let reach = if random.below(2) == 0 { 300 } else { 4096 - 16 };
                    bytes[16 + random.below(reach) as usize] = random.next_u64() as u8;
                }
            });
        }
        // The tail of a mutated journal may lie in the middle of a transaction, and a mutated superblock may name
        // another one: errors are fine.
        let _ = check(&device, &options(), &NoProgress);
    }
    println!("{} mutated pools checked", tries(800));
}

#[test]
fn mutated_pools_with_wrong_checksums_are_never_clean() {
    let sample = sample();
    let targets = targets(&sample);
    let random = SeededRandom::new(seed_moved(10));
    for _ in 0..tries(400) {
        let device = MemoryDevice::from(sample.image());
        let of_kind = &targets[random.below(KINDS.len() as u64) as usize];
        let at = of_kind[random.below(of_kind.len() as u64) as usize];
        flip(&device, at, random.below(4096) as usize);
        match check(&device, &options(), &NoProgress) {
            Ok(report) => assert!(!report.is_clean(), "block {at}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    println!("{} mutated pools checked", tries(400));
}

#[test]
fn a_mutated_journal_never_stops_a_check() {
    let device = new_pool(8192);
    let pool = open(&device);
    churn(&pool, &SeededRandom::new(4), 120);
    pool.commit().unwrap();
    let left = device.image();
    let random = SeededRandom::new(seed_moved(11));
    for _ in 0..tries(200) {
        let device = MemoryDevice::from(left.clone());
        for _ in 0..=random.below(3) {
            flip(&device, BlockNo(200 + random.below(60)), random.below(4096) as usize);
        }
        let _ = check(&device, &options(), &NoProgress);
    }
    println!("{} mutated pools checked", tries(200));
}
