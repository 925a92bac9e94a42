//! The key of an item.

/// Bytes of an encoded key.
pub(super) const KEY_BYTES: usize = 17;

/// Names an item of the tree. Keys are ordered by inode number, then kind, then `sub`, which is also the order of
/// their encoded bytes: all that belongs to one inode lies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The inode that the item belongs to.
    pub ino: u64,
    /// What sort of item it is; the tree only sorts by it.
    pub kind: u8,
    /// Tells items of one inode and kind apart: the hash of a name, an index, or 0.
    pub sub: u64,
}

impl Key {
    /// The lowest key.
    pub const MIN: Key = Key { ino: 0, kind: 0, sub: 0 };

    /// The highest key.
    pub const MAX: Key = Key { ino: u64::MAX, kind: u8::MAX, sub: u64::MAX };

    /// Returns the key's bytes: inode number, kind, `sub`, the numbers big-endian so that bytes sort as keys do.
    pub(super) fn encode(&self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[..8].copy_from_slice(&self.ino.to_be_bytes());
        bytes[8] = self.kind;
        bytes[9..].copy_from_slice(&self.sub.to_be_bytes());
        bytes
    }

    /// Returns the key that [`Key::encode`] made `bytes` from. Any bytes are a key.
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
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Key> {
        // Small numbers make equal prefixes likely, without which only `ino` would ever be compared.
        let number = || prop_oneof![0u64..3, any::<u64>()];
        (number(), 0u8..3, number()).prop_map(|(ino, kind, sub)| Key { ino, kind, sub })
    }

    proptest! {
        #[test]
        fn decode_returns_what_was_encoded(key in keys()) {
            prop_assert_eq!(Key::decode(&key.encode()), key);
        }

        #[test]
        fn keys_sort_as_their_bytes_do(a in keys(), b in keys()) {
            prop_assert_eq!(a.cmp(&b), a.encode().cmp(&b.encode()));
        }
    }

    #[test]
    fn the_encoding_is_fixed() {
        let key = Key { ino: 0x0102_0304_0506_0708, kind: 9, sub: 0x0a0b_0c0d_0e0f_1011 };
        assert_eq!(key.encode(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]);
    }
}
