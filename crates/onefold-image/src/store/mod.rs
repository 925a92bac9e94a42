//! The interface to the storage of an archive: five calls on named objects.
//!
//! # The contract
//! - **An object is whole or absent.** Neither a reader nor a listing ever sees a part of an object, whatever process
//!   is killed or host loses power.
//! - **An object is durable when [`Store::put`] or [`Store::create`] returns**, even if `create` finds that the object
//!   exists. Objects whose calls returned one after the other survive a power cut in any case.
//! - **[`Store::create`] has one winner.** Of any number of calls for one name, by any number of hosts, at most one
//!   returns [`Creation::New`]; from then on all others return [`Creation::Exists`]. A call that fails may have made
//!   the object, or may make it later: the caller reads the object and compares. Only an error for which
//!   [`StoreError::had_no_effect`] is true proves that this call made nothing, and never will.
//! - **Existing objects are listed** from the moment their call has returned. A listing is sorted by name.
//! - Only [`Store::delete`] removes an object. Deleting an absent object succeeds.
//! - Calls come from several threads.

#[cfg(test)]
pub(crate) mod faulty;
mod folder;
#[cfg(test)]
pub(crate) mod hooked;
mod memory;
mod paced;
mod retrying;
mod stoppable;

pub use folder::FolderStore;
#[cfg(test)]
pub(crate) use folder::power_cut;
pub use memory::MemoryStore;
pub use paced::PacedStore;
pub use retrying::{RetryPolicy, RetryingStore, WaitHook};
pub use stoppable::{CallCounts, StopCheck, StoppableStore};

use std::fmt;
use std::io;

use onefold_block::Timestamp;

/// Name of an object within an archive, for example `packs/0011…/2233…`: lower-case letters, digits, `.` and `-`, in
/// parts that `/` separates.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(String);

/// The part of an object to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// The whole object.
    Whole,
    /// Bytes from an offset on; fewer if the object ends earlier.
    From {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length_bytes: u64,
    },
    /// The last bytes; the whole object if it is shorter.
    Last {
        /// Length in bytes.
        length_bytes: u64,
    },
}

/// Answer to a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// This call made the object.
    New,
    /// An object with this name existed.
    Exists,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Its name.
    pub name: ObjectName,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// When it was stored, by the clock of the store. No safety depends on it.
    pub modified: Timestamp,
}

/// Objects by name. The module documentation states the contract.
pub trait Store: Send + Sync + fmt::Debug {
    /// Returns bytes of an object, at most 2^31.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if the object does not exist. Other errors when the store fails.
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError>;

    /// Stores an object that consists of consecutive `parts`, and replaces an existing one. Callers use names with a
    /// random part.
    ///
    /// # Errors
    /// When the store fails. The object may then exist or not, but never in part.
    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError>;

    /// Stores an object unless one with that name exists.
    ///
    /// # Errors
    /// As [`Store::put`]. [`StoreError::NotMade`] if the store knows that the call made no object and never will, as
    /// where the user may not write, or there is no room. A store must not return it if it has only lost the answer.
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError>;

    /// Returns objects whose names begin with `prefix` and come after `after`, sorted by name: at most 1000, and fewer
    /// only if no more follow.
    ///
    /// # Errors
    /// When the store fails.
    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError>;

    /// Removes an object.
    ///
    /// # Errors
    /// When the store fails.
    fn delete(&self, name: &ObjectName) -> Result<(), StoreError>;

    /// Returns what tells this store from others on this host, also from one with a copy of the same archive: a path,
    /// or an address. Empty if nothing does.
    fn place(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Removes what calls left behind that were killed before `before`, and that is no object. Returns its bytes. A
    /// store that leaves nothing behind returns 0.
    ///
    /// # Errors
    /// When the store fails.
    fn remove_leftovers(&self, before: Timestamp) -> Result<u64, StoreError> {
        let _ = before;
        Ok(0)
    }
}

/// Maximum number of objects that a listing returns at once.
const LIST_MAX: usize = 1000;
/// Maximum number of bytes that a call returns.
const GET_BYTES_MAX: u64 = 1 << 31;

/// Returns where `range` begins in an object of `length_bytes`, and the number of bytes to return.
fn within(range: ByteRange, length_bytes: u64) -> (u64, usize) {
    let (start, length) = match range {
        ByteRange::Whole => (0, length_bytes),
        ByteRange::From { offset, length_bytes: wanted } => {
            let start = offset.min(length_bytes);
            (start, wanted.min(length_bytes - start))
        }
        ByteRange::Last { length_bytes: wanted } => {
            let length = wanted.min(length_bytes);
            (length_bytes - length, length)
        }
    };
    (start, usize::try_from(length.min(GET_BYTES_MAX)).unwrap_or(usize::MAX))
}

/// Maximum length of the name of an object, in bytes.
const OBJECT_NAME_BYTES_MAX: usize = 200;

impl ObjectName {
    /// Parses a name; `None` if `text` is not a valid one.
    #[must_use]
    pub fn new(text: &str) -> Option<ObjectName> {
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'/');
        let is_part = |part: &str| part.starts_with(|first: char| first.is_ascii_alphanumeric());
        let is_name =
            text.len() <= OBJECT_NAME_BYTES_MAX && text.bytes().all(is_allowed) && text.split('/').all(is_part);
        is_name.then(|| ObjectName(text.to_owned()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a call on a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no object of that name.
    #[error("there is no object `{0}`")]
    Missing(ObjectName),
    /// A call of the operating system failed.
    #[error("cannot {action} the object `{name}`")]
    Io {
        /// The operation: "read", "write", "list", "remove".
        action: &'static str,
        /// The object, or the prefix of a listing.
        name: String,
        /// Why it failed.
        source: io::Error,
    },
    /// An object was not created, and the call that failed will not create it later, either.
    #[error("cannot create the object `{name}`")]
    NotMade {
        /// The object.
        name: String,
        /// Why it failed. [`io::ErrorKind::Unsupported`] if the store lacks an operation that an archive needs.
        source: io::Error,
    },
    /// The store cannot be reached, or asks its users to wait. The call may have taken effect, and may succeed later.
    #[error("cannot {action} the object `{name}`: the store does not answer")]
    Unavailable {
        /// As in [`StoreError::Io`].
        action: &'static str,
        /// The object, or the prefix of a listing.
        name: String,
        /// The answer, or the lack of one.
        source: io::Error,
    },
    /// The store did not answer for so long that the call is not repeated again. It may have taken effect.
    #[error("cannot {action} the object `{name}`: gave up waiting for the store")]
    GaveUp {
        /// As in [`StoreError::Io`].
        action: &'static str,
        /// The object, or the prefix of a listing.
        name: String,
        /// The last answer, or the lack of one.
        source: io::Error,
    },
    /// The store refused the call, which had no effect.
    #[error("the store refuses to {action} the object `{name}`: {why}")]
    Refused {
        /// As in [`StoreError::Io`].
        action: &'static str,
        /// The object, or the prefix of a listing.
        name: String,
        /// Why the store refused it, as far as its answer says.
        why: Refusal,
        /// The answer.
        source: io::Error,
    },
    /// The call was not made because the user wants to stop.
    #[error("stopped before an attempt to {action} the object `{name}`")]
    Stopped {
        /// As in [`StoreError::Io`].
        action: &'static str,
        /// The object, or the prefix of a listing.
        name: String,
    },
    /// The entry with this name in the store is not an object.
    #[error("`{name}` is no object: {what}")]
    Foreign {
        /// The name.
        name: String,
        /// The kind of the entry.
        what: &'static str,
    },
}

impl StoreError {
    /// Returns whether the call that failed has certainly had no effect, and will have none later.
    #[must_use]
    pub fn had_no_effect(&self) -> bool {
        matches!(self, StoreError::NotMade { .. } | StoreError::Refused { .. } | StoreError::Stopped { .. })
    }

    /// Returns the error of a call that is not repeated any more.
    fn given_up(self) -> StoreError {
        match self {
            StoreError::Unavailable { action, name, source } => StoreError::GaveUp { action, name, source },
            error => error,
        }
    }

    /// Returns the same error, for another thread that waits for the call.
    pub(crate) fn for_another(&self) -> StoreError {
        let copy = |source: &io::Error| match source.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(source.kind(), source.to_string()),
        };
        match self {
            StoreError::Missing(name) => StoreError::Missing(name.clone()),
            StoreError::Io { action, name, source } => {
                StoreError::Io { action, name: name.clone(), source: copy(source) }
            }
            StoreError::NotMade { name, source } => StoreError::NotMade { name: name.clone(), source: copy(source) },
            StoreError::Unavailable { action, name, source } => {
                StoreError::Unavailable { action, name: name.clone(), source: copy(source) }
            }
            StoreError::GaveUp { action, name, source } => {
                StoreError::GaveUp { action, name: name.clone(), source: copy(source) }
            }
            StoreError::Refused { action, name, why, source } => {
                StoreError::Refused { action, name: name.clone(), why: *why, source: copy(source) }
            }
            StoreError::Stopped { action, name } => StoreError::Stopped { action, name: name.clone() },
            StoreError::Foreign { name, what } => StoreError::Foreign { name: name.clone(), what },
        }
    }

    /// Returns whether it is of no use to repeat the call at once.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, StoreError::GaveUp { .. } | StoreError::Refused { .. } | StoreError::Stopped { .. })
    }
}

/// Why a store refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The clocks of this host and of the store differ too much.
    Clock,
    /// The store does not know the user, or the secret is wrong.
    Credentials,
    /// The credentials were valid for a limited time, which is over.
    Expired,
    /// The user may not do this.
    Denied,
    /// There is no such bucket.
    NoBucket,
    /// The bucket is in another region or behind another address.
    Elsewhere,
    /// The store cannot create an object only if it is absent.
    Condition,
    /// The store's certificate is not one that this host trusts.
    Certificate,
    /// The certificate of a server of images is not one that this host trusts.
    ImageServerCertificate,
    /// The certificate of a server of images is not the pinned one.
    Pin,
    /// A server of images wants a token, or another one.
    Token,
    /// A server of images speaks no TLS, though it was asked to.
    NoTls,
    /// A server of images refuses a request, or answers it as none would.
    ImageServer,
    /// The store's answer has no known reason.
    Other,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Clock => "the clock of this machine differs too much from that of the store",
            Refusal::Credentials => "the store does not accept the access key and its secret",
            Refusal::Expired => "the credentials have expired",
            Refusal::Denied => "the credentials give no right to do this",
            Refusal::NoBucket => "there is no such bucket",
            Refusal::Elsewhere => "the bucket is in another region, or has another address",
            Refusal::Condition => "it cannot create an object only if it is absent",
            Refusal::Certificate | Refusal::ImageServerCertificate => "this machine does not trust its certificate",
            Refusal::Pin => "it has another certificate than the pinned one",
            Refusal::Token => "it wants a token that it knows",
            Refusal::NoTls => "it does not encrypt its connections",
            Refusal::ImageServer => "the server of images does not answer as it should",
            Refusal::Other => "it does not accept the request",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_lead_nowhere_else() {
        for name in ["descriptor", "descriptor.copy", "ledger/000000000000000a", "packs/0011/aa-bb"] {
            assert_eq!(ObjectName::new(name).unwrap().as_str(), name);
        }
        for name in ["", "/etc", "a/../b", "..", "a//b", "a/", "A", "a b", "a\0", ".tmp", &"x".repeat(201)] {
            assert_eq!(ObjectName::new(name), None, "{name}");
        }
    }
}
