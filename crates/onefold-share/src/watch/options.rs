//! Options and reports of a watch.

use std::path::Path;
use std::time::Duration;

use super::Windows;
use crate::files::FilesReport;
use crate::mend::MendReport;
use crate::pace::Limits;
use crate::pass::{PassError, PassReport, SpaceOptions};
use crate::scan::ScanReport;
use crate::selection::Selection;

/// Options of a watch.
pub struct WatchOptions<'a> {
    /// The files that are read, that share, and whose locks are kept while they are open on this host.
    pub selection: Selection<'a>,
    /// Whether equal files of guests are shared, too, once a package database has changed.
    pub shares_files: bool,
    /// Number of threads that read and digest.
    pub threads: usize,
    /// Folder for data that does not fit into memory.
    pub temporary_folder: &'a Path,
    /// Memory for sorting, in bytes.
    pub memory_bytes: usize,
    /// Minimum length of a run, in bytes.
    pub min_run_bytes: u64,
    /// Measures beside sharing that free space, and keep it free.
    pub space: SpaceOptions,
    /// Limits on the effort.
    pub limits: Limits,
    /// Interval between two rounds.
    pub interval: Duration,
    /// When it may scan and share.
    pub windows: Windows,
    /// Maximum load of the machine at which the watch begins work.
    pub load_max: Option<f64>,
    /// Files whose content changed more recently than this are left for another time.
    pub stable_for: Duration,
    /// A pass begins when waiting logs reach this part of the index, in percent.
    pub batch_percent: u32,
    /// A pass also begins when logs have waited this long.
    pub wait_max: Duration,
    /// Minimum length of a file for a kept map, in bytes ([`crate::scan::MAP_BYTES_MIN`]).
    pub map_bytes_min: u64,
    /// Maximum length of logs that wait for a pass, in bytes; beyond it the scan waits for the pass. `None` means half
    /// of the index, and at least 256 MiB.
    pub log_bytes_max: Option<u64>,
}

/// Reports of a watch to its caller.
#[derive(Debug)]
pub enum WatchEvent<'a> {
    /// The state folder is open, and other hosts see that the watch runs.
    Began,
    /// A pass was completed.
    Passed {
        /// The scans since the pass before.
        scanned: &'a ScanReport,
        /// The results of the pass.
        passed: &'a PassReport,
        /// Duration of the scans and the pass.
        elapsed: Duration,
    },
    /// Equal files of guests were shared.
    FilesShared {
        /// Images whose package databases had changed, or that were new.
        changed: u64,
        /// The files that were found and shared.
        report: &'a FilesReport,
        /// Duration.
        elapsed: Duration,
    },
    /// Images that other hosts have left with holes were mended, or cannot be mended yet. The same report does not come
    /// twice in a row.
    Mended(&'a MendReport),
    /// The window ended in the middle of the work. It goes on in the next one.
    LeftOff,
    /// The open files of this many processes cannot be seen, so their images are left to any host. Reported once.
    Unseen(u64),
    /// A failure. The work is tried again; the same failure is not reported twice in a row.
    Failed(&'a PassError),
}
