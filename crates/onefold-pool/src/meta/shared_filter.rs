//! The filter as threads share it: looked up without the metadata lock, changed under it.
//!
//! A look-up may miss entries that are added while its decision waits for the metadata lock; [`super::recent`] has
//! these. It may name pages that no longer hold the fingerprint; the page itself decides, under the metadata lock.
//!
//! So a decision finds whatever a look-up under the metadata lock would find. The order of steps ensures this: a
//! look-up is registered before it reads the filter, and an added entry is recorded before the filter is unlocked. If
//! an entry was recorded before the look-up was registered, the look-up finds the filter locked until the entry is in
//! it.

use onefold_block::Fingerprint;

use super::hash::FingerprintMap;
use super::recent::{LookupNo, RecentEntries};
use crate::filter::{CandidatePages, Coverage, Filter, StorePageNo};
use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Number of look-ups under one lock of the filter: threads that change it hold the metadata lock while they wait.
const LOOKUPS_PER_LOCK: usize = 32;

/// The filter, with the record of its new entries.
#[derive(Debug)]
pub(crate) struct SharedFilter {
    filter: RwLock<Filter>,
    /// Locked with or without the filter locked; no other lock is taken after it.
    recent: Mutex<RecentEntries>,
}

impl SharedFilter {
    pub(crate) fn new(filter: Filter) -> SharedFilter {
        SharedFilter { filter: RwLock::new(filter), recent: Mutex::default() }
    }

    /// Locks the filter for reading.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Filter> {
        self.filter.read()
    }

    /// Locks the filter for changes that no look-up has to know. Must be called under the metadata lock.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Filter> {
        self.filter.write()
    }

    /// Locks the filter for the results of operations. Must be called under the metadata lock.
    pub(crate) fn change(&self) -> FilterChange<'_> {
        FilterChange { filter: self.filter.write(), recent: &self.recent, entered: Vec::new() }
    }

    /// Looks up fingerprints for a later decision. Must be called without the metadata lock.
    pub(crate) fn look_up(&self, fingerprints: &[Fingerprint]) -> FilterLookup<'_> {
        let number = self.recent.lock().begin();
        let mut looked_up = FilterLookup {
            recent: &self.recent,
            number,
            candidates: Vec::new(),
            first_places: FingerprintMap::default(),
        };
        for some in fingerprints.chunks(LOOKUPS_PER_LOCK) {
            looked_up.candidates.extend(self.filter.read().candidates_each(some));
        }
        for (place, fingerprint) in fingerprints.iter().enumerate() {
            looked_up.first_places.entry(*fingerprint).or_insert(place);
        }
        looked_up
    }

    /// Returns whether a look-up has begun whose decision has not ended.
    #[cfg(test)]
    pub(crate) fn has_lookups(&self) -> bool {
        !self.recent.lock().waiting.is_empty()
    }
}

/// The filter while it is changed.
pub(crate) struct FilterChange<'f> {
    filter: RwLockWriteGuard<'f, Filter>,
    recent: &'f Mutex<RecentEntries>,
    entered: Vec<(Fingerprint, StorePageNo)>,
}

impl FilterChange<'_> {
    /// Adds an entry; see [`Filter::insert`].
    pub(crate) fn insert(&mut self, fingerprint: Fingerprint, page: StorePageNo) {
        if self.filter.insert(fingerprint, page) == Coverage::Indexed {
            self.entered.push((fingerprint, page));
        }
    }

    /// Removes an entry; see [`Filter::remove`].
    pub(crate) fn remove(&mut self, fingerprint: Fingerprint, page: StorePageNo) {
        self.filter.remove(fingerprint, page);
    }

    /// Removes an entry; see [`Filter::remove_if_there`].
    pub(crate) fn remove_if_there(&mut self, fingerprint: Fingerprint, page: StorePageNo) -> bool {
        self.filter.remove_if_there(fingerprint, page)
    }
}

impl Drop for FilterChange<'_> {
    /// Records the added entries while the filter is still locked.
    fn drop(&mut self) {
        if self.entered.is_empty() {
            return;
        }
        let mut recent = self.recent.lock();
        self.entered.drain(..).for_each(|(fingerprint, page)| recent.note(fingerprint, page));
    }
}

/// Results of look-ups, kept until the decision that uses them.
pub(crate) struct FilterLookup<'f> {
    recent: &'f Mutex<RecentEntries>,
    number: LookupNo,
    candidates: Vec<CandidatePages>,
    /// The first of the look-ups for each fingerprint.
    first_places: FingerprintMap<usize>,
}

impl FilterLookup<'_> {
    /// Returns the pages for each look-up, in order.
    pub(crate) fn candidates(&self) -> &[CandidatePages] {
        &self.candidates
    }

    /// Returns the entries added to the filter meanwhile: the first look-up that each answers, and the page, in order
    /// of the look-ups. `None` if they are no longer recorded. Must be called under the metadata lock.
    pub(crate) fn entered_meanwhile(&self) -> Option<Vec<(usize, StorePageNo)>> {
        let recent = self.recent.lock();
        let entered = recent.since(self.number)?;
        let place = |(fingerprint, page)| Some((*self.first_places.get(&fingerprint)?, page));
        let mut found: Vec<(usize, StorePageNo)> = entered.filter_map(place).collect();
        found.sort_unstable();
        Some(found)
    }
}

impl Drop for FilterLookup<'_> {
    fn drop(&mut self) {
        self.recent.lock().end(self.number);
    }
}

#[cfg(all(test, not(feature = "explore")))]
mod tests {
    use super::*;
    use crate::filter::FilterOptions;

    fn new_filter() -> SharedFilter {
        let options = FilterOptions {
            blocks_max: 10_000,
            pages: 1000,
            memory_bytes_max: 1 << 20,
            index_bits: None,
            tag_bits: None,
        };
        SharedFilter::new(Filter::new(&options))
    }

    fn fingerprint(number: u8) -> Fingerprint {
        Fingerprint(std::array::from_fn(|at| {
            number.wrapping_mul(91).wrapping_add(u8::try_from(at).expect("below 16").wrapping_mul(37))
        }))
    }

    fn pages(looked_up: &FilterLookup<'_>, place: usize) -> Vec<u64> {
        let meanwhile = looked_up.entered_meanwhile().expect("it is not too old");
        let meanwhile = meanwhile.iter().filter(|(at, _)| *at == place).map(|(_, page)| *page);
        looked_up.candidates()[place].iter().chain(meanwhile).map(|page| page.0).collect()
    }

    #[test]
    fn a_decision_knows_what_entered_the_filter_after_its_look_up() {
        let filter = new_filter();
        filter.change().insert(fingerprint(1), StorePageNo(7));
        let looked_up = filter.look_up(&[fingerprint(2), fingerprint(1), fingerprint(2)]);
        assert_eq!((pages(&looked_up, 0), pages(&looked_up, 1)), (vec![], vec![7]));
        {
            let mut change = filter.change();
            change.insert(fingerprint(3), StorePageNo(8));
            change.insert(fingerprint(2), StorePageNo(9));
        }
        assert_eq!((pages(&looked_up, 0), pages(&looked_up, 1), pages(&looked_up, 2)), (vec![9], vec![7], vec![]));
        drop(looked_up);
        assert_eq!(pages(&filter.look_up(&[fingerprint(2)]), 0), [9]);
    }

    #[test]
    fn nothing_that_enters_beside_look_ups_is_missed() {
        let filter = new_filter();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..200).for_each(|number| filter.change().insert(fingerprint(number), StorePageNo(number.into())))
            });
            while !writer.is_finished() {
                let looked_up = filter.look_up(&(0..200).map(fingerprint).collect::<Vec<_>>());
                // As under the metadata lock: no other thread changes the filter.
                let now = filter.filter.write();
                for number in 0..200 {
                    let is_there = now.candidates(fingerprint(number)).iter().any(|page| page.0 == u64::from(number));
                    let is_found = pages(&looked_up, number.into()).contains(&number.into());
                    assert!(!is_there || is_found, "{number}");
                }
            }
        });
    }
}
