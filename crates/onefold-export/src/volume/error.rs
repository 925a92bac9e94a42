//! What can go wrong with a volume.

use std::error::Error;

use super::SECTOR_BYTES;

/// Why a call of a volume failed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The range does not begin or end at a sector. Nothing was done.
    #[error("{bytes} bytes at byte {offset} are no whole sectors of {SECTOR_BYTES} bytes")]
    Misaligned {
        /// Where the range begins, in bytes.
        offset: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The range ends past the volume. Nothing was done.
    #[error("{bytes} bytes at byte {offset} end past the volume, which has {length_bytes} bytes")]
    PastEnd {
        /// Where the range begins, in bytes.
        offset: u64,
        /// Its length in bytes.
        bytes: u64,
        /// The volume's length in bytes.
        length_bytes: u64,
    },
    /// The volume is open read-only. Nothing was done.
    #[error("the volume is read-only")]
    ReadOnly,
    /// What the volume lies in is full. The call may succeed once there is space again.
    #[error("no space left for the volume")]
    NoSpace,
    /// A change that was answered before could not be stored. The volume holds something that its client never made,
    /// until the client writes it anew.
    #[error("a change that was accepted earlier is lost")]
    Lost(#[source] Box<dyn Error + Send + Sync>),
    /// What the volume lies in failed.
    #[error("cannot {action} the volume")]
    Failed {
        /// What was tried: `open`, `read`, `write`.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}
