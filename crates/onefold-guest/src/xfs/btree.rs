//! B+trees: those of a group (free space, inodes, reference counts, owners) and those of a file's map.
//!
//! From "XFS Filesystem Structure", chapters "B+trees" and "Allocation Groups". A block begins with a header. It is the
//! same for all kinds of trees, except for the width of their links:
//!
//! | field                | group | file  | notes                                             |
//! |----------------------|-------|-------|---------------------------------------------------|
//! | magic                | 0..4  | 0..4  | another one in version 5                          |
//! | level                | 4..6  | 4..6  | leaves have 0                                     |
//! | records              | 6..8  | 6..8  | keys of an inner block                            |
//! | left and right block | 8..16 | 8..24 |                                                   |
//! | place                | 16..24 | 24..32 | from here on version 5 only                     |
//! | log sequence number  | 24..32 | 32..40 |                                                 |
//! | UUID                 | 32..48 | 40..56 |                                                 |
//! | owner                | 48..52 | 56..64 | group, or inode                                 |
//! | checksum             | 52..56 | 64..68 | a file's has four zero bytes behind             |
//!
//! The records of a leaf follow. An inner block has all keys first. Its pointers begin where the last key would end in
//! a full block.
//!
//! Hostile trees: the level decreases by one with each step down. The keys of a subtree are between its own key and the
//! next one, and only a root is empty, so a block with two parents fails under the second. A walk over a tree of a
//! group continues after damage, and the tree of owners may have equal keys, so each of their blocks is only visited
//! once. A tree has at most [`Tree::blocks_max`] blocks.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::Xfs;
use super::seal::{OwnerField, Seal, StructureBytes};
use crate::bytes::Bytes;
use crate::error::{Damage, GuestError};

/// Limit for the number of levels. The deepest tree of an intact file system has fewer.
pub(super) const LEVELS_MAX: u32 = 12;

/// The number by which records and keys are sorted.
type Order = fn(Bytes<'_>) -> Option<u64>;

/// Layout of the blocks of a kind of tree.
#[derive(Debug)]
pub(super) struct TreeForm {
    /// Its name, for messages.
    pub(super) name: &'static str,
    /// The magic numbers of versions 4 and 5.
    pub(super) magic: [u32; 2],
    /// Whether it belongs to a group or a file.
    pub(super) links: LinkWidth,
    /// Bytes of a key in an inner block.
    pub(super) key_bytes: usize,
    /// Bytes of a record.
    pub(super) record_bytes: usize,
    /// The order of keys.
    pub(super) key_order: Order,
    /// The order of records.
    pub(super) record_order: Order,
    /// Whether two records may be equal in this order.
    pub(super) has_equals: bool,
}

/// The width of the links between a tree's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkWidth {
    /// Four bytes: blocks of one group.
    Group,
    /// Eight bytes: blocks anywhere.
    File,
}

/// The places of the fields in the header of a block, and the header's end.
impl LinkWidth {
    fn seal(self) -> Seal {
        match self {
            LinkWidth::Group => Seal { checksum: 52, uuid: 32, place: Some(16), owner: OwnerField::Short(48) },
            LinkWidth::File => Seal { checksum: 64, uuid: 40, place: Some(24), owner: OwnerField::Long(56) },
        }
    }

    fn header_bytes(self, is_v5: bool) -> usize {
        match (self, is_v5) {
            (LinkWidth::Group, false) => 16,
            (LinkWidth::Group, true) => 56,
            (LinkWidth::File, false) => 24,
            (LinkWidth::File, true) => 72,
        }
    }

    fn pointer_bytes(self) -> usize {
        match self {
            LinkWidth::Group => 4,
            LinkWidth::File => 8,
        }
    }
}

/// Step of a walk.
#[derive(Debug)]
pub(super) enum Step<'b> {
    /// An intact block of the tree, by its linear number. It comes before its content.
    Block(u64),
    /// A record.
    Record(Bytes<'b>),
    /// A part of the tree that cannot be read.
    Damage(Damage),
}

/// Called with each step of a walk, until it breaks.
pub(super) type StepVisit<'v> = dyn FnMut(Step<'_>) -> Result<ControlFlow<()>, GuestError> + 'v;

/// A tree whose root is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    /// Its kind.
    pub(super) form: &'static TreeForm,
    /// Its group; 0 for the map of a file.
    pub(super) group: u32,
    /// The owner that its blocks record: group or inode.
    pub(super) owner: u64,
    /// Maximum number of its blocks.
    pub(super) blocks_max: u64,
}

/// The keys and pointers of an inner block, or of a root in an inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct InnerBlock<'b> {
    /// From the first key to the end of the block.
    pub(super) bytes: Bytes<'b>,
    /// The level of its children.
    pub(super) level: u32,
    /// The number of keys.
    pub(super) count: usize,
    /// The place of the block in the volume, for messages.
    pub(super) place: u64,
}

/// The keys that a subtree may have.
#[derive(Clone, Copy, Debug)]
struct Span {
    low: u64,
    high: Option<u64>,
}

/// One walk through a tree.
pub(super) struct Walk<'w, 'a> {
    xfs: &'w Xfs<'a>,
    tree: Tree,
    /// Subtrees that end before this key are skipped.
    from: u64,
    blocks_left: u64,
    /// The visited blocks of a group's tree, by their place in the group. Blocks of a file's map are not remembered,
    /// because damage ends such a walk.
    met: HashSet<u64>,
    /// Whether the root is a leaf, which may be empty.
    is_leaf_alone: bool,
}

impl<'w, 'a> Walk<'w, 'a> {
    /// Returns a walk from the last record whose key is at most `from`, or from the first one.
    pub(super) fn new(xfs: &'w Xfs<'a>, tree: Tree, from: u64) -> Walk<'w, 'a> {
        Walk { xfs, tree, from, blocks_left: tree.blocks_max, met: HashSet::new(), is_leaf_alone: false }
    }

    /// Walks a tree of a group, whose root is a separate block.
    pub(super) fn run(mut self, root: u32, levels: u32, visit: &mut StepVisit<'_>) -> Result<(), GuestError> {
        if levels == 0 || levels > LEVELS_MAX {
            let place = self.xfs.superblock.group_place(self.tree.group);
            return visit(Step::Damage(self.damage(place, "its number of levels is impossible"))).map(|_| ());
        }
        self.is_leaf_alone = levels == 1;
        let whole = Span { low: 0, high: None };
        self.descend(u64::from(root), levels - 1, whole, visit).map(|_| ())
    }

    /// Walks a tree whose root is in an inode.
    pub(super) fn run_from(mut self, root: InnerBlock<'_>, visit: &mut StepVisit<'_>) -> Result<(), GuestError> {
        self.each_child(root, Span { low: 0, high: None }, visit).map(|_| ())
    }

    fn damage(&self, place: u64, problem: &'static str) -> Damage {
        self.xfs.reader.damage(place, self.tree.form.name, problem)
    }

    /// Visits the subtree of a block; `level` is the expected level of the block.
    fn descend(
        &mut self,
        pointer: u64,
        level: u32,
        span: Span,
        visit: &mut StepVisit<'_>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let (linear, block) = match self.read(pointer, level) {
            Ok(read) => read,
            Err(GuestError::Damaged(damage)) => return visit(Step::Damage(damage)),
            Err(error) => return Err(error),
        };
        if visit(Step::Block(linear))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let place = linear << self.xfs.superblock.block_log;
        let header = self.tree.form.links.header_bytes(self.xfs.superblock.features.is_v5());
        let count = usize::from(Bytes(&block).be16(6).unwrap_or(0));
        let bytes = Bytes(block.get(header..).unwrap_or(&[]));
        if level == 0 {
            self.each_record(bytes, count, place, span, visit)
        } else {
            self.each_child(InnerBlock { bytes, level: level - 1, count, place }, span, visit)
        }
    }

    /// Reads a block of the tree, and checks its header. Also returns its linear number.
    fn read(&mut self, pointer: u64, level: u32) -> Result<(u64, Vec<u8>), GuestError> {
        let (superblock, form) = (&self.xfs.superblock, self.tree.form);
        let linear = match form.links {
            LinkWidth::Group => {
                u32::try_from(pointer).ok().and_then(|block| superblock.linear(self.tree.group, block, 1))
            }
            LinkWidth::File => superblock.linear_run(pointer, 1),
        };
        let outside = || self.damage(superblock.group_place(self.tree.group), "it has a block that does not exist");
        let linear = linear.ok_or_else(outside)?;
        let place = linear << superblock.block_log;
        self.blocks_left = match self.blocks_left.checked_sub(1) {
            Some(left) => left,
            None => return Err(self.damage(place, "it has more blocks than there can be").into()),
        };
        if form.links == LinkWidth::Group && !self.met.insert(pointer) {
            return Err(self.damage(place, "it has a block twice").into());
        }
        let block = self.xfs.reader.bytes(place, superblock.block_bytes, form.name)?;
        let [v4, v5] = form.magic;
        let magic = if superblock.features.is_v5() { v5 } else { v4 };
        if Bytes(&block).be32(0) != Some(magic) {
            return Err(self.damage(place, "its block is something else").into());
        }
        let found = StructureBytes { bytes: Bytes(&block), place, structure: form.name };
        self.xfs.check_seal(found, &form.links.seal(), self.tree.owner)?;
        if Bytes(&block).be16(4).map(u32::from) != Some(level) {
            return Err(self.damage(place, "its block has another level").into());
        }
        if Bytes(&block).be16(6) == Some(0) && !self.is_leaf_alone {
            return Err(self.damage(place, "its block is empty").into());
        }
        Ok((linear, block))
    }

    fn each_record(
        &self,
        bytes: Bytes<'_>,
        count: usize,
        place: u64,
        span: Span,
        visit: &mut StepVisit<'_>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let form = self.tree.form;
        let mut before = None;
        for index in 0..count {
            let record = bytes.part(index * form.record_bytes, form.record_bytes);
            let Some((record, order)) = record.and_then(|record| Some((record, (form.record_order)(record)?))) else {
                return visit(Step::Damage(self.damage(place, "it has more records than fit")));
            };
            if !self.is_after(order, before, span) {
                return visit(Step::Damage(self.damage(place, "its records are out of order")));
            }
            before = Some(order);
            if visit(Step::Record(record))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn each_child(
        &mut self,
        inner: InnerBlock<'_>,
        span: Span,
        visit: &mut StepVisit<'_>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let pointer_bytes = self.tree.form.links.pointer_bytes();
        let count_max = inner.bytes.len() / (self.tree.form.key_bytes + pointer_bytes);
        if inner.count == 0 || inner.count > count_max {
            return visit(Step::Damage(self.damage(inner.place, "its number of keys is impossible")));
        }
        let mut before = None;
        for index in 0..inner.count {
            let Some((low, pointer)) = self.child(inner, count_max, index) else {
                return visit(Step::Damage(self.damage(inner.place, "its block is too short")));
            };
            if !self.is_after(low, before, span) {
                return visit(Step::Damage(self.damage(inner.place, "its keys are out of order")));
            }
            before = Some(low);
            let next =
                if index + 1 < inner.count { self.child(inner, count_max, index + 1).map(|next| next.0) } else { None };
            if next.is_some_and(|next| next <= self.from && next > low) {
                continue;
            }
            let span = Span { low, high: next.or(span.high) };
            if self.descend(pointer, inner.level, span, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns a child's key and pointer.
    fn child(&self, inner: InnerBlock<'_>, count_max: usize, index: usize) -> Option<(u64, u64)> {
        let form = self.tree.form;
        let key = inner.bytes.part(index * form.key_bytes, form.key_bytes)?;
        let at = count_max * form.key_bytes + index * form.links.pointer_bytes();
        let pointer = match form.links {
            LinkWidth::Group => u64::from(inner.bytes.be32(at)?),
            LinkWidth::File => inner.bytes.be64(at)?,
        };
        Some(((form.key_order)(key)?, pointer))
    }

    /// Returns whether `order` may follow `before`.
    fn is_after(&self, order: u64, before: Option<u64>, span: Span) -> bool {
        let rises = before.is_none_or(|before| order > before || (self.tree.form.has_equals && order == before));
        let ends = span.high.is_none_or(|high| order < high || (self.tree.form.has_equals && order == high));
        rises && order >= span.low && ends
    }
}
