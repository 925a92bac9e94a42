//! Which directory each block belongs to, of those that were read.
//!
//! No two directories have the same block. Without checksums a damaged image may give the blocks of one to many inodes,
//! and a walk over all directories would read them again for each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Most blocks whose directory is remembered, in about 36 MiB. What lies behind is not listed.
const BLOCKS_MAX: usize = 1 << 20;

/// The directory of each block that was read, by the number of its inode.
#[derive(Debug)]
pub(super) struct Owners {
    owners: HashMap<u64, u32>,
    blocks_max: usize,
}

impl Default for Owners {
    fn default() -> Owners {
        Owners { owners: HashMap::new(), blocks_max: BLOCKS_MAX }
    }
}

impl Owners {
    /// Makes `directory` the owner of a block, unless there is one. Fails with what is wrong.
    pub(super) fn claim(&mut self, block: u64, directory: u32) -> Result<(), &'static str> {
        let is_full = self.owners.len() >= self.blocks_max;
        match self.owners.entry(block) {
            Entry::Occupied(owner) if *owner.get() == directory => Ok(()),
            Entry::Occupied(_) => Err("another directory has the same block"),
            Entry::Vacant(_) if is_full => Err("directories have too many blocks to tell them apart"),
            Entry::Vacant(place) => {
                place.insert(directory);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_one_owner_and_their_number_is_bounded() {
        let mut owners = Owners { blocks_max: 2, ..Owners::default() };
        assert_eq!(owners.claim(5, 12), Ok(()));
        assert!(owners.claim(5, 13).is_err());
        assert_eq!(owners.claim(6, 13), Ok(()));
        assert!(owners.claim(7, 13).is_err(), "the third");
        assert_eq!((owners.claim(5, 12), owners.claim(6, 13)), (Ok(()), Ok(())));
    }
}
