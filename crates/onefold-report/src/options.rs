//! What an analysis is asked, how far it is, and why there is none.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use onefold_block::Show;
use onefold_disk::DiskError;

use crate::record::IMAGES_MAX;

/// Groups that can be named.
pub const GROUPS_MAX: usize = 64;
/// How to analyse.
#[derive(Clone, Debug)]
pub struct Options {
    /// What rows may take in memory; about 16 MiB of buffers come besides.
    pub memory_bytes: u64,
    /// Where rows go that do not fit into memory. The files there have no names.
    pub folder: PathBuf,
    /// A secret for the fingerprints: nobody can prepare images whose different blocks look equal.
    pub key: [u8; 32],
    /// Names of the groups, at most [`GROUPS_MAX`].
    pub groups: Vec<String>,
    /// Whether to look at shifted images too.
    pub shifts: Shifts,
    /// Whether to tell what the blocks belong to. A sample does not.
    pub files: bool,
    /// Returns why an image is left out, as results say it. An error of a disk gives no advice; a program may.
    pub explain: fn(&DiskError) -> String,
}

/// Whether images are looked at as they would be with sectors of zeros before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shifts {
    /// Only as they are.
    No,
    /// By one to seven sectors too: each byte is read and hashed eight times.
    All,
}

impl Shifts {
    /// Returns by how many sectors images are shifted at the most: all that a 4 KiB block has, or none.
    pub(crate) fn steps(self) -> u8 {
        match self {
            Shifts::No => 0,
            Shifts::All => 7,
        }
    }
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The images are read. Progress is in bytes.
    Reading,
    /// What was read is counted. Progress is in rows, of [`ROW_BYTES`] bytes.
    Counting,
}

/// Is told how far an analysis is, by several threads.
pub trait Progress: Sync {
    /// Takes note of `done` of about `total`; `Break` ends the analysis.
    fn update(&self, stage: Stage, done: u64, total: u64) -> ControlFlow<()>;
}

/// Why there is no analysis.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    /// The user wanted to stop.
    #[error("interrupted")]
    Interrupted,
    /// The temporary folder cannot hold what does not fit into memory.
    #[error("cannot use the temporary folder `{}`", folder.shown())]
    Spill {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// More images than can be told apart.
    #[error("{0} images are too many: {IMAGES_MAX} are the most")]
    TooManyImages(usize),
    /// More groups than can be counted.
    #[error("{0} groups are too many: {GROUPS_MAX} are the most")]
    TooManyGroups(usize),
}
