//! Temporary skeleton.
#![allow(missing_docs)]
use crate::{Progress, Result};
use onefold_block::{BlockDevice, BlockNo};

#[derive(Clone, Debug, Default)]
pub struct CheckOptions { pub memory_bytes: u64, pub verify_data: bool }
#[derive(Clone, Debug, Default)]
pub struct ScrubOptions { pub bytes_per_second: Option<u64> }

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which structure: `superblock`, `journal`, `bitmap`, `fingerprint store`, `reference count`, `file map`, `inode`, `directory`, `attribute`, `data`.
    pub structure: &'static str,
    /// Where, if it has a place.
    pub block: Option<BlockNo>,
    /// Paths of the files hit, as far as known.
    pub files: Vec<String>,
    /// What is wrong, in the user's words.
    pub what: String,
}

#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    pub problems: Vec<Problem>,
    /// Problems beyond the first thousand are only counted.
    pub problems_total: u64,
    pub inodes_checked: u64,
    pub blocks_checked: u64,
    pub data_blocks_hashed: u64,
    /// Stopped before the end, by the caller's wish.
    pub stopped: bool,
}
impl CheckReport { pub fn is_clean(&self) -> bool { self.problems_total == 0 } }

pub fn check(_d: &dyn BlockDevice, _o: &CheckOptions, _p: &dyn Progress) -> Result<CheckReport> { panic!("later") }
pub fn repair(_d: &dyn BlockDevice, _o: &CheckOptions, _p: &dyn Progress) -> Result<CheckReport> { panic!("later") }
