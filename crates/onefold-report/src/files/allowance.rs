//! The number of extents that an image may have, whatever it claims.

/// Limit for the total length of all extents, as a multiple of the volume's length. It exceeds 1 because files may
/// share blocks on purpose.
pub(super) const TIMES_MAX: u64 = 4;
/// Maximum number of extents of an image, whatever length the image claims. Their rows take 800 MB.
const ROWS_MAX: u64 = 1 << 25;

/// Remaining allowance for the extents of an image.
#[derive(Debug)]
pub(super) struct ExtentAllowance {
    pub(super) bytes: u64,
    pub(super) rows: u64,
}

impl ExtentAllowance {
    /// Returns the allowance for all volumes on a disk of `disk_bytes`.
    pub(super) fn new(disk_bytes: u64) -> ExtentAllowance {
        ExtentAllowance { bytes: disk_bytes.saturating_mul(TIMES_MAX), rows: ROWS_MAX }
    }
}
