//! Runs of blocks that must not overlap.
//!
//! A hostile map may lead to the same blocks again and again. A reader that follows each of these entries would do more
//! work than the image has metadata.

use std::collections::BTreeMap;

/// Maximum number of runs that are remembered, in about 10 MiB. Adjacent runs count as one.
const RUNS_MAX: usize = 1 << 18;

/// Runs of blocks of which no two have a block in common.
#[derive(Debug)]
pub(crate) struct DisjointRuns {
    /// The block after the last one of each run, by the run's first block.
    ends: BTreeMap<u64, u64>,
    runs_max: usize,
}

impl Default for DisjointRuns {
    fn default() -> DisjointRuns {
        DisjointRuns { ends: BTreeMap::new(), runs_max: RUNS_MAX }
    }
}

impl DisjointRuns {
    /// Adds `count` blocks from block `first` on. Fails with the reason.
    pub(crate) fn add(&mut self, first: u64, count: u64) -> Result<(), &'static str> {
        let end = first.saturating_add(count);
        let before = self.ends.range_mut(..end).next_back();
        match before {
            Some((_, known)) if *known > first => return Err("two parts of its map have the same block"),
            Some((_, known)) if *known == first => {
                *known = end;
                return Ok(());
            }
            _ => {}
        }
        if self.ends.len() >= self.runs_max {
            return Err("its map has too many parts");
        }
        self.ends.insert(first, end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_with_a_common_block_are_refused() {
        let mut runs = DisjointRuns::default();
        assert_eq!(
            (runs.add(10, 5), runs.add(20, 5), runs.add(15, 5), runs.add(0, 10)),
            (Ok(()), Ok(()), Ok(()), Ok(()))
        );
        for (first, count) in [(24, 1), (9, 1), (9, 2), (24, 10), (0, 1), (5, 100), (14, 2), (19, 2)] {
            assert!(runs.add(first, count).is_err(), "{count} from {first}");
        }
        assert_eq!(runs.add(25, u64::MAX), Ok(()));
    }

    #[test]
    fn the_number_of_runs_is_bounded() {
        let mut runs = DisjointRuns { runs_max: 2, ..DisjointRuns::default() };
        assert_eq!((runs.add(0, 1), runs.add(2, 1), runs.add(1, 1)), (Ok(()), Ok(()), Ok(())));
        assert!(runs.add(9, 1).is_err());
        assert_eq!(runs.add(3, 6), Ok(()), "it goes on");
    }
}
