//! Tracks a full sparse backing file: the free blocks that have no room in it.
//!
//! Blocks that were written before have their room. The others lie in long ranges that were never used, or were
//! trimmed; each failed write reveals one.

use std::ops::Range;

/// Maximum number of remembered ranges. More would mean many small trimmed places, of which the oldest may have room
/// again.
const RANGES_MAX: usize = 256;

/// Free blocks without room. Empty unless the backing file is known to be full.
#[derive(Debug, Default)]
pub(crate) struct FullBacking {
    is_full: bool,
    without_room: Vec<Range<u64>>,
    refusals: u64,
}

impl FullBacking {
    /// Returns whether a never-written block recently found no room.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns how many places were found to have no room since the pool was opened.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Notes that a range of free blocks has no room. Returns the range that is forgotten in exchange, if any.
    pub(crate) fn refuse(&mut self, range: Range<u64>) -> Option<Range<u64>> {
        self.is_full = true;
        self.refusals += 1;
        let forgotten = (self.without_room.len() == RANGES_MAX).then(|| self.without_room.remove(0));
        self.without_room.push(range);
        forgotten
    }

    /// Forgets all ranges, as there may be room again. Returns them.
    pub(crate) fn forget(&mut self) -> Vec<Range<u64>> {
        self.is_full = false;
        std::mem::take(&mut self.without_room)
    }

    /// Returns the ranges without room.
    pub(crate) fn without_room(&self) -> impl Iterator<Item = &Range<u64>> {
        self.without_room.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_ranges_have_no_room_until_it_is_forgotten() {
        let mut backing = FullBacking::default();
        assert!(!backing.is_full() && backing.without_room().next().is_none());
        assert_eq!([backing.refuse(60..130), backing.refuse(3..4)], [None, None]);
        assert!(backing.without_room().eq([&(60..130), &(3..4)]));
        assert!(backing.is_full() && backing.refusals() == 2);
        assert_eq!(backing.forget(), [60..130, 3..4]);
        assert!(!backing.is_full() && backing.without_room().next().is_none() && backing.refusals() == 2);
    }

    #[test]
    fn ranges_are_bounded_and_the_oldest_is_forgotten() {
        let mut backing = FullBacking::default();
        let forgotten: Vec<Range<u64>> =
            (0..1000).filter_map(|number| backing.refuse(number * 2..number * 2 + 1)).collect();
        assert_eq!((forgotten.len(), backing.without_room().count()), (1000 - RANGES_MAX, RANGES_MAX));
        assert_eq!((forgotten[0].clone(), backing.without_room().last()), (0..1, Some(&(1998..1999))));
    }
}
