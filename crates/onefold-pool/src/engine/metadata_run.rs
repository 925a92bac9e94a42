//! Blocks for metadata are written before they are used.
//!
//! Map nodes and tree pages live in the journal until a checkpoint puts them in place. On a sparse pool file that would
//! be the first write of their places, and a full host file system would then have no room for what was promised long
//! before. So their places are filled with zeros while an operation can still be told that there is no space: whole runs
//! as a rule, single blocks where there are no runs any more.

use onefold_block::AlignedBuffer;

use super::Engine;
use super::group_init::write_error;
use crate::error::{PoolError, Result};
use crate::meta::Privilege;
use crate::meta::allocate::Run;
use crate::options::Allocation;

/// Single written blocks that are remembered: those that were taken since are among them.
const WRITTEN_MAX: usize = 4096;

impl Engine {
    /// Writes free blocks for metadata to take. Does nothing where they are not free any more.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`] where the sparse backing file is full; device errors, after which the pool is stopped.
    pub(crate) fn write_run(&self, run: Run) -> Result<()> {
        if !self.meta().permits(Allocation::MetadataRun) {
            return Err(PoolError::NoSpace);
        }
        // The run is busy while it is written: nobody gets its blocks meanwhile.
        if !self.run(Privilege::Freeing, |op| op.reserve_run(run))? {
            return Ok(());
        }
        let zeros = AlignedBuffer::zeroed(usize::try_from(run.count).expect("at most 256"));
        let written = self.device.write(run.first, &zeros).map_err(|source| write_error(run.first, source));
        let mut meta = self.meta();
        for block in 0..run.count {
            meta.groups.clear_busy(run.first.plus(block));
        }
        if written.is_ok() {
            meta.groups.take_written(run, WRITTEN_MAX);
        }
        drop(meta);
        written.inspect_err(|error| self.write_failed(error, run.first))
    }
}
