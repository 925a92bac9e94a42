//! The data cache: file blocks by *physical* number, so that twenty booting clones keep one copy of their shared
//! blocks.
//!
//! A block is inserted while a reader's range lock or a pin keeps it from being freed, and removed before it is
//! rewritten. Large reads bypass the cache: they would only evict blocks that are read again.

use onefold_block::{BLOCK_BYTES, BlockNo};

use crate::meta::hash::BlockMap;
use crate::sync::Mutex;

/// Maximum number of blocks in a cached read.
pub(crate) const CACHED_READ_BLOCKS: usize = 32;
/// Number of independent parts, so that readers rarely contend.
const SHARDS: usize = 16;
const ENTRY_BYTES: u64 = BLOCK_BYTES as u64 + 96;

struct CacheSlot {
    block: BlockNo,
    bytes: Box<[u8; BLOCK_BYTES]>,
    referenced: bool,
}

#[derive(Default)]
struct CacheShard {
    slots: Vec<CacheSlot>,
    index: BlockMap<usize>,
    hand: usize,
}

/// The cache.
pub(crate) struct DataCache {
    shards: Vec<Mutex<CacheShard>>,
    slots_per_shard: usize,
}

impl DataCache {
    /// Returns an empty cache of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> DataCache {
        let slots = usize::try_from(bytes_max / ENTRY_BYTES).unwrap_or(usize::MAX);
        DataCache { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), slots_per_shard: slots / SHARDS }
    }

    fn shard(&self, block: BlockNo) -> &Mutex<CacheShard> {
        let at = usize::try_from(block.0 % SHARDS as u64).expect("below 16");
        &self.shards[at]
    }

    /// Copies a block out of the cache, if it is there.
    pub(crate) fn read(&self, block: BlockNo, into: &mut [u8]) -> bool {
        let mut shard = self.shard(block).lock();
        let Some(&at) = shard.index.get(&block) else { return false };
        let slot = &mut shard.slots[at];
        slot.referenced = true;
        into.copy_from_slice(&slot.bytes[..]);
        true
    }

    /// Inserts a block. `bytes` is one block.
    pub(crate) fn insert(&self, block: BlockNo, bytes: &[u8]) {
        let Ok(bytes) = <&[u8; BLOCK_BYTES]>::try_from(bytes) else { return };
        let mut shard = self.shard(block).lock();
        let shard = &mut *shard;
        if let Some(&at) = shard.index.get(&block) {
            *shard.slots[at].bytes = *bytes;
            return;
        }
        if shard.slots.len() < self.slots_per_shard {
            shard.index.insert(block, shard.slots.len());
            shard.slots.push(CacheSlot { block, bytes: Box::new(*bytes), referenced: false });
            return;
        }
        if shard.slots.is_empty() {
            return;
        }
        // The clock algorithm: every entry used since the hand last passed it stays for one more round.
        loop {
            shard.hand = (shard.hand + 1) % shard.slots.len();
            let slot = &mut shard.slots[shard.hand];
            if !slot.referenced {
                shard.index.remove(&slot.block);
                slot.block = block;
                *slot.bytes = *bytes;
                shard.index.insert(block, shard.hand);
                return;
            }
            slot.referenced = false;
        }
    }

    /// Removes a block whose content is about to change.
    pub(crate) fn forget(&self, block: BlockNo) {
        let mut shard = self.shard(block).lock();
        let shard = &mut *shard;
        if let Some(at) = shard.index.remove(&block) {
            shard.slots.swap_remove(at);
            if let Some(moved) = shard.slots.get(at) {
                shard.index.insert(moved.block, at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_of(byte: u8) -> [u8; BLOCK_BYTES] {
        [byte; BLOCK_BYTES]
    }

    #[test]
    fn what_was_put_in_is_read_until_it_is_forgotten() {
        let cache = DataCache::new(1 << 20);
        let mut into = [0; BLOCK_BYTES];
        assert!(!cache.read(BlockNo(5), &mut into));
        cache.insert(BlockNo(5), &block_of(7));
        cache.insert(BlockNo(21), &block_of(8));
        assert!(cache.read(BlockNo(5), &mut into) && into == block_of(7));
        cache.forget(BlockNo(5));
        assert!(!cache.read(BlockNo(5), &mut into));
        assert!(cache.read(BlockNo(21), &mut into) && into == block_of(8));
    }

    #[test]
    fn the_cache_stays_within_its_bytes_and_keeps_what_is_used() {
        let cache = DataCache::new(64 * ENTRY_BYTES);
        let mut into = [0; BLOCK_BYTES];
        for block in 0..1000 {
            cache.insert(BlockNo(block), &block_of(block.to_le_bytes()[0]));
            assert!(block < 16 || cache.read(BlockNo(3), &mut into), "block 3 is read all the time");
        }
        let held: usize = cache.shards.iter().map(|shard| shard.lock().slots.len()).sum();
        assert!(held <= 64, "{held}");
    }
}
