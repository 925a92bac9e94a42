//! What is known of a sparse backing file that is full: which free blocks have no room in it.
//!
//! Blocks that were written before have their room. The others lie in long ranges that were never used, or were trimmed;
//! each failed write tells of one.

use std::ops::Range;

/// Ranges remembered: more are a backing file full of small trimmed places, of which the oldest may have room again.
const RANGES_MAX: usize = 256;

/// Free blocks without room. Empty as long as the backing file is not known to be full.
#[derive(Debug, Default)]
pub(crate) struct FullBacking {
    is_full: bool,
    without_room: Vec<Range<u64>>,
    refusals: u64,
}

impl FullBacking {
    /// Tells whether a block that was never written found no room lately.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns how many places were found to have no room since the pool was opened.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Notes that a range of free blocks has no room.
    pub(crate) fn refuse(&mut self, range: Range<u64>) {
        self.is_full = true;
        self.refusals += 1;
        if self.without_room.len() == RANGES_MAX {
            self.without_room.remove(0);
        }
        self.without_room.push(range);
    }

    /// Forgets it all: there may be room again.
    pub(crate) fn forget(&mut self) {
        self.is_full = false;
        self.without_room.clear();
    }

    /// Returns those of the blocks `first..first + 64` that have no room, one bit each.
    pub(crate) fn word(&self, first: u64) -> u64 {
        let mut bits = 0;
        for range in &self.without_room {
            let (from, to) = (range.start.max(first), range.end.min(first + 64));
            for block in from..to {
                bits |= 1 << (block - first);
            }
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_refused_ranges_have_no_room_until_it_is_forgotten() {
        let mut backing = FullBacking::default();
        assert!(!backing.is_full() && backing.word(0) == 0);
        backing.refuse(60..130);
        backing.refuse(3..4);
        assert_eq!([0, 64, 128, 192].map(|first| backing.word(first)), [0xf << 60 | 8, u64::MAX, 3, 0]);
        assert!(backing.is_full() && backing.refusals() == 2);
        backing.forget();
        assert!(!backing.is_full() && backing.word(64) == 0 && backing.refusals() == 2);
    }

    #[test]
    fn ranges_are_bounded() {
        let mut backing = FullBacking::default();
        for number in 0..1000 {
            backing.refuse(number * 2..number * 2 + 1);
        }
        assert_eq!(backing.without_room.len(), RANGES_MAX);
        assert_eq!(backing.word(1998), 1, "the newest is known");
    }
}
