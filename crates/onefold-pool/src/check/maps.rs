//! File maps: walks them all, each node once however many files share it, and counts their references.

use onefold_block::BlockNo;

use super::context::Context;
use super::context::{CheckMeter, ensure_fits};
use super::findings::CheckFindings;
use super::inodes::TreeContent;
use super::node_set::{NodeSet, Visit};
use super::reader::{CheckError, MetadataReader};
use super::span::{GroupSpan, ReferenceTrouble, SpanTotals};
use crate::attr::{FileKind, Ino};
use crate::format::BlockBytes;
use crate::format::geometry::{GROUP_BLOCKS, Geometry};
use crate::format::header::BlockKind;
use crate::format::inode::{INLINE_ENTRIES, Inode, MapRoot};
use crate::format::items::{self, ItemKind, ReclaimItem};
use crate::format::map_node::{self, FAN_OUT_LEN, MapEntry, MapTotals};
use crate::format::state::Field;
use crate::format::store_page::BlockUse;
use crate::map::entry_index;
use crate::names::inodes::blocks_spanned;
use crate::tree::{self, TreeFinding};

/// Number of nodes after which the caller is asked whether to continue.
const NODES_PER_QUESTION: u32 = 256;
/// Maximum number of files with data past their end that one repair handles.
const PAST_END_MAX: usize = 1 << 16;

/// Walks over all maps while one span's references are counted.
struct Walker<'c, 'a> {
    blocks: &'c mut MetadataReader<'a>,
    findings: &'c mut CheckFindings,
    meter: &'c mut CheckMeter<'a>,
    geometry: Geometry,
    /// Blocks from here on are in no block group in use.
    end: u64,
    memory_bytes: u64,
    span: &'c mut GroupSpan,
    sums: &'c mut SpanTotals,
    reclaimed: &'c [ReclaimItem],
    /// Whether this is the first walk, which checks the nodes themselves; the others only count.
    is_first: bool,
    nodes: NodeSet,
    unasked: u32,
    is_incomplete: bool,
}

/// The owner of a map that is walked.
#[derive(Clone, Copy)]
struct MapOwner {
    ino: Option<Ino>,
    domain: Option<u16>,
}

/// Counts the references of the names tree, of all files and of the reclaim list.
pub(super) fn walk(
    context: &mut Context<'_>,
    span: &mut GroupSpan,
    listed: &TreeContent,
    is_first: bool,
    sums: &mut SpanTotals,
) -> Result<(), CheckError> {
    let root = BlockNo(context.field(Field::TreeRoot));
    let end = (context.groups_ready() * GROUP_BLOCKS).min(context.geometry.total_blocks);
    let mut walker = Walker {
        blocks: &mut context.blocks,
        findings: &mut context.findings,
        meter: &mut context.meter,
        geometry: context.geometry,
        end,
        memory_bytes: context.memory_bytes,
        span,
        sums,
        reclaimed: &listed.reclaimed,
        is_first,
        nodes: NodeSet::default(),
        unasked: 0,
        is_incomplete: context.is_incomplete,
    };
    tree::check(&mut context.tree, root, &mut |finding| match finding {
        TreeFinding::Page { at } => walker.tree_page(at),
        TreeFinding::Item { key, value } if items::item_kind(&key) == Some(ItemKind::Inode) => {
            match Inode::decode(Ino(key.ino), value) {
                Some(inode) if inode.attr.kind == FileKind::Regular => walker.file(&inode),
                // The walk over the names reports damage; other kinds have no map.
                _ => Ok(()),
            }
        }
        TreeFinding::Item { .. } | TreeFinding::Damage(_) => Ok(()),
        TreeFinding::Unreadable { error: CheckError::Unusable(_), .. } => Ok(()),
        TreeFinding::Unreadable { error, .. } => Err(error),
    })?;
    // After the files, so that subtrees that files still show are walked as theirs.
    for item in &listed.reclaimed {
        walker.node(item.node, item.level, MapOwner { ino: None, domain: None }, 0)?;
    }
    let is_incomplete = walker.is_incomplete;
    context.is_incomplete |= is_incomplete;
    Ok(())
}

impl Walker<'_, '_> {
    fn can_hold(&self, block: BlockNo) -> bool {
        block.0 < self.end && self.geometry.is_allocatable(block)
    }

    fn tree_page(&mut self, at: BlockNo) -> Result<(), CheckError> {
        if !self.can_hold(at) {
            if self.is_first {
                self.findings.tell("names tree", Some(at), "a page is recorded at an impossible place");
            }
        } else if let Some(ReferenceTrouble::Use(usage)) = self.span.refer(at, BlockUse::TreePage, None) {
            let what = format!("the block is a page of the names tree, but is recorded as {}", name(usage));
            self.findings.tell("reference count", Some(at), what);
        }
        self.meter.advance(0)
    }

    fn file(&mut self, inode: &Inode) -> Result<(), CheckError> {
        let owner = MapOwner { ino: Some(inode.attr.ino), domain: Some(inode.attr.domain) };
        let totals = match &inode.map {
            MapRoot::Inline(entries) => Some(self.inline(entries, inode, owner)),
            MapRoot::Tree { levels, root } => {
                let totals = self.node(*root, levels - 1, owner, 0)?;
                if self.is_first {
                    self.past_end(inode, *root, *levels);
                }
                totals
            }
        };
        if self.is_first
            && let Some(MapTotals { mapped, reserved }) = totals
            && (i64::try_from(inode.mapped) != Ok(mapped) || i64::try_from(inode.reserved_blocks) != Ok(reserved))
        {
            let (mapped_by_inode, reserved_by_inode) = (inode.mapped, inode.reserved_blocks);
            let what = format!(
                "{mapped_by_inode} mapped and {reserved_by_inode} reserved blocks, expected {mapped} and {reserved} by its map"
            );
            self.findings.tell_of(inode.attr.ino, "inode", None, what);
        }
        Ok(())
    }

    fn inline(&mut self, entries: &[MapEntry; INLINE_ENTRIES], inode: &Inode, owner: MapOwner) -> MapTotals {
        let mut totals = MapTotals::default();
        let end = blocks_spanned(inode.attr.size_bytes);
        for (index, entry) in (0..).zip(entries) {
            match *entry {
                MapEntry::Hole => {}
                MapEntry::Reserved => {
                    totals.reserved += 1;
                    if self.is_first {
                        self.sums.reserved += 1;
                    }
                }
                MapEntry::Block(block) => {
                    totals.mapped += 1;
                    self.data(block, owner, index);
                    if index >= end && self.is_first {
                        self.tell_past_end(inode);
                    }
                }
            }
        }
        totals
    }

    /// Walks the subtree of a node that some parent names. Returns the totals in its header if it is usable.
    fn node(&mut self, at: BlockNo, level: u8, owner: MapOwner, first: u64) -> Result<Option<MapTotals>, CheckError> {
        if !self.can_hold(at) {
            if self.is_first {
                let what = format!("the map from block {first} of the file on is recorded at an impossible place");
                self.tell(owner, at, what);
            }
            return Ok(None);
        }
        self.refer_to_node(at, owner);
        match self.nodes.visit(at, level) {
            Visit::First => {}
            Visit::Again(known) if known == level => {
                return Ok(if self.is_first { self.totals(at, level) } else { None });
            }
            Visit::Again(known) => {
                if self.is_first {
                    let what = format!("it is used at level {level} and at level {known} of file maps");
                    self.findings.tell_users_of(at, "file map", what);
                }
                return Ok(None);
            }
        }
        self.ask()?;
        let Some(bytes) = self.read_node(at, level) else { return Ok(None) };
        let below = self.below(&bytes, (at, level), owner, first)?;
        let totals = map_node::totals(&bytes);
        let is_reclaimed = self.reclaimed.binary_search_by_key(&at, |item| item.node).is_ok();
        if self.is_first && !is_reclaimed && below.is_some() && below != totals {
            let what = "its numbers of mapped and reserved blocks do not match the subtree below it";
            self.findings.tell_users_of(at, "file map", what);
        }
        Ok(totals)
    }

    /// Counts a reference to a node, and reports a block that is recorded with another use or domain.
    fn refer_to_node(&mut self, at: BlockNo, owner: MapOwner) {
        match self.span.refer(at, BlockUse::MapNode, owner.domain) {
            Some(ReferenceTrouble::Use(usage)) => {
                let what = format!("the block is part of a file map, but is recorded as {}", name(usage));
                self.findings.tell_users_of(at, "reference count", what);
            }
            Some(ReferenceTrouble::Domain(_)) => {
                self.findings.mixed_domains = true;
                self.findings.tell_users_of(at, "file map", "files of different sharing domains refer to it");
            }
            None => {}
        }
    }

    /// Reads a node; for one of level 1, also reads its leaves ahead. `None` if it is damaged.
    fn read_node(&mut self, at: BlockNo, level: u8) -> Option<Box<BlockBytes>> {
        let bytes = match self.blocks.block(at, BlockKind::MapNode(level)) {
            Ok(bytes) => Box::new(*bytes),
            Err(what) => {
                self.is_incomplete = true;
                if self.is_first {
                    let what = format!("up to {} blocks of the file are lost: {what}", map_node::entry_span(level + 1));
                    self.findings.tell_users_of(at, "file map", what);
                }
                return None;
            }
        };
        if level == 1 {
            let children = (0..FAN_OUT_LEN).filter_map(|index| match map_node::entry(&bytes, index) {
                Some(MapEntry::Block(child)) if self.is_first || !self.nodes.has(child) => Some(child),
                _ => None,
            });
            self.blocks.prefetch(children);
        }
        Some(bytes)
    }

    /// Walks the subtree below a node, given by place and level, that begins with block `first` of its file. Returns
    /// the totals found there; `None` if a part of it is unusable.
    fn below(
        &mut self,
        bytes: &BlockBytes,
        (at, level): (BlockNo, u8),
        owner: MapOwner,
        first: u64,
    ) -> Result<Option<MapTotals>, CheckError> {
        let mut below = Some(MapTotals::default());
        for index in 0..FAN_OUT_LEN {
            let place = first + index as u64 * map_node::entry_span(level);
            let found = match map_node::entry(bytes, index) {
                Some(MapEntry::Hole) => Some(MapTotals::default()),
                Some(MapEntry::Reserved) => Some(self.reserved(level)),
                Some(MapEntry::Block(block)) if level == 0 => {
                    self.data(block, owner, place);
                    Some(MapTotals { mapped: 1, reserved: 0 })
                }
                Some(MapEntry::Block(child)) => self.node(child, level - 1, owner, place)?,
                None => {
                    if self.is_first {
                        self.findings.tell_users_of(at, "file map", format!("entry {index} makes no sense"));
                    }
                    None
                }
            };
            below = below.zip(found).map(|(mut sum, found)| {
                sum += found;
                sum
            });
        }
        Ok(below)
    }

    fn reserved(&mut self, level: u8) -> MapTotals {
        if self.is_first {
            self.sums.reserved += map_node::reserve_blocks(level);
        }
        MapTotals { mapped: 0, reserved: i64::try_from(map_node::entry_span(level)).expect("at most 508^3") }
    }

    fn data(&mut self, block: BlockNo, owner: MapOwner, index: u64) {
        if !self.can_hold(block) {
            if self.is_first {
                self.tell(owner, block, format!("block {index} of the file is recorded at an impossible place"));
            }
            return;
        }
        let what = match self.span.refer(block, BlockUse::Data, owner.domain) {
            Some(ReferenceTrouble::Use(usage)) => format!("the block is file data, but is recorded as {}", name(usage)),
            Some(ReferenceTrouble::Domain(domain)) => {
                self.findings.mixed_domains = true;
                format!("the block belongs to sharing domain {domain}, but is used by a file of another one")
            }
            None => return,
        };
        self.findings.tell_users_of(block, "reference count", what);
    }

    fn totals(&mut self, at: BlockNo, level: u8) -> Option<MapTotals> {
        self.blocks.block(at, BlockKind::MapNode(level)).ok().and_then(map_node::totals)
    }

    /// Looks for data past the end of the file: on the path down to the end, everything to the right must be empty.
    fn past_end(&mut self, inode: &Inode, root: BlockNo, levels: u8) {
        let end = blocks_spanned(inode.attr.size_bytes);
        if end >= map_node::entry_span(levels) {
            return;
        }
        let mut node = root;
        for level in (0..levels).rev() {
            let Ok(bytes) = self.blocks.block(node, BlockKind::MapNode(level)) else { return };
            let bytes = Box::new(*bytes);
            let at = entry_index(end, level);
            let right = if level == 0 { at } else { at + 1 };
            for index in right..FAN_OUT_LEN {
                let Some(MapEntry::Block(below)) = map_node::entry(&bytes, index) else { continue };
                if level == 0 || self.totals(below, level - 1).is_some_and(|totals| totals.mapped > 0) {
                    self.tell_past_end(inode);
                    return;
                }
            }
            match map_node::entry(&bytes, at) {
                Some(MapEntry::Block(below)) => node = below,
                _ => return,
            }
        }
    }

    fn tell_past_end(&mut self, inode: &Inode) {
        self.findings.tell_of(inode.attr.ino, "file map", None, "it has data past its end");
        if self.findings.past_end.last() != Some(&inode.attr.ino) && self.findings.past_end.len() < PAST_END_MAX {
            self.findings.past_end.push(inode.attr.ino);
        }
    }

    fn tell(&mut self, owner: MapOwner, at: BlockNo, what: String) {
        match owner.ino {
            Some(_) => self.findings.tell_users_of(at, "file map", what),
            None => self.findings.tell("reclaim list", Some(at), what),
        }
    }

    /// Asks the caller now and then whether to continue.
    fn ask(&mut self) -> Result<(), CheckError> {
        self.unasked += 1;
        if self.unasked < NODES_PER_QUESTION {
            return Ok(());
        }
        self.unasked = 0;
        let taken = usize::try_from(self.nodes.memory_bytes()).unwrap_or(usize::MAX);
        ensure_fits(taken, 1, self.memory_bytes / 4, self.memory_bytes)?;
        self.meter.advance(0)
    }
}

fn name(usage: BlockUse) -> &'static str {
    match usage {
        BlockUse::Free => "free",
        BlockUse::Data => "file data",
        BlockUse::MapNode => "part of a file map",
        BlockUse::TreePage => "a page of the names tree",
    }
}
