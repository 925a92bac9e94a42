//! Why something in a guest cannot be read, and what was found damaged on the way.

use std::fmt;

use onefold_disk::DiskError;
use parking_lot::Mutex;

/// Why something in a guest cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The image or its device cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A structure of the guest contradicts itself, its checksum or its place.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The structure is sound, but uses something that no reader here knows.
    #[error("{0} cannot be read")]
    Unsupported(&'static str),
    /// The content exists in another form only: encrypted or compressed.
    #[error("the content is {0}, and is not decoded")]
    Encoded(Encoding),
    /// A name does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// A part of a path that has further parts is no directory.
    #[error("not a directory")]
    NotADirectory,
    /// A path leads through more symbolic links than a kernel follows.
    #[error("too many levels of symbolic links")]
    TooManyLinks,
}

/// A form in which a guest keeps content that differs from the content itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// Encrypted by the file system.
    Encrypted,
    /// Compressed by the file system.
    Compressed,
    /// Kept in a store of chunks that files share.
    Deduplicated,
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Encoding::Encrypted => "encrypted",
            Encoding::Compressed => "compressed",
            Encoding::Deduplicated => "deduplicated",
        })
    }
}

/// A damaged part of a guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged {structure} at byte {place} of the disk: {problem}")]
pub struct Damage {
    /// Where the structure begins, in bytes of the disk.
    pub place: u64,
    /// The kind of structure, such as `inode` or `group descriptor`.
    pub structure: &'static str,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// The damage that a reader met and skipped: the first of it in full, the rest as a number.
#[derive(Debug, Default)]
pub struct DamageLog {
    met: Mutex<(Vec<Damage>, u64)>,
}

/// How many damaged parts are kept in full.
const DAMAGES_MAX: usize = 100;

impl DamageLog {
    /// Notes a damaged part that is skipped.
    pub fn note(&self, damage: Damage) {
        let mut met = self.met.lock();
        if met.0.contains(&damage) {
            return;
        }
        met.1 += 1;
        if met.0.len() < DAMAGES_MAX {
            met.0.push(damage);
        }
    }

    /// Notes damage and returns `None`, so that the caller skips the part; passes on every other error.
    ///
    /// # Errors
    /// Every error but [`GuestError::Damaged`].
    pub fn skip<T>(&self, outcome: Result<T, GuestError>) -> Result<Option<T>, GuestError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(GuestError::Damaged(damage)) => {
                self.note(damage);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the first damaged parts.
    #[must_use]
    pub fn first(&self) -> Vec<Damage> {
        self.met.lock().0.clone()
    }

    /// Returns the number of damaged parts that were met. A part that is met again counts again once
    /// a hundred others are kept.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.met.lock().1
    }
}
