//! Data: copied in, overwritten, cloned.

use onefold_pool::{Dedup, Durability, Verification};

use super::{BLOCK, LEAF, SMALL};
use crate::common::behind;
use crate::common::bench::{Bench, WorkloadRecord, new_pool};
use crate::common::reference::Reference;

/// Images are copied in: new and duplicate data in sequence, with one fsync at the end of each.
pub(super) fn import(seed: u64) -> WorkloadRecord {
    let mut bench = Bench::new(SMALL, seed);
    bench.letters = 400;
    for number in 0..3 {
        let file = bench.create(&format!("image{number}"));
        for piece in 0..4 {
            let length = 40 * 4096 + if piece == 3 { 1000 } else { 0 };
            bench.write(file, piece * 40 * BLOCK, length, Durability::Later);
        }
        bench.fsync(file);
    }
    bench.end()
}

/// A VM's disk is overwritten in places without requests for durability; the pool commits now and then.
pub(super) fn overwrite(seed: u64) -> WorkloadRecord {
    let mut bench = Bench::new(SMALL, seed);
    let file = bench.create("disk");
    bench.write(file, 0, 200 * 4096, Durability::Now);
    for round in 0..240 {
        let at = bench.dice.below(200) * BLOCK;
        bench.write(file, at, 4096, Durability::Later);
        if bench.dice.one_in(12) {
            bench.commit();
        }
        if round % 80 == 79 {
            bench.checkpoint();
        }
    }
    bench.end()
}

/// A VM's disk is overwritten in places, with an fsync after most writes: the journal wraps.
pub(super) fn overwrite_with_fsync(seed: u64) -> WorkloadRecord {
    let mut bench = Bench::new(SMALL, seed);
    let file = bench.create("disk");
    bench.write(file, 0, 200 * 4096, Durability::Now);
    for round in 0..90 {
        let at = bench.dice.below(200) * BLOCK;
        let length = if bench.dice.one_in(5) { 700 } else { 4096 };
        match bench.dice.below(3) {
            0 => bench.write(file, at, length, Durability::Later),
            1 => bench.write(file, at, length, Durability::Now),
            _ => {
                bench.write(file, at, length, Durability::Later);
                bench.fsync(file);
            }
        }
        if round % 30 == 29 {
            bench.checkpoint();
        }
    }
    bench.end()
}

/// Clones of one file are overwritten, and so is the source. With every second seed, shares are verified by value.
pub(super) fn clones(seed: u64) -> WorkloadRecord {
    let mut options = behind();
    if seed.is_multiple_of(2) {
        options.verify = Verification::Value;
    }
    let mut bench = Bench::on(new_pool(SMALL, 1 << 20), Reference::new(Dedup::On), options, seed);
    let source = bench.create("source");
    bench.write(source, 0, 250 * 4096, Durability::Later);
    bench.write(source, LEAF * BLOCK, 20 * 4096, Durability::Now);
    let mut files = vec![source];
    for number in 0..4 {
        let clone = bench.clone_file(*bench.dice.pick(&files), &format!("clone{number}"));
        files.push(clone);
        for _ in 0..4 {
            let file = *bench.dice.pick(&files);
            let at = bench.dice.below(520) * BLOCK;
            bench.write(file, at, 5000, Durability::Later);
        }
        bench.commit();
    }
    bench.unlink("clone1");
    bench.unlink("source");
    bench.reclaim(3);
    bench.commit();
    bench.reclaim(10);
    bench.end()
}
