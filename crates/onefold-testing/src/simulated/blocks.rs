//! The blocks of the simulated device: the content of each, and its reference count.

use std::collections::BTreeSet;
use std::io;

use rustix::io::Errno;

use super::content::Content;

/// A block of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PhysicalNo(pub(super) u32);

impl PhysicalNo {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
struct PhysicalBlock {
    count: u32,
    /// `None` when it is free.
    content: Option<Content>,
    /// Whether several places have referred to it since it was allocated.
    was_shared: bool,
    /// Number of blocks allocated up to and including this one.
    generation: u64,
}

/// All blocks of the device.
///
/// Invariants, which [`super::checks`] compares with the maps of all files:
/// 1. A block's count is the number of places in files that refer to it.
/// 2. A block is free exactly when its count is 0, and counted as used otherwise.
/// 3. At most `limit` blocks are used.
#[derive(Debug)]
pub(super) struct BlockTable {
    blocks: Vec<PhysicalBlock>,
    /// Free blocks among those that were used before.
    freed: BTreeSet<u32>,
    used: u32,
    limit: u32,
    /// Number of allocations so far.
    generation: u64,
}

impl BlockTable {
    pub(super) fn new(limit: u32) -> BlockTable {
        BlockTable { blocks: Vec::new(), freed: BTreeSet::new(), used: 0, limit, generation: 0 }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns a number that grows with each allocation.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the value of that number when a block was allocated.
    pub(super) fn generation_of(&self, block: PhysicalNo) -> u64 {
        self.blocks[block.index()].generation
    }

    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Returns how many blocks were ever used; their numbers are below that.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn count(&self, block: PhysicalNo) -> u32 {
        self.blocks[block.index()].count
    }

    pub(super) fn was_shared(&self, block: PhysicalNo) -> bool {
        self.blocks[block.index()].was_shared
    }

    /// Returns the content of an allocated block.
    pub(super) fn content(&self, block: PhysicalNo) -> &Content {
        self.blocks[block.index()].content.as_ref().expect("a block that is referred to is allocated")
    }

    /// Takes a free block, the wanted one if it is free. Its count is 0: the caller refers to it at once.
    pub(super) fn allocate(&mut self, wanted: Option<PhysicalNo>, content: Content) -> io::Result<PhysicalNo> {
        if self.used == self.limit {
            return Err(Errno::NOSPC.into());
        }
        self.used += 1;
        self.generation += 1;
        let fresh = u32::try_from(self.blocks.len()).expect("at most the limit, a u32");
        let number = match wanted {
            Some(PhysicalNo(number)) if self.freed.remove(&number) => number,
            Some(PhysicalNo(number)) if number == fresh && number < self.limit => fresh,
            _ => self.freed.pop_first().unwrap_or(fresh),
        };
        let block = PhysicalBlock { count: 0, content: Some(content), was_shared: false, generation: self.generation };
        if number == fresh {
            self.blocks.push(block);
        } else {
            self.blocks[number as usize] = block;
        }
        Ok(PhysicalNo(number))
    }

    /// Changes the content of a block, in place.
    pub(super) fn set_content(&mut self, block: PhysicalNo, content: Content) {
        self.blocks[block.index()].content = Some(content);
    }

    /// Counts one more reference to the block.
    pub(super) fn raise(&mut self, block: PhysicalNo) {
        let block = &mut self.blocks[block.index()];
        block.count += 1;
        block.was_shared |= block.count > 1;
    }

    /// Counts one reference less; the last one frees the block.
    pub(super) fn lower(&mut self, block: PhysicalNo) {
        let physical = &mut self.blocks[block.index()];
        physical.count = physical.count.checked_sub(1).expect("each reference to a block is counted");
        if physical.count == 0 {
            physical.content = None;
            self.freed.insert(block.0);
            self.used -= 1;
        }
    }

    /// Compares the counts with the actual number of references to each block. Returns the first mismatch as an error.
    pub(super) fn check(&self, places: &[u32]) -> Result<(), String> {
        let mut used = 0;
        for (number, block) in self.blocks.iter().enumerate() {
            let places = places.get(number).copied().unwrap_or(0);
            let is_free = u32::try_from(number).is_ok_and(|number| self.freed.contains(&number));
            if block.count != places || is_free != (places == 0) || is_free != block.content.is_none() {
                return Err(format!(
                    "block {number} has count {}, {places} places refer to it, and it is {}",
                    block.count,
                    if is_free { "free" } else { "not free" }
                ));
            }
            used += u32::from(!is_free);
        }
        if used != self.used || used > self.limit {
            return Err(format!("{used} of {} blocks are used, {} are said to be", self.limit, self.used));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::content::Palette;

    #[test]
    fn blocks_are_given_once_and_come_back_with_the_last_place() {
        let content = Palette::new(2).get(1).clone();
        let mut blocks = BlockTable::new(3);
        let first = blocks.allocate(None, content.clone()).unwrap();
        blocks.raise(first);
        blocks.raise(first);
        let second = blocks.allocate(Some(PhysicalNo(first.0 + 1)), content.clone()).unwrap();
        blocks.raise(second);
        assert_eq!(second.0, first.0 + 1);
        assert_eq!(blocks.check(&[2, 1]), Ok(()));
        assert!(blocks.check(&[1, 1]).is_err() && blocks.check(&[2]).is_err());
        let third = blocks.allocate(None, content.clone()).unwrap();
        blocks.raise(third);
        assert_eq!(blocks.allocate(None, content.clone()).unwrap_err().kind(), io::ErrorKind::StorageFull);
        blocks.lower(first);
        assert_eq!(blocks.used(), 3);
        blocks.lower(first);
        assert_eq!(blocks.used(), 2);
        let again = blocks.allocate(Some(third), content).unwrap();
        blocks.raise(again);
        assert_eq!(again, first);
        assert!(!blocks.was_shared(again), "a new use of the block");
    }
}
