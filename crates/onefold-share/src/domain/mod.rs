//! Sharing domains of plain files: which files may share blocks with each other.
//!
//! Sharing reveals contents. A user may write a guess into an own file. If a map then shows the block as shared,
//! another file holds it. So files share blocks only within a domain. The key with which a file is fingerprinted is
//! derived from its domain: equal blocks of two domains have unrelated digests, and never meet.
//!
//! | rule, the first that applies | domain |
//! |---|---|
//! | the file's own attribute [`label::ATTRIBUTE`] | the domain that it names |
//! | the attribute of the nearest folder above it, for a file with one name | the domain that it names |
//! | a machine's file with one name, in a folder of libvirt's to which only root may write | `libvirt` |
//! | otherwise | its tenant's |
//!
//! A file's *tenant* is its owner, with one exception: libvirt gives an image to the user of its machines while a
//! machine runs, and back to root afterwards. So a file whose owner becomes one of the *machine users* keeps the tenant
//! that was noted for it. Every other change of the owner gives it the new owner as tenant. The
//! [settings](settings::Settings) join domains, and name more machine users.
//!
//! The domain of a file counts from the moment at which the file is read in it. A file whose domain has changed is
//! neither a source nor a target until then. It gets a new number, and knowledge under the old one is never used again.
//! Blocks that it shares already stay shared.

pub mod label;
pub mod rules;
pub mod settings;

use std::fmt;
use std::str::FromStr;

use onefold_block::FingerprintKey;

pub use self::rules::{Cause, DomainRules, FoundDomain};

/// Maximum length of a domain's name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// First byte of an encoded domain.
const OWNER: u8 = 0;
const NAMED: u8 = 1;

/// A set of files that may share blocks with each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// All files of a user, by the user's number.
    Owner(u32),
    /// The files that an administrator has put into it.
    Named(DomainName),
}

/// Name of a domain: a letter, and then letters, digits, `.`, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(Box<str>);

impl DomainName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text names no domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainNameError {
    /// There is no text.
    #[error("the name of a domain is missing")]
    Empty,
    /// It is too long.
    #[error("it has {bytes} bytes; names of domains have {NAME_BYTES_MAX} at most")]
    Long {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It does not begin with a letter, and is not the number of a user.
    #[error("names of domains begin with a letter; digits alone are a user's number, at most 4294967295")]
    First,
    /// It has a character that names do not have.
    #[error("names of domains consist of letters, digits, `.`, `_` and `-`")]
    Character,
    /// It is a word with another meaning.
    #[error("`{}` is no domain: as an attribute, it has files belong to their owners' domains", label::BY_OWNER)]
    Reserved,
}

impl FromStr for DomainName {
    type Err = DomainNameError;

    fn from_str(text: &str) -> Result<DomainName, DomainNameError> {
        let first = text.chars().next().ok_or(DomainNameError::Empty)?;
        if text.len() > NAME_BYTES_MAX {
            return Err(DomainNameError::Long { bytes: text.len() });
        }
        if text == label::BY_OWNER {
            return Err(DomainNameError::Reserved);
        }
        if text.chars().any(|letter| !(letter.is_ascii_alphanumeric() || "._-".contains(letter))) {
            return Err(DomainNameError::Character);
        }
        if !first.is_ascii_alphabetic() {
            return Err(DomainNameError::First);
        }
        Ok(DomainName(text.into()))
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Domain {
    type Err = DomainNameError;

    /// Returns the domain of a text: a user's number, or a name.
    fn from_str(text: &str) -> Result<Domain, DomainNameError> {
        // `parse` would accept a sign, too.
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Domain::Owner).map_err(|_| DomainNameError::First);
        }
        text.parse().map(Domain::Named)
    }
}

impl fmt::Display for Domain {
    /// Writes the domain as [`Domain::from_str`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Domain::Owner(user) => write!(f, "{user}"),
            Domain::Named(name) => write!(f, "{name}"),
        }
    }
}

impl Domain {
    /// Name of the domain of libvirt's folders.
    pub(crate) const LIBVIRT: &'static str = "libvirt";
    /// Name of the one domain of a file system that keeps domains apart by itself.
    pub const POOL: &'static str = "pool";

    /// Maximum length of the encoding, in bytes.
    #[cfg(test)]
    const ENCODED_BYTES_MAX: usize = 1 + NAME_BYTES_MAX;

    /// Returns the domain of a name that this module defines.
    pub(crate) fn built_in(name: &str) -> Domain {
        Domain::Named(DomainName(name.into()))
    }

    /// Returns the domain's bytes: 0 and the user's number (4 bytes, little-endian), or 1 and the name. Part of the
    /// on-disk format: marks hold them, and keys are derived from them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Domain::Owner(user) => [&[OWNER][..], &user.to_le_bytes()].concat(),
            Domain::Named(name) => [&[NAMED][..], name.as_str().as_bytes()].concat(),
        }
    }

    /// Returns the domain of these bytes, if they are one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Domain> {
        match bytes.split_first()? {
            (&OWNER, user) => Some(Domain::Owner(u32::from_le_bytes(user.try_into().ok()?))),
            (&NAMED, name) => std::str::from_utf8(name).ok()?.parse().ok().map(Domain::Named),
            _ => None,
        }
    }

    /// Returns the key with which blocks of the domain's files are fingerprinted, given the key of the state folder.
    #[must_use]
    pub fn key(&self, state_key: &[u8; FingerprintKey::BYTES]) -> FingerprintKey {
        FingerprintKey::derive_for(state_key, &self.encode())
    }
}

/// The domain of a file, and the facts that decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The domain.
    pub domain: Domain,
    /// User number of the file's tenant.
    pub tenant: u32,
    /// User number of the file's owner.
    pub owner: u32,
}

#[cfg(test)]
mod tests {
    use onefold_block::BLOCK_BYTES;

    use super::*;

    fn named(name: &str) -> Domain {
        name.parse().unwrap()
    }

    #[test]
    fn domains_are_numbers_of_users_or_names() {
        let long = "n".repeat(NAME_BYTES_MAX);
        for text in ["0", "1000", "4294967295", "staff", "tenant-7", "a.b_C", &long] {
            let domain: Domain = text.parse().unwrap();
            assert_eq!(domain.to_string(), text);
            assert_eq!(Domain::decode(&domain.encode()), Some(domain.clone()));
            assert_eq!(matches!(domain, Domain::Owner(_)), text.as_bytes()[0].is_ascii_digit());
            assert!(domain.encode().len() <= Domain::ENCODED_BYTES_MAX);
        }
        for (text, why) in [
            ("", DomainNameError::Empty),
            (&*"n".repeat(65), DomainNameError::Long { bytes: 65 }),
            ("4294967296", DomainNameError::First),
            ("7th", DomainNameError::First),
            ("-x", DomainNameError::First),
            ("+7", DomainNameError::Character),
            ("two words", DomainNameError::Character),
            ("a/b", DomainNameError::Character),
            ("caf\u{e9}", DomainNameError::Character),
            ("esc\u{1b}[2J", DomainNameError::Character),
            ("owner", DomainNameError::Reserved),
        ] {
            assert_eq!(text.parse::<Domain>(), Err(why), "{text:?}");
        }
    }

    #[test]
    fn hostile_bytes_are_no_domains() {
        for bytes in [&[][..], &[0], &[0, 1, 2, 3], &[0, 1, 2, 3, 4, 5], &[1], &[1, 0xff], &[1, b'7'], &[2, b'a']] {
            assert_eq!(Domain::decode(bytes), None, "{bytes:?}");
        }
        assert_eq!(Domain::decode(&[&[1][..], &[b'a'; 65]].concat()), None);
    }

    /// Stored digests were made with these keys: they never change.
    #[test]
    fn keys_match_the_stored_vectors() {
        let state_key = std::array::from_fn(|index| u8::try_from(index).unwrap());
        let of = |domain: Domain| domain.key(&state_key).fingerprint(&[7; BLOCK_BYTES]).to_string();
        let found = [of(Domain::Owner(0)), of(Domain::Owner(1000)), of(named("staff"))];
        let expected = [
            "cea4f29bb79214fb87469e1d6bb74002",
            "68b56c3c90bab83488983a0a205757ea",
            "be7053563afe0ec8003b20ffc86e72f6",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn equal_blocks_of_two_domains_have_unrelated_digests() {
        let names = ["a", "b", "staff"].map(named);
        let domains: Vec<Domain> = (0..4).map(Domain::Owner).chain(names).collect();
        let of = |state: u8, domain: &Domain| domain.key(&[state; 32]).fingerprint(&[9; BLOCK_BYTES]);
        let mut all: Vec<_> = domains.iter().flat_map(|domain| [of(1, domain), of(2, domain)]).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 2 * domains.len());
    }
}
