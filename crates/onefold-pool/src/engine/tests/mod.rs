//! Operations that are run again, and what they learn meanwhile.

mod free_space;
mod large_operation;
mod summaries;

use std::sync::Arc;

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_block::{BlockDevice, BlockNo};
use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice};

use super::Engine;
use super::background::commit_or_tidy;
use super::group_init::blank_group;
use crate::error::{PoolError, Result};
use crate::format::geometry::{BITMAP_BLOCKS, BITS_PER_BITMAP_BLOCK, GROUP_BLOCKS, STATE};
use crate::format::header::{self, BlockKind, HEADER_BYTES};
use crate::format::state::Field;
use crate::format::store_page::BlockUse;
use crate::meta::group_run::GroupRun;
use crate::meta::{Op, Privilege};
use crate::options::{CreateOptions, Environment, OpenOptions};

/// Less than a pool can be opened with, so that the cache has its minimum size.
const MEMORY_BYTES: u64 = 4 << 20;
/// Free blocks at the end of the last group; all others are in use.
const FREE: u64 = 64;

fn environment() -> Environment {
    Environment { clock: Arc::new(ManualClock::starting_at(1)), random: Arc::new(SeededRandom::new(1)) }
}

type Device = Arc<FaultyDevice<MemoryDevice>>;

/// Opens a pool of `groups` groups. All blocks of group 0 are in use, and elsewhere those for which `is_used` returns
/// true. Only the bitmaps say so; the blocks were never written. Groups from `stores_from` on have fingerprint stores.
fn filled(groups: u64, stores_from: u64, is_used: impl Fn(BlockNo) -> bool) -> (Device, Engine) {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new(groups * GROUP_BLOCKS), 1));
    let seam: Arc<dyn BlockDevice> = device.clone();
    super::format::create(&seam, &CreateOptions::default(), &environment()).unwrap();
    // Nothing may be left of what was saved of a pool that will look different.
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    Engine::open(Arc::clone(&seam), options, environment()).unwrap().commit_and_close().unwrap();
    let superblock = super::open::read_superblock(&*seam).unwrap();
    let (geometry, pool_tag) = (superblock.geometry, superblock.pool_tag());
    for group in 0..groups {
        for (at, kind, mut bytes) in blank_group(&geometry, pool_tag, group) {
            if kind == BlockKind::StorePage && group < stores_from {
                continue;
            }
            if kind == BlockKind::Bitmap {
                let index = at.0 - geometry.bitmap_block(group, 0).0;
                for bit in 0..BITS_PER_BITMAP_BLOCK {
                    let within = index * BITS_PER_BITMAP_BLOCK + bit;
                    let block = geometry.group_first(group).plus(within);
                    if within < GROUP_BLOCKS && (group == 0 || is_used(block)) {
                        bytes[HEADER_BYTES + (bit / 8) as usize] |= 1 << (bit % 8);
                    }
                }
                header::seal(&mut bytes);
            }
            device.write(at, &bytes).unwrap();
        }
    }
    let mut state = [0; onefold_block::BLOCK_BYTES];
    device.read(STATE, &mut state).unwrap();
    state[Field::GroupsReady.range()].copy_from_slice(&groups.to_le_bytes());
    header::seal(&mut state);
    device.write(STATE, &state).unwrap();
    let options = OpenOptions { background: false, memory_bytes: MEMORY_BYTES, ..OpenOptions::default() };
    let engine = Engine::assemble(seam, superblock, options, environment(), None).unwrap();
    (device, engine)
}

/// Opens a pool of `groups` groups, all full except the last.
fn nearly_full(groups: u64) -> (Device, Engine) {
    filled(groups, groups - 1, |block| block.0 < groups * GROUP_BLOCKS - FREE)
}

/// Regression, found by reading: each missing bitmap rolled the operation back, and discarded what it had learned about
/// earlier groups, so that the next try began at the first group again. If all bitmaps together did not fit in memory,
/// no try ever got further: a large pool that was nearly full took no more data.
#[test]
fn what_is_known_of_full_groups_outlives_an_operation_that_is_run_again() {
    // The bitmaps of that many groups do not fit in memory.
    let groups = 1100;
    let (device, engine) = nearly_full(groups);
    // Each bitmap must be read once. Twice is enough for the test.
    device.fail(Call::Read, FailingCalls::FromNth(device.count(Call::Read) + 2 * groups * BITMAP_BLOCKS), Fault::Io);
    let found = engine.run(Privilege::Normal, |op| op.reserve_data(40, 0, 0)).unwrap();
    let first = BlockNo(groups * GROUP_BLOCKS - FREE);
    assert_eq!(found, [GroupRun { first, count: 40 }]);
}

/// The converse: what an operation learns after it has taken blocks itself is no longer true once these are given back.
#[test]
fn that_a_group_lacks_what_an_operation_took_is_forgotten_with_it() {
    let (_, engine) = nearly_full(2);
    let allocate = |op: &mut Op<'_>| op.allocate_metadata(BlockKind::TreePage, BlockUse::TreePage);
    let mut most = 0;
    let refused: Result<()> = engine.run(Privilege::Freeing, |op| {
        let mut count = 0;
        loop {
            allocate(op)?;
            count += 1;
            most = most.max(count);
        }
    });
    assert!(matches!(refused, Err(PoolError::NoSpace)), "{refused:?}");
    assert_eq!(most, FREE, "it had taken them all");
    let first = BlockNo(2 * GROUP_BLOCKS - FREE);
    assert_eq!(engine.run(Privilege::Freeing, |op| allocate(op)).unwrap(), first);
    let refused = engine.run(Privilege::Freeing, |op| {
        op.reserve_data(FREE - 1, 0, 0)?;
        op.reserve_data(1, 0, 0)
    });
    assert!(matches!(refused, Err(PoolError::NoSpace)), "{refused:?}");
    let found = engine.run(Privilege::Freeing, |op| op.reserve_data(FREE - 1, 0, 0)).unwrap();
    assert_eq!(found, [GroupRun { first: first.plus(1), count: FREE - 1 }]);
}

/// Regression: a transaction with changes was taken for an empty one. So each commit by the timer emptied the journal,
/// and every block was logged whole at its next change.
#[test]
fn the_journal_is_emptied_when_nothing_has_happened_since_the_last_commit() {
    let (_, engine) = nearly_full(2);
    let mut seen = engine.meta().running.sequence;
    let mut step = |changes: bool| {
        if changes {
            engine.run(Privilege::Freeing, |op| op.allocate_metadata(BlockKind::TreePage, BlockUse::TreePage)).unwrap();
        }
        commit_or_tidy(&engine, &mut seen).unwrap();
        let activity = engine.activity.stat();
        (activity.commits, activity.checkpoints)
    };
    assert_eq!([step(true), step(true), step(true)], [(1, 0), (2, 0), (3, 0)]);
    assert_eq!([step(false), step(false)], [(3, 1), (3, 1)], "once is enough");
    assert_eq!([step(true), step(false)], [(4, 1), (4, 2)]);
}
