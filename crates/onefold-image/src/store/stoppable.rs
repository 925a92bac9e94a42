//! A store that makes no further call once its user wants to stop.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onefold_block::Timestamp;

use super::{ByteRange, Creation, ListedObject, ObjectName, Store, StoreError};

/// Tells whether the user wants to stop.
pub type StopCheck = Box<dyn Fn() -> bool + Send + Sync>;

/// Refuses every call that begins after the user wants to stop; one that has begun ends as usual. A killed process
/// leaves the same behind, so an archive is sound afterwards. It must be the view next to the store: one that repeats
/// calls has to know whether an earlier attempt may have had an effect.
pub struct StoppableStore {
    inner: Arc<dyn Store>,
    is_stopped: StopCheck,
    counts: Arc<CallCounts>,
}

/// Calls that a [`StoppableStore`] has made and refused.
#[derive(Debug, Default)]
pub struct CallCounts {
    written: AtomicU64,
    deleted: AtomicU64,
    has_refused: AtomicBool,
}

impl CallCounts {
    /// Returns the number of objects that were written.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the number of objects that were deleted.
    pub fn deleted(&self) -> u64 {
        self.deleted.load(Ordering::Relaxed)
    }

    /// Returns whether a call was refused.
    pub fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }
}

impl StoppableStore {
    /// Returns a view of a store that counts its calls in `counts`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, is_stopped: StopCheck, counts: Arc<CallCounts>) -> StoppableStore {
        StoppableStore { inner, is_stopped, counts }
    }

    fn unless_stopped(&self, action: &'static str, name: &dyn fmt::Display) -> Result<&dyn Store, StoreError> {
        if (self.is_stopped)() {
            self.counts.has_refused.store(true, Ordering::Relaxed);
            return Err(StoreError::Stopped { action, name: name.to_string() });
        }
        Ok(&*self.inner)
    }
}

impl fmt::Debug for StoppableStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoppableStore { inner, counts, .. } = self;
        f.debug_struct("StoppableStore").field("inner", inner).field("counts", counts).finish_non_exhaustive()
    }
}

impl Store for StoppableStore {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        self.unless_stopped("read", name)?.get(name, range)
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        self.unless_stopped("write", name)?.put(name, parts)?;
        self.counts.written.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        let created = self.unless_stopped("create", name)?.create(name, bytes)?;
        if created == Creation::New {
            self.counts.written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(created)
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        self.unless_stopped("list", &prefix)?.list(prefix, after)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.unless_stopped("remove", name)?.delete(name)?;
        self.counts.deleted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn remove_leftovers(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.unless_stopped("list", &"leftovers")?.remove_leftovers(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn nothing_is_read_or_changed_after_the_stop_and_what_was_done_is_counted() {
        let memory = Arc::new(MemoryStore::default());
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(CallCounts::default()));
        let is_stopped: StopCheck = Box::new({
            let stop = Arc::clone(&stop);
            move || stop.load(Ordering::Relaxed)
        });
        let store = StoppableStore::new(Arc::clone(&memory) as Arc<dyn Store>, is_stopped, Arc::clone(&counts));
        let [one, two, three] = ["packs/1", "packs/2", "packs/3"].map(|name| ObjectName::new(name).unwrap());
        store.put(&one, &[b"1"]).unwrap();
        assert_eq!(store.create(&two, b"2").unwrap(), Creation::New);
        assert_eq!(store.create(&two, b"2").unwrap(), Creation::Exists);
        store.delete(&two).unwrap();
        assert_eq!((counts.written(), counts.deleted(), counts.has_refused()), (2, 1, false));
        stop.store(true, Ordering::Relaxed);
        let before = memory.objects();
        let errors = [
            store.get(&one, ByteRange::Whole).unwrap_err(),
            store.put(&three, &[b"3"]).unwrap_err(),
            store.create(&three, b"3").unwrap_err(),
            store.list("", None).unwrap_err(),
            store.delete(&one).unwrap_err(),
            store.remove_leftovers(Timestamp::default()).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, StoreError::Stopped { .. }), "{error}");
            assert!(error.is_final() && error.had_no_effect(), "{error}");
        }
        assert_eq!(memory.objects(), before);
        assert_eq!((counts.written(), counts.deleted(), counts.has_refused()), (2, 1, true));
    }
}
