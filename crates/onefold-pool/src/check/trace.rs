//! Finds the files that damaged blocks affect: a walk over all maps, each node once, that records the problems below
//! it.

use std::collections::HashMap;

use onefold_block::{BLOCK_BYTES_U64, BlockNo};

use super::context::Context;
use super::findings::FILES_MAX;
use super::node_set::{NodeSet, Visit};
use super::reader::{CheckError, MetadataReader};
use crate::attr::{FileKind, Ino};
use crate::format::header::BlockKind;
use crate::format::inode::{Inode, MapRoot};
use crate::format::items::{self, ItemKind};
use crate::format::map_node::{self, FAN_OUT_LEN, MapEntry};
use crate::format::state::Field;
use crate::tree::{self, TreeFinding};

/// Maximum number of remembered pairs of a node and a problem below it. With more damage, some files stay unnamed.
const REMEMBERED_MAX: usize = 1 << 20;

/// Adds to each problem the files whose maps reach its block.
pub(super) fn add_files(context: &mut Context<'_>) {
    let mut problems: HashMap<BlockNo, Vec<usize>> = HashMap::new();
    for (at, found) in context.findings.found.iter().enumerate() {
        if let Some(block) = found.traced {
            problems.entry(block).or_default().push(at);
        }
    }
    if problems.is_empty() {
        return;
    }
    let root = BlockNo(context.field(Field::TreeRoot));
    let mut tracer = Tracer {
        blocks: &mut context.blocks,
        problems,
        visited: NodeSet::default(),
        below: HashMap::new(),
        remembered: 0,
    };
    let found = &mut context.findings.found;
    // Unreadable pages are already reported; readable ones name as many files as exist.
    let _ = tree::check(&mut context.tree, root, &mut |finding| -> Result<(), CheckError> {
        if let TreeFinding::Item { key, value } = finding
            && items::item_kind(&key) == Some(ItemKind::Inode)
            && let Some(inode) = Inode::decode(Ino(key.ino), value)
            && inode.attr.kind == FileKind::Regular
        {
            let hit = tracer.file(&inode);
            let wants_places = |at: &usize| found[*at].problem.structure == DATA && found[*at].places.len() < FILES_MAX;
            let has_places = hit.iter().any(wants_places);
            for at in hit {
                let inos = &mut found[at].inos;
                if inos.len() < FILES_MAX && !inos.contains(&inode.attr.ino) {
                    inos.push(inode.attr.ino);
                }
            }
            if has_places {
                tracer.each_place(&inode, &mut |at, offset| {
                    if found[at].problem.structure == DATA && found[at].places.len() < FILES_MAX {
                        found[at].places.push((inode.attr.ino, offset));
                    }
                });
            }
        }
        Ok(())
    });
}

/// The structure of problems whose places in files are wanted.
const DATA: &str = "data";

struct Tracer<'c, 'a> {
    blocks: &'c mut MetadataReader<'a>,
    /// Problems, by their block.
    problems: HashMap<BlockNo, Vec<usize>>,
    visited: NodeSet,
    /// Problems at and below nodes; nodes without problems are absent.
    below: HashMap<BlockNo, Vec<usize>>,
    remembered: usize,
}

impl Tracer<'_, '_> {
    /// Returns the problems that affect a file.
    fn file(&mut self, inode: &Inode) -> Vec<usize> {
        match &inode.map {
            MapRoot::Inline(entries) => {
                let mut hit = Vec::new();
                for entry in entries {
                    self.add_own(*entry, &mut hit);
                }
                hit
            }
            MapRoot::Tree { levels, root } => self.node(*root, levels - 1),
        }
    }

    /// Calls `take` with each place of a problem's block in a file: the problem, and the offset in bytes. The file has
    /// been traced, so only nodes with problems below them are read.
    fn each_place(&mut self, inode: &Inode, take: &mut dyn FnMut(usize, u64)) {
        match &inode.map {
            MapRoot::Inline(entries) => {
                for (block, entry) in (0..).zip(entries) {
                    self.take_own(*entry, block, take);
                }
            }
            MapRoot::Tree { levels, root } => self.each_place_below(*root, levels - 1, 0, take),
        }
    }

    /// Does the same below a node, whose first entry stands for block `first` of the file.
    fn each_place_below(&mut self, at: BlockNo, level: u8, first: u64, take: &mut dyn FnMut(usize, u64)) {
        let bytes = self.blocks.block(at, BlockKind::MapNode(level)).ok().map(|bytes| Box::new(*bytes));
        let span = (FAN_OUT_LEN as u64).saturating_pow(u32::from(level));
        for index in 0..FAN_OUT_LEN {
            let Some(entry) = bytes.as_deref().and_then(|bytes| map_node::entry(bytes, index)) else { continue };
            let block = first.saturating_add(span.saturating_mul(index as u64));
            match entry {
                MapEntry::Block(_) if level == 0 => self.take_own(entry, block, take),
                MapEntry::Block(child) if self.below.contains_key(&child) => {
                    self.each_place_below(child, level - 1, block, take);
                }
                MapEntry::Block(_) | MapEntry::Hole | MapEntry::Reserved => {}
            }
        }
    }

    fn take_own(&self, entry: MapEntry, block: u64, take: &mut dyn FnMut(usize, u64)) {
        let mut hit = Vec::new();
        self.add_own(entry, &mut hit);
        hit.into_iter().for_each(|at| take(at, block.saturating_mul(BLOCK_BYTES_U64)));
    }

    fn add_own(&self, entry: MapEntry, hit: &mut Vec<usize>) {
        if let MapEntry::Block(block) = entry
            && let Some(problems) = self.problems.get(&block)
        {
            hit.extend(problems);
        }
    }

    fn node(&mut self, at: BlockNo, level: u8) -> Vec<usize> {
        if let Visit::Again(_) = self.visited.visit(at, level) {
            return self.below.get(&at).cloned().unwrap_or_default();
        }
        let mut hit = Vec::new();
        self.add_own(MapEntry::Block(at), &mut hit);
        let bytes = self.blocks.block(at, BlockKind::MapNode(level)).ok().map(|bytes| Box::new(*bytes));
        for entry in (0..FAN_OUT_LEN).filter_map(|index| map_node::entry(bytes.as_deref()?, index)) {
            match entry {
                MapEntry::Hole | MapEntry::Reserved => {}
                MapEntry::Block(_) if level == 0 => self.add_own(entry, &mut hit),
                MapEntry::Block(child) => hit.extend(self.node(child, level - 1)),
            }
        }
        hit.sort_unstable();
        hit.dedup();
        if !hit.is_empty() && self.remembered + hit.len() <= REMEMBERED_MAX {
            self.remembered += hit.len();
            self.below.insert(at, hit.clone());
        }
        hit
    }
}
