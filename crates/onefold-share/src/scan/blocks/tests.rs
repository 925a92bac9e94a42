#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;
use std::thread;

use onefold_block::BLOCK_BYTES;
use onefold_substrate::{Access, At, Files, Sharing};
use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

use super::*;
use crate::domain::Domain;
use crate::scan::places::ReadPlaces;

const BLOCKS: u8 = 4;
const WRITTEN: u64 = 1;

/// A direct write sets the times of a file when it begins. Its block gets a new place when it ends.
#[test]
fn no_digest_is_of_a_place_that_its_block_has_left_under_the_same_times() {
    let options = SimulationOptions { images: 0, total_blocks: 1 << 12, ..Default::default() };
    let file_system = SimulatedFileSystem::new(&options);
    let host = file_system.observe();
    let substrate = &host.substrate;
    let bytes: Vec<u8> = (1..=BLOCKS).flat_map(|number| [number; BLOCK_BYTES]).collect();
    let length = bytes.len() as u64;
    let file = substrate.create(Path::new("one")).unwrap();
    substrate.write_at(&file, 0, &bytes).unwrap();
    substrate.sync(&file).unwrap();
    let other = substrate.create(Path::new("other")).unwrap();
    substrate.set_len(&other, length).unwrap();
    substrate.clone_range(At { file: &file, offset: 0 }, At { file: &other, offset: 0 }, length).unwrap();
    file_system.sync_all();
    let file = substrate.open(Path::new("one"), Access::Write).unwrap();
    let place = Extents::new().at(substrate, &file, 0).unwrap().place.unwrap();

    let (pace, key) = (Pace::unlimited(), FingerprintKey::new([7; 32]));
    let (mut places, domain) = (ReadPlaces::new(1 << 20), Domain::Owner(0));
    thread::scope(|scope| {
        let wanted = Ranges::of(std::iter::once(0..length));
        let digester = Digester::new(0, scope);
        let mut blocks = Blocks::new(substrate, &pace, &file, &wanted, u64::MAX, digester, &key);
        // The map is looked at, and then the block gets its new place.
        assert_eq!(blocks.data_from(0).to, length);
        substrate.write_at(&file, WRITTEN * BLOCK_BYTES_U64, &[9; BLOCK_BYTES]).unwrap();
        file_system.sync_all();
        let stamp = Stamp::of(&substrate.stat(&file).unwrap());
        let mut blocks = blocks.with_places(Some(places.of_domain(&domain)), stamp);
        while blocks.next().is_some() {}
        assert_eq!(blocks.read_bytes, length);
    });
    let known = places.of_domain(&domain);
    let is_known: Vec<bool> =
        (0..u64::from(BLOCKS)).map(|block| !known.at(place + block * BLOCK_BYTES_U64).is_empty()).collect();
    assert_eq!(is_known, [true, false, true, true]);
}
