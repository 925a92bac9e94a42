//! Options, progress and errors of an analysis.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use onefold_block::Show;
use onefold_disk::DiskError;

use crate::record::IMAGES_MAX;

/// Maximum number of named groups.
pub const GROUPS_MAX: usize = 64;
/// Options of an analysis.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for rows. About 16 MiB of buffers come in addition.
    pub memory_bytes: u64,
    /// Folder for rows that do not fit into memory. The files there have no names.
    pub folder: PathBuf,
    /// A secret key for the fingerprints. It prevents anyone from preparing images whose different blocks look equal.
    pub key: [u8; 32],
    /// Names of the groups, at most [`GROUPS_MAX`].
    pub groups: Vec<String>,
    /// Whether to analyse shifted images too.
    pub shifts: Shifts,
    /// Whether to find the owners of blocks. A sample ignores it.
    pub files: bool,
    /// Returns the reason why an image is left out, for the results. An error of a disk gives no advice; a program may.
    pub explain: fn(&DiskError) -> String,
}

/// Whether to analyse images as if there were sectors of zeros before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shifts {
    /// Only the original images.
    No,
    /// Also shifted by one to seven sectors: each byte is read and hashed eight times.
    All,
}

impl Shifts {
    /// Returns the maximum shift of images in sectors: up to the sectors of a 4 KiB block, or none.
    pub(crate) fn steps(self) -> u8 {
        match self {
            Shifts::No => 0,
            Shifts::All => 7,
        }
    }
}

/// Stage of an analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The images are read. Progress is in bytes.
    Reading,
    /// The records are counted. Progress is in rows, of [`ROW_BYTES`] bytes.
    Counting,
}

/// Receives the progress of an analysis from several threads.
pub trait Progress: Sync {
    /// Reports `done` of about `total`. `Break` ends the analysis.
    fn update(&self, stage: Stage, done: u64, total: u64) -> ControlFlow<()>;
}

/// Why an analysis failed.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    /// The user wanted to stop.
    #[error("interrupted")]
    Interrupted,
    /// The temporary folder cannot hold the data that does not fit into memory.
    #[error("cannot use the temporary folder `{}`", folder.shown())]
    Spill {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// There are more images than can be distinguished.
    #[error("{0} images are too many: {IMAGES_MAX} are the most")]
    TooManyImages(usize),
    /// There are more groups than can be counted.
    #[error("{0} groups are too many: {GROUPS_MAX} are the most")]
    TooManyGroups(usize),
}
