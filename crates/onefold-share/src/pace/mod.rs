//! Limits on the effort of scan and pass: bytes a second, processor time, and how long a single call keeps files
//! locked.
//!
//! The scan and the pass ask before each read and each call of the file system. Only this module sleeps, and decides
//! how much a call is asked to do. Without limits nothing is measured and nothing waits.
//!
//! **Guarantees.** In any period, reads are at most the period plus [`BURST`] at the rate, plus one request; so are
//! clones and shares. Reads of threads are paid for when they are requested. So after the disk has stood still, the
//! waiting requests (two of 1 MiB for each thread) come at once. Processor time is measured and paid for afterwards:
//! after a phase that does not ask for a while, the wait is longer. The size of calls follows their durations, so calls
//! usually stay below the ceiling of a stall. The kernel has no way to end a call that takes longer.
//!
//! **Not counted**: Onefold's own records (logs, index, temporary files), which are read and written in sequence.

mod bucket;
mod call_size;
mod reading;

use std::cell::Cell;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use onefold_block::Clock;
use onefold_block::clock::SystemClock;
use onefold_substrate::CpuTime;

use self::bucket::Bucket;
use self::call_size::CallSize;

pub use self::bucket::BURST;
pub(crate) use self::reading::ReadPace;

/// The processor time of work without a limit on it, which is never asked for.
pub(crate) struct UncountedCpu;

impl CpuTime for UncountedCpu {
    fn used(&self) -> Duration {
        Duration::ZERO
    }
}

/// Maximum length of one sleep. A request to stop is noticed after it.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Number of steps without a read or call between two checks whether to go on.
const STEPS_BETWEEN_LOOKS: u32 = 64;

/// Limits on the effort of scan and pass. The default has no limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of images read per second.
    pub read_bytes_per_second: Option<NonZeroU64>,
    /// Maximum bytes per second that the file system is asked to clone or to share.
    pub share_bytes_per_second: Option<NonZeroU64>,
    /// Maximum processor time of all threads, in percent of one core.
    pub cpu_percent: Option<NonZeroU32>,
    /// Target for the duration of one call that clones or shares, during which its files are locked.
    pub stall_max: Option<Duration>,
}

/// Whether the caller wants the work to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It goes on.
    GoOn,
    /// It ends before the next file is read, or the next range shared.
    StopSoon,
    /// It ends at once; unfinished reading of a file is lost.
    StopNow,
}

/// The work was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct StopRequest;

/// A call of the file system that locks files while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Clones a range into an arena file.
    Clone,
    /// Compares and shares.
    Share,
}

/// Number of calls of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls of [`CallKind::Clone`].
    pub clones: u64,
    /// Calls of [`CallKind::Share`].
    pub shares: u64,
}

/// Keeps work within its limits. One pace for all work that is limited together.
pub struct Pace<'a> {
    limits: Limits,
    clock: &'a dyn Clock,
    cpu: &'a dyn CpuTime,
    wish: &'a dyn Fn() -> Wish,
    /// Returns whether the work is to end at once. Any thread may ask.
    stop: &'a (dyn Fn() -> bool + Sync),
    reads: Bucket,
    shares: Bucket,
    work: Bucket,
    /// Processor time at the last look.
    cpu_seen: Cell<Duration>,
    clones_at_once: CallSize,
    shares_at_once: CallSize,
    /// Calls so far, failed ones included.
    calls: Cell<CallCounts>,
    steps: Cell<u32>,
}

impl<'a> Pace<'a> {
    /// Returns a pace that waits on a clock, and ends waiting if `wish` says that the work should stop. `wish` is asked
    /// often, and should be cheap.
    #[must_use]
    pub fn new(limits: Limits, clock: &'a dyn Clock, cpu: &'a dyn CpuTime, wish: &'a dyn Fn() -> Wish) -> Pace<'a> {
        Pace {
            limits,
            clock,
            cpu,
            wish,
            stop: &|| false,
            reads: Bucket::default(),
            shares: Bucket::default(),
            work: Bucket::default(),
            cpu_seen: Cell::new(if limits.cpu_percent.is_some() { cpu.used() } else { Duration::ZERO }),
            clones_at_once: CallSize::default(),
            shares_at_once: CallSize::default(),
            calls: Cell::default(),
            steps: Cell::new(0),
        }
    }

    /// Returns the pace with a callback that any thread may call: whether the work is to end at once. The readers of
    /// guests call it at each read, between two calls of the wish. It should be cheap.
    #[must_use]
    pub fn stopped_by(self, stop: &'a (dyn Fn() -> bool + Sync)) -> Pace<'a> {
        Pace { stop, ..self }
    }

    /// Returns a pace without limits, which never stops the work.
    #[must_use]
    pub fn unlimited() -> Pace<'static> {
        Pace::new(Limits::default(), &SystemClock, &UncountedCpu, &|| Wish::GoOn)
    }

    /// Returns whether processor time is limited. The thread that asks this pace pays for it.
    pub(crate) fn is_cpu_limited(&self) -> bool {
        self.limits.cpu_percent.is_some()
    }

    /// Waits until this many bytes of an image may be read.
    pub fn read(&self, bytes: u64) {
        self.pay_for_work();
        if let Some(rate) = self.limits.read_bytes_per_second {
            self.take(&self.reads, bucket::time_of(bytes, rate));
        }
    }

    /// Returns the size of the next call, at most `most`: whole blocks, at least one.
    #[must_use]
    pub fn call_bytes(&self, kind: CallKind, most: u64) -> u64 {
        if self.limits.stall_max.is_some() { self.size(kind).bytes(most) } else { most }
    }

    /// Returns the number of calls so far, failed ones included.
    #[must_use]
    pub fn calls(&self) -> CallCounts {
        self.calls.get()
    }

    /// Makes a call once it may be made, counts it, and learns from its duration.
    pub fn call<R>(&self, kind: CallKind, bytes: u64, call: impl FnOnce() -> R) -> R {
        self.pay_for_work();
        if let Some(rate) = self.limits.share_bytes_per_second {
            self.take(&self.shares, bucket::time_of(bytes, rate));
        }
        self.count(kind);
        let Some(ceiling) = self.limits.stall_max else { return call() };
        let began = self.clock.monotonic();
        let result = call();
        self.size(kind).learn(bytes, self.clock.monotonic().saturating_sub(began), ceiling);
        result
    }

    fn count(&self, kind: CallKind) {
        let mut calls = self.calls.get();
        match kind {
            CallKind::Clone => calls.clones += 1,
            CallKind::Share => calls.shares += 1,
        }
        self.calls.set(calls);
    }

    /// Excludes the processor time that was used until now.
    pub(crate) fn begin(&self) {
        if self.limits.cpu_percent.is_some() {
            self.cpu_seen.set(self.cpu.used());
        }
    }

    /// Returns whether the work is to end at once. Never waits.
    pub(crate) fn is_stopped(&self) -> bool {
        (self.wish)() == Wish::StopNow
    }

    /// Makes a step in the middle of a file.
    ///
    /// # Errors
    /// If the work is to end at once.
    pub fn go_on(&self) -> Result<(), StopRequest> {
        if self.look() == Wish::StopNow { Err(StopRequest) } else { Ok(()) }
    }

    /// Makes a step at which work may well end: between two files, or two ranges.
    ///
    /// # Errors
    /// If the work is to end.
    pub(crate) fn boundary(&self) -> Result<(), StopRequest> {
        if self.look() == Wish::GoOn { Ok(()) } else { Err(StopRequest) }
    }

    /// Notes that the caller has waited, so that the next step asks whether to go on.
    pub fn waited(&self) {
        self.steps.set(0);
    }

    /// Asks whether to go on, if that was last done long ago. Work that only computes is paid for then, too.
    fn look(&self) -> Wish {
        let left = self.steps.get();
        if left > 0 {
            self.steps.set(left - 1);
            return Wish::GoOn;
        }
        self.pay();
        let wish = (self.wish)();
        if wish == Wish::GoOn {
            self.steps.set(STEPS_BETWEEN_LOOKS);
        }
        wish
    }

    /// Waits for the processor time that was used. Reads and calls take long, so the next step asks whether to go on.
    fn pay_for_work(&self) {
        self.steps.set(0);
        self.pay();
    }

    fn pay(&self) {
        let Some(percent) = self.limits.cpu_percent else { return };
        let used = self.cpu.used();
        let since = used.saturating_sub(self.cpu_seen.replace(used));
        self.work.take(self.clock.monotonic(), since.saturating_mul(100) / percent.get());
        self.wait_for(&self.work);
    }

    fn take(&self, bucket: &Bucket, cost: Duration) {
        // Work that is to end at once takes all the same: what it does is counted.
        if !self.wait_until_none_is_left(|| bucket.take_if_paid(self.clock.monotonic(), cost)) {
            bucket.take(self.clock.monotonic(), cost);
        }
    }

    /// Sleeps until everything taken is paid for, or the work is to end at once.
    fn wait_for(&self, bucket: &Bucket) {
        self.wait_until_none_is_left(|| bucket.paid_at().saturating_sub(self.clock.monotonic()));
    }

    /// Sleeps as long as some time is left. Returns false where the work is to end at once before.
    fn wait_until_none_is_left(&self, left: impl Fn() -> Duration) -> bool {
        loop {
            let left = left();
            if left.is_zero() || (self.wish)() == Wish::StopNow {
                return left.is_zero();
            }
            self.clock.sleep(left.min(SLEEP_MAX));
        }
    }

    fn size(&self, kind: CallKind) -> &CallSize {
        match kind {
            CallKind::Clone => &self.clones_at_once,
            CallKind::Share => &self.shares_at_once,
        }
    }
}

#[cfg(test)]
mod tests;
