//! A store in memory, for tests.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::Bound;

use parking_lot::Mutex;

use super::{ByteRange, Created, LIST_MAX, Listed, ObjectName, Store, StoreError, within};

/// Objects in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    objects: Mutex<BTreeMap<ObjectName, Vec<u8>>>,
}

impl MemoryStore {
    /// Returns a store with these objects.
    #[must_use]
    pub fn of(objects: BTreeMap<ObjectName, Vec<u8>>) -> MemoryStore {
        MemoryStore { objects: Mutex::new(objects) }
    }

    /// Returns all objects.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<ObjectName, Vec<u8>> {
        self.objects.lock().clone()
    }
}

impl Store for MemoryStore {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        let objects = self.objects.lock();
        let object = objects.get(name).ok_or_else(|| StoreError::Missing(name.clone()))?;
        let (start, length) = within(range, object.len() as u64);
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        Ok(object[start..start + length].to_vec())
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        self.objects.lock().insert(name.clone(), parts.concat());
        Ok(())
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Created, StoreError> {
        match self.objects.lock().entry(name.clone()) {
            btree_map::Entry::Vacant(place) => {
                place.insert(bytes.to_vec());
                Ok(Created::New)
            }
            btree_map::Entry::Occupied(_) => Ok(Created::Exists),
        }
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<Listed>, StoreError> {
        let objects = self.objects.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let listed = objects.range::<ObjectName, _>((from, Bound::Unbounded));
        let listed = listed.filter(|(name, _)| name.as_str().starts_with(prefix)).take(LIST_MAX);
        Ok(listed.map(|(name, object)| Listed { name: name.clone(), length_bytes: object.len() as u64 }).collect())
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.objects.lock().remove(name);
        Ok(())
    }
}
