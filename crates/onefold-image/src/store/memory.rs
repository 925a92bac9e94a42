//! A store in memory, for tests.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use onefold_block::{Clock, Timestamp};
use parking_lot::Mutex;

use super::{ByteRange, Creation, LIST_MAX, ListedObject, ObjectName, Store, StoreError, within};

/// Objects in memory.
#[derive(Default)]
pub struct MemoryStore {
    objects: Mutex<BTreeMap<ObjectName, Object>>,
    /// Says when objects are stored. Without a clock, that is 1970.
    clock: Option<Arc<dyn Clock>>,
}

struct Object {
    bytes: Vec<u8>,
    modified: Timestamp,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("objects", &self.objects.lock().len()).finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// Returns a store with these objects.
    #[must_use]
    pub fn of(objects: BTreeMap<ObjectName, Vec<u8>>) -> MemoryStore {
        let objects = objects.into_iter().map(|(name, bytes)| (name, Object { bytes, modified: Timestamp::default() }));
        MemoryStore { objects: Mutex::new(objects.collect()), clock: None }
    }

    /// Returns an empty store whose listings say when objects were stored.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore { objects: Mutex::default(), clock: Some(clock) }
    }

    /// Returns all objects.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<ObjectName, Vec<u8>> {
        self.objects.lock().iter().map(|(name, object)| (name.clone(), object.bytes.clone())).collect()
    }

    fn object(&self, bytes: Vec<u8>) -> Object {
        Object { bytes, modified: self.clock.as_ref().map_or_else(Timestamp::default, |clock| clock.now()) }
    }
}

impl Store for MemoryStore {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        let objects = self.objects.lock();
        let object = objects.get(name).ok_or_else(|| StoreError::Missing(name.clone()))?;
        let (start, length) = within(range, object.bytes.len() as u64);
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        Ok(object.bytes[start..start + length].to_vec())
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        let object = self.object(parts.concat());
        self.objects.lock().insert(name.clone(), object);
        Ok(())
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        let object = self.object(bytes.to_vec());
        match self.objects.lock().entry(name.clone()) {
            btree_map::Entry::Vacant(place) => {
                place.insert(object);
                Ok(Creation::New)
            }
            btree_map::Entry::Occupied(_) => Ok(Creation::Exists),
        }
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        let objects = self.objects.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let listed = objects.range::<ObjectName, _>((from, Bound::Unbounded));
        let listed = listed.filter(|(name, _)| name.as_str().starts_with(prefix)).take(LIST_MAX);
        let listed = listed.map(|(name, object)| ListedObject {
            name: name.clone(),
            length_bytes: object.bytes.len() as u64,
            modified: object.modified,
        });
        Ok(listed.collect())
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.objects.lock().remove(name);
        Ok(())
    }
}
