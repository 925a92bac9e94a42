//! The allocation map.
//!
//! A block is free if both trees of free space list it and no file, tree or header takes it, as far as these can be
//! read. A group has no free block if its trees of free space are damaged or differ from each other, or if its header
//! has another sum. Version 4 has no checksums: if a part of a file or of a tree is lost, nothing is free. Blocks
//! reserved for trees and blocks set aside for copy-on-write are in no list of free runs, and count as allocated. The
//! map is only built for a file system without doubts.
//!
//! A budget bounds the memory. If a group has too many free runs, the whole group counts as allocated. If there are too
//! many runs in use, further metadata counts as data, and a group becomes doubtful if a further block in use is also
//! free. If the map has too many runs, the rest is doubtful.

mod runs;

use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use runs::{AllocationBuilder, ClassRun, WHOLE_PARTS, push};

use super::Xfs;
use super::btree::{Step, TreeForm};
use super::chunks::InodeStep;
use super::group::{self, FreeSpace, HEADER_SECTORS, Root, must_be_whole};
use super::inode::{Fork, Inode};
use super::map::{MAP_BLOCKS_MAX, MapBlocks, MapStep};
use crate::budget::Budget;
use crate::error::GuestError;
use crate::filesystem::{Allocation, AllocationClass, AllocationDifferences, FileKind, State, TableKind};

const SUPERBLOCK: AllocationClass = AllocationClass::Table(TableKind::Superblock);
const INODES: AllocationClass = AllocationClass::Table(TableKind::Inodes);
const TREE: AllocationClass = AllocationClass::Table(TableKind::Tree);
const DIRECTORY: AllocationClass = AllocationClass::Table(TableKind::Directory);
const JOURNAL: AllocationClass = AllocationClass::Table(TableKind::Journal);

/// Maximum number of free runs, and of runs in use: about 100 MiB of each.
const RUNS_MAX: usize = 4 << 20;
/// Number of structures of a map that draw equal parts of its memory: free runs, runs in use, and the map itself.
/// Blocks of maps are no longer needed when the map begins, and have one of its parts.
const PARTS: usize = 2 + WHOLE_PARTS;
/// Bytes of memory for one block of a map in its set, while the set grows.
const MAP_BLOCK_BYTES: usize = 27;
/// Maximum memory for all of them, in bytes.
const MEMORY_BYTES_MAX: usize = PARTS * RUNS_MAX * size_of::<ClassRun>();

impl Xfs<'_> {
    /// Returns the allocation map of the volume.
    pub(super) fn allocation_map(&self, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        if self.state != State::Certain {
            return Ok(self.doubtful_map());
        }
        let superblock = &self.superblock;
        let draw = budget.draw(MEMORY_BYTES_MAX);
        let run_rows = draw.rows(PARTS, size_of::<ClassRun>(), RUNS_MAX);
        let mut runs = AllocationBuilder::new(u64::from(superblock.group_blocks), run_rows.max);
        for group in 0..superblock.groups {
            let header = self.free_runs(&mut runs, group)?;
            // All blocks that it claims are in the group itself.
            self.claim_group(&mut runs, group, header.as_ref())?;
        }
        if let Some(start) = superblock.linear_run(superblock.log_start, superblock.log_blocks) {
            self.claim(&mut runs, start, u64::from(superblock.log_blocks), JOURNAL);
        }
        let block_rows = draw.rows(PARTS, MAP_BLOCK_BYTES, MAP_BLOCKS_MAX);
        let mut met = MapBlocks::of_at_most(block_rows.max);
        self.claim_files(&mut runs, &mut met)?;
        if met.is_full() {
            runs.doubt_all();
            budget.note_full(block_rows);
        }
        drop(met);
        let reached_bytes = runs.contradictory_blocks() << superblock.block_log;
        *self.differences.lock() = Some(AllocationDifferences { reached_bytes, ..AllocationDifferences::default() });
        // Without checksums, both trees may mark blocks as free that belong to a file behind the damage.
        if !superblock.features.is_v5() && self.is_file_lost.load(Ordering::Relaxed) {
            let problem = "nothing counts as free: a part of a file or of a tree is lost";
            self.damage.note(self.reader.damage(0, "free space", problem));
            runs.doubt_all();
        }
        let map = self.finish_map(&mut runs);
        if runs.is_short {
            budget.note_full(run_rows);
        }
        Ok(map)
    }

    /// Returns the allocation map by the trees of free space alone. Blocks that they do not list are data.
    pub(super) fn free_space_map(&self, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        if self.state != State::Certain {
            return Ok(self.doubtful_map());
        }
        let draw = budget.draw(MEMORY_BYTES_MAX);
        let run_rows = draw.rows(PARTS, size_of::<ClassRun>(), RUNS_MAX);
        let mut runs = AllocationBuilder::new(u64::from(self.superblock.group_blocks), run_rows.max);
        for group in 0..self.superblock.groups {
            self.free_runs(&mut runs, group)?;
        }
        let map = self.finish_map(&mut runs);
        if runs.is_short {
            budget.note_full(run_rows);
        }
        Ok(map)
    }

    /// Returns the map of a volume of which nothing is certain.
    fn doubtful_map(&self) -> Vec<Allocation> {
        let length_bytes = self.reader.size_bytes();
        vec![Allocation { start_bytes: 0, length_bytes, class: AllocationClass::Doubtful }]
    }

    /// Returns the runs in bytes, and a run for the bytes behind the file system.
    fn finish_map(&self, runs: &mut AllocationBuilder) -> Vec<Allocation> {
        let allocation = |start_bytes, end_bytes: u64, class| Allocation {
            start_bytes,
            length_bytes: end_bytes.saturating_sub(start_bytes),
            class,
        };
        let (superblock, volume_bytes) = (&self.superblock, self.reader.size_bytes());
        let log = superblock.block_log;
        let runs = runs.finish(superblock.blocks).into_iter();
        let mut map: Vec<_> = runs.map(|run| allocation(run.start << log, run.end << log, run.class)).collect();
        if superblock.size_bytes() < volume_bytes {
            map.push(allocation(superblock.size_bytes(), volume_bytes, AllocationClass::Outside));
        }
        map
    }

    /// Reads the free runs of a group. Returns its header if all of this is intact. Otherwise the group is doubtful; so
    /// it is if its runs do not fit into memory.
    fn free_runs(&self, runs: &mut AllocationBuilder, group: u32) -> Result<Option<FreeSpace>, GuestError> {
        let before = runs.base.len();
        let outcome = self.free_space(group).and_then(|header| Ok((self.free_runs_of(group, &header, runs)?, header)));
        let found = self.damage.skip(outcome)?;
        let is_kept = found.as_ref().is_some_and(|(is_kept, _)| *is_kept);
        let header = found.map(|(_, header)| header);
        if !is_kept {
            runs.base.truncate(before);
            let start = u64::from(group) * u64::from(self.superblock.group_blocks);
            let end = start + u64::from(self.superblock.blocks_of(group));
            push(&mut runs.base, ClassRun { start, end, class: AllocationClass::Doubtful });
        }
        Ok(header)
    }

    /// Reads the free runs of a group, and compares their sum with the header, and both trees with each other. Returns
    /// whether all of them fit into memory.
    fn free_runs_of(&self, group: u32, header: &FreeSpace, runs: &mut AllocationBuilder) -> Result<bool, GuestError> {
        let superblock = &self.superblock;
        let damage = |problem| self.reader.damage(superblock.group_place(group), "free space of a group", problem);
        // The sum of the hashes does not depend on the order. The key is new each time, so no image can be prepared for
        // it.
        let hasher = RandomState::new();
        let sums = |form: &'static TreeForm, root: Root, each: &mut dyn FnMut(u64, u32) -> Result<(), &'static str>| {
            let (mut sum, mut hashes) = (0_u64, 0_u64);
            self.walk_group(form, group, root, 0, &mut |step| {
                if let Step::Record(record) = must_be_whole(step)? {
                    let (first, count) = (record.be32(0).unwrap_or(0), record.be32(4).unwrap_or(0));
                    let start = superblock.linear(group, first, count);
                    let start = start.ok_or_else(|| damage("a free run lies outside of its group"))?;
                    each(start, count).map_err(&damage)?;
                    sum += u64::from(count);
                    hashes = hashes.wrapping_add(hasher.hash_one((first, count)));
                }
                Ok(ControlFlow::Continue(()))
            })?;
            Ok::<_, GuestError>((sum, hashes))
        };
        let mut end_before = runs.base.last().map_or(0, |last| last.end);
        let mut is_kept = true;
        let by_place = sums(&group::FREE_BY_PLACE, header.by_place, &mut |start, count| {
            if end_before > start {
                return Err("two free runs overlap");
            }
            end_before = start + u64::from(count);
            if runs.base.len() < runs.runs_max {
                runs.add_free(start, end_before);
            } else {
                runs.is_short = true;
                is_kept = false;
            }
            Ok(())
        })?;
        let by_length = sums(&group::FREE_BY_LENGTH, header.by_length, &mut |_, _| Ok(()))?;
        if by_place.0 != u64::from(header.blocks_free) {
            return Err(damage("its sums differ").into());
        }
        if by_length != by_place {
            return Err(damage("its trees list other free runs").into());
        }
        Ok(is_kept)
    }

    /// Records that blocks are in use. A block that is also free is damage.
    fn claim(&self, runs: &mut AllocationBuilder, start: u64, count: u64, class: AllocationClass) {
        if runs.claim(start, count, class) {
            let place = start << self.superblock.block_log;
            self.damage.note(self.reader.damage(place, "free space of a group", "a block in use is free"));
        }
    }

    /// Claims the headers and trees of a group. A doubtful group has no header, so only the trees of inodes are
    /// claimed.
    fn claim_group(
        &self,
        runs: &mut AllocationBuilder,
        group: u32,
        header: Option<&FreeSpace>,
    ) -> Result<(), GuestError> {
        let superblock = &self.superblock;
        if let Some(header) = header {
            let headers = (HEADER_SECTORS * superblock.sector_bytes).div_ceil(superblock.block_bytes) as u64;
            self.claim(runs, superblock.group_place(group) >> superblock.block_log, headers, SUPERBLOCK);
            self.claim_tree(runs, &group::FREE_BY_PLACE, group, Some(header.by_place))?;
            self.claim_tree(runs, &group::FREE_BY_LENGTH, group, Some(header.by_length))?;
            self.claim_tree(runs, &group::OWNERS, group, header.owners)?;
            self.claim_tree(runs, &group::REFERENCE_COUNTS, group, header.reference_counts)?;
            for block in self.skip_file(self.reserve(group, header))?.unwrap_or_default() {
                if let Some(start) = superblock.linear(group, block, 1) {
                    self.claim(runs, start, 1, TREE);
                }
            }
        }
        // Its other tree is claimed together with the inodes.
        let free = self.skip_file(self.inode_trees(group))?.and_then(|trees| trees.free);
        self.claim_tree(runs, &group::FREE_INODES, group, free)
    }

    fn claim_tree(
        &self,
        runs: &mut AllocationBuilder,
        form: &'static TreeForm,
        group: u32,
        root: Option<Root>,
    ) -> Result<(), GuestError> {
        let Some(root) = root else { return Ok(()) };
        self.walk_group(form, group, root, 0, &mut |step| {
            match step {
                Step::Block(linear) => self.claim(runs, linear, 1, TREE),
                Step::Record(_) => {}
                Step::Damage(damage) => self.note_file(damage),
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Claims the inodes, and all blocks that files reach.
    fn claim_files(&self, runs: &mut AllocationBuilder, met: &mut MapBlocks) -> Result<(), GuestError> {
        self.each_inode(&mut |step| {
            match step {
                InodeStep::Tree(linear) => self.claim(runs, linear, 1, TREE),
                InodeStep::Table { start, count } => self.claim(runs, start, count, INODES),
                InodeStep::Inode(inode) => self.claim_file(runs, met, &inode)?,
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    fn claim_file(
        &self,
        runs: &mut AllocationBuilder,
        met: &mut MapBlocks,
        inode: &Inode<'_>,
    ) -> Result<(), GuestError> {
        let class = if inode.kind == FileKind::Directory { DIRECTORY } else { AllocationClass::Data };
        self.skip_file(self.claim_fork(runs, met, &inode.data, class))?;
        if let Some(fork) = &inode.attributes {
            self.skip_file(self.claim_fork(runs, met, fork, TREE))?;
        }
        Ok(())
    }

    fn claim_fork(
        &self,
        runs: &mut AllocationBuilder,
        met: &mut MapBlocks,
        fork: &Fork<'_>,
        class: AllocationClass,
    ) -> Result<(), GuestError> {
        self.each_step(fork, 0, &mut |step| {
            match step {
                // The rest does not fit into memory, so nothing is free.
                MapStep::Block(_) if met.is_full() => return Ok(ControlFlow::Break(())),
                MapStep::Block(linear) => {
                    self.meet(met, linear)?;
                    self.claim(runs, linear, 1, TREE);
                }
                MapStep::Mapping(mapping) => {
                    if let Some(start) = self.superblock.linear_run(mapping.block, mapping.count) {
                        self.claim(runs, start, u64::from(mapping.count), class);
                    }
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}
