//! Summaries of the groups that a close saves, and their use by the next opening.

use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo};
use onefold_testing::device::{Call, FailingCalls, Fault};

use super::free_space::{Steps, compare, exercise, filled_at_random, reads, write};
use super::{Device, FREE, environment, filled, nearly_full};
use crate::engine::Engine;
use crate::error::PoolError;
use crate::format::geometry::GROUP_BLOCKS;
use crate::format::group_summaries::{GroupSummary, SummaryBlock};
use crate::format::state::Field;
use crate::meta::{Op, Privilege};
use crate::options::OpenOptions;

fn options() -> OpenOptions {
    OpenOptions { background: false, memory_bytes: crate::MEMORY_BYTES_MIN, ..OpenOptions::default() }
}

fn reopen(device: &Device) -> Engine {
    Engine::open(device.clone(), options(), environment()).unwrap()
}

/// Opens a pool without what the last close saved, and leaves it where it is.
fn assemble(device: &Device) -> Engine {
    let superblock = crate::engine::open::read_superblock(&**device).unwrap();
    Engine::assemble(device.clone(), superblock, options(), environment(), None).unwrap()
}

/// Opens a pool of `groups` groups, full but for the end of the last one, whose groups are all known.
fn surveyed(groups: u64) -> (Device, Engine) {
    let (device, engine) = nearly_full(groups);
    while engine.survey_some().unwrap() {}
    (device, engine)
}

/// Closes such a pool.
fn closed(groups: u64) -> Device {
    let (device, engine) = surveyed(groups);
    assert!(engine.save_and_close().unwrap().is_none());
    device
}

fn unknown(engine: &Engine, groups: u64) -> Option<u64> {
    engine.meta().groups.free_runs.next_unknown(0..groups)
}

/// Returns the places and the content of the saved summaries, all in the last group.
fn saved(device: &Device, groups: u64) -> Vec<(BlockNo, SummaryBlock)> {
    let pool_tag = assemble(device).meta().pool_tag;
    let mut bytes = [0; BLOCK_BYTES];
    let blocks = (groups * GROUP_BLOCKS - FREE..groups * GROUP_BLOCKS).map(BlockNo);
    let content = blocks.filter_map(|at| {
        device.read(at, &mut bytes).unwrap();
        SummaryBlock::decode(&bytes, pool_tag, at).map(|found| (at, found))
    });
    content.collect()
}

/// Writes other summaries to the places of the saved ones.
fn forge(device: &Device, groups: u64, summary: GroupSummary) {
    let pool_tag = assemble(device).meta().pool_tag;
    for (at, mut block) in saved(device, groups) {
        block.summaries.fill(Some(summary));
        device.write(at, &block.encode(pool_tag, at)).unwrap();
    }
}

/// Regression: in a pool that was full but for one group, the first write after a mount read the bitmaps of all groups,
/// unless the survey came before it.
#[test]
fn the_first_write_after_a_mount_reads_no_bitmaps_of_full_groups() {
    let groups = 1100;
    let device = closed(groups);
    assert_eq!(saved(&device, groups).len(), 2, "1,016 groups have room in a block");
    let engine = reopen(&device);
    assert_eq!(unknown(&engine, groups), None);
    let count = reads(&device, || {
        let runs = write(&engine, 40);
        assert_eq!(runs.iter().map(|run| run.count).sum::<u64>(), 40);
        assert!(runs.iter().all(|run| run.first.0 >= groups * GROUP_BLOCKS - FREE), "{runs:?}");
    });
    assert!(count < 10, "{count} reads: the group's bitmaps and pages of its store");
}

#[test]
fn what_a_close_saves_is_true_at_the_next_opening() {
    let groups = 4;
    for seed in 0..6 {
        let mut steps = Steps(seed);
        let (device, engine) = filled_at_random(&mut steps, seed, groups);
        exercise(&engine, &mut steps, groups);
        engine.meta().groups.forget_full_backing();
        while engine.survey_some().unwrap() {}
        assert!(engine.save_and_close().unwrap().is_none());
        drop(engine);
        let engine = reopen(&device);
        assert_eq!(unknown(&engine, groups), None, "seed {seed}");
        compare(&engine, groups);
    }
}

#[test]
fn a_saved_filter_and_summaries_both_arrive() {
    let groups = 3;
    // Free space in single blocks: each is a run of its own.
    let (device, engine) = filled(groups, 1, |block| block.0 % 2 == 0);
    while engine.survey_some().unwrap() || engine.index_some().unwrap() {}
    assert_eq!(engine.groups_pending(), 0);
    assert!(engine.save_and_close().unwrap().is_none());
    let engine = reopen(&device);
    assert_eq!((engine.groups_pending(), unknown(&engine, groups)), (0, None));
    compare(&engine, groups);
}

#[test]
fn of_several_blocks_of_summaries_one_that_is_torn_costs_only_its_own() {
    let groups = 1100;
    let device = closed(groups);
    let (first, _) = saved(&device, groups)[0];
    let mut bytes = [0; BLOCK_BYTES];
    device.read(first, &mut bytes).unwrap();
    bytes[2048..].fill(7);
    device.write(first, &bytes).unwrap();
    let engine = reopen(&device);
    assert_eq!(unknown(&engine, groups), Some(0));
    assert_eq!(engine.meta().groups.free_runs.next_unknown(1016..groups), None);
}

#[test]
fn an_opening_forgets_what_was_saved_before_the_pool_changes() {
    let groups = 3;
    let device = closed(groups);
    let engine = reopen(&device);
    assert_eq!(unknown(&engine, groups), None);
    write(&engine, 20);
    engine.commit().unwrap();
    drop(engine);
    assert_eq!(unknown(&reopen(&device), groups), Some(0), "as after a crash");
}

/// A repair changes bitmaps while the items of the last close are still there.
#[test]
fn summaries_of_another_state_of_the_pool_are_not_used() {
    let groups = 3;
    let device = closed(groups);
    let engine = assemble(&device);
    let change = |op: &mut Op<'_>| {
        op.count(Field::Inodes, 1);
        Ok(())
    };
    engine.run(Privilege::Freeing, change).unwrap();
    engine.commit_and_close().unwrap();
    assert!(!saved(&device, groups).is_empty(), "they are still there");
    assert_eq!(unknown(&reopen(&device), groups), Some(0));
}

#[test]
fn a_close_without_its_summaries_costs_only_time() {
    let groups = 3;
    let device = closed(groups);
    for (at, _) in saved(&device, groups) {
        device.write(at, &[0; BLOCK_BYTES]).unwrap();
    }
    let engine = reopen(&device);
    assert_eq!(unknown(&engine, groups), Some(0));
    write(&engine, 20);
}

#[test]
fn free_blocks_that_forged_summaries_hide_are_found_all_the_same() {
    let groups = 3;
    let device = closed(groups);
    forge(&device, groups, GroupSummary::new(0, 0));
    let engine = reopen(&device);
    assert_eq!(unknown(&engine, groups), None);
    write(&engine, 20);
    // The first ones were kept for metadata. Now only a scan finds more.
    write(&engine, 20);
    compare(&engine, groups);
}

#[test]
fn free_blocks_that_forged_summaries_invent_are_not_handed_out() {
    let groups = 3;
    let device = closed(groups);
    forge(&device, groups, GroupSummary::new(256, GROUP_BLOCKS));
    let engine = reopen(&device);
    let runs = write(&engine, 20);
    assert!(runs.iter().all(|run| run.first.0 >= groups * GROUP_BLOCKS - FREE), "{runs:?}");
    engine.run(Privilege::Freeing, |op| runs.iter().try_for_each(|run| op.free_data(run.first))).unwrap();
    engine.commit().unwrap();
    let refused = engine.run(Privilege::Freeing, |op| op.reserve_data(FREE + 1, 0, 0));
    assert!(matches!(refused, Err(PoolError::NoSpace)), "{refused:?}");
}

#[test]
fn a_device_that_fails_after_the_last_commit_is_reported_and_costs_only_time() {
    let groups = 3;
    let (device, engine) = surveyed(groups);
    assert!(engine.save_and_close().unwrap().is_none());
    let writes = device.count(Call::Write);
    for (fault, is_reported) in [(Fault::Io, true), (Fault::StorageFull, false)] {
        let (device, engine) = surveyed(groups);
        device.fail(Call::Write, FailingCalls::Nth(writes), fault);
        assert_eq!(engine.save_and_close().unwrap().is_some(), is_reported);
        device.heal();
        let engine = reopen(&device);
        assert_eq!(unknown(&engine, groups), Some(0));
        assert_eq!(engine.activity.stat().replayed, 0, "it was cleanly closed");
    }
}
