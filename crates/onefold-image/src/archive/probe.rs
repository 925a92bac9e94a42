//! Tests whether a store keeps its contract, and measures it. A store can fail the test without being unfit for every
//! user: a capture needs no right to remove objects, for example.

use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use onefold_block::{Clock, Random};

use super::objects::random_bytes;
use super::{ArchiveError, ledger};
use crate::store::{ByteRange, Creation, ObjectName, Store, StoreError};

/// Prefix of the names of the objects that a test creates.
pub(super) const PROBES: &str = "probe/";
/// Number of threads that create one object at the same time.
pub const RACERS: u8 = 8;
/// Number of races.
pub const RACES: u32 = 5;
/// Number of requests of each kind whose time is measured.
const TIMED: usize = 9;
/// Number of large objects that are written and read.
const LARGE: u32 = 3;
/// Maximum length of a large object: what a store must take in one put.
pub const LARGE_BYTES_MAX: u64 = 64 << 20;

/// Abilities and speed of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeReport {
    /// What was tested, in words, and why it failed.
    pub findings: Vec<(&'static str, Result<(), String>)>,
    /// Median time to write, read and list a small object.
    pub small: Option<SmallTimes>,
    /// Length of the large objects in bytes, and their rates in bytes a second.
    pub large: Option<LargeRates>,
}

/// Median times of requests for small objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmallTimes {
    /// Time to write one.
    pub put: Duration,
    /// Time to read one.
    pub get: Duration,
    /// Time to list it.
    pub list: Duration,
}

/// Rates of large objects, one request at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargeRates {
    /// Length of an object.
    pub object_bytes: u64,
    /// Bytes written in a second.
    pub put_bytes_per_second: u64,
    /// Bytes read in a second.
    pub get_bytes_per_second: u64,
}

impl ProbeReport {
    /// Returns whether the store can hold an archive.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        self.findings.iter().all(|(_, result)| result.is_ok())
    }
}

/// Tests creation, ranges, listing and deletion on an object of its own.
pub(super) fn check(store: &dyn Store, random: &dyn Random) -> Result<(), ArchiveError> {
    let (name, bytes) = new_probe(random)?;
    check_creation(store, &name, &bytes)?;
    check_ranges(store, &name, &bytes)?;
    check_listing(store, &name)?;
    check_deletion(store, &name)
}

/// Has several threads create one object at the same time, several times over.
///
/// # Errors
/// When more than one of them succeeds, or the store fails.
pub fn race(store: &dyn Store, random: &dyn Random) -> Result<(), ArchiveError> {
    for _ in 0..RACES {
        let (name, bytes) = new_probe(random)?;
        let answers: Vec<Result<Creation, StoreError>> = thread::scope(|scope| {
            let create = |racer| {
                let (name, mut bytes) = (&name, bytes.to_vec());
                bytes.push(racer);
                move || store.create(name, &bytes)
            };
            let racing: Vec<_> = (0..RACERS).map(|racer| scope.spawn(create(racer))).collect();
            racing
                .into_iter()
                .map(|racer| racer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let mut won = Vec::new();
        for (racer, answer) in (0..RACERS).zip(answers) {
            if answer? == Creation::New {
                won.push(racer);
            }
        }
        let stored = store.get(&name, ByteRange::Whole)?;
        match store.delete(&name) {
            // Another test finds that.
            Err(StoreError::Refused { .. }) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
        match won[..] {
            // An answer may have been lost and its call repeated, which then finds its own object.
            [] => {}
            [racer] if stored.last() == Some(&racer) => {}
            [_] => return Err(unfit("the object of the one creation that succeeded in a race was replaced")),
            _ => return Err(unfit("several creations of one object succeed at the same time")),
        }
    }
    Ok(())
}

/// Tests and measures a store, on objects of its own, which it removes again. `large_bytes` is the length of the large
/// ones, at most [`LARGE_BYTES_MAX`].
///
/// # Errors
/// When the store fails for another reason than the one that is tested, or there is no randomness.
pub fn probe(
    store: &dyn Store,
    clock: &dyn Clock,
    random: &dyn Random,
    large_bytes: u64,
) -> Result<ProbeReport, ArchiveError> {
    let mut report = ProbeReport::default();
    let (name, bytes) = new_probe(random)?;
    let mut find = |what, result: Result<(), ArchiveError>| -> Result<(), ArchiveError> {
        let result = match result {
            Err(ArchiveError::Unfit { what }) => Err(what.to_owned()),
            Err(ArchiveError::Store(StoreError::Refused { why, .. })) => Err(why.to_string()),
            Err(error) => return Err(error),
            Ok(()) => Ok(()),
        };
        report.findings.push((what, result));
        Ok(())
    };
    find("creation only if absent", check_creation(store, &name, &bytes))?;
    // A refused creation has made nothing to test the rest with.
    store.put(&name, &[&bytes])?;
    find("one winner of eight at once", race(store, random))?;
    find("ranges", check_ranges(store, &name, &bytes))?;
    find("listing after a write", check_listing(store, &name))?;
    find("removal", check_deletion(store, &name))?;
    report.small = Some(small_times(store, clock, &name)?);
    report.large = Some(large_rates(store, clock, &name, large_bytes.min(LARGE_BYTES_MAX))?);
    match store.delete(&name) {
        // The findings say so.
        Err(StoreError::Refused { .. }) | Ok(()) => Ok(report),
        Err(error) => Err(error.into()),
    }
}

fn unfit(what: &'static str) -> ArchiveError {
    ArchiveError::Unfit { what }
}

/// Returns the name of a new object for a test, and its content.
fn new_probe(random: &dyn Random) -> Result<(ObjectName, [u8; 8]), ArchiveError> {
    let bytes: [u8; 8] = random_bytes(random)?;
    let name = format!("{PROBES}{:016x}", u64::from_le_bytes(bytes));
    Ok((ObjectName::new(&name).expect("digits make a name"), bytes))
}

fn check_creation(store: &dyn Store, name: &ObjectName, bytes: &[u8; 8]) -> Result<(), ArchiveError> {
    let created = ledger::create_exactly(store, None, name, bytes).map_err(|error| match error {
        ArchiveError::Store(StoreError::NotMade { source, .. }) if source.kind() == ErrorKind::Unsupported => {
            unfit("it cannot create an object only if none of that name exists")
        }
        error => error,
    });
    if !created? {
        return Err(unfit("it says that an object exists, and returns another"));
    }
    if store.create(name, b"another")? != Creation::Exists || store.get(name, ByteRange::Whole)? != bytes {
        return Err(unfit("it makes an object of a name that exists"));
    }
    Ok(())
}

fn check_ranges(store: &dyn Store, name: &ObjectName, bytes: &[u8; 8]) -> Result<(), ArchiveError> {
    let part = store.get(name, ByteRange::From { offset: 2, length_bytes: 3 })?;
    let beyond = store.get(name, ByteRange::From { offset: 6, length_bytes: 100 })?;
    let last = store.get(name, ByteRange::Last { length_bytes: 5 })?;
    if (&part[..], &beyond[..], &last[..]) != (&bytes[2..5], &bytes[6..], &bytes[3..]) {
        return Err(unfit("it returns other bytes of an object than the range that was asked for"));
    }
    Ok(())
}

fn check_listing(store: &dyn Store, name: &ObjectName) -> Result<(), ArchiveError> {
    let mut after = None;
    loop {
        let listed = store.list(PROBES, after.as_ref())?;
        if listed.iter().any(|listed| listed.name == *name && listed.length_bytes == 8) {
            return Ok(());
        }
        match listed.into_iter().next_back() {
            Some(last) => after = Some(last.name),
            None => return Err(unfit("it does not list an object that exists")),
        }
    }
}

fn check_deletion(store: &dyn Store, name: &ObjectName) -> Result<(), ArchiveError> {
    store.delete(name)?;
    match store.get(name, ByteRange::Whole) {
        Err(StoreError::Missing(_)) => Ok(()),
        Ok(_) => Err(unfit("it returns an object that was deleted")),
        Err(error) => Err(error.into()),
    }
}

fn small_times(store: &dyn Store, clock: &dyn Clock, name: &ObjectName) -> Result<SmallTimes, ArchiveError> {
    let put = median(clock, || store.put(name, &[b"a small object"]))?;
    let get = median(clock, || store.get(name, ByteRange::Whole).map(drop))?;
    let list = median(clock, || store.list(name.as_str(), None).map(drop))?;
    Ok(SmallTimes { put, get, list })
}

/// Returns the median time of a call.
fn median(clock: &dyn Clock, call: impl Fn() -> Result<(), StoreError>) -> Result<Duration, StoreError> {
    let mut times = Vec::with_capacity(TIMED);
    for _ in 0..TIMED {
        let began = clock.monotonic();
        call()?;
        times.push(clock.monotonic().saturating_sub(began));
    }
    times.sort_unstable();
    Ok(times[TIMED / 2])
}

fn large_rates(
    store: &dyn Store,
    clock: &dyn Clock,
    name: &ObjectName,
    object_bytes: u64,
) -> Result<LargeRates, ArchiveError> {
    let mut bytes = vec![0; usize::try_from(object_bytes).unwrap_or(usize::MAX)];
    // No store can compress these.
    blake3::Hasher::new().update(name.as_str().as_bytes()).finalize_xof().fill(&mut bytes);
    let began = clock.monotonic();
    for _ in 0..LARGE {
        store.put(name, &[&bytes])?;
    }
    let put = clock.monotonic();
    for _ in 0..LARGE {
        if store.get(name, ByteRange::Whole)? != bytes {
            return Err(unfit("it returns other bytes than were written"));
        }
    }
    let got = clock.monotonic();
    let rate = |time: Duration| {
        let microseconds = time.as_micros().max(1);
        u64::try_from(u128::from(object_bytes) * u128::from(LARGE) * 1_000_000 / microseconds).unwrap_or(u64::MAX)
    };
    Ok(LargeRates {
        object_bytes,
        put_bytes_per_second: rate(put.saturating_sub(began)),
        get_bytes_per_second: rate(got.saturating_sub(put)),
    })
}

#[cfg(test)]
mod tests {
    use onefold_block::clock::ManualClock;
    use onefold_block::random::SeededRandom;

    use super::*;
    use crate::store::{ListedObject, MemoryStore, Refusal};

    /// A store that breaks its contract in one way.
    #[derive(Debug)]
    struct BrokenStore {
        inner: MemoryStore,
        fault: Fault,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fault {
        None,
        /// Creations replace what exists.
        Replaces,
        /// A creation first looks whether the object exists, then makes it.
        LooksFirst,
        /// Parts of objects are one byte too short.
        ShortParts,
        /// Listings are empty.
        EmptyListings,
        /// The user has no right to delete.
        NoRemoval,
    }

    impl Store for BrokenStore {
        fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
            let mut bytes = self.inner.get(name, range)?;
            if self.fault == Fault::ShortParts && range != ByteRange::Whole {
                bytes.pop();
            }
            Ok(bytes)
        }

        fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
            self.inner.put(name, parts)
        }

        fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
            let exists = self.inner.get(name, ByteRange::Whole).is_ok();
            match self.fault {
                Fault::Replaces => {}
                Fault::LooksFirst if exists => return Ok(Creation::Exists),
                Fault::LooksFirst => thread::sleep(Duration::from_millis(50)),
                _ => return self.inner.create(name, bytes),
            }
            self.inner.put(name, &[bytes]).map(|()| Creation::New)
        }

        fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
            match self.fault {
                Fault::EmptyListings => Ok(Vec::new()),
                _ => self.inner.list(prefix, after),
            }
        }

        fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
            match self.fault {
                Fault::NoRemoval => Err(StoreError::Refused {
                    action: "remove",
                    name: name.to_string(),
                    why: Refusal::Denied,
                    source: std::io::Error::other("403"),
                }),
                _ => self.inner.delete(name),
            }
        }
    }

    fn report(fault: Fault) -> (Result<ProbeReport, ArchiveError>, usize) {
        let store = BrokenStore { inner: MemoryStore::default(), fault };
        let report = probe(&store, &ManualClock::starting_at(0), &SeededRandom::new(1), 1000);
        (report, store.inner.objects().len())
    }

    #[test]
    fn a_store_that_keeps_its_contract_is_measured_and_left_as_it_was() {
        let (report, left) = report(Fault::None);
        let report = report.unwrap();
        assert!(report.is_fit() && report.findings.len() == 5, "{report:?}");
        assert!(report.large.unwrap().put_bytes_per_second > 0 && report.small.unwrap().get > Duration::ZERO);
        assert_eq!(left, 0);
    }

    #[test]
    fn each_broken_promise_is_found() {
        for (fault, found) in [
            (Fault::Replaces, "creation only if absent"),
            (Fault::LooksFirst, "one winner of eight at once"),
            (Fault::ShortParts, "ranges"),
            (Fault::EmptyListings, "listing after a write"),
            (Fault::NoRemoval, "removal"),
        ] {
            let report = report(fault).0.unwrap();
            let failed: Vec<&str> =
                report.findings.iter().filter(|(_, result)| result.is_err()).map(|(what, _)| *what).collect();
            assert!(failed.contains(&found), "{fault:?}: {failed:?}");
            assert!(!report.is_fit());
        }
    }
}
