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
use onefold_pool::{FsStat, Pool, PoolError, Progress};
use parking_lot::Mutex;

use crate::below::FileBelow;
use crate::log::FailureLog;

/// Maximum wait between trims that fail.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(600);

/// When freed blocks are discarded.
#[derive(Clone, Debug)]
pub struct DiscardPolicy {
    /// The file that holds the pool; `None` for a partition.
    pub below: Option<Arc<FileBelow>>,
    /// How often the freed blocks are counted.
    pub poll: Duration,
    /// Minimum number of freed blocks that are worth a trim.
    pub blocks_min: u64,
}

impl DiscardPolicy {
    /// Returns the usual settings: at least 64 MiB, counted every ten seconds.
    #[must_use]
    pub fn new(below: Option<Arc<FileBelow>>) -> DiscardPolicy {
        DiscardPolicy { below, poll: Duration::from_secs(10), blocks_min: (64 << 20) / BLOCK_BYTES_U64 }
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
    pub(crate) fn start(pool: Arc<Pool>, discarding: DiscardPolicy, log: Arc<dyn FailureLog>) -> Discarder {
        let (stop, stopped) = mpsc::channel();
        let spawned = thread::Builder::new().name("discard".to_owned()).spawn(move || {
            if let Err(error) = run(&pool, &discarding, stopped, &*log) {
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

/// Discards until `stopped` ends. A trim that fails is tried again later: the disk below may be full just now, which is
/// when it needs the space most.
///
/// # Errors
/// The error of a pool that accepts no changes any more.
fn run(
    pool: &Pool,
    discarding: &DiscardPolicy,
    stopped: mpsc::Receiver<()>,
    log: &dyn FailureLog,
) -> onefold_pool::Result<()> {
    let mut failures = TrimFailures { poll: discarding.poll, wait: discarding.poll };
    let mut count = FreedCount::new(discarding.blocks_min);
    let rest = Rest { stopped: Mutex::new(RestState { stopped, worked_from: Instant::now() }) };
    while !rest.ends_within(failures.wait) {
        let space = pool.fs_stat();
        if count.is_due(&space, discarding.allocated()) {
            rest.stopped.lock().worked_from = Instant::now();
            match pool.trim(&rest) {
                Ok(_) => {
                    count.note_trim(&pool.fs_stat(), discarding.allocated());
                    failures.end();
                }
                Err(error @ (PoolError::Stopped { .. } | PoolError::ReadOnly)) => return Err(error),
                Err(error) if failures.add() => {
                    log.error(&format!("not all free blocks could be discarded, and later trims try again: {error}"));
                }
                Err(_) => {}
            }
        }
    }
    Ok(())
}

/// Consecutive trims that failed.
struct TrimFailures {
    poll: Duration,
    /// How long to wait before the next look. Longer than `poll` after a failure.
    wait: Duration,
}

impl TrimFailures {
    /// Notes a failure. Returns whether it is the first one in a row.
    fn add(&mut self) -> bool {
        let is_first = self.wait == self.poll;
        self.wait = (self.wait * 2).min(RETRY_WAIT_MAX.max(self.poll * 2));
        is_first
    }

    /// Notes a trim without failure.
    fn end(&mut self) {
        self.wait = self.poll;
    }
}

impl DiscardPolicy {
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
    use onefold_block::{BLOCK_BYTES, BlockDevice};
    use onefold_pool::{CreateOptions, Durability, Environment, FileKind, Ino, MEMORY_BYTES_MIN, NewFile, OpenOptions};
    use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice};

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
    fn failed_trims_wait_longer_and_only_the_first_is_reported() {
        let poll = Duration::from_secs(10);
        let mut failures = TrimFailures { poll, wait: poll };
        assert!(failures.add() && !failures.add() && !failures.add());
        assert_eq!(failures.wait, poll * 8);
        for _ in 0..100 {
            failures.add();
        }
        assert_eq!(failures.wait, RETRY_WAIT_MAX);
        failures.end();
        assert!(failures.wait == poll && failures.add());
    }

    #[derive(Default)]
    struct KeptLog(Mutex<Vec<String>>);

    impl FailureLog for KeptLog {
        fn error(&self, message: &str) {
            self.0.lock().push(message.to_owned());
        }
    }

    #[test]
    fn discarding_goes_on_after_a_trim_that_failed() {
        let device = Arc::new(FaultyDevice::new(MemoryDevice::new(16_384), 1));
        let seam: Arc<dyn BlockDevice> = device.clone();
        Pool::create(&seam, &CreateOptions::default(), &Environment::system()).unwrap();
        let options = OpenOptions { memory_bytes: MEMORY_BYTES_MIN, ..OpenOptions::default() };
        let pool = Arc::new(Pool::open(seam, options, Environment::system()).unwrap());
        device.fail(Call::Discard, FailingCalls::Nth(1), Fault::StorageFull);
        let log = Arc::new(KeptLog::default());
        let discarding = DiscardPolicy { below: None, poll: Duration::from_millis(5), blocks_min: 1 };
        let discarder = Discarder::start(pool.clone(), discarding, log.clone());
        let end = Instant::now() + Duration::from_secs(60);
        let new = NewFile { kind: FileKind::Regular, mode: 0o600, umask: 0, uid: 0, gid: 0, rdev: 0 };
        // Each file that goes away frees blocks, and so is a reason for a trim.
        for content in (1..=u8::MAX).cycle() {
            assert!(Instant::now() < end, "no trim after the failed one: {:?}", log.0.lock());
            let file = pool.create_file(Ino::ROOT, b"file", &new).unwrap().ino;
            let mut bytes = vec![content; 64 * BLOCK_BYTES];
            (0..).zip(bytes.chunks_mut(BLOCK_BYTES)).for_each(|(number, block)| block[0] = number);
            pool.write(file, 0, &bytes, Durability::Later).unwrap();
            pool.sync().unwrap();
            pool.unlink(Ino::ROOT, b"file").unwrap();
            pool.release(file, 1);
            thread::sleep(Duration::from_millis(20));
            if device.count(Call::Discard) > 1 {
                break;
            }
        }
        drop(discarder);
        let logged = log.0.lock().clone();
        assert!(matches!(logged.as_slice(), [line] if line.contains("later trims try again")), "{logged:?}");
        pool.close().unwrap();
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
