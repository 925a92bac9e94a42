//! The threads of a capture. Each takes the next batch of the plan, processes it, and sends the result to the caller's
//! thread. That thread collects results in the order of the plan, so the image depends only on disk and archive.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use parking_lot::Mutex;

use super::batch::Outcome;
use super::plan::{PlanError, PlanItem};
use crate::SECTOR_BYTES;

/// Limits on the work in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    /// Number of threads, at least 1.
    pub(super) threads: usize,
    /// Maximum number of batches that are taken but not collected, at least 1.
    pub(super) batches: usize,
    /// Plain bytes after which a batch ends.
    pub(super) batch_bytes: u64,
}

/// Maximum number of runs in a batch, which bounds its memory and its reads.
const BATCH_RUNS_MAX: usize = 4096;

/// Message of a thread.
enum ThreadMessage<E> {
    /// The number of a batch, and what became of it.
    Outcome(u64, Result<Outcome, E>),
    /// There was no further batch for its permit.
    End,
    /// It panics: its batch never comes.
    Panic,
}

/// Tells the caller's thread that this one panics, should it do so.
struct Alarm<'s, E>(&'s Sender<ThreadMessage<E>>);

impl<E> Drop for Alarm<'_, E> {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.send(ThreadMessage::Panic);
        }
    }
}

/// The units that no thread has taken yet.
struct Source<P> {
    plan: P,
    /// The number of the next batch.
    number: u64,
    has_ended: bool,
}

/// Runs each thread's `work` on batches until the plan is finished, and calls `collect` with each result in the order
/// of the plan.
///
/// # Errors
/// Those of the plan, of `work` and of `collect`. The first error ends all threads.
pub(super) fn run<P, W, E>(
    plan: P,
    width: Width,
    works: Vec<W>,
    collect: &mut dyn FnMut(Outcome) -> Result<(), E>,
) -> Result<(), E>
where
    P: Iterator<Item = Result<PlanItem, PlanError>> + Send,
    W: FnMut(Vec<PlanItem>) -> Result<Outcome, E> + Send,
    E: From<PlanError> + Send,
{
    let source = Mutex::new(Source { plan, number: 0, has_ended: false });
    // A thread takes a permit for each batch. The caller returns the permit once the batch is collected.
    let (permit, permits) = mpsc::channel();
    for _ in 0..width.batches.max(1) {
        let _ = permit.send(());
    }
    let permits = Mutex::new(permits);
    let (send, outcomes) = mpsc::channel();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (source, permits, is_over) = (&source, &permits, &is_over);
        for work in works {
            let send = send.clone();
            scope.spawn(move || each_batch(source, permits, is_over, width, work, &send));
        }
        drop(send);
        // Threads end when there are no more permits. Those that are left after an error or a panic are of no use.
        let _over = StopGuard(is_over);
        collect_in_order(outcomes, permit, collect)
    })
}

/// Ends the threads when the collector returns or panics.
struct StopGuard<'o>(&'o AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Processes batches until none is left, one fails, or the collector is gone.
fn each_batch<P, W, E>(
    source: &Mutex<Source<P>>,
    permits: &Mutex<Receiver<()>>,
    is_over: &AtomicBool,
    width: Width,
    mut work: W,
    send: &Sender<ThreadMessage<E>>,
) where
    P: Iterator<Item = Result<PlanItem, PlanError>>,
    W: FnMut(Vec<PlanItem>) -> Result<Outcome, E>,
    E: From<PlanError>,
{
    let _alarm = Alarm(send);
    while permits.lock().recv().is_ok() && !is_over.load(Ordering::Relaxed) {
        let (number, batch) = {
            let mut source = source.lock();
            let number = source.number;
            source.number += 1;
            (number, source.batch(width.batch_bytes))
        };
        let outcome = match batch {
            Ok(batch) if batch.is_empty() => {
                let _ = send.send(ThreadMessage::End);
                return;
            }
            Ok(batch) => work(batch),
            Err(error) => Err(error.into()),
        };
        let has_failed = outcome.is_err();
        if send.send(ThreadMessage::Outcome(number, outcome)).is_err() || has_failed {
            return;
        }
    }
}

impl<P: Iterator<Item = Result<PlanItem, PlanError>>> Source<P> {
    /// Returns the next batch; an empty one at the end.
    fn batch(&mut self, batch_bytes: u64) -> Result<Vec<PlanItem>, PlanError> {
        let (mut batch, mut bytes, mut runs) = (Vec::new(), 0, 0);
        while !self.has_ended && bytes < batch_bytes && runs < BATCH_RUNS_MAX {
            match self.plan.next() {
                None => self.has_ended = true,
                Some(Err(error)) => {
                    self.has_ended = true;
                    return Err(error);
                }
                Some(Ok(planned)) => {
                    if let PlanItem::Unit(unit) = &planned {
                        bytes += unit.runs.iter().map(|run| run.count * SECTOR_BYTES).sum::<u64>();
                        runs += unit.runs.len();
                    } else {
                        runs += 1;
                    }
                    batch.push(planned);
                }
            }
        }
        Ok(batch)
    }
}

/// Collects results in order until all threads have ended or one fails.
fn collect_in_order<E>(
    outcomes: Receiver<ThreadMessage<E>>,
    permit: Sender<()>,
    collect: &mut dyn FnMut(Outcome) -> Result<(), E>,
) -> Result<(), E> {
    let mut early = BTreeMap::new();
    let mut next = 0;
    // Moves both ends into this function, so that they are dropped on return.
    let (outcomes, permit) = (outcomes, permit);
    while let Ok(sent) = outcomes.recv() {
        match sent {
            ThreadMessage::Outcome(number, outcome) => early.insert(number, outcome?),
            // Another thread may wait for its permit, to find the end as well.
            ThreadMessage::End => {
                let _ = permit.send(());
                continue;
            }
            // The scope of the threads passes the panic on.
            ThreadMessage::Panic => return Ok(()),
        };
        while let Some(outcome) = early.remove(&next) {
            collect(outcome)?;
            next += 1;
            let _ = permit.send(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::super::batch::Item;
    use super::*;
    use crate::SectorRun;
    use crate::capture::plan::PlannedUnit;

    const WIDTH: Width = Width { threads: 3, batches: 5, batch_bytes: 4096 };

    /// Returns units of eight sectors. Each fills a batch.
    fn plan(count: u64) -> impl Iterator<Item = Result<PlanItem, PlanError>> + Send {
        (0..count)
            .map(|at| Ok(PlanItem::Unit(PlannedUnit { runs: vec![SectorRun { start: 8 * at, count: 8 }], slack: 0 })))
    }

    fn first_sector(batch: &[PlanItem]) -> u64 {
        match &batch[0] {
            PlanItem::Unit(unit) => unit.runs[0].start,
            PlanItem::Hole(hole) => hole.start,
        }
    }

    fn as_zeros(batch: &[PlanItem]) -> Outcome {
        let runs = vec![SectorRun { start: first_sector(batch), count: 1 }];
        Outcome { items: vec![Item::Zeros(runs)], stored: Vec::new() }
    }

    #[test]
    fn outcomes_come_in_order_and_only_so_many_are_under_way() {
        let (under_way, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |batch: Vec<PlanItem>| {
            most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // The first of each ten is slow.
            thread::sleep(Duration::from_millis(if first_sector(&batch).is_multiple_of(80) { 10 } else { 0 }));
            Ok::<_, PlanError>(as_zeros(&batch))
        };
        let mut collected = Vec::new();
        let mut collect = |outcome: Outcome| {
            under_way.fetch_sub(1, Ordering::SeqCst);
            collected.extend(outcome.items.into_iter().map(|item| match item {
                Item::Zeros(runs) => runs[0].start / 8,
                other => panic!("{other:?}"),
            }));
            Ok(())
        };
        run(plan(200), WIDTH, vec![work; 3], &mut collect).unwrap();
        assert_eq!(collected, (0..200).collect::<Vec<u64>>());
        assert!((2..=WIDTH.batches).contains(&most.into_inner()));
    }

    #[test]
    fn the_first_error_of_any_thread_ends_all() {
        let failed = || PlanError::Temporary(io::Error::other("it fails"));
        let work = |batch: Vec<PlanItem>| Ok::<_, PlanError>(as_zeros(&batch));
        let failing = |batch: Vec<PlanItem>| if first_sector(&batch) == 800 { Err(failed()) } else { work(batch) };
        let mut count = 0;
        let mut counted = |_: Outcome| {
            count += 1;
            Ok(())
        };
        assert!(run(plan(u64::MAX / 8), WIDTH, vec![failing; 3], &mut counted).is_err());
        assert!(count <= 100, "{count}");
        let plan_fails = plan(100).chain([Err(failed())]).chain(plan(100));
        assert!(run(plan_fails, WIDTH, vec![work; 3], &mut |_| Ok(())).is_err());
        let mut count = 0;
        let mut collect = |_: Outcome| {
            count += 1;
            if count < 50 { Ok(()) } else { Err(failed()) }
        };
        assert!(run(plan(u64::MAX / 8), WIDTH, vec![work; 3], &mut collect).is_err());
        assert_eq!(count, 50);
    }

    /// Regression: threads used up all permits after an error, which are many on a large machine.
    #[test]
    fn threads_begin_no_batch_after_an_error() {
        let (has_failed, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
        let work = |batch: Vec<PlanItem>| {
            begun.fetch_add(1, Ordering::SeqCst);
            while first_sector(&batch) > 0 && !has_failed.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            // Time for the collector to return.
            thread::sleep(Duration::from_millis(if first_sector(&batch) > 0 { 10 } else { 0 }));
            Ok::<_, PlanError>(as_zeros(&batch))
        };
        let mut collect = |_: Outcome| {
            has_failed.store(true, Ordering::SeqCst);
            Err(PlanError::Temporary(io::Error::other("it fails")))
        };
        let width = Width { batches: 1000, ..WIDTH };
        assert!(run(plan(u64::MAX / 8), width, vec![work; 3], &mut collect).is_err());
        let begun = begun.into_inner();
        assert!(begun < 300, "{begun}");
    }

    /// Runs a pipeline whose threads may wait for ever. Returns whether it panicked.
    fn ends(
        width: Width,
        work: impl FnMut(Vec<PlanItem>) -> Result<Outcome, PlanError> + Clone + Send + 'static,
    ) -> bool {
        let (send, ended) = mpsc::channel();
        thread::spawn(move || {
            let run = || run(plan(50), width, vec![work; 3], &mut |_| Ok(()));
            let _ = send.send(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        });
        ended.recv_timeout(Duration::from_secs(60)).expect("it ends")
    }

    #[test]
    fn fewer_batches_than_threads_come_to_an_end() {
        for batches in 1..4 {
            assert!(!ends(Width { batches, ..WIDTH }, |batch| Ok(as_zeros(&batch))), "{batches}");
        }
    }

    #[test]
    fn a_thread_that_panics_ends_all() {
        let work = |batch: Vec<PlanItem>| {
            assert!(first_sector(&batch) != 80, "it panics in this test");
            Ok(as_zeros(&batch))
        };
        for batches in [1, 5] {
            assert!(ends(Width { batches, ..WIDTH }, work), "{batches}");
        }
    }

    #[test]
    fn a_batch_ends_after_so_many_bytes_or_runs() {
        let scattered = PlanItem::Unit(PlannedUnit {
            runs: (0..256).map(|at| SectorRun { start: 2 * at, count: 1 }).collect(),
            slack: 0,
        });
        let mut source = Source { plan: plan(20), number: 0, has_ended: false };
        assert_eq!(source.batch(8 * 4096 - 1).unwrap().len(), 8);
        assert_eq!(source.batch(u64::MAX).unwrap().len(), 12);
        assert!(source.batch(u64::MAX).unwrap().is_empty());
        let endless = std::iter::repeat_with(|| Ok(scattered.clone()));
        let mut source = Source { plan: endless, number: 0, has_ended: false };
        assert_eq!(source.batch(u64::MAX).unwrap().len(), BATCH_RUNS_MAX / 256);
    }
}
