//! Tests whether a store keeps its contract, as far as sequential calls can show.

use std::io::ErrorKind;

use onefold_block::Random;

use super::objects::random_bytes;
use super::{ArchiveError, ledger};
use crate::store::{ByteRange, Created, ObjectName, Store, StoreError};

/// Prefix of the names of the objects that a test creates.
pub(super) const PROBES: &str = "probe/";

/// Tests creation, ranges, listing and deletion on an object of its own.
pub(super) fn check(store: &dyn Store, random: &dyn Random) -> Result<(), ArchiveError> {
    let unfit = |what| ArchiveError::Unfit { what };
    let random = u64::from_le_bytes(random_bytes(random)?);
    let name = ObjectName::new(&format!("{PROBES}{random:016x}")).expect("digits make a name");
    let bytes = random.to_le_bytes();
    let created = ledger::create_exactly(store, None, &name, &bytes).map_err(|error| match error {
        ArchiveError::Store(StoreError::NotMade { source, .. }) if source.kind() == ErrorKind::Unsupported => {
            unfit("it cannot create an object only if none of that name exists")
        }
        error => error,
    });
    if !created? {
        return Err(unfit("it says that an object exists, and returns another"));
    }
    if store.create(&name, b"another")? != Created::Exists || store.get(&name, ByteRange::Whole)? != bytes {
        return Err(unfit("it makes an object of a name that exists"));
    }
    let part = store.get(&name, ByteRange::From { offset: 2, length_bytes: 3 })?;
    let beyond = store.get(&name, ByteRange::From { offset: 6, length_bytes: 100 })?;
    let last = store.get(&name, ByteRange::Last { length_bytes: 5 })?;
    if (&part[..], &beyond[..], &last[..]) != (&bytes[2..5], &bytes[6..], &bytes[3..]) {
        return Err(unfit("it returns other bytes of an object than the range that was asked for"));
    }
    if !store.list(PROBES, None)?.iter().any(|listed| listed.name == name && listed.length_bytes == 8) {
        return Err(unfit("it does not list an object that exists"));
    }
    store.delete(&name)?;
    match store.get(&name, ByteRange::Whole) {
        Err(StoreError::Missing(_)) => Ok(()),
        Ok(_) => Err(unfit("it returns an object that was deleted")),
        Err(error) => Err(error.into()),
    }
}
