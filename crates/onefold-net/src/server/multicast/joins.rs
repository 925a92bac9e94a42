//! The latest joins of a server, so that an outsider cannot repeat one that it has overheard.

use std::collections::{HashSet, VecDeque};

use crate::multicast::JOIN_BYTES;

/// Number of joins that are remembered. Only machines with the key add to them.
const JOINS_MAX: usize = 1 << 16;

/// The random bytes of the latest joins.
#[derive(Debug, Default)]
pub(super) struct LatestJoins {
    joins: HashSet<[u8; JOIN_BYTES]>,
    /// The same ones, from the earliest on.
    order: VecDeque<[u8; JOIN_BYTES]>,
}

impl LatestJoins {
    /// Adds a join, and forgets the earliest one if there are too many. Returns false if this join came before.
    pub(super) fn insert(&mut self, random: [u8; JOIN_BYTES]) -> bool {
        if !self.joins.insert(random) {
            return false;
        }
        self.order.push_back(random);
        if self.order.len() > JOINS_MAX
            && let Some(earliest) = self.order.pop_front()
        {
            self.joins.remove(&earliest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_counts_once_and_memory_is_bounded() {
        let random = |number: usize| (number as u128).to_le_bytes();
        let mut joins = LatestJoins::default();
        assert!((0..JOINS_MAX).all(|number| joins.insert(random(number))));
        assert!((0..JOINS_MAX).all(|number| !joins.insert(random(number))));
        assert!(joins.insert(random(JOINS_MAX)));
        assert_eq!((joins.joins.len(), joins.order.len()), (JOINS_MAX, JOINS_MAX));
        assert!(!joins.insert(random(1)) && joins.insert(random(0)), "the earliest one is forgotten");
    }
}
