//! Sharing what is stored already: for those who find equal blocks out of band.

use onefold_substrate::MappedExtent;

use super::Pool;
use crate::attr::{Ino, RangePair};
use crate::data::share::ShareOutcome;
use crate::error::Result;

impl Pool {
    /// Compares a range of whole blocks with another one and, where they are equal, makes the target name the source's
    /// blocks: what nobody names any more comes free. In one step as far as readers and writers can tell. A power cut
    /// leaves a target that reads as before, whatever part of it is shared. Times do not change.
    ///
    /// Blocks that were stored while deduplication was switched off, or that the fingerprint filter did not find,
    /// become shared so. At most [`crate::SHARE_BYTES_MAX`] at once.
    ///
    /// # Errors
    /// [`crate::PoolError::CrossDomain`]; [`crate::PoolError::NotPermitted`] where deduplication is switched off for
    /// either file or the pool; [`crate::PoolError::Invalid`] for ranges that are not of whole blocks, are empty, too
    /// long, or overlap; [`crate::PoolError::NoSpace`]; device errors. The first part may be shared then.
    pub fn share_range(&self, ranges: RangePair) -> Result<ShareOutcome> {
        self.settled_data().share_part(ranges)
    }

    /// Tells whether two files may share blocks as they are now.
    ///
    /// # Errors
    /// [`crate::PoolError::CrossDomain`]; [`crate::PoolError::NotPermitted`] where deduplication is switched off for
    /// either file or the pool.
    pub fn ensure_may_share(&self, source: Ino, target: Ino) -> Result<()> {
        self.data.ensure_may_share(source, target)
    }

    /// Returns where a file's data lies on the device from an offset on, in order; what is between two extents is a
    /// hole. Some of them, at least one; ask again from the end of the last. Empty when there is no data from the
    /// offset on.
    ///
    /// # Errors
    /// [`crate::PoolError::IsADirectory`], damage, device errors.
    pub fn extents(&self, ino: Ino, offset: u64) -> Result<Vec<MappedExtent>> {
        self.settled_data().extents(ino, offset)
    }
}
