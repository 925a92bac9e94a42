//! The key of an item.

/// Bytes of an encoded key.
pub(super) const KEY_BYTES: usize = 17;

/// Key of an item of the tree. Keys are ordered by inode number, then kind, then `sub`, which is also the order of
/// their encoded bytes: all items of one inode are adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The inode that the item belongs to.
    pub ino: u64,
    /// Kind of the item; the tree only sorts by it.
    pub kind: u8,
    /// Distinguishes items of one inode and kind: the hash of a name, an index, or 0.
    pub sub: u64,
}

impl Key {
    /// The lowest key.
    pub const MIN: Key = Key { ino: 0, kind: 0, sub: 0 };

    /// The highest key.
    pub const MAX: Key = Key { ino: u64::MAX, kind: u8::MAX, sub: u64::MAX };

    /// Returns the key that follows; `None` after the highest.
    #[must_use]
    pub fn successor(self) -> Option<Key> {
        if let Some(sub) = self.sub.checked_add(1) {
            return Some(Key { sub, ..self });
        }
        match self.kind.checked_add(1) {
            Some(kind) => Some(Key { kind, sub: 0, ..self }),
            None => Some(Key { ino: self.ino.checked_add(1)?, kind: 0, sub: 0 }),
        }
    }

    /// Returns the key's bytes: inode number, kind, `sub`, the numbers big-endian so that bytes sort as keys do.
    pub(super) fn encode(&self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[..8].copy_from_slice(&self.ino.to_be_bytes());
        bytes[8] = self.kind;
        bytes[9..].copy_from_slice(&self.sub.to_be_bytes());
        bytes
    }

    /// Returns the key from which [`Key::encode`] made `bytes`. Any bytes are a valid key.
    pub(super) fn decode(bytes: &[u8; KEY_BYTES]) -> Key {
        let [i0, i1, i2, i3, i4, i5, i6, i7, kind, s0, s1, s2, s3, s4, s5, s6, s7] = *bytes;
        Key {
            ino: u64::from_be_bytes([i0, i1, i2, i3, i4, i5, i6, i7]),
            kind,
            sub: u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
        }
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;

    /// Small numbers make equal prefixes likely; otherwise only `ino` would ever be compared.
    fn any_key(random: &SeededRandom) -> Key {
        let number = || if random.below(2) == 0 { random.below(3) } else { random.next_u64() };
        Key { ino: number(), kind: u8::try_from(random.below(3)).expect("below three"), sub: number() }
    }

    #[test]
    fn keys_come_back_from_their_bytes_and_sort_as_these_do() {
        let random = SeededRandom::new(1);
        for _ in 0..10_000 {
            let (a, b) = (any_key(&random), any_key(&random));
            assert_eq!(Key::decode(&a.encode()), a);
            assert_eq!(a.cmp(&b), a.encode().cmp(&b.encode()), "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_successor_is_the_next_key_there_can_be() {
        let key = |ino, kind, sub| Key { ino, kind, sub };
        assert_eq!(key(5, 2, 7).successor(), Some(key(5, 2, 8)));
        assert_eq!(key(5, 2, u64::MAX).successor(), Some(key(5, 3, 0)));
        assert_eq!(key(5, u8::MAX, u64::MAX).successor(), Some(key(6, 0, 0)));
        assert_eq!(Key::MAX.successor(), None);
    }

    #[test]
    fn the_encoding_is_fixed() {
        let key = Key { ino: 0x0102_0304_0506_0708, kind: 9, sub: 0x0a0b_0c0d_0e0f_1011 };
        assert_eq!(key.encode(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]);
    }
}
