//! Errors of reading a guest, and damage that was found during reading.

use std::collections::HashSet;
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
    /// The structure is intact, but uses a feature that no reader supports.
    #[error("{0} cannot be read")]
    Unsupported(&'static str),
    /// The content exists only in another form: encrypted or compressed.
    #[error("the content is {0}, and is not decoded")]
    Encoded(Encoding),
    /// A name does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// A part of a path that has further parts is not a directory.
    #[error("not a directory")]
    NotADirectory,
    /// A path leads through more symbolic links than a kernel would follow.
    #[error("too many levels of symbolic links")]
    TooManyLinks,
}

/// The problem of a structure at a place that the medium below the disk cannot read.
pub(crate) const UNREADABLE: &str = "the disk cannot read it";

impl GuestError {
    /// Returns whether the disk failed, at one place or as a whole, in contrast to bytes that contradict themselves.
    pub(crate) fn is_of_disk(&self) -> bool {
        match self {
            GuestError::Disk(_) => true,
            GuestError::Damaged(damage) => damage.is_unreadable(),
            _ => false,
        }
    }
}

/// A form of stored content that differs from the content itself.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("damaged {structure} at byte {place} of the disk: {problem}")]
pub struct Damage {
    /// Start of the structure, in bytes of the disk.
    pub place: u64,
    /// The kind of structure, such as `inode` or `group descriptor`.
    pub structure: &'static str,
    /// Description of the damage.
    pub problem: &'static str,
}

impl Damage {
    /// Returns whether its bytes cannot be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.problem == UNREADABLE
    }
}

/// Damage that a reader found and skipped: the first parts in full, the rest as a number.
#[derive(Debug, Default)]
pub struct DamageLog {
    met: Mutex<DamageTally>,
}

#[derive(Debug, Default)]
struct DamageTally {
    first: Vec<Damage>,
    /// Damaged parts that are already counted.
    known: HashSet<Damage>,
    count: u64,
}

/// Maximum number of damaged parts that are kept in full.
const DAMAGES_MAX: usize = 100;
/// Maximum number of damaged parts that are remembered, so that each counts once. They take a few megabytes.
const KNOWN_MAX: usize = 1 << 16;

impl DamageLog {
    /// Records a damaged part that is skipped.
    pub fn note(&self, damage: Damage) {
        let mut met = self.met.lock();
        if met.known.contains(&damage) {
            return;
        }
        met.count += 1;
        if met.known.len() < KNOWN_MAX {
            met.known.insert(damage.clone());
        }
        if met.first.len() < DAMAGES_MAX {
            met.first.push(damage);
        }
    }

    /// Records damage and returns `None`, so that the caller skips the part; passes on every other error.
    ///
    /// # Errors
    /// Every error except [`GuestError::Damaged`].
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
        self.met.lock().first.clone()
    }

    /// Returns the number of damaged parts that were found. After 65,536 parts, a part may count more than once.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.met.lock().count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_part_counts_once_and_the_first_hundred_are_kept() {
        let log = DamageLog::default();
        for place in (0..1000).chain(0..1000) {
            log.note(Damage { place, structure: "inode", problem: "its checksum is wrong" });
        }
        assert_eq!((log.count(), log.first().len()), (1000, DAMAGES_MAX));
    }
}
