//! Keeps a second host out of a pool on shared storage.
//!
//! On one host, the lock on the device or file keeps a second daemon out. On storage that several hosts reach, such
//! locks may be local to each host. There, a single block does this work: the *mark*, which the host that has the pool
//! open rewrites at each beat.
//!
//! **Taking the pool.** The order, and what would go wrong if a step moved or were left out:
//! 1. The mark is read. If another host holds the pool, the mark is watched for longer than two beats. If it changes,
//!    the other host lives, and the pool is refused. A host that finds its own mark has crashed with the pool open. Its
//!    lock is free, so it does not watch, with two exceptions in which its mark may lie over one that a living host
//!    relies on: the mark was written before step 4, or the trace of its opening is not the newest.
//! 2. The own mark is written, at most [`LATE`] after the mark was read. (Later: a host that had read the mark before
//!    could write after another one has made sure, and both would go on.)
//! 3. [`SETTLE`] later, which is longer than [`LATE`], the mark is read again. All hosts that read before step 2 have
//!    written by then, and of several marks the last one stays: exactly one host finds its own. (Sooner: two hosts that
//!    open the pool in the same instant would both go on.)
//! 4. The mark is written once more, as one without rivals.
//!
//! Reading a pool needs no permission, so an opening does not wait for step 3; the first write does ([`super::fence`]).
//!
//! **The trace.** Before its first write, an opening durably puts its number into the journal's header. So a host can
//! tell from the trace which opening changed the pool last, even if that opening's mark is gone. The number goes into
//! both slots, so that a header that another host wrote long before, and that arrives only now, does not hide it.
//!
//! **Keeping it.** Each write checks whether the last mark is fresh: then no other host has watched it for long enough
//! to take the pool. A host that was suspended, or whose storage hung, finds its mark stale, and repeats steps 2 and 3
//! before it writes anything. If it finds another mark, it was thought dead and replaced, so it stops.
//!
//! If its own mark arrived late, it may lie over the mark of a host that had taken the pool meanwhile. That host stops
//! within [`WATCH`], but may have changed the pool, so that this host's memory would be wrong. So this host writes
//! nothing for that long, and then reads the trace. If its own is the newest, it goes on; otherwise it stops for good.
//! A disk that does not answer for some seconds thus costs a pause, not the pool. A host that has left no trace cannot
//! tell, and stops.
//!
//! All this holds under two conditions. A write that a host began while it was sure takes less than [`WATCH`] minus
//! [`SURE`]. And the clocks of hosts run at rates that differ by less than a fifth.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onefold_block::{AlignedBuffer, BlockDevice, Clock, Random};

use crate::error::{PoolError, Result};
use crate::format::geometry::{Geometry, HEARTBEAT};
use crate::format::heartbeat::Heartbeat;
use crate::format::journal::{HEADER_SLOTS, JournalHeader};
use crate::format::superblock::Superblock;
use crate::host::HostId;
use crate::journal::{log, replay};
use crate::options::Environment;
use crate::sync::Mutex;

/// Time between two beats.
pub(crate) const BEAT_INTERVAL: Duration = Duration::from_secs(4);
/// How long another host's mark is watched before that host counts as dead.
const WATCH: Duration = Duration::from_secs(10);
/// How long a host may rely on its mark after writing it.
const SURE: Duration = Duration::from_secs(8);
/// Maximum time from reading a mark until another one has been written over it.
const LATE: Duration = Duration::from_millis(250);
/// How long after writing a mark that may have rivals the host reads it again.
const SETTLE: Duration = Duration::from_millis(500);
/// How often an opening rewrites its mark if the storage answers late.
const TRIES_MAX: u32 = 3;
/// The same for an opening that already has the pool: at least a minute.
const OUTLAST_TRIES_MAX: u32 = 6;
/// Maximum number of steps to make sure that the pool is held. Three suffice if the storage answers in time.
const STEPS_MAX: u32 = 9;
const _: () =
    assert!(LATE.as_millis() < SETTLE.as_millis(), "a host that read before has written before the second look");
const _: () = assert!(2 * BEAT_INTERVAL.as_secs() <= SURE.as_secs() && SURE.as_secs() < WATCH.as_secs());

/// One opening's use of the mark.
pub(crate) struct Pulse {
    device: Arc<dyn BlockDevice>,
    geometry: Geometry,
    pool_tag: u32,
    /// Number of this opening.
    run: u64,
    /// The journal's header as found; `None` if this opening leaves no trace.
    found: Option<JournalHeader>,
    clock: Arc<dyn Clock>,
    held: Mutex<OwnMark>,
    /// Until when no other host can have the pool, in microseconds of the clock; 0 before that is known.
    sure_until: AtomicU64,
    /// Whether the trace, if any, is on the device.
    has_left_trace: AtomicBool,
    /// Buffer of one block for all reads and writes: if memory is short, a beat must not wait for an allocation.
    buffer: Mutex<AlignedBuffer>,
}

/// The mark as last written.
struct OwnMark {
    mark: Heartbeat,
    /// When it was written, or a little before; `None` if another host may have relied on its own mark at that time.
    written: Option<Duration>,
    /// When it must be read again before the host may rely on it.
    settles: Option<Duration>,
    /// Whether the mark may have been written late: it may then lie over that of a host which has changed the pool
    /// since.
    is_doubtful: bool,
    /// Why this opening has lost the pool for good.
    lost: Option<String>,
}

impl Pulse {
    /// Takes the pool for this host, which is sure to have it only after [`Pulse::ensure_held`]. An opening need not
    /// leave a trace if it keeps nothing of the pool in memory for long and begins by writing both header slots anyway.
    ///
    /// # Errors
    /// [`PoolError::InUse`] if another host has it open; device errors.
    pub(crate) fn acquire(
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        host: HostId,
        environment: &Environment,
        leaves_trace: bool,
    ) -> Result<Pulse> {
        let run = random_number(&*environment.random)?;
        let mark = Heartbeat { host, run, beat: 0, held: true, sure: false };
        let mut pulse = Pulse {
            device: Arc::clone(device),
            geometry: superblock.geometry,
            pool_tag: superblock.pool_tag(),
            run,
            found: None,
            clock: Arc::clone(&environment.clock),
            held: Mutex::new(OwnMark { mark, written: None, settles: None, is_doubtful: false, lost: None }),
            sure_until: AtomicU64::new(0),
            has_left_trace: AtomicBool::new(false),
            buffer: Mutex::new(AlignedBuffer::zeroed(1)),
        };
        let last = pulse.journal_header();
        let mut seen = pulse.clock.monotonic();
        let may_live = |found: &Heartbeat| {
            let is_last = last.is_some_and(|last| last.run == found.run);
            found.held && (found.host != host || !found.sure || !is_last)
        };
        if let Some(found) = pulse.read()?.filter(may_live) {
            pulse.clock.sleep(WATCH);
            seen = pulse.clock.monotonic();
            if pulse.read()?.is_some_and(|later| later.held && later != found) {
                let name: String = found.host.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
                return Err(PoolError::InUse(format!("another host ({name}) has it open and is alive")));
            }
        }
        pulse.claim(seen)?;
        // From here on no other host changes the pool, or else this host never becomes sure.
        pulse.found = pulse.journal_header().filter(|_| leaves_trace);
        Ok(pulse)
    }

    /// Writes the mark for the first time.
    fn claim(&self, mut seen: Duration) -> Result<()> {
        let mut held = self.held.lock();
        for _ in 0..TRIES_MAX {
            if self.put(&mut held, seen)? {
                return Ok(());
            }
            self.clock.sleep(WATCH);
            seen = self.clock.monotonic();
            self.expect_own(&held)?;
            // A sign of life for hosts that watch.
            held.mark.beat += 1;
        }
        Err(too_slow())
    }

    /// Returns the number of this opening.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// Returns the generation of the trace's later slot; the next header that is written must have a higher one.
    pub(crate) fn trace_generation(&self) -> u64 {
        self.found.map_or(0, |found| found.generation + HEADER_SLOTS)
    }

    /// Returns the journal's header; `None` if it is damaged, or a slot cannot be read.
    fn journal_header(&self) -> Option<JournalHeader> {
        replay::read_header(&*self.device, &self.geometry, self.pool_tag).ok()
    }

    fn owes_trace(&self) -> bool {
        self.found.is_some() && !self.has_left_trace.load(Ordering::Acquire)
    }

    /// Writes the trace: the header as found, with the number of this opening. Writes the older slot first, and makes
    /// each durable before it writes the next, so that one of them is whole at any time.
    fn leave_trace(&self) -> Result<()> {
        let Some(found) = self.found else { return Ok(()) };
        for generation in found.generation + 1..=self.trace_generation() {
            let trace = JournalHeader { generation, clean: false, run: self.run, ..found };
            let at = self.geometry.journal_first.plus(generation % HEADER_SLOTS);
            let bytes = AlignedBuffer::copy_of(&trace.encode(self.pool_tag, at));
            self.device.write(at, &bytes).map_err(|source| PoolError::of_write(at, source))?;
            log::sync(&*self.device, at)?;
        }
        self.has_left_trace.store(true, Ordering::Release);
        Ok(())
    }

    /// Refuses a pool that another opening may have changed since this one read it.
    fn expect_unchanged(&self) -> Result<()> {
        if !self.has_left_trace.load(Ordering::Acquire) {
            return Err(too_slow());
        }
        match self.journal_header() {
            Some(newest) if newest.run == self.run => Ok(()),
            _ => Err(PoolError::InUse(
                "another host had it meanwhile: the storage did not answer this one for too long".to_owned(),
            )),
        }
    }

    fn read(&self) -> Result<Option<Heartbeat>> {
        let mut buffer = self.buffer.lock();
        self.device.read(HEARTBEAT, &mut buffer).map_err(|source| PoolError::Io {
            action: "read",
            block: HEARTBEAT,
            source,
        })?;
        Ok(Heartbeat::decode(buffer.block(0).expect("one block was read"), self.pool_tag))
    }

    fn write(&self, mark: &Heartbeat) -> Result<()> {
        let mut buffer = self.buffer.lock();
        buffer.copy_from_slice(&mark.encode(self.pool_tag));
        self.device.write(HEARTBEAT, &buffer).map_err(|source| PoolError::Io {
            action: "write",
            block: HEARTBEAT,
            source,
        })
    }

    /// Reads the mark, and fails if it is not this opening's own.
    fn expect_own(&self, held: &OwnMark) -> Result<()> {
        match self.read()? {
            Some(found) if found.run == held.mark.run && found.host == held.mark.host => Ok(()),
            _ => Err(PoolError::InUse(
                "another host has taken it, in the same moment or while this one did not answer".to_owned(),
            )),
        }
    }

    /// Writes the mark over one that was read at `seen`, and notes from when on this host can rely on it. Returns false
    /// if the write was so late that another host may rely on its own mark. That host finds out, and has stopped
    /// writing, within [`WATCH`].
    fn put(&self, held: &mut OwnMark, seen: Duration) -> Result<bool> {
        // Also if this fails: a write that returns an error may still have arrived, and late.
        held.is_doubtful = true;
        self.write(&held.mark)?;
        let done = self.clock.monotonic();
        if held.written.is_some_and(|written| done < written + SURE) {
            held.is_doubtful = false;
            self.rely(held, seen);
            return Ok(true);
        }
        let in_time = done.saturating_sub(seen) <= LATE;
        held.is_doubtful = !in_time;
        held.written = in_time.then_some(seen);
        held.settles = in_time.then_some(done + SETTLE);
        Ok(in_time)
    }

    /// Notes that the mark written at `written` has no rivals.
    fn rely(&self, held: &mut OwnMark, written: Duration) {
        held.written = Some(written);
        held.settles = None;
        self.sure_until.store(micros(written + SURE), Ordering::Release);
    }

    fn is_sure(&self) -> bool {
        micros(self.clock.monotonic()) < self.sure_until.load(Ordering::Acquire)
    }

    /// Returns once no other host can have the pool and the trace is on the device. That is immediate, except for the
    /// first time and after a long silence.
    ///
    /// # Errors
    /// See [`Pulse::beat`].
    pub(crate) fn ensure_held(&self) -> Result<()> {
        if self.is_sure() && !self.owes_trace() {
            return Ok(());
        }
        self.unless_lost(|held| {
            self.make_sure(held)?;
            if self.owes_trace() {
                self.leave_trace()?;
                // Leaving the trace may have taken long.
                self.make_sure(held)?;
            }
            Ok(())
        })
    }

    /// Calls `work`. If that finds that another host may have the pool, this opening loses it for good: a later call
    /// must not find it free again.
    fn unless_lost(&self, work: impl FnOnce(&mut OwnMark) -> Result<()>) -> Result<()> {
        let mut held = self.held.lock();
        if let Some(lost) = &held.lost {
            return Err(PoolError::InUse(lost.clone()));
        }
        let done = work(&mut held);
        if let Err(PoolError::InUse(lost)) = &done {
            held.lost = Some(lost.clone());
            self.sure_until.store(0, Ordering::Release);
        }
        done
    }

    fn make_sure(&self, held: &mut OwnMark) -> Result<()> {
        for _ in 0..STEPS_MAX {
            if self.is_sure() && held.mark.sure {
                return Ok(());
            }
            match (held.written, held.settles) {
                (Some(written), Some(settles)) => {
                    self.clock.sleep(settles.saturating_sub(self.clock.monotonic()));
                    self.expect_own(held)?;
                    self.rely(held, written);
                }
                _ if held.is_doubtful => self.outlast(held)?,
                _ => self.renew(held)?,
            }
        }
        Err(too_slow())
    }

    /// Gives one beat.
    ///
    /// # Errors
    /// [`PoolError::InUse`] if another opening has taken the pool; device errors.
    pub(crate) fn beat(&self) -> Result<()> {
        self.unless_lost(|held| {
            self.make_sure(held)?;
            self.renew(held)?;
            self.make_sure(held)
        })
    }

    /// Rewrites the mark, in time or not.
    fn renew(&self, held: &mut OwnMark) -> Result<()> {
        if !self.is_sure() {
            // This wakes a sleeping disk now, so that it is not late below.
            self.expect_own(held)?;
        }
        let seen = self.clock.monotonic();
        self.expect_own(held)?;
        held.mark.beat += 1;
        held.mark.sure = self.is_sure();
        self.put(held, seen)?;
        Ok(())
    }

    /// Continues after the own mark was written late, if no other host has changed the pool meanwhile.
    fn outlast(&self, held: &mut OwnMark) -> Result<()> {
        for _ in 0..OUTLAST_TRIES_MAX {
            // By then, a host that relied on a mark which the own one has hidden has stopped, and its trace has
            // arrived.
            self.clock.sleep(WATCH);
            self.expect_unchanged()?;
            let seen = self.clock.monotonic();
            self.expect_own(held)?;
            held.mark.beat += 1;
            held.mark.sure = false;
            if self.put(held, seen)? {
                return Ok(());
            }
        }
        Err(too_slow())
    }

    /// Releases the pool.
    ///
    /// # Errors
    /// [`PoolError::InUse`] if another opening has taken the pool; device errors.
    pub(crate) fn release(&self) -> Result<()> {
        self.unless_lost(|held| {
            // A host that finds a pool free proceeds at once. So a pool that another host has taken must not be marked
            // free.
            self.make_sure(held)?;
            held.mark.held = false;
            self.sure_until.store(0, Ordering::Release);
            self.write(&held.mark)
        })
    }
}

fn too_slow() -> PoolError {
    PoolError::InUse("the storage answers too slowly to tell whether another host takes it, too".to_owned())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn random_number(random: &dyn Random) -> Result<u64> {
    let mut bytes = [0; 8];
    random.fill(&mut bytes).map_err(|source| PoolError::Io {
        action: "find randomness for",
        block: HEARTBEAT,
        source,
    })?;
    Ok(u64::from_le_bytes(bytes))
}
