//! The result of a look-up.

use super::StorePageNo;

const INLINE: usize = 4;

/// The distinct store pages that may hold a fingerprint, usually none or one.
#[derive(Clone, Debug, Default)]
pub struct CandidatePages {
    first: [StorePageNo; INLINE],
    first_count: usize,
    more: Vec<StorePageNo>,
}

impl CandidatePages {
    /// Returns whether no page may hold the fingerprint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first_count == 0
    }

    /// Returns the number of pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first_count + self.more.len()
    }

    /// Returns the pages, each once.
    pub fn iter(&self) -> impl Iterator<Item = StorePageNo> + '_ {
        self.first[..self.first_count].iter().chain(&self.more).copied()
    }

    /// Adds a page, unless it was the last one added. Pages must come in ascending order.
    pub(super) fn add(&mut self, page: StorePageNo) {
        let last = self.more.last().or(self.first[..self.first_count].last());
        debug_assert!(last <= Some(&page), "{last:?} before {page:?}");
        if last == Some(&page) {
            return;
        }
        if self.first_count < INLINE {
            self.first[self.first_count] = page;
            self.first_count += 1;
        } else {
            self.more.push(page);
        }
    }
}

impl IntoIterator for CandidatePages {
    type Item = StorePageNo;
    type IntoIter =
        std::iter::Chain<std::iter::Take<std::array::IntoIter<StorePageNo, INLINE>>, std::vec::IntoIter<StorePageNo>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().take(self.first_count).chain(self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_out_once_each_in_order() {
        let mut candidates = CandidatePages::default();
        assert!(candidates.is_empty());
        for page in [0, 3, 3, 7, 9, 9, 9, 11, 12, 12] {
            candidates.add(StorePageNo(page));
        }
        let expected: Vec<StorePageNo> = [0, 3, 7, 9, 11, 12].map(StorePageNo).into();
        assert_eq!(candidates.len(), 6);
        assert!(!candidates.is_empty());
        assert_eq!(candidates.iter().collect::<Vec<_>>(), expected);
        assert_eq!(candidates.into_iter().collect::<Vec<_>>(), expected);
    }
}
