//! The engine: runs operations on the metadata, reads the blocks that they miss, commits and checkpoints.
//!
//! **Locks**, in the order in which threads may take them:
//! 1. range locks of inodes ([`crate::readers::range_lock`]), held across device I/O;
//! 2. the group initialisation lock, held across the write of one group's blank structures;
//! 3. the committer, held across the commit's and checkpoint's device I/O;
//! 4. the state of filling the filter, held across the reading of stores and of a saved filter;
//! 5. the metadata lock, never held across device I/O;
//! 6. the filter's lock: changes are made under the metadata lock, look-ups without it;
//! 7. the list of recent entries of the filter ([`crate::meta::shared_filter`]), under which no other lock is taken;
//! 8. the lock for writing late writes, held across their I/O ([`late_writes`]), during which the device checks the
//!    mark;
//! 9. the mark of the heartbeat, held across its own I/O.
//!
//! The queue of accepted writes has a lock of its own ([`crate::data::behind`]), which is never held while another one
//! is taken. The same holds for the losses among accepted writes, the list of late writes, and the knowledge of the
//! room under the pool ([`room`]). A thread waits for its turn in the write queue with range locks held, and none of
//! the others. The lock of the pins for readers ([`full_counts`]) is held only while the table of range locks is
//! examined.
//!
//! A thread that holds the metadata lock takes no other lock except those of the filter. Waiting for a block that
//! another thread reads releases the metadata lock.

pub(crate) mod background;
pub(crate) mod commit;
pub(crate) mod fence;
pub(crate) mod filter_image;
pub(crate) mod format;
mod full_counts;
pub(crate) mod group_init;
pub(crate) mod heartbeat;
pub(crate) mod index;
mod large_operation;
pub(crate) mod late_writes;
pub(crate) mod load;
pub(crate) mod memory_plan;
pub(crate) mod metadata_run;
pub(crate) mod open;
pub(crate) mod room;
mod saved;
mod saved_runs;
pub(crate) mod space;
mod summary_image;
pub(crate) mod summary_places;
pub(crate) mod survey;
#[cfg(test)]
mod tests;
mod upgrade;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onefold_block::{BlockDevice, BufferPool, FingerprintKey, Polling};

use crate::activity::Activity;
use crate::attr::Ino;
use crate::error::{PoolError, Result};
use crate::format::superblock::Superblock;
use crate::meta::shared_filter::SharedFilter;
use crate::meta::{Meta, Op, OpError, OpResult, Privilege};
use crate::names::NameHash;
use crate::options::{Environment, OpenOptions};
use crate::readers::Readers;
use crate::sync::{Condvar, Mutex, MutexGuard};
use full_counts::ReaderPin;
use large_operation::CacheMisses;

/// Maximum number of tries of one operation. Each try loads at least one missing block, so reaching this means that the
/// cache thrashes.
const TRIES_MAX: u32 = 100_000;

/// Maximum number of ranges without room in a full backing file that one operation, or one write, tries.
pub(crate) const PLACES_MAX: u32 = 64;

/// Number of blocks in a buffer: a request of 1 MiB that is not aligned to blocks.
pub(crate) const BUFFER_BLOCKS: usize = 257;

/// Keeps the metadata of an open pool, and the device that holds the data of its files.
pub(crate) struct Engine {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The same device, in the form that keeps small writes until a commit.
    pub(crate) late_writes: Arc<late_writes::LateWrites>,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) options: OpenOptions,
    pub(crate) environment: Environment,
    pub(crate) name_hash: NameHash,
    pub(crate) activity: Activity,
    /// Readers of file data, which may still read a block after its content has got another place.
    pub(crate) readers: Arc<Readers>,
    pinned_for_readers: Mutex<Vec<ReaderPin>>,
    pub(crate) room: Arc<room::BackingRoom>,
    /// Buffers for new blocks on their way to the device, as fresh memory costs more than the copy into it.
    pub(crate) buffers: BufferPool,
    keys: Mutex<HashMap<u16, FingerprintKey>>,
    pool_key: [u8; 32],
    /// The filter of the metadata, for look-ups without the metadata lock.
    pub(crate) filter: Arc<SharedFilter>,
    meta: Mutex<Meta>,
    /// Signalled when a block has been read.
    loaded: Condvar,
    committer: Mutex<commit::Committer>,
    /// Polls during waits for the committer.
    committing: Polling,
    group_init: Mutex<()>,
    indexer: Mutex<index::IndexStage>,
    /// Number of operations so far that a caller waits for; background work makes way for them.
    demand: AtomicU64,
    /// Whether an operation has the room that the metadata cache lends.
    has_large_operation: AtomicBool,
    /// Tells other hosts that the pool is open.
    pub(crate) pulse: Option<Arc<heartbeat::Pulse>>,
    pub(crate) wake: background::Wake,
    /// Ends the heartbeat, after everything else.
    pub(crate) heart: background::Wake,
}

impl Engine {
    /// Locks the metadata.
    pub(crate) fn meta(&self) -> MutexGuard<'_, Meta> {
        self.meta.lock()
    }

    /// Returns the fingerprint key of a sharing domain.
    pub(crate) fn key(&self, domain: u16) -> FingerprintKey {
        let bits = self.options.test_limits.fingerprint_bits;
        let derive = || FingerprintKey::derive(&self.pool_key, domain).shortened(bits);
        self.keys.lock().entry(domain).or_insert_with(derive).clone()
    }

    /// Returns an error if changes are not allowed, or not any more.
    pub(crate) fn ensure_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(PoolError::ReadOnly);
        }
        match &self.meta.lock().stopped {
            Some(cause) => Err(PoolError::Stopped { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Stops the pool after a failure and keeps the first cause. The pool accepts nothing until it is reopened.
    pub(crate) fn stop(&self, error: &PoolError) {
        self.meta.lock().stopped.get_or_insert_with(|| error.to_string());
    }

    /// Returns whether a small write usually takes effect without a wait for the device.
    pub(crate) fn keeps_late_writes(&self) -> bool {
        self.late_writes.are_kept() && self.is_vouched_for()
    }

    /// Returns whether the device vouches that no write of blocks which the caller owns finds it full.
    pub(crate) fn is_vouched_for(&self) -> bool {
        self.room.is_vouched_for(|| self.device.has_room_for_all_blocks())
    }

    /// Returns the allowance for a write that takes at most `count` blocks. Must be called without the metadata lock.
    pub(crate) fn allowance(&self, count: u64) -> room::Allowance {
        self.room.allowance(count, || self.device.has_room_for_all_blocks(), || self.device.room_blocks())
    }

    /// Returns a number that changes with every operation that a caller waits for.
    pub(crate) fn demand(&self) -> u64 {
        self.demand.load(Ordering::Relaxed)
    }

    /// Releases holds on an inode.
    pub(crate) fn release(&self, ino: Ino, holds: u64) {
        if self.meta().orphans.release(ino, holds) {
            self.wake.hurry();
        }
    }

    /// Runs a read-only operation.
    ///
    /// # Errors
    /// The operation's own errors; device errors of the blocks that it needs.
    pub(crate) fn view<T>(&self, look: impl FnMut(&mut Op<'_>) -> OpResult<T>) -> Result<T> {
        self.demand.fetch_add(1, Ordering::Relaxed);
        self.view_in_background(look)
    }

    /// Like [`Engine::view`], for operations that no caller waits for.
    ///
    /// # Errors
    /// See [`Engine::view`].
    pub(crate) fn view_in_background<T>(&self, mut look: impl FnMut(&mut Op<'_>) -> OpResult<T>) -> Result<T> {
        let mut missed = CacheMisses::new(self);
        for _ in 0..TRIES_MAX {
            let mut meta = self.meta.lock();
            let mut op = Op::new(&mut meta, Privilege::Normal);
            let result = look(&mut op);
            let faults = op.roll_back();
            match result {
                Ok(value) => return Ok(value),
                Err(OpError::Fail(error)) => return Err(error),
                Err(OpError::Fault) => {}
                Err(
                    OpError::NeedGroup(_) | OpError::NeedWritten(_) | OpError::TransactionFull | OpError::CountFull(_),
                ) => {
                    unreachable!("a look allocates nothing")
                }
            }
            drop(meta);
            missed.load(&faults)?;
        }
        Err(thrashing())
    }

    /// Runs an operation that changes metadata. On success it is part of the running transaction; otherwise nothing has
    /// changed. Runs it again after reading blocks that it missed, after a commit if the transaction is full, and after
    /// waiting for space that is being freed.
    ///
    /// # Errors
    /// The operation's own errors; device errors.
    pub(crate) fn run<T>(&self, privilege: Privilege, mut change: impl FnMut(&mut Op<'_>) -> OpResult<T>) -> Result<T> {
        if self.options.read_only {
            return Err(PoolError::ReadOnly);
        }
        if privilege != Privilege::Freeing {
            self.demand.fetch_add(1, Ordering::Relaxed);
        }
        let mut copies = Vec::new();
        let mut missed = CacheMisses::new(self);
        let (mut places_tried, mut has_relieved) = (0, false);
        for _ in 0..TRIES_MAX {
            let mut meta = self.meta.lock();
            if let Some(cause) = &meta.stopped {
                return Err(PoolError::Stopped { cause: cause.clone() });
            }
            if meta.running.wants_commit() {
                drop(meta);
                self.commit()?;
                continue;
            }
            if meta.groups.busy.is_too_much() && !std::mem::replace(&mut has_relieved, true) {
                drop(meta);
                self.relieve_of_busy_blocks()?;
                continue;
            }
            let mut op = Op::new(&mut meta, privilege);
            let (error, faults) = match change(&mut op) {
                Ok(value) => match op.finish() {
                    Ok(()) => {
                        let wants_commit = meta.running.wants_commit_soon();
                        drop(meta);
                        if wants_commit {
                            self.wake.want_commit();
                        }
                        return Ok(value);
                    }
                    Err(error) => (error, Vec::new()),
                },
                Err(error) => {
                    let faults = op.roll_back();
                    (error, faults)
                }
            };
            let refusals_before = meta.groups.full_backing.refusals();
            drop(meta);
            let helped = match error {
                OpError::Fault => missed.load(&faults),
                OpError::NeedGroup(group) => self.init_group(group),
                OpError::NeedWritten(runs) => self.write_runs(&runs),
                OpError::CountFull(block) => self.copy_full(block, privilege).map(|copy| copies.extend(copy)),
                OpError::TransactionFull => self.commit(),
                OpError::Fail(error) => Err(error),
            };
            match helped {
                Ok(()) => {}
                // Other blocks are tried next: in a full backing file, blocks that were used before have room.
                Err(PoolError::NoSpace)
                    if places_tried < PLACES_MAX && self.meta().groups.full_backing.refusals() > refusals_before =>
                {
                    places_tried += 1;
                }
                Err(PoolError::NoSpace) => {
                    // Reclaim itself runs as a freeing operation, so it must not start reclaim again.
                    let gained = match privilege {
                        Privilege::Normal | Privilege::Shrinking => self.make_space()?,
                        Privilege::Freeing => self.settle_frees()?,
                    };
                    // All places may be tried again: with the space gained now, or at the latest in the next operation.
                    self.meta().groups.forget_full_backing();
                    if !gained {
                        return Err(PoolError::NoSpace);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(thrashing())
    }
}

fn thrashing() -> PoolError {
    PoolError::Invalid("the metadata cache is too small for this operation: give the pool more memory")
}
