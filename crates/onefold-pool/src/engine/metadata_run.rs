//! Writes blocks for metadata before they are used.
//!
//! Map nodes and tree pages live in the journal until a checkpoint puts them in place. On a sparse pool file, that
//! would be the first write of their places, and a full host file system would then lack room for long-promised blocks.
//! So these places are filled with zeros while the operation can still fail for lack of space: usually whole runs, or
//! single blocks when no runs are left.

use onefold_block::{AlignedBuffer, BLOCK_BYTES, WriteOp};

use super::Engine;
use crate::error::{PoolError, Result};
use crate::meta::Privilege;
use crate::meta::group_run::GroupRun;
use crate::options::Allocation;

impl Engine {
    /// Writes free blocks that metadata will take. Does nothing if they are no longer free.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`] if the sparse backing file is full; device errors, after which the pool is stopped.
    pub(crate) fn write_runs(&self, runs: &[GroupRun]) -> Result<()> {
        if !self.meta().permits(Allocation::MetadataRun) {
            return Err(PoolError::NoSpace);
        }
        // The runs are busy while they are written, so nobody gets their blocks meanwhile.
        if !self.run(Privilege::Freeing, |op| op.reserve_runs(runs))? {
            return Ok(());
        }
        let longest = runs.iter().map(|run| run.count).max().unwrap_or(0);
        let zeros = AlignedBuffer::zeroed(usize::try_from(longest).expect("at most 256"));
        let write = |run: &GroupRun| {
            let length = usize::try_from(run.count).expect("at most 256") * BLOCK_BYTES;
            WriteOp { first: run.first, from: &zeros[..length] }
        };
        let writes: Vec<WriteOp<'_>> = runs.iter().map(write).collect();
        let written = self.device.write_batch(&writes).map_err(|source| PoolError::of_write(runs[0].first, source));
        let mut meta = self.meta();
        meta.free_again(runs);
        if written.is_ok() {
            meta.keep_written(runs);
        }
        drop(meta);
        written.inspect_err(|error| match (error, runs) {
            // Single retries find out which of them has no room.
            (PoolError::NoSpace, [_, _, ..]) => self.meta().groups.note_full_backing_once(),
            _ => self.write_failed(error, runs[0].first),
        })
    }
}
