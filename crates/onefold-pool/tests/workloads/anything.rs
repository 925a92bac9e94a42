//! A workload of all kinds of actions.

use onefold_pool::{Dedup, Durability, TestLimits, Verification};

use super::{BLOCK, SMALL};
use crate::common::actions::Habits;
use crate::common::behind;
use crate::common::bench::{Bench, WorkloadRecord, new_pool};
use crate::common::reference::Reference;

pub(super) fn anything_goes() -> Habits {
    Habits {
        letters: 30,
        write_blocks: 60,
        blocks_max: 900,
        far_offsets: true,
        dedup_switched: false,
        pool_dedup: Dedup::On,
        domains: false,
        reserve: true,
    }
}

/// Random actions of all kinds, with commits, checkpoints, reclaim and reopenings.
pub(super) fn anything(seed: u64) -> WorkloadRecord {
    act(Bench::new(SMALL * 2, seed))
}

/// The same with mostly equal fingerprints, and with blocks stored again after a few references.
pub(super) fn collisions(seed: u64) -> WorkloadRecord {
    let mut options = behind();
    options.verify = Verification::Value;
    options.test_limits =
        TestLimits { fingerprint_bits: 5, references_max: 4, lowest_first: true, ..options.test_limits };
    act(Bench::on(new_pool(SMALL * 2, 1 << 20), Reference::new(Dedup::On), options, seed))
}

fn act(mut bench: Bench) -> WorkloadRecord {
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

/// The pool is closed, which saves the filter, and opened again, with work in between.
pub(super) fn close_and_reopen(seed: u64) -> WorkloadRecord {
    let mut bench = Bench::new(SMALL, seed);
    let file = bench.create("disk");
    for round in 0..6 {
        bench.write(file, bench.dice.below(50) * BLOCK, 30 * 4096, Durability::Later);
        bench.reopen(round % 3 != 2);
    }
    bench.end()
}
