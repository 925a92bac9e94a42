//! The allocation map: the union of the bitmaps after recovery, the bitmaps before recovery, and every block that a
//! file reaches. In a group whose descriptor counts other free clusters than its bitmap has, none is free.
//!
//! A budget bounds the memory. Bitmaps are read group by group. Of the blocks that files reach, only those are kept
//! that the bitmaps do not describe: metadata with its kind, and blocks that are free in the bitmaps.

mod bitmaps;
mod reach;
mod records;
mod unused;

use std::ops::Range;

use bitmaps::Bitmaps;
use reach::{NODES_MAX, Reach};
use records::{RECORDS_MAX, Record, Records};
use unused::GROUPS_MAX;

use super::inode::Inode;
use super::map::MapPiece;
use super::superblock::features;
use super::tables::Tables;
use crate::budget::Budget;
use crate::error::GuestError;
use crate::filesystem::{Allocation, AllocationClass, AllocationDifferences, TableKind};

/// Number of runs after which each further group is doubtful as a whole, because all groups may name the same bitmap.
const RUNS_MAX: usize = RECORDS_MAX;
/// Number of structures of a map that draw equal parts of its memory: records, blocks of maps, runs.
const PARTS: usize = 3;
/// Bytes of memory for one block of a map in its set, while the set grows.
const NODE_BYTES: usize = 27;
/// Maximum memory for all of them, in bytes.
const MEMORY_BYTES_MAX: usize = PARTS * NODES_MAX * NODE_BYTES;

/// The runs of the map so far, in blocks.
struct AllocationBuilder<'m> {
    runs: Vec<Allocation>,
    block_bytes: u64,
    volume_bytes: u64,
    /// Further runs of known use.
    records: std::iter::Peekable<std::slice::Iter<'m, Record>>,
    /// The class of free blocks.
    free: AllocationClass,
    /// Maximum number of runs, without those of one group.
    runs_max: usize,
}

/// Maximum number of blocks of maps, and of records, of a pass that only tells the pieces of files.
const CLAIM_NODES_MAX: usize = 1 << 18;
const CLAIM_RECORDS_MAX: usize = 1 << 12;

/// Calls `visit` with each piece of each file, and with blocks of attributes as nodes. Returns whether that was all:
/// nothing was damaged, impossible or too much. The caller knows that no inode counts as never used and has links.
///
/// # Errors
/// Those of the disk.
pub(super) fn each_claim(tables: &Tables<'_>, visit: &mut dyn FnMut(&Inode, &MapPiece)) -> Result<bool, GuestError> {
    let mut records = Records::new(tables.superblock.blocks_per_group, CLAIM_RECORDS_MAX);
    let mut bitmaps = Bitmaps::new(tables);
    let mut reach = Reach::new(tables, &mut bitmaps, &mut records, CLAIM_NODES_MAX);
    reach.visit = Some(visit);
    reach.run()?;
    let is_sound = !reach.has_too_many && reach.only_reached == 0;
    Ok(is_sound && !tables.is_file_lost())
}

impl Tables<'_> {
    /// Returns the allocation map of the volume, and the differences between its sources. Nothing is free if
    /// `is_certain` is false, or if a part of a file is damaged and bitmaps have no checksums.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn allocation(
        &self,
        is_certain: bool,
        budget: &Budget,
    ) -> Result<(Vec<Allocation>, AllocationDifferences), GuestError> {
        let draw = budget.draw(MEMORY_BYTES_MAX);
        let record_rows = draw.rows(PARTS, size_of::<Record>(), RECORDS_MAX);
        let mut records = Records::new(self.superblock.blocks_per_group, record_rows.max);
        self.add_tables(&mut records)?;
        let mut bitmaps = Bitmaps::new(self);
        let node_rows = draw.rows(PARTS, NODE_BYTES, NODES_MAX);
        let mut reach = Reach::new(self, &mut bitmaps, &mut records, node_rows.max);
        reach.run()?;
        // The runs, whose memory this is, are made later.
        reach.run_never_used(draw.rows(PARTS, size_of::<u32>(), GROUPS_MAX).max)?;
        let (mut differing, has_too_many) = ((0, reach.only_reached), reach.has_too_many);
        if reach.has_too_many_nodes {
            budget.note_full(node_rows);
        }
        drop(reach);
        if records.is_coarse() {
            budget.note_full(record_rows);
        }
        // Without checksums, a bitmap may mark blocks as free that belong to a file behind the damage.
        let is_lost = has_too_many || self.is_file_lost() && !self.superblock.features.has(features::METADATA_CSUM);
        let run_rows = draw.rows(PARTS, size_of::<Allocation>(), RUNS_MAX);
        let runs;
        (runs, differing.0) = self.runs_of_groups(&mut bitmaps, records, is_certain && !is_lost, run_rows.max)?;
        if runs.len() >= run_rows.max {
            budget.note_full(run_rows);
        }
        let cluster_bytes = self.superblock.blocks_per_cluster * self.superblock.block_bytes;
        let differences = AllocationDifferences {
            before_recovery_bytes: differing.0 * cluster_bytes,
            reached_bytes: differing.1 * cluster_bytes,
            ..AllocationDifferences::default()
        };
        if differing.1 > 0 {
            let place = self.superblock.group_start(0) * self.superblock.block_bytes;
            self.damage.note(self.source.damage(place, "block bitmap", "files reach blocks that bitmaps call free"));
        }
        Ok((runs, differences))
    }

    /// Returns the allocation map by the bitmaps alone, with the tables of the groups. They are needed because a bitmap
    /// that was never written does not have them. Nothing is free if `is_certain` is false.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn bitmap_allocation(&self, is_certain: bool, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        let draw = budget.draw(MEMORY_BYTES_MAX);
        let record_rows = draw.rows(PARTS, size_of::<Record>(), RECORDS_MAX);
        let mut records = Records::new(self.superblock.blocks_per_group, record_rows.max);
        self.add_tables(&mut records)?;
        if records.is_coarse() {
            budget.note_full(record_rows);
        }
        let run_rows = draw.rows(PARTS, size_of::<Allocation>(), RUNS_MAX);
        let (runs, _) = self.runs_of_groups(&mut Bitmaps::new(self), records, is_certain, run_rows.max)?;
        if runs.len() >= run_rows.max {
            budget.note_full(run_rows);
        }
        Ok(runs)
    }

    /// Returns the runs of the bitmaps of all groups, overlaid with those of known use, and how many clusters are
    /// allocated only in the bitmaps before recovery. After `runs_max` runs, further groups are doubtful.
    fn runs_of_groups(
        &self,
        bitmaps: &mut Bitmaps<'_, '_>,
        records: Records,
        has_free: bool,
        runs_max: usize,
    ) -> Result<(Vec<Allocation>, u64), GuestError> {
        let records = records.sorted();
        let mut runs = AllocationBuilder {
            runs: Vec::new(),
            block_bytes: self.superblock.block_bytes,
            volume_bytes: self.source.reader().size_bytes(),
            records: records.iter().peekable(),
            free: if has_free { AllocationClass::Free } else { AllocationClass::Doubtful },
            runs_max,
        };
        runs.push(0..self.superblock.first_data_block, AllocationClass::Outside);
        let mut only_before = 0;
        for number in 0..self.group_count() {
            only_before += self.add_group(number, bitmaps, &mut runs)?;
        }
        if let Some(number) = self.first_group_left_out() {
            runs.push(self.superblock.group_start(number)..self.superblock.block_count, AllocationClass::Doubtful);
        }
        Ok((runs.finish(), only_before))
    }

    /// Adds the tables of all groups.
    fn add_tables(&self, records: &mut Records) -> Result<(), GuestError> {
        let superblock = &self.superblock;
        let table_bytes = superblock.inodes_per_group as usize * superblock.inode_bytes;
        let table_blocks = table_bytes.div_ceil(superblock.block_length) as u64;
        let table = AllocationClass::Table;
        if superblock.features.has(features::MMP) && superblock.has_blocks(superblock.mmp_block, 1) {
            records.push(superblock.mmp_block, superblock.mmp_block + 1, table(TableKind::Superblock));
        }
        for number in 0..self.group_count() {
            let (start, end) = (superblock.group_start(number), superblock.group_end(number));
            let header = superblock.header_blocks(number);
            if header > 0 {
                records.push(start, (start + header).min(end), table(TableKind::Superblock));
            }
            let Some(group) = self.damage.skip(self.group(number))? else { continue };
            records.push(group.block_bitmap, group.block_bitmap + 1, table(TableKind::Bitmap));
            records.push(group.inode_bitmap, group.inode_bitmap + 1, table(TableKind::Bitmap));
            records.push(group.inode_table, group.inode_table + table_blocks, table(TableKind::Inodes));
        }
        Ok(())
    }

    /// Adds the blocks of a group to the map. Returns how many clusters are allocated only in the bitmap before
    /// recovery.
    fn add_group(
        &self,
        number: u32,
        bitmaps: &mut Bitmaps<'_, '_>,
        runs: &mut AllocationBuilder<'_>,
    ) -> Result<u64, GuestError> {
        let superblock = &self.superblock;
        let (start, end) = (superblock.group_start(number), superblock.group_end(number));
        if runs.runs.len() >= runs.runs_max {
            runs.push(start..end, AllocationClass::Doubtful);
            return Ok(0);
        }
        let bits = bitmaps.group(number)?;
        let ratio = superblock.blocks_per_cluster;
        bits.each_part(0..(end - start).div_ceil(ratio), &mut |part, is_allocated| {
            let class = match is_allocated {
                _ if bits.is_doubtful => AllocationClass::Doubtful,
                true => AllocationClass::Data,
                false if bits.is_miscounted => AllocationClass::Doubtful,
                false => runs.free,
            };
            runs.add(start + part.start * ratio..(start + part.end * ratio).min(end), class);
        });
        Ok(bits.only_before)
    }
}

impl AllocationBuilder<'_> {
    /// Adds blocks of a class, except those whose use is known.
    fn add(&mut self, range: Range<u64>, class: AllocationClass) {
        let mut at = range.start;
        while at < range.end {
            while self.records.next_if(|record| record.end <= at).is_some() {}
            let Some(record) = self.records.peek().copied().filter(|record| record.start < range.end) else { break };
            if record.start > at {
                self.push(at..record.start, class);
                at = record.start;
            }
            let end = record.end.min(range.end);
            self.push(at..end, record.class);
            at = end;
        }
        self.push(at..range.end, class);
    }

    fn push(&mut self, blocks: Range<u64>, class: AllocationClass) {
        let start = blocks.start.saturating_mul(self.block_bytes);
        let end = blocks.end.saturating_mul(self.block_bytes).min(self.volume_bytes);
        self.push_bytes(start, end, class);
    }

    fn push_bytes(&mut self, start: u64, end: u64, class: AllocationClass) {
        if start >= end {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if (last.end_bytes(), last.class) == (start, class) => last.length_bytes += end - start,
            _ => self.runs.push(Allocation { start_bytes: start, length_bytes: end - start, class }),
        }
    }

    /// Returns all runs, and one for the bytes behind the file system.
    fn finish(mut self) -> Vec<Allocation> {
        let end = self.runs.last().map_or(0, Allocation::end_bytes);
        self.push_bytes(end, self.volume_bytes, AllocationClass::Outside);
        self.runs
    }
}
