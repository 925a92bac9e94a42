//! The knowledge of free blocks, and the cost of searches for them.

use onefold_block::{BlockNo, Fingerprint};
use onefold_testing::device::Call;

use super::{Device, filled, nearly_full};
use crate::engine::Engine;
use crate::error::PoolError;
use crate::format::geometry::GROUP_BLOCKS;
use crate::format::group_summaries::GroupSummary;
use crate::format::header::BlockKind;
use crate::format::store_page::{BlockUse, StoreEntry};
use crate::meta::busy::BusyBlocks;
use crate::meta::free_words::{FreeWords, SearchPurpose, bitmaps_of};
use crate::meta::group_run::GroupRun;
use crate::meta::{Op, OpError, OpResult, Privilege};

const BATCH: u64 = 256;
const WORDS_PER_GROUP: u64 = GROUP_BLOCKS / 64;

fn entry(block: BlockNo) -> StoreEntry {
    let mut fingerprint = [1; 16];
    fingerprint[..8].copy_from_slice(&block.0.to_le_bytes());
    StoreEntry { fingerprint: Fingerprint(fingerprint), count: 1, domain: 0, usage: BlockUse::Data, private: false }
}

pub(super) fn claim(op: &mut Op<'_>, runs: &[GroupRun]) -> OpResult<()> {
    for &run in runs {
        let entries: Vec<StoreEntry> = (0..run.count).map(|offset| entry(run.first.plus(offset))).collect();
        op.claim_data(run, &entries)?;
    }
    Ok(())
}

/// Takes blocks like a write: reserves them, and claims them in a second operation.
pub(super) fn write(engine: &Engine, count: u64) -> Vec<GroupRun> {
    let runs = engine.run(Privilege::Normal, |op| op.reserve_data(count, 0, 0)).unwrap();
    engine.run(Privilege::Normal, |op| claim(op, &runs)).unwrap();
    runs
}

fn words_scanned(engine: &Engine) -> u64 {
    engine.meta().groups.words_scanned
}

/// Returns the number of bitmaps that were read from the device while `work` ran.
pub(super) fn reads(device: &Device, work: impl FnOnce()) -> u64 {
    let before = device.count(Call::Read);
    work();
    device.count(Call::Read) - before
}

/// Regression: if no free run of 32 blocks was left, each write searched all bitmaps for runs of 32, 31, 30, ... blocks
/// while it held the metadata lock, and each claim and free discarded the results.
#[test]
fn a_write_into_single_blocks_looks_at_little_more_than_what_it_takes() {
    let groups = 6;
    let (_, engine) = filled(groups, 1, |block| block.0 % 2 == 0);
    let blocks_before = words_scanned(&engine);
    let batches = 40;
    for batch in 0..batches {
        let runs = write(&engine, BATCH);
        assert!(runs.iter().all(|run| run.count == 1), "{runs:?}");
        if batch % 4 == 3 {
            // Durable frees, scattered among used blocks.
            engine.run(Privilege::Freeing, |op| runs.iter().try_for_each(|run| op.free_data(run.first))).unwrap();
            engine.commit().unwrap();
        }
    }
    let scanned = words_scanned(&engine) - blocks_before;
    // Each group once, and a few words for each block.
    let allowed = groups * WORDS_PER_GROUP + batches * BATCH * 3;
    assert!(scanned <= allowed, "{scanned} words were looked at, {allowed} are plenty");
}

/// The same for metadata in such a pool.
#[test]
fn metadata_in_single_blocks_looks_at_little_more_than_what_it_takes() {
    let groups = 6;
    let (_, engine) = filled(groups, 1, |block| block.0 % 2 == 0);
    let before = words_scanned(&engine);
    let count = 500;
    for _ in 0..count {
        let allocate = |op: &mut Op<'_>| op.allocate_metadata(BlockKind::TreePage, BlockUse::TreePage);
        engine.run(Privilege::Normal, allocate).unwrap();
    }
    let scanned = words_scanned(&engine) - before;
    let allowed = groups * WORDS_PER_GROUP + count * 40;
    assert!(scanned <= allowed, "{scanned} words were looked at, {allowed} are plenty");
}

/// Regression: soon after a mount, the first write that found no long run read the bitmaps of the whole pool.
#[test]
fn no_write_waits_for_all_bitmaps_after_a_mount() {
    let groups = 1100;
    let (device, engine) = filled(groups, groups - 1, |block| block.0 % 2 == 0);
    let bitmaps = reads(&device, || assert_eq!(write(&engine, 100).len(), 100));
    assert!(bitmaps < groups / 4, "the bitmaps of {bitmaps} groups were read");
}

#[test]
fn a_survey_after_a_mount_reads_each_bitmap_once_and_spares_the_writes_that() {
    let groups = 1100;
    let (device, engine) = nearly_full(groups);
    let bitmaps = reads(&device, || while engine.survey_some().unwrap() {});
    assert_eq!(bitmaps, groups, "its two bitmap blocks lie side by side");
    assert_eq!(engine.meta().groups.free_runs.next_unknown(0..groups), None);
    let (last, before) = (groups - 1, words_scanned(&engine));
    assert_eq!(engine.meta().groups.free_runs.get(last), Some(GroupSummary::new(super::FREE, super::FREE)));
    let bitmaps = reads(&device, || {
        let found = engine.run(Privilege::Normal, |op| op.reserve_data(40, 0, 0)).unwrap();
        assert_eq!(found, [GroupRun { first: BlockNo(groups * GROUP_BLOCKS - super::FREE), count: 40 }]);
    });
    assert!(bitmaps <= 4, "{bitmaps} reads: the group's bitmaps and a page of its store");
    assert!(words_scanned(&engine) - before <= 3 * WORDS_PER_GROUP);
}

/// An operation that misses bitmaps is run again. With one free block in each group, it missed them one after the
/// other, and searched all earlier groups anew each time.
#[test]
fn the_bitmaps_of_scattered_blocks_are_read_together() {
    let groups = 120;
    let (_, engine) = filled(groups, 1, |block| block.0 % GROUP_BLOCKS != 5000);
    while engine.survey_some().unwrap() {}
    let before = words_scanned(&engine);
    assert_eq!(engine.run(Privilege::Normal, |op| op.reserve_data(100, 0, 0)).unwrap().len(), 100);
    let scanned = words_scanned(&engine) - before;
    assert!(scanned <= 100 * WORDS_PER_GROUP * 4, "{scanned} words were looked at");
}

/// A small generator that produces the same steps for the same seed.
pub(super) struct Steps(pub(super) u64);

impl Steps {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Compares the knowledge of the groups with their bitmaps, busy blocks and other state.
pub(super) fn compare(engine: &Engine, groups: u64) {
    for group in 0..groups {
        let Some(known) = engine.meta().groups.free_runs.get(group) else { continue };
        let looked = engine.view_in_background(|op| {
            let geometry = op.meta.geometry;
            for bitmap in bitmaps_of(&geometry, group) {
                op.want(bitmap, BlockKind::Bitmap)?;
            }
            op.settle()?;
            let (cache, of_groups) = (&op.meta.cache, &op.meta.groups);
            let words = FreeWords::cached(cache, of_groups, &geometry, group, SearchPurpose::Data).expect("wanted");
            Ok(words.survey().0)
        });
        let truth = looked.unwrap();
        assert!(known.longest >= truth.longest, "group {group}: {known:?} is known, {truth:?} is true");
        assert_eq!(known.free, truth.free, "group {group}");
    }
}

/// Removes clean bitmaps from memory, like a cache under pressure.
fn evict_bitmaps(engine: &Engine, groups: u64) {
    let mut meta = engine.meta();
    let geometry = meta.geometry;
    for group in 0..groups {
        for bitmap in bitmaps_of(&geometry, group) {
            let is_clean = meta.cache.get(bitmap).is_some_and(|slot| slot.dirty.is_none() && slot.home_sequence == 0);
            if is_clean {
                meta.cache.remove(bitmap);
            }
        }
    }
}

/// Opens a pool whose free blocks lie in runs of a length that depends on `seed`, below 6.
pub(super) fn filled_at_random(steps: &mut Steps, seed: u64, groups: u64) -> (Device, Engine) {
    let run_max = [1, 3, 40, 400, 3, 1000][usize::try_from(seed).unwrap()];
    let mut pattern = vec![true; usize::try_from(groups * GROUP_BLOCKS).unwrap()];
    let mut at = GROUP_BLOCKS;
    while at < groups * GROUP_BLOCKS {
        let end = (at + 1 + steps.below(run_max)).min(groups * GROUP_BLOCKS);
        pattern[usize::try_from(at).unwrap()..usize::try_from(end).unwrap()].fill(false);
        // Long stretches are used, so that free space is scarce enough to run out.
        at = end + 1 + steps.below(run_max * 3);
    }
    filled(groups, 1, |block| pattern[usize::try_from(block.0).unwrap()])
}

/// The knowledge of a group never understates its free space, whatever happens to its blocks.
#[test]
fn what_is_known_of_a_group_is_never_less_than_what_it_has() {
    let groups = 4;
    for seed in 0..6 {
        let mut steps = Steps(seed);
        let (_, engine) = filled_at_random(&mut steps, seed, groups);
        exercise(&engine, &mut steps, groups);
    }
}

pub(super) fn exercise(engine: &Engine, steps: &mut Steps, groups: u64) {
    let (mut reserved, mut used, mut pages): (Vec<Vec<GroupRun>>, Vec<BlockNo>, Vec<BlockNo>) = Default::default();
    for _ in 0..400 {
        let step = steps.below(20);
        match step {
            0..=4 => {
                let count = 1 + steps.below(300);
                reserved.extend(engine.run(Privilege::Normal, |op| op.reserve_data(count, 0, 0)).ok());
            }
            5..=7 if !reserved.is_empty() => {
                let runs = reserved.swap_remove(usize::try_from(steps.below(reserved.len() as u64)).unwrap());
                engine.run(Privilege::Normal, |op| claim(op, &runs)).unwrap();
                used.extend(runs.iter().flat_map(|run| (0..run.count).map(|offset| run.first.plus(offset))));
            }
            8 if !reserved.is_empty() => {
                let runs = reserved.swap_remove(usize::try_from(steps.below(reserved.len() as u64)).unwrap());
                engine.meta().free_again(&runs);
            }
            9..=10 => {
                let end = used.len().min(usize::try_from(steps.below(200)).unwrap());
                let gone: Vec<BlockNo> = used.drain(..end).collect();
                engine.run(Privilege::Freeing, |op| gone.iter().try_for_each(|block| op.free_data(*block))).unwrap();
            }
            11 => {
                let allocate = |op: &mut Op<'_>| op.allocate_metadata(BlockKind::TreePage, BlockUse::TreePage);
                for _ in 0..steps.below(100) {
                    pages.extend(engine.run(Privilege::Freeing, allocate).ok());
                }
            }
            12 => {
                let end = pages.len().min(usize::try_from(steps.below(60)).unwrap());
                let gone: Vec<BlockNo> = pages.drain(..end).collect();
                engine.run(Privilege::Freeing, |op| gone.iter().try_for_each(|page| op.free_metadata(*page))).unwrap();
            }
            13 => engine.commit().unwrap(),
            14 => {
                engine.commit().unwrap();
                engine.checkpoint().unwrap();
                evict_bitmaps(engine, groups);
            }
            15 => {
                // An operation that does all of this and is rolled back.
                let count = 1 + steps.below(300);
                let gone: Vec<BlockNo> = used.iter().rev().take(50).copied().collect();
                let result: Result<(), PoolError> = engine.run(Privilege::Freeing, |op| {
                    let runs = op.reserve_data(count, 0, 0)?;
                    claim(op, &runs)?;
                    gone.iter().try_for_each(|block| op.free_data(*block))?;
                    op.allocate_metadata(BlockKind::TreePage, BlockUse::TreePage)?;
                    op.reserve_data(count, 0, 0)?;
                    Err(OpError::Fail(PoolError::Invalid("given up")))
                });
                assert!(result.is_err());
            }
            16 => {
                let first = steps.below(groups) * GROUP_BLOCKS + steps.below(GROUP_BLOCKS - 3000);
                engine.meta().groups.note_full_backing(first..first + steps.below(3000));
            }
            17 => engine.meta().groups.forget_full_backing(),
            18 => {
                engine.meta().groups.forget_runs(steps.below(groups));
                while engine.survey_some().unwrap() {}
            }
            _ => {
                // Like a trim.
                let group = steps.below(groups);
                let run = engine.run(Privilege::Freeing, |op| op.reserve_free_run(group, 0, 2048)).unwrap();
                engine.meta().give_up_kept();
                run.into_iter().for_each(|run| engine.meta().free_again(&[run]));
            }
        }
        compare(engine, groups);
    }
    reserved.iter().for_each(|runs| engine.meta().free_again(runs));
}

/// Regression: busy blocks took memory beyond the `memory` setting, 4 KiB for each group that had one, for as long as
/// the transaction could grow.
#[test]
fn frees_in_many_groups_are_committed_before_what_is_known_of_them_takes_too_much() {
    let groups = 64;
    let (_, engine) = filled(groups, 1, |block| block.0 % 2 == 0);
    let stored: Vec<GroupRun> = (1..groups)
        .map(|group| {
            let reserved = engine.run(Privilege::Normal, |op| op.reserve_free_run(group, 0, 1)).unwrap().unwrap();
            engine.run(Privilege::Normal, |op| claim(op, &[reserved])).unwrap();
            reserved
        })
        .collect();
    engine.commit().unwrap();
    assert_eq!(engine.meta().groups.busy.count(), 0);
    engine.meta().groups.busy = BusyBlocks::new(1000);
    let commits_before = engine.activity.stat().commits;
    let mut most = 0;
    for run in &stored {
        engine.run(Privilege::Freeing, |op| op.free_data(run.first)).unwrap();
        most = most.max(engine.meta().groups.busy.count());
    }
    let commits = engine.activity.stat().commits - commits_before;
    assert!((4..10).contains(&most), "{most} of {}", stored.len());
    assert!(commits <= stored.len() as u64 / 4, "{commits} commits");
    // Busy blocks that no commit ends, because writes are in progress, do not block further operations.
    for group in 1..groups {
        engine.run(Privilege::Normal, |op| op.reserve_free_run(group, 0, 1)).unwrap().unwrap();
    }
    assert!(engine.meta().groups.busy.is_too_much());
}
