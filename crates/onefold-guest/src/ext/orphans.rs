//! The orphans: files that were deleted or cut while a program had them open. A mount and a checker end that.
//!
//! The superblock names the first of a list, and each has the number of the next one in place of its time of deletion.
//! With `orphan_file` they are in a file, whose blocks are numbers of inodes up to a magic and a checksum.

use std::ops::ControlFlow;

use super::superblock::features;
use super::tables::Tables;
use crate::error::GuestError;

const STRUCTURE: &str = "orphan file";
/// Place of the next orphan in an inode.
const NEXT_AT: usize = 0x14;
/// Maximum number of orphans in a list that are followed. The list may be a ring.
const ORPHANS_MAX: u32 = 1 << 16;
/// Maximum length of the orphan file; the kernel refuses a longer one.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Length of magic and checksum at the end of a block.
const TAIL_BYTES: usize = 8;

impl Tables<'_> {
    /// Calls `visit` with the number of each orphan. Returns whether that was all of them.
    ///
    /// # Errors
    /// Those of the disk, and damaged orphans.
    pub(super) fn each_orphan(&self, visit: &mut dyn FnMut(u32)) -> Result<bool, GuestError> {
        let mut number = self.superblock.first_orphan;
        for _ in 0..ORPHANS_MAX {
            if number == 0 {
                return self.each_orphan_of_file(visit);
            }
            visit(number);
            number = self.inode(number)?.bytes().le32(NEXT_AT).unwrap_or(0);
        }
        Ok(false)
    }

    fn each_orphan_of_file(&self, visit: &mut dyn FnMut(u32)) -> Result<bool, GuestError> {
        let superblock = &self.superblock;
        if superblock.orphan_file_inode == 0 || !superblock.features.has(features::ORPHAN_PRESENT) {
            return Ok(true);
        }
        let (mut outcome, mut left) = (Ok(true), FILE_BYTES_MAX / superblock.block_bytes);
        self.each_run(&self.inode(superblock.orphan_file_inode)?, 0, &mut |run| {
            let Some(rest) = left.checked_sub(run.count) else {
                outcome = Ok(false);
                return ControlFlow::Break(());
            };
            left = rest;
            for block in run.block..run.block + run.count {
                match self.source.bytes(block * superblock.block_bytes, superblock.block_length, STRUCTURE) {
                    Ok(bytes) => {
                        let (numbers, _) = bytes.split_at(bytes.len().saturating_sub(TAIL_BYTES));
                        let numbers = numbers.chunks_exact(4).filter_map(|number| number.try_into().ok());
                        numbers.map(u32::from_le_bytes).for_each(&mut *visit);
                    }
                    Err(error) => outcome = Err(error),
                }
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome
    }
}
