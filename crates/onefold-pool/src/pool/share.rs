//! Sharing of stored blocks, for callers that find equal blocks out of band.

use onefold_substrate::MappedExtent;

use super::Pool;
use crate::attr::{Ino, RangePair};
use crate::data::share::ShareOutcome;
use crate::error::Result;

impl Pool {
    /// Compares a range of whole blocks with another one and, if they are equal, makes the target name the source's
    /// blocks; blocks without references are freed. Readers and writers see one step. After a power cut the target
    /// reads as before, whatever part of it is shared. Times do not change.
    ///
    /// This shares blocks that were stored while deduplication was switched off, or that the fingerprint filter did not
    /// find. At most [`crate::SHARE_BYTES_MAX`] at once.
    ///
    /// # Errors
    /// [`crate::PoolError::CrossDomain`]; [`crate::PoolError::NotPermitted`] if deduplication is switched off for
    /// either file or the pool; [`crate::PoolError::Invalid`] for ranges that are not of whole blocks, empty, too long,
    /// or overlapping; [`crate::PoolError::NoSpace`]; device errors. The first part may be shared then.
    pub fn share_range(&self, ranges: RangePair) -> Result<ShareOutcome> {
        self.settled_data().share_part(ranges)
    }

    /// Checks whether two files may currently share blocks.
    ///
    /// # Errors
    /// [`crate::PoolError::CrossDomain`]; [`crate::PoolError::NotPermitted`] if deduplication is switched off for
    /// either file or the pool.
    pub fn ensure_may_share(&self, source: Ino, target: Ino) -> Result<()> {
        self.data.ensure_may_share(source, target)
    }

    /// Returns the places of a file's data on the device from an offset on, in order; the space between two extents is
    /// a hole. Returns some of them, at least one; the caller continues from the end of the last one. Empty if the file
    /// has no data from the offset on.
    ///
    /// # Errors
    /// [`crate::PoolError::IsADirectory`], damage, device errors.
    pub fn extents(&self, ino: Ino, offset: u64) -> Result<Vec<MappedExtent>> {
        self.settled_data().extents(ino, offset)
    }
}
