//! The stages of an installation, and which of them the others wait for.
//!
//! Each thread of an installation does all of the stages in turn. So the part of the machine whose stages take most of
//! the threads' time limits the installation. A stage waits for the share of the time that it does not take. `metered`
//! has the source and the target through which an installation is measured.

mod metered;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onefold_block::Clock;

use crate::image_source::{ImageSource, OnUnit};

pub use metered::{MeteredSource, MeteredTarget};

/// A stage of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for a server and the network.
    Receive,
    /// Decompressing and verifying units, and reading those that seeds have. If the source is an archive of this
    /// machine, all of the reading.
    Unpack,
    /// Writing to the target.
    Write,
    /// Reading the target, to find what it has already or to verify what was written.
    Compare,
}

/// Bytes and time of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageFigure {
    /// Bytes, in the form that they have in this stage.
    pub bytes: u64,
    /// Time of all threads together.
    pub busy: Duration,
}

/// Bytes and time of all stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageFigures {
    /// See [`Stage::Receive`]; `None` if the source does not tell reading from unpacking.
    pub receive: Option<StageFigure>,
    /// See [`Stage::Unpack`].
    pub unpack: StageFigure,
    /// See [`Stage::Write`].
    pub write: StageFigure,
    /// See [`Stage::Compare`].
    pub compare: StageFigure,
}

impl StageFigures {
    /// Returns the stages with their figures.
    #[must_use]
    pub fn all(&self) -> [(Stage, StageFigure); 4] {
        [
            (Stage::Receive, self.receive.unwrap_or_default()),
            (Stage::Unpack, self.unpack),
            (Stage::Write, self.write),
            (Stage::Compare, self.compare),
        ]
    }

    /// Returns what went through the stages since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &StageFigures) -> StageFigures {
        let difference = |one: StageFigure, other: StageFigure| StageFigure {
            bytes: one.bytes.saturating_sub(other.bytes),
            busy: one.busy.saturating_sub(other.busy),
        };
        StageFigures {
            receive: self.receive.map(|receive| difference(receive, earlier.receive.unwrap_or_default())),
            unpack: difference(self.unpack, earlier.unpack),
            write: difference(self.write, earlier.write),
            compare: difference(self.compare, earlier.compare),
        }
    }

    /// Returns the time of all threads in the stages of a part of the machine.
    #[must_use]
    pub fn busy(&self, is_of_part: impl Fn(Stage) -> bool) -> Duration {
        let of_part = self.all().into_iter().filter(|(stage, _)| is_of_part(*stage));
        of_part.fold(Duration::ZERO, |busy, (_, figure)| busy.saturating_add(figure.busy))
    }

    /// Returns for which part of the threads' time the stages of a part of the machine waited, in percent.
    #[must_use]
    pub fn waiting_percent(&self, is_of_part: impl Fn(Stage) -> bool) -> u8 {
        let (all, busy) = (self.busy(|_| true).as_nanos(), self.busy(is_of_part).as_nanos());
        let percent = (all - busy) * 100 / all.max(1);
        u8::try_from(percent).unwrap_or(100)
    }
}

/// Measures the stages of one installation. Its source and its target are used through it.
pub struct StageMeter {
    clock: Arc<dyn Clock>,
    /// All of reading units, with waiting for the source.
    read: StageCounter,
    /// Of that, waiting for the source, as the source tells it.
    waited: AtomicU64,
    /// Whether the source tells it.
    tells_waiting: bool,
    received_bytes: AtomicU64,
    /// Waiting for chunks in an order of the source.
    arrivals: StageCounter,
    write: StageCounter,
    compare: StageCounter,
}

#[derive(Debug, Default)]
struct StageCounter {
    bytes: AtomicU64,
    busy: AtomicU64,
}

impl StageCounter {
    fn add(&self, bytes: u64, busy: Duration) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.busy.fetch_add(nanoseconds(busy), Ordering::Relaxed);
    }

    fn figure(&self) -> StageFigure {
        let busy = Duration::from_nanos(self.busy.load(Ordering::Relaxed));
        StageFigure { bytes: self.bytes.load(Ordering::Relaxed), busy }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for StageMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageMeter").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

impl StageMeter {
    /// Returns a meter for an installation from a source.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, source: &dyn ImageSource) -> StageMeter {
        StageMeter {
            clock,
            read: StageCounter::default(),
            waited: AtomicU64::new(0),
            tells_waiting: source.waited().is_some(),
            received_bytes: AtomicU64::new(0),
            arrivals: StageCounter::default(),
            write: StageCounter::default(),
            compare: StageCounter::default(),
        }
    }

    /// Returns what went through the stages so far.
    #[must_use]
    pub fn figures(&self) -> StageFigures {
        let (read, arrivals) = (self.read.figure(), self.arrivals.figure());
        let waited = Duration::from_nanos(self.waited.load(Ordering::Relaxed));
        let received = self.received_bytes.load(Ordering::Relaxed);
        StageFigures {
            receive: self.tells_waiting.then(|| StageFigure { bytes: received, busy: waited + arrivals.busy }),
            unpack: StageFigure { bytes: read.bytes, busy: read.busy.saturating_sub(waited) },
            write: self.write.figure(),
            compare: self.compare.figure(),
        }
    }

    /// Returns how many bytes have come from the source.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Measures `work` on a target, for so many bytes.
    fn time<T>(&self, counter: &StageCounter, bytes: u64, work: impl FnOnce() -> T) -> T {
        let began = self.clock.monotonic();
        let done = work();
        counter.add(bytes, self.clock.monotonic().saturating_sub(began));
        done
    }

    /// Measures `work`, which reads units and passes them to the function that it gets.
    fn read<T>(&self, source: &dyn ImageSource, each: OnUnit<'_>, work: impl FnOnce(OnUnit<'_>) -> T) -> T {
        let began = self.clock.monotonic();
        let mut bytes = 0;
        let done = work(&mut |index, plain| {
            bytes += plain.len() as u64;
            each(index, plain);
        });
        self.read.add(bytes, self.clock.monotonic().saturating_sub(began));
        self.waited.fetch_max(nanoseconds(source.waited().unwrap_or_default()), Ordering::Relaxed);
        self.received_bytes.fetch_max(source.received_bytes(), Ordering::Relaxed);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(bytes: u64, seconds: u64) -> StageFigure {
        StageFigure { bytes, busy: Duration::from_secs(seconds) }
    }

    #[test]
    fn a_stage_waits_while_others_are_busy() {
        let earlier = StageFigures { receive: Some(figure(10, 1)), write: figure(10, 5), ..StageFigures::default() };
        let now = StageFigures {
            receive: Some(figure(110, 7)),
            unpack: figure(50, 1),
            write: figure(60, 8),
            compare: figure(0, 0),
        };
        let lately = now.since(&earlier);
        assert_eq!(lately.receive, Some(figure(100, 6)));
        assert_eq!(lately.busy(|stage| matches!(stage, Stage::Unpack | Stage::Write)), Duration::from_secs(4));
        let waits = [Stage::Receive, Stage::Unpack, Stage::Write, Stage::Compare]
            .map(|one| lately.waiting_percent(|stage| stage == one));
        assert_eq!(waits, [40, 90, 70, 100]);
        assert_eq!(lately.waiting_percent(|stage| matches!(stage, Stage::Unpack | Stage::Write)), 60);
        assert_eq!(StageFigures::default().waiting_percent(|_| true), 0);
    }
}
