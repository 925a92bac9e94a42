//! Values of a cache by their numbers, in the order of their last use.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Stands for no place.
const NONE: u32 = u32::MAX;

/// Values by their numbers. Looking one up makes it the most recently used one. The values are a list from the newest
/// to the oldest one, whose links are places in a vector, so that a look-up moves nothing else.
#[derive(Debug)]
pub(crate) struct CacheOrder<T> {
    places: HashMap<u64, u32, NumberHasher>,
    entries: Vec<PageEntry<T>>,
    /// The first of the places in `entries` that are empty; `newer` leads from one to the next.
    empty: u32,
    newest: u32,
    oldest: u32,
}

#[derive(Debug)]
struct PageEntry<T> {
    number: u64,
    /// `None` in an empty place.
    value: Option<T>,
    newer: u32,
    older: u32,
}

impl<T> CacheOrder<T> {
    /// Returns no values.
    pub(crate) fn new() -> CacheOrder<T> {
        let places = HashMap::with_hasher(NumberHasher::new());
        CacheOrder { places, entries: Vec::new(), empty: NONE, newest: NONE, oldest: NONE }
    }

    /// Returns how many values there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether a number has a value. That is no use of it.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.places.contains_key(&number)
    }

    /// Returns the value of a number, which becomes the most recently used one.
    pub(crate) fn get(&mut self, number: u64) -> Option<&T> {
        // Readers of tables ask for one value many times in a row.
        if self.entry(self.newest).is_none_or(|entry| entry.number != number) {
            let place = *self.places.get(&number)?;
            self.unlink(place);
            self.link(place);
        }
        self.entry(self.newest)?.value.as_ref()
    }

    /// Gives a number that has no value one, which becomes the most recently used one.
    pub(crate) fn insert(&mut self, number: u64, value: T) {
        let entry = PageEntry { number, value: Some(value), newer: NONE, older: NONE };
        let place = match self.entry_mut(self.empty) {
            Some(place) => {
                let next = place.newer;
                *place = entry;
                std::mem::replace(&mut self.empty, next)
            }
            None => {
                let Ok(place) = u32::try_from(self.entries.len()) else { return };
                self.entries.push(entry);
                place
            }
        };
        self.link(place);
        self.places.insert(number, place);
    }

    /// Takes out the least recently used value.
    pub(crate) fn remove_oldest(&mut self) -> Option<T> {
        let place = self.oldest;
        let number = self.entry(place)?.number;
        self.unlink(place);
        self.places.remove(&number);
        let next = std::mem::replace(&mut self.empty, place);
        let entry = self.entry_mut(place)?;
        entry.newer = next;
        entry.value.take()
    }

    fn entry(&self, place: u32) -> Option<&PageEntry<T>> {
        self.entries.get(place as usize)
    }

    fn entry_mut(&mut self, place: u32) -> Option<&mut PageEntry<T>> {
        self.entries.get_mut(place as usize)
    }

    /// Puts an entry before all others.
    fn link(&mut self, place: u32) {
        let older = std::mem::replace(&mut self.newest, place);
        if let Some(entry) = self.entry_mut(place) {
            (entry.newer, entry.older) = (NONE, older);
        }
        match self.entry_mut(older) {
            Some(older) => older.newer = place,
            None => self.oldest = place,
        }
    }

    /// Takes an entry out of the list.
    fn unlink(&mut self, place: u32) {
        let Some(&PageEntry { newer, older, .. }) = self.entry(place) else { return };
        match self.entry_mut(newer) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.entry_mut(older) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }
}

/// Hashes a number by one multiplication with a secret key: the numbers come from an image, which must not be able to
/// make them collide.
#[derive(Clone, Copy, Debug)]
struct NumberHasher {
    key: u64,
    factor: u64,
    hash: u64,
}

impl NumberHasher {
    fn new() -> NumberHasher {
        let random = RandomState::new();
        NumberHasher { key: random.hash_one(0), factor: random.hash_one(1) | 1, hash: 0 }
    }
}

impl BuildHasher for NumberHasher {
    type Hasher = NumberHasher;

    fn build_hasher(&self) -> NumberHasher {
        *self
    }
}

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.hash ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(number ^ self.key) * u128::from(self.factor);
        self.hash = halves_together(product);
    }
}

/// Returns both halves of a product as one: each bit of it depends on all bits of the factors.
fn halves_together(product: u128) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are kept")]
    let (low, high) = (product as u64, (product >> 64) as u64);
    low ^ high
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Returns the numbers from the newest to the oldest one, and checks the way back.
    fn order(cache: &CacheOrder<u64>) -> Vec<u64> {
        let way = |first: u32, next: fn(&PageEntry<u64>) -> u32| -> Vec<u64> {
            let places = std::iter::successors(cache.entry(first), |entry| cache.entry(next(entry)));
            places.map(|entry| entry.number).collect()
        };
        let order = way(cache.newest, |entry| entry.older);
        let back: Vec<u64> = way(cache.oldest, |entry| entry.newer).into_iter().rev().collect();
        assert_eq!(order, back);
        assert_eq!(order.len(), cache.len());
        order
    }

    #[test]
    fn values_are_in_the_order_of_their_last_use() {
        let mut cache = CacheOrder::new();
        let mut expected: VecDeque<u64> = VecDeque::new();
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (state >> 33) % 12;
            let known = expected.iter().position(|known| *known == number);
            assert_eq!(cache.has(number), known.is_some());
            assert_eq!(cache.get(number).copied(), known.map(|_| number * 3));
            match known {
                Some(at) => {
                    expected.remove(at);
                }
                None => {
                    if expected.len() == 5 || state.is_multiple_of(7) {
                        assert_eq!(cache.remove_oldest(), expected.pop_back().map(|number| number * 3));
                    }
                    cache.insert(number, number * 3);
                }
            }
            expected.push_front(number);
            assert_eq!(order(&cache), expected.iter().copied().collect::<Vec<u64>>());
        }
        assert!(cache.entries.len() <= 5, "places are used again");
    }

    #[test]
    fn an_empty_cache_has_nothing_to_remove() {
        let mut cache: CacheOrder<u64> = CacheOrder::new();
        assert_eq!((cache.remove_oldest(), cache.get(7).copied(), cache.len()), (None, None, 0));
    }

    /// Pages of tables lie at equal distances.
    #[test]
    fn numbers_at_equal_distances_have_hashes_of_their_own() {
        let hasher = NumberHasher::new();
        for distance in [1, 2, 64, 1 << 20, 1 << 40] {
            let hashes: std::collections::HashSet<u64> =
                (0..10_000_u64).map(|number| hasher.hash_one(number * distance) >> 32).collect();
            assert!(hashes.len() > 9_900, "{distance}: {}", hashes.len());
        }
    }
}
