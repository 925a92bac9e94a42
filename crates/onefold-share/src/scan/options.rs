//! Options and results of a scan.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use onefold_substrate::FileStat;

use crate::domain::Domain;
use crate::pace::Pace;
use crate::selection::Selection;

/// Options of a scan.
pub struct ScanOptions<'a> {
    /// The files that are looked at.
    pub selection: Selection<'a>,
    /// Number of threads that read and digest; if 0, the caller does that, and nothing is read ahead.
    pub threads: usize,
    /// Files whose content changed more recently than this are left for another time.
    pub stable_for: Duration,
    /// Limits on the effort.
    pub pace: &'a Pace<'a>,
    /// Maximum memory for digests that were read, in bytes. As long as they fit, each place that maps show is read
    /// once.
    pub places_bytes: usize,
    /// How known files that have changed are read again.
    pub rereading: RereadPolicy<'a>,
    /// Called at each file's end and every few pieces on the way; `Break` ends the scan.
    pub progress: &'a dyn Fn(ScanProgress) -> ControlFlow<()>,
}

impl<'a> ScanOptions<'a> {
    /// Returns the default options: all files, read again to their ends by the caller's thread alone.
    #[must_use]
    pub fn new(pace: &'a Pace<'a>) -> ScanOptions<'a> {
        ScanOptions {
            selection: Selection::all(),
            threads: 0,
            stable_for: Duration::ZERO,
            pace,
            places_bytes: PLACES_BYTES,
            rereading: RereadPolicy::default(),
            progress: &|_| ControlFlow::Continue(()),
        }
    }
}

/// How known files that have changed are read again.
#[derive(Clone, Copy)]
pub struct RereadPolicy<'a> {
    /// Returns how much of a file that was read before is read again, if its changes are not known exactly.
    pub turn: &'a dyn Fn(&FileStat) -> Turn,
    /// Gets the number of log bytes that this scan has written. If it returns true, the scan ends, and the next one
    /// goes on.
    pub enough: &'a dyn Fn(u64) -> bool,
    /// Minimum length of a file for a kept map, in bytes. Reading a shorter file again costs little.
    pub map_bytes_min: u64,
    /// Whether failed ranges are tried again at once, or only after their pause.
    pub failed: RetryTime,
}

/// When ranges are tried again that could not be read or shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryTime {
    /// By each scan, because somebody asked for it.
    AtOnce,
    /// After a pause, which grows, because scans run all the time.
    AfterPause,
}

/// How much of a file is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Everything that was not read since the file changed last.
    Whole,
    /// Besides the known changes, an amount that keeps reading in proportion to writing. The number is the bytes known
    /// to have been written since the last turn.
    Within(u64),
}

impl Default for RereadPolicy<'_> {
    fn default() -> Self {
        RereadPolicy::whole()
    }
}

impl RereadPolicy<'static> {
    /// Returns rereading of everything, to its end.
    #[must_use]
    pub const fn whole() -> Self {
        RereadPolicy {
            turn: &|_| Turn::Whole,
            enough: &|_| false,
            map_bytes_min: MAP_BYTES_MIN,
            failed: RetryTime::AtOnce,
        }
    }
}

/// Default for the memory of digests, in bytes; it holds those of 5 GiB.
const PLACES_BYTES: usize = 16 << 20;
/// Default for the minimum length of a file for a kept map, in bytes.
pub const MAP_BYTES_MIN: u64 = 4 << 20;
/// Maximum amount that is read of a written image in all, in percent of the amount written to it.
pub(crate) const REREAD_PERCENT: u64 = 200;

/// Progress of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanProgress {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes of the completed files, however much of them was read.
    pub done_bytes: u64,
    /// Bytes of all files.
    pub all_bytes: u64,
}

/// Results of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Number of files that were looked at.
    pub files: u64,
    /// Files that had not changed.
    pub unchanged: u64,
    /// Files that are opted out. They are in none of the other numbers.
    pub opted_out: u64,
    /// Files that had changed too recently to be read.
    pub unsettled: u64,
    /// Files that were skipped because they cannot be read, or because a door of another host has them.
    pub passed_over: u64,
    /// Apparent length of all files, in bytes.
    pub bytes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were not read, because another file at the same place was read.
    pub once_bytes: u64,
    /// Blocks written to logs.
    pub logged_blocks: u64,
    /// Files that had their turn, or needed none: all, unless the scan is cut short.
    pub looked_at: u64,
    /// Files with ranges that could not be read, though they could be read before.
    pub failing: u64,
    /// Whether enough was known before all files had their turn. The next scan goes on with the others.
    pub is_cut_short: bool,
    /// The domains that the files belong to.
    pub domains: BTreeMap<Domain, DomainCounts>,
}

/// Files of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainCounts {
    /// Their number.
    pub files: u64,
    /// Their apparent length, in bytes.
    pub bytes: u64,
}

impl DomainCounts {
    pub(crate) fn add(&mut self, bytes: u64) {
        (self.files, self.bytes) = (self.files + 1, self.bytes + bytes);
    }
}
