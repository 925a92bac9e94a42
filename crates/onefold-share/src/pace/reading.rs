//! The part of a pace that any thread may use: the limit on reads, and whether the work is to end at once.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};

use onefold_block::Clock;

use super::bucket::{self, Bucket};
use super::{Pace, SLEEP_MAX, StopRequest};

/// Paces reads within long work that cannot pass a [`Pace`] down to them. They count against the limit of that pace.
#[derive(Clone, Copy)]
pub(crate) struct ReadPace<'p> {
    rate: Option<NonZeroU64>,
    clock: &'p dyn Clock,
    reads: &'p Bucket,
    stop: &'p (dyn Fn() -> bool + Sync),
    /// Whether the part of the work is over that reads are for.
    is_over: Option<&'p AtomicBool>,
}

impl Pace<'_> {
    /// Returns the part of this pace that any thread may use.
    pub(crate) fn reading(&self) -> ReadPace<'_> {
        let rate = self.limits.read_bytes_per_second;
        ReadPace { rate, clock: self.clock, reads: &self.reads, stop: self.stop, is_over: None }
    }
}

impl<'p> ReadPace<'p> {
    /// Returns the same pace for a part of the work, which is also to end at once when `is_over` becomes true.
    pub(crate) fn until(self, is_over: &'p AtomicBool) -> ReadPace<'p> {
        ReadPace { is_over: Some(is_over), ..self }
    }

    /// Waits until so many bytes of an image may be read.
    ///
    /// # Errors
    /// If the work is to end at once.
    pub(crate) fn read(&self, bytes: u64) -> Result<(), StopRequest> {
        self.go_on()?;
        let Some(rate) = self.rate else { return Ok(()) };
        let cost = bucket::time_of(bytes, rate);
        loop {
            let left = self.reads.take_if_paid(self.clock.monotonic(), cost);
            if left.is_zero() {
                return Ok(());
            }
            self.clock.sleep(left.min(SLEEP_MAX));
            self.go_on()?;
        }
    }

    /// Makes a step that reads nothing of an image.
    ///
    /// # Errors
    /// If the work is to end at once.
    pub(crate) fn go_on(&self) -> Result<(), StopRequest> {
        let is_over = self.is_over.is_some_and(|is_over| is_over.load(Ordering::Relaxed));
        if is_over || (self.stop)() { Err(StopRequest) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;
    use std::time::Duration;

    use onefold_block::Timestamp;
    use onefold_block::clock::ManualClock;

    use super::super::{Limits, UncountedCpu, Wish};
    use super::*;

    /// A bucket that is paid for stays so until somebody takes: two threads that look before they take would both read.
    #[test]
    fn of_threads_that_wait_for_one_request_one_takes() {
        let (bucket, second) = (Bucket::default(), Duration::from_secs(1));
        let now = Duration::from_secs(100);
        let takers = thread::scope(|scope| {
            let takes = || bucket.take_if_paid(now, second).is_zero();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(takes)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|took| *took).count()
        });
        assert_eq!(takers, 1);
        assert_eq!(bucket.take_if_paid(now, second), second - bucket::BURST);
        assert!(bucket.take_if_paid(now + second, second).is_zero());
    }

    /// A clock on which a part of the work is over after the first sleep.
    struct EndingClock<'c> {
        clock: ManualClock,
        is_over: &'c AtomicBool,
    }

    impl Clock for EndingClock<'_> {
        fn now(&self) -> Timestamp {
            self.clock.now()
        }

        fn monotonic(&self) -> Duration {
            self.clock.monotonic()
        }

        fn sleep(&self, time: Duration) {
            self.clock.sleep(time);
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn reads_of_a_part_of_the_work_end_with_it_also_while_they_wait() {
        let is_over = AtomicBool::new(false);
        let clock = EndingClock { clock: ManualClock::starting_at(1000), is_over: &is_over };
        let limits = Limits { read_bytes_per_second: NonZeroU64::new(1), ..Limits::default() };
        let pace = Pace::new(limits, &clock, &UncountedCpu, &|| Wish::GoOn);
        let reading = pace.reading().until(&is_over);
        let began = clock.monotonic();
        reading.read(1 << 20).unwrap();
        // This one would wait for days.
        assert_eq!((reading.read(1), reading.go_on()), (Err(StopRequest), Err(StopRequest)));
        assert!(clock.monotonic() - began < 2 * SLEEP_MAX);
        assert_eq!(pace.reading().go_on(), Ok(()), "other parts go on");
    }

    #[test]
    fn reads_from_inside_share_the_limit_of_their_pace_and_hear_that_the_work_ends() {
        let clock = ManualClock::starting_at(1000);
        let limits = Limits { read_bytes_per_second: NonZeroU64::new(1 << 20), ..Limits::default() };
        let asked = AtomicU32::new(0);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) >= 1000;
        let pace = Pace::new(limits, &clock, &UncountedCpu, &|| Wish::GoOn).stopped_by(&stop);
        let began = clock.monotonic();
        pace.read(4 << 20);
        let reading = pace.reading();
        for _ in 0..4 {
            reading.read(1 << 20).unwrap();
        }
        pace.read(1);
        let took = clock.monotonic() - began;
        assert!(took > Duration::from_secs(7) && took <= Duration::from_secs(8), "{took:?}");
        asked.store(1000, Ordering::Relaxed);
        assert_eq!((reading.read(1), reading.go_on()), (Err(StopRequest), Err(StopRequest)));
    }
}
