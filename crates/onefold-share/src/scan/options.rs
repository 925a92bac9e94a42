//! What a scan is told, and what it tells.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use onefold_substrate::FileStat;

use crate::domain::Domain;
use crate::pace::Pace;
use crate::selection::Selection;

/// What is scanned, and how.
pub struct ScanOptions<'a> {
    /// Which files are looked at.
    pub selection: Selection<'a>,
    /// Threads that read and digest; none if the caller does that, and nothing is read ahead.
    pub threads: usize,
    /// Files whose content changed less long ago are left for another time.
    pub stable_for: Duration,
    /// How hard it works.
    pub pace: &'a Pace<'a>,
    /// How much memory the digests of what was read may take, in bytes: what lies at one place, for all that maps show,
    /// is read once as long as they fit.
    pub places_bytes: usize,
    /// How files that are known and have changed are read again.
    pub rereading: Rereading<'a>,
    /// Told of each file's end and every few pieces on the way; `Break` ends the scan.
    pub progress: &'a dyn Fn(ScanProgress) -> ControlFlow<()>,
}

impl<'a> ScanOptions<'a> {
    /// Returns the usual options: all files, read again to their ends by the caller's thread alone.
    #[must_use]
    pub fn new(pace: &'a Pace<'a>) -> ScanOptions<'a> {
        ScanOptions {
            selection: Selection::all(),
            threads: 0,
            stable_for: Duration::ZERO,
            pace,
            places_bytes: PLACES_BYTES,
            rereading: Rereading::default(),
            progress: &|_| ControlFlow::Continue(()),
        }
    }
}

/// How files that are known and have changed are read again.
#[derive(Clone, Copy)]
pub struct Rereading<'a> {
    /// Tells how much of a file that was read before is read again, where it is not known what of it changed.
    pub turn: &'a dyn Fn(&FileStat) -> Turn,
    /// Told how many bytes of logs this scan has written. Where it says that this is enough, the scan ends, and the
    /// next one goes on.
    pub enough: &'a dyn Fn(u64) -> bool,
    /// Of shorter files no maps are kept, in bytes: to read them again costs little.
    pub map_bytes_min: u64,
    /// What failed is tried again at once, or only after its pause.
    pub failed: Failed,
}

/// When ranges are tried again that could not be read, or shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// By each scan: somebody asked for it.
    AtOnce,
    /// After a pause, which grows: scans come all the time.
    AfterPause,
}

/// How much of a file is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// All that was not read since the file changed last.
    Whole,
    /// Besides what is known to have changed, as much as keeps what is read in proportion to what was written: so many
    /// bytes since the last turn, for all that is known.
    Within(u64),
}

impl Default for Rereading<'_> {
    fn default() -> Self {
        Rereading::whole()
    }
}

impl Rereading<'static> {
    /// Everything is read again, to its end.
    #[must_use]
    pub const fn whole() -> Self {
        Rereading { turn: &|_| Turn::Whole, enough: &|_| false, map_bytes_min: MAP_BYTES_MIN, failed: Failed::AtOnce }
    }
}

/// Memory of the digests of what was read, unless somebody wants it otherwise, in bytes: of 5 GiB.
const PLACES_BYTES: usize = 16 << 20;
/// Of shorter files no maps are kept, unless somebody wants it otherwise, in bytes.
pub const MAP_BYTES_MIN: u64 = 4 << 20;
/// Of a written image so much is read in all, at most, in percent of what was written to it.
pub(crate) const REREAD_PERCENT: u64 = 200;

/// How far a scan has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanProgress {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes of the files that are done, however much of them was read.
    pub done_bytes: u64,
    /// Bytes of all files.
    pub all_bytes: u64,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Files that were looked at.
    pub files: u64,
    /// Files that had not changed.
    pub unchanged: u64,
    /// Files that are opted out: not in any of the other numbers.
    pub opted_out: u64,
    /// Files that had changed too short a time ago to be read.
    pub unsettled: u64,
    /// Files that were passed over because they cannot be read, or because a door of another host has them.
    pub passed_over: u64,
    /// Apparent length of all files, in bytes.
    pub bytes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were not read, as they lie where something else does that was.
    pub once_bytes: u64,
    /// Blocks written to logs.
    pub logged_blocks: u64,
    /// Files that had their turn, or needed none: all, unless it is cut short.
    pub looked_at: u64,
    /// Files of which ranges could not be read that could be before.
    pub failing: u64,
    /// Whether there was enough before all files had their turn. The next scan goes on with the others.
    pub is_cut_short: bool,
    /// The domains that the files belong to.
    pub domains: BTreeMap<Domain, DomainCounts>,
}

/// Files of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainCounts {
    /// How many.
    pub files: u64,
    /// Their apparent length, in bytes.
    pub bytes: u64,
}

impl DomainCounts {
    pub(crate) fn add(&mut self, bytes: u64) {
        (self.files, self.bytes) = (self.files + 1, self.bytes + bytes);
    }
}
