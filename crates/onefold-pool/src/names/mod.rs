//! Names: inodes, directories, attributes and links, as items of the names tree.

pub(crate) mod acl;
pub(crate) mod directory;
pub(crate) mod inodes;
pub(crate) mod rename;
pub(crate) mod symlink;
pub(crate) mod tree_pages;
pub(crate) mod xattr;

/// Computes the hash of a name under the pool's secret.
#[derive(Clone)]
pub(crate) struct NameHash {
    key: [u8; 32],
}

impl NameHash {
    /// Returns the hash function for a pool with that secret.
    pub(crate) fn new(pool_key: &[u8; 32]) -> NameHash {
        NameHash { key: blake3::derive_key("onefold 2026 pool name hash", pool_key) }
    }

    /// Returns a 64-bit hash that cannot be steered without the secret.
    pub(crate) fn of(&self, name: &[u8]) -> u64 {
        let hash = blake3::keyed_hash(&self.key, name);
        u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_hashes_do_not_drift() {
        let hash = NameHash::new(&[7; 32]);
        assert_ne!(hash.of(b"a"), NameHash::new(&[8; 32]).of(b"a"));
        assert_eq!(hash.of(b"disk.raw"), 0xb600_d4b2_0e31_e7f2);
    }
}
