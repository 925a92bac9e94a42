//! Damages each kind of block in each way, with and without a journal that still holds the block. The check changes
//! nothing and reports the damage; the repair keeps everything that the damage does not touch, and the result is clean
//! and usable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onefold_block::{BlockDevice, BlockNo};
use onefold_pool::check::{CheckReport, repair};
use onefold_pool::{Durability, FileKind, Ino, NoProgress};
use onefold_testing::device::MemoryDevice;

use super::common::*;
use super::history::{History, by_inode, changed, make_history};
use super::shared::observe::{self, Tree, View};
use super::shared::tries;
use super::structures::{DAMAGES, Damage, Structure, Structures, damaged};

/// Number of damaged blocks of one kind; the others are alike.
const BLOCKS_PER_KIND: u64 = 4;

/// One cell of the matrix.
struct Case<'h> {
    history: &'h History,
    structures: &'h Structures,
    target: (Structure, BlockNo),
    damage: Damage,
    log: &'static str,
}

impl Case<'_> {
    fn name(&self) -> String {
        format!("{:?} of {:?} {} ({})", self.damage, self.target.0, self.target.1, self.log)
    }

    /// Returns the files whose data or map lies in the damaged block.
    fn files_hit(&self) -> BTreeSet<String> {
        let at = self.target.1;
        let hit = |view: &View| {
            let ino = Ino(view.ino);
            match self.target.0 {
                Structure::MapLeaf | Structure::MapNode => self.structures.nodes_of(ino).contains(&at),
                Structure::Data => self.structures.data_of(ino).contains(&at),
                _ => false,
            }
        };
        let files = self.history.seen.iter().filter(|(_, view)| view.kind == FileKind::Regular && hit(view));
        files.map(|(path, _)| path.clone()).collect()
    }

    /// Returns whether the damage may stay undetected, because the damaged content could be right.
    fn may_be_harmless(&self) -> bool {
        match self.target.0 {
            // Rewritten by each opening.
            Structure::Heartbeat => true,
            // Leads to the same transactions, or to older ones that are all in place.
            Structure::JournalSlot => self.damage == Damage::Stale,
            // Only the times of a file may differ.
            Structure::TreeLeaf => self.damage == Damage::Stale,
            _ => false,
        }
    }

    fn assert_told(&self, report: &CheckReport) {
        let name = self.name();
        if report.is_clean() {
            assert!(self.may_be_harmless(), "{name} is not told");
            return;
        }
        let told: BTreeSet<&str> = report.problems.iter().map(|problem| problem.structure).collect();
        let expected = match self.target.0 {
            Structure::Superblock | Structure::SuperblockCopy => "superblock",
            Structure::JournalSlot => "journal",
            Structure::State => "pool state",
            Structure::Bitmap => "bitmap",
            Structure::Store => "fingerprint store",
            Structure::MapLeaf | Structure::MapNode => "file map",
            Structure::TreeLeaf | Structure::TreeInterior => "names tree",
            Structure::Data => "data",
            Structure::Heartbeat => panic!("{name}: {report:#?}"),
        };
        // Outdated content is sound by itself: only other structures contradict it.
        assert!(self.damage == Damage::Stale || told.contains(expected), "{name}: {report:#?}");
        if self.damage != Damage::Stale || self.target.0 == Structure::Data {
            let named: BTreeSet<String> = report
                .problems
                .iter()
                .filter(|problem| problem.block == Some(self.target.1))
                .flat_map(|problem| problem.files.clone())
                .collect();
            for file in self.files_hit() {
                // Only one of a file's names is reported.
                let ino = self.history.seen[&file].ino;
                let is_named = named.iter().any(|path| self.history.seen.get(path).is_some_and(|view| view.ino == ino));
                assert!(is_named, "{name}: {file} is not named: {report:#?}");
            }
        }
    }

    /// Panics unless everything exists that the damage does not touch. Returns whether nothing at all is missing.
    fn assert_kept(&self, after: &Tree) -> bool {
        let name = self.name();
        let before = &self.history.seen;
        if after == before {
            return true;
        }
        let hit: BTreeSet<u64> = match self.target.0 {
            Structure::TreeLeaf => self.structures.inodes_in(self.target.1).iter().map(|ino| ino.0).collect(),
            Structure::MapLeaf | Structure::MapNode | Structure::Data => {
                self.files_hit().iter().map(|path| before[path].ino).collect()
            }
            _ => panic!("{name}: {}", observe::difference(after, before).unwrap_or_default()),
        };
        let found = by_inode(after);
        for (ino, view) in by_inode(before) {
            if hit.contains(&ino) {
                continue;
            }
            let Some(seen) = found.get(&ino) else { panic!("{name}: inode {ino} is gone: {view:?}") };
            if view.kind == FileKind::Directory {
                assert_eq!((seen.kind, seen.mode, &seen.xattrs), (view.kind, view.mode, &view.xattrs), "{name}");
            } else {
                // A name may be lost.
                assert_eq!(View { links: view.links, ..(*seen).clone() }, *view, "{name}");
            }
        }
        if matches!(self.target.0, Structure::MapLeaf | Structure::Data) {
            assert_kept_of_hit(&name, before, after, &hit);
        }
        false
    }

    /// Returns whether everything was restored.
    fn run(&self) -> Option<bool> {
        let name = self.name();
        let seed = self.target.1.0 * 31 + self.damage as u64;
        let bytes = damaged(self.damage, self.target, self.structures, &self.history.older, seed)?;
        let device = changed(&self.history.now, self.target.1, &bytes);
        let before = device.image();
        let report = checked(&device);
        assert!(device.image() == before, "{name}: the check wrote");
        self.assert_told(&report);
        let seam: Arc<dyn BlockDevice> = device.clone();
        let repaired =
            repair(&seam, &options(), &environment(), &NoProgress).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(repaired.problems, report.problems, "{name}");
        let left = checked(&device);
        let is_data = self.target.0 == Structure::Data;
        let only_data = left.problems.iter().all(|problem| is_data && problem.structure == "data");
        assert!(only_data, "{name} is not clean: {left:#?}\nbefore: {report:#?}");
        let pool = open(&device);
        let seen = observe::seen(&pool).unwrap_or_else(|error| panic!("{name}: {error}"));
        let is_whole = self.assert_kept(&seen);
        let ino = make(&pool, Ino::ROOT, b"made afterwards", FileKind::Regular);
        pool.write(ino, 0, &noise(99, 50_000), Durability::Now).unwrap();
        while pool.reclaim().unwrap() {}
        pool.close().unwrap();
        let left = checked(&device);
        assert!(left.problems.iter().all(|problem| problem.structure == "data"), "{name}, after use: {left:#?}");
        Some(is_whole)
    }
}

/// Panics unless files that lost a part of their map or data still have all their other blocks in place.
fn assert_kept_of_hit(name: &str, before: &Tree, after: &Tree, hit: &BTreeSet<u64>) {
    for (path, view) in before.iter().filter(|(_, view)| hit.contains(&view.ino)) {
        let seen = after.get(path).unwrap_or_else(|| panic!("{name}: {path} is gone"));
        assert_eq!((seen.size, &seen.xattrs, seen.mode), (view.size, &view.xattrs, view.mode), "{name}: {path}");
        let blocks: BTreeMap<u64, u64> = view.blocks.iter().copied().collect();
        let same = seen.blocks.iter().filter(|(at, digest)| blocks.get(at) == Some(digest)).count();
        // A leaf has 508 blocks.
        assert!(same + 508 >= blocks.len(), "{name}: {path} has {same} of {} blocks", blocks.len());
    }
}

/// Runs every `step`-th case from `offset`; returns by structure the number of cases and of those that lost nothing.
fn run_matrix(history: &History, log: &'static str) -> BTreeMap<(Structure, Damage), (u32, u32)> {
    assert_clean(&MemoryDevice::from(history.now.clone()));
    let structures = Structures::of(&history.now);
    let mut by_kind: BTreeMap<Structure, Vec<BlockNo>> = BTreeMap::new();
    for (structure, at) in &structures.all {
        by_kind.entry(*structure).or_default().push(*at);
    }
    let mut counts = BTreeMap::new();
    for (structure, blocks) in &by_kind {
        let step = blocks.len().div_ceil(tries(BLOCKS_PER_KIND) as usize);
        for &at in blocks.iter().step_by(step) {
            for damage in DAMAGES {
                let target = (*structure, at);
                let case = Case { history, structures: &structures, target, damage, log };
                if let Some(is_whole) = case.run() {
                    let (tried, whole) = counts.entry((*structure, damage)).or_insert((0, 0));
                    *tried += 1;
                    *whole += u32::from(is_whole);
                }
            }
        }
    }
    assert_eq!(by_kind.len(), 12, "every kind of structure: {by_kind:?}");
    let tried: u32 = counts.values().map(|(tried, _)| tried).sum();
    let whole: u32 = counts.values().map(|(_, whole)| whole).sum();
    println!("damage matrix, {log}: {tried} cases, {whole} lost nothing, the others only what was damaged");
    for ((structure, damage), (tried, whole)) in &counts {
        println!("  {structure:?} {damage:?}: {tried} tried, {whole} lost nothing");
    }
    counts
}

#[test]
fn every_damage_of_every_structure_is_told_and_mended_without_a_journal_to_help() {
    let counts = run_matrix(&make_history().without_log(), "journal forgotten");
    assert!(counts.values().map(|(tried, _)| tried).sum::<u32>() > 100);
}

#[test]
fn damage_that_the_journal_still_holds_loses_nothing() {
    let counts = run_matrix(&make_history(), "journal kept");
    // The names tree and the pool state were logged since the last wrap.
    for structure in [Structure::State, Structure::TreeLeaf, Structure::TreeInterior] {
        for damage in DAMAGES {
            let (tried, whole) = counts.get(&(structure, damage)).copied().unwrap_or_default();
            assert_eq!(tried, whole, "{structure:?} {damage:?}");
        }
    }
}
