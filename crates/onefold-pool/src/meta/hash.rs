//! Hash maps for keys that users cannot choose: block numbers, inode numbers, keyed fingerprints. The default hasher's
//! protection against chosen keys would cost more than the look-ups.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use onefold_block::{BlockNo, Fingerprint};

/// Hashes numbers by multiplication.
#[derive(Default)]
pub(crate) struct PlainHasher(u64);

impl Hasher for PlainHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        for &byte in rest {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    }
}

/// A map whose keys users cannot choose.
pub(crate) type PlainMap<K, V> = HashMap<K, V, BuildHasherDefault<PlainHasher>>;
/// A map keyed by block number.
pub(crate) type BlockMap<V> = PlainMap<BlockNo, V>;
/// A set of block numbers.
pub(crate) type BlockSet = HashSet<BlockNo, BuildHasherDefault<PlainHasher>>;
/// A map keyed by fingerprint.
pub(crate) type FingerprintMap<V> = PlainMap<Fingerprint, V>;
