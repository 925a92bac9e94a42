//! The pace on a clock of its own: time passes only during work or sleep.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_block::random::SeededRandom;
use onefold_block::{BLOCK_BYTES_U64, Timestamp};

use super::*;

const MIB: u64 = 1 << 20;

/// A machine whose time and processor time the test advances. Sleeps last a little too long, as real ones do.
#[derive(Default)]
struct Machine {
    wall_ns: AtomicU64,
    cpu_ns: AtomicU64,
    longest_sleep_ns: AtomicU64,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

impl Machine {
    /// Works for this time, with this many threads.
    fn work(&self, time: Duration, threads: u64) {
        let ns = nanoseconds(time);
        self.wall_ns.fetch_add(ns, Ordering::Relaxed);
        self.cpu_ns.fetch_add(ns * threads, Ordering::Relaxed);
    }

    fn wait(&self, time: Duration) {
        self.wall_ns.fetch_add(nanoseconds(time), Ordering::Relaxed);
    }
}

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.wall_ns.load(Ordering::Relaxed))
    }

    fn sleep(&self, time: Duration) {
        self.longest_sleep_ns.fetch_max(nanoseconds(time), Ordering::Relaxed);
        self.wait(time + Duration::from_micros(700));
    }
}

impl CpuTime for Machine {
    fn used(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed))
    }
}

fn rate(bytes: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(bytes)
}

/// Asserts that `found` is within one percent of `expected`.
fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= expected / 100.0, "{found} is not {expected}");
}

#[test]
fn reads_keep_to_their_rate_over_minutes() {
    for per_second in [64 << 10, 5 * MIB, 300 * MIB] {
        let machine = Machine::default();
        let limits = Limits { read_bytes_per_second: rate(per_second), ..Limits::default() };
        let pace = Pace::new(limits, &machine, &machine, &|| Wish::GoOn);
        let random = SeededRandom::new(per_second);
        let mut bytes = 0;
        while machine.monotonic() < Duration::from_secs(600) {
            let piece = (1 + random.below(16)) * BLOCK_BYTES_U64;
            pace.read(piece);
            bytes += piece;
            // A part of the time goes into the reads themselves, and sometimes they hang for less than a burst.
            machine.wait(Duration::from_nanos(piece) + Duration::from_millis(50 * u64::from(random.below(5000) == 0)));
        }
        assert_near(bytes as f64 / machine.monotonic().as_secs_f64(), per_second as f64);
    }
}

#[test]
fn reads_and_calls_have_each_their_own_rate() {
    let machine = Machine::default();
    let limits =
        Limits { read_bytes_per_second: rate(8 * MIB), share_bytes_per_second: rate(MIB), ..Limits::default() };
    let pace = Pace::new(limits, &machine, &machine, &|| Wish::GoOn);
    let mut calls = 0;
    while machine.monotonic() < Duration::from_secs(300) {
        pace.read(64 << 10);
        pace.read(64 << 10);
        calls += pace.call(CallKind::Share, 64 << 10, || 64 << 10);
    }
    assert_near(f64::from(calls) / machine.monotonic().as_secs_f64(), MIB as f64);
}

#[test]
fn a_pause_gives_no_more_than_a_burst() {
    let machine = Machine::default();
    let limits = Limits { read_bytes_per_second: rate(10 * MIB), ..Limits::default() };
    let pace = Pace::new(limits, &machine, &machine, &|| Wish::GoOn);
    for _ in 0..5 {
        machine.wait(Duration::from_secs(3600));
        let began = machine.monotonic();
        let mut bytes = 0;
        while machine.monotonic() < began + Duration::from_millis(1) {
            pace.read(64 << 10);
            bytes += 64 << 10;
        }
        // A burst, the amount of the millisecond, and the request that was too much.
        assert!(bytes <= MIB + (10 << 10) + (128 << 10), "{bytes} at once");
    }
}

#[test]
fn processor_time_keeps_to_its_share() {
    for (percent, threads) in [(5, 1), (50, 2), (150, 2)] {
        let machine = Machine::default();
        let limits = Limits { cpu_percent: NonZeroU32::new(percent), ..Limits::default() };
        let pace = Pace::new(limits, &machine, &machine, &|| Wish::GoOn);
        let random = SeededRandom::new(u64::from(percent));
        for round in 0.. {
            match round % 3 {
                0 => pace.read(MIB),
                1 => pace.call(CallKind::Share, MIB, || machine.work(Duration::from_millis(2), 1)),
                // A stretch that only asks whether to go on.
                _ => {
                    for _ in 0..random.below(200) {
                        machine.work(Duration::from_micros(100), threads);
                        pace.go_on().unwrap();
                    }
                }
            }
            if machine.monotonic() > Duration::from_secs(600) {
                break;
            }
        }
        assert_near(machine.used().as_secs_f64() / machine.monotonic().as_secs_f64(), f64::from(percent) / 100.0);
    }
}

/// Makes calls on a file system that takes `ns_a_block` for a block, and returns their sizes.
fn calls(pace: &Pace<'_>, machine: &Machine, count: usize, ns_a_block: u64) -> Vec<u64> {
    let call = |_| {
        let bytes = pace.call_bytes(CallKind::Share, MIB);
        let took = Duration::from_nanos(bytes / BLOCK_BYTES_U64 * ns_a_block);
        pace.call(CallKind::Share, bytes, || machine.wait(took));
        bytes
    };
    (0..count).map(call).collect()
}

#[test]
fn calls_grow_slowly_and_shrink_at_once() {
    let machine = Machine::default();
    let ceiling = Duration::from_millis(20);
    let limits = Limits { stall_max: Some(ceiling), ..Limits::default() };
    let pace = Pace::new(limits, &machine, &machine, &|| Wish::GoOn);

    let fast = calls(&pace, &machine, 60, 1000);
    assert!(fast[0] == 128 << 10 && fast.is_sorted() && fast.last() == Some(&MIB), "{fast:?}");
    assert!(fast.windows(2).all(|pair| pair[1] - pair[0] <= pair[0] / 8), "{fast:?}");

    // A block takes a millisecond, so a call of 1 MiB takes 256 of them.
    let slow = calls(&pace, &machine, 60, 1_000_000);
    let settled = &slow[8..];
    assert!(settled.iter().all(|bytes| *bytes <= 20 * BLOCK_BYTES_U64), "{slow:?}");
    assert!(settled.iter().all(|bytes| bytes % BLOCK_BYTES_U64 == 0 && *bytes > 0), "{slow:?}");

    // However slow it is, it goes on block by block.
    assert_eq!(calls(&pace, &machine, 20, 1_000_000_000).last(), Some(&BLOCK_BYTES_U64));
    // One slow call has no lasting effect.
    assert_eq!(calls(&pace, &machine, 200, 1000).last(), Some(&MIB));
    // Clones have their own size.
    assert_eq!(pace.call_bytes(CallKind::Clone, MIB), 128 << 10);
}

#[test]
fn small_calls_say_nothing_of_large_ones() {
    let machine = Machine::default();
    let limits = Limits { stall_max: Some(Duration::from_millis(20)), ..Limits::default() };
    let pace = Pace::new(limits, &machine, &machine, &|| Wish::GoOn);
    for _ in 0..1000 {
        pace.call(CallKind::Share, BLOCK_BYTES_U64, || {});
    }
    assert_eq!(pace.call_bytes(CallKind::Share, MIB), 128 << 10);
}

#[test]
fn without_limits_nobody_waits_and_calls_are_as_large_as_wanted() {
    let machine = Machine::default();
    let pace = Pace::new(Limits::default(), &machine, &machine, &|| Wish::GoOn);
    for _ in 0..1000 {
        pace.read(1 << 40);
        assert_eq!(pace.call_bytes(CallKind::Share, 1 << 40), 1 << 40);
        pace.call(CallKind::Clone, 1 << 40, || machine.work(Duration::from_millis(1), 1));
        pace.boundary().unwrap();
    }
    assert_eq!(machine.monotonic(), Duration::from_secs(1));
}

#[test]
fn calls_are_counted_by_their_kind_with_limits_and_without() {
    let machine = Machine::default();
    let limited = Limits { share_bytes_per_second: rate(MIB), stall_max: Some(SLEEP_MAX), ..Limits::default() };
    for limits in [Limits::default(), limited] {
        let pace = Pace::new(limits, &machine, &machine, &|| Wish::GoOn);
        assert_eq!(pace.calls(), CallCounts::default());
        pace.call(CallKind::Clone, MIB, || ());
        (0..2).for_each(|_| pace.call(CallKind::Share, MIB, || ()));
        pace.read(MIB);
        assert_eq!(pace.calls(), CallCounts { clones: 1, shares: 2 });
    }
}

#[test]
fn a_stop_waits_for_one_sleep_at_most() {
    let machine = Machine::default();
    let ends = Cell::new((Duration::MAX, Wish::StopNow));
    let wish = || if machine.monotonic() >= ends.get().0 { ends.get().1 } else { Wish::GoOn };
    let limits = Limits { read_bytes_per_second: rate(4096), ..Limits::default() };
    let pace = Pace::new(limits, &machine, &machine, &wish);
    pace.read(MIB);
    ends.set((Duration::from_secs(3), Wish::StopNow));
    // This read would have to wait for more than four minutes.
    pace.read(MIB);
    assert!(machine.monotonic() < Duration::from_secs(3) + 2 * SLEEP_MAX, "{:?}", machine.monotonic());
    assert!(Duration::from_nanos(machine.longest_sleep_ns.load(Ordering::Relaxed)) <= SLEEP_MAX);
    assert_eq!((pace.go_on(), pace.boundary()), (Err(StopRequest), Err(StopRequest)));

    // A request to stop soon is noticed between two files, and not within one.
    ends.set((Duration::ZERO, Wish::StopSoon));
    let pace = Pace::new(Limits::default(), &machine, &machine, &wish);
    for _ in 0..3 {
        pace.read(MIB);
        assert_eq!(pace.go_on(), Ok(()));
        pace.read(MIB);
        assert_eq!(pace.boundary(), Err(StopRequest));
    }
    // Steps that only compute do not ask each time, but soon.
    let steps = (0..).take_while(|_| pace.boundary().is_ok()).count();
    assert!(steps <= STEPS_BETWEEN_LOOKS as usize, "{steps} steps");
}

#[test]
fn asking_whether_work_is_stopped_pays_for_nothing() {
    let machine = Machine::default();
    let limits = Limits { cpu_percent: NonZeroU32::new(1), ..Limits::default() };
    let is_asked = Cell::new(false);
    let wish = || if is_asked.get() { Wish::StopNow } else { Wish::GoOn };
    let pace = Pace::new(limits, &machine, &machine, &wish);
    machine.work(Duration::from_secs(10), 1);
    for _ in 0..1000 {
        assert!(!pace.is_stopped());
    }
    assert_eq!(machine.monotonic(), Duration::from_secs(10), "time passed by the work alone");
    is_asked.set(true);
    assert!(pace.is_stopped());
    // The debt remains: it is paid when work asks whether to go on.
    is_asked.set(false);
    pace.go_on().unwrap();
    assert_near(machine.monotonic().as_secs_f64(), 1000.0);
}

#[test]
fn processor_time_from_before_the_beginning_is_not_paid_for() {
    let machine = Machine::default();
    let limits = Limits { cpu_percent: NonZeroU32::new(1), ..Limits::default() };
    let pace = Pace::new(limits, &machine, &machine, &|| Wish::GoOn);
    machine.work(Duration::from_secs(10), 1);
    pace.begin();
    pace.go_on().unwrap();
    assert_eq!(machine.monotonic(), Duration::from_secs(10));
    machine.work(Duration::from_secs(10), 1);
    pace.read(MIB);
    assert_near(machine.monotonic().as_secs_f64(), 1010.0);
}
