//! The map of a fork: converts blocks of the file to blocks of the file system.
//!
//! From "XFS Filesystem Structure", chapter "Data Extents". An extent is packed into 128 bits, from the highest: one
//! bit for "not written yet", 54 for the first block in the file, 52 for the first block in the file system, 21 for the
//! number of blocks. The root of a tree is in the inode: level and number of keys (two bytes each), keys, pointers.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::Xfs;
use super::btree::{InnerBlock, LEVELS_MAX, LinkWidth, Step, Tree, TreeForm, Walk};
use super::inode::{Fork, ForkForm};
use crate::bytes::Bytes;
use crate::error::GuestError;

const EXTENT_BYTES: usize = 16;
const ROOT_HEADER_BYTES: usize = 4;
const STRUCTURE: &str = "map of a file";

/// The tree of a file's map.
static FILE_MAP: TreeForm = TreeForm {
    name: STRUCTURE,
    magic: [0x424d_4150, 0x424d_4133],
    links: LinkWidth::File,
    key_bytes: 8,
    record_bytes: EXTENT_BYTES,
    key_order: |key| key.be64(0),
    record_order: |record| Some(Mapping::decode(record)?.offset),
    has_equals: false,
};

/// A part of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// First block in the file.
    pub(super) offset: u64,
    /// Number of the first block in the file system.
    pub(super) block: u64,
    /// The number of blocks.
    pub(super) count: u32,
    /// Whether the content is zeros, whatever the blocks contain.
    pub(super) is_unwritten: bool,
}

impl Mapping {
    fn decode(record: Bytes<'_>) -> Option<Mapping> {
        let (high, low) = (record.be64(0)?, record.be64(8)?);
        Some(Mapping {
            offset: high >> 9 & ((1 << 54) - 1),
            block: (high & 0x1ff) << 43 | low >> 21,
            count: u32::try_from(low & 0x1f_ffff).ok()?,
            is_unwritten: high >> 63 != 0,
        })
    }

    /// Returns the block of the file after the last one.
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::from(self.count)
    }
}

/// Step of a walk through a map.
#[derive(Clone, Copy, Debug)]
pub(super) enum MapStep {
    /// A block of the map itself, by its linear number.
    Block(u64),
    /// A part of the map.
    Mapping(Mapping),
}

/// Maximum number of map blocks that a pass remembers: about 75 MiB.
pub(super) const MAP_BLOCKS_MAX: usize = 4 << 20;

/// The blocks of maps that a pass over all files has visited. Those of version 4 record no owner. Any number of files
/// may lead to one tree, and a reader would walk it again and again.
#[derive(Debug)]
pub(super) struct MapBlocks {
    blocks: HashSet<u64>,
    blocks_max: usize,
}

impl Default for MapBlocks {
    fn default() -> MapBlocks {
        MapBlocks::of_at_most(MAP_BLOCKS_MAX)
    }
}

impl MapBlocks {
    /// Returns an empty set for at most `blocks_max` blocks.
    pub(super) fn of_at_most(blocks_max: usize) -> MapBlocks {
        MapBlocks { blocks: HashSet::new(), blocks_max }
    }

    /// Returns whether there is no room for another block.
    pub(super) fn is_full(&self) -> bool {
        self.blocks.len() >= self.blocks_max
    }

    /// Adds a block by its linear number. Fails with the reason.
    fn add(&mut self, block: u64) -> Result<(), &'static str> {
        if self.is_full() {
            return Err("there are too many blocks of maps");
        }
        if self.blocks.insert(block) { Ok(()) } else { Err("two files lead to it") }
    }
}

/// Called with each step, until it breaks.
pub(super) type MapVisit<'v> = dyn FnMut(MapStep) -> Result<ControlFlow<()>, GuestError> + 'v;

impl Xfs<'_> {
    /// Calls `visit` with each part of a map that ends behind block `from` of the file, in order, and with each block
    /// of the map that is read on the way. A fork with inline content has none.
    ///
    /// # Errors
    /// [`GuestError::Damaged`] at the first damaged part, those of the disk, and those of `visit`.
    pub(super) fn each_step(&self, fork: &Fork<'_>, from: u64, visit: &mut MapVisit<'_>) -> Result<(), GuestError> {
        let mut end = 0;
        match fork.form {
            ForkForm::Device | ForkForm::Inline => Ok(()),
            ForkForm::List => {
                let damage = || self.reader.damage(fork.inode_place, STRUCTURE, "it has more extents than fit");
                let count =
                    usize::try_from(fork.extents).ok().filter(|count| *count <= fork.bytes.len() / EXTENT_BYTES);
                for index in 0..count.ok_or_else(damage)? {
                    let record = fork.bytes.part(index * EXTENT_BYTES, EXTENT_BYTES).ok_or_else(damage)?;
                    if self.visit_record(fork, record, from, &mut end, visit)?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            ForkForm::Tree => self.each_step_of_tree(fork, from, visit),
        }
    }

    fn each_step_of_tree(&self, fork: &Fork<'_>, from: u64, visit: &mut MapVisit<'_>) -> Result<(), GuestError> {
        let damage = |problem| GuestError::from(self.reader.damage(fork.inode_place, STRUCTURE, problem));
        let (Some(level), Some(count)) = (fork.bytes.be16(0), fork.bytes.be16(2)) else {
            return Err(damage("it is too short"));
        };
        // Keys and pointers each have a fixed part of the space of the root.
        let room = fork.bytes.len().saturating_sub(ROOT_HEADER_BYTES) / 16 * 16;
        let (Some(bytes), 1..=LEVELS_MAX) = (fork.bytes.part(ROOT_HEADER_BYTES, room), u32::from(level)) else {
            return Err(damage("its number of levels is impossible"));
        };
        let root =
            InnerBlock { bytes, level: u32::from(level) - 1, count: usize::from(count), place: fork.inode_place };
        let tree = Tree { form: &FILE_MAP, group: 0, owner: fork.owner, blocks_max: self.superblock.blocks };
        let mut end = 0;
        Walk::new(self, tree, from).run_from(root, &mut |step| match step {
            Step::Block(linear) => visit(MapStep::Block(linear)),
            Step::Damage(damage) => Err(damage.into()),
            Step::Record(record) => self.visit_record(fork, record, from, &mut end, visit),
        })
    }

    /// Visits an extent that must begin at block `end` of the file or later, and updates `end`. Skips the extent if it
    /// ends before block `from`.
    fn visit_record(
        &self,
        fork: &Fork<'_>,
        record: Bytes<'_>,
        from: u64,
        end: &mut u64,
        visit: &mut MapVisit<'_>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let mapping = self.mapping(fork, record, *end)?;
        *end = mapping.end();
        if *end <= from { Ok(ControlFlow::Continue(())) } else { visit(MapStep::Mapping(mapping)) }
    }

    /// Decodes and checks a part of a map. The previous part ends at block `end` of the file.
    fn mapping(&self, fork: &Fork<'_>, record: Bytes<'_>, end: u64) -> Result<Mapping, GuestError> {
        let damage = |problem| self.reader.damage(fork.inode_place, STRUCTURE, problem);
        let mapping = Mapping::decode(record).ok_or_else(|| damage("it is too short"))?;
        // A file has fewer than 2^63 bytes.
        if mapping.offset < end || mapping.end() > 1 << (63 - self.superblock.block_log) {
            return Err(damage("its extents are out of order").into());
        }
        if self.superblock.linear_run(mapping.block, mapping.count).is_none() {
            return Err(damage("an extent lies outside of its group").into());
        }
        Ok(mapping)
    }

    /// As [`Xfs::each_step`], without the blocks of the map.
    pub(super) fn each_mapping(
        &self,
        fork: &Fork<'_>,
        from: u64,
        visit: &mut dyn FnMut(Mapping) -> Result<ControlFlow<()>, GuestError>,
    ) -> Result<(), GuestError> {
        self.each_step(fork, from, &mut |step| match step {
            MapStep::Block(_) => Ok(ControlFlow::Continue(())),
            MapStep::Mapping(mapping) => visit(mapping),
        })
    }

    /// Records that a pass over all files has reached a block of a map.
    ///
    /// # Errors
    /// When another file has led to it before.
    pub(super) fn meet(&self, met: &mut MapBlocks, block: u64) -> Result<(), GuestError> {
        if self.superblock.features.is_v5() {
            return Ok(());
        }
        let damage = |problem| self.reader.damage(block << self.superblock.block_log, STRUCTURE, problem).into();
        met.add(block).map_err(damage)
    }

    /// Records that a pass over all files has reached the blocks of a map, as far as the map can be read.
    ///
    /// # Errors
    /// When another file has led to one of the blocks before, and those of the disk.
    pub(super) fn meet_all(&self, met: &mut MapBlocks, fork: &Fork<'_>) -> Result<(), GuestError> {
        if self.superblock.features.is_v5() || fork.form != ForkForm::Tree {
            return Ok(());
        }
        let mut outcome = Ok(());
        let walked = self.each_step(fork, 0, &mut |step| {
            if let MapStep::Block(block) = step {
                outcome = self.meet(met, block);
            }
            Ok(if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        });
        match walked {
            Ok(()) | Err(GuestError::Damaged(_)) => outcome,
            Err(error) => Err(error),
        }
    }

    /// Returns the part of a map that contains block `wanted` of the file.
    pub(super) fn mapping_of(&self, fork: &Fork<'_>, wanted: u64) -> Result<Option<Mapping>, GuestError> {
        let mut found = None;
        self.each_mapping(fork, wanted, &mut |mapping| {
            found = (mapping.offset <= wanted).then_some(mapping);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}
