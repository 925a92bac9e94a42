//! A store whose calls a test watches, and may fail before or after they have an effect.

use std::fmt;
use std::io;
use std::sync::Arc;

use onefold_block::Timestamp;

use super::{ByteRange, Creation, ListedObject, ObjectName, Store, StoreError};

/// A call of a store. Its name is that of an object; of a listing, the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Get(ByteRange),
    Put,
    Create,
    List,
    Delete,
}

/// Decides about a call that is going to be made.
type Before = Box<dyn Fn(Call, &str) -> Result<(), StoreError> + Send + Sync>;

/// Decides about a call that has succeeded, and returned or stored so many bytes.
type After = Box<dyn Fn(Call, &str, usize) -> Result<(), StoreError> + Send + Sync>;

/// Forwards all calls that its hooks let pass.
pub(crate) struct HookedStore {
    inner: Arc<dyn Store>,
    before: Before,
    after: After,
}

impl HookedStore {
    /// Returns a view of a store that makes only calls for which `before` returns no error.
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        before: impl Fn(Call, &str) -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> HookedStore {
        HookedStore { inner, before: Box::new(before), after: Box::new(|_, _, _| Ok(())) }
    }

    /// Returns the same view, which also loses the answers to calls for which `after` returns an error.
    pub(crate) fn and_after(
        self,
        after: impl Fn(Call, &str, usize) -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> HookedStore {
        HookedStore { after: Box::new(after), ..self }
    }

    fn call<T>(
        &self,
        call: Call,
        name: &str,
        make: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Result<T, StoreError> {
        (self.before)(call, name)?;
        let answer = make(&*self.inner)?;
        (self.after)(call, name, bytes(&answer))?;
        Ok(answer)
    }
}

/// Returns the error of a call that the operating system fails.
pub(crate) fn io_error(action: &'static str, name: &str, why: &'static str) -> StoreError {
    StoreError::Io { action, name: name.to_owned(), source: io::Error::other(why) }
}

impl fmt::Debug for HookedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Store for HookedStore {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        self.call(Call::Get(range), name.as_str(), |inner| inner.get(name, range), Vec::len)
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.call(Call::Put, name.as_str(), |inner| inner.put(name, parts), |()| bytes)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        self.call(Call::Create, name.as_str(), |inner| inner.create(name, bytes), |_| bytes.len())
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        self.call(Call::List, prefix, |inner| inner.list(prefix, after), |_| 0)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.call(Call::Delete, name.as_str(), |inner| inner.delete(name), |()| 0)
    }

    fn place(&self) -> Vec<u8> {
        self.inner.place()
    }

    fn remove_leftovers(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.inner.remove_leftovers(before)
    }
}
