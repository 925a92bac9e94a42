//! The existing generations of each shard, as the file names show.

use std::collections::BTreeMap;

use crate::format::prefix::Prefix;

/// The existing generations of each shard.
#[derive(Debug, Default)]
pub(super) struct Generations {
    pub(super) by_prefix: BTreeMap<Prefix, Vec<u64>>,
}

impl Generations {
    pub(super) fn newest(&self, prefix: Prefix) -> Option<u64> {
        self.by_prefix.get(&prefix)?.iter().copied().max()
    }

    /// Returns whether there is a shard that is a part of this one.
    pub(super) fn has_part(&self, prefix: Prefix) -> bool {
        self.by_prefix.keys().any(|other| *other != prefix && prefix.covers(*other))
    }

    /// Returns whether each half of a shard has files.
    pub(super) fn has_both_halves(&self, prefix: Prefix) -> bool {
        let has = |half: Prefix| self.by_prefix.keys().any(|other| half.covers(*other));
        prefix.halves().is_some_and(|halves| halves.into_iter().all(has))
    }

    /// Returns whether other files hold all digests of a generation, in newer generations. While only one half of a
    /// split shard was published, the entries of the other one are nowhere else: the host that published the first half
    /// had them from this generation.
    pub(super) fn is_over(&self, prefix: Prefix, generation: u64) -> bool {
        self.newest(prefix) != Some(generation) || self.has_both_halves(prefix)
    }

    /// Returns whether all digests of a prefix are in some shard's files.
    pub(super) fn are_all_there(&self, prefix: Prefix) -> bool {
        self.newest(prefix).is_some()
            || self.has_part(prefix)
                && prefix.halves().is_some_and(|halves| halves.into_iter().all(|half| self.are_all_there(half)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generations(names: &[(&str, u64)]) -> Generations {
        let mut generations = Generations::default();
        for (prefix, number) in names {
            generations.by_prefix.entry(Prefix::parse(prefix).unwrap()).or_default().push(*number);
        }
        generations
    }

    #[test]
    fn an_index_is_there_when_each_digest_has_a_shard() {
        for (names, expected) in [
            (&[][..], false),
            (&[("whole", 3)], true),
            (&[("0", 1)], false),
            (&[("0", 1), ("1", 4)], true),
            (&[("whole", 3), ("0", 1)], true),
            (&[("00", 1), ("01", 1), ("1", 1)], true),
            (&[("00", 1), ("01", 1), ("11", 1)], false),
            (&[("00", 1), ("0", 1), ("1", 1)], true),
        ] {
            assert_eq!(generations(names).are_all_there(Prefix::WHOLE), expected, "{names:?}");
        }
    }

    #[test]
    fn a_split_shard_is_superseded_by_both_of_its_halves() {
        let prefix = |name| Prefix::parse(name).unwrap();
        let generations = generations(&[("whole", 3), ("whole", 12), ("0", 1), ("01", 2), ("11", 1)]);
        assert_eq!(generations.newest(prefix("whole")), Some(12));
        assert!(generations.has_both_halves(prefix("whole")) && !generations.has_both_halves(prefix("0")));
        assert!(generations.has_part(prefix("1")) && !generations.has_part(prefix("01")));
    }

    /// Another host publishes a half of a shard that this one has just split, before this one lists the files. Only
    /// this host's file has the other half.
    #[test]
    fn a_split_shard_is_needed_until_both_of_its_halves_are_there() {
        let prefix = Prefix::parse("0").unwrap();
        for (names, expected) in [
            (&[("0", 3)][..], false),
            (&[("0", 2), ("0", 3)], false),
            (&[("0", 3), ("01", 1)], false),
            (&[("0", 3), ("00", 1), ("01", 1)], true),
            (&[("0", 3), ("0", 4)], true),
            (&[("00", 1), ("01", 1)], true),
        ] {
            assert_eq!(generations(names).is_over(prefix, 3), expected, "{names:?}");
        }
    }
}
