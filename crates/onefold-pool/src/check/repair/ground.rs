//! Makes the chosen reading of journal and pool state permanent, so that every opening finds it.
//!
//! The order, and what would be lost if a step moved:
//! 1. The journal's blocks are written home and flushed. The journal is still unchanged: after a crash here, the next
//!    repair reads and chooses the same.
//! 2. The header slots are written one after the other, each flushed: the log is empty. (Any earlier, blocks that are
//!    not home would be lost.)

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, BlockNo};

use crate::check::ground::Ground;
use crate::error::{PoolError, Result};
use crate::format::superblock::Superblock;
use crate::journal::log::{self, JournalLog};
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
    // Writing a bad sector often makes it readable again.
    for at in Remains::read(device, superblock).unreadable {
        write(at, &[0; BLOCK_BYTES])?;
    }
    log::sync(device, superblock.geometry.journal_first)?;
    let mut log = JournalLog::new(superblock, ground.position, 0);
    // Twice, so that both header slots are good.
    log.move_tail(device, ground.next_sequence, false)?;
    log.move_tail(device, ground.next_sequence, false)
}
