//! Records the directory of each block of a directory that was read.
//!
//! No two directories have the same block. Without checksums, a damaged image may assign the blocks of one directory to
//! many inodes, and a walk over all directories would read them again for each.

use std::collections::BTreeMap;

/// Number of blocks that are read of each directory even if it shares them with others. Few directories are longer.
pub(crate) const UNOWNED_BLOCKS: u64 = 4;
/// Maximum number of runs of blocks whose directory is remembered, in about 50 MiB. Blocks beyond it are not listed.
/// Directories grow in runs, so there is room for intact ones of any length. If a block of a directory consists of
/// several blocks of the volume, only its first one is claimed, and each is a run of its own.
const RUNS_MAX: usize = 1 << 20;

/// The directory of each block that was read, by the number of its inode.
#[derive(Debug)]
pub(crate) struct DirectoryOwners {
    /// Runs that do not overlap, by their first blocks. Runs of one directory do not touch.
    runs: BTreeMap<u64, DirectoryRun>,
    runs_max: usize,
}

/// Consecutive blocks of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DirectoryRun {
    /// The block after the last one.
    end: u64,
    directory: u64,
}

impl Default for DirectoryOwners {
    fn default() -> DirectoryOwners {
        DirectoryOwners { runs: BTreeMap::new(), runs_max: RUNS_MAX }
    }
}

impl DirectoryOwners {
    /// Makes `directory` the owner of a block, unless the block has one. Fails with the reason.
    pub(crate) fn claim(&mut self, block: u64, directory: u64) -> Result<(), &'static str> {
        let end = block.checked_add(1).ok_or("a block lies behind the end of all volumes")?;
        let before = self.runs.range_mut(..=block).next_back();
        let joined = match before {
            Some((_, run)) if block < run.end && run.directory == directory => return Ok(()),
            Some((_, run)) if block < run.end => return Err("another directory has the same block"),
            Some((start, run)) if (run.end, run.directory) == (block, directory) => Some(*start),
            _ => None,
        };
        let behind = self.runs.get(&end).filter(|run| run.directory == directory).copied();
        if joined.is_none() && behind.is_none() && self.runs.len() >= self.runs_max {
            return Err("directories have too many blocks to tell them apart");
        }
        if behind.is_some() {
            self.runs.remove(&end);
        }
        let end = behind.map_or(end, |run| run.end);
        self.runs.insert(joined.unwrap_or(block), DirectoryRun { end, directory });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_block_has_one_owner_and_their_number_is_bounded() {
        let mut owners = DirectoryOwners { runs_max: 2, ..DirectoryOwners::default() };
        assert_eq!(owners.claim(5, 12), Ok(()));
        assert!(owners.claim(5, 13).is_err());
        assert_eq!(owners.claim(7, 13), Ok(()));
        assert!(owners.claim(9, 13).is_err(), "the third run");
        assert!(owners.claim(6, 14).is_err(), "the third run, although it lies beside others");
        assert_eq!((owners.claim(6, 12), owners.claim(8, 13)), (Ok(()), Ok(())), "both runs grow");
        assert_eq!((owners.claim(5, 12), owners.claim(7, 13)), (Ok(()), Ok(())));
        assert!(owners.claim(u64::MAX, 13).is_err());
    }

    /// A volume of 16 TiB may have one directory of hundreds of millions of names.
    #[test]
    fn a_directory_of_any_length_is_one_run() {
        let mut owners = DirectoryOwners::default();
        let count = 3 * RUNS_MAX as u64;
        assert!((0..count).all(|block| owners.claim(1000 + block, 7).is_ok()));
        assert_eq!(owners.runs, BTreeMap::from([(1000, DirectoryRun { end: 1000 + count, directory: 7 })]));
        assert!(owners.claim(1000 + count / 2, 8).is_err());
    }

    #[test]
    fn blocks_in_any_order_have_the_owners_of_a_naive_list() {
        let mut owners = DirectoryOwners::default();
        let mut naive: HashMap<u64, u64> = HashMap::new();
        let mut state = 1_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let (block, directory) = (random(2000), random(3));
            let owner = *naive.entry(block).or_insert(directory);
            assert_eq!(owners.claim(block, directory).is_ok(), owner == directory, "block {block}");
        }
        let blocks: u64 = owners.runs.iter().map(|(start, run)| run.end - start).sum();
        assert_eq!(blocks, naive.len() as u64);
        let touch = |((_, one), (start, two)): (&(&u64, &DirectoryRun), &(&u64, &DirectoryRun))| {
            one.end > **start || (one.end == **start && one.directory == two.directory)
        };
        let runs: Vec<(&u64, &DirectoryRun)> = owners.runs.iter().collect();
        assert!(!runs.iter().zip(runs.iter().skip(1)).any(touch));
    }
}
