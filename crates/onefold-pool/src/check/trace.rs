//! Finds the files that damaged blocks affect: a walk over all maps, each node once, that records the problems below
//! it.

use std::collections::HashMap;

use onefold_block::BlockNo;

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
            for at in tracer.file(&inode) {
                let inos = &mut found[at].inos;
                if inos.len() < FILES_MAX && !inos.contains(&inode.attr.ino) {
                    inos.push(inode.attr.ino);
                }
            }
        }
        Ok(())
    });
}

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
