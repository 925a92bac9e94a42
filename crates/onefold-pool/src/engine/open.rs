//! Opens a pool: superblock, recovery, and the division of memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use onefold_block::{AlignedBuffer, BlockDevice, BufferPool, Polling};

use super::background::Wake;
use super::commit::Committer;
use super::fence::FencedDevice;
use super::heartbeat::Pulse;
use super::index;
use super::late_writes::LateWrites;
use super::memory_plan::{MemoryPlan, filter_options};
use super::room::{BackingRoom, RoomWatch};
use super::{BUFFER_BLOCKS, Engine};
use crate::activity::{Activity, ActivityCounter};
use crate::error::{PoolError, Result};
use crate::filter::Filter;
use crate::format::geometry::{STATE, SUPERBLOCK, SUPERBLOCK_COPY};
use crate::format::get_u64;
use crate::format::header::{self, BlockKind, HEADER_BYTES};
use crate::format::state::{FIELD_COUNT, Field};
use crate::format::superblock::{Superblock, SuperblockError};
use crate::journal::log::{self, JournalLog};
use crate::journal::replay::{self, ReplayResult};
use crate::meta::Meta;
use crate::meta::cache::Cache;
use crate::meta::groups::Groups;
use crate::meta::in_flight::InFlightTable;
use crate::meta::indexing::IndexingState;
use crate::meta::orphans::Orphans;
use crate::meta::running::RunningTransaction;
use crate::meta::shared_filter::SharedFilter;
use crate::names::NameHash;
use crate::options::{Environment, OpenOptions};
use crate::readers::Readers;
use crate::sync::{Condvar, Mutex};
use crate::waits::WaitsForDevice;

/// Reads the superblock, or its copy if that is better.
///
/// # Errors
/// [`PoolError::NotAPool`], [`PoolError::NewerFormat`], damage of both copies, device errors.
pub(crate) fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut newest: Option<Superblock> = None;
    let mut complaints = Vec::new();
    let found =
        device.block_count().map_err(|source| PoolError::Io { action: "measure", block: SUPERBLOCK, source })?;
    for at in [SUPERBLOCK, SUPERBLOCK_COPY] {
        if at.0 >= found {
            continue;
        }
        let mut buffer = AlignedBuffer::zeroed(1);
        // A bad sector must not hide the other copy.
        if let Err(error) = device.read(at, &mut buffer) {
            complaints.push(format!("block {at} cannot be read: {error}"));
            continue;
        }
        match Superblock::decode(buffer.block(0).expect("one block was read"), at) {
            Ok(superblock) if newest.as_ref().is_none_or(|other| superblock.generation > other.generation) => {
                newest = Some(superblock);
            }
            Ok(_) => {}
            Err(SuperblockError::NotAPool) => {}
            Err(SuperblockError::Newer(what)) => return Err(PoolError::NewerFormat(what)),
            Err(SuperblockError::Damaged(what)) => complaints.push(what),
        }
    }
    match (newest, complaints.is_empty()) {
        (Some(superblock), _) => Ok(superblock),
        (None, true) => Err(PoolError::NotAPool("no superblock where a pool has one".to_owned())),
        (None, false) => Err(PoolError::Damaged {
            structure: "superblock",
            block: SUPERBLOCK,
            what: format!("no copy is usable: {}", complaints.join("; ")),
        }),
    }
}

/// Updates a copy of the superblock that an interrupted growth or upgrade has left outdated. Until then, a single
/// damaged block could make the pool as small, or as old, as it was before.
fn renew_replaced(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    for at in [SUPERBLOCK, SUPERBLOCK_COPY] {
        let mut buffer = AlignedBuffer::zeroed(1);
        device.read(at, &mut buffer).map_err(|source| PoolError::Io { action: "read", block: at, source })?;
        let found = Superblock::decode(buffer.block(0).expect("one block was read"), at);
        if found.is_ok_and(|found| found.was_replaced_by(superblock)) {
            let renewed = AlignedBuffer::copy_of(&superblock.encode(at)[..]);
            device.write(at, &renewed).map_err(|source| PoolError::Io { action: "write", block: at, source })?;
            log::sync(device, at)?;
        }
    }
    Ok(())
}

/// Checks that the device still has all blocks that the superblock describes.
pub(crate) fn check_length(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    let found =
        device.block_count().map_err(|source| PoolError::Io { action: "measure", block: SUPERBLOCK, source })?;
    let needed = superblock.geometry.total_blocks;
    if found < needed { Err(PoolError::DeviceTooSmall { found, needed }) } else { Ok(()) }
}

/// Limit that no counter of any pool exceeds. Sums of a few counters stay far below 2^64.
pub(crate) const COUNTER_MAX: u64 = 1 << 58;
/// Maximum size of unused buffers that are kept, in bytes.
const BUFFERS_BYTES_MAX: usize = 4 << 20;

impl Engine {
    /// Opens the pool on a device.
    ///
    /// # Errors
    /// See [`read_superblock`]; a device that shrank; damage of the journal or the pool state; device errors.
    pub(crate) fn open(device: Arc<dyn BlockDevice>, options: OpenOptions, environment: Environment) -> Result<Engine> {
        if options.memory_bytes < crate::MEMORY_BYTES_MIN {
            return Err(PoolError::MemoryTooSmall { given: options.memory_bytes, needed: crate::MEMORY_BYTES_MIN });
        }
        let mut superblock = read_superblock(&*device)?;
        check_length(&*device, &superblock)?;
        // Before the journal is read: recovery must not see another host write to it.
        let pulse = match options.host {
            Some(host) if !options.read_only => {
                Some(Arc::new(Pulse::acquire(&device, &superblock, host, &environment, true)?))
            }
            _ => None,
        };
        if pulse.is_some() {
            // Another host may have grown and released the pool since.
            let uuid = superblock.uuid;
            superblock = read_superblock(&*device)?;
            if superblock.uuid != uuid {
                return Err(PoolError::InUse("another host has made a new pool there meanwhile".to_owned()));
            }
            check_length(&*device, &superblock)?;
        }
        let device = match &pulse {
            Some(pulse) => Arc::new(FencedDevice::new(device, Arc::clone(pulse))),
            None => device,
        };
        if !options.read_only {
            renew_replaced(&*device, &superblock)?;
        }
        let engine = Engine::assemble(device, superblock, options, environment, pulse)?;
        if !engine.options.read_only {
            engine.upgrade()?;
            engine.take_saved()?;
        }
        Ok(engine)
    }

    /// Makes an engine from a superblock that is known to be correct, and recovers.
    ///
    /// # Errors
    /// Damage of the journal or the pool state; device errors.
    pub(crate) fn assemble(
        device: Arc<dyn BlockDevice>,
        superblock: Superblock,
        options: OpenOptions,
        environment: Environment,
        pulse: Option<Arc<Pulse>>,
    ) -> Result<Engine> {
        let (geometry, pool_tag) = (superblock.geometry, superblock.pool_tag());
        let mut replayed = replay::replay(&*device, &superblock)?;
        if let Some(pulse) = &pulse {
            // The trace will be written before the log is, though perhaps it is not written yet.
            replayed.position.generation = replayed.position.generation.max(pulse.trace_generation());
        }
        let plan = MemoryPlan::new(options.memory_bytes, geometry.total_blocks);
        let log_bytes = usize::try_from(log::log_blocks(&geometry)).unwrap_or(usize::MAX) * onefold_block::BLOCK_BYTES;
        let filter = Arc::new(SharedFilter::new(Filter::new(&filter_options(&options, &geometry))));
        let mut meta = Meta {
            geometry,
            pool_tag,
            cache: Cache::new(plan.metadata),
            running: RunningTransaction::new(replayed.next_sequence, log_bytes, plan.commit),
            groups: Groups::new(plan.busy),
            filter: Arc::clone(&filter),
            indexing: IndexingState::default(),
            in_flight: InFlightTable::default(),
            orphans: Orphans::default(),
            set_aside: 0,
            limits: options.test_limits,
            stopped: None,
            allocations: options.allocations.clone(),
        };
        let activity = Activity::default();
        activity.add(ActivityCounter::Replayed, replayed.transaction_count);
        activity.add(ActivityCounter::ReplayedBytes, replayed.position.used * onefold_block::block::BLOCK_BYTES_U64);
        let room = Arc::new(BackingRoom::new(Arc::clone(&environment.clock), options.provisioning));
        let committer = take_in(&mut meta, &superblock, replayed, pulse.as_ref().map_or(0, |pulse| pulse.run()));
        load_state(&*device, &mut meta)?;
        let watched = Arc::new(WaitsForDevice::new(Arc::new(RoomWatch::new(device, Arc::clone(&room)))));
        // A pool without threads keeps no writes late, just as it accepts no writes: it does everything at once.
        let late_after = if options.accepts_writes() { options.test_limits.late_after } else { u32::MAX };
        let late_writes = Arc::new(LateWrites::new(watched, late_after));
        // The group that was initialised last is most likely to have room.
        meta.groups.data_cursor.group = meta.state(Field::GroupsReady) - 1;
        Ok(Engine {
            committing: Polling::new(options.processors.clone(), Arc::clone(&environment.clock)),
            device: late_writes.clone(),
            late_writes,
            name_hash: NameHash::new(&superblock.key),
            pool_key: superblock.key,
            superblock: Mutex::new(superblock),
            options,
            environment,
            activity,
            readers: Arc::new(Readers::new(plan.data)),
            pinned_for_readers: Mutex::default(),
            room,
            buffers: BufferPool::new(BUFFER_BLOCKS, BUFFERS_BYTES_MAX),
            keys: Mutex::new(HashMap::new()),
            filter,
            meta: Mutex::new(meta),
            loaded: Condvar::new(),
            committer: Mutex::new(committer),
            group_init: Mutex::new(()),
            indexer: Mutex::new(index::IndexStage::default()),
            demand: AtomicU64::new(0),
            has_large_operation: AtomicBool::new(false),
            pulse,
            wake: Wake::default(),
            heart: Wake::default(),
        })
    }
}

/// Puts the recovered blocks into the cache, as committed content that is not in place.
fn take_in(meta: &mut Meta, superblock: &Superblock, replayed: ReplayResult, run: u64) -> Committer {
    let durable = replayed.next_sequence - 1;
    let mut home = std::collections::BTreeMap::new();
    for (block, bytes) in replayed.blocks {
        let kind = header::kind(&bytes).expect("recovery refuses blocks of no known kind");
        let bytes = Arc::new(*bytes);
        home.insert(block, Arc::clone(&bytes));
        let epoch = meta.running.epoch;
        let slot = meta.cache.insert(block, kind, bytes);
        slot.home_sequence = durable;
        slot.logged_epoch = epoch;
    }
    for &block in &replayed.forgotten {
        meta.groups.busy.set(block);
    }
    let log = JournalLog::new(superblock, replayed.position, run);
    Committer::new(log, durable, home, replayed.forgotten.into_iter().collect())
}

/// Reads the pool state, unless recovery has it.
fn load_state(device: &dyn BlockDevice, meta: &mut Meta) -> Result<()> {
    let damaged = |what: String| PoolError::Damaged { structure: BlockKind::State.name(), block: STATE, what };
    if !meta.cache.contains(STATE) {
        let mut buffer = AlignedBuffer::zeroed(1);
        device.read(STATE, &mut buffer).map_err(|source| PoolError::Io { action: "read", block: STATE, source })?;
        let bytes = buffer.block(0).expect("one block was read");
        header::verify(bytes, meta.pool_tag, BlockKind::State, STATE).map_err(|error| damaged(error.to_string()))?;
        meta.cache.insert(STATE, BlockKind::State, Arc::new(*bytes));
    }
    let ready = meta.state(Field::GroupsReady);
    if ready == 0 || ready > meta.geometry.group_count() {
        return Err(damaged(format!(
            "{ready} block groups are recorded as ready, the pool has {}",
            meta.geometry.group_count()
        )));
    }
    for number in 0..FIELD_COUNT {
        let value = get_u64(meta.cache.peek(STATE).expect("inserted above"), HEADER_BYTES + number * 8);
        if value > COUNTER_MAX {
            return Err(damaged(format!("counter {number} is {value}, more than any pool has")));
        }
    }
    let used = meta.state(Field::DataBlocks).saturating_add(meta.state(Field::MetadataBlocks));
    if used > meta.geometry.allocatable_blocks() {
        return Err(damaged(format!(
            "{used} blocks are recorded as in use, the pool has {}",
            meta.geometry.allocatable_blocks()
        )));
    }
    Ok(())
}
