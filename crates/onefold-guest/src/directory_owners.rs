//! Which directory each block belongs to, of those that were read.
//!
//! No two directories have the same block. Without checksums a damaged image may give the blocks of one to many inodes,
//! and a walk over all directories would read them again for each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Blocks that each directory is read of whatever it shares with others: few directories are longer.
pub(crate) const UNOWNED_BLOCKS: u64 = 4;
/// Most blocks whose directory is remembered, in about 36 MiB. What lies behind is not listed.
const BLOCKS_MAX: usize = 1 << 20;

/// The directory of each block that was read, by the number of its inode.
#[derive(Debug)]
pub(crate) struct DirectoryOwners {
    owners: HashMap<u64, u64>,
    blocks_max: usize,
}

impl Default for DirectoryOwners {
    fn default() -> DirectoryOwners {
        DirectoryOwners { owners: HashMap::new(), blocks_max: BLOCKS_MAX }
    }
}

impl DirectoryOwners {
    /// Makes `directory` the owner of a block, unless there is one. Fails with what is wrong.
    pub(crate) fn claim(&mut self, block: u64, directory: u64) -> Result<(), &'static str> {
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
        let mut owners = DirectoryOwners { blocks_max: 2, ..DirectoryOwners::default() };
        assert_eq!(owners.claim(5, 12), Ok(()));
        assert!(owners.claim(5, 13).is_err());
        assert_eq!(owners.claim(6, 13), Ok(()));
        assert!(owners.claim(7, 13).is_err(), "the third");
        assert_eq!((owners.claim(5, 12), owners.claim(6, 13)), (Ok(()), Ok(())));
    }
}
