//! Limits on what is believed and read of one image.

use onefold_substrate::FileStat;

/// Maximum number of digests of one system that are looked at.
pub(super) const DIGESTS_MAX: usize = 1_000_000;
/// Maximum bytes of candidates of one image, as a multiple of the space that it takes up, and some more. Files of a
/// guest may share blocks, and a hostile guest has a million files that share one long list of extents.
const BYTES_FOR_LENGTH_MAX: u64 = 4;
pub(super) const BYTES_MIN: u64 = 64 << 20;

/// Maximum bytes that readers may ask for to find a guest and its databases. Journals have a gigabyte each, and are
/// read when a file system is opened.
pub(super) const LOOK_BYTES_MAX: u64 = 4 << 30;

/// Returns how many bytes the readers of an image may ask for during its examination: the bytes that its files may
/// claim, as many again for tables and directories, and those for finding the guest.
pub(super) fn read_bytes_max(stat: &FileStat) -> u64 {
    claimed_bytes_max(stat).saturating_mul(2).saturating_add(LOOK_BYTES_MAX)
}

/// Returns how many bytes the files of an image may claim. A sparse image can have any length, so the space that it
/// takes up counts, if that is less.
pub(super) fn claimed_bytes_max(stat: &FileStat) -> u64 {
    stat.length.min(stat.allocated).saturating_mul(BYTES_FOR_LENGTH_MAX).saturating_add(BYTES_MIN)
}
