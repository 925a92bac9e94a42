//! Collects the findings of a check: the first thousand problems in full, and the number of the others.

use onefold_block::BlockNo;

use crate::attr::Ino;

/// Maximum number of problems that are reported in full.
pub(crate) const PROBLEMS_MAX: usize = 1000;
/// Maximum number of files that one problem names.
pub(crate) const FILES_MAX: usize = 100;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckProblem {
    /// The structure: `superblock`, `journal`, `pool state`, `bitmap`, `fingerprint store`, `reference count`, `file
    /// map`, `names tree`, `inode`, `directory`, `attribute`, `symbolic link`, `orphan list`, `reclaim list`, `saved
    /// filter`, `data`.
    pub structure: &'static str,
    /// Its block, if it has one.
    pub block: Option<BlockNo>,
    /// Paths of the affected files, as far as known.
    pub files: Vec<String>,
    /// Places of the block in affected files, if a check finds it to be damaged data; a hundred at most.
    pub places: Vec<FilePlace>,
    /// Whether the block has, or may have, more places than `places` names.
    pub has_more_places: bool,
    /// Whether a repair has nothing left to do about it: damaged data that no later write can be shared with.
    pub is_settled: bool,
    /// Description of the problem, for users.
    pub what: String,
}

impl CheckProblem {
    /// Returns a problem whose files are not known yet.
    pub(crate) fn new(structure: &'static str, block: Option<BlockNo>, what: String) -> CheckProblem {
        CheckProblem {
            structure,
            block,
            files: Vec::new(),
            places: Vec::new(),
            has_more_places: false,
            is_settled: false,
            what,
        }
    }
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePlace {
    /// The file's path; the first one if it has several.
    pub file: String,
    /// The offset in the file, in bytes.
    pub offset: u64,
}

/// The extent of a check, and its findings.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The problems, at most a thousand of them.
    pub problems: Vec<CheckProblem>,
    /// Number of all problems; those beyond the first thousand are only counted.
    pub problems_total: u64,
    /// After a repair: number of remaining problems, including damaged data.
    pub problems_left: u64,
    /// Number of inodes checked.
    pub inodes_checked: u64,
    /// Number of metadata blocks read and of blocks whose references were counted.
    pub blocks_checked: u64,
    /// Number of data blocks compared with their fingerprints.
    pub data_blocks_hashed: u64,
    /// Whether the caller stopped it before the end.
    pub stopped: bool,
}

impl CheckReport {
    /// Returns whether no problem was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problems_total == 0
    }
}

/// A problem whose affected files are not named yet.
#[derive(Debug)]
pub(super) struct UntracedProblem {
    pub(super) problem: CheckProblem,
    /// Affected files.
    pub(super) inos: Vec<Ino>,
    /// A block; files whose maps reach it are affected, too.
    pub(super) traced: Option<BlockNo>,
    /// Places of the traced block in files, by offset in bytes, if it is damaged data.
    pub(super) places: Vec<(Ino, u64)>,
}

/// The problems so far.
#[derive(Debug, Default)]
pub(super) struct CheckFindings {
    pub(super) found: Vec<UntracedProblem>,
    pub(super) total: u64,
    /// Files with data past their end.
    pub(super) past_end: Vec<Ino>,
    /// Whether files of several sharing domains have blocks in common.
    pub(super) mixed_domains: bool,
    /// Whether pages of the names tree are unusable or unreachable, so that their content is unknown.
    pub(super) lost_names: bool,
    /// Number of used blocks with too few references, or none.
    pub(super) unreferenced: u64,
}

impl CheckFindings {
    /// Returns how much the parts of the pool contradict each other. A tree that was cut off hides its problems and
    /// leaves its blocks unreferenced, so each of those counts.
    pub(super) fn contradictions(&self) -> u64 {
        self.total + self.unreferenced
    }

    /// Inserts earlier problems at the front.
    pub(super) fn precede_by(&mut self, earlier: CheckFindings) {
        self.total += earlier.total;
        let later = std::mem::replace(&mut self.found, earlier.found);
        self.found.extend(later);
        self.found.truncate(PROBLEMS_MAX);
    }

    /// Reports a problem that affects no particular file.
    pub(super) fn tell(&mut self, structure: &'static str, block: Option<BlockNo>, what: impl Into<String>) {
        self.add(structure, block, what.into(), &[], None);
    }

    /// Reports a problem that affects `ino`.
    pub(super) fn tell_of(
        &mut self,
        ino: Ino,
        structure: &'static str,
        block: Option<BlockNo>,
        what: impl Into<String>,
    ) {
        self.add(structure, block, what.into(), &[ino], None);
    }

    /// Reports a problem that affects all files whose maps reach `block`.
    pub(super) fn tell_users_of(&mut self, block: BlockNo, structure: &'static str, what: impl Into<String>) {
        self.add(structure, Some(block), what.into(), &[], Some(block));
    }

    /// Marks the problem that was reported last as one about which a repair has nothing left to do.
    pub(super) fn settle_last(&mut self) {
        if self.total <= PROBLEMS_MAX as u64
            && let Some(last) = self.found.last_mut()
        {
            last.problem.is_settled = true;
        }
    }

    /// Returns whether a reported problem concerns the block, as far as problems are kept.
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
            let problem = CheckProblem::new(structure, block, what);
            self.found.push(UntracedProblem { problem, inos: inos.to_vec(), traced, places: Vec::new() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_beyond_the_first_thousand_are_only_counted() {
        let mut findings = CheckFindings::default();
        for number in 0..PROBLEMS_MAX + 7 {
            findings.tell("bitmap", Some(BlockNo(number as u64)), "wrong");
        }
        assert_eq!((findings.found.len(), findings.total), (PROBLEMS_MAX, PROBLEMS_MAX as u64 + 7));
    }
}
