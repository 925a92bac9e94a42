//! Images of devices in memory: sparse, and copied at almost no cost.
//!
//! An image is a radix tree whose nodes are shared between the copies. A copy costs one reference, and the first change
//! of a block after it a path of nodes. So a test can hold a million crash images that differ in a few blocks each.

use std::fmt;
use std::sync::Arc;

use onefold_block::{BLOCK_BYTES, BlockNo};

/// One block's content, shared by the images that have it in common.
pub type SharedBlock = Arc<[u8; BLOCK_BYTES]>;

const FANOUT_BITS: u32 = 5;
const FANOUT: usize = 1 << FANOUT_BITS;

/// The content of a device at one moment. Never-set blocks are zero and take no memory.
#[derive(Clone)]
pub struct MemoryImage {
    block_count: u64,
    /// Levels of the tree: `FANOUT` to this power is at least `block_count`.
    height: u32,
    root: Option<Arc<ImageNode>>,
}

#[derive(Clone)]
enum ImageNode {
    Branch([Option<Arc<ImageNode>>; FANOUT]),
    Leaf([Option<SharedBlock>; FANOUT]),
}

impl MemoryImage {
    /// Returns an image of `block_count` zero blocks.
    #[must_use]
    pub fn new(block_count: u64) -> MemoryImage {
        MemoryImage { block_count, height: height_for(block_count), root: None }
    }

    /// Returns the number of blocks.
    #[must_use]
    pub const fn block_count(&self) -> u64 {
        self.block_count
    }

    /// Returns the content of `block`; `None` if it was never set (and so is zero) or lies past the end.
    #[must_use]
    pub fn get(&self, block: BlockNo) -> Option<&SharedBlock> {
        if block.0 >= self.block_count {
            return None;
        }
        let mut node = self.root.as_deref()?;
        for level in (0..self.height).rev() {
            node = match node {
                ImageNode::Branch(children) => children[slot(block, level)].as_deref()?,
                ImageNode::Leaf(blocks) => return blocks[slot(block, level)].as_ref(),
            };
        }
        None
    }

    /// Sets the content of `block`.
    ///
    /// # Panics
    /// When `block` lies past the end.
    pub fn set(&mut self, block: BlockNo, content: SharedBlock) {
        self.replace(block, Some(content));
    }

    /// Makes `block` zero.
    ///
    /// # Panics
    /// When `block` lies past the end.
    pub fn clear(&mut self, block: BlockNo) {
        if self.get(block).is_some() {
            self.replace(block, None);
        }
    }

    /// Sets the number of blocks: added ones are zero, and those past the new end are dropped.
    pub fn resize(&mut self, block_count: u64) {
        let kept: Vec<_> = if block_count < self.block_count {
            let all = std::mem::replace(self, MemoryImage::new(0));
            all.blocks().into_iter().filter(|(block, _)| block.0 < block_count).collect()
        } else {
            self.blocks()
        };
        *self = MemoryImage::new(block_count);
        for (block, content) in kept {
            self.set(block, content);
        }
    }

    /// Returns the blocks that were set, in order.
    #[must_use]
    pub fn blocks(&self) -> Vec<(BlockNo, SharedBlock)> {
        let mut found = Vec::new();
        if let Some(root) = &self.root {
            collect(root, 0, self.height.saturating_sub(1), &mut found);
        }
        found
    }

    fn replace(&mut self, block: BlockNo, content: Option<SharedBlock>) {
        assert!(block.0 < self.block_count, "block {block} is past the image's end at {}", self.block_count);
        let mut place = &mut self.root;
        for level in (1..self.height).rev() {
            let node = place.get_or_insert_with(|| Arc::new(ImageNode::Branch([const { None }; FANOUT])));
            let ImageNode::Branch(children) = Arc::make_mut(node) else { unreachable!("leaves are at level 0") };
            place = &mut children[slot(block, level)];
        }
        let node = place.get_or_insert_with(|| Arc::new(ImageNode::Leaf([const { None }; FANOUT])));
        let ImageNode::Leaf(blocks) = Arc::make_mut(node) else { unreachable!("branches are above level 0") };
        blocks[slot(block, 0)] = content;
    }
}

/// Returns the lowest height, at least 1, of a tree that has room for `block_count` blocks.
fn height_for(block_count: u64) -> u32 {
    let index_bits = u64::BITS - block_count.saturating_sub(1).leading_zeros();
    index_bits.div_ceil(FANOUT_BITS).max(1)
}

/// Returns the slot in a node at `level` that leads to `block`.
const fn slot(block: BlockNo, level: u32) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "masked to the fan-out")]
    let low = (block.0 >> (level * FANOUT_BITS)) as usize;
    low & (FANOUT - 1)
}

fn collect(node: &ImageNode, first: u64, level: u32, into: &mut Vec<(BlockNo, SharedBlock)>) {
    match node {
        ImageNode::Branch(children) => {
            for (index, child) in (0..).zip(children) {
                if let Some(child) = child {
                    collect(child, first + (index << (level * FANOUT_BITS)), level - 1, into);
                }
            }
        }
        ImageNode::Leaf(blocks) => {
            let set = (first..).zip(blocks);
            into.extend(set.filter_map(|(block, content)| Some((BlockNo(block), Arc::clone(content.as_ref()?)))));
        }
    }
}

impl PartialEq for MemoryImage {
    /// Compares contents: a never-set block equals one set to zeros.
    fn eq(&self, other: &MemoryImage) -> bool {
        const ZERO: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
        let covers = |one: &MemoryImage, other: &MemoryImage| {
            one.blocks().iter().all(|(block, content)| match other.get(*block) {
                Some(same) => Arc::ptr_eq(content, same) || content == same,
                None => **content == ZERO,
            })
        };
        self.block_count == other.block_count && covers(self, other) && covers(other, self)
    }
}

impl Eq for MemoryImage {}

impl fmt::Debug for MemoryImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryImage").field("block_count", &self.block_count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use onefold_block::random::SeededRandom;

    fn content(byte: u8) -> SharedBlock {
        Arc::new([byte; BLOCK_BYTES])
    }

    #[test]
    fn trees_are_just_high_enough() {
        for (blocks, height) in [(0, 1), (1, 1), (32, 1), (33, 2), (1024, 2), (1025, 3), (1 << 48, 10), (u64::MAX, 13)]
        {
            assert_eq!(height_for(blocks), height, "{blocks} blocks");
        }
    }

    #[test]
    fn an_image_agrees_with_a_map_and_its_copies_do_not_change() {
        for (seed, block_count) in [(1, 20), (2, 1000), (3, 1 << 20), (4, 1 << 48)] {
            let random = SeededRandom::new(seed);
            let mut image = MemoryImage::new(block_count);
            let mut model = BTreeMap::new();
            let mut copies = Vec::new();
            for step in 0..600 {
                let block = BlockNo(random.below(block_count) >> random.below(40));
                if random.below(5) == 0 {
                    image.clear(block);
                    model.remove(&block);
                } else {
                    let content = content(u8::try_from(random.below(256)).unwrap());
                    image.set(block, Arc::clone(&content));
                    model.insert(block, content);
                }
                if step % 100 == 0 {
                    copies.push((image.clone(), model.clone()));
                }
                assert_eq!(image.get(block), model.get(&block));
            }
            copies.push((image, model));
            for (image, model) in copies {
                assert_eq!(image.blocks(), model.into_iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn growing_keeps_the_blocks_and_shrinking_forgets_those_past_the_end() {
        let mut image = MemoryImage::new(40);
        image.set(BlockNo(3), content(3));
        image.set(BlockNo(39), content(39));
        image.resize(1 << 30);
        assert_eq!(image.get(BlockNo(3)), Some(&content(3)));
        assert_eq!(image.get(BlockNo(39)), Some(&content(39)));
        image.resize(39);
        image.resize(40);
        assert_eq!(image.get(BlockNo(3)), Some(&content(3)));
        assert_eq!(image.get(BlockNo(39)), None);
    }

    #[test]
    fn equality_is_of_contents() {
        let (mut one, mut other) = (MemoryImage::new(100), MemoryImage::new(100));
        one.set(BlockNo(5), content(0));
        assert_eq!(one, other);
        other.set(BlockNo(99), content(1));
        assert_ne!(one, other);
        one.set(BlockNo(99), content(1));
        assert_eq!(one, other);
        assert_ne!(one, MemoryImage::new(101));
    }
}
