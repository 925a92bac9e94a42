//! Space: freed, exhausted, gained.

use std::sync::{Arc, OnceLock};

use onefold_block::BlockDevice;
use onefold_pool::{Dedup, Durability, Ino, PoolError, XattrMode};
use onefold_testing::device::{MemoryDevice, MemoryImage};

use super::{BLOCK, LEAF, SMALL};
use crate::common::bench::{Bench, WorkloadRecord, new_pool};
use crate::common::reference::{ROOT, Reference};
use crate::common::{behind, letters, open, quiet, regular};

/// Huge files are removed, and reclaim is interrupted half way, repeatedly.
pub(super) fn delete(seed: u64) -> WorkloadRecord {
    let mut bench = Bench::new(SMALL, seed);
    bench.letters = 300;
    for number in 0..4 {
        let file = bench.create(&format!("file{number}"));
        // Scattered, so that there are several leaves, some of them terabytes apart.
        for piece in 0..6 {
            let leaf = if piece < 4 { piece } else { LEAF * LEAF * piece };
            bench.write(file, leaf * LEAF * BLOCK, 20 * 4096, Durability::Later);
        }
    }
    bench.commit();
    for number in 0..4 {
        bench.unlink(&format!("file{number}"));
        for _ in 0..3 {
            bench.reclaim(1);
            bench.commit();
        }
        // Freed blocks are reused.
        let file = bench.create(&format!("new{number}"));
        bench.write(file, 0, 30 * 4096, Durability::Now);
    }
    bench.reclaim(20);
    bench.commit();
    bench.end()
}

/// A file is truncated within blocks and at their ends, and written again.
pub(super) fn truncate(seed: u64) -> WorkloadRecord {
    let mut bench = Bench::new(SMALL, seed);
    let file = bench.create("disk");
    for round in 0..18 {
        bench.write(file, bench.dice.below(1100) * BLOCK, 60 * 4096, Durability::Later);
        if round % 5 == 4 {
            bench.reserve(file, bench.dice.below(600) * BLOCK, 600 * BLOCK);
        }
        let within = if bench.dice.one_in(2) { bench.dice.below(BLOCK) } else { 0 };
        let bytes = if round % 6 == 5 { 0 } else { bench.dice.below(900) * BLOCK + within };
        bench.truncate(file, bytes);
        if bench.dice.one_in(2) {
            bench.commit();
        }
        bench.reclaim(1);
    }
    bench.end()
}

/// Equal blocks that writes did not find, because the filter has no room, are shared one after another, while freed
/// blocks are reused.
pub(super) fn share(seed: u64) -> WorkloadRecord {
    let mut options = behind();
    options.test_limits.filter_bytes_max = 0;
    let mut bench = Bench::on(new_pool(SMALL, 1 << 20), Reference::new(Dedup::On), options, seed);
    let blocks = LEAF + 60;
    let content = letters(1..=blocks);
    let files = ["one", "other", "third"].map(|name| {
        let file = bench.create(name);
        bench.write_bytes(file, 0, &content, Durability::Later);
        file
    });
    let clone = bench.clone_file(files[1], "clone");
    let own = bench.create("own");
    bench.commit();
    for round in 0..24 {
        let from = bench.dice.below(blocks - 40);
        let count = 1 + bench.dice.below(40);
        let targets = [files[1], files[2], clone];
        bench.share((files[0], from), (*bench.dice.pick(&targets), from), count);
        bench.write(own, bench.dice.below(60) * BLOCK, 20 * 4096, Durability::Later);
        match round % 4 {
            1 => bench.commit(),
            3 => bench.share((files[0], 0), (targets[round % 3], 0), blocks),
            _ => bench.reclaim(1),
        }
    }
    bench.end()
}

/// Holes are punched into a file and a clone of it, and filled again.
pub(super) fn punch(seed: u64) -> WorkloadRecord {
    let mut bench = Bench::new(SMALL, seed);
    let file = bench.create("disk");
    bench.write(file, 0, 200 * 4096, Durability::Later);
    let files = [file, bench.clone_file(file, "clone")];
    for _ in 0..24 {
        let file = *bench.dice.pick(&files);
        let from = bench.dice.below(600) * BLOCK;
        bench.write(file, from, 40 * 4096, Durability::Later);
        let length = (1 + bench.dice.below(300)) * BLOCK;
        bench.punch(file, bench.dice.below(500) * BLOCK, length);
        if bench.dice.one_in(3) {
            bench.commit();
        }
        bench.reclaim(1);
    }
    bench.end()
}

/// Fills the pool of an image with a file, except for `blocks_left` blocks; the file is never read again.
fn fill(image: MemoryImage, blocks_left: u64) -> (MemoryImage, Reference) {
    let memory = Arc::new(MemoryDevice::from(image));
    let device: Arc<dyn BlockDevice> = memory.clone();
    let pool = open(&device, &quiet());
    let mut reference = Reference::new(Dedup::On);
    let filler = pool.create_file(Ino::ROOT, b"filler", &regular()).expect("is new").ino;
    reference.create(ROOT, b"filler", &regular(), filler.0);
    pool.set_xattr(filler, b"user.unread", b"", XattrMode::Either).expect("sets");
    reference.node_mut(filler.0).xattrs.insert(b"user.unread".to_vec(), Vec::new());
    let mut written = 0;
    while pool.fs_stat().blocks_available > blocks_left {
        let piece = (pool.fs_stat().blocks_available - blocks_left).min(40);
        let first = 1_000_000 + written;
        let bytes = letters(first..first + piece);
        match pool.write(filler, written * BLOCK, &bytes, Durability::Later) {
            Ok(()) => written += piece,
            Err(PoolError::NoSpace) => break,
            Err(error) => panic!("fills: {error}"),
        }
    }
    reference.truncate(filler.0, written * BLOCK).expect("a length");
    pool.close().expect("closes");
    (memory.image(), reference)
}

/// A pool with little room is written until it is full: operations that free space work, and those that do not fit
/// change nothing.
pub(super) fn full(seed: u64) -> WorkloadRecord {
    static PREPARED: OnceLock<(MemoryImage, Reference)> = OnceLock::new();
    let (image, reference) = PREPARED.get_or_init(|| fill(new_pool(SMALL, 1 << 20), 100)).clone();
    let mut bench = Bench::on(image, reference, behind(), seed);
    bench.letters = 1 << 30;
    let disk = bench.create("disk");
    bench.write(disk, 0, 30 * 4096, Durability::Now);
    let clone = bench.clone_file(disk, "clone");
    let mut refused = 0;
    for round in 0..60 {
        let at = bench.dice.below(120) * BLOCK;
        let file = *bench.dice.pick(&[disk, clone]);
        let length = (1 + bench.dice.index(25)) * 4096;
        refused += u64::from(!bench.try_write(file, at, length));
        match bench.dice.below(10) {
            0 => bench.truncate(file, at + 17),
            1 => bench.punch(file, at, 30 * BLOCK),
            2 => bench.commit(),
            3 => bench.reclaim(2),
            4 if round < 50 => {
                let name = format!("file{round}");
                let new = bench.create(&name);
                bench.try_write(new, 0, 10 * 4096);
                if bench.dice.one_in(2) {
                    bench.unlink(&name);
                }
            }
            _ => {}
        }
    }
    assert!(refused > 0, "the pool was never full");
    bench.end()
}

/// A pool grows step by step while it is written, and is cut or closed in between.
pub(super) fn grow(seed: u64) -> WorkloadRecord {
    const STEP: u64 = 150;
    static PREPARED: OnceLock<(MemoryImage, Reference)> = OnceLock::new();
    let (mut image, reference) = PREPARED.get_or_init(|| fill(new_pool(SMALL, 1 << 20), 60)).clone();
    image.resize(SMALL + 6 * STEP);
    let mut bench = Bench::showing(image, SMALL, reference, behind(), seed);
    bench.letters = 1 << 30;
    let file = bench.create("disk");
    let mut written = 0;
    for step in 1..=6 {
        bench.grow(SMALL + step * STEP);
        // This needs the new blocks.
        for _ in 0..3 {
            bench.write(file, written * BLOCK, 45 * 4096, Durability::Later);
            written += 45;
        }
        match bench.dice.below(4) {
            0 => bench.commit(),
            1 => bench.fsync(file),
            2 => bench.reopen(true),
            _ => bench.reopen(false),
        }
    }
    bench.end()
}

/// A pool whose only block group is full grows by a second one, which is initialised when it is needed.
pub(super) fn second_group(seed: u64) -> WorkloadRecord {
    static PREPARED: OnceLock<(MemoryImage, Reference)> = OnceLock::new();
    let (mut image, reference) = PREPARED.get_or_init(|| fill(new_pool(32_768, 2 << 20), 250)).clone();
    image.resize(36_000);
    let mut bench = Bench::showing(image, 32_768, reference, behind(), seed);
    bench.letters = 2000;
    bench.grow(36_000);
    for number in 0..8 {
        let file = bench.create(&format!("file{number}"));
        bench.write(file, 0, 80 * 4096, Durability::Later);
        if number % 3 == 2 {
            bench.commit();
        }
    }
    bench.end()
}
