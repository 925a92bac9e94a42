//! Background work: the commit timer, reclaim, and what is found out after a mount: where free blocks are, and the
//! fingerprints for the filter.
//!
//! One thread keeps time, another does the work that may take long, in small pieces. Both only call what tests call
//! themselves when a pool is opened without them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Engine;
use super::heartbeat::{BEAT_INTERVAL, Pulse};
use crate::error::{PoolError, Result};
use crate::sync::{Condvar, Mutex};

/// How long the worker sleeps when there is nothing to do.
const IDLE: Duration = Duration::from_millis(200);
/// How long it waits for more when it is hurried: to wake for each file that is removed would cost more than the work.
const GATHER: Duration = Duration::from_millis(5);
/// How long it works at a time beside others.
const ROUND: Duration = Duration::from_millis(2);

/// How long it rests after a round beside others, in multiples of what the round took, and the longest rest.
const REST_FACTOR: u32 = 3;
const REST_MAX: Duration = Duration::from_millis(50);

/// Tells background threads that there is something to do, or that it is time to end.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    ending: Mutex<bool>,
    /// Signalled when it is time to end.
    ended: Condvar,
    /// Signalled when there is something to do, and at the end. Only the idle worker waits for it: others would wake in
    /// vain at each file that is removed.
    hurried: Condvar,
    /// The running transaction is large enough to be committed before its time.
    is_commit_wanted: AtomicBool,
    /// Signalled when it has become so, and at the end. Only who keeps the time waits for it.
    commit_wanted: Condvar,
}

/// What ended the wait for the next commit.
enum Due {
    /// Nothing: it may be its time.
    Time,
    /// The transaction has grown.
    Early,
    /// It is time to end.
    End,
}

impl Wake {
    /// Waits up to `time`, which nobody cuts short but the end. `Break` when it is time to end.
    fn wait(&self, time: Duration) -> ControlFlow<()> {
        self.wait_on(&self.ended, time)
    }

    /// Waits up to `time` for something to do. `Break` when it is time to end.
    fn wait_for_work(&self, time: Duration) -> ControlFlow<()> {
        self.wait_on(&self.hurried, time)
    }

    fn wait_on(&self, signal: &Condvar, time: Duration) -> ControlFlow<()> {
        let mut ending = self.ending.lock();
        if !*ending {
            signal.wait_for(&mut ending, time);
        }
        if *ending { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Waits up to `time`, unless a commit is wanted before.
    fn wait_for_commit(&self, time: Duration) -> Due {
        let mut ending = self.ending.lock();
        if !*ending && !self.is_commit_wanted.load(Ordering::Acquire) {
            self.commit_wanted.wait_for(&mut ending, time);
        }
        match (*ending, self.is_commit_wanted.swap(false, Ordering::AcqRel)) {
            (true, _) => Due::End,
            (false, true) => Due::Early,
            (false, false) => Due::Time,
        }
    }

    /// Has the running transaction committed beside the work that goes on. Without threads nobody hears it.
    pub(crate) fn want_commit(&self) {
        if !self.is_commit_wanted.swap(true, Ordering::AcqRel) {
            // Who has looked and not begun to wait is let begin.
            drop(self.ending.lock());
            self.commit_wanted.notify_one();
        }
    }

    fn is_ending(&self) -> bool {
        *self.ending.lock()
    }

    /// Ends the threads that wait for it.
    pub(crate) fn end(&self) {
        *self.ending.lock() = true;
        self.ended.notify_all();
        self.hurried.notify_all();
        self.commit_wanted.notify_all();
    }

    /// Tells the worker that there is something to do.
    pub(crate) fn hurry(&self) {
        self.hurried.notify_one();
    }
}

/// Starts the threads that keep time and do what takes long. `settle` waits until all accepted writes have taken
/// effect; it is called before each commit that is made because it is time.
///
/// # Errors
/// When the operating system has no thread to give.
pub(crate) fn start(engine: &Arc<Engine>, settle: impl Fn() + Send + 'static) -> std::io::Result<Vec<JoinHandle<()>>> {
    let timer = {
        let engine = Arc::clone(engine);
        std::thread::Builder::new().name("commit-timer".to_owned()).spawn(move || commit_timer(&engine, settle))?
    };
    let worker = {
        let engine = Arc::clone(engine);
        std::thread::Builder::new().name("pool-worker".to_owned()).spawn(move || work(&engine))?
    };
    Ok(vec![timer, worker])
}

/// Starts the thread that gives beats until [`Engine::heart`] ends it, which outlives the others. `None` where no other
/// host can have the pool.
///
/// # Errors
/// When the operating system has no thread to give.
pub(crate) fn start_heart(engine: &Arc<Engine>) -> std::io::Result<Option<JoinHandle<()>>> {
    let Some(pulse) = engine.pulse.clone() else { return Ok(None) };
    let engine = Arc::clone(engine);
    let beat = move || give_beats(&pulse, &engine.heart, |error| engine.stop(error));
    std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat).map(Some)
}

/// Calls `work` at each interval, until the pool is closed or it fails.
fn at_each(interval: Duration, wake: &Wake, mut work: impl FnMut() -> Result<()>) {
    let mut next = Instant::now() + interval;
    while !wake.is_ending() {
        let now = Instant::now();
        if now < next {
            if wake.wait(next - now).is_break() {
                return;
            }
            continue;
        }
        next = now + interval;
        if work().is_err() {
            return;
        }
    }
}

/// Makes sure that the pool is held, then beats until the end. Calls `lost` and ends when another host has taken the
/// pool over, or when nobody can tell.
pub(crate) fn give_beats(pulse: &Pulse, wake: &Wake, lost: impl Fn(&PoolError)) {
    let told = |held: Result<()>| held.inspect_err(|error| lost(error));
    if told(pulse.ensure_held()).is_ok() {
        at_each(BEAT_INTERVAL, wake, || told(pulse.beat()));
    }
}

/// Commits at each interval, and tidies up; and whenever the running transaction has grown, so that those who made it
/// grow need not wait for the log. A failure stops the pool, which says so to everybody who asks.
fn commit_timer(engine: &Engine, settle: impl Fn()) {
    let interval = Duration::from_millis(u64::from(engine.options.commit_interval_ms.max(10)));
    let mut seen = engine.meta().running.sequence;
    let mut next = Instant::now() + interval;
    loop {
        let done = match engine.wake.wait_for_commit(next.saturating_duration_since(Instant::now())) {
            Due::End => return,
            Due::Early => engine.commit(),
            Due::Time if Instant::now() < next => continue,
            Due::Time => {
                next = Instant::now() + interval;
                settle();
                commit_or_tidy(engine, &mut seen)
            }
        };
        match done {
            // The backing file may have room again the next time.
            Ok(()) | Err(PoolError::NoSpace) => {}
            Err(_) => return,
        }
    }
}

/// Commits what is running, and empties the journal when nothing has happened since the last time: an idle pool then
/// has no freed block that waits for a checkpoint, and opens at once after a crash. `seen` is the transaction that ran
/// then.
pub(super) fn commit_or_tidy(engine: &Engine, seen: &mut u64) -> Result<()> {
    let idle = {
        let running = &engine.meta().running;
        // The same transaction may have begun to change meanwhile.
        running.sequence == *seen && running.is_empty()
    };
    let done = engine.commit().and_then(|()| if idle { engine.checkpoint_if_needed() } else { Ok(()) });
    *seen = engine.meta().running.sequence;
    done
}

/// Does what takes long, a step at a time. While others use the pool it rests after each round of steps, three times as
/// long as the round took: they wait for it at most a part of the time, and find a processor.
fn work(engine: &Engine) {
    let mut demand_before = engine.demand();
    while !engine.wake.is_ending() {
        let began = Instant::now();
        let done = loop {
            // None keeps another from its turn. An error is reported where users meet it (`check`, `stat`, a write);
            // here the work waits and is tried again.
            let more = [engine.survey_some(), engine.index_some(), engine.reclaim_one()];
            if more.iter().any(|result| matches!(result, Err(PoolError::Stopped { .. }))) {
                return;
            }
            let is_done = !more.iter().any(|result| matches!(result, Ok(true)));
            if is_done || began.elapsed() >= ROUND || engine.wake.is_ending() {
                break is_done;
            }
        };
        let demand = engine.demand();
        let is_wanted = std::mem::replace(&mut demand_before, demand) != demand;
        let rested = match done {
            true => engine.wake.wait_for_work(IDLE).map_continue(|()| GATHER),
            false if is_wanted => ControlFlow::Continue((began.elapsed() * REST_FACTOR).min(REST_MAX)),
            false => continue,
        };
        let ControlFlow::Continue(rest) = rested else { return };
        if engine.wake.wait(rest).is_break() {
            return;
        }
    }
}

#[cfg(all(test, not(feature = "explore")))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_hurries_wakes_the_idle_worker_and_nobody_else() {
        let (wake, is_over) = (Wake::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    wake.hurry();
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let began = Instant::now();
            assert!(wake.wait_for_work(Duration::from_secs(60)).is_continue());
            let idle = began.elapsed();
            let began = Instant::now();
            assert!(wake.wait(Duration::from_millis(50)).is_continue());
            let rested = began.elapsed();
            is_over.store(true, Ordering::Relaxed);
            assert!(idle < Duration::from_secs(30), "{idle:?}");
            assert!(rested >= Duration::from_millis(50), "{rested:?}");
        });
    }

    #[test]
    fn a_commit_that_is_wanted_is_heard_once_whenever_it_was_said() {
        let wake = Wake::default();
        wake.want_commit();
        wake.want_commit();
        assert!(matches!(wake.wait_for_commit(Duration::from_secs(60)), Due::Early));
        assert!(matches!(wake.wait_for_commit(Duration::from_millis(1)), Due::Time));
        std::thread::scope(|scope| {
            let heard = scope.spawn(|| wake.wait_for_commit(Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(20));
            wake.want_commit();
            assert!(matches!(heard.join().unwrap(), Due::Early));
        });
        wake.want_commit();
        wake.end();
        assert!(matches!(wake.wait_for_commit(Duration::from_secs(60)), Due::End));
    }

    #[test]
    fn the_end_wakes_all() {
        let wake = Wake::default();
        std::thread::scope(|scope| {
            let waits = [
                scope.spawn(|| while wake.wait_for_work(Duration::from_secs(60)).is_continue() {}),
                scope.spawn(|| while wake.wait(Duration::from_secs(60)).is_continue() {}),
                scope.spawn(|| while !matches!(wake.wait_for_commit(Duration::from_secs(60)), Due::End) {}),
            ];
            wake.end();
            for wait in waits {
                wait.join().unwrap();
            }
        });
        assert!(wake.wait(Duration::from_secs(60)).is_break());
    }
}
