//! The prefix of a shard: all digests of a shard begin with the same bits.

use std::fmt;

use super::FingerprintPrefix;

/// The first bits of digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The bits, from the top; the rest is zero.
    bits: u64,
    count: u8,
}

impl Prefix {
    /// The prefix of all digests.
    pub const WHOLE: Prefix = Prefix { bits: 0, count: 0 };
    /// Maximum length of a prefix. With longer ones, there would be more shards than a process can open.
    pub(crate) const BITS_MAX: u8 = 12;
    /// The name of [`Prefix::WHOLE`].
    const WHOLE_NAME: &str = "whole";

    /// Returns the prefix with a name: `whole`, or its bits as digits.
    #[must_use]
    pub fn parse(name: &str) -> Option<Prefix> {
        if name == Prefix::WHOLE_NAME {
            return Some(Prefix::WHOLE);
        }
        if name.is_empty() {
            return None;
        }
        name.chars().try_fold(Prefix::WHOLE, |prefix, digit| {
            let [zero, one] = prefix.halves()?;
            match digit {
                '0' => Some(zero),
                '1' => Some(one),
                _ => None,
            }
        })
    }

    /// Returns the longest prefix of a digest.
    #[must_use]
    pub fn of(digest: FingerprintPrefix) -> Prefix {
        let longest = Prefix { bits: 0, count: Prefix::BITS_MAX };
        Prefix { bits: digest.first_word() & longest.mask(), ..longest }
    }

    /// Returns the two prefixes that are longer by one bit; `None` if they would be too long.
    #[must_use]
    pub fn halves(self) -> Option<[Prefix; 2]> {
        if self.count == Prefix::BITS_MAX {
            return None;
        }
        let count = self.count + 1;
        Some([Prefix { count, ..self }, Prefix { bits: self.bits | 1 << (u64::BITS - u32::from(count)), count }])
    }

    /// Returns whether all digests of `other` are digests of this one.
    #[must_use]
    pub fn covers(self, other: Prefix) -> bool {
        self.count <= other.count && self.mask() & other.bits == self.bits
    }

    /// Returns whether a digest begins with it.
    #[must_use]
    pub fn contains(self, digest: FingerprintPrefix) -> bool {
        digest.first_word() & self.mask() == self.bits
    }

    /// Returns the lowest first eight bytes of its digests, as a number.
    #[must_use]
    pub fn first_word(self) -> u64 {
        self.bits
    }

    /// Returns the highest first eight bytes of its digests, as a number.
    #[must_use]
    pub fn last_word(self) -> u64 {
        self.bits | !self.mask()
    }

    /// Returns by how many bits it is longer than another prefix that covers it.
    #[must_use]
    pub(crate) fn bits_behind(self, other: Prefix) -> u8 {
        self.count.saturating_sub(other.count)
    }

    fn mask(self) -> u64 {
        u64::MAX.checked_shl(u64::BITS - u32::from(self.count)).unwrap_or(0)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Prefix::WHOLE {
            return f.write_str(Prefix::WHOLE_NAME);
        }
        (0..self.count).try_for_each(|at| write!(f, "{}", self.bits >> (u64::BITS - 1 - u32::from(at)) & 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(first: u8) -> FingerprintPrefix {
        let mut digest = FingerprintPrefix([7; FingerprintPrefix::BYTES]);
        digest.0[0] = first;
        digest
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["whole", "0", "1", "01", "110", "000000000000", "111111111111"] {
            assert_eq!(Prefix::parse(name).unwrap().to_string(), name);
        }
        for name in ["", "2", "0a", "wholes", "Whole", "0000000000000"] {
            assert!(Prefix::parse(name).is_none(), "{name:?}");
        }
    }

    #[test]
    fn each_digest_is_in_one_half() {
        assert!(Prefix::WHOLE.contains(digest(0)) && Prefix::WHOLE.contains(digest(255)));
        for first in 0..=255 {
            let mut prefix = Prefix::WHOLE;
            while let Some([zero, one]) = prefix.halves() {
                assert_ne!(zero.contains(digest(first)), one.contains(digest(first)));
                assert_eq!(zero.last_word().wrapping_add(1), one.first_word());
                assert!(prefix.covers(zero) && prefix.covers(one) && !zero.covers(one) && !zero.covers(prefix));
                prefix = if zero.contains(digest(first)) { zero } else { one };
                let word = digest(first).first_word();
                assert!((prefix.first_word()..=prefix.last_word()).contains(&word));
            }
            assert_eq!(prefix.count, Prefix::BITS_MAX);
            assert_eq!(prefix, Prefix::of(digest(first)));
        }
    }
}
