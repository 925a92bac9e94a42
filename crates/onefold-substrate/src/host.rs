//! The seam to the host that has a file system mounted: its load, its clock on the wall, processor time, and which
//! images its processes have open.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::file::FileHandle;

/// The machine that a watch runs on.
pub trait Machine {
    /// Returns how many processes run or wait for a disk, averaged over a minute; none where the machine does not tell.
    fn load(&self) -> Option<f64>;

    /// Returns the time of day, as clocks on the wall show it.
    fn time_of_day(&self) -> MinuteOfDay;

    /// Returns the name of the host, for people.
    fn name(&self) -> String;

    /// Finds out which of some images processes of this machine have open for writing, but for this process.
    ///
    /// # Errors
    /// When the machine does not tell.
    fn open_for_writing(&self, images: &[&Path]) -> std::io::Result<OpenImages>;
}

/// Images that are open for writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenImages {
    /// The images.
    pub handles: BTreeSet<FileHandle>,
    /// Who has them open, as far as it is told what they write.
    pub writers: Vec<Writer>,
    /// Processes whose open files this one may not see.
    pub unseen_processes: u64,
}

/// A process that has images open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Its number.
    pub process: u32,
    /// Bytes that it has written since it began, wherever.
    pub written_bytes: u64,
    /// The images.
    pub images: BTreeSet<FileHandle>,
}

/// A minute of a day, from midnight on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MinuteOfDay(u16);

impl MinuteOfDay {
    /// Returns the minute of an hour and a minute; none where there is no such time.
    #[must_use]
    pub fn new(hour: u16, minute: u16) -> Option<MinuteOfDay> {
        (hour < 24 && minute < 60).then_some(MinuteOfDay(hour * 60 + minute))
    }

    /// Returns how many minutes have passed since midnight.
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

/// Tells how much processor time was used.
pub trait CpuTime {
    /// Returns the time that all threads have used together since the process began. Never falls.
    fn used(&self) -> Duration;
}
