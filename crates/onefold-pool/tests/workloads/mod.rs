//! What is done to a pool while its device is recorded.

use std::sync::{Arc, OnceLock};

use onefold_block::BlockDevice;
use onefold_block::device::{MemoryDevice, MemoryImage};
use onefold_pool::{AllocateMode, CreateOptions, Dedup, Durability, FileKind, Ino, Pool, RenameMode, XattrMode};

use crate::common::actions::Habits;
use crate::common::bench::{Bench, Recorded};
use crate::common::reference::{ROOT, Reference};
use crate::common::{environment, letter, open, quiet, regular};

/// Something that is done to a pool.
pub(crate) struct Workload {
    /// What it is called in messages and in `ONEFOLD_CRASH_WORKLOAD`.
    pub(crate) name: &'static str,
    /// Its part of the images, against that of the others: those of a larger pool take longer.
    pub(crate) part: u64,
    /// Does it; the same for the same seed.
    pub(crate) run: fn(u64) -> Recorded,
}

/// All of them.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload { name: "import", part: 5, run: import },
    Workload { name: "overwrite", part: 5, run: overwrite },
    Workload { name: "clones", part: 5, run: clones },
    Workload { name: "delete", part: 5, run: delete },
    Workload { name: "names", part: 5, run: names },
    Workload { name: "shrink", part: 5, run: shrink },
    Workload { name: "close", part: 5, run: close_and_reopen },
    Workload { name: "second-group", part: 1, run: second_group },
    Workload { name: "anything", part: 8, run: anything },
];

/// Blocks of a small pool: 16 MiB.
const SMALL: u64 = 4096;
const BLOCK: u64 = 4096;

/// Images are copied in: new and duplicate data in sequence, one fsync at the end of each.
fn import(seed: u64) -> Recorded {
    let mut bench = Bench::new(SMALL, seed);
    bench.letters = 400;
    for number in 0..3 {
        let file = bench.create(&format!("image{number}"));
        for piece in 0..4 {
            let length = 40 * 4096 + if piece == 3 { 1000 } else { 0 };
            bench.write(file, piece * 40 * BLOCK, length, Durability::Later);
        }
        bench.pool().fsync(Ino(file)).expect("syncs");
        bench.promise();
    }
    bench.end()
}

/// A VM's disk is overwritten in places, now and then with an fsync: the journal wraps.
fn overwrite(seed: u64) -> Recorded {
    let mut bench = Bench::new(SMALL, seed);
    let file = bench.create("disk");
    bench.write(file, 0, 200 * 4096, Durability::Now);
    for round in 0..90 {
        let at = bench.dice.below(200) * BLOCK;
        let length = if bench.dice.one_in(5) { 700 } else { 4096 };
        let durability = if bench.dice.one_in(3) { Durability::Later } else { Durability::Now };
        bench.write(file, at, length, durability);
        if round % 30 == 29 {
            bench.checkpoint();
        }
    }
    bench.end()
}

/// Clones of one file are overwritten, and the source as well.
fn clones(seed: u64) -> Recorded {
    let mut bench = Bench::new(SMALL, seed);
    let source = bench.create("source");
    bench.write(source, 0, 250 * 4096, Durability::Later);
    bench.write(source, 508 * BLOCK, 20 * 4096, Durability::Now);
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

/// Files go, and reclaim is cut half way, again and again.
fn delete(seed: u64) -> Recorded {
    let mut bench = Bench::new(SMALL, seed);
    bench.letters = 300;
    for number in 0..4 {
        let file = bench.create(&format!("file{number}"));
        // Scattered, so that there are several leaves.
        for piece in 0..6 {
            bench.write(file, piece * 508 * BLOCK, 20 * 4096, Durability::Later);
        }
    }
    bench.commit();
    for number in 0..4 {
        bench.unlink(&format!("file{number}"));
        for _ in 0..3 {
            bench.reclaim(1);
            bench.commit();
        }
        // What was freed is written anew.
        let file = bench.create(&format!("new{number}"));
        bench.write(file, 0, 30 * 4096, Durability::Now);
    }
    bench.reclaim(20);
    bench.commit();
    bench.end()
}

/// Names: temporary files renamed over others, links, directories, attributes.
fn names(seed: u64) -> Recorded {
    let mut bench = Bench::new(SMALL, seed);
    let habits = Habits { write_blocks: 2, ..anything_goes() };
    for round in 0..12 {
        if bench.reference.node(ROOT).entries.contains_key(&b"new"[..]) {
            // An action has moved something there.
            continue;
        }
        let file = bench.create("new");
        bench.write(file, 0, 6000, Durability::Later);
        // Other actions may have removed `current`, or put a directory in its place.
        let current =
            bench.reference.node(ROOT).entries.get(&b"current"[..]).map(|ino| bench.reference.node(*ino).kind);
        if current == Some(FileKind::Directory) {
            bench.unlink("new");
            continue;
        }
        let exchange = current.is_some() && round % 3 == 2;
        bench.rename("new", "current", if exchange { RenameMode::Exchange } else { RenameMode::Replace });
        if exchange {
            bench.unlink("new");
        }
        for _ in 0..6 {
            bench.act(&habits);
        }
        if round % 3 == 0 {
            bench.commit();
        }
    }
    bench.end()
}

/// Truncates, punches and reservations.
fn shrink(seed: u64) -> Recorded {
    let mut bench = Bench::new(SMALL, seed);
    let file = bench.create("disk");
    for round in 0..14 {
        bench.write(file, bench.dice.below(1100) * BLOCK, 60 * 4096, Durability::Later);
        let from = bench.dice.below(600) * BLOCK;
        match round % 4 {
            0 => bench.truncate(file, from + 1234),
            1 | 2 => {
                let length = (1 + bench.dice.below(520)) * BLOCK;
                bench.pool().allocate(Ino(file), from, length, AllocateMode::PunchHole).expect("punches");
                bench.reference.node_mut(file).zero(from, from + length);
                bench.done();
            }
            _ => {
                bench.pool().allocate(Ino(file), from, 600 * BLOCK, AllocateMode::KeepSize).expect("there is room");
                bench.truncate(file, from + 700 * BLOCK);
            }
        }
        if round % 2 == 1 {
            bench.commit();
        }
        bench.reclaim(1);
    }
    bench.end()
}

/// The pool is closed, which saves the filter, and opened again, with work in between.
fn close_and_reopen(seed: u64) -> Recorded {
    let mut bench = Bench::new(SMALL, seed);
    let file = bench.create("disk");
    for round in 0..6 {
        bench.write(file, bench.dice.below(50) * BLOCK, 30 * 4096, Durability::Later);
        bench.reopen(round % 3 != 2);
    }
    bench.end()
}

/// A pool of two groups, the first of which one file fills but for some blocks; the second is not initialised.
fn nearly_full_group() -> (MemoryImage, Reference) {
    let memory = Arc::new(MemoryDevice::new(36_000));
    let device: Arc<dyn BlockDevice> = memory.clone();
    let journal = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
    Pool::create(&device, &journal, &environment()).expect("a pool is made");
    let pool = open(&device, &quiet());
    let mut reference = Reference::new(Dedup::On);
    let filler = pool.create_file(Ino::ROOT, b"filler", &regular()).expect("is new").ino;
    reference.create(ROOT, b"filler", &regular(), filler.0);
    pool.set_xattr(filler, b"user.unread", b"", XattrMode::Either).expect("sets");
    reference.node_mut(filler.0).xattrs.insert(b"user.unread".to_vec(), Vec::new());
    let pieces = 788;
    for piece in 0..pieces {
        let bytes: Vec<u8> = (0..40).flat_map(|number| letter(1_000_000 + piece * 40 + number)).collect();
        pool.write(filler, piece * 40 * BLOCK, &bytes, Durability::Later).expect("writes");
    }
    reference.truncate(filler.0, pieces * 40 * BLOCK).expect("a length");
    pool.close().expect("closes");
    (memory.image(), reference)
}

/// Group 0 is full: the second one is initialised.
fn second_group(seed: u64) -> Recorded {
    static PREPARED: OnceLock<(MemoryImage, Reference)> = OnceLock::new();
    let (image, reference) = PREPARED.get_or_init(nearly_full_group).clone();
    let mut bench = Bench::on(image, reference, quiet(), seed);
    bench.letters = 2000;
    for number in 0..8 {
        let file = bench.create(&format!("file{number}"));
        bench.write(file, 0, 80 * 4096, Durability::Later);
        if number % 3 == 2 {
            bench.commit();
        }
    }
    bench.end()
}

fn anything_goes() -> Habits {
    Habits {
        letters: 30,
        write_blocks: 60,
        blocks_max: 900,
        far_offsets: true,
        dedup_switched: false,
        domains: false,
        reserve: true,
    }
}

/// Random actions of all kinds, with commits, checkpoints, reclaim and reopenings.
fn anything(seed: u64) -> Recorded {
    let mut bench = Bench::new(SMALL * 2, seed);
    for _ in 0..120 {
        match bench.dice.below(16) {
            0 => bench.commit(),
            1 if bench.dice.one_in(4) => bench.checkpoint(),
            2 => bench.reclaim(2),
            3 if bench.dice.one_in(6) => bench.reopen(bench.dice.one_in(2)),
            _ => bench.act(&anything_goes()),
        }
    }
    bench.end()
}
