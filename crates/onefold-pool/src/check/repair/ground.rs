//! Making the chosen reading of journal and pool state the one that every opening finds.
//!
//! The order, and what would be lost if a step moved:
//! 1. What the journal holds is written home and flushed. The journal still says the same: cut here, the next repair
//!    reads and chooses as this one did.
//! 2. The header slots are written one after the other, each flushed: the log is empty. (Earlier: what is not home
//!    would be forgotten.)

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, BlockNo};

use crate::check::ground::Ground;
use crate::error::{PoolError, Result};
use crate::format::superblock::Superblock;
use crate::journal::log::{self, Log};
use crate::journal::salvage::Remains;

/// Puts the ground in place.
///
/// # Errors
/// Device errors.
pub(super) fn settle(device: &dyn BlockDevice, superblock: &Superblock, ground: &Ground) -> Result<()> {
    let write = |at: BlockNo, bytes: &[u8]| {
        let buffer = AlignedBuffer::copy_of(bytes);
        device.write(at, &buffer).map_err(|source| PoolError::Io { action: "write", block: at, source })
    };
    for (at, bytes) in ground.blocks.iter() {
        write(*at, &bytes[..])?;
    }
    // A bad sector is often a good one again once it is written.
    for at in Remains::read(device, superblock).unreadable {
        write(at, &[0; BLOCK_BYTES])?;
    }
    log::sync(device, superblock.geometry.journal_first)?;
    let mut log = Log::new(superblock, ground.position, 0);
    // Twice, so that both header slots are good.
    log.move_tail(device, ground.next_sequence, false)?;
    log.move_tail(device, ground.next_sequence, false)
}
