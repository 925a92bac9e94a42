//! The simulated store, as each actor sees it: calls fail, take effect late or twice, and listings lag behind.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_block::{Clock, Timestamp};
use parking_lot::{Mutex, MutexGuard};

use super::accidents::Accidents;
use super::oracle::{Oracle, Violation};
use super::scheduler::Scheduler;
use super::{Counters, Options};
use crate::store::{ByteRange, Creation, ListedObject, MemoryStore, ObjectName, Store, StoreError};

/// Everything that actors share.
pub(super) struct World {
    pub(super) options: Options,
    pub(super) scheduler: Scheduler,
    pub(super) sea: Mutex<Sea>,
    /// Contents of units that many images have.
    pub(super) common: Vec<Vec<u8>>,
}

/// State that only the actor whose turn it is touches.
pub(super) struct Sea {
    pub(super) memory: Arc<MemoryStore>,
    pub(super) oracle: Oracle,
    pub(super) random: SeededRandom,
    pub(super) counters: Counters,
    pub(super) failure: Option<Violation>,
    /// Differs between runs that differ.
    pub(super) trail: u64,
    options: Options,
    pub(super) calls: u64,
    pub(super) accidents: Accidents,
    clock: Arc<ManualClock>,
    late: Vec<(ObjectName, Change)>,
    /// The last changes, newest last: when, and the object's length before and after.
    recent: VecDeque<Recent>,
}

#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>),
    Create(Vec<u8>),
    Delete,
}

struct Recent {
    call: u64,
    name: ObjectName,
    before: Option<ListedObject>,
}

/// The fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Whole,
    /// The call fails without effect.
    Refused,
    /// The call fails, but has taken effect.
    AnswerLost,
    /// The call fails, and takes effect later.
    Late,
    /// The call takes effect twice, and returns the second answer.
    Doubled,
}

const FAULTS: [Fate; 4] = [Fate::Refused, Fate::AnswerLost, Fate::Late, Fate::Doubled];
/// Number of changes by which a listing may lag at most.
const RECENT_MAX: usize = 64;

impl World {
    pub(super) fn new(
        options: Options,
        memory: Arc<MemoryStore>,
        clock: Arc<ManualClock>,
        oracle: Oracle,
        common: Vec<Vec<u8>>,
    ) -> World {
        let random = SeededRandom::new(options.seed);
        let scheduler = Scheduler::new(options.actors, random.next_u64());
        let sea = Sea {
            memory,
            oracle,
            random,
            counters: Counters::default(),
            failure: None,
            trail: 0,
            options,
            calls: 0,
            accidents: Accidents::default(),
            clock,
            late: Vec::new(),
            recent: VecDeque::new(),
        };
        World { options, scheduler, sea: Mutex::new(sea), common }
    }

    pub(super) fn is_over(&self) -> bool {
        let sea = self.sea.lock();
        sea.calls >= self.options.calls || sea.failure.is_some()
    }

    /// Ends the simulation, if something is wrong.
    pub(super) fn check(&self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.sea.lock().failure.get_or_insert(violation);
        }
    }
}

impl Sea {
    /// Applies a change, and has the oracle look at it.
    fn apply(&mut self, name: &ObjectName, change: &Change) -> Creation {
        let before = self.memory.get(name, ByteRange::Whole).ok();
        // A capture that makes sure of a pack, which a collection deletes meanwhile, leaves an empty object.
        let was_empty = before.as_ref().is_some_and(Vec::is_empty);
        let listed = self.memory.list(name.as_str(), None).unwrap().into_iter().find(|listed| listed.name == *name);
        let created = match change {
            // It would heal what has rotted.
            Change::Put(_) if self.accidents.is_rotten(name) => Creation::New,
            Change::Put(bytes) => {
                if !was_empty && before.as_ref().is_some_and(|before| before != bytes) {
                    self.failure.get_or_insert(format!("`{name}` is overwritten"));
                }
                self.memory.put(name, &[bytes]).unwrap();
                Creation::New
            }
            Change::Create(bytes) => self.memory.create(name, bytes).unwrap(),
            Change::Delete => {
                self.memory.delete(name).unwrap();
                self.accidents.deleted(name);
                Creation::New
            }
        };
        let is_filled = was_empty && matches!(change, Change::Put(_));
        let has_changed = is_filled || before.is_some() == matches!(change, Change::Delete);
        if has_changed {
            self.counters.changes += 1;
            self.recent.push_back(Recent { call: self.calls, name: name.clone(), before: listed });
            self.recent.drain(..self.recent.len().saturating_sub(RECENT_MAX));
            if let Err(violation) = self.oracle.changed(&self.memory, name) {
                self.failure.get_or_insert(violation);
            }
        }
        created
    }

    /// Lets one of the late changes take effect, if there is one.
    pub(super) fn let_late_happen(&mut self) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let number = usize::try_from(self.random.below(self.late.len() as u64)).unwrap();
        let (name, change) = self.late.swap_remove(number);
        self.counters.late += 1;
        self.apply(&name, &change);
        true
    }

    /// Lets time pass, in seconds.
    pub(super) fn pass(&mut self, seconds: u64) {
        self.clock.advance_seconds(u32::try_from(seconds).unwrap());
    }

    /// Returns a number below a bound of the options; 0 if that is 0.
    fn chance(&self, one_in: u64) -> bool {
        one_in > 0 && self.random.below(one_in) == 0
    }

    /// Returns what a listing said some calls ago.
    fn listed(&self, prefix: &str, after: Option<&ObjectName>) -> Vec<ListedObject> {
        if self.calls >= self.options.calls {
            return self.memory.list(prefix, after).unwrap();
        }
        let since = self.calls.saturating_sub(self.random.below(self.options.lag_max + 1));
        let mut listed = self.memory.list(prefix, after).unwrap();
        for Recent { name, before, .. } in self.recent.iter().rev().take_while(|recent| recent.call > since) {
            listed.retain(|listed| listed.name != *name);
            let is_asked = name.as_str().starts_with(prefix) && after.is_none_or(|after| name > after);
            listed.extend(before.clone().filter(|_| is_asked));
        }
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        listed
    }
}

/// Counts of causes that may make a deed fail, as they were when the deed began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outset {
    faults: u64,
    harmed: u64,
    /// Number of entries that called units lost.
    losses: u64,
    /// Number of changes after which some image lacked a unit.
    lacking: u64,
    lacks_units: bool,
    hit_a_segment: bool,
}

impl Outset {
    /// Returns whether an image lacked a unit at that moment.
    pub(super) fn lacks_units(&self) -> bool {
        self.lacks_units
    }
}

/// One life of an actor: its calls until it dies.
#[derive(Clone)]
pub(super) struct Life {
    world: Arc<World>,
    actor: usize,
    is_dead: Arc<AtomicBool>,
    faults: Arc<AtomicU64>,
    /// How many calls read a pack that is rotten, away or unreadable.
    harmed: Arc<AtomicU64>,
    /// Whether it holds the right to delete.
    may_delete: bool,
    /// How far its clock is from the world's, in seconds.
    skew: i64,
    /// Whether all others have ended.
    is_last: bool,
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Life({})", self.actor)
    }
}

impl Life {
    pub(super) fn new(world: &Arc<World>, actor: usize, may_delete: bool, skew: i64) -> Life {
        let (is_dead, faults, harmed) = (Arc::default(), Arc::default(), Arc::default());
        Life { world: Arc::clone(world), actor, is_dead, faults, harmed, may_delete, skew, is_last: false }
    }

    /// An observer whose calls neither fail nor let others go first.
    pub(super) fn last(world: &Arc<World>) -> Life {
        Life { is_last: true, ..Life::new(world, usize::MAX, true, 0) }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Returns what may make a deed fail that begins now.
    pub(super) fn outset(&self) -> Outset {
        let sea = self.world.sea.lock();
        Outset {
            faults: self.faults.load(Ordering::Relaxed),
            harmed: self.harmed.load(Ordering::Relaxed),
            losses: sea.oracle.losses(),
            lacking: sea.oracle.lacking(),
            lacks_units: sea.oracle.lacks_units(),
            hit_a_segment: sea.accidents.hit_a_segment(),
        }
    }

    /// Returns whether nothing explains that a deed fails: since it began, none of its calls has failed or read a
    /// damaged pack, and by the ledger no image lacked a unit at any moment. While a segment is damaged, a unit of a
    /// pack that was away is not looked for each time.
    pub(super) fn is_calm(&self, outset: Outset) -> bool {
        !outset.lacks_units && !outset.hit_a_segment && self.outset() == outset
    }

    /// Begins a call: others go first, perhaps for long. Returns nothing where this one is dead.
    fn arrive(&self, name: &str) -> Option<(MutexGuard<'_, Sea>, Fate)> {
        if self.is_last {
            return Some((self.world.sea.lock(), Fate::Whole));
        }
        if self.is_dead() {
            return None;
        }
        let options = self.world.options;
        let sleep = {
            let sea = self.world.sea.lock();
            if sea.chance(options.sleep_in) { sea.random.below(options.sleep_max) } else { 0 }
        };
        self.world.scheduler.pause(self.actor, sleep);
        if self.world.is_over() {
            self.is_dead.store(true, Ordering::Relaxed);
            return None;
        }
        let mut sea = self.world.sea.lock();
        sea.calls += 1;
        sea.counters.sleeps += u64::from(sleep > 0);
        let passed = sea.random.below(options.step_seconds_max + 1);
        sea.pass(passed);
        if sea.chance(4) {
            sea.let_late_happen();
        }
        if sea.chance(options.accident_in) {
            sea.accident();
        }
        if sea.chance(options.return_in) {
            sea.let_return();
        }
        let fate = self.fate(&mut sea);
        let heard = blake3::hash(name.as_bytes()).as_bytes()[0];
        sea.trail = sea.trail.rotate_left(7) ^ u64::from(heard) ^ (self.actor as u64) << 8 ^ (fate as u64) << 24;
        Some((sea, fate))
    }

    fn fate(&self, sea: &mut Sea) -> Fate {
        let options = self.world.options;
        let fault = FAULTS[usize::try_from(sea.random.below(4)).unwrap()];
        if sea.chance(options.death_in) {
            self.is_dead.store(true, Ordering::Relaxed);
            sea.counters.deaths += 1;
            return fault;
        }
        if !sea.chance(options.fault_in) {
            return Fate::Whole;
        }
        self.faults.fetch_add(u64::from(fault != Fate::Doubled), Ordering::Relaxed);
        fault
    }

    fn change(&self, name: &ObjectName, change: Change) -> Result<Creation, StoreError> {
        let Some((mut sea, fate)) = self.arrive(name.as_str()) else { return Err(failed("write", name.as_str())) };
        if matches!(change, Change::Delete) && !self.may_delete {
            sea.failure.get_or_insert(format!("an actor without that right deletes `{name}`"));
        }
        let answer = match fate {
            // Some stores say for certain that nothing was made.
            Fate::Refused if sea.chance(2) => return Err(not_made(name)),
            Fate::Refused => None,
            Fate::Late => {
                sea.late.push((name.clone(), change));
                None
            }
            Fate::Whole => Some(sea.apply(name, &change)),
            Fate::AnswerLost => {
                sea.apply(name, &change);
                None
            }
            Fate::Doubled => {
                sea.apply(name, &change);
                Some(sea.apply(name, &change))
            }
        };
        answer.filter(|_| !self.is_dead()).ok_or_else(|| failed("write", name.as_str()))
    }

    fn read<T>(&self, name: &str, read: impl FnOnce(&Sea) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match self.arrive(name) {
            Some((sea, Fate::Whole | Fate::Doubled)) if !self.is_dead() => read(&sea),
            _ => Err(failed("read", name)),
        }
    }
}

fn not_made(name: &ObjectName) -> StoreError {
    StoreError::NotMade { name: name.to_string(), source: io::Error::other("a fault") }
}

fn failed(action: &'static str, name: &str) -> StoreError {
    StoreError::Io { action, name: name.to_owned(), source: io::Error::other("a fault") }
}

impl Store for Life {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        self.read(name.as_str(), |sea| {
            self.harmed.fetch_add(u64::from(sea.accidents.is_harmed(name, sea.calls)), Ordering::Relaxed);
            match sea.accidents.is_unreadable(name, sea.calls) {
                true => Err(failed("read", name.as_str())),
                false => sea.memory.get(name, range),
            }
        })
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        self.change(name, Change::Put(parts.concat())).map(|_| ())
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        self.change(name, Change::Create(bytes.to_vec()))
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        self.read(prefix, |sea| Ok(sea.listed(prefix, after)))
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.change(name, Change::Delete).map(|_| ())
    }
}

impl Clock for Life {
    fn now(&self) -> Timestamp {
        let now = self.world.sea.lock().clock.now();
        Timestamp { seconds: now.seconds + self.skew, ..now }
    }

    fn monotonic(&self) -> Duration {
        self.world.sea.lock().clock.monotonic()
    }

    fn sleep(&self, _: Duration) {
        if !self.is_dead() && !self.is_last {
            self.world.scheduler.pause(self.actor, 5);
        }
    }
}
