//! Summaries of the groups that a close saves, and their use by the next opening.

use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo};
use onefold_testing::device::{Call, FailingCalls, Fault};

use super::free_space::{Steps, claim, compare, exercise, filled_at_random, reads, write};
use super::{Device, FREE, environment, filled, nearly_full};
use crate::engine::Engine;
use crate::error::PoolError;
use crate::format::geometry::{BITS_PER_BITMAP_BLOCK, GROUP_BLOCKS};
use crate::format::group_summaries::{GroupSummary, SummaryBlock};
use crate::format::header::BlockKind;
use crate::format::items::{FilterRun, SUMMARIES_GENERATION, filter_run_key};
use crate::format::state::Field;
use crate::meta::group_run::GroupRun;
use crate::meta::{Op, Privilege};
use crate::options::{OpenOptions, TestLimits};

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

/// Opens a pool like [`surveyed`], which keeps its summaries.
fn keeping(groups: u64) -> (Device, Engine) {
    let (device, engine) = surveyed(groups);
    assert!(engine.place_summaries());
    assert!(!engine.place_summaries(), "once is enough");
    engine.commit().unwrap();
    engine.checkpoint().unwrap();
    (device, engine)
}

/// Returns how many reads a write of 40 blocks takes, which must go behind `first`.
fn reads_of_a_write(device: &Device, engine: &Engine, first: u64) -> u64 {
    reads(device, || {
        let runs = write(engine, 40);
        assert_eq!(runs.iter().map(|run| run.count).sum::<u64>(), 40);
        assert!(runs.iter().all(|run| run.first.0 >= first), "{runs:?}");
    })
}

/// Opens a pool of `groups` groups with room for [`FREE`] blocks in each of the two before the last, and nowhere else.
/// The summaries have their places in the first of these.
fn keeping_before_the_last(groups: u64) -> (Device, Engine) {
    let room = |group: u64| group * GROUP_BLOCKS + 5000..group * GROUP_BLOCKS + 5000 + FREE;
    let is_used = |block: BlockNo| !room(groups - 3).contains(&block.0) && !room(groups - 2).contains(&block.0);
    let (device, engine) = filled(groups, groups - 3, is_used);
    while engine.survey_some().unwrap() {}
    assert!(engine.place_summaries());
    engine.commit().unwrap();
    engine.checkpoint().unwrap();
    (device, engine)
}

/// Regression: after a crash, the first write to a pool that was full but for one group read the bitmaps of all groups,
/// unless the survey came before it.
#[test]
fn the_first_write_after_a_crash_reads_no_bitmaps_of_full_groups() {
    let groups = 1100;
    let (device, engine) = keeping_before_the_last(groups);
    let places = engine.meta().groups.summary_places.clone();
    drop(engine);
    for round in 0..2 {
        let engine = reopen(&device);
        assert_eq!(engine.meta().groups.summary_places, places, "they stay where they are");
        let engine = match round {
            0 => engine,
            // The facts that it has learned are in no summary unless it comes to a checkpoint.
            _ => {
                write(&engine, 5);
                engine.commit().unwrap();
                drop(engine);
                reopen(&device)
            }
        };
        let count = reads_of_a_write(&device, &engine, (groups - 3) * GROUP_BLOCKS);
        assert!(count < 16, "round {round}: {count} reads: a few bitmaps and pages of stores");
    }
}

/// A crash undoes what the running transaction has taken.
#[test]
fn room_that_a_crash_gives_back_is_found_at_once() {
    let groups = 1100;
    let (device, engine) = keeping_before_the_last(groups);
    let taken = GroupRun { first: BlockNo((groups - 2) * GROUP_BLOCKS + 5000), count: FREE };
    assert!(engine.run(Privilege::Normal, |op| op.reserve_runs(&[taken])).unwrap());
    engine.run(Privilege::Normal, |op| claim(op, &[taken])).unwrap();
    engine.checkpoint().unwrap();
    drop(engine);
    let engine = reopen(&device);
    let hint = |group| engine.meta().groups.free_runs.hint(group);
    assert_eq!((hint(groups - 2), hint(7)), (None, Some(GroupSummary::new(0, 0))));
    let count = reads_of_a_write(&device, &engine, (groups - 3) * GROUP_BLOCKS);
    assert!(count < 16, "{count} reads");
}

/// The blocks that [`filled_later`] takes.
fn taken_later(groups: u64) -> GroupRun {
    GroupRun { first: BlockNo((groups - 2) * GROUP_BLOCKS + 5000), count: 60 }
}

/// Opens a pool of `groups` groups, which are all known. It had room in the last two; the last but one was filled.
fn filled_later(groups: u64) -> (Device, Engine) {
    let (taken, last) = (taken_later(groups), (groups - 1) * GROUP_BLOCKS + 5000);
    let is_taken = |block: BlockNo| (taken.first..taken.first.plus(taken.count)).contains(&block);
    let is_used = |block: BlockNo| !is_taken(block) && !(last..last + FREE).contains(&block.0);
    let (device, engine) = filled(groups, groups - 2, is_used);
    while engine.survey_some().unwrap() {}
    assert!(engine.run(Privilege::Normal, |op| op.reserve_runs(&[taken])).unwrap());
    engine.run(Privilege::Normal, |op| claim(op, &[taken])).unwrap();
    (device, engine)
}

/// Frees the blocks that [`filled_later`] has taken, and commits.
fn free_later(engine: &Engine, groups: u64) {
    let first = taken_later(groups).first;
    engine.run(Privilege::Freeing, |op| (0..60).try_for_each(|at| op.free_data(first.plus(at)))).unwrap();
    engine.commit().unwrap();
}

/// Blocks of full groups are freed, in the log or before a checkpoint.
#[test]
fn room_that_was_freed_before_a_crash_is_found_at_once() {
    let groups = 1100;
    for is_in_log in [false, true] {
        let (device, engine) = filled_later(groups);
        assert!(engine.place_summaries());
        engine.commit().unwrap();
        engine.checkpoint().unwrap();
        free_later(&engine, groups);
        if !is_in_log {
            engine.checkpoint().unwrap();
        }
        drop(engine);
        let engine = reopen(&device);
        let count = reads_of_a_write(&device, &engine, (groups - 2) * GROUP_BLOCKS);
        assert!(count < 16, "in the log: {is_in_log}: {count} reads");
        assert_eq!(engine.meta().groups.free_runs.hint(3), Some(GroupSummary::new(0, 0)));
    }
}

fn keeping_options() -> OpenOptions {
    let test_limits = TestLimits { summaries_from_groups: 1, ..TestLimits::default() };
    OpenOptions { test_limits, ..options() }
}

/// After a crash at any time, what is known is true, and each hint is.
#[test]
fn facts_and_hints_after_a_crash_are_true() {
    let groups = 4;
    let (mut known, mut hints) = (0, 0);
    for seed in 0..6 {
        for round in 0..3 {
            let mut steps = Steps(seed * 10 + round);
            let (device, engine) = filled_at_random(&mut steps, seed, groups);
            engine.commit_and_close().unwrap();
            drop(engine);
            let engine = Engine::open(device.clone(), keeping_options(), environment()).unwrap();
            while engine.survey_some().unwrap() {}
            assert!(engine.place_summaries());
            for _ in 0..=round {
                exercise(&engine, &mut steps, groups);
            }
            drop(engine);
            let engine = Engine::open(device.clone(), keeping_options(), environment()).unwrap();
            compare(&engine, groups);
            let geometry = engine.meta().geometry;
            let in_log: Vec<u64> = engine
                .committer
                .lock()
                .home_blocks()
                .filter(|block| geometry.is_place_of(BlockKind::Bitmap, *block))
                .map(|block| geometry.group_of(block))
                .collect();
            for group in 0..groups {
                known += u64::from(engine.meta().groups.free_runs.get(group).is_some());
                let Some(hint) = engine.meta().groups.free_runs.hint(group) else { continue };
                hints += 1;
                engine.run(Privilege::Freeing, |op| op.survey(group)).unwrap();
                let truth = engine.meta().groups.free_runs.get(group).unwrap();
                // A hint of recovery may lack the second bitmap.
                let lacking = if in_log.contains(&group) { GROUP_BLOCKS - BITS_PER_BITMAP_BLOCK } else { 0 };
                let is_true = hint.free <= truth.free
                    && u64::from(hint.free) + lacking >= u64::from(truth.free)
                    && (lacking > 0 || hint.longest >= truth.longest.min(hint.free));
                assert!(is_true, "seed {seed}, round {round}, group {group}: {hint:?} is the hint, {truth:?} is true");
            }
        }
    }
    assert!(hints > 15, "{known} facts, {hints} hints");
}

#[test]
fn a_search_finds_blocks_in_spite_of_hints_that_are_wrong() {
    let groups = 100;
    for forged in [GroupSummary::new(0, 0), GroupSummary::new(256, GROUP_BLOCKS)] {
        let (device, engine) = keeping(groups);
        let places = engine.meta().groups.summary_places.clone();
        let pool_tag = engine.meta().pool_tag;
        drop(engine);
        let mut bytes = [0; BLOCK_BYTES];
        device.read(places[0].first, &mut bytes).unwrap();
        let mut block = SummaryBlock::decode(&bytes, pool_tag, places[0].first).unwrap();
        block.summaries.fill(Some(forged));
        device.write(places[0].first, &block.encode(pool_tag, places[0].first)).unwrap();
        let engine = reopen(&device);
        assert_eq!(engine.meta().groups.free_runs.hint(3), Some(forged));
        reads_of_a_write(&device, &engine, groups * GROUP_BLOCKS - FREE);
        compare(&engine, groups);
    }
}

#[test]
fn places_that_are_in_use_or_too_many_are_not_kept() {
    // Two blocks have summaries of so many groups.
    let groups = 1017;
    let (device, engine) = keeping(groups);
    let [place] = engine.meta().groups.summary_places[..] else { panic!("one run") };
    drop(engine);
    let name = |runs: &[(u64, GroupRun)]| {
        let engine = assemble(&device);
        let name = |op: &mut Op<'_>| {
            for (number, run) in runs {
                let value = FilterRun { generation: SUMMARIES_GENERATION, first: run.first, count: run.count };
                op.put_item(&filter_run_key(*number), &value.encode())?;
            }
            Ok(())
        };
        engine.run(Privilege::Freeing, name).unwrap();
        engine.commit_and_close().unwrap();
    };
    let (one, other) = (GroupRun { count: 1, ..place }, GroupRun { first: place.first.plus(1), count: 1 });
    let in_use = GroupRun { first: BlockNo(50 * GROUP_BLOCKS + 9000), count: 1 };
    let outside = GroupRun { first: BlockNo(groups * GROUP_BLOCKS), count: 1 };
    for runs in [
        vec![(0, in_use)],
        vec![(0, one), (1, in_use)],
        vec![(0, outside)],
        vec![(0, one), (1, one)],
        vec![(0, GroupRun { count: 3, ..place })],
        vec![(0, GroupRun { count: 0, ..place })],
    ] {
        name(&runs);
        let engine = reopen(&device);
        assert!(engine.meta().groups.summary_places.is_empty() && engine.saved_runs().unwrap().is_empty(), "{runs:?}");
        assert_eq!(engine.meta().groups.busy.count(), 0);
        reads_of_a_write(&device, &engine, groups * GROUP_BLOCKS - FREE);
    }
    // Numbers with gaps.
    name(&[(7, one), (u64::MAX, other)]);
    let engine = reopen(&device);
    assert_eq!(engine.meta().groups.summary_places, [one, other]);
    drop(engine);
    let engine = reopen(&device);
    assert_eq!((engine.saved_runs().unwrap().len(), engine.meta().groups.blocks_kept()), (2, 2));
}

/// Found in a review: a bad bitmap below the summaries would have kept the pool from being opened after a crash.
#[test]
fn a_bad_bitmap_below_the_summaries_costs_only_them() {
    let groups = 100;
    let (device, engine) = keeping(groups);
    let bitmap = engine.meta().geometry.bitmap_block(groups - 1, 0);
    drop(engine);
    device.write(bitmap, &[7; BLOCK_BYTES]).unwrap();
    let engine = reopen(&device);
    assert!(engine.meta().groups.summary_places.is_empty());
    assert_eq!(engine.meta().groups.busy.count(), 0);
}

/// Found in a review: the summaries took blocks that files had been promised, or that frees need.
#[test]
fn summaries_leave_others_what_they_need() {
    let groups = 100;
    let promise = |engine: &Engine, left: u64| {
        let promised = |op: &mut Op<'_>| {
            let free = op.blocks_available() - crate::meta::allocate::EMERGENCY_BLOCKS;
            op.set_state(Field::ReservedBlocks, free - left)
        };
        engine.run(Privilege::Freeing, promised).unwrap();
        engine.commit().unwrap();
    };
    let (_, engine) = surveyed(groups);
    promise(&engine, 1);
    assert!(!engine.place_summaries());
    assert_eq!(engine.meta().groups.busy.count(), 0);
    promise(&engine, 2);
    assert!(!engine.place_summaries(), "not before the next checkpoint");
    engine.checkpoint().unwrap();
    assert!(engine.place_summaries());
    engine.commit().unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(engine.run(Privilege::Normal, |op| Ok(op.blocks_unpromised())).unwrap(), 1);

    let (device, engine) = keeping(groups);
    promise(&engine, 0);
    drop(engine);
    let engine = reopen(&device);
    assert!(engine.meta().groups.summary_places.is_empty() && engine.saved_runs().unwrap().is_empty());
}

/// Found in a review: a checkpoint could have written summaries to places that had been given up, and taken, meanwhile.
#[test]
fn places_are_given_up_only_between_checkpoints() {
    let (_, engine) = keeping(100);
    let busy = || engine.meta().groups.busy.count();
    assert_eq!(busy(), 1);
    std::thread::scope(|scope| {
        let checkpoint = engine.committer.lock();
        let (begins, begun) = std::sync::mpsc::channel();
        let engine = &engine;
        let giving_up = scope.spawn(move || {
            begins.send(()).unwrap();
            engine.replace_places(Vec::new());
        });
        begun.recv().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!((busy(), giving_up.is_finished()), (1, false));
        drop(checkpoint);
    });
    assert_eq!(busy(), 0);
}

#[test]
fn a_search_for_places_that_fails_leaves_nothing_and_is_repeated() {
    for fault in [Fault::StorageFull, Fault::Io] {
        let (device, engine) = surveyed(100);
        engine.commit().unwrap();
        device.fail(Call::Write, FailingCalls::Nth(device.count(Call::Write) + 1), fault);
        assert!(!engine.place_summaries());
        assert_eq!(engine.meta().groups.busy.count(), 0);
        assert!(engine.saved_runs().unwrap().is_empty());
        device.heal();
        assert!(!engine.place_summaries(), "not before the next checkpoint");
        engine.checkpoint().unwrap();
        assert!(engine.place_summaries());
    }
}

/// Found in a review: blocks of other groups stayed busy when the bitmap of a group could not be read.
#[test]
fn a_search_for_places_that_meets_damage_leaves_nothing() {
    let groups = 1017;
    let (first, last) = ((groups - 2) * GROUP_BLOCKS + 5000, (groups - 1) * GROUP_BLOCKS + 5000);
    // Two blocks are needed.
    let (device, engine) =
        filled(groups, groups - 2, |block| block.0 != first && !(last..last + FREE).contains(&block.0));
    while engine.survey_some().unwrap() {}
    let bitmap = engine.meta().geometry.bitmap_block(groups - 1, 0);
    device.write(bitmap, &[7; BLOCK_BYTES]).unwrap();
    assert!(!engine.place_summaries());
    assert_eq!(engine.meta().groups.busy.count(), 0);
}

/// Found in a review: summaries that a close wrote while a transaction was still on its way named the number after it.
/// A pool that lost this transaction and was opened twice believed them.
#[test]
fn summaries_are_facts_only_after_a_close() {
    let groups = 100;
    let (device, engine) = keeping(groups);
    let place = engine.meta().groups.summary_places[0].first;
    write(&engine, 5);
    engine.commit().unwrap();
    let sequence = engine.meta().running.sequence;
    let pool_tag = engine.meta().pool_tag;
    drop(engine);
    let summaries = vec![Some(GroupSummary::new(0, 0)); usize::try_from(groups).unwrap()];
    let forged = SummaryBlock { sequence, first_group: 0, summaries };
    device.write(place, &forged.encode(pool_tag, place)).unwrap();
    let engine = reopen(&device);
    assert_eq!(engine.activity.stat().replayed, 1);
    assert_eq!(unknown(&engine, groups), Some(0));
}

/// Found in a review: after a close without a filter, a growth would have left the number of the next transaction as it
/// was, and the summary of the last group, which is longer now, would have been believed.
#[test]
fn an_opening_outdates_the_summaries_that_it_keeps() {
    let groups = 100;
    let (device, engine) = keeping(groups);
    assert!(engine.save_and_close().unwrap().is_none());
    drop(engine);
    let engine = reopen(&device);
    assert_eq!((unknown(&engine, groups), engine.meta().groups.blocks_kept()), (None, 1));
    drop(engine);
    assert_eq!(unknown(&reopen(&device), groups), Some(0), "as after a crash");
}

#[test]
fn a_pool_that_gets_more_groups_gets_more_places_and_a_close_takes_those() {
    let groups = 1017;
    let (device, engine) = filled(groups, groups - 2, |block| block.0 < (groups - 2) * GROUP_BLOCKS + 9000);
    let set_ready = |ready| engine.run(Privilege::Freeing, |op| op.set_state(Field::GroupsReady, ready)).unwrap();
    set_ready(groups - 1);
    for (ready, blocks) in [(groups - 1, 1), (groups, 2)] {
        set_ready(ready);
        assert!(!engine.place_summaries(), "there are unknown groups");
        while engine.survey_some().unwrap() {}
        assert!(engine.place_summaries());
        let meta = engine.meta();
        assert_eq!((meta.groups.blocks_kept(), meta.groups.busy.count()), (blocks, blocks));
    }
    let places = engine.meta().groups.summary_places.clone();
    assert!(engine.save_and_close().unwrap().is_none());
    drop(engine);
    let engine = reopen(&device);
    assert_eq!(engine.meta().groups.summary_places, places);
    assert_eq!(unknown(&engine, groups), None);
    compare(&engine, groups);
}

#[test]
fn a_small_pool_keeps_no_places() {
    let (_, engine) = surveyed(63);
    assert!(!engine.place_summaries());
    assert_eq!(engine.meta().groups.busy.count(), 0);
}

/// Found in a review: a bad sector below the summaries would have stopped the pool at each checkpoint, of each opening.
#[test]
fn a_checkpoint_goes_on_without_its_summaries() {
    let trial = |number: u64, fault: Option<Fault>| {
        let (device, engine) = filled_later(100);
        assert!(engine.place_summaries());
        engine.commit().unwrap();
        engine.checkpoint().unwrap();
        free_later(&engine, 100);
        let before = device.count(Call::Write);
        if let Some(fault) = fault {
            device.fail(Call::Write, FailingCalls::Nth(before + number), fault);
        }
        let done = engine.checkpoint();
        (device.count(Call::Write) - before, done.is_ok(), engine.ensure_writable().is_ok())
    };
    let (count, ..) = trial(0, None);
    for fault in [Fault::StorageFull, Fault::Io] {
        let trials: Vec<_> = (1..=count).map(|number| trial(number, Some(fault))).collect();
        let of_summaries = trials.iter().filter(|(_, is_done, is_writable)| *is_done && *is_writable).count();
        assert_eq!(of_summaries, 1, "one of {count} writes is not needed: {trials:?}");
    }
}

#[test]
fn a_pool_without_any_free_block_opens_after_a_crash() {
    let groups = 100;
    let (device, engine) = keeping(groups);
    let fill = |op: &mut Op<'_>| {
        let available = op.blocks_available();
        op.set_state(Field::DataBlocks, op.state(Field::DataBlocks) + available)
    };
    engine.run(Privilege::Freeing, fill).unwrap();
    engine.commit().unwrap();
    drop(engine);
    let engine = reopen(&device);
    assert!(engine.meta().groups.summary_places.is_empty());
    assert!(engine.saved_runs().unwrap().is_empty());
}
