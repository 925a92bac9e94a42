//! The formats of all files of sharing: layout, encode, decode. One module for each, all inside the same frames
//! (`record`).
//!
//! The decoded bytes were written by another host, an older version, or anybody who may write to the state folder.
//! Decoding returns a value or a [`FormatError`]. It never panics, and never takes more memory than a frame.

pub(crate) mod claim;
pub mod cursor;
pub mod entry;
pub mod files_run;
pub mod guest;
pub mod identity;
pub mod intent;
pub mod log;
pub mod map;
pub mod mark;
mod number;
pub mod prefix;
pub mod reading;
pub mod record;
pub mod shard;
pub mod stamp;
pub mod watch;

use std::fmt;
use std::io;

use onefold_block::Fingerprint;

/// Why a file of the state folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Reading it failed.
    #[error("reading it failed: {0}")]
    Io(#[from] io::Error),
    /// It is damaged. It is dropped, and its contents are found again.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// It belongs to another state folder, or to one that was deleted meanwhile.
    #[error("it belongs to another state folder")]
    Foreign,
    /// It was written by an earlier version of this program, in a format that is no longer of use.
    #[error("it has format version {found}; this program reads versions from {oldest} on")]
    Older {
        /// Its version.
        found: u16,
        /// The oldest version that is understood.
        oldest: u16,
    },
    /// It was written by a later version of this program, and is left alone.
    #[error("it has format version {found}; this program reads versions up to {known}")]
    Newer {
        /// Its version.
        found: u16,
        /// The newest version that is understood.
        known: u16,
    },
}

impl FormatError {
    /// Returns whether the file is useless to any version, so that it may be removed.
    #[must_use]
    pub(crate) fn is_worthless(&self) -> bool {
        matches!(self, FormatError::Damaged(_) | FormatError::Foreign | FormatError::Older { .. })
    }
}

/// The first 96 bits of a fingerprint, which logs and index keep. Contents with equal prefixes are compared by value
/// before anything is shared, so the other bits would only save a call in 2^32 blocks of 2^64.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FingerprintPrefix(pub [u8; FingerprintPrefix::BYTES]);

impl FingerprintPrefix {
    /// Length in bytes.
    pub const BYTES: usize = 12;

    /// Returns the prefix of a fingerprint.
    #[must_use]
    pub fn of(fingerprint: Fingerprint) -> FingerprintPrefix {
        let mut bytes = [0; FingerprintPrefix::BYTES];
        bytes.copy_from_slice(&fingerprint.0[..FingerprintPrefix::BYTES]);
        FingerprintPrefix(bytes)
    }

    /// Returns the first eight bytes as a number. Numbers are in the order of the digests.
    #[must_use]
    pub fn first_word(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// Returns all of it as a number. Numbers are in the order of the digests.
    #[must_use]
    pub fn number(self) -> u128 {
        let mut bytes = [0; 16];
        bytes[4..].copy_from_slice(&self.0);
        u128::from_be_bytes(bytes)
    }
}

impl fmt::Display for FingerprintPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FingerprintPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FingerprintPrefix({self})")
    }
}

/// Number of a file in `files/`. It is rarely given out again: only by a host that has not seen the higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNo(pub u32);

impl fmt::Display for FileNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Number of a block in a file, below 2^39: files have at most 2 PiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileBlock(pub u64);

impl FileBlock {
    /// The highest number plus one.
    pub const LIMIT: u64 = 1 << 39;
}

/// The stable name of a shared block: a block of an arena file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u64);

impl Slot {
    /// Number of slots of an arena file: 1 GiB. The kernel keeps the whole map of a file in memory once a part is asked
    /// for.
    pub(crate) const IN_FILE: u64 = 1 << 18;
    /// The highest number of a slot plus one.
    pub const LIMIT: u64 = 1 << 39;

    /// Returns a slot of an arena file, if it is within the limits.
    #[must_use]
    pub fn new(arena: u32, index: u64) -> Option<Slot> {
        let slot = u64::from(arena).checked_mul(Slot::IN_FILE)?.checked_add(index)?;
        (index < Slot::IN_FILE && slot < Slot::LIMIT).then_some(Slot(slot))
    }

    /// Returns the slot with a number from any source, if the number is valid.
    #[must_use]
    pub(crate) fn from_number(number: u64) -> Option<Slot> {
        (number < Slot::LIMIT).then_some(Slot(number))
    }

    /// Returns the number of the slot among the slots of all arena files.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the number of its arena file.
    #[must_use]
    pub fn arena(self) -> u32 {
        u32::try_from(self.0 / Slot::IN_FILE).expect("below 2^21")
    }

    /// Returns its index in the arena file, in blocks.
    #[must_use]
    pub fn index(self) -> u64 {
        self.0 % Slot::IN_FILE
    }
}
