//! A store that repeats calls while the store below it does not answer.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use onefold_block::{Clock, Random, Timestamp};

use super::{ByteRange, Creation, ListedObject, ObjectName, Store, StoreError};

/// How long calls are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Pause before the first repetition. Each further pause is twice as long.
    pub first_pause: Duration,
    /// Upper bound of a pause.
    pub longest_pause: Duration,
    /// Time since the first failure after which a call is not repeated again.
    pub patience: Duration,
}

impl Default for RetryPolicy {
    /// Returns a policy that outlasts ten minutes without a network.
    fn default() -> RetryPolicy {
        RetryPolicy {
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(20),
            patience: Duration::from_secs(900),
        }
    }
}

/// Receives the error of a call before the pause that precedes its repetition.
pub type WaitHook = Box<dyn Fn(&StoreError, Duration) + Send + Sync>;

/// A store that repeats calls which fail with [`StoreError::Unavailable`], after pauses that grow up to a bound. Half
/// of each pause is random, so that hosts that lost a store at the same time do not return to it at the same time.
///
/// A repeated creation may find the object of its own earlier attempt, and then returns [`Creation::Exists`]. The
/// contract of [`Store::create`] allows that: its caller compares the bytes.
pub struct RetryingStore {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    policy: RetryPolicy,
    on_wait: WaitHook,
}

impl fmt::Debug for RetryingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryingStore")
            .field("inner", &self.inner)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl RetryingStore {
    /// Returns a store that repeats calls on `inner`.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        policy: RetryPolicy,
        on_wait: WaitHook,
    ) -> RetryingStore {
        RetryingStore { inner, clock, random, policy, on_wait }
    }

    /// Makes a call that changes something until the answer is not [`StoreError::Unavailable`], or patience ends.
    fn change<T>(&self, call: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.repeat(true, call)
    }

    /// Makes a call that changes nothing, likewise.
    fn look<T>(&self, call: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.repeat(false, call)
    }

    fn repeat<T>(&self, changes: bool, call: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut began = None;
        let mut pause = self.policy.first_pause.min(self.policy.longest_pause);
        loop {
            let error = match (call(), began) {
                (Err(error @ StoreError::Unavailable { .. }), _) => error,
                // An earlier attempt may have taken effect, so a refusal no longer says that nothing happened.
                (Err(StoreError::Refused { action, name, source, .. }), Some(_)) if changes => {
                    return Err(StoreError::GaveUp { action, name, source });
                }
                (Err(StoreError::NotMade { name, source }), Some(_)) => {
                    return Err(StoreError::GaveUp { action: "create", name, source });
                }
                (Err(StoreError::Stopped { action, name }), Some(_)) if changes => {
                    return Err(StoreError::GaveUp { action, name, source: io::ErrorKind::Interrupted.into() });
                }
                (answer, _) => return answer,
            };
            let now = self.clock.monotonic();
            let waited = now.saturating_sub(*began.get_or_insert(now));
            let left = self.policy.patience.saturating_sub(waited);
            if left.is_zero() {
                return Err(error.given_up());
            }
            let chosen = self.jitter(pause).min(left);
            (self.on_wait)(&error, chosen);
            self.clock.sleep(chosen);
            pause = pause.saturating_mul(2).min(self.policy.longest_pause);
        }
    }

    /// Returns half of a pause plus a random part of the other half. Without randomness, returns the whole pause.
    fn jitter(&self, pause: Duration) -> Duration {
        let mut bytes = [0; 4];
        match self.random.fill(&mut bytes) {
            Ok(()) => pause / 2 + (pause / 2).mul_f64(f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)),
            Err(_) => pause,
        }
    }
}

impl Store for RetryingStore {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        self.look(|| self.inner.get(name, range))
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        self.change(|| self.inner.put(name, parts))
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        self.change(|| self.inner.create(name, bytes))
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        self.look(|| self.inner.list(prefix, after))
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.change(|| self.inner.delete(name))
    }

    fn place(&self) -> Vec<u8> {
        self.inner.place()
    }

    fn remove_leftovers(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.change(|| self.inner.remove_leftovers(before))
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::clock::ManualClock;
    use onefold_block::random::SeededRandom;
    use parking_lot::Mutex;

    use super::*;
    use crate::store::faulty::FaultyStore;
    use crate::store::hooked::HookedStore;
    use crate::store::{MemoryStore, Refusal, StoppableStore};

    fn name() -> ObjectName {
        ObjectName::new("packs/00/11").unwrap()
    }

    /// Returns a store without a network until a moment of its clock. `takes_effect` says whether calls take effect
    /// although their answers are lost, `refuses` whether the store refuses its user from that moment on.
    fn cut_until(until: Duration, clock: &Arc<ManualClock>, takes_effect: bool, refuses: bool) -> HookedStore {
        let (before, after) = (Arc::clone(clock), Arc::clone(clock));
        const ACTION: &str = "reach";
        let lost = |name: &str| {
            let (name, source) = (name.to_owned(), io::Error::other("no network"));
            Err(StoreError::Unavailable { action: ACTION, name, source })
        };
        let store = HookedStore::new(Arc::new(MemoryStore::default()), move |_, name| {
            let is_cut = before.monotonic() < until;
            match (is_cut, refuses) {
                (true, _) if !takes_effect => lost(name),
                (false, true) => {
                    let (why, source) = (Refusal::Denied, io::Error::other("403"));
                    Err(StoreError::Refused { action: ACTION, name: name.to_owned(), why, source })
                }
                _ => Ok(()),
            }
        });
        store.and_after(move |_, name, _| if after.monotonic() < until { lost(name) } else { Ok(()) })
    }

    /// Pauses before repetitions.
    type Pauses = Arc<Mutex<Vec<Duration>>>;

    fn cut(seconds: u64, takes_effect: bool, refuses: bool) -> (RetryingStore, Pauses, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::starting_at(1000));
        let until = clock.monotonic() + Duration::from_secs(seconds);
        let inner = cut_until(until, &clock, takes_effect, refuses);
        let pauses = Pauses::default();
        let noted = Arc::clone(&pauses);
        let store = RetryingStore::new(
            Arc::new(inner),
            Arc::clone(&clock) as Arc<dyn Clock>,
            Arc::new(SeededRandom::new(7)),
            RetryPolicy::default(),
            Box::new(move |_, pause| noted.lock().push(pause)),
        );
        (store, pauses, clock)
    }

    #[test]
    fn ten_minutes_without_a_network_are_waited_for_in_growing_uneven_pauses() {
        let (store, pauses, _) = cut(600, false, false);
        store.put(&name(), &[b"pack"]).unwrap();
        assert_eq!(store.get(&name(), ByteRange::Whole).unwrap(), b"pack");
        let pauses = pauses.lock().clone();
        let total: Duration = pauses.iter().sum();
        assert!((600..640).contains(&total.as_secs()), "{total:?}");
        assert!(pauses.len() < 100, "{}", pauses.len());
        assert!(pauses[0] <= Duration::from_millis(200));
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(20)), "{pauses:?}");
        let late = &pauses[10..];
        assert!(late.iter().all(|pause| *pause >= Duration::from_secs(10)), "{late:?}");
        assert!(late.windows(2).any(|two| two[0] != two[1]), "{late:?}");
    }

    #[test]
    fn patience_has_an_end() {
        let (store, _, clock) = cut(u64::from(u32::MAX), false, false);
        let began = clock.monotonic();
        let error = store.list("", None).unwrap_err();
        assert!(matches!(error, StoreError::GaveUp { .. }), "{error}");
        let waited = clock.monotonic() - began;
        assert!((900..901).contains(&waited.as_secs()), "{waited:?}");
    }

    #[test]
    fn a_creation_whose_answer_was_lost_finds_its_own_object() {
        let (store, _, _) = cut(1, true, false);
        assert_eq!(store.create(&name(), b"entry").unwrap(), Creation::Exists);
        assert_eq!(store.get(&name(), ByteRange::Whole).unwrap(), b"entry");
    }

    #[test]
    fn a_refusal_ends_a_call_at_once_and_is_in_doubt_after_a_lost_answer() {
        let (store, pauses, _) = cut(0, false, true);
        assert!(matches!(store.create(&name(), b"x"), Err(StoreError::Refused { .. })));
        assert!(pauses.lock().is_empty());
        type Change = fn(&RetryingStore) -> Result<(), StoreError>;
        let changes: [Change; 2] = [|store| store.create(&name(), b"x").map(drop), |store| store.delete(&name())];
        for change in changes {
            let (store, _, _) = cut(1, true, true);
            assert!(matches!(change(&store), Err(StoreError::GaveUp { .. })));
        }
        // A call that changes nothing is in no doubt.
        let (store, _, _) = cut(1, false, true);
        let error = store.get(&name(), ByteRange::Whole).unwrap_err();
        assert!(matches!(error, StoreError::Refused { why: Refusal::Denied, .. }), "{error:?}");
        let (store, _, _) = cut(1, false, true);
        assert!(matches!(store.list("", None), Err(StoreError::Refused { .. })));
    }

    #[test]
    fn a_stop_ends_the_waiting_and_leaves_only_a_change_in_doubt() {
        let longest_pause = RetryPolicy::default().longest_pause;
        for stops_after in [0, 30] {
            let clock = Arc::new(ManualClock::starting_at(0));
            let stop = clock.monotonic() + Duration::from_secs(stops_after);
            let is_stopped = {
                let clock = Arc::clone(&clock);
                move || clock.monotonic() >= stop
            };
            let cut = cut_until(Duration::MAX, &clock, false, false);
            let store = RetryingStore::new(
                Arc::new(StoppableStore::new(Arc::new(cut), Box::new(is_stopped), Arc::default())),
                Arc::clone(&clock) as Arc<dyn Clock>,
                Arc::new(SeededRandom::new(1)),
                RetryPolicy::default(),
                Box::new(|_, _| {}),
            );
            let created = store.create(&name(), b"x").unwrap_err();
            assert_eq!(created.had_no_effect(), stops_after == 0, "{created}");
            assert!(created.is_final(), "{created}");
            assert!(matches!(store.get(&name(), ByteRange::Whole), Err(StoreError::Stopped { .. })));
            assert!(clock.monotonic() < stop + longest_pause, "{stops_after}");
        }
    }

    #[test]
    fn lost_late_and_doubled_answers_are_repeated_until_all_objects_are_there() {
        for seed in 0..50 {
            let memory = Arc::new(MemoryStore::default());
            let faulty = FaultyStore::new(Arc::clone(&memory) as Arc<dyn Store>, Arc::default(), seed, 3);
            let store = RetryingStore::new(
                Arc::new(faulty),
                Arc::new(ManualClock::starting_at(0)),
                Arc::new(SeededRandom::new(seed)),
                RetryPolicy::default(),
                Box::new(|_, _| {}),
            );
            for number in 0..20_u8 {
                let name = ObjectName::new(&format!("packs/00/{number:02}")).unwrap();
                store.put(&name, &[&[number]]).unwrap();
                assert_eq!(store.get(&name, ByteRange::Whole).unwrap(), [number]);
            }
            assert_eq!(store.list("packs/", None).unwrap().len(), 20);
        }
    }
}
