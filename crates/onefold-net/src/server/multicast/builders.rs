//! Threads that build the chunks of a session and make its repair symbols, so that the sending thread waits neither for
//! the archive nor for these.

use std::io;
use std::sync::{Arc, mpsc};

use onefold_image::UnitName;
use onefold_image::multicast::{RepairJob, RepairSymbols};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::server::state::ServerState;

/// Number of threads of a session. Most of their time they wait for a store.
const THREADS: usize = 4;

/// A task for one of the threads.
enum Task {
    /// To build the chunk with this index.
    Build(u32),
    Repair(RepairJob),
}

/// The result of a task.
pub(super) enum TaskResult {
    /// A chunk that was built: its form and its bytes, unless that failed.
    Chunk {
        index: u32,
        content: Option<(u32, Vec<u8>)>,
    },
    Repairs(RepairSymbols),
}

/// The threads that build the chunks of one session. They end when this is dropped.
pub(super) struct Builders {
    tasks: mpsc::Sender<Task>,
    results: mpsc::Receiver<TaskResult>,
    waker: Arc<OwnedFd>,
}

impl Builders {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system has no room for them.
    pub(super) fn start(state: &Arc<ServerState>, chunks: Vec<UnitName>) -> io::Result<Builders> {
        let (tasks, open) = mpsc::channel();
        let (done, results) = mpsc::channel();
        let (chunks, open) = (Arc::new(chunks), Arc::new(Mutex::new(open)));
        let waker = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        for _ in 0..THREADS {
            let (state, chunks, done) = (Arc::clone(state), Arc::clone(&chunks), done.clone());
            let (open, waker) = (Arc::clone(&open), Arc::clone(&waker));
            std::thread::Builder::new().name("build".to_owned()).spawn(move || {
                // The lock is held while one thread waits; the others wait for the lock.
                while let Some(task) = next(&open) {
                    let result = match task {
                        Task::Build(index) => {
                            let content = chunks.get(index as usize).and_then(|name| build(&state, name));
                            TaskResult::Chunk { index, content }
                        }
                        Task::Repair(job) => TaskResult::Repairs(job.run()),
                    };
                    if done.send(result).is_err() {
                        return;
                    }
                    let _ = rustix::io::write(&*waker, &1_u64.to_ne_bytes());
                }
            })?;
        }
        Ok(Builders { tasks, results, waker })
    }

    /// Has a chunk built.
    pub(super) fn build(&self, index: u32) {
        let _ = self.tasks.send(Task::Build(index));
    }

    /// Has repair symbols made.
    pub(super) fn repair(&self, job: RepairJob) {
        let _ = self.tasks.send(Task::Repair(job));
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

fn next(open: &Mutex<mpsc::Receiver<Task>>) -> Option<Task> {
    open.lock().recv().ok()
}

fn build(state: &ServerState, name: &UnitName) -> Option<(u32, Vec<u8>)> {
    match state.served().chunk(name) {
        Ok(chunk) => Some((chunk.form.short(), chunk.pieces.concat())),
        Err(error) => {
            state.report(&error);
            None
        }
    }
}
