//! A set of files in little memory: a bit for each, 64 neighbours in a word.

use std::collections::HashMap;

use super::GuestFile;

/// Groups of 64 file numbers of which some are in a set: about 50 MiB of them. Ten million files that are neighbours
/// take a sixth of it.
const WORDS_MAX: usize = 1 << 20;

/// A set of files of a tree, of at least a million files, and of 64 times as many where they are neighbours.
#[derive(Debug, Default)]
pub struct FileSet {
    words: HashMap<GuestFile, u64>,
}

/// What came of an insertion into a [`FileSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The file is in the set now, and was not before.
    New,
    /// The file was in the set before.
    Known,
    /// The set has no room for it, so that nothing is known of it.
    Full,
}

impl FileSet {
    /// Inserts a file.
    pub fn insert(&mut self, file: GuestFile) -> Insertion {
        let mut group = file;
        group.file.0 /= 64;
        let bit = 1 << (file.file.0 % 64);
        if self.words.len() >= WORDS_MAX && !self.words.contains_key(&group) {
            return Insertion::Full;
        }
        let word = self.words.entry(group).or_insert(0);
        let is_known = *word & bit != 0;
        *word |= bit;
        if is_known { Insertion::Known } else { Insertion::New }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SystemIndex;
    use super::*;
    use crate::filesystem::FileNumber;

    #[test]
    fn a_file_is_new_once_in_each_file_system_and_a_full_set_says_so() {
        let mut set = FileSet::default();
        let file = |system, number| GuestFile { system: SystemIndex(system), file: FileNumber(number) };
        for (system, number) in [(0, 0), (0, 1), (0, 63), (0, 64), (1, 1), (0, u64::MAX)] {
            assert_eq!(set.insert(file(system, number)), Insertion::New);
            assert_eq!(set.insert(file(system, number)), Insertion::Known);
        }
        for number in 0..WORDS_MAX as u64 {
            set.insert(file(2, number * 64));
        }
        assert_eq!(set.insert(file(3, 0)), Insertion::Full);
        assert_eq!(set.insert(file(0, 65)), Insertion::New);
        assert_eq!(set.insert(file(0, 1)), Insertion::Known);
    }
}
