//! Digests of files in package databases.

use std::fmt;

/// The digest of a file's content, with its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Digest {
    /// MD5, which dpkg records. It detects accidental changes, but anyone can make two contents with the same digest.
    Md5([u8; 16]),
}

impl Digest {
    /// Returns the name of the algorithm in lower case.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self {
            Digest::Md5(_) => "md5",
        }
    }

    /// Returns the bytes of the digest.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Digest::Md5(bytes) => bytes,
        }
    }

    /// Parses an MD5 digest from 32 hexadecimal digits.
    pub(super) fn parse_md5(digits: &[u8]) -> Option<Digest> {
        if digits.len() != 32 {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Some(Digest::Md5(bytes))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    /// Writes the bytes as hexadecimal digits, without the algorithm.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_and_written() {
        let digits = "d41d8cd98f00b204e9800998ecf8427e";
        let digest = Digest::parse_md5(digits.as_bytes()).unwrap();
        assert_eq!((digest.to_string().as_str(), digest.algorithm()), (digits, "md5"));
        assert_eq!(Digest::parse_md5(digits.to_uppercase().as_bytes()), Some(digest));
        for wrong in ["", "d41d8cd98f00b204e9800998ecf8427", "g41d8cd98f00b204e9800998ecf8427e", "newconffile"] {
            assert_eq!(Digest::parse_md5(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
