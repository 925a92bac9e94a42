//! What files reach: every block of every map, with its use.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::bitmaps::Bitmaps;
use super::records::Records;
use crate::error::GuestError;
use crate::ext::inode::{Inode, Selection};
use crate::ext::map::Piece;
use crate::ext::tables::Tables;
use crate::filesystem::{AllocationClass, FileKind, TableKind};

/// Blocks of maps that are remembered: about 75 MiB of them. With more, nothing is free.
const NODES_MAX: usize = 4 << 20;
/// The inode that holds the room for more group descriptors.
const RESIZE_INODE: u32 = 7;
const TREE: AllocationClass = AllocationClass::Table(TableKind::Tree);

/// A pass over all that files reach.
pub(super) struct Reach<'r, 't, 'a> {
    pub(super) tables: &'t Tables<'a>,
    pub(super) bitmaps: &'r mut Bitmaps<'t, 'a>,
    pub(super) records: &'r mut Records,
    /// The blocks of maps that were met.
    nodes: HashSet<u64>,
    /// Whether there are more than can be remembered, so that files were left out.
    pub(super) has_too_many: bool,
    /// Clusters that files reach and bitmaps call free.
    pub(super) only_reached: u64,
}

impl<'r, 't, 'a> Reach<'r, 't, 'a> {
    /// Returns a pass that adds to `records` what `bitmaps` do not say.
    pub(super) fn new(
        tables: &'t Tables<'a>,
        bitmaps: &'r mut Bitmaps<'t, 'a>,
        records: &'r mut Records,
    ) -> Reach<'r, 't, 'a> {
        Reach { tables, bitmaps, records, nodes: HashSet::new(), has_too_many: false, only_reached: 0 }
    }

    /// Visits all files. Damaged ones are noted and skipped.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn run(&mut self) -> Result<(), GuestError> {
        let tables = self.tables;
        let mut outcome = Ok(());
        tables.each_inode(Selection::UsedOrLinked, &mut |inode| {
            outcome = self.file(&inode);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome
    }

    fn file(&mut self, inode: &Inode) -> Result<(), GuestError> {
        let tables = self.tables;
        let class = match inode.kind() {
            _ if inode.number == tables.superblock.journal_inode => AllocationClass::Table(TableKind::Journal),
            _ if inode.number == RESIZE_INODE => AllocationClass::Table(TableKind::Superblock),
            FileKind::Directory => AllocationClass::Table(TableKind::Directory),
            _ => AllocationClass::Data,
        };
        if inode.attribute_block != 0 && tables.superblock.has_blocks(inode.attribute_block, 1) {
            self.add(inode.attribute_block, 1, TREE)?;
        }
        let mut outcome = Ok(());
        let walked = tables.each_piece(inode, 0, &mut |piece| {
            outcome = match piece {
                Piece::Run(run) => self.add(run.block, run.count, class),
                Piece::Node(block) => self.node(block, inode),
            };
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        tables.skip_file(walked)?;
        tables.skip_file(outcome).map(|_| ())
    }

    /// Adds a block of a map. Two files that lead to the same one would have a reader walk it again and again.
    fn node(&mut self, block: u64, inode: &Inode) -> Result<(), GuestError> {
        if inode.number == RESIZE_INODE {
            return self.add(block, 1, AllocationClass::Table(TableKind::Superblock));
        }
        let offset = block * self.tables.superblock.block_bytes;
        if self.nodes.len() >= NODES_MAX {
            self.has_too_many = true;
            return Err(self.tables.source.damage(offset, "map of a file", "too many blocks of maps").into());
        }
        if !self.nodes.insert(block) {
            return Err(self.tables.source.damage(offset, "map of a file", "two files lead to it").into());
        }
        self.add(block, 1, TREE)
    }

    /// Adds a run of blocks: whole, where its use is more than data; otherwise what bitmaps do not call allocated.
    fn add(&mut self, start: u64, count: u64, class: AllocationClass) -> Result<(), GuestError> {
        let superblock = &self.tables.superblock;
        let end = start + count;
        if class != AllocationClass::Data {
            self.records.push(start, end, class);
        }
        if class == AllocationClass::Table(TableKind::Superblock) {
            // A bitmap that was never written does not have copies of group descriptors.
            return Ok(());
        }
        let ratio = superblock.blocks_per_cluster;
        let mut at = start;
        while at < end {
            let Ok(number) = u32::try_from((at - superblock.first_data_block) / superblock.blocks_per_group) else {
                break;
            };
            let (first, stop) = (superblock.group_start(number), superblock.group_end(number).min(end));
            let clusters = (at - first) / ratio..(stop - first).div_ceil(ratio);
            at = stop;
            if number >= self.tables.group_count() {
                break;
            }
            let bits = self.bitmaps.group(number)?;
            let (records, only_reached) = (&mut *self.records, &mut self.only_reached);
            bits.each_part(clusters, &mut |part, is_allocated| {
                if !is_allocated {
                    *only_reached += part.end - part.start;
                    let end = (first + part.end * ratio).min(superblock.block_count);
                    records.push(first + part.start * ratio, end, AllocationClass::Data);
                }
            });
        }
        Ok(())
    }
}
