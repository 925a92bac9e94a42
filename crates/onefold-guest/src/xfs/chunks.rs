//! Chunks of 64 inodes, as listed in the tree of each group.
//!
//! From "XFS Filesystem Structure", chapter "Inode Numbers". A record of the tree:
//!
//! | bytes  | field          | notes                                                                |
//! |--------|----------------|----------------------------------------------------------------------|
//! | 0..4   | first inode    | its number in the group                                              |
//! | 4..6   | holes          | with sparse inodes: a bit for each four inodes that have no room     |
//! | 6..8   | counts         |                                                                      |
//! | 8..16  | free inodes    | a bit for each inode, the lowest for the first; holes are free, too  |

use std::ops::{ControlFlow, Range};

use super::Xfs;
use super::btree::Step;
use super::group;
use super::inode::{self, Inode};
use crate::bytes::Bytes;
use crate::error::GuestError;

/// Inodes of a chunk.
pub(super) const CHUNK_INODES: u32 = 64;
/// Number of inodes for each bit of the holes.
const HOLE_INODES: u32 = 4;
const STRUCTURE: &str = "chunk of inodes";

/// A chunk of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Its group.
    group: u32,
    /// The number of its first inode in the group.
    first: u32,
    /// Inodes without space on the disk.
    holes: u16,
    /// Inodes that are not in use.
    free: u64,
}

impl Chunk {
    fn decode(group: u32, record: Bytes<'_>, has_holes: bool) -> Option<Chunk> {
        let holes = if has_holes { record.be16(4)? } else { 0 };
        Some(Chunk { group, first: record.be32(0)?, holes, free: record.be64(8)? })
    }

    /// Returns the runs of inodes with space on the disk, as indices in the chunk.
    fn runs(self) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for bit in (0..CHUNK_INODES / HOLE_INODES).filter(|bit| self.holes >> bit & 1 == 0) {
            let part = bit * HOLE_INODES..(bit + 1) * HOLE_INODES;
            match runs.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => runs.push(part),
            }
        }
        runs
    }
}

/// Step of a pass over the inodes.
pub(super) enum InodeStep<'b> {
    /// A block of a tree of inodes, by its linear number.
    Tree(u64),
    /// Blocks of inodes.
    Table {
        /// The linear number of the first.
        start: u64,
        /// Their number.
        count: u64,
    },
    /// An inode in use.
    Inode(Inode<'b>),
}

/// Called with each step of a pass over the inodes, until it breaks.
pub(super) type InodeVisit<'v> = dyn FnMut(InodeStep<'_>) -> Result<ControlFlow<()>, GuestError> + 'v;

impl Xfs<'_> {
    /// Calls `visit` with every inode in use, in the order of the disk, until it breaks. An inode is in use if its tree
    /// or the inode itself says so. Damaged groups, parts of trees and inodes are recorded and skipped.
    pub(super) fn each_inode(&self, visit: &mut InodeVisit<'_>) -> Result<(), GuestError> {
        for group in 0..self.superblock.groups {
            if self.superblock.group_place(group) >= self.reader.size_bytes() {
                // The file system is longer than its volume. Groups that it claims behind the end have no inodes.
                let place = self.reader.size_bytes();
                self.note_file(self.reader.damage(place, STRUCTURE, "its group lies behind the volume"));
                break;
            }
            let Some(trees) = self.skip_file(self.inode_trees(group))? else { continue };
            let (mut is_over, mut next) = (false, 0);
            self.walk_group(&group::INODES, group, trees.all, 0, &mut |step| {
                let flow = match step {
                    Step::Block(linear) => visit(InodeStep::Tree(linear))?,
                    Step::Record(record) => self.each_inode_of(group, record, &mut next, visit)?,
                    Step::Damage(damage) => {
                        self.note_file(damage);
                        ControlFlow::Continue(())
                    }
                };
                is_over = flow.is_break();
                Ok(flow)
            })?;
            if is_over {
                break;
            }
        }
        Ok(())
    }

    /// Visits the inodes of a record of the tree. The chunk begins at inode `next` of the group or later; `next` is
    /// updated.
    fn each_inode_of(
        &self,
        group: u32,
        record: Bytes<'_>,
        next: &mut u64,
        visit: &mut InodeVisit<'_>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let chunk = Chunk::decode(group, record, self.superblock.features.has_sparse_inodes());
        let Some(chunk) = chunk.filter(|chunk| u64::from(chunk.first) >= *next) else {
            let place = self.superblock.group_place(group);
            self.note_file(self.reader.damage(place, STRUCTURE, "it begins in the middle of another"));
            return Ok(ControlFlow::Continue(()));
        };
        *next = u64::from(chunk.first) + u64::from(CHUNK_INODES);
        for run in chunk.runs() {
            let flow = self.skip_file(self.each_inode_in(chunk, &run, visit))?;
            if flow == Some(ControlFlow::Break(())) {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Visits the inodes of a run of a chunk.
    fn each_inode_in(
        &self,
        chunk: Chunk,
        run: &Range<u32>,
        visit: &mut InodeVisit<'_>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let superblock = &self.superblock;
        let number = |within: u32| superblock.inode_number(chunk.group, chunk.first.saturating_add(within));
        let place = number(run.start).and_then(|first| superblock.inode_place(first));
        let last = number(run.end - 1).and_then(|last| superblock.inode_place(last));
        let (Some(place), Some(last)) = (place, last) else {
            let group = superblock.group_place(chunk.group);
            return Err(self.reader.damage(group, STRUCTURE, "it lies outside of its group").into());
        };
        let end = last + superblock.inode_bytes as u64;
        let start = place >> superblock.block_log;
        let count = end.div_ceil(superblock.block_bytes as u64) - start;
        if visit(InodeStep::Table { start, count })?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let records = self.reader.bytes(place, (run.end - run.start) as usize * superblock.inode_bytes, STRUCTURE)?;
        for (within, record) in run.clone().zip(records.chunks_exact(superblock.inode_bytes)) {
            let Some(number) = number(within) else { continue };
            if chunk.free >> within & 1 != 0 {
                if !inode::claims_use(record) {
                    continue;
                }
                // A mount reads it where a directory names it, and a checker takes it into use.
                let place = superblock.inode_place(number).unwrap_or(place);
                self.damage.note(self.reader.damage(place, STRUCTURE, "an inode in use is free in its tree"));
            }
            // It is in use according to the tree, or to itself.
            let inode = self.inode(number, record).map_err(|error| match error {
                GuestError::NotFound => self.reader.damage(place, STRUCTURE, "an inode in use is empty").into(),
                other => other,
            });
            if let Some(inode) = self.skip_file(inode)?
                && visit(InodeStep::Inode(inode))?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
