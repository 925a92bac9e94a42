//! Several hosts on one storage: which host has the pool, and what the others learn.

mod common;

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::observe::check_clean;
use common::{letter, regular};
use onefold_block::clock::{ManualClock, SystemClock};
use onefold_block::random::SeededRandom;
use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo, Clock, Timestamp};
use onefold_pool::check::{CheckOptions, CheckReport, check, repair};
use onefold_pool::format::geometry::{HEARTBEAT, SUPERBLOCK_COPY};
use onefold_pool::{
    CreateOptions, Durability, Environment, HostId, Ino, MEMORY_BYTES_MIN, NoProgress, OpenOptions, Pool, PoolError,
    Progress, Result,
};
use onefold_testing::device::MemoryDevice;
use parking_lot::{Condvar, Mutex};

const ONE: HostId = [1; 16];
const OTHER: HostId = [2; 16];

fn environment(clock: Arc<dyn Clock>, host: HostId) -> Environment {
    Environment { clock, random: Arc::new(SeededRandom::new(u64::from(host[0]))) }
}

/// Returns options of a host whose only background work is its heartbeat.
fn options(host: HostId) -> OpenOptions {
    let commit_interval_ms = u32::MAX;
    OpenOptions { host: Some(host), memory_bytes: MEMORY_BYTES_MIN, commit_interval_ms, ..OpenOptions::default() }
}

fn new_pool() -> Arc<MemoryDevice> {
    let memory = Arc::new(MemoryDevice::new(8192));
    let seam: Arc<dyn BlockDevice> = memory.clone();
    Pool::create(&seam, &CreateOptions::default(), &common::environment()).expect("a pool is made");
    memory
}

fn write_file(pool: &Pool, name: &str) {
    let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("there is room").ino;
    pool.write(ino, 0, &letter(7), Durability::Now).expect("writes");
}

fn mark_on(storage: &dyn BlockDevice) -> [u8; BLOCK_BYTES] {
    let mut mark = [0; BLOCK_BYTES];
    storage.read(HEARTBEAT, &mut mark).expect("reads");
    mark
}

type Hook = Box<dyn Fn(BlockNo) + Send + Sync>;

/// A device with hooks before a write or after a read.
struct HookedDevice {
    inner: Arc<MemoryDevice>,
    before_write: Hook,
    after_read: Hook,
}

impl HookedDevice {
    fn before_write(inner: &Arc<MemoryDevice>, hook: impl Fn(BlockNo) + Send + Sync + 'static) -> Arc<HookedDevice> {
        Arc::new(HookedDevice { inner: Arc::clone(inner), before_write: Box::new(hook), after_read: Box::new(|_| ()) })
    }

    fn after_read(inner: &Arc<MemoryDevice>, hook: impl Fn(BlockNo) + Send + Sync + 'static) -> Arc<HookedDevice> {
        Arc::new(HookedDevice { inner: Arc::clone(inner), before_write: Box::new(|_| ()), after_read: Box::new(hook) })
    }
}

impl BlockDevice for HookedDevice {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.inner.read(first, into)?;
        (self.after_read)(first);
        Ok(())
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        (self.before_write)(first);
        self.inner.write(first, from)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.inner.discard(first, count)
    }
}

/// Holds one write until a beat has been written.
#[derive(Default)]
struct WriteHolder {
    holds_next: AtomicBool,
    beats: Mutex<u64>,
    beaten: Condvar,
    /// Whether a beat came while the write was held.
    was_beaten: AtomicBool,
}

impl WriteHolder {
    fn before_write(&self, first: BlockNo) {
        if first == HEARTBEAT {
            *self.beats.lock() += 1;
            self.beaten.notify_all();
        } else if self.holds_next.swap(false, Ordering::SeqCst) {
            let mut beats = self.beats.lock();
            let before = *beats;
            let waited = self.beaten.wait_while_for(&mut beats, |beats| *beats == before, Duration::from_secs(12));
            self.was_beaten.store(!waited.timed_out(), Ordering::SeqCst);
        }
    }
}

/// What was wrong, found in a review: closing a pool ended its heartbeat and then made the last changes durable. If
/// that took longer than another host waits, the other host took the pool, and acknowledged writes that would have been
/// committed within seconds were lost.
#[test]
fn a_closing_pool_commits_while_its_heart_still_beats() {
    let (storage, holding) = (new_pool(), Arc::<WriteHolder>::default());
    let device = {
        let holding = Arc::clone(&holding);
        HookedDevice::before_write(&storage, move |first| holding.before_write(first))
    };
    let pool = Pool::open(device, options(ONE), environment(Arc::new(SystemClock), ONE)).expect("opens");
    write_file(&pool, "durable");
    pool.create_file(Ino::ROOT, b"not yet", &regular()).expect("there is room");
    holding.holds_next.store(true, Ordering::SeqCst);
    pool.close().expect("closes");
    assert!(!holding.holds_next.load(Ordering::SeqCst), "there was something to commit");
    assert!(holding.was_beaten.load(Ordering::SeqCst), "no beat came while the commit took its time");
    drop(pool);
    check_clean(&*storage).expect("clean");
}

/// What was wrong, found in a review: closing a pool ended its heartbeat before it loaded the rest of the saved filter,
/// saved the filter and emptied the journal, all of which takes long for a large pool on slow storage.
#[test]
fn a_heart_beats_until_all_of_a_close_is_done() {
    let (storage, holding) = (new_pool(), Arc::<WriteHolder>::default());
    let device = {
        let holding = Arc::clone(&holding);
        HookedDevice::before_write(&storage, move |first| holding.before_write(first))
    };
    let pool = Pool::open(device, options(ONE), environment(Arc::new(SystemClock), ONE)).expect("opens");
    // Everything is committed: the next write is made for the filter or for the end of the journal.
    write_file(&pool, "durable");
    holding.holds_next.store(true, Ordering::SeqCst);
    pool.close().expect("closes");
    assert!(!holding.holds_next.load(Ordering::SeqCst), "there was something to write");
    assert!(holding.was_beaten.load(Ordering::SeqCst), "no beat came while the close took its time");
    let again = Pool::open(storage, options(OTHER), environment(Arc::new(SystemClock), OTHER)).expect("is given free");
    again.close().expect("closes");
}

/// What was wrong: a disk that did not answer for some seconds stopped the pool, although there was no other host.
#[test]
fn a_pool_goes_on_after_its_storage_stalled() {
    let (storage, clock) = (new_pool(), Arc::new(ManualClock::starting_at(1000)));
    let is_next_late = Arc::<AtomicBool>::default();
    let device = {
        let (clock, is_next_late) = (Arc::clone(&clock), Arc::clone(&is_next_late));
        HookedDevice::before_write(&storage, move |first| {
            if first == HEARTBEAT && is_next_late.swap(false, Ordering::SeqCst) {
                clock.sleep(Duration::from_secs(2));
            }
        })
    };
    let quiet = OpenOptions { background: false, ..options(ONE) };
    let pool = Pool::open(device, quiet, environment(clock.clone(), ONE)).expect("opens");
    write_file(&pool, "before");
    for name in ["after", "and again"] {
        clock.sleep(Duration::from_secs(20));
        is_next_late.store(true, Ordering::SeqCst);
        let began = clock.monotonic();
        write_file(&pool, name);
        assert!(!is_next_late.load(Ordering::SeqCst));
        assert!(
            clock.monotonic() - began > Duration::from_secs(10),
            "it waits for any host that could have been there"
        );
        pool.checkpoint().expect("checkpoints");
    }
    pool.close().expect("closes");
    check_clean(&*storage).expect("clean");
}

/// The clock of a host that watches another one: a wait of seconds ends as soon as the mark has changed, since a later
/// look would show nothing else.
struct WatchClock {
    storage: Arc<MemoryDevice>,
    clock: ManualClock,
}

impl WatchClock {
    fn new(storage: &Arc<MemoryDevice>) -> Arc<WatchClock> {
        Arc::new(WatchClock { storage: Arc::clone(storage), clock: ManualClock::starting_at(1000) })
    }
}

impl Clock for WatchClock {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, time: Duration) {
        let (began, before) = (Instant::now(), mark_on(&*self.storage));
        while time > Duration::from_secs(1) && began.elapsed() < time && mark_on(&*self.storage) == before {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.clock.sleep(time);
    }
}

fn check_options(host: HostId) -> CheckOptions {
    CheckOptions { memory_bytes: MEMORY_BYTES_MIN, verify_data: false, host: Some(host), ..CheckOptions::default() }
}

fn repair_by(
    host: HostId,
    clock: Arc<dyn Clock>,
    storage: &Arc<MemoryDevice>,
    progress: &dyn Progress,
) -> Result<CheckReport> {
    let seam: Arc<dyn BlockDevice> = storage.clone();
    repair(&seam, &check_options(host), &environment(clock, host), progress)
}

/// Damage that no opening notices.
fn damage(storage: &MemoryDevice) {
    storage.write(SUPERBLOCK_COPY, &[0; BLOCK_BYTES]).expect("writes");
}

/// What was wrong: a repair knew only of daemons on its own host. On shared storage it repaired a pool, including the
/// journal, while another host had it open.
#[test]
fn a_repair_is_refused_while_another_host_has_the_pool_open() {
    let storage = new_pool();
    let pool = Pool::open(storage.clone(), options(ONE), environment(Arc::new(SystemClock), ONE)).expect("opens");
    write_file(&pool, "file");
    damage(&storage);
    let before = storage.image();
    let refused = repair_by(OTHER, WatchClock::new(&storage), &storage, &NoProgress);
    assert!(matches!(refused, Err(PoolError::InUse(_))), "{refused:?}");
    let changed = |block: u64| storage.image().get(BlockNo(block)) != before.get(BlockNo(block));
    let changed: Vec<u64> = (0..before.block_count()).filter(|block| changed(*block)).collect();
    assert_eq!(changed, [HEARTBEAT.0], "nothing but the living host's mark");
    // A check does not ask for other hosts, and leaves no mark.
    let report = check(&*storage, &check_options(OTHER), &NoProgress).expect("can be checked");
    assert_eq!(report.problems_total, 1, "{report:#?}");
    write_file(&pool, "another");
    pool.close().expect("closes");
}

#[test]
fn a_pool_whose_host_died_can_be_repaired_and_is_given_free_then() {
    let storage = new_pool();
    let pool =
        Pool::open(storage.clone(), options(ONE), environment(Arc::<ManualClock>::default(), ONE)).expect("opens");
    write_file(&pool, "file");
    drop(pool);
    damage(&storage);
    // Nothing changes the mark: this clock does not wait for it.
    let report = repair_by(OTHER, Arc::<ManualClock>::default(), &storage, &NoProgress).expect("can be repaired");
    assert_eq!((report.problems_total, report.problems_left), (1, 0));
    check_clean(&*storage).expect("clean");
    let clock = Arc::new(ManualClock::starting_at(1000));
    let (began, quiet) = (clock.monotonic(), OpenOptions { background: false, ..options(ONE) });
    let pool = Pool::open(storage, quiet, environment(clock.clone(), ONE)).expect("opens");
    assert!(clock.monotonic() - began < Duration::from_secs(1), "nobody has to be watched");
    drop(pool);
}

/// Calls once, at the first report.
struct FirstReport<F: Fn()>(AtomicBool, F);

impl<F: Fn() + Sync> Progress for FirstReport<F> {
    fn update(&self, _: u64, _: u64) -> ControlFlow<()> {
        if !self.0.swap(true, Ordering::SeqCst) {
            self.1();
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn another_host_is_kept_out_while_a_pool_is_repaired() {
    let storage = new_pool();
    damage(&storage);
    let open = || Pool::open(storage.clone(), options(ONE), environment(WatchClock::new(&storage), ONE));
    let at_first = FirstReport(AtomicBool::new(false), || {
        let refused = open();
        assert!(matches!(refused, Err(PoolError::InUse(_))), "{refused:?}");
    });
    let report = repair_by(OTHER, Arc::new(SystemClock), &storage, &at_first).expect("can be repaired");
    assert!(at_first.0.load(Ordering::SeqCst));
    assert_eq!(report.problems_left, 0);
    open().expect("the pool is free").close().expect("closes");
    check_clean(&*storage).expect("clean");
}

/// A host was suspended during a repair, or its storage hung, for so long that another host took the pool.
#[test]
fn a_repair_that_lost_the_pool_changes_nothing_any_more() {
    let storage = new_pool();
    damage(&storage);
    let clock = Arc::new(ManualClock::starting_at(1000));
    let taken = Mutex::new(None);
    let at_first = FirstReport(AtomicBool::new(false), || {
        let quiet = OpenOptions { background: false, ..options(ONE) };
        let pool =
            Pool::open(storage.clone(), quiet, environment(clock.clone(), ONE)).expect("the other one is silent");
        write_file(&pool, "file");
        *taken.lock() = Some((pool, storage.image()));
    });
    let failed = repair_by(OTHER, clock.clone(), &storage, &at_first);
    assert!(failed.is_err(), "{failed:?}");
    let (pool, before) = taken.lock().take().expect("it was taken");
    assert!(storage.image() == before, "the storage is as its new host left it");
    write_file(&pool, "another");
    pool.close().expect("closes");
    let report = check(&*storage, &check_options(OTHER), &NoProgress).expect("can be checked");
    assert_eq!(report.problems_total, 1, "nobody has mended it: {report:#?}");
}

/// What was wrong, found in a review: the superblock was read before the pool was taken. A pool that another host had
/// grown in between was opened with its old size.
#[test]
fn a_pool_that_grew_while_it_was_being_taken_is_as_large_as_it_is() {
    let (storage, clock) = (new_pool(), Arc::new(ManualClock::starting_at(1000)));
    storage.resize(3 * 8192);
    let quiet = |host| OpenOptions { background: false, ..options(host) };
    let has_grown = Arc::<AtomicBool>::default();
    let device = {
        let (inner, clock, has_grown) = (storage.clone(), clock.clone(), Arc::clone(&has_grown));
        HookedDevice::after_read(&storage, move |first| {
            // The copy is read last.
            if first != SUPERBLOCK_COPY || has_grown.swap(true, Ordering::SeqCst) {
                return;
            }
            let pool = Pool::open(inner.clone(), quiet(ONE), environment(clock.clone(), ONE)).expect("opens");
            pool.grow().expect("grows");
            write_file(&pool, "file");
            pool.close().expect("closes");
        })
    };
    let pool = Pool::open(device, quiet(OTHER), environment(clock, OTHER)).expect("opens");
    assert!(has_grown.load(Ordering::SeqCst), "it grew meanwhile");
    assert_eq!(pool.stat().expect("reads").device_bytes, 3 * 8192 * BLOCK_BYTES as u64);
    write_file(&pool, "another");
    pool.close().expect("closes");
    check_clean(&*storage).expect("clean");
}
