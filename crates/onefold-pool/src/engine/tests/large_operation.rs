//! An operation that needs more metadata than the cache holds.

use std::sync::Arc;

use onefold_block::BLOCK_BYTES_U64;

use super::filled;
use crate::attr::{AllocateMode, Durability, FileKind, Ino, NewFile, SeekTarget};
use crate::data::Data;
use crate::engine::Engine;
use crate::format::geometry::ENTRIES_PER_STORE_PAGE;
use crate::format::map_node::FAN_OUT;
use crate::meta::Privilege;
use crate::names::NameHash;
use crate::names::directory::EntryName;

const BLOCKS: u64 = crate::FILE_BYTES_MAX / BLOCK_BYTES_U64;

fn make_file(engine: &Engine) -> Ino {
    let new = NewFile { kind: FileKind::Regular, mode: 0o600, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let make = engine.run(Privilege::Normal, |op| {
        let mut directory = op.directory(Ino::ROOT)?;
        let now = engine.environment.clock.now();
        let inode = op.new_inode(&directory, &new, now)?;
        op.add_entry(&mut directory, EntryName::new(b"file", &NameHash::new(&[0; 32]))?, &inode, now)?;
        Ok(inode.attr.ino)
    });
    make.unwrap()
}

/// Returns places such that each node on the paths to the first and the last block of the largest file has all its
/// children.
fn places() -> Vec<u64> {
    let (leaf, node) = (FAN_OUT, FAN_OUT * FAN_OUT);
    let spans = [leaf, node, node * FAN_OUT];
    let mut places = vec![0, BLOCKS - 1];
    for span in spans {
        let last = (BLOCKS - 1) / (span * FAN_OUT) * (span * FAN_OUT);
        places.extend((0..FAN_OUT).map(|child| child * span).filter(|place| *place < BLOCKS));
        places.extend((last..BLOCKS).step_by(usize::try_from(span).unwrap()));
    }
    places
}

/// Regression: if a file's map was scattered and memory was short, a hole evicted blocks that it had read while it read
/// the rest. It read 26 million blocks, for 33 s from memory, and then failed. Any user could request that.
#[test]
fn a_hole_that_needs_more_than_the_cache_holds_is_punched_with_few_reads() {
    // Each free block is in a store page of its own.
    let (_, engine) = filled(40, 1, |block| block.0 % ENTRIES_PER_STORE_PAGE != 0);
    let data = Data::new(Arc::new(engine));
    let engine = &data.engine;
    let file = make_file(engine);
    for (number, place) in (1_u64..).zip(places()) {
        data.write_file(file, place * BLOCK_BYTES_U64, &number.to_le_bytes(), Durability::Later).unwrap();
        if number % 100 == 0 {
            engine.commit().unwrap();
            engine.checkpoint().unwrap();
        }
    }
    engine.commit().unwrap();
    engine.checkpoint().unwrap();
    let reads_before = engine.activity.stat().metadata_blocks_read;
    let hole = crate::FILE_BYTES_MAX - 2 * BLOCK_BYTES_U64;
    data.allocate_range(file, BLOCK_BYTES_U64, hole, AllocateMode::PunchHole).unwrap();
    let reads = engine.activity.stat().metadata_blocks_read - reads_before;
    let capacity = engine.meta().cache.capacity() as u64;
    assert!(reads > capacity, "{reads} blocks would have fit");
    assert!(reads < 8 * capacity, "{reads} blocks");
    assert!(!engine.meta().cache.shrink(1), "the room was given back");
    assert_eq!(data.seek_file(file, BLOCK_BYTES_U64, SeekTarget::Data).unwrap(), (BLOCKS - 1) * BLOCK_BYTES_U64);
}
