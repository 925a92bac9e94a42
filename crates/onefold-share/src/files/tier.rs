//! Tiers: how strongly two files are believed to be equal.

use std::fmt;

use crate::pass::ContentKey;

/// The evidence by which files are believed equal. The numbers are those of the command line; 4 is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Package databases record one digest for both, and they have the same length.
    Digest,
    /// They have the same inode number, generation, times, length and place on the disk: the images were copied as
    /// whole files.
    Copied,
    /// Files of no package with equal paths, lengths and times of content.
    Dated,
    /// Files of no package with equal paths and lengths.
    Named,
}

impl Tier {
    /// All tiers, the best first.
    pub const ALL: [Tier; 4] = [Tier::Digest, Tier::Copied, Tier::Dated, Tier::Named];

    /// Returns its number on the command line.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Tier::Digest => 1,
            Tier::Copied => 2,
            Tier::Dated => 3,
            Tier::Named => 5,
        }
    }

    /// Returns its place among all tiers.
    pub(super) fn index(self) -> usize {
        match self {
            Tier::Digest => 0,
            Tier::Copied => 1,
            Tier::Dated => 2,
            Tier::Named => 3,
        }
    }

    /// Returns the tier with a number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| tier.number() == number)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tier {}", self.number())
    }
}

/// Bits of the number of a package in the key of a content.
const PACKAGE_BITS: u32 = 28;

/// The tier and the package of a content, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Label {
    pub(super) tier: Tier,
    pub(super) package: u32,
}

impl Label {
    /// Returns the key that stands for the label in runs.
    pub(super) fn key(self) -> Option<ContentKey> {
        let is_short = self.package < 1 << PACKAGE_BITS;
        is_short.then(|| ContentKey::new(u32::from(self.tier.number()) << PACKAGE_BITS | self.package)).flatten()
    }

    /// Returns the label that a key stands for.
    pub(super) fn of_key(key: ContentKey) -> Option<Label> {
        let tier = Tier::of_number(u8::try_from(key.number() >> PACKAGE_BITS).ok()?)?;
        Some(Label { tier, package: key.number() & ((1 << PACKAGE_BITS) - 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stands_for_one_label() {
        for tier in Tier::ALL {
            for package in [0, 1, (1 << PACKAGE_BITS) - 1] {
                let label = Label { tier, package };
                assert_eq!(Label::of_key(label.key().unwrap()), Some(label));
            }
            assert_eq!(Label { tier, package: 1 << PACKAGE_BITS }.key(), None);
        }
        assert_eq!(Label::of_key(ContentKey::default()), None);
    }
}
