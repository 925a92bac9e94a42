//! The metadata cache: blocks by number, evicted by the clock algorithm.
//!
//! Invariants:
//! 1. A block is in the cache at most once.
//! 2. A block with uncommitted changes, or whose committed content is not yet home, is never evicted: the home copy is
//!    old. (The journal's size bounds their number, see [`super::running`].)
//! 3. A block being read from the device is registered in `loading`; if it is created or changed meanwhile, the bytes
//!    read are discarded.

use std::sync::Arc;

use onefold_block::BlockNo;

use super::hash::BlockMap;
use super::ranges::DirtyRanges;
use crate::format::BlockBytes;
use crate::format::geometry::STATE;
use crate::format::header::BlockKind;

/// Memory of one cached block, including bookkeeping, in bytes.
pub(crate) const SLOT_BYTES: u64 = 4096 + 160;

/// One cached block.
pub(crate) struct CachedBlock {
    pub(crate) block: BlockNo,
    pub(crate) kind: BlockKind,
    /// Content. The checksum in its header is valid only once the block is sealed on its way out.
    pub(crate) bytes: Arc<BlockBytes>,
    /// Bytes changed by the running transaction.
    pub(crate) dirty: Option<DirtyRanges>,
    /// The checkpoint epoch in which the journal last logged the whole block; 0 for never.
    pub(crate) logged_epoch: u64,
    /// Sequence of the newest transaction with this block whose content is not yet home; 0 for none.
    pub(crate) home_sequence: u64,
    referenced: bool,
}

impl CachedBlock {
    fn is_evictable(&self) -> bool {
        // The pool state is read without a way to wait for it, so it stays.
        self.dirty.is_none() && self.home_sequence == 0 && self.block != STATE
    }
}

/// The cache.
pub(crate) struct Cache {
    slots: Vec<Option<CachedBlock>>,
    vacant: Vec<usize>,
    index: BlockMap<usize>,
    loading: BlockMap<()>,
    hand: usize,
    capacity: usize,
    /// Number of blocks beyond the capacity that it may hold during a large operation.
    lent: usize,
}

impl Cache {
    /// Returns an empty cache for `bytes_max` bytes, but never for fewer blocks than a few operations need.
    pub(crate) fn new(bytes_max: u64) -> Cache {
        let capacity = usize::try_from(bytes_max / SLOT_BYTES).unwrap_or(usize::MAX).max(2048);
        Cache {
            slots: Vec::new(),
            vacant: Vec::new(),
            index: BlockMap::default(),
            loading: BlockMap::default(),
            hand: 0,
            capacity,
            lent: 0,
        }
    }

    /// Returns the number of cached blocks.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of blocks that it may hold without lent ones.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Lets the cache hold `blocks` blocks beyond its capacity; after 0, [`Cache::shrink`] evicts the excess.
    pub(crate) fn lend(&mut self, blocks: usize) {
        self.lent = blocks;
    }

    /// Evicts up to `most` excess blocks. Returns whether there may be more.
    pub(crate) fn shrink(&mut self, most: usize) -> bool {
        (0..most).all(|_| self.index.len() > self.capacity + self.lent && self.evict_one())
    }

    /// Returns the block's content without counting it as used.
    pub(crate) fn peek(&self, block: BlockNo) -> Option<&BlockBytes> {
        let &at = self.index.get(&block)?;
        self.slots[at].as_ref().map(|slot| &*slot.bytes)
    }

    /// Returns whether the block is cached.
    pub(crate) fn contains(&self, block: BlockNo) -> bool {
        self.index.contains_key(&block)
    }

    /// Returns the block for use.
    pub(crate) fn get(&mut self, block: BlockNo) -> Option<&mut CachedBlock> {
        let &at = self.index.get(&block)?;
        let slot = self.slots[at].as_mut()?;
        slot.referenced = true;
        Some(slot)
    }

    /// Registers that `block` will be read; returns false if it is cached or already being read.
    pub(crate) fn begin_load(&mut self, block: BlockNo) -> bool {
        !self.contains(block) && self.loading.insert(block, ()).is_none()
    }

    /// Returns whether `block` is being read.
    pub(crate) fn is_loading(&self, block: BlockNo) -> bool {
        self.loading.contains_key(&block)
    }

    /// Takes the result of a read registered with [`Cache::begin_load`], unless the block was created meanwhile. `None`
    /// means that reading failed.
    pub(crate) fn end_load(&mut self, block: BlockNo, content: Option<(BlockKind, Arc<BlockBytes>)>) {
        let expected = self.loading.remove(&block).is_some();
        if let (true, false, Some((kind, bytes))) = (expected, self.contains(block), content) {
            self.insert(block, kind, bytes);
        }
    }

    /// Inserts a block that is not cached; cancels a load of it in progress.
    pub(crate) fn insert(&mut self, block: BlockNo, kind: BlockKind, bytes: Arc<BlockBytes>) -> &mut CachedBlock {
        self.loading.remove(&block);
        self.remove(block);
        // Evicts two for one while there are too many, so that a cache that had to grow shrinks back.
        for _ in 0..2 {
            if self.index.len() >= self.capacity + self.lent {
                self.evict_one();
            }
        }
        let slot = CachedBlock { block, kind, bytes, dirty: None, logged_epoch: 0, home_sequence: 0, referenced: true };
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.index.insert(block, at);
        self.slots[at].insert(slot)
    }

    /// Drops a block, whatever its state.
    pub(crate) fn remove(&mut self, block: BlockNo) {
        if let Some(at) = self.index.remove(&block) {
            self.slots[at] = None;
            self.vacant.push(at);
        }
    }

    /// Evicts one block that was not used lately. Returns false if all are needed: the cache then exceeds its capacity
    /// until the next checkpoint, which `running` keeps near.
    fn evict_one(&mut self) -> bool {
        for _ in 0..self.slots.len() * 2 {
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(slot) = &mut self.slots[self.hand] else { continue };
            if !slot.is_evictable() {
                continue;
            }
            if slot.referenced {
                slot.referenced = false;
                continue;
            }
            let block = slot.block;
            self.remove(block);
            return true;
        }
        false
    }

    /// Returns the blocks whose content here is newer than on the device.
    pub(crate) fn blocks_not_home(&self) -> impl Iterator<Item = (BlockNo, BlockKind)> + '_ {
        let newer = |slot: &&CachedBlock| slot.dirty.is_some() || slot.home_sequence != 0;
        self.slots.iter().flatten().filter(newer).map(|slot| (slot.block, slot.kind))
    }

    /// Visits all cached blocks.
    #[cfg(test)]
    fn for_each(&mut self, mut visit: impl FnMut(&mut CachedBlock)) {
        self.slots.iter_mut().flatten().for_each(&mut visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::BLOCK_BYTES;

    fn filled(count: u64) -> Cache {
        let mut cache = Cache::new(0);
        for block in 0..count {
            cache.insert(BlockNo(block), BlockKind::Bitmap, Arc::new([0; BLOCK_BYTES]));
        }
        cache
    }

    #[test]
    fn the_cache_keeps_its_capacity_and_recently_used_blocks() {
        let mut cache = filled(2048);
        cache.for_each(|slot| slot.referenced = false);
        cache.get(BlockNo(7)).unwrap();
        for block in 10_000..10_900 {
            cache.insert(BlockNo(block), BlockKind::Bitmap, Arc::new([0; BLOCK_BYTES]));
        }
        assert_eq!(cache.len(), 2048);
        assert!(cache.contains(BlockNo(7)));
    }

    #[test]
    fn lent_room_is_taken_back_but_for_blocks_that_are_needed() {
        let mut cache = filled(2048);
        cache.lend(1000);
        for block in 10_000..10_900 {
            cache.insert(BlockNo(block), BlockKind::Bitmap, Arc::new([0; BLOCK_BYTES])).home_sequence = 1;
        }
        assert_eq!(cache.len(), 2948);
        assert!(!cache.shrink(10), "none is too many");
        cache.lend(0);
        assert!(cache.shrink(10) && cache.len() == 2938);
        assert!(!cache.shrink(5000));
        assert_eq!(cache.len(), 2048);
        assert!((10_000..10_900).all(|block| cache.contains(BlockNo(block))));
    }

    #[test]
    fn blocks_with_changes_that_are_not_home_are_never_evicted() {
        let mut cache = filled(2048);
        for block in 0..2048 {
            let slot = cache.get(BlockNo(block)).unwrap();
            if block % 2 == 0 { slot.dirty = Some(DirtyRanges::default()) } else { slot.home_sequence = 3 }
        }
        for block in 10_000..10_100 {
            cache.insert(BlockNo(block), BlockKind::Bitmap, Arc::new([0; BLOCK_BYTES]));
        }
        assert!((0..2048).all(|block| cache.contains(BlockNo(block))));
    }

    #[test]
    fn a_block_created_while_it_is_read_keeps_the_created_content() {
        let mut cache = Cache::new(0);
        assert!(cache.begin_load(BlockNo(5)));
        assert!(!cache.begin_load(BlockNo(5)));
        cache.insert(BlockNo(5), BlockKind::State, Arc::new([1; BLOCK_BYTES]));
        cache.remove(BlockNo(5));
        cache.end_load(BlockNo(5), Some((BlockKind::State, Arc::new([9; BLOCK_BYTES]))));
        assert!(!cache.contains(BlockNo(5)), "what was read before the creation is old");
    }
}
