//! Finds the files that damaged blocks affect: a walk over all maps, each node once, that records the problems below
//! it.

use std::collections::HashMap;

use onefold_block::{BLOCK_BYTES_U64, BlockNo};

use super::context::Context;
use super::findings::{FILES_MAX, UntracedProblem};
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
/// Maximum number of nodes that are read again to find places. Damage of usual pools needs a small part of them; in a
/// crafted pool, as many ways as there are blocks in a file can lead to one node.
const PLACE_NODES_MAX: u32 = 1 << 20;

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
        place_nodes_left: PLACE_NODES_MAX,
        is_cut: false,
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
            for at in &hit {
                let inos = &mut found[*at].inos;
                if inos.len() < FILES_MAX && !inos.contains(&inode.attr.ino) {
                    inos.push(inode.attr.ino);
                }
            }
            let mut places = FilePlaces { found, ino: inode.attr.ino };
            if places.wants_any(&hit) {
                tracer.each_place(&inode, &mut places);
            }
        }
        Ok(())
    });
    if tracer.is_cut {
        let of_data = found.iter_mut().filter(|found| found.problem.structure == DATA && found.traced.is_some());
        of_data.for_each(|found| found.problem.has_more_places = true);
    }
}

/// The problems, with places of a file being added.
struct FilePlaces<'f> {
    found: &'f mut Vec<UntracedProblem>,
    ino: Ino,
}

impl FilePlaces<'_> {
    /// Returns whether a further place of one of these problems would be noted.
    fn wants_any(&self, problems: &[usize]) -> bool {
        let wants = |at: &usize| {
            let problem = &self.found[*at].problem;
            problem.structure == DATA && !problem.has_more_places
        };
        problems.iter().any(wants)
    }

    /// Notes a place of a problem, or that there are more than the noted ones.
    fn add(&mut self, at: usize, offset: u64) {
        let found = &mut self.found[at];
        match found.places.len() {
            _ if found.problem.structure != DATA => {}
            0..FILES_MAX => found.places.push((self.ino, offset)),
            _ => found.problem.has_more_places = true,
        }
    }
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
    /// How many more nodes may be read to find places.
    place_nodes_left: u32,
    /// Whether some places stay unknown because a maximum was reached.
    is_cut: bool,
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

    /// Adds each place of a problem's block in a file. The file has been traced, so only nodes with problems below them
    /// are read.
    fn each_place(&mut self, inode: &Inode, places: &mut FilePlaces<'_>) {
        match &inode.map {
            MapRoot::Inline(entries) => {
                for (block, entry) in (0..).zip(entries) {
                    self.add_places(*entry, block, places);
                }
            }
            MapRoot::Tree { levels, root } => self.each_place_below(*root, levels - 1, 0, places),
        }
    }

    /// Does the same below a node, whose first entry stands for block `first` of the file.
    fn each_place_below(&mut self, at: BlockNo, level: u8, first: u64, places: &mut FilePlaces<'_>) {
        let Some(left) = self.place_nodes_left.checked_sub(1) else {
            self.is_cut = true;
            return;
        };
        self.place_nodes_left = left;
        let bytes = self.blocks.block(at, BlockKind::MapNode(level)).ok().map(|bytes| Box::new(*bytes));
        let span = (FAN_OUT_LEN as u64).saturating_pow(u32::from(level));
        for index in 0..FAN_OUT_LEN {
            let Some(entry) = bytes.as_deref().and_then(|bytes| map_node::entry(bytes, index)) else { continue };
            let block = first.saturating_add(span.saturating_mul(index as u64));
            match entry {
                MapEntry::Block(_) if level == 0 => self.add_places(entry, block, places),
                MapEntry::Block(child) if self.below.get(&child).is_some_and(|hit| places.wants_any(hit)) => {
                    self.each_place_below(child, level - 1, block, places);
                }
                MapEntry::Block(_) | MapEntry::Hole | MapEntry::Reserved => {}
            }
        }
    }

    fn add_places(&self, entry: MapEntry, block: u64, places: &mut FilePlaces<'_>) {
        let mut hit = Vec::new();
        self.add_own(entry, &mut hit);
        hit.into_iter().for_each(|at| places.add(at, block.saturating_mul(BLOCK_BYTES_U64)));
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
        if self.remembered + hit.len() > REMEMBERED_MAX {
            self.is_cut = true;
        } else if !hit.is_empty() {
            self.remembered += hit.len();
            self.below.insert(at, hit.clone());
        }
        hit
    }
}
