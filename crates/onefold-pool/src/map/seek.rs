//! Finding the next data or the next hole.

use super::entry_index;
use crate::format::inode::{INLINE_ENTRIES, Inode, MapRoot};
use crate::format::map_node::{self, MapEntry};
use crate::meta::{Op, OpResult};

/// Nodes that one operation looks at.
const STEPS_MAX: u32 = 1024;

/// Where a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sought {
    /// The block index that was looked for, or the end.
    Found(u64),
    /// Nothing before this block; the search goes on there.
    GoOn(u64),
}

/// What is at a place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    Hole,
    /// Reads as zeros, and has space kept for it.
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
    /// Looks for the first block at or after `from` and before `end` that is mapped (`data`) or not. `end` if none.
    /// Reserved places are holes: they read as zeros.
    pub(crate) fn map_seek(&mut self, inode: &Inode, from: u64, end: u64, data: bool) -> OpResult<Sought> {
        let mut at = from;
        for _ in 0..STEPS_MAX {
            if at >= end {
                return Ok(Sought::Found(end));
            }
            let (kind, next) = self.map_run(inode, at)?;
            if (kind == PlaceKind::Mapped) == data {
                return Ok(Sought::Found(at));
            }
            at = next;
        }
        // A hole may reach beyond what was asked for.
        Ok(Sought::GoOn(at.min(end)))
    }

    /// Tells what is at block `at`, and where the next one lies that may be of another kind.
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
