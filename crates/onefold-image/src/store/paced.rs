//! A store that is read and written at a limited rate.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use onefold_block::{Clock, Timestamp};
use parking_lot::Mutex;

use super::{ByteRange, Creation, ListedObject, ObjectName, Store, StoreError};

/// Limits the rate at which a store is read and written, over all threads. What has been moved is paid for by a pause
/// afterwards.
pub struct PacedStore {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    bytes_per_second: NonZeroU64,
    /// When everything is paid for that was moved so far.
    paid: Mutex<Duration>,
}

impl PacedStore {
    /// Returns a view of a store.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>, bytes_per_second: NonZeroU64) -> PacedStore {
        let paid = Mutex::new(clock.monotonic());
        PacedStore { inner, clock, bytes_per_second, paid }
    }

    fn pay(&self, bytes: usize) {
        let nanoseconds = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        let price = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        let now = self.clock.monotonic();
        let until = {
            let mut paid = self.paid.lock();
            *paid = (*paid).max(now).saturating_add(price);
            *paid
        };
        self.clock.sleep(until - now);
    }
}

impl std::fmt::Debug for PacedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacedStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Store for PacedStore {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        let bytes = self.inner.get(name, range)?;
        self.pay(bytes.len());
        Ok(bytes)
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        self.inner.put(name, parts)?;
        self.pay(parts.iter().map(|part| part.len()).sum());
        Ok(())
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        let created = self.inner.create(name, bytes)?;
        self.pay(bytes.len());
        Ok(created)
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        self.inner.list(prefix, after)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.inner.delete(name)
    }

    fn place(&self) -> Vec<u8> {
        self.inner.place()
    }

    fn remove_leftovers(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.inner.remove_leftovers(before)
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::clock::ManualClock;

    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn a_rate_holds_over_many_reads() {
        let memory = Arc::new(MemoryStore::default());
        let name = ObjectName::new("packs/1/2").unwrap();
        memory.put(&name, &[&[7; 5000]]).unwrap();
        let clock = Arc::new(ManualClock::starting_at(5));
        let started = clock.monotonic();
        let paced = PacedStore::new(memory, Arc::clone(&clock) as Arc<dyn Clock>, NonZeroU64::new(1000).unwrap());
        for _ in 0..10 {
            assert_eq!(paced.get(&name, ByteRange::From { offset: 0, length_bytes: 500 }).unwrap().len(), 500);
        }
        // Each look at the clock takes a microsecond.
        assert_eq!((clock.monotonic() - started).as_secs(), 5);
        // An idle time gives nothing to read faster with later.
        clock.sleep(Duration::from_secs(60));
        paced.get(&name, ByteRange::Whole).unwrap();
        assert_eq!((clock.monotonic() - started).as_secs(), 70);
        paced.put(&name, &[&[1; 2000], &[2; 3000]]).unwrap();
        assert_eq!((clock.monotonic() - started).as_secs(), 75);
    }

    #[test]
    fn what_a_view_does_not_limit_it_passes_on() {
        let folder = tempfile::tempdir().unwrap();
        let folder_store = Arc::new(crate::store::FolderStore::open(folder.path()).unwrap());
        let clock = Arc::new(ManualClock::starting_at(5));
        let paced = PacedStore::new(folder_store, clock, NonZeroU64::MAX);
        std::fs::write(folder.path().join(".new-1"), b"torn").unwrap();
        let later = Timestamp { seconds: i64::MAX / 4, nanoseconds: 0 };
        assert_eq!(paced.remove_leftovers(later).unwrap(), 4);
    }
}
