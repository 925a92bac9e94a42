//! A set of files in little memory: one bit for each file, 64 neighbours in a word.

use std::collections::HashMap;

use super::GuestFile;

/// Maximum number of groups of 64 file numbers with a member in the set. They take about 50 MiB. Ten million files with
/// consecutive numbers take a sixth of it.
const WORDS_MAX: usize = 1 << 20;

/// A set of files of a tree: of at least a million files, or of 64 times as many with consecutive numbers.
#[derive(Debug, Default)]
pub struct FileSet {
    words: HashMap<GuestFile, u64>,
}

/// Result of an insertion into a [`FileSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The file was not in the set before, and is now.
    New,
    /// The file was in the set before.
    Known,
    /// The set has no room, so it is unknown whether the file was inserted before.
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
