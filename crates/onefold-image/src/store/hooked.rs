//! A store whose calls a test may refuse, each before it has an effect.

use std::fmt;
use std::sync::Arc;

use onefold_block::Timestamp;

use super::{ByteRange, Created, Listed, ObjectName, Store, StoreError};

/// A call of a store that concerns one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Get,
    Put,
    Create,
    Delete,
}

/// Decides about a call.
type Before = Box<dyn Fn(Call, &ObjectName) -> Result<(), StoreError> + Send + Sync>;

/// Forwards all calls that its hook does not refuse.
pub(crate) struct HookedStore {
    inner: Arc<dyn Store>,
    before: Before,
}

impl HookedStore {
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        before: impl Fn(Call, &ObjectName) -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> HookedStore {
        HookedStore { inner, before: Box::new(before) }
    }
}

impl fmt::Debug for HookedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Store for HookedStore {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        (self.before)(Call::Get, name)?;
        self.inner.get(name, range)
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        (self.before)(Call::Put, name)?;
        self.inner.put(name, parts)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Created, StoreError> {
        (self.before)(Call::Create, name)?;
        self.inner.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<Listed>, StoreError> {
        self.inner.list(prefix, after)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        (self.before)(Call::Delete, name)?;
        self.inner.delete(name)
    }

    fn place(&self) -> Vec<u8> {
        self.inner.place()
    }

    fn remove_leftovers(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.inner.remove_leftovers(before)
    }
}
