//! Filter entries that are newer than a look-up.
//!
//! Look-ups in the filter run without the metadata lock, some time before the decision that uses them. Meanwhile
//! another write may have stored the same content: it is no longer in flight, and the look-up did not find it. So
//! entries added to the filter are recorded here while look-ups wait for their decisions. Each decision also considers
//! the entries recorded since its look-up began.

use std::collections::VecDeque;

use onefold_block::Fingerprint;

use crate::filter::StorePageNo;

/// Maximum number of recorded entries: about 2 MiB. A look-up that is older than the oldest of them must be repeated.
const ENTRIES_MAX: usize = 1 << 16;

/// A look-up that waits for its decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookupNo(u64);

/// Entries added to the filter since the oldest waiting look-up.
#[derive(Debug, Default)]
pub(crate) struct RecentEntries {
    log: VecDeque<(Fingerprint, StorePageNo)>,
    /// Number of the first entry of the log.
    first: u64,
    /// Waiting look-ups, in no order: the number of the next entry when each began.
    pub(super) waiting: Vec<u64>,
}

impl RecentEntries {
    fn next(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    /// Records the start of a look-up.
    pub(crate) fn begin(&mut self) -> LookupNo {
        let next = self.next();
        self.waiting.push(next);
        LookupNo(next)
    }

    /// Records an entry that is now in the filter.
    pub(crate) fn note(&mut self, fingerprint: Fingerprint, page: StorePageNo) {
        if self.waiting.is_empty() {
            return;
        }
        if self.log.len() == ENTRIES_MAX {
            self.log.pop_front();
            self.first += 1;
        }
        self.log.push_back((fingerprint, page));
    }

    /// Returns the entries added to the filter since a look-up began; `None` if they are no longer recorded.
    pub(crate) fn since(&self, lookup: LookupNo) -> Option<impl Iterator<Item = (Fingerprint, StorePageNo)> + '_> {
        let skipped = usize::try_from(lookup.0.checked_sub(self.first)?).ok()?;
        Some(self.log.range(skipped.min(self.log.len())..).copied())
    }

    /// Records that a look-up no longer waits.
    pub(crate) fn end(&mut self, lookup: LookupNo) {
        if let Some(at) = self.waiting.iter().position(|began| *began == lookup.0) {
            self.waiting.swap_remove(at);
        }
        let oldest = self.waiting.iter().copied().min().unwrap_or(self.next());
        let done = usize::try_from(oldest.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.log.len());
        self.log.drain(..done);
        self.first += done as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u8) -> (Fingerprint, StorePageNo) {
        (Fingerprint([number; 16]), StorePageNo(number.into()))
    }

    fn since(recent: &RecentEntries, lookup: LookupNo) -> Vec<(Fingerprint, StorePageNo)> {
        recent.since(lookup).expect("it is known").collect()
    }

    #[test]
    fn each_look_up_sees_what_came_after_it_began() {
        let mut recent = RecentEntries::default();
        recent.note(entry(1).0, entry(1).1);
        let first = recent.begin();
        assert_eq!(since(&recent, first), []);
        recent.note(entry(2).0, entry(2).1);
        let second = recent.begin();
        recent.note(entry(3).0, entry(3).1);
        assert_eq!(since(&recent, first), [entry(2), entry(3)]);
        assert_eq!(since(&recent, second), [entry(3)]);
        recent.end(first);
        assert_eq!((since(&recent, second), recent.log.len()), (vec![entry(3)], 1));
        recent.end(second);
        assert!(recent.log.is_empty() && recent.waiting.is_empty());
        recent.note(entry(4).0, entry(4).1);
        let third = recent.begin();
        assert_eq!(since(&recent, third), []);
    }

    #[test]
    fn a_look_up_that_is_too_old_has_to_be_made_again() {
        let mut recent = RecentEntries::default();
        let old = recent.begin();
        (0..ENTRIES_MAX).for_each(|_| recent.note(entry(1).0, entry(1).1));
        assert_eq!(since(&recent, old).len(), ENTRIES_MAX);
        let newer = recent.begin();
        recent.note(entry(2).0, entry(2).1);
        assert!(recent.since(old).is_none());
        assert_eq!(since(&recent, newer), [entry(2)]);
        assert_eq!(recent.log.len(), ENTRIES_MAX);
        recent.end(old);
        recent.end(newer);
        assert!(recent.log.is_empty());
    }
}
