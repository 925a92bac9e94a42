//! Threads that build the chunks of a session, so that the sending thread never waits for the archive.

use std::io;
use std::sync::{Arc, mpsc};

use onefold_image::UnitName;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::server::state::ServerState;

/// Number of threads of a session. Most of their time they wait for a store.
const THREADS: usize = 4;

/// A chunk that was built: its form and its bytes, unless that failed.
pub(super) struct BuiltChunk {
    pub(super) index: u32,
    pub(super) content: Option<(u32, Vec<u8>)>,
}

/// The threads that build the chunks of one session. They end when this is dropped.
pub(super) struct Builders {
    wanted: mpsc::Sender<u32>,
    built: mpsc::Receiver<BuiltChunk>,
    waker: Arc<OwnedFd>,
}

impl Builders {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system has no room for them.
    pub(super) fn start(state: &Arc<ServerState>, chunks: Vec<UnitName>) -> io::Result<Builders> {
        let (wanted, requests) = mpsc::channel();
        let (done, built) = mpsc::channel();
        let (chunks, requests) = (Arc::new(chunks), Arc::new(Mutex::new(requests)));
        let waker = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        for _ in 0..THREADS {
            let (state, chunks, done) = (Arc::clone(state), Arc::clone(&chunks), done.clone());
            let (requests, waker) = (Arc::clone(&requests), Arc::clone(&waker));
            std::thread::Builder::new().name("build".to_owned()).spawn(move || {
                // The lock is held while one thread waits; the others wait for the lock.
                while let Some(index) = next(&requests) {
                    let content = chunks.get(index as usize).and_then(|name| build(&state, name));
                    if done.send(BuiltChunk { index, content }).is_err() {
                        return;
                    }
                    let _ = rustix::io::write(&*waker, &1_u64.to_ne_bytes());
                }
            })?;
        }
        Ok(Builders { wanted, built, waker })
    }

    /// Has a chunk built.
    pub(super) fn request(&self, index: u32) {
        let _ = self.wanted.send(index);
    }

    /// Returns a chunk that was built, if there is one.
    pub(super) fn next(&self) -> Option<BuiltChunk> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.waker, &mut count);
        self.built.try_recv().ok()
    }

    /// Returns what becomes readable when a chunk has been built.
    pub(super) fn waker(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

fn next(requests: &Mutex<mpsc::Receiver<u32>>) -> Option<u32> {
    requests.lock().recv().ok()
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
