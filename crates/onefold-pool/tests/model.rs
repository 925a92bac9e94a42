//! Random sequences of operations on a pool and on a naive reference, with results compared after each step.
//!
//! `check` reads the device as it is, which is what a power cut would leave. One setting commits and checks after each
//! step; the others check every few steps.
//!
//! `ONEFOLD_SEED=n` replays the sequence named by a failure; `ONEFOLD_MODEL_STEPS=n` makes sequences longer.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use common::actions::{Habits, Pair};
use common::observe::{check_clean, check_sums, difference, expected, see, seen, view_of};
use common::reference::Reference;
use common::{Dice, behind, environment, number_from, open, seed_or};
use onefold_block::BlockDevice;
use onefold_pool::{
    CreateOptions, Dedup, FileKind, Ino, Journaling, OpenOptions, Pool, Prefetch, StorePlacement, TestLimits,
    Verification,
};
use onefold_testing::device::MemoryDevice;

/// Setting of a tested pool.
#[derive(Clone)]
struct Setting {
    device_blocks: u64,
    create: CreateOptions,
    open: OpenOptions,
    habits: Habits,
    /// When the checker reads the device.
    checks: Checks,
}

/// How often the checker reads the device beside the running pool.
#[derive(Clone, Copy)]
enum Checks {
    /// After each step, which is committed before.
    EachStep,
    /// After this many steps, however much of them is durable.
    Every(u64),
    /// Only when the pool is closed: without a journal the device is sound at no other time.
    WhenClosed,
}

impl Setting {
    /// Returns a 16 MiB pool with the smallest journal.
    fn small() -> Setting {
        Setting {
            device_blocks: 4096,
            create: CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() },
            open: behind(),
            habits: Habits {
                letters: 7,
                write_blocks: 100,
                blocks_max: 6000,
                far_offsets: false,
                dedup_switched: false,
                pool_dedup: Dedup::On,
                domains: false,
                reserve: true,
            },
            checks: Checks::Every(20),
        }
    }

    /// Returns a pool of 1 TiB, mostly unused, with files that reach up to 8 TiB.
    fn large() -> Setting {
        let mut setting = Setting::small();
        setting.device_blocks = 1 << 28;
        setting.create.journal_bytes = None;
        setting.habits.letters = 60;
        setting.habits.write_blocks = 600;
        setting.habits.blocks_max = 30_000;
        setting.habits.far_offsets = true;
        // Many groups and long maps: each check takes a while.
        setting.checks = Checks::Every(100);
        setting
    }
}

struct ModelRun {
    setting: Setting,
    device: Arc<dyn BlockDevice>,
    pool: Option<Pool>,
    reference: Reference,
    dice: Dice,
    story: Vec<String>,
}

impl ModelRun {
    fn new(setting: Setting, seed: u64) -> ModelRun {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(setting.device_blocks));
        Pool::create(&device, &setting.create, &environment()).expect("a pool is made");
        let pool = Some(open(&device, &setting.open));
        let reference = Reference::new(setting.create.dedup);
        ModelRun { setting, device, pool, reference, dice: Dice::new(seed), story: Vec::new() }
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("open between steps")
    }

    fn step(&mut self) {
        match self.dice.below(60) {
            0 => {
                self.story.push("commit".to_owned());
                self.pool().commit().expect("commits");
            }
            1 => {
                self.story.push("checkpoint".to_owned());
                self.pool().checkpoint().expect("checkpoints");
            }
            2..5 => {
                self.story.push("reclaim".to_owned());
                self.pool().reclaim().expect("reclaims");
            }
            5 if self.dice.one_in(3) => self.reopen(),
            _ => {
                let pool = self.pool.take().expect("open between steps");
                let mut pair = Pair {
                    pool: &pool,
                    reference: &mut self.reference,
                    dice: &self.dice,
                    habits: &self.setting.habits,
                    story: &mut self.story,
                    between: &mut |_| {},
                    promised: false,
                };
                pair.act();
                self.pool = Some(pool);
            }
        }
    }

    fn reopen(&mut self) {
        let pool = self.pool.take().expect("open between steps");
        if self.dice.one_in(2) || self.setting.open.journaling == Journaling::Off {
            self.story.push("close and reopen".to_owned());
            pool.close().expect("closes");
        } else {
            self.story.push("commit, power cut and reopen".to_owned());
            pool.commit().expect("commits");
        }
        drop(pool);
        check_clean(&*self.device).unwrap_or_else(|problem| panic!("not clean: {problem}"));
        self.pool = Some(open(&self.device, &self.setting.open));
        self.reference.drop_holds();
    }

    /// Checks, after step number `step`, what a power cut would leave now.
    fn check(&mut self, step: u64) {
        match self.setting.checks {
            Checks::EachStep => self.pool().commit().expect("commits"),
            Checks::Every(steps) if step.is_multiple_of(steps) => {}
            Checks::Every(_) | Checks::WhenClosed => return,
        }
        check_clean(&*self.device).unwrap_or_else(|problem| panic!("not clean: {problem}"));
    }

    /// Compares the complete visible state.
    fn compare(&mut self) {
        self.story.push("compare everything".to_owned());
        let found = seen(self.pool()).unwrap_or_else(|error| panic!("{error}"));
        if let Some(difference) = difference(&found, &expected(&self.reference)) {
            panic!("{difference}");
        }
        for (&ino, node) in &self.reference.nodes {
            let view = see(self.pool(), Ino(ino)).unwrap_or_else(|error| panic!("inode {ino}: {error}"));
            assert_eq!(view, view_of(ino, node));
            let mapped = self.pool().attr(Ino(ino)).expect("exists").mapped_blocks;
            let stored = node.blocks.len() as u64;
            assert!(mapped == stored || (node.may_reserve && mapped > stored), "{mapped} mapped of {stored} in {ino}");
        }
        check_sums(self.pool()).unwrap_or_else(|problem| panic!("{problem}"));
    }

    /// Waits for all background work, then compares the pool's numbers with naive counts.
    fn compare_numbers(&mut self) {
        self.story.push("drain and compare numbers".to_owned());
        while self.pool().reclaim().expect("reclaims") {}
        self.pool().commit().expect("commits");
        self.pool().checkpoint().expect("checkpoints");
        check_sums(self.pool()).unwrap_or_else(|problem| panic!("{problem}"));
        let stat = self.pool().stat().expect("has numbers");
        assert_eq!(stat.inode_count, self.reference.nodes.len() as u64, "{stat:?}");
        assert_eq!(stat.apparent_bytes, self.reference.apparent_blocks() * 4096, "{stat:?}");
        assert_eq!((stat.freeing_bytes, stat.reclaim_pending), (0, 0), "{stat:?}");
        let mapped = self.reference.mapped_blocks() * 4096;
        let stored = stat.unique_bytes + stat.shared_bytes;
        assert_eq!(stored + stat.saved_by_blocks_bytes + stat.saved_by_clones_bytes, mapped, "{stat:?}");
        let distinct = self.reference.distinct_blocks() * 4096;
        let limits = self.setting.open.test_limits;
        if self.setting.habits.dedup_switched
            || limits != TestLimits::default()
            || self.setting.create.dedup == Dedup::Off
            || self.setting.open.dedup == Dedup::Off
        {
            assert!((distinct..=mapped).contains(&stored), "{distinct} distinct, {stat:?}");
        } else {
            assert_eq!(stored, distinct, "{stat:?}");
        }
        if self.reference.nodes.values().all(|node| !node.may_reserve) {
            assert_eq!(stat.reserved_bytes, 0, "{stat:?}");
        }
    }

    /// Removes everything: the pool must be as empty as at first.
    fn remove_all(&mut self) {
        self.story.push("remove everything".to_owned());
        self.reopen();
        for (path, view) in expected(&self.reference).into_iter().rev().filter(|(path, _)| !path.is_empty()) {
            let (above, name) = path.rsplit_once('/').expect("paths begin with a slash");
            let parent = expected(&self.reference)[above].ino;
            let is_directory = view.kind == FileKind::Directory;
            self.reference.remove(parent, name.as_bytes(), is_directory).expect("is there");
            let removed = match is_directory {
                true => self.pool().remove_directory(Ino(parent), name.as_bytes()),
                false => self.pool().unlink(Ino(parent), name.as_bytes()),
            };
            removed.unwrap_or_else(|error| panic!("removing `{path}`: {error}"));
        }
        for name in self.pool().xattr_names(Ino::ROOT).expect("lists") {
            self.pool().remove_xattr(Ino::ROOT, &name).expect("is there");
        }
        self.reference.forget_orphans();
        self.compare_numbers();
        let stat = self.pool().stat().expect("has numbers");
        let left = (stat.unique_bytes, stat.shared_bytes, stat.reserved_bytes, stat.inode_count);
        assert_eq!(left, (0, 0, 0, 1), "{stat:?}");
        let is_least = stat.metadata_dynamic_bytes == 4096 + self.pool().summary_bytes();
        assert!(is_least, "the root page of the names tree, and the summaries of the groups: {stat:?}");
    }
}

/// Runs one sequence; a failure reports its seed and the steps before it.
fn run_sequence(setting: &Setting, seed: u64, steps: u64) {
    let mut run = ModelRun::new(setting.clone(), seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        for step in 1..=steps {
            run.step();
            run.check(step);
            if step % 50 == 0 {
                run.compare();
            }
            if step % 250 == 0 {
                run.compare_numbers();
            }
        }
        run.compare();
        run.remove_all();
        run.pool.take().expect("open").close().expect("closes");
        check_clean(&*run.device).unwrap_or_else(|problem| panic!("not clean: {problem}"));
    }));
    if let Err(panic) = outcome {
        eprintln!("ONEFOLD_SEED={seed}, step {}; the last steps were:", run.story.len());
        for line in run.story.iter().rev().take(25).rev() {
            eprintln!("  {line}");
        }
        resume_unwind(panic);
    }
}

/// Runs several sequences, or the one that `ONEFOLD_SEED` names.
fn run_sequences(setting: &Setting, first_seed: u64, sequences: u64, steps: u64) {
    let steps = number_from("ONEFOLD_MODEL_STEPS").unwrap_or(steps);
    let sequences = if number_from("ONEFOLD_SEED").is_some() { 1 } else { sequences };
    for seed in (seed_or(first_seed)..).take(usize::try_from(sequences).expect("few")) {
        run_sequence(setting, seed, steps);
    }
}

#[test]
fn a_small_pool_with_the_least_journal_agrees_with_the_reference() {
    run_sequences(&Setting::small(), 100, 8, 1500);
}

#[test]
fn a_small_pool_is_sound_after_each_step() {
    let mut setting = Setting::small();
    setting.checks = Checks::EachStep;
    setting.habits.domains = true;
    setting.habits.dedup_switched = true;
    setting.habits.blocks_max = 1500;
    run_sequences(&setting, 150, 3, 1000);
}

#[test]
fn a_large_sparse_pool_with_huge_files_agrees_with_the_reference() {
    run_sequences(&Setting::large(), 200, 4, 1000);
}

#[test]
fn a_pool_that_compares_bytes_agrees_with_the_reference() {
    let mut setting = Setting::small();
    setting.open.verify = Verification::Value;
    run_sequences(&setting, 300, 3, 1000);
}

/// Seven contents have at most four fingerprints, and freed blocks are reused at once.
#[test]
fn a_pool_whose_fingerprints_collide_agrees_with_the_reference() {
    let mut setting = Setting::small();
    setting.open.verify = Verification::Value;
    setting.open.test_limits = TestLimits { fingerprint_bits: 2, lowest_first: true, ..TestLimits::default() };
    run_sequences(&setting, 310, 3, 800);
}

#[test]
fn a_pool_whose_reference_counts_are_soon_full_agrees_with_the_reference() {
    let mut setting = Setting::small();
    setting.open.test_limits = TestLimits { references_max: 3, lowest_first: true, ..TestLimits::default() };
    setting.habits.blocks_max = 1500;
    run_sequences(&setting, 320, 3, 800);
}

/// Writes find no equal blocks: these are shared afterwards.
#[test]
fn a_pool_whose_filter_has_no_room_agrees_with_the_reference() {
    let mut setting = Setting::small();
    setting.open.test_limits = TestLimits { filter_bytes_max: 0, lowest_first: true, ..TestLimits::default() };
    setting.habits.blocks_max = 1500;
    run_sequences(&setting, 330, 3, 800);
}

#[test]
fn every_prefetch_mode_agrees_with_the_reference() {
    for (seed, prefetch) in [(400, Prefetch::Always), (410, Prefetch::Never)] {
        let mut setting = Setting::large();
        setting.open.prefetch = prefetch;
        run_sequences(&setting, seed, 2, 600);
    }
}

#[test]
fn files_and_domains_that_do_not_share_agree_with_the_reference() {
    let mut setting = Setting::small();
    setting.habits.dedup_switched = true;
    setting.habits.domains = true;
    setting.habits.blocks_max = 1500;
    run_sequences(&setting, 500, 4, 1000);
}

#[test]
fn a_pool_with_its_stores_at_the_end_agrees_with_the_reference() {
    let mut setting = Setting::small();
    setting.device_blocks = 70_000;
    setting.create.journal_bytes = None;
    setting.create.store_placement = StorePlacement::AtEnd;
    setting.habits.domains = true;
    run_sequences(&setting, 600, 3, 1000);
}

#[test]
fn a_pool_without_sharing_agrees_with_the_reference() {
    let mut setting = Setting::small();
    setting.create.dedup = Dedup::Off;
    setting.habits.blocks_max = 1500;
    run_sequences(&setting, 700, 2, 800);
    let mut setting = Setting::small();
    setting.open.dedup = Dedup::Off;
    setting.habits.pool_dedup = Dedup::Off;
    setting.habits.blocks_max = 1500;
    run_sequences(&setting, 710, 2, 800);
}

#[test]
fn a_pool_without_a_journal_agrees_with_the_reference() {
    let mut setting = Setting::small();
    setting.open.journaling = Journaling::Off;
    setting.checks = Checks::WhenClosed;
    run_sequences(&setting, 800, 3, 800);
}
