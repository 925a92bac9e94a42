//! What a check finds, gathered: the first thousand problems in full, the others counted.

use onefold_block::BlockNo;

use crate::attr::Ino;

/// Problems that are told in full.
pub(crate) const PROBLEMS_MAX: usize = 1000;
/// Files that one problem names.
pub(crate) const FILES_MAX: usize = 100;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which structure: `superblock`, `journal`, `pool state`, `bitmap`, `fingerprint store`, `reference count`,
    /// `file map`, `names tree`, `inode`, `directory`, `attribute`, `symbolic link`, `orphan list`, `reclaim list`,
    /// `saved filter`, `data`.
    pub structure: &'static str,
    /// Where, if it has a place.
    pub block: Option<BlockNo>,
    /// Paths of the files hit, as far as known.
    pub files: Vec<String>,
    /// What is wrong, in the user's words.
    pub what: String,
}

/// What was looked at, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// What is wrong, at most a thousand of them.
    pub problems: Vec<Problem>,
    /// All problems; those beyond the first thousand are only counted.
    pub problems_total: u64,
    /// Of a repair: problems that are left, damaged data included.
    pub problems_left: u64,
    /// Inodes looked at.
    pub inodes_checked: u64,
    /// Metadata blocks read and blocks whose references were counted.
    pub blocks_checked: u64,
    /// Data blocks compared with their fingerprints.
    pub data_blocks_hashed: u64,
    /// Stopped before the end, by the caller's wish.
    pub stopped: bool,
}

impl CheckReport {
    /// Returns whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problems_total == 0
    }
}

/// A problem whose files are not known by name yet.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) problem: Problem,
    /// Files hit.
    pub(super) inos: Vec<Ino>,
    /// The files that reach this block by their maps are hit too.
    pub(super) traced: Option<BlockNo>,
}

/// The problems so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) found: Vec<Found>,
    pub(super) total: u64,
    /// Files with data past their end.
    pub(super) past_end: Vec<Ino>,
    /// Files of several sharing domains have blocks in common.
    pub(super) mixed_domains: bool,
    /// Pages of the names tree are unusable, or are not led to: what is in them is not known.
    pub(super) lost_names: bool,
    /// Blocks in use that too few places, or none, refer to.
    pub(super) unreferenced: u64,
}

impl Findings {
    /// Returns how much the parts of the pool contradict each other. A tree that was cut off hides what was wrong with
    /// it and leaves its blocks behind, so each of those counts.
    pub(super) fn contradictions(&self) -> u64 {
        self.total + self.unreferenced
    }

    /// Puts problems in front that were found before.
    pub(super) fn precede_by(&mut self, earlier: Findings) {
        self.total += earlier.total;
        let later = std::mem::replace(&mut self.found, earlier.found);
        self.found.extend(later);
        self.found.truncate(PROBLEMS_MAX);
    }

    /// Tells of a problem that hits no file in particular.
    pub(super) fn tell(&mut self, structure: &'static str, block: Option<BlockNo>, what: impl Into<String>) {
        self.add(structure, block, what.into(), &[], None);
    }

    /// Tells of a problem that hits `ino`.
    pub(super) fn tell_of(
        &mut self,
        ino: Ino,
        structure: &'static str,
        block: Option<BlockNo>,
        what: impl Into<String>,
    ) {
        self.add(structure, block, what.into(), &[ino], None);
    }

    /// Tells of a problem that hits all files whose maps reach `block`.
    pub(super) fn tell_users_of(&mut self, block: BlockNo, structure: &'static str, what: impl Into<String>) {
        self.add(structure, Some(block), what.into(), &[], Some(block));
    }

    /// Returns whether a problem of a block is among those told, as far as they are kept.
    pub(super) fn has_told_of(&self, block: BlockNo) -> bool {
        self.found.iter().any(|found| found.problem.block == Some(block))
    }

    fn add(
        &mut self,
        structure: &'static str,
        block: Option<BlockNo>,
        what: String,
        inos: &[Ino],
        traced: Option<BlockNo>,
    ) {
        self.total += 1;
        if self.found.len() < PROBLEMS_MAX {
            let problem = Problem { structure, block, files: Vec::new(), what };
            self.found.push(Found { problem, inos: inos.to_vec(), traced });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_beyond_the_first_thousand_are_only_counted() {
        let mut findings = Findings::default();
        for number in 0..PROBLEMS_MAX + 7 {
            findings.tell("bitmap", Some(BlockNo(number as u64)), "wrong");
        }
        assert_eq!((findings.found.len(), findings.total), (PROBLEMS_MAX, PROBLEMS_MAX as u64 + 7));
    }
}
