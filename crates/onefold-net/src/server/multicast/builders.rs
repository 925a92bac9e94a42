//! Threads that build the chunks of a session, and one that makes its repair symbols, so that the sending thread waits
//! neither for the archive nor for these. Repair symbols never wait for the archive, either: their chunks are in
//! memory.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use onefold_image::multicast::{RepairJob, RepairSymbols};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// Number of threads of a session that build chunks. Most of their time they wait for a store.
const THREADS: usize = 4;

/// The form of a chunk and its bytes; `None` if it cannot be built.
pub(super) type BuiltContent = Option<(u32, Vec<u8>)>;

/// The result of a task.
pub(super) enum TaskResult {
    /// The chunk with this index.
    Chunk {
        index: u32,
        content: BuiltContent,
    },
    Repairs(RepairSymbols),
}

/// The threads of one session. They end when this is dropped.
pub(super) struct Builders {
    builds: mpsc::Sender<u32>,
    repairs: mpsc::Sender<RepairJob>,
    results: mpsc::Receiver<TaskResult>,
    waker: Arc<OwnedFd>,
}

/// Where threads leave their results.
#[derive(Clone)]
struct Results {
    done: mpsc::Sender<TaskResult>,
    waker: Arc<OwnedFd>,
}

impl Results {
    /// Adds a result. Returns false if nobody takes it any more.
    fn add(&self, result: TaskResult) -> bool {
        let is_taken = self.done.send(result).is_ok();
        let _ = rustix::io::write(&*self.waker, &1_u64.to_ne_bytes());
        is_taken
    }
}

impl Builders {
    /// Starts the threads. `build` returns the chunk with an index, and may take long.
    ///
    /// # Errors
    /// When the system has no room for them.
    pub(super) fn start(build: impl Fn(u32) -> BuiltContent + Send + Sync + 'static) -> io::Result<Builders> {
        let (builds, open) = mpsc::channel();
        let (repairs, jobs) = mpsc::channel::<RepairJob>();
        let (done, results) = mpsc::channel();
        let (build, open) = (Arc::new(build), Arc::new(Mutex::new(open)));
        let waker = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let results_of_threads = Results { done, waker: Arc::clone(&waker) };
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        for _ in 0..THREADS {
            let (build, open, results) = (Arc::clone(&build), Arc::clone(&open), results_of_threads.clone());
            thread("build").spawn(move || {
                // The lock is held while one thread waits; the others wait for the lock.
                while let Some(index) = next(&open) {
                    let content = catch_unwind(AssertUnwindSafe(|| build(index))).unwrap_or(None);
                    if !results.add(TaskResult::Chunk { index, content }) {
                        return;
                    }
                }
            })?;
        }
        thread("repair").spawn(move || {
            for job in jobs {
                if !results_of_threads.add(TaskResult::Repairs(job.run())) {
                    return;
                }
            }
        })?;
        Ok(Builders { builds, repairs, results, waker })
    }

    /// Has a chunk built.
    pub(super) fn build(&self, index: u32) {
        let _ = self.builds.send(index);
    }

    /// Has repair symbols made.
    pub(super) fn repair(&self, job: RepairJob) {
        let _ = self.repairs.send(job);
    }

    /// Returns the result of a task, if there is one.
    pub(super) fn next(&self) -> Option<TaskResult> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.waker, &mut count);
        self.results.try_recv().ok()
    }

    /// Returns what becomes readable when a task is done.
    pub(super) fn waker(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

fn next(open: &Mutex<mpsc::Receiver<u32>>) -> Option<u32> {
    open.lock().recv().ok()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::{Duration, Instant};

    use onefold_image::format::multicast::{BegunChunk, IndexSet, RepairCode, Request, SessionId};
    use onefold_image::multicast::{Sender, SenderSettings};

    use super::*;

    /// Returns a job for a chunk that a sender has in memory.
    fn repair_job() -> RepairJob {
        let settings = SenderSettings {
            session: SessionId(7),
            epoch: 3,
            chunks: 1,
            symbol_bytes: 128,
            rate_bytes_per_second: NonZeroU64::MIN,
            rate_floor_bytes_per_second: NonZeroU64::MIN,
            cache_bytes: 10_000,
            clients_max: 1,
            repairs: RepairCode::RaptorQ,
        };
        let mut sender = Sender::new(settings, Duration::ZERO);
        let client = sender.join(Duration::ZERO).unwrap();
        let begun = vec![BegunChunk { chunk: 0, form: 1, needed: 1, next_repair: 0, missing: IndexSet::default() }];
        sender.request(client, &Request { left: 1, begun, ..Request::default() }, Duration::ZERO);
        let chunk = sender.next_build().unwrap();
        sender.chunk_built(chunk, 1, vec![5; 1000], Duration::ZERO);
        sender.next_repair_job().unwrap()
    }

    fn result(builders: &Builders) -> TaskResult {
        let began = Instant::now();
        loop {
            if let Some(result) = builders.next() {
                return result;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "no result");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn repair_symbols_do_not_wait_for_a_store_that_does_not_answer() {
        let (store, answer) = mpsc::channel::<()>();
        let answer = Mutex::new(answer);
        let builders = Builders::start(move |_| answer.lock().recv().ok().map(|()| (1, Vec::new()))).unwrap();
        (0..2 * u32::try_from(THREADS).unwrap()).for_each(|index| builders.build(index));
        builders.repair(repair_job());
        assert!(matches!(result(&builders), TaskResult::Repairs(_)));
        drop(store);
        assert!(matches!(result(&builders), TaskResult::Chunk { content: None, .. }));
    }

    #[test]
    fn a_build_that_panics_is_one_that_failed() {
        let builders = Builders::start(|index| match index {
            0 => Some((1, vec![7])),
            _ => panic!("the archive"),
        })
        .unwrap();
        for _ in 0..2 * THREADS {
            builders.build(1);
            assert!(matches!(result(&builders), TaskResult::Chunk { index: 1, content: None }));
        }
        builders.build(0);
        assert!(matches!(result(&builders), TaskResult::Chunk { index: 0, content: Some(_) }));
    }
}
