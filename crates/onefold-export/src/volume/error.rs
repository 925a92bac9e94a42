//! Errors of a volume.

use std::error::Error;

use super::SECTOR_BYTES;

/// Why a call of a volume failed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The range does not begin and end at sector boundaries. Nothing was done.
    #[error("{bytes} bytes at byte {offset} are not whole sectors of {SECTOR_BYTES} bytes")]
    Misaligned {
        /// Start of the range, in bytes.
        offset: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The range ends past the volume. Nothing was done.
    #[error("{bytes} bytes at byte {offset} end past the volume, which has {length_bytes} bytes")]
    PastEnd {
        /// Start of the range, in bytes.
        offset: u64,
        /// Its length in bytes.
        bytes: u64,
        /// The volume's length in bytes.
        length_bytes: u64,
    },
    /// The volume is open read-only. Nothing was done.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The storage below the volume is full. The call may succeed once there is space again.
    #[error("no space left for the volume")]
    NoSpace,
    /// A change that was already answered could not be stored. The volume holds content that its client never wrote,
    /// until the client rewrites it.
    #[error("a change that was accepted earlier is lost")]
    Lost(#[source] Box<dyn Error + Send + Sync>),
    /// The storage below the volume failed.
    #[error("cannot {action} the volume")]
    Failed {
        /// The failed action: `open`, `read`, `write`.
        action: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}
