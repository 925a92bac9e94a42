//! Background work: the commit timer, reclaim, and two searches after a mount: where free blocks are, and the
//! fingerprints for the filter. After the first one, the summaries of the groups get their places.
//!
//! One thread keeps time, another does the longer work in small pieces. Both call only functions that tests call
//! themselves when they open a pool without threads.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Engine;
use super::heartbeat::{BEAT_INTERVAL, Pulse};
use crate::error::{PoolError, Result};
use crate::sync::{Condvar, Mutex};

/// How long the worker sleeps when it has nothing to do.
const IDLE: Duration = Duration::from_millis(200);
/// How long a hurried worker waits for more work: waking for each removed file would cost more than the work.
const GATHER: Duration = Duration::from_millis(5);
/// How long it works at a time while others use the pool.
const ROUND: Duration = Duration::from_millis(2);

/// How long it rests after a round while others use the pool: a multiple of the round's duration, and at most the
/// longest rest.
const REST_FACTOR: u32 = 3;
const REST_MAX: Duration = Duration::from_millis(50);

/// Tells background threads that there is work, or that it is time to end.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    ending: Mutex<bool>,
    /// Signalled when it is time to end.
    ended: Condvar,
    /// Signalled when there is work, and at the end. Only the idle worker waits for it: other threads would wake in
    /// vain at each removed file.
    hurried: Condvar,
    /// Whether the running transaction is large enough for a commit before its time.
    is_commit_wanted: AtomicBool,
    /// Signalled when `is_commit_wanted` is set, and at the end. Only the commit timer waits for it.
    commit_wanted: Condvar,
}

/// The event that ended the wait for the next commit.
enum CommitTrigger {
    /// None: the time may have come.
    Time,
    /// The transaction has grown.
    Early,
    /// It is time to end.
    End,
}

impl Wake {
    /// Waits up to `time`; only the end cuts this short. Returns `Break` when it is time to end.
    fn wait(&self, time: Duration) -> ControlFlow<()> {
        self.wait_on(&self.ended, time)
    }

    /// Waits up to `time` for work. Returns `Break` when it is time to end.
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

    /// Waits up to `time`, or until a commit is wanted.
    fn wait_for_commit(&self, time: Duration) -> CommitTrigger {
        let mut ending = self.ending.lock();
        if !*ending && !self.is_commit_wanted.load(Ordering::Acquire) {
            self.commit_wanted.wait_for(&mut ending, time);
        }
        match (*ending, self.is_commit_wanted.swap(false, Ordering::AcqRel)) {
            (true, _) => CommitTrigger::End,
            (false, true) => CommitTrigger::Early,
            (false, false) => CommitTrigger::Time,
        }
    }

    /// Requests a commit of the running transaction in the background. Without threads, this has no effect.
    pub(crate) fn want_commit(&self) {
        if !self.is_commit_wanted.swap(true, Ordering::AcqRel) {
            // Lets a thread that has checked the flag begin its wait, so that it sees the signal.
            drop(self.ending.lock());
            self.commit_wanted.notify_one();
        }
    }

    fn is_ending(&self) -> bool {
        *self.ending.lock()
    }

    /// Ends the threads that wait for this.
    pub(crate) fn end(&self) {
        *self.ending.lock() = true;
        self.ended.notify_all();
        self.hurried.notify_all();
        self.commit_wanted.notify_all();
    }

    /// Tells the worker that there is work.
    pub(crate) fn hurry(&self) {
        self.hurried.notify_one();
    }
}

/// Starts the commit timer and the worker. `settle` waits until all accepted writes have taken effect; the timer calls
/// it before each commit at the regular interval.
///
/// # Errors
/// When the operating system cannot start a thread.
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

/// Starts the heartbeat thread, which runs until [`Engine::heart`] ends it, after the other threads. `None` if no other
/// host can have the pool.
///
/// # Errors
/// When the operating system cannot start a thread.
pub(crate) fn start_heart(engine: &Arc<Engine>) -> std::io::Result<Option<JoinHandle<()>>> {
    let Some(pulse) = engine.pulse.clone() else { return Ok(None) };
    let engine = Arc::clone(engine);
    let beat = move || give_beats(&pulse, &engine.heart, |error| engine.stop(error));
    std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat).map(Some)
}

/// Calls `work` at each interval, until the pool is closed or `work` fails.
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

/// Makes sure that the pool is held, and then beats until the end. If another host has taken the pool over, or this
/// cannot be ruled out, calls `lost` and ends.
pub(crate) fn give_beats(pulse: &Pulse, wake: &Wake, lost: impl Fn(&PoolError)) {
    let told = |held: Result<()>| held.inspect_err(|error| lost(error));
    if told(pulse.ensure_held()).is_ok() {
        at_each(BEAT_INTERVAL, wake, || told(pulse.beat()));
    }
}

/// Commits and tidies up at each interval. Also commits whenever the running transaction has grown large, so that
/// writers need not wait for the log. A failure stops the pool, which then returns the failure to all callers.
fn commit_timer(engine: &Engine, settle: impl Fn()) {
    let interval = Duration::from_millis(u64::from(engine.options.commit_interval_ms.max(10)));
    let mut seen = engine.meta().running.sequence;
    let mut next = Instant::now() + interval;
    loop {
        let done = match engine.wake.wait_for_commit(next.saturating_duration_since(Instant::now())) {
            CommitTrigger::End => return,
            CommitTrigger::Early => engine.commit(),
            CommitTrigger::Time if Instant::now() < next => continue,
            CommitTrigger::Time => {
                next = Instant::now() + interval;
                settle();
                commit_or_tidy(engine, &mut seen)
            }
        };
        match done {
            // The backing file may have room again next time.
            Ok(()) | Err(PoolError::NoSpace) => {}
            Err(_) => return,
        }
    }
}

/// Commits the running transaction. If nothing has happened since the last call, empties the journal: an idle pool then
/// has no freed block that waits for a checkpoint, and opens at once after a crash. `seen` is the transaction that ran
/// at the last call.
pub(super) fn commit_or_tidy(engine: &Engine, seen: &mut u64) -> Result<()> {
    let idle = {
        let running = &engine.meta().running;
        // The same transaction may have gathered changes meanwhile.
        running.sequence == *seen && running.is_empty()
    };
    let done = engine.commit().and_then(|()| if idle { engine.checkpoint_if_needed() } else { Ok(()) });
    *seen = engine.meta().running.sequence;
    done
}

/// Does longer work, one step at a time. While others use the pool, it rests after each round of steps, three times as
/// long as the round took. So they wait for it only part of the time, and find a free processor.
fn work(engine: &Engine) {
    let mut demand_before = engine.demand();
    while !engine.wake.is_ending() {
        let began = Instant::now();
        let done = loop {
            // None of these keeps another from its turn. The work is retried after an error; users see the error where
            // they meet it (`check`, `stat`, a write).
            let more = [engine.survey_some(), engine.index_some(), engine.reclaim_one(), Ok(engine.place_summaries())];
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
        assert!(matches!(wake.wait_for_commit(Duration::from_secs(60)), CommitTrigger::Early));
        assert!(matches!(wake.wait_for_commit(Duration::from_millis(1)), CommitTrigger::Time));
        std::thread::scope(|scope| {
            let heard = scope.spawn(|| wake.wait_for_commit(Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(20));
            wake.want_commit();
            assert!(matches!(heard.join().unwrap(), CommitTrigger::Early));
        });
        wake.want_commit();
        wake.end();
        assert!(matches!(wake.wait_for_commit(Duration::from_secs(60)), CommitTrigger::End));
    }

    #[test]
    fn the_end_wakes_all() {
        let wake = Wake::default();
        std::thread::scope(|scope| {
            let waits = [
                scope.spawn(|| while wake.wait_for_work(Duration::from_secs(60)).is_continue() {}),
                scope.spawn(|| while wake.wait(Duration::from_secs(60)).is_continue() {}),
                scope.spawn(|| while !matches!(wake.wait_for_commit(Duration::from_secs(60)), CommitTrigger::End) {}),
            ];
            wake.end();
            for wait in waits {
                wait.join().unwrap();
            }
        });
        assert!(wake.wait(Duration::from_secs(60)).is_break());
    }
}
