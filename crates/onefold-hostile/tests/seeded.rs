//! Runs every target on inputs from seeds: the part of `make test` about hostile bytes.
//!
//! - `ONEFOLD_SEED=n` with `ONEFOLD_TARGET=name` repeats one input; a failure prints both.
//! - `ONEFOLD_HOSTILE_TIMES=n` tries n times as many inputs.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use onefold_hostile::allocation;
use onefold_hostile::choices::seeded_bytes;
use onefold_hostile::{TARGETS, Target};

/// Time after which an input counts as a hang. On an idle machine none takes more than a second.
const PATIENCE: Duration = Duration::from_secs(120);
const WORKERS: u64 = 2;

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// A running input: its start, its target, its seed.
type RunningInput = (Instant, &'static str, u64);

/// Ends the process and names the input that hangs.
struct Watchdog {
    now: Arc<Mutex<Option<RunningInput>>>,
    is_over: Arc<AtomicBool>,
}

impl Watchdog {
    fn start() -> Watchdog {
        let dog = Watchdog { now: Arc::default(), is_over: Arc::default() };
        let (now, is_over) = (dog.now.clone(), dog.is_over.clone());
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_secs(1));
                if let Some((since, target, seed)) = *now.lock().unwrap()
                    && since.elapsed() > PATIENCE
                {
                    eprintln!("does not end: ONEFOLD_TARGET={target} ONEFOLD_SEED={seed}");
                    std::process::abort();
                }
            }
        });
        dog
    }

    fn watch(&self, target: &'static str, seed: u64) {
        *self.now.lock().unwrap() = Some((Instant::now(), target, seed));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Returns whether the target returned from the seed's input as it must. A panic has already been printed.
fn is_withstood(target: &Target, seed: u64) -> bool {
    let bytes = seeded_bytes(seed);
    catch_unwind(AssertUnwindSafe(|| {
        (target.run)(&bytes);
        allocation::assert_bounded();
    }))
    .is_ok()
}

#[test]
fn hostile_bytes_give_values_or_errors_and_nothing_else() {
    let wanted = std::env::var("ONEFOLD_TARGET").ok();
    let seed = number_from("ONEFOLD_SEED");
    let times = number_from("ONEFOLD_HOSTILE_TIMES").unwrap_or(1);
    for target in TARGETS.iter().filter(|target| wanted.as_deref().is_none_or(|name| name == target.name)) {
        let seeds = seed.map_or(0..target.seeded_count * times, |seed| seed..seed + 1);
        let (begun, next) = (Instant::now(), AtomicU64::new(seeds.start));
        let broken_by = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    let dog = Watchdog::start();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            break;
                        }
                        dog.watch(target.name, seed);
                        if !is_withstood(target, seed) {
                            broken_by.lock().unwrap().push(seed);
                        }
                    }
                });
            }
        });
        let broken_by = broken_by.into_inner().unwrap();
        assert!(broken_by.is_empty(), "again with: ONEFOLD_TARGET={} ONEFOLD_SEED= one of {broken_by:?}", target.name);
        // Bypasses the capture of the test harness, which would hide it.
        let (count, took) = (seeds.end - seeds.start, begun.elapsed().as_secs_f64());
        writeln!(std::io::stderr(), "{}: {count} hostile inputs in {took:.1} s", target.name).unwrap();
    }
    writeln!(
        std::io::stderr(),
        "largest allocation {} KiB, most memory at once {} MiB",
        allocation::largest_bytes() >> 10,
        allocation::live_bytes_peak() >> 20
    )
    .unwrap();
}
