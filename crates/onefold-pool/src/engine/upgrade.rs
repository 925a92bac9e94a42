//! Upgrades a pool of version 1 when it is opened.
//!
//! The order, and what would be lost if a step moved:
//! 1. All recovered content is put in place, and the journal is emptied. (Later: transactions of version 1 would be
//!    searched by the identity of version 2, and lost.)
//! 2. The copy of the superblock is written and flushed, then the superblock itself. If a crash comes between the two,
//!    the newer copy counts, and the next opening updates the other one.
//! 3. From now on, transactions have the new identity. (Earlier: an opening by the old superblock would not find them.)

use onefold_block::AlignedBuffer;

use super::Engine;
use crate::error::{PoolError, Result};
use crate::format::geometry::{SUPERBLOCK, SUPERBLOCK_COPY};
use crate::format::superblock::{Marking, Superblock};
use crate::journal::log;

impl Engine {
    /// Turns a pool of version 1 into one of version 2. Leaves it unchanged if a sparse backing file has no room for
    /// that.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped.
    pub(super) fn upgrade(&self) -> Result<()> {
        let mut superblock = self.superblock.lock();
        if superblock.marking != Marking::Public {
            return Ok(());
        }
        let upgraded = Superblock {
            generation: superblock.generation + 1,
            marking: Marking::SecretTransactions,
            ..superblock.clone()
        };
        let emptied = self.checkpoint().and_then(|()| self.write_superblock(&upgraded));
        match emptied {
            Err(PoolError::NoSpace) => return Ok(()),
            emptied => emptied?,
        }
        self.committer.lock().identify_by(upgraded.transaction_identity());
        *superblock = upgraded;
        Ok(())
    }

    /// Writes both copies of the superblock; a lack of room for the second one is no error.
    fn write_superblock(&self, superblock: &Superblock) -> Result<()> {
        for at in [SUPERBLOCK_COPY, SUPERBLOCK] {
            let bytes = AlignedBuffer::copy_of(&superblock.encode(at)[..]);
            let written = self.device.write(at, &bytes).map_err(|source| PoolError::of_write(at, source));
            match written.and_then(|()| log::sync(&*self.device, at)) {
                Ok(()) => {}
                // The copy counts. The next opening writes the other one.
                Err(PoolError::NoSpace) if at == SUPERBLOCK => {}
                Err(PoolError::NoSpace) => return Err(PoolError::NoSpace),
                Err(error) => {
                    self.stop(&error);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
