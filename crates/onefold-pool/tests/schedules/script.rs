//! The threads' scripts of a scenario, and the contents that files may have as a result.

use std::collections::{BTreeMap, BTreeSet};

/// Number of blocks of a file that scripts may touch. The last one lies beyond what an inode itself holds: files that
/// reach it have a map of their own, which clones share.
pub const FILE_BLOCKS: u64 = 16;

/// Name of a file.
pub type Name = &'static str;
/// Number of a content in the tests' alphabet; 0 is zeros.
pub type Letter = u64;

/// One step of a thread.
#[derive(Clone, Debug)]
pub enum Act {
    /// Writes these letters from a block on.
    Write(Name, u64, Vec<Letter>),
    /// Makes a number of blocks from the first on a hole.
    Punch(Name, u64, u64),
    /// Truncates the file to a number of blocks.
    Truncate(Name, u64),
    /// Makes the second file a clone of the first. It must be new.
    Clone(Name, Name),
    /// Compares and shares a block of the first file with one of the second. This changes no content.
    Share((Name, u64), (Name, u64)),
    /// Removes a file.
    Unlink(Name),
    /// Reads all of a file and judges it.
    Read(Name),
    /// Makes all changes so far durable.
    Commit,
    /// Empties the journal.
    Checkpoint,
    /// Does one step of reclaim.
    Reclaim,
    /// Compares all data with its fingerprints.
    Scrub,
}

/// The acts of a thread.
pub type Script = Vec<Act>;

impl Act {
    /// Returns the file that it changes.
    pub fn changes(&self) -> Option<Name> {
        match self {
            Act::Write(file, ..) | Act::Punch(file, ..) | Act::Truncate(file, _) | Act::Clone(_, file) => Some(file),
            Act::Unlink(file) => Some(file),
            Act::Share(..) | Act::Read(_) | Act::Commit | Act::Checkpoint | Act::Reclaim | Act::Scrub => None,
        }
    }

    /// Returns the files that it needs.
    pub fn files(&self) -> impl Iterator<Item = Name> {
        let others = match self {
            Act::Clone(source, _) => vec![*source],
            Act::Share((source, _), (target, _)) => vec![*source, *target],
            _ => Vec::new(),
        };
        others.into_iter().chain(self.changes())
    }

    /// Applies it to the files' contents.
    pub fn apply(&self, files: &mut Files) {
        match self {
            Act::Write(file, first, letters) => {
                let holds = files.entry(file).or_default();
                holds.extend((*first..).zip(letters.iter().copied()));
            }
            Act::Punch(file, first, count) => {
                let holds = files.entry(file).or_default();
                holds.retain(|block, _| !(*first..first + count).contains(block));
            }
            Act::Truncate(file, blocks) => files.entry(file).or_default().retain(|block, _| block < blocks),
            Act::Clone(source, target) => {
                let holds = files.get(source).cloned().unwrap_or_default();
                files.insert(target, holds);
            }
            Act::Unlink(file) => {
                files.remove(file);
            }
            Act::Share(..) | Act::Read(_) | Act::Commit | Act::Checkpoint | Act::Reclaim | Act::Scrub => {}
        }
    }
}

/// Contents of files: a letter for each written block.
pub type Files = BTreeMap<Name, BTreeMap<u64, Letter>>;

/// The contents that files may have while scripts run concurrently.
#[derive(Clone, Debug)]
pub struct Beliefs {
    /// Letters that each block of a file may hold at some moment.
    possible: BTreeMap<(Name, u64), BTreeSet<Letter>>,
    /// The only thread that changes a file, for files whose content that thread knows.
    owners: BTreeMap<Name, usize>,
    /// Files that a thread removes.
    removed: BTreeSet<Name>,
}

impl Beliefs {
    /// Returns what may be seen of `files` while `scripts` run.
    pub fn new(files: &Files, scripts: &[Script]) -> Beliefs {
        let mut possible: BTreeMap<(Name, u64), BTreeSet<Letter>> = BTreeMap::new();
        for (file, holds) in files {
            for block in 0..FILE_BLOCKS {
                possible.entry((file, block)).or_default().insert(holds.get(&block).copied().unwrap_or(0));
            }
        }
        let acts = || scripts.iter().flatten();
        // A clone of a clone takes as many rounds as there are clones in a row.
        for _ in 0..=acts().filter(|act| matches!(act, Act::Clone(..))).count() {
            acts().for_each(|act| spread(act, &mut possible));
        }
        let removed = acts().filter_map(|act| if let Act::Unlink(file) = act { Some(*file) } else { None }).collect();
        Beliefs { possible, owners: owners(files, scripts), removed }
    }

    /// Returns whether thread `thread` knows exactly what a file holds.
    pub fn is_owner(&self, thread: usize, file: Name) -> bool {
        self.owners.get(file) == Some(&thread)
    }

    /// Returns whether a file may be gone when it is used.
    pub fn may_be_gone(&self, file: Name) -> bool {
        self.removed.contains(file)
    }

    /// Returns whether a block of a file may hold a letter at some moment.
    pub fn allows(&self, file: Name, block: u64, letter: Letter) -> bool {
        letter == 0 && !self.possible.contains_key(&(file, block))
            || self.possible.get(&(file, block)).is_some_and(|letters| letters.contains(&letter))
    }
}

fn spread(act: &Act, possible: &mut BTreeMap<(Name, u64), BTreeSet<Letter>>) {
    match act {
        Act::Write(file, first, letters) => {
            for (block, letter) in (*first..).zip(letters) {
                possible.entry((file, block)).or_insert_with(|| BTreeSet::from([0])).insert(*letter);
            }
        }
        Act::Punch(file, ..) | Act::Truncate(file, _) => {
            for block in 0..FILE_BLOCKS {
                possible.entry((file, block)).or_default().insert(0);
            }
        }
        Act::Clone(source, target) => {
            for block in 0..FILE_BLOCKS {
                let letters = possible.get(&(*source, block)).cloned().unwrap_or_else(|| BTreeSet::from([0]));
                possible.entry((target, block)).or_default().extend(letters);
            }
        }
        Act::Share(..) | Act::Unlink(_) | Act::Read(_) | Act::Commit | Act::Checkpoint | Act::Reclaim | Act::Scrub => {}
    }
}

fn owners(files: &Files, scripts: &[Script]) -> BTreeMap<Name, usize> {
    let mut changed_by: BTreeMap<Name, BTreeSet<usize>> = files.keys().map(|file| (*file, BTreeSet::new())).collect();
    for (thread, script) in scripts.iter().enumerate() {
        for file in script.iter().filter_map(Act::changes) {
            changed_by.entry(file).or_default().insert(thread);
        }
    }
    // A file that no thread changes can belong to the first thread as well as to any other.
    let single = changed_by.iter().filter(|(_, threads)| threads.len() <= 1);
    let mut owners: BTreeMap<Name, usize> =
        single.map(|(file, threads)| (*file, threads.first().copied().unwrap_or(0))).collect();
    // A thread that clones a file changed by others does not know the moment of the clone.
    loop {
        let unknown =
            scripts.iter().enumerate().flat_map(|(thread, script)| script.iter().map(move |act| (thread, act)));
        let mut unknown = unknown.filter_map(|(thread, act)| match act {
            Act::Clone(source, target) => {
                let known = match changed_by.get(source).map(BTreeSet::len) {
                    None | Some(0) => true,
                    Some(_) => owners.get(source) == Some(&thread),
                };
                (!known && owners.contains_key(target)).then_some(*target)
            }
            _ => None,
        });
        let Some(target) = unknown.next() else { return owners };
        owners.remove(target);
    }
}
