//! The seam to what an image is installed to.

use std::io;

/// Bytes that are overwritten: a disk, a partition or a file. Calls come from several threads, for ranges that do not overlap.
///
/// # The contract
/// - A change is durable when a later [`Target::sync`] has returned. Until then a power cut may leave any part of it.
/// - All ranges lie within [`Target::length_bytes`].
/// - [`Target::read`] returns what the device has, not what a cache remembers of the last write.
pub trait Target: Sync {
    /// Returns the length in bytes.
    fn length_bytes(&self) -> u64;

    /// Returns whether all of it reads as zeros before the first change.
    fn is_blank(&self) -> bool;

    /// Writes all of `from` at `offset`.
    ///
    /// # Errors
    /// When the write fails; some of it may have been written.
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()>;

    /// Makes a range read as zeros, in the way that is cheapest for the target.
    ///
    /// # Errors
    /// As [`Target::write`].
    fn zero(&self, offset: u64, length_bytes: u64) -> io::Result<()>;

    /// Gives a range back to what lies below; it reads as anything afterwards. Returns `false` if the target cannot.
    ///
    /// # Errors
    /// When the target fails.
    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<bool>;

    /// Returns when all changes so far are durable.
    ///
    /// # Errors
    /// When the target fails; then no change since the last call is reliable.
    fn sync(&self) -> io::Result<()>;

    /// Fills `into` from `offset`.
    ///
    /// # Errors
    /// When the read fails or the target ends before.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}
