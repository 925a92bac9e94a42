//! Names to look up, and their hashes.
//!
//! A file system may ignore the case of letters (`ascii-ci`). It treats names as ISO 8859-1, whatever their encoding
//! is.

use crate::xfs::Xfs;

/// A name to look up.
pub(super) struct NameQuery<'n> {
    /// The name.
    pub(super) name: &'n [u8],
    is_caseless: bool,
}

impl Xfs<'_> {
    /// Returns a name in the form for look-ups by the rules of this file system.
    pub(super) fn wanted<'n>(&self, name: &'n [u8]) -> NameQuery<'n> {
        NameQuery { name, is_caseless: self.superblock.features.is_case_insensitive() }
    }
}

impl NameQuery<'_> {
    /// Returns the hash of the name in the index of a directory.
    pub(super) fn hash(&self) -> u32 {
        let hashed = |byte| if self.is_caseless { lower(byte) } else { byte };
        self.name.iter().fold(0_u32, |hash, byte| u32::from(hashed(*byte)) ^ hash.rotate_left(7))
    }

    /// Returns whether a name in a directory matches.
    pub(super) fn is_met_by(&self, name: &[u8]) -> bool {
        let lowered = |name: &[u8]| name.iter().map(|byte| lower(*byte)).collect::<Vec<u8>>();
        name == self.name || (self.is_caseless && lowered(name) == lowered(self.name))
    }
}

/// Returns the lower-case letter of a byte of ISO 8859-1.
fn lower(byte: u8) -> u8 {
    if matches!(byte, b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde) { byte + 0x20 } else { byte }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(name: &[u8], is_caseless: bool) -> u32 {
        NameQuery { name, is_caseless }.hash()
    }

    #[test]
    fn hashes_are_those_of_the_format() {
        // The output of `xfs_db -c "hash NAME"`.
        for (name, hash) in [("a", 0x61_u32), ("hello", 0x8cbb_3669), ("a-longer-name.txt", 0x68d_19d0)] {
            assert_eq!(hash_of(name.as_bytes(), false), hash, "{name}");
        }
    }

    #[test]
    fn names_without_case_have_the_hash_of_small_letters() {
        assert_eq!(hash_of(b"HeLLo \xc0\xd7\xde", true), hash_of(b"hello \xe0\xd7\xfe", false));
        let wanted = NameQuery { name: b"HeLLo", is_caseless: true };
        assert!(wanted.is_met_by(b"hEllO") && !wanted.is_met_by(b"hEll0"));
        assert!(!NameQuery { name: b"HeLLo", is_caseless: false }.is_met_by(b"hello"));
    }
}
