//! What a watch is told, and what it tells.

use std::path::Path;
use std::time::Duration;

use super::Windows;
use crate::files::FilesReport;
use crate::mend::Mended;
use crate::pace::Limits;
use crate::pass::{PassError, Passed, SpaceOptions};
use crate::scan::Scanned;
use crate::selection::Selection;

/// What a watch does, and when.
pub struct WatchOptions<'a> {
    /// Which files are read, shared in, and kept for this host while they are open here.
    pub selection: Selection<'a>,
    /// Whether equal files of guests are shared, too, once a package database has changed.
    pub shares_files: bool,
    /// Threads that read and digest.
    pub threads: usize,
    /// For what does not fit into memory.
    pub temporary_folder: &'a Path,
    /// Memory for sorting, in bytes.
    pub memory_bytes: usize,
    /// Shorter runs are left alone, in bytes.
    pub min_run_bytes: u64,
    /// What it does beside sharing, so that room really comes free.
    pub space: SpaceOptions,
    /// How hard it works.
    pub limits: Limits,
    /// Between two rounds.
    pub interval: Duration,
    /// When it may scan and share.
    pub windows: Windows,
    /// It begins nothing while the load of the machine is above.
    pub load_max: Option<f64>,
    /// Files whose content changed less long ago are left for another time.
    pub stable_for: Duration,
    /// A pass waits until so much of the index, in percent, waits in logs.
    pub batch_percent: u32,
    /// Or until logs have waited for so long.
    pub wait_max: Duration,
    /// Of shorter files no maps are kept, in bytes ([`crate::scan::MAP_BYTES_MIN`]).
    pub map_bytes_min: u64,
    /// Logs that wait for a pass may have so many bytes; then the scan waits for it. None is a half of the index, and
    /// at least [`LOG_BYTES_MIN`](super::LOG_BYTES_MIN).
    pub log_bytes_max: Option<u64>,
}

/// What a watch tells whoever started it.
#[derive(Debug)]
pub enum WatchEvent<'a> {
    /// The state folder is open: others see that it runs.
    Began,
    /// A pass came to its end.
    Passed {
        /// What was scanned since the one before.
        scanned: &'a Scanned,
        /// What it did.
        passed: &'a Passed,
        /// How long scan and pass took.
        elapsed: Duration,
    },
    /// Equal files of guests were shared.
    FilesShared {
        /// Images whose package databases had changed, or that were new.
        changed: u64,
        /// What was found and shared.
        report: &'a FilesReport,
        /// How long it took.
        elapsed: Duration,
    },
    /// Images that other hosts have left with holes were mended, or cannot be yet. The same is not told twice in a row.
    Mended(&'a Mended),
    /// The window ended in the middle of the work. It goes on in the next one.
    LeftOff,
    /// The open files of so many processes cannot be seen: their images are left to any host. Told once.
    Unseen(u64),
    /// Something went wrong. It is tried again; the same is not told twice in a row.
    Failed(&'a PassError),
}
