//! The interface to the target of an installation.

use std::io;

/// A disk, partition or file that is overwritten. Calls come from several threads, for ranges that do not overlap.
///
/// # The contract
/// - A change is durable when a later [`Target::sync`] has returned. Until then a power cut may leave any part of it.
/// - All ranges lie within [`Target::length_bytes`].
/// - [`Target::read`] returns the bytes from the device, not those of the last write from a cache, as far as the target
///   lets a read pass the cache.
pub trait Target: Sync {
    /// Returns the length in bytes.
    fn length_bytes(&self) -> u64;

    /// Returns whether the whole target reads as zeros before the first change.
    fn is_blank(&self) -> bool;

    /// Writes all of `from` at `offset`.
    ///
    /// # Errors
    /// When the write fails; some of it may have been written.
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()>;

    /// Makes a range read as zeros, in the cheapest way for the target. Returns how many bytes were written for that.
    ///
    /// # Errors
    /// As [`Target::write`].
    fn zero(&self, offset: u64, length_bytes: u64) -> io::Result<u64>;

    /// Gives the whole blocks of a range back to what lies below; they read as anything afterwards. Returns how many
    /// bytes that were: 0 if the target cannot.
    ///
    /// # Errors
    /// When the target fails.
    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<u64>;

    /// Returns when all earlier changes are durable.
    ///
    /// # Errors
    /// When the target fails. Then no change since the last call is reliable.
    fn sync(&self) -> io::Result<()>;

    /// Fills `into` from `offset`.
    ///
    /// # Errors
    /// When the read fails or the target ends early.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}
