//! The blocks that repeat most.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Number of blocks that are kept.
pub(crate) const TOP_COUNT: usize = 10;

/// A content with its number of places and its first place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TopBlock {
    pub(crate) references: u64,
    pub(crate) image: usize,
    pub(crate) index: u64,
}

/// The number of places of a content, then its first place. Earlier places rank higher.
type Rank = (u64, Reverse<(usize, u64)>);

/// The most repeated contents of those that were offered. Of equal ones, those that come first in the images.
#[derive(Debug, Default)]
pub(crate) struct Top {
    kept: BinaryHeap<Reverse<Rank>>,
}

impl Top {
    /// Offers a content. A content with only one place is never among the most repeated. Returns whether it is among
    /// them so far.
    pub(crate) fn offer(&mut self, block: TopBlock) -> bool {
        if block.references < 2 {
            return false;
        }
        let rank = (block.references, Reverse((block.image, block.index)));
        self.kept.push(Reverse(rank));
        self.kept.len() <= TOP_COUNT || self.kept.pop() != Some(Reverse(rank))
    }

    /// Returns whether the content whose first place is this image and block is among the most repeated.
    pub(crate) fn has(&self, place: (usize, u64)) -> bool {
        self.kept.iter().any(|Reverse((_, Reverse(kept)))| *kept == place)
    }

    /// Returns the contents, the most repeated first.
    pub(crate) fn into_sorted(self) -> Vec<TopBlock> {
        let sorted = self.kept.into_sorted_vec().into_iter();
        sorted.map(|Reverse((references, Reverse((image, index))))| TopBlock { references, image, index }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_repeated_are_kept_and_of_equals_the_first() {
        let mut top = Top::default();
        for index in (0..100).rev() {
            top.offer(TopBlock { references: 2 + index % 3, image: 0, index });
        }
        top.offer(TopBlock { references: 1, image: 0, index: 1000 });
        let sorted: Vec<u64> = top.into_sorted().iter().map(|block| block.index).collect();
        assert_eq!(sorted, [2, 5, 8, 11, 14, 17, 20, 23, 26, 29]);
    }
}
