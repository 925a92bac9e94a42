//! The seam to the host that mounts a file system: its load, its local time, its processor time, and which images its
//! processes have open.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::file::FileHandle;

/// The machine that a watch runs on.
pub trait Machine {
    /// Returns the average number of processes that run or wait for a disk, over a minute; `None` if it is unknown.
    fn load(&self) -> Option<f64>;

    /// Returns the local time of day.
    fn time_of_day(&self) -> MinuteOfDay;

    /// Returns the name of the host, for messages.
    fn name(&self) -> String;

    /// Returns which of the given images processes of this machine, other than this one, have open for writing.
    ///
    /// # Errors
    /// If the machine does not report it.
    fn open_for_writing(&self, images: &[&Path]) -> std::io::Result<OpenImages>;
}

/// Images that are open for writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenImages {
    /// The images.
    pub handles: BTreeSet<FileHandle>,
    /// The processes that have them open, as far as their written bytes are known.
    pub writers: Vec<Writer>,
    /// Number of processes whose open files are hidden from this one.
    pub unseen_processes: u64,
}

/// A process that has images open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Its number.
    pub process: u32,
    /// The bytes that it has written to any file since it began.
    pub written: WrittenBytes,
    /// The images.
    pub images: BTreeSet<FileHandle>,
}

/// The bytes that a process has written since it began, by two counters. Each of them counts some writes too high:
/// pages count a write into the page cache as its whole folio, calls count what goes to pipes and sockets. So the lower
/// one is right, between two looks and not since the beginning: a process that has written to sockets before would
/// otherwise be counted by folios forever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenBytes {
    /// Lengths of direct writes and of dirtied folios.
    pub by_pages: u64,
    /// Lengths of write calls; `None` for a process whose direct writes it may omit.
    pub by_calls: Option<u64>,
}

impl WrittenBytes {
    /// Returns the number of bytes written since an earlier look, or all of them if that was at another process.
    #[must_use]
    pub fn since(self, before: WrittenBytes) -> u64 {
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let pages = since(self.by_pages, before.by_pages);
        match (self.by_calls, before.by_calls) {
            (Some(now), Some(before)) => since(now, before).min(pages),
            _ => pages,
        }
    }
}

/// A minute of a day, counted from midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MinuteOfDay(u16);

impl MinuteOfDay {
    /// Returns the minute for an hour and a minute; `None` if no such time exists.
    #[must_use]
    pub fn new(hour: u16, minute: u16) -> Option<MinuteOfDay> {
        (hour < 24 && minute < 60).then_some(MinuteOfDay(hour * 60 + minute))
    }

    /// Returns the number of minutes since midnight.
    #[must_use]
    pub fn since_midnight(self) -> u16 {
        self.0
    }
}

impl fmt::Display for MinuteOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// Reports the used processor time.
pub trait CpuTime {
    /// Returns the time that all threads together have used since the process began. Never decreases.
    fn used(&self) -> Duration;
}
