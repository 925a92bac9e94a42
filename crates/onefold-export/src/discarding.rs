//! Gives the space of freed blocks back to the disk below a pool while the pool is served.
//!
//! Blocks are discarded in batches: whenever enough of them have been freed since the last time, one trim discards all
//! free blocks. A thread of its own does that and rests as long as it has worked.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_pool::{FsStat, Pool, Progress};
use parking_lot::Mutex;

use crate::below::FileBelow;
use crate::log::FailureLog;

/// When freed blocks are discarded.
#[derive(Clone, Debug)]
pub struct Discarding {
    /// The file that holds the pool; `None` for a partition.
    pub below: Option<Arc<FileBelow>>,
    /// How often the freed blocks are counted.
    pub poll: Duration,
    /// Minimum number of freed blocks that are worth a trim.
    pub blocks_min: u64,
}

impl Discarding {
    /// Returns the usual settings: at least 64 MiB, counted every ten seconds.
    #[must_use]
    pub fn new(below: Option<Arc<FileBelow>>) -> Discarding {
        Discarding { below, poll: Duration::from_secs(10), blocks_min: (64 << 20) / BLOCK_BYTES_U64 }
    }
}

/// A thread that discards. Dropping it ends the thread.
pub(crate) struct Discarder {
    /// Its end tells the thread to end.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Discarder {
    /// Starts the thread. Without a thread nothing is discarded, which harms nobody.
    pub(crate) fn start(pool: Arc<Pool>, discarding: Discarding, log: Arc<dyn FailureLog>) -> Discarder {
        let (stop, stopped) = mpsc::channel();
        let spawned = thread::Builder::new().name("discard".to_owned()).spawn(move || {
            if let Err(error) = run(&pool, &discarding, stopped) {
                log.error(&format!("free blocks are no longer discarded: {error}"));
            }
        });
        Discarder { stop: Some(stop), thread: spawned.ok() }
    }
}

impl Drop for Discarder {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It has logged its failure, and a panic ends the process.
            let _ = thread.join();
        }
    }
}

fn run(pool: &Pool, discarding: &Discarding, stopped: mpsc::Receiver<()>) -> onefold_pool::Result<()> {
    let mut count = FreedCount::new(discarding.blocks_min);
    let rest = Rest { stopped: Mutex::new(RestState { stopped, worked_from: Instant::now() }) };
    while !rest.ends_within(discarding.poll) {
        let space = pool.fs_stat();
        if count.is_due(&space, discarding.allocated()) {
            rest.stopped.lock().worked_from = Instant::now();
            pool.trim(&rest)?;
            count.note_trim(&pool.fs_stat(), discarding.allocated());
        }
    }
    Ok(())
}

impl Discarding {
    fn allocated(&self) -> Option<u64> {
        self.below.as_ref().and_then(|below| below.allocated_blocks().ok())
    }
}

/// Counts the blocks that a trim would discard.
struct FreedCount {
    blocks_min: u64,
    /// Blocks beyond those in use that the file held after the last trim: fixed structures, and what its file system
    /// did not take back.
    held: u64,
    /// Free blocks at the last look.
    free: Option<u64>,
    /// Blocks that became free since the last trim, as far as the looks show.
    freed: u64,
}

impl FreedCount {
    fn new(blocks_min: u64) -> FreedCount {
        FreedCount { blocks_min, held: 0, free: None, freed: 0 }
    }

    /// Returns whether a trim is worth it. A file tells how many blocks it holds (`allocated`), a partition does not.
    fn is_due(&mut self, space: &FsStat, allocated: Option<u64>) -> bool {
        self.freed += space.blocks_free.saturating_sub(self.free.unwrap_or(space.blocks_free));
        self.free = Some(space.blocks_free);
        let used = space.blocks.saturating_sub(space.blocks_free);
        // In a large pool, little is not worth the look at all groups.
        let least = self.blocks_min.max(used / 64);
        match allocated {
            Some(allocated) => allocated.saturating_sub(used).saturating_sub(self.held) >= least,
            None => self.freed >= least,
        }
    }

    fn note_trim(&mut self, space: &FsStat, allocated: Option<u64>) {
        let used = space.blocks.saturating_sub(space.blocks_free);
        self.held = allocated.unwrap_or(0).saturating_sub(used);
        self.free = Some(space.blocks_free);
        self.freed = 0;
    }
}

/// Rests between the steps of a trim.
struct Rest {
    stopped: Mutex<RestState>,
}

struct RestState {
    stopped: mpsc::Receiver<()>,
    worked_from: Instant,
}

impl Rest {
    /// Waits for `time`. Returns whether the thread shall end.
    fn ends_within(&self, time: Duration) -> bool {
        self.stopped.lock().stopped.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
    }
}

impl Progress for Rest {
    fn update(&self, _done: u64, _total: u64) -> ControlFlow<()> {
        let worked = self.stopped.lock().worked_from.elapsed();
        if self.ends_within(worked) {
            return ControlFlow::Break(());
        }
        self.stopped.lock().worked_from = Instant::now();
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(free: u64) -> FsStat {
        FsStat { blocks: 10_000, blocks_free: free, ..FsStat::default() }
    }

    #[test]
    fn a_file_is_trimmed_when_it_holds_much_more_than_the_pool_uses() {
        let mut count = FreedCount::new(100);
        assert!(!count.is_due(&space(9_000), Some(1_050)));
        assert!(count.is_due(&space(9_500), Some(1_050)));
        // Fixed structures stay, and do not cause the next trim.
        count.note_trim(&space(9_500), Some(800));
        assert!(!count.is_due(&space(9_500), Some(800)));
        assert!(!count.is_due(&space(9_550), Some(800)));
        assert!(count.is_due(&space(9_600), Some(800)));
    }

    #[test]
    fn a_partition_is_trimmed_when_much_was_freed_since() {
        let mut count = FreedCount::new(100);
        assert!(!count.is_due(&space(2_000), None), "nothing was freed yet");
        assert!(!count.is_due(&space(2_060), None));
        assert!(!count.is_due(&space(1_000), None), "writes take blocks");
        assert!(!count.is_due(&space(1_060), None), "a 64th of what is in use is more");
        assert!(count.is_due(&space(1_100), None));
        count.note_trim(&space(1_100), None);
        assert!(!count.is_due(&space(1_100), None));
    }

    #[test]
    fn the_thread_ends_at_once() {
        let (stop, stopped) = mpsc::channel();
        let rest = Rest { stopped: Mutex::new(RestState { stopped, worked_from: Instant::now() }) };
        assert!(!rest.ends_within(Duration::ZERO));
        drop(stop);
        assert!(rest.ends_within(Duration::from_secs(3600)));
        assert!(rest.update(1, 2).is_break());
    }
}
