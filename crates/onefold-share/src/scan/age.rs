//! The age of a file's times, and what it means.

use std::time::Duration;

use onefold_block::Timestamp;
use onefold_substrate::FileStat;

use crate::format::stamp::Stamp;

/// After this time the next change of a file has another time than the last one.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// Returns whether a file's content has not changed for this long. Anybody may set the time of the content ahead; then
/// the time of the last change counts, which nobody can set.
pub(crate) fn is_stable(stat: &FileStat, now: Timestamp, stable_for: Duration) -> bool {
    let changed = if stat.modified > now { stat.changed } else { stat.modified };
    stable_for.is_zero()
        || now.as_nanoseconds() - changed.as_nanoseconds() >= i128::try_from(stable_for.as_nanos()).unwrap_or(i128::MAX)
}

/// The age of a file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// Old enough that a change later than now has other times.
    Settled,
    /// A change may still get the same times.
    Recent,
    /// The last change was in the future: another host's clock is ahead, or this one was set back.
    Ahead,
}

impl Age {
    /// Returns the age of times. Kernels note times in ticks of up to ten milliseconds.
    ///
    /// Each change of the content sets the time of the last change, which nobody can set otherwise. So a time of the
    /// content that is ahead counts as old if the time of the last change is not ahead: anybody may set the former.
    pub(crate) fn of(stamp: &Stamp, now: Timestamp) -> Age {
        const TICKS: i128 = TICK.as_nanos() as i128;
        let age = |time: Timestamp| now.as_nanoseconds() - time.as_nanoseconds();
        let is_recent = |time| (0..TICKS).contains(&age(time));
        match age(stamp.changed) {
            changed if changed <= -TICKS => Age::Ahead,
            changed if changed < TICKS || is_recent(stamp.modified) => Age::Recent,
            _ => Age::Settled,
        }
    }
}
