//! Threads that share the parts of a job.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::InstallError;

/// Bytes that a step has processed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepProgress {
    /// Bytes of units.
    pub(super) data_bytes: u64,
    /// Bytes of runs of zeros.
    pub(super) zero_bytes: u64,
    /// Those bytes of units that the target had in their places.
    pub(super) found_bytes: u64,
    /// Those bytes of zeros that the target was asked to make.
    pub(super) zeroed_bytes: u64,
}

impl StepProgress {
    fn add(&mut self, other: StepProgress) {
        let sum = |one: &mut u64, other| *one = one.saturating_add(other);
        sum(&mut self.data_bytes, other.data_bytes);
        sum(&mut self.zero_bytes, other.zero_bytes);
        sum(&mut self.found_bytes, other.found_bytes);
        sum(&mut self.zeroed_bytes, other.zeroed_bytes);
    }
}

/// State that the threads of a step share.
struct StepState {
    next: AtomicUsize,
    is_over: AtomicBool,
    outcome: Mutex<(StepProgress, Option<InstallError>)>,
}

/// Calls `work` with each number below `count`, in several threads. Returns the sum. The first error ends the work of
/// all threads.
pub(super) fn on_threads(
    threads: usize,
    count: usize,
    work: &(dyn Fn(usize, &mut StepProgress) -> Result<(), InstallError> + Sync),
) -> Result<StepProgress, InstallError> {
    let shared = StepState {
        next: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        outcome: Mutex::new((StepProgress::default(), None)),
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work_on(count, work, &shared));
        }
    });
    match shared.outcome.into_inner() {
        (done, None) => Ok(done),
        (_, Some(error)) => Err(error),
    }
}

/// Calls `work` until no number is left or a thread has failed.
fn work_on(
    count: usize,
    work: &(dyn Fn(usize, &mut StepProgress) -> Result<(), InstallError> + Sync),
    shared: &StepState,
) {
    let mut sum = StepProgress::default();
    let mut outcome = Ok(());
    while outcome.is_ok() && !shared.is_over.load(Ordering::Relaxed) {
        let index = shared.next.fetch_add(1, Ordering::Relaxed);
        if index >= count {
            break;
        }
        outcome = work(index, &mut sum);
    }
    let mut total = shared.outcome.lock();
    total.0.add(sum);
    if let Err(error) = outcome {
        shared.is_over.store(true, Ordering::Relaxed);
        total.1.get_or_insert(error);
    }
}
