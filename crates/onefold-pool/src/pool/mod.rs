//! The pool, as doors use it.
//!
//! All verbs are synchronous and may be called from many threads at once. Each takes effect completely or not at all,
//! except long writes, clones and reservations, which report how far they came. Nothing is durable before `fsync`,
//! `sync`, `commit` or [`Durability::Now`](crate::Durability::Now), or the commit interval.
//!
//! **Holds.** Verbs that return the attributes of a file found by name or newly made also take one *hold* on its inode.
//! [`Pool::release`] returns holds. An inode without names lives until its last hold is returned.

mod admin;
mod attributes;
mod data;
pub(crate) mod file_locks;
mod file_stat;
mod names;
mod scrub;
mod share;
mod shared_blocks;
mod stat;
#[cfg(test)]
mod tests;

pub use attributes::{ACL_XATTRS, DOMAIN_XATTR};

use std::sync::Arc;
use std::thread::JoinHandle;

use onefold_block::BlockDevice;

use self::file_locks::FileLocks;
use self::file_stat::WalkMemory;
use crate::data::Data;
use crate::data::behind::start_writers;
use crate::engine::{Engine, background};
use crate::error::{PoolError, Result};
use crate::options::{CreateOptions, Environment, OpenOptions};
use crate::sync::Mutex;

/// An open pool.
pub struct Pool {
    engine: Arc<Engine>,
    data: Arc<Data>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    heart: Mutex<Option<JoinHandle<()>>>,
    pub(crate) file_locks: FileLocks,
    walk_memory: WalkMemory,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("superblock", &*self.engine.superblock.lock()).finish_non_exhaustive()
    }
}

impl Pool {
    /// Makes a pool on a device. Earlier content is lost.
    ///
    /// # Errors
    /// [`PoolError::DeviceTooSmall`] below 16 MiB, impossible options, device errors.
    pub fn create(device: &Arc<dyn BlockDevice>, options: &CreateOptions, environment: &Environment) -> Result<()> {
        crate::engine::format::create(device, options, environment)
    }

    /// Opens the pool on a device, and recovers it if it was not closed.
    ///
    /// # Errors
    /// [`PoolError::NotAPool`], [`PoolError::NewerFormat`], [`PoolError::DeviceTooSmall`] if the device shrank,
    /// [`PoolError::MemoryTooSmall`], damage of the journal, device errors.
    pub fn open(device: Arc<dyn BlockDevice>, options: OpenOptions, environment: Environment) -> Result<Pool> {
        let in_background = options.background && !options.read_only;
        let engine = Arc::new(Engine::open(device, options, environment)?);
        let data = Arc::new(Data::new(Arc::clone(&engine)));
        let no_thread = |source| {
            // The threads that were started must end.
            engine.wake.end();
            data.behind.end();
            PoolError::Io { action: "start threads for", block: onefold_block::BlockNo(0), source }
        };
        let mut heart = None;
        let threads = if in_background {
            let settle = {
                let data = Arc::clone(&data);
                move || data.settle_writes()
            };
            let mut threads = background::start(&engine, settle).map_err(no_thread)?;
            threads.extend(start_writers(&data).map_err(no_thread)?);
            heart = background::start_heart(&engine).map_err(no_thread)?;
            threads
        } else {
            // Without background threads, nothing else would complete the filter.
            let waits = !engine.options.read_only && !engine.options.test_limits.index_in_steps;
            while waits && engine.index_some()? {}
            Vec::new()
        };
        let (threads, heart) = (Mutex::new(threads), Mutex::new(heart));
        let walk_memory = WalkMemory::new(engine.options.memory_bytes);
        Ok(Pool { engine, data, threads, heart, file_locks: FileLocks::default(), walk_memory })
    }

    /// Ends background work, makes everything durable and marks the pool as closed. Later changes are refused.
    ///
    /// # Errors
    /// Device errors; the earlier failure that stopped the pool. The pool then recovers when it is opened again. If the
    /// device failed only after the last commit, the pool is cleanly closed all the same.
    /// [`PoolError::WritesLost`] if accepted writes were lost since it was opened; it is closed all the same.
    pub fn close(&self) -> Result<()> {
        // The heartbeat continues: this work may take longer than another host waits before it takes over the pool.
        self.data.close_behind();
        let closed = if self.engine.options.read_only { Ok(None) } else { self.finish() };
        self.end_threads();
        self.end_heart();
        if self.engine.options.read_only {
            return Ok(());
        }
        let failed_later = closed?;
        if let Some(pulse) = &self.engine.pulse {
            pulse.release()?;
        }
        self.engine.meta().stopped.get_or_insert_with(|| "it has been closed".to_owned());
        self.data.losses.report_all()?;
        failed_later.map_or(Ok(()), Err)
    }

    /// Ends background work except the heartbeat, makes everything durable, and marks the journal as closed. Returns
    /// the error of a device that failed only after that.
    fn finish(&self) -> Result<Option<PoolError>> {
        let committed = self.engine.commit();
        self.end_threads();
        committed?;
        // Acknowledged changes come first.
        self.engine.commit()?;
        self.engine.save_and_close()
    }

    /// Carries out accepted writes until [`Pool::end_workers`], for tests that use their own threads.
    #[doc(hidden)]
    pub fn work(&self) {
        while self.data.work_behind() {}
    }

    /// Accepts no more writes, and ends [`Pool::work`] once all accepted writes have taken effect.
    #[doc(hidden)]
    pub fn end_workers(&self) {
        self.data.close_behind();
        self.data.behind.end();
    }

    /// Refuses every later change, as after a failed write. For a caller that failed internally and does not know what
    /// it left undone. The next opening of the pool finds its durable state. The first cause is kept.
    pub fn stop(&self, cause: &str) {
        self.engine.meta().stopped.get_or_insert_with(|| cause.to_owned());
    }

    /// Returns whether the pool is open read-only: every change is refused, and nothing needs to be made durable.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.engine.options.read_only
    }

    /// Returns the `memory` setting that the pool was opened with, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.engine.options.memory_bytes
    }

    /// Returns the engine once all writes accepted before have taken effect: callers cannot notice that they came
    /// later.
    fn settled(&self) -> &Engine {
        self.data.settle_writes();
        &self.engine
    }

    /// Like [`Pool::settled`], for the files' data.
    fn settled_data(&self) -> &Data {
        self.data.settle_writes();
        &self.data
    }

    fn end_threads(&self) {
        self.engine.wake.end();
        self.data.behind.end();
        for thread in self.threads.lock().drain(..) {
            // A panic there has already been printed and has stopped the pool.
            let _ = thread.join();
        }
    }

    fn end_heart(&self) {
        self.engine.heart.end();
        if let Some(heart) = self.heart.lock().take() {
            let _ = heart.join();
        }
    }
}

impl Drop for Pool {
    /// Dropping a pool without [`Pool::close`] leaves it as after a power cut.
    fn drop(&mut self) {
        self.end_threads();
        self.end_heart();
    }
}
