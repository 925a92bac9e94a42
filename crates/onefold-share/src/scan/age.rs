//! How old the times of a file are, and what they tell.

use std::time::Duration;

use onefold_block::Timestamp;
use onefold_substrate::FileStat;

use crate::format::mark::Stamp;

/// After such a time the next change of a file has another time than the last one.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// Tells whether a file's content has not changed for so long. Of a time that is ahead, which anybody may have set, the
/// one that nobody sets counts.
pub(crate) fn is_stable(stat: &FileStat, now: Timestamp, stable_for: Duration) -> bool {
    let changed = if stat.modified > now { stat.changed } else { stat.modified };
    stable_for.is_zero()
        || now.as_nanoseconds() - changed.as_nanoseconds() >= i128::try_from(stable_for.as_nanos()).unwrap_or(i128::MAX)
}

/// How old the times of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// So old that a change later than now has other times.
    Settled,
    /// A change may get the same times still.
    Recent,
    /// The last change was in the future: another host's clock is ahead, or this one was set back.
    Ahead,
}

impl Age {
    /// Returns how old times are. Kernels note them in ticks, of up to ten milliseconds.
    ///
    /// Each change of the content sets the time of the last change, which nobody sets otherwise. So the time of the
    /// content may be ahead for ever, as anybody sets it, if the other one is not.
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
