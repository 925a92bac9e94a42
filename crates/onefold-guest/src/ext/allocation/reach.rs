//! The blocks that files reach: every block of every map, with its use.
//!
//! The size of the volume bounds the work, whatever the inodes say: a block of a map is visited once, and no two files
//! have the same block. If files have more blocks than the volume, or lead to too many runs that are free in the
//! bitmaps, the pass ends and nothing is free.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::bitmaps::Bitmaps;
use super::records::Records;
use crate::error::GuestError;
use crate::ext::inode::{Inode, Selection};
use crate::ext::map::MapPiece;
use crate::ext::tables::Tables;
use crate::filesystem::{AllocationClass, FileKind, TableKind};

/// Maximum number of blocks of maps that are remembered. If there are more, nothing is free.
pub(super) const NODES_MAX: usize = 4 << 20;
/// Maximum number of runs that files reach but bitmaps mark as free. If there are more, nothing is free.
const ONLY_REACHED_MAX: u32 = 1 << 20;
/// The inode that reserves room for more group descriptors.
const RESIZE_INODE: u32 = 7;
const MAP: &str = "map of a file";
/// Maximum number of inline directories that are remembered: 1 MiB of them.
const INLINE_DIRECTORIES_MAX: usize = 1 << 18;
pub(super) const DIRECTORY: AllocationClass = AllocationClass::Table(TableKind::Directory);
const TREE: AllocationClass = AllocationClass::Table(TableKind::Tree);

/// Gets the pieces of files.
pub(super) type FilePieceVisit<'v> = dyn FnMut(&Inode, &MapPiece) + 'v;

/// A pass over all blocks that files reach.
pub(super) struct Reach<'r, 't, 'a> {
    pub(super) tables: &'t Tables<'a>,
    pub(super) bitmaps: &'r mut Bitmaps<'t, 'a>,
    pub(super) records: &'r mut Records,
    /// Gets each piece before anything else is done with it, and blocks of attributes as nodes.
    pub(super) visit: Option<&'r mut FilePieceVisit<'r>>,
    /// The inline directories; `None` if there are too many.
    pub(super) inline_directories: Option<Vec<u32>>,
    /// The blocks of maps that were visited.
    nodes: HashSet<u64>,
    nodes_max: usize,
    /// Whether there are more blocks of maps than this maximum, so that the pass ended for lack of memory.
    pub(super) has_too_many_nodes: bool,
    /// Whether files reach more blocks than possible, or more than can be remembered. The pass then ended and skipped
    /// files.
    pub(super) has_too_many: bool,
    /// Number of clusters that files reach but bitmaps mark as free.
    pub(super) only_reached: u64,
    /// Number of their runs.
    only_reached_runs: u32,
    /// Number of blocks that files can still have before they exceed the file system.
    blocks_left: u64,
}

impl<'r, 't, 'a> Reach<'r, 't, 'a> {
    /// Returns a pass that adds to `records` what `bitmaps` do not contain, and remembers at most `nodes_max` blocks of
    /// maps.
    pub(super) fn new(
        tables: &'t Tables<'a>,
        bitmaps: &'r mut Bitmaps<'t, 'a>,
        records: &'r mut Records,
        nodes_max: usize,
    ) -> Reach<'r, 't, 'a> {
        Reach {
            tables,
            bitmaps,
            records,
            visit: None,
            inline_directories: Some(Vec::new()),
            nodes: HashSet::new(),
            nodes_max,
            has_too_many_nodes: false,
            has_too_many: false,
            only_reached: 0,
            only_reached_runs: 0,
            blocks_left: tables.superblock.block_count,
        }
    }

    /// Visits all files, unless they reach too much. Damaged ones are recorded and skipped. Of the inodes that their
    /// groups count as never used, only those near an inode in the bitmap are visited.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn run(&mut self) -> Result<(), GuestError> {
        let tables = self.tables;
        let mut outcome = Ok(());
        tables.each_inode(Selection::UsedOrLinked, &mut |inode| {
            outcome = self.file(&inode);
            self.go_on(&outcome)
        })?;
        outcome
    }

    /// Returns whether a pass continues after a file.
    pub(super) fn go_on(&self, outcome: &Result<(), GuestError>) -> ControlFlow<()> {
        if outcome.is_ok() && !self.has_too_many { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Notes an inline directory. Those with blocks are in the records.
    fn note_inline(&mut self, inode: &Inode) {
        if inode.kind() != FileKind::Directory || !inode.is_inline() {
            return;
        }
        match &mut self.inline_directories {
            Some(directories) if directories.len() < INLINE_DIRECTORIES_MAX => directories.push(inode.number),
            directories => *directories = None,
        }
    }

    /// Adds all blocks of a file.
    pub(super) fn file(&mut self, inode: &Inode) -> Result<(), GuestError> {
        let tables = self.tables;
        self.note_inline(inode);
        let class = match inode.kind() {
            FileKind::Directory => DIRECTORY,
            _ if inode.number == tables.superblock.journal_inode => AllocationClass::Table(TableKind::Journal),
            _ if inode.number == RESIZE_INODE => AllocationClass::Table(TableKind::Superblock),
            _ => AllocationClass::Data,
        };
        if inode.attribute_block != 0 && tables.superblock.has_blocks(inode.attribute_block, 1) {
            self.tell(inode, &MapPiece::Node(inode.attribute_block));
            self.add(inode.attribute_block, 1, TREE)?;
        }
        let mut outcome = Ok(());
        let walked = tables.each_piece(inode, 0, &mut |piece| {
            self.tell(inode, &piece);
            outcome = match piece {
                MapPiece::Run(run) => {
                    self.claim(run.block, run.count).and_then(|()| self.add(run.block, run.count, class))
                }
                MapPiece::Node(block) => self.node(block, inode),
            };
            self.go_on(&outcome)
        });
        tables.skip_file(walked)?;
        tables.skip_file(outcome).map(|_| ())
    }

    fn tell(&mut self, inode: &Inode, piece: &MapPiece) {
        if let Some(visit) = &mut self.visit {
            visit(inode, piece);
        }
    }

    /// Adds a block of a map. If two files led to the same block, a reader would visit it again and again.
    fn node(&mut self, block: u64, inode: &Inode) -> Result<(), GuestError> {
        if inode.number == RESIZE_INODE {
            return self.add(block, 1, AllocationClass::Table(TableKind::Superblock));
        }
        let offset = block * self.tables.superblock.block_bytes;
        if self.nodes.len() >= self.nodes_max {
            (self.has_too_many_nodes, self.has_too_many) = (true, true);
            return Ok(());
        }
        if !self.nodes.insert(block) {
            return Err(self.tables.source.damage(offset, MAP, "two files lead to it").into());
        }
        self.claim(block, 1)?;
        self.add(block, 1, TREE)
    }

    /// Counts blocks that only one file may have. Blocks of attributes are not among them, because files may share
    /// those.
    fn claim(&mut self, block: u64, count: u64) -> Result<(), GuestError> {
        match self.blocks_left.checked_sub(count) {
            Some(left) => self.blocks_left = left,
            None => return self.end(block, "files have more blocks than the file system"),
        }
        Ok(())
    }

    /// Ends the pass at a block.
    fn end(&mut self, block: u64, problem: &'static str) -> Result<(), GuestError> {
        self.has_too_many = true;
        let offset = block * self.tables.superblock.block_bytes;
        Err(self.tables.source.damage(offset, MAP, problem).into())
    }

    /// Adds a run of blocks: the whole run if its use is more specific than data, otherwise the part that is free in
    /// the bitmaps.
    fn add(&mut self, start: u64, count: u64, class: AllocationClass) -> Result<(), GuestError> {
        let superblock = &self.tables.superblock;
        let end = start + count;
        if class != AllocationClass::Data {
            self.records.push(start, end, class);
        }
        if class == AllocationClass::Table(TableKind::Superblock) {
            // A bitmap that was never written does not include copies of group descriptors.
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
            let runs = &mut self.only_reached_runs;
            bits.each_part(clusters, &mut |part, is_allocated| {
                if !is_allocated {
                    *only_reached += part.end - part.start;
                    *runs = runs.saturating_add(1);
                    let end = (first + part.end * ratio).min(superblock.block_count);
                    records.push(first + part.start * ratio, end, AllocationClass::Data);
                }
            });
            if *runs > ONLY_REACHED_MAX {
                return self.end(start, "files have too many blocks that bitmaps call free");
            }
        }
        Ok(())
    }
}
