//! Numbers of names by the hash of each name and the one above it.

use std::hash::{BuildHasher, RandomState};

/// Size of the smallest non-empty table. All sizes are powers of two.
const PLACES_MIN: usize = 1 << 10;
/// Represents an empty place of the table.
const NONE: u32 = u32::MAX;

/// An open hash table of numbers without deletions. At most half of its places are used. A number is in the first place
/// from its hash on that was empty.
#[derive(Debug, Default)]
pub(super) struct HashIndex {
    /// Hash and number.
    places: Vec<(u32, u32)>,
    count: usize,
}

impl HashIndex {
    /// Calls `is_it` with each number that has a hash. Returns one for which it is true.
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.places.len().checked_sub(1)?;
        let mut at = hash as usize & mask;
        loop {
            let (found, number) = *self.places.get(at)?;
            if number == NONE {
                return None;
            }
            if found == hash && is_it(number) {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a number.
    pub(super) fn add(&mut self, hash: u32, number: u32) {
        if self.places.len() < 2 * (self.count + 1) {
            let places = vec![(0, NONE); PLACES_MIN.max(2 * self.places.len())];
            let before = std::mem::replace(&mut self.places, places);
            let taken = before.into_iter().filter(|(_, number)| *number != NONE);
            taken.for_each(|(hash, number)| self.put(hash, number));
        }
        self.put(hash, number);
        self.count += 1;
    }

    /// Puts a number into the first empty place from a hash on. There must be one.
    fn put(&mut self, hash: u32, number: u32) {
        let mask = self.places.len() - 1;
        let mut at = hash as usize & mask;
        while self.places[at].1 != NONE {
            at = (at + 1) & mask;
        }
        self.places[at] = (hash, number);
    }
}

/// Hashes names with secret keys, so that no guest can make them collide.
///
/// Multiplies each eight bytes into the hash, and keeps both halves of the product. The names of a guest are short and
/// numerous: this takes a quarter of the time of the standard library's hash.
#[derive(Debug)]
pub(super) struct NameHasher {
    start: u64,
    word: u64,
    end: u64,
}

impl NameHasher {
    /// Returns a hasher with its own random keys.
    pub(super) fn new() -> NameHasher {
        let random = RandomState::new();
        // An even factor would lose a bit of the other factor.
        NameHasher { start: random.hash_one(0), word: random.hash_one(1) | 1, end: random.hash_one(2) | 1 }
    }

    /// Returns the hash of a name below another one.
    pub(super) fn hash(&self, parent: u32, text: &[u8]) -> u32 {
        // The length distinguishes texts that become equal words after padding with zeros.
        let mut hash = self.start ^ (u64::from(parent) << 32 | text.len() as u64 & 0xffff_ffff);
        let (words, rest) = text.as_chunks::<8>();
        for word in words {
            hash = multiplied(hash ^ u64::from_le_bytes(*word), self.word);
        }
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(byte, rest)| *byte = *rest);
        hash = multiplied(hash ^ u64::from_le_bytes(last), self.word);
        let hash = multiplied(hash ^ self.start, self.end);
        (hash >> 32) as u32
    }
}

/// Returns the combination of both halves of a product.
fn multiplied(one: u64, two: u64) -> u64 {
    let product = u128::from(one) * u128::from(two);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are kept")]
    let (low, high) = (product as u64, (product >> 64) as u64);
    low ^ high
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_numbers_of_a_hash_are_found() {
        let mut index = HashIndex::default();
        assert_eq!(index.find(0, |_| true), None);
        // Hashes at the end of the table, so that numbers continue at its beginning.
        for number in 0..5000_u32 {
            index.add(u32::MAX - number % 7, number);
        }
        assert!(index.places.len() >= 2 * index.count);
        for hash in 0..9_u32 {
            let mut found = Vec::new();
            index.find(u32::MAX - hash, |number| {
                found.push(number);
                false
            });
            found.sort_unstable();
            let expected: Vec<u32> = (0..5000).filter(|number| number % 7 == hash).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(index.find(u32::MAX - 3, |number| number == 101), Some(101));
    }

    #[test]
    fn names_that_are_much_alike_have_hashes_of_their_own() {
        let hasher = NameHasher::new();
        let names = (0..100_000_u32).map(|number| (number % 100, format!("libx{}.so.{}", number / 1000, number / 100)));
        let hashes: HashSet<u32> = names.map(|(parent, name)| hasher.hash(parent, name.as_bytes())).collect();
        // With this many random numbers, one or two are equal.
        assert!(hashes.len() > 99_980, "{}", hashes.len());
        let zeros: HashSet<u32> = (0..200).map(|length| hasher.hash(7, &vec![0; length])).collect();
        assert_eq!(zeros.len(), 200);
    }

    #[test]
    fn another_hasher_has_other_keys() {
        let (one, two) = (NameHasher::new(), NameHasher::new());
        let differ = (0..100).filter(|parent| one.hash(*parent, b"usr") != two.hash(*parent, b"usr")).count();
        assert!(differ > 95, "{differ}");
    }
}
