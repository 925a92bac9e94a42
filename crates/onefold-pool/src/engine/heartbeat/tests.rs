//! Hosts on simulated time: each waits for its own reads, writes and sleeps, and the host that wakes first continues.
//! Only the seed decides the order.

use std::sync::Arc;
use std::time::Duration;

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo, Clock, Timestamp};
use onefold_testing::device::MemoryDevice;
use parking_lot::{Condvar, Mutex};

use super::{BEAT_INTERVAL, Pulse, WATCH};
use crate::error::PoolError;
use crate::format::geometry::{Geometry, HEARTBEAT};
use crate::format::journal::{HEADER_SLOTS, JournalHeader};
use crate::format::superblock::{Marking, Superblock};
use crate::options::Environment;
use crate::{Dedup, StorePlacement};

const BLOCKS: u64 = 4096;
/// One block that stands for the pool's whole content.
const CONTENT: BlockNo = BlockNo(3000);

fn superblock() -> Superblock {
    Superblock {
        generation: 1,
        uuid: [9; 16],
        key: [8; 32],
        marking: Marking::Secret,
        label: String::new(),
        dedup: Dedup::On,
        geometry: Geometry::plan(BLOCKS, None, StorePlacement::InGroups).expect("the least pool"),
        created: Timestamp::default(),
    }
}

/// Writes a header slot as the opening `run` does when it moves the journal's tail.
fn move_tail(device: &dyn BlockDevice, generation: u64, run: u64) {
    let (geometry, tag) = (superblock().geometry, superblock().pool_tag());
    let at = geometry.journal_first.plus(generation % HEADER_SLOTS);
    let header =
        JournalHeader { generation, tail_sequence: 1 + generation, tail_position: 0, tail_chain: 0, clean: false, run };
    device.write(at, &header.encode(tag, at)).expect("writes");
}

/// Returns storage with a pool that suffices for openings that only beat.
fn new_storage() -> Arc<MemoryDevice> {
    let storage = Arc::new(MemoryDevice::new(BLOCKS));
    for generation in 0..HEADER_SLOTS {
        move_tail(&*storage, generation, 0);
    }
    storage
}

/// Simulated time for some hosts, one of which runs at a time.
struct SharedTime {
    state: Mutex<TimeState>,
    turn: Condvar,
}

struct TimeState {
    now: Duration,
    /// The time at which each host continues; `None` for the one that runs.
    wakes: Vec<Option<Duration>>,
}

/// A host that has ended never wakes.
const ENDED: Duration = Duration::MAX;

impl SharedTime {
    fn new(hosts: usize) -> Arc<SharedTime> {
        let wakes = vec![Some(Duration::ZERO); hosts];
        Arc::new(SharedTime { state: Mutex::new(TimeState { now: Duration::ZERO, wakes }), turn: Condvar::new() })
    }

    /// Starts all hosts, the first one first.
    fn begin(&self) {
        self.wake_next(&mut self.state.lock());
    }

    fn now(&self) -> Duration {
        self.state.lock().now
    }

    fn wake_next(&self, state: &mut TimeState) {
        let next = (0..state.wakes.len()).min_by_key(|&host| state.wakes[host]).expect("there are hosts");
        if let Some(wake) = state.wakes[next].filter(|wake| *wake != ENDED) {
            state.now = state.now.max(wake);
            state.wakes[next] = None;
        }
        self.turn.notify_all();
    }

    /// Lets time pass for the running host.
    fn pass(&self, host: usize, time: Duration) {
        let mut state = self.state.lock();
        state.wakes[host] = Some(state.now + time);
        self.wake_next(&mut state);
        self.turn.wait_while(&mut state, |state| state.wakes[host].is_some());
    }

    /// Waits for the first turn.
    fn wait_to_begin(&self, host: usize) {
        self.turn.wait_while(&mut self.state.lock(), |state| state.wakes[host].is_some());
    }

    fn end(&self, host: usize) {
        let mut state = self.state.lock();
        state.wakes[host] = Some(ENDED);
        self.wake_next(&mut state);
    }
}

/// One host's access to the storage, and its clock.
struct TestHost {
    world: Arc<SharedTime>,
    number: usize,
    storage: Arc<MemoryDevice>,
    random: SeededRandom,
}

impl TestHost {
    fn new(world: &Arc<SharedTime>, number: usize, storage: &Arc<MemoryDevice>, seed: u64) -> Arc<TestHost> {
        Arc::new(TestHost {
            world: Arc::clone(world),
            number,
            storage: Arc::clone(storage),
            random: SeededRandom::new(seed),
        })
    }

    fn environment(self: &Arc<TestHost>, run: u64) -> Environment {
        let random = SeededRandom::new((self.number as u64) << 32 | run);
        Environment { clock: self.clone(), random: Arc::new(random) }
    }

    /// Returns the duration of a call to the storage: milliseconds, sometimes so long that it is late, and rarely very
    /// long.
    fn latency(&self) -> Duration {
        let ms = match self.random.below(60) {
            0 => 1000 + self.random.below(6000),
            1..8 => 100 + self.random.below(300),
            _ => 1 + self.random.below(20),
        };
        Duration::from_millis(ms)
    }

    fn pass(&self, time: Duration) {
        self.world.pass(self.number, time);
    }

    /// Returns the pool's content: a number that each write increments.
    fn content(&self) -> u64 {
        let mut bytes = [0; BLOCK_BYTES];
        self.storage.read(CONTENT, &mut bytes).expect("reads");
        u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"))
    }

    fn set_content(&self, content: u64) {
        let mut bytes = [0; BLOCK_BYTES];
        bytes[..8].copy_from_slice(&content.to_le_bytes());
        self.storage.write(CONTENT, &bytes).expect("writes");
    }
}

impl Clock for TestHost {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn monotonic(&self) -> Duration {
        self.world.now()
    }

    fn sleep(&self, time: Duration) {
        self.pass(time);
    }
}

impl BlockDevice for TestHost {
    fn block_count(&self) -> std::io::Result<u64> {
        self.storage.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> std::io::Result<()> {
        self.pass(self.latency());
        self.storage.read(first, into)?;
        self.pass(self.latency());
        Ok(())
    }

    /// Marks may take any time; all other writes stay within their bound.
    fn write(&self, first: BlockNo, from: &[u8]) -> std::io::Result<()> {
        let bound = if first == HEARTBEAT { Duration::MAX } else { Duration::from_millis(900) };
        self.pass(self.latency().min(bound));
        self.storage.write(first, from)?;
        self.pass(self.latency().min(bound));
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn discard(&self, _first: BlockNo, _count: u64) -> std::io::Result<()> {
        Ok(())
    }
}

/// One opening's use of the pool: the times of its first and its last write.
#[derive(Clone, Copy, Debug)]
struct TestOpening {
    host: usize,
    first: Duration,
    last: Duration,
    /// Number of times it continued after its mark was so late that another host could have taken the pool.
    outlasted: u32,
}

/// Opens the pool and writes to it for a while, with an occasional long silence. Then closes it or crashes.
fn use_pool(host: &Arc<TestHost>, run: u64) -> Option<TestOpening> {
    let environment = host.environment(run);
    let device: Arc<dyn BlockDevice> = host.clone();
    let identity = [u8::try_from(host.number).expect("few hosts") + 1; 16];
    let pulse = Pulse::acquire(&device, &superblock(), identity, &environment, true).ok()?;
    let (mut generation, mut remembered) = (pulse.trace_generation(), host.content());
    let mut session: Option<TestOpening> = None;
    for _ in 0..host.random.below(12) {
        if pulse.ensure_held().is_err() {
            assert!(pulse.ensure_held().is_err(), "what is lost stays so");
            return session;
        }
        assert_eq!(host.content(), remembered, "what this host has in memory is out of date");
        let first = session.map_or(host.world.now(), |session| session.first);
        if host.random.below(3) == 0 {
            generation += 1;
            move_tail(&*device, generation, pulse.run());
        } else {
            host.pass(Duration::from_millis(host.random.below(1500)));
        }
        assert_eq!(host.content(), remembered, "somebody else wrote at the same time");
        remembered += 1;
        host.set_content(remembered);
        let outlasted = session.map_or(0, |session| session.outlasted);
        session = Some(TestOpening { host: host.number, first, last: host.world.now(), outlasted });
        let silence = if host.random.below(10) == 0 { 15_000 } else { host.random.below(4000) };
        host.pass(Duration::from_millis(silence));
        if host.random.below(2) == 0 {
            let began = host.world.now();
            if pulse.beat().is_err() {
                assert!(pulse.ensure_held().is_err(), "what is lost stays so");
                return session;
            }
            let is_outlasted = host.world.now() - began > WATCH;
            session =
                session.map(|found| TestOpening { outlasted: found.outlasted + u32::from(is_outlasted), ..found });
        }
    }
    if host.random.below(2) == 0 {
        let _ = pulse.release();
    }
    session
}

/// Ends a host when dropped, whatever happened to it.
struct HostGuard<'h>(&'h TestHost);

impl Drop for HostGuard<'_> {
    fn drop(&mut self) {
        self.0.world.end(self.0.number);
    }
}

/// Lets some hosts open one pool repeatedly. Returns their sessions.
fn simulate(hosts: usize, seed: u64) -> Vec<TestOpening> {
    let world = SharedTime::new(hosts);
    let storage = new_storage();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..hosts)
            .map(|number| {
                let host = TestHost::new(&world, number, &storage, seed << 8 | number as u64);
                scope.spawn(move || {
                    host.world.wait_to_begin(number);
                    // A panicking host must not make the others wait for ever.
                    let _ends = HostGuard(&host);
                    let mut sessions = Vec::new();
                    for run in 0..3 {
                        // Usually within the duration of one call.
                        let idle = if host.random.below(3) == 0 { 20_000 } else { 30 };
                        host.pass(Duration::from_millis(host.random.below(idle)));
                        sessions.extend(use_pool(&host, run));
                    }
                    sessions
                })
            })
            .collect();
        world.begin();
        threads.into_iter().flat_map(|thread| thread.join().expect("no host panics")).collect()
    })
}

/// Regression: two hosts that opened a pool in the same instant both had it for a beat.
#[test]
fn two_hosts_never_write_to_one_pool_at_the_same_time() {
    let (mut changes, mut outlasted) = (0, 0);
    for seed in 0..1500 {
        let mut sessions = simulate(2 + usize::try_from(seed % 2).expect("0 or 1"), seed);
        sessions.sort_by_key(|session| session.first);
        for pair in sessions.windows(2) {
            let [before, after] = pair else { unreachable!("windows of two") };
            assert!(before.last < after.first, "seed {seed}: {before:?} and {after:?} overlap");
            changes += u64::from(before.host != after.host);
        }
        outlasted += sessions.iter().map(|session| session.outlasted).sum::<u32>();
    }
    assert!(changes > 300, "the pool passed from host to host only {changes} times");
    assert!(outlasted > 100, "only {outlasted} times a host went on after its storage had stalled");
}

/// Storage and a clock without any delay.
fn at_once() -> (Arc<dyn BlockDevice>, Arc<ManualClock>) {
    (new_storage(), Arc::default())
}

fn environment(clock: &Arc<ManualClock>, seed: u64) -> Environment {
    Environment { clock: clock.clone(), random: Arc::new(SeededRandom::new(seed)) }
}

#[test]
fn a_living_host_keeps_others_out_and_a_dead_one_does_not() {
    for beats in [true, false] {
        let world = SharedTime::new(2);
        let storage = new_storage();
        let [first, second] = [0, 1].map(|number| TestHost::new(&world, number, &storage, 77 + number as u64));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                first.world.wait_to_begin(0);
                let _ends = HostGuard(&first);
                let device: Arc<dyn BlockDevice> = first.clone();
                let pulse = Pulse::acquire(&device, &superblock(), [1; 16], &first.environment(0), true).unwrap();
                for _ in 0..10 {
                    first.pass(BEAT_INTERVAL);
                    if beats {
                        pulse.beat().unwrap();
                    }
                }
            });
            scope.spawn(|| {
                second.world.wait_to_begin(1);
                let _ends = HostGuard(&second);
                second.pass(Duration::from_secs(20));
                let device: Arc<dyn BlockDevice> = second.clone();
                match Pulse::acquire(&device, &superblock(), [2; 16], &second.environment(0), true) {
                    Ok(pulse) if !beats => pulse.ensure_held().unwrap(),
                    Err(PoolError::InUse(_)) if beats => {}
                    other => panic!("the first one beats: {beats}, {:?}", other.map(|_| ())),
                }
            });
            world.begin();
        });
    }
}

#[test]
fn a_host_that_was_replaced_finds_out_before_it_writes() {
    let (device, clock) = at_once();
    let first = Pulse::acquire(&device, &superblock(), [1; 16], &environment(&clock, 1), true).unwrap();
    first.ensure_held().unwrap();
    clock.sleep(Duration::from_secs(60));
    let second = Pulse::acquire(&device, &superblock(), [2; 16], &environment(&clock, 2), true).unwrap();
    assert!(matches!(first.ensure_held(), Err(PoolError::InUse(_))));
    assert!(matches!(first.beat(), Err(PoolError::InUse(_))));
    assert!(first.release().is_err(), "what is another's is not given free");
    second.ensure_held().unwrap();
}

#[test]
fn a_host_that_slept_and_was_not_replaced_goes_on() {
    let (device, clock) = at_once();
    let pulse = Pulse::acquire(&device, &superblock(), [1; 16], &environment(&clock, 1), true).unwrap();
    for _ in 0..3 {
        clock.sleep(Duration::from_secs(3600));
        pulse.ensure_held().unwrap();
    }
}

#[test]
fn opening_waits_for_nobody_and_the_first_write_for_half_a_second() {
    let (device, clock) = at_once();
    for (run, held_before) in [false, true].into_iter().enumerate() {
        let began = clock.monotonic();
        let pulse = Pulse::acquire(&device, &superblock(), [1; 16], &environment(&clock, run as u64), true).unwrap();
        let opened = clock.monotonic();
        assert!(opened - began < Duration::from_millis(1), "held by this host before: {held_before}");
        pulse.ensure_held().unwrap();
        let written = clock.monotonic();
        assert!(written - opened < Duration::from_millis(600));
        pulse.ensure_held().unwrap();
        assert!(clock.monotonic() - written < Duration::from_millis(1), "and the others for nothing");
    }
}

/// Storage that stalls one write of a mark for some seconds, while other things happen.
struct StallingStorage<F> {
    storage: Arc<MemoryDevice>,
    clock: Arc<ManualClock>,
    meanwhile: Mutex<Option<F>>,
}

impl<F: FnOnce() + Send> BlockDevice for StallingStorage<F> {
    fn block_count(&self) -> std::io::Result<u64> {
        self.storage.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> std::io::Result<()> {
        self.storage.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> std::io::Result<()> {
        let is_late = first == HEARTBEAT && self.clock.monotonic() > Duration::from_secs(60);
        if let Some(meanwhile) = is_late.then(|| self.meanwhile.lock().take()).flatten() {
            self.clock.sleep(Duration::from_secs(1));
            meanwhile();
        }
        self.storage.write(first, from)
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn discard(&self, _first: BlockNo, _count: u64) -> std::io::Result<()> {
        Ok(())
    }
}

/// Opens a pool, and lets its storage stall while `meanwhile` happens. Returns the result and the duration of the next
/// beat.
fn beat_late(
    meanwhile: impl FnOnce(&Arc<dyn BlockDevice>, &Environment) + Send + 'static,
) -> (crate::Result<()>, Duration) {
    let (storage, clock) = (new_storage(), Arc::<ManualClock>::default());
    let (seam, others): (Arc<dyn BlockDevice>, _) = (storage.clone(), environment(&clock, 2));
    let meanwhile = Mutex::new(Some(move || meanwhile(&seam, &others)));
    let device: Arc<dyn BlockDevice> = Arc::new(StallingStorage { storage, clock: Arc::clone(&clock), meanwhile });
    let pulse = Pulse::acquire(&device, &superblock(), [1; 16], &environment(&clock, 1), true).unwrap();
    pulse.ensure_held().unwrap();
    clock.sleep(Duration::from_secs(100));
    let began = clock.monotonic();
    let beaten = pulse.beat();
    let took = clock.monotonic() - began;
    if beaten.is_ok() {
        pulse.ensure_held().unwrap();
        let waited = clock.monotonic() - began - took;
        assert!(waited < Duration::from_millis(1), "the next write waits for nothing: {waited:?}");
    }
    (beaten, took)
}

/// Regression: a disk that did not answer for some seconds stopped the pool, and with it every machine on it, even on
/// hosts without neighbours.
#[test]
fn storage_that_stalls_costs_a_pause_and_not_the_pool() {
    let (beaten, took) = beat_late(|_, _| ());
    beaten.unwrap();
    assert!((WATCH..WATCH * 2).contains(&took), "{took:?}");
}

#[test]
fn a_host_that_stalled_finds_the_trace_of_one_whose_mark_it_has_hidden() {
    for is_closed in [false, true] {
        let (beaten, _) = beat_late(move |device, environment| {
            let pulse = Pulse::acquire(device, &superblock(), [2; 16], environment, true).unwrap();
            pulse.ensure_held().unwrap();
            if is_closed {
                pulse.release().unwrap();
            }
        });
        let error = beaten.unwrap_err().to_string();
        assert!(error.contains("another host had it meanwhile"), "{error}");
    }
}

#[test]
fn a_host_that_stalled_goes_on_if_the_one_that_came_changed_nothing() {
    let (beaten, _) = beat_late(|device, environment| {
        drop(Pulse::acquire(device, &superblock(), [2; 16], environment, true).unwrap());
    });
    beaten.unwrap();
}
