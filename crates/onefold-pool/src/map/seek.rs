//! Finds the next data or the next hole.
//!
//! The totals of a node show whether everything below it is data, or nothing is: such a node is skipped as a whole. So
//! a search reads no more children than a few nodes have, however large the file is.

use onefold_block::BlockNo;

use super::entry_index;
use crate::format::inode::{INLINE_ENTRIES, Inode, MapRoot};
use crate::format::map_node::{self, FAN_OUT, FAN_OUT_LEN, MapEntry};
use crate::meta::{Op, OpResult};

/// Number of places that one hold of the metadata lock passes: some 50 microseconds.
const STEPS_MAX: u32 = 256;

/// State of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeekStep {
    /// The block index that was sought, or the end.
    Found(u64),
    /// No result before this block; the search continues there.
    GoOn(u64),
}

/// Kind of a place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    Hole,
    /// Reads as zeros, and has promised space.
    Reserved,
    Mapped,
}

impl PlaceKind {
    fn of(entry: MapEntry) -> PlaceKind {
        match entry {
            MapEntry::Hole => PlaceKind::Hole,
            MapEntry::Reserved => PlaceKind::Reserved,
            MapEntry::Block(_) => PlaceKind::Mapped,
        }
    }
}

impl Op<'_> {
    /// Finds the first block at or after `from` and before `end` that is mapped (`data`) or is not; `end` if there is
    /// none. Reserved places count as holes: they read as zeros.
    pub(crate) fn map_seek(&mut self, inode: &Inode, from: u64, end: u64, data: bool) -> OpResult<SeekStep> {
        let mut at = from;
        for _ in 0..STEPS_MAX {
            if at >= end {
                return Ok(SeekStep::Found(end));
            }
            match self.map_pass(inode, at, data)? {
                Some(next) => at = next,
                None => return Ok(SeekStep::Found(at)),
            }
        }
        // A hole may reach beyond the requested range.
        Ok(SeekStep::GoOn(at.min(end)))
    }

    /// Returns `None` if block `at` is sought; otherwise the next possible place, according to the nodes on the path to
    /// the block.
    fn map_pass(&mut self, inode: &Inode, at: u64, data: bool) -> OpResult<Option<u64>> {
        let MapRoot::Tree { levels, root } = inode.map else {
            let (kind, next) = self.map_run(inode, at)?;
            return Ok(((kind == PlaceKind::Mapped) != data).then_some(next));
        };
        if at >= map_node::entry_span(levels) {
            return Ok(data.then_some(u64::MAX));
        }
        let mut node = root;
        for level in (0..levels).rev() {
            let span = map_node::entry_span(level);
            let mapped = u64::try_from(self.map_totals(node, level)?.mapped).unwrap_or(0);
            let has_none = if data { mapped == 0 } else { mapped == span * FAN_OUT };
            if has_none {
                return Ok(Some((at / (span * FAN_OUT) + 1) * (span * FAN_OUT)));
            }
            if level == 0 {
                break;
            }
            match self.map_entry(node, level, entry_index(at, level))? {
                MapEntry::Block(child) => node = child,
                MapEntry::Hole | MapEntry::Reserved if !data => return Ok(None),
                MapEntry::Hole | MapEntry::Reserved => {
                    let next = self.next_child(node, level, entry_index(at, level))?;
                    return Ok(Some((at / (span * FAN_OUT)) * (span * FAN_OUT) + next as u64 * span));
                }
            }
        }
        let entries = self.map_entries(node, 0)?;
        let rest = &entries[entry_index(at, 0)..];
        let passed = rest.iter().take_while(|entry| entry.block().is_some() != data).count();
        Ok((passed > 0).then_some(at + passed as u64))
    }

    /// Returns the place of the first child of a node behind one of its entries, or the end of the node.
    fn next_child(&mut self, node: BlockNo, level: u8, from: usize) -> OpResult<usize> {
        for place in from + 1..FAN_OUT_LEN {
            if self.map_entry(node, level, place)?.block().is_some() {
                return Ok(place);
            }
        }
        Ok(FAN_OUT_LEN)
    }

    /// Returns the kind of block `at`, and the next block that may have another kind.
    pub(crate) fn map_run(&mut self, inode: &Inode, at: u64) -> OpResult<(PlaceKind, u64)> {
        match &inode.map {
            MapRoot::Inline(entries) => match usize::try_from(at).ok().and_then(|at| entries.get(at)) {
                Some(entry) => Ok((PlaceKind::of(*entry), at + 1)),
                None => Ok((PlaceKind::Hole, u64::MAX)),
            },
            MapRoot::Tree { levels, .. } if at >= map_node::entry_span(*levels) => Ok((PlaceKind::Hole, u64::MAX)),
            MapRoot::Tree { levels, root } => {
                let mut node = *root;
                for level in (1..*levels).rev() {
                    match self.map_entry(node, level, entry_index(at, level))? {
                        MapEntry::Block(child) => node = child,
                        empty @ (MapEntry::Hole | MapEntry::Reserved) => {
                            let span = map_node::entry_span(level);
                            return Ok((PlaceKind::of(empty), (at / span + 1) * span));
                        }
                    }
                }
                let entries = self.map_entries(node, 0)?;
                let first = entry_index(at, 0);
                let kind = PlaceKind::of(entries[first]);
                let run = entries[first..].iter().take_while(|entry| PlaceKind::of(**entry) == kind).count();
                Ok((kind, at + run as u64))
            }
        }
    }
}

const _: () = assert!(INLINE_ENTRIES > 0);
