//! A store that fails, for tests: answers are lost, calls take effect late or twice, and its user may be killed at any
//! call.

use std::fmt;
use std::io;
use std::sync::Arc;

use onefold_block::random::SeededRandom;
use parking_lot::Mutex;

use super::{ByteRange, Creation, ListedObject, ObjectName, Store, StoreError};

/// Changes whose answer was lost before they took effect. They may take effect before any later call of any user.
#[derive(Debug, Default)]
pub(crate) struct Late(Mutex<Vec<DelayedChange>>);

#[derive(Clone, Debug)]
struct DelayedChange {
    name: ObjectName,
    bytes: Vec<u8>,
    change: Change,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Create,
    Put,
    Delete,
}

/// A callback that runs during a call.
type Meanwhile = Box<dyn FnMut(&ObjectName) + Send>;

/// One user's view of a store.
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    late: Arc<Late>,
    random: SeededRandom,
    /// One call in this many fails; 0 for none.
    one_in: u64,
    state: Mutex<Calls>,
    /// Called before each creation and put.
    meanwhile: Mutex<Option<Meanwhile>>,
}

#[derive(Debug, Default)]
struct Calls {
    count: u64,
    /// Number of the call in which the user is killed. Each later call fails.
    killed_at: Option<u64>,
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The fate of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
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

impl FaultyStore {
    pub(crate) fn new(inner: Arc<dyn Store>, late: Arc<Late>, seed: u64, one_in: u64) -> FaultyStore {
        let (random, state, meanwhile) = (SeededRandom::new(seed), Mutex::default(), Mutex::default());
        FaultyStore { inner, late, random, one_in, state, meanwhile }
    }

    /// Kills the user in the last of this many further calls.
    pub(crate) fn kill_after(&self, calls: u64) {
        let mut state = self.state.lock();
        state.killed_at = Some(state.count + calls);
    }

    /// Lets calls succeed again.
    pub(crate) fn revive(&self) {
        self.state.lock().killed_at = None;
    }

    /// Returns how many calls were made.
    pub(crate) fn calls(&self) -> u64 {
        self.state.lock().count
    }

    pub(crate) fn meanwhile(&self, call: Meanwhile) {
        *self.meanwhile.lock() = Some(call);
    }

    /// Runs the callback before an object is made. Changes by the callback do not cause further callbacks.
    fn before(&self, name: &ObjectName) {
        let meanwhile = self.meanwhile.lock().take();
        if let Some(mut meanwhile) = meanwhile {
            meanwhile(name);
            *self.meanwhile.lock() = Some(meanwhile);
        }
    }

    /// Decides the fate of the next call.
    fn fate(&self) -> Fate {
        let mut state = self.state.lock();
        state.count += 1;
        match state.killed_at {
            Some(killed) if state.count > killed => return Fate::Refused,
            Some(killed) if state.count == killed => {
                return [Fate::Refused, Fate::AnswerLost, Fate::Late][usize::try_from(self.random.below(3)).unwrap()];
            }
            _ => {}
        }
        drop(state);
        if self.random.below(4) == 0 {
            self.late.happen(&*self.inner, &self.random);
        }
        if self.one_in == 0 || self.random.below(self.one_in) > 0 {
            return Fate::Whole;
        }
        [Fate::Refused, Fate::AnswerLost, Fate::Late, Fate::Doubled][usize::try_from(self.random.below(4)).unwrap()]
    }

    fn change<T>(
        &self,
        name: &ObjectName,
        bytes: &[u8],
        change: Change,
        mut call: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match self.fate() {
            Fate::Whole => call(),
            Fate::Refused => Err(failure(name)),
            Fate::AnswerLost => call().and_then(|_| Err(failure(name))),
            Fate::Late => {
                self.late.0.lock().push(DelayedChange { name: name.clone(), bytes: bytes.to_vec(), change });
                Err(failure(name))
            }
            Fate::Doubled => call().and_then(|_| call()),
        }
    }

    fn read<T>(&self, name: &str, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        match self.fate() {
            Fate::Whole | Fate::Doubled => call(),
            _ => Err(StoreError::Unavailable {
                action: "read",
                name: name.to_owned(),
                source: io::Error::other("a fault"),
            }),
        }
    }
}

fn failure(name: &ObjectName) -> StoreError {
    StoreError::Unavailable { action: "write", name: name.to_string(), source: io::Error::other("a fault") }
}

impl Late {
    /// Lets one of the delayed changes take effect.
    fn happen(&self, inner: &dyn Store, random: &SeededRandom) {
        let mut late = self.0.lock();
        if late.is_empty() {
            return;
        }
        let number = usize::try_from(random.below(late.len() as u64)).unwrap();
        let DelayedChange { name, bytes, change } = late.swap_remove(number);
        drop(late);
        match change {
            Change::Create => {
                inner.create(&name, &bytes).unwrap();
            }
            Change::Put => inner.put(&name, &[&bytes]).unwrap(),
            Change::Delete => inner.delete(&name).unwrap(),
        }
    }
}

impl Store for FaultyStore {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        self.read(name.as_str(), || self.inner.get(name, range))
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        self.before(name);
        self.change(name, &parts.concat(), Change::Put, || self.inner.put(name, parts))
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        self.before(name);
        self.change(name, bytes, Change::Create, || self.inner.create(name, bytes))
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        self.read(prefix, || self.inner.list(prefix, after))
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.change(name, &[], Change::Delete, || self.inner.delete(name))
    }
}
