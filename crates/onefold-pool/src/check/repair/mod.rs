//! Mending a pool that nobody has open.
//!
//! The names tree and the file maps are the truth; everything else follows from them:
//! 1. a bad superblock copy is written anew from the good one;
//! 2. the journal is emptied by recovery;
//! 3. a names tree with unusable pages is built anew from all of its leaves that can be read ([`salvage`]);
//! 4. what cannot be read of file maps becomes a hole ([`maps`]): the check's report names file and block;
//! 5. bitmaps, fingerprint stores, reference counts and counters are made anew ([`groups`]);
//! 6. names and inodes are brought into agreement by operations like any other ([`names`]); what no directory leads to
//!    goes to `/lost+found`;
//! 7. what 6 has let go of is freed, by 5 again.
//!
//! All changes go through the journal, and each step finds what an interrupted one has left: a repair that was cut short
//! is finished by running it again.
//!
//! Not mended: a lost journal or pool state. Data that does not match its fingerprint stays as it is: nobody knows what it
//! was.

mod groups;
mod maps;
mod names;
mod patch;
mod salvage;
mod settle;

use std::sync::Arc;

use onefold_block::{AlignedBuffer, BlockDevice};

use super::context::Context;
use super::findings::{CheckReport, Findings};
use super::reader::CheckError;
use super::{CheckOptions, ensure_memory, find, inodes};
use crate::engine::open::read_superblock;
use crate::error::{PoolError, Result};
use crate::format::geometry::{SUPERBLOCK, SUPERBLOCK_COPY};
use crate::format::superblock::Superblock;
use crate::journal::log;
use crate::progress::Progress;
use patch::Patch;

/// What one round lets go of may leave something for the next.
const ROUNDS_MAX: u32 = 3;

/// Checks a pool and mends what can be mended. Returns what was wrong before.
///
/// # Errors
/// As [`super::check`]; device errors.
pub fn repair(device: &Arc<dyn BlockDevice>, options: &CheckOptions, progress: &dyn Progress) -> Result<CheckReport> {
    ensure_memory(options)?;
    let (report, besides) = find(&**device, options, progress)?;
    if report.is_clean() || report.stopped {
        return Ok(report);
    }
    mend_superblocks(&**device)?;
    let mut left = besides;
    for _ in 0..ROUNDS_MAX {
        if left.is_beyond_repair {
            break;
        }
        let names = if left.lost_names { salvage::mend(&**device, options, progress) } else { Ok(()) };
        let mended = names
            .and_then(|()| mend_blocks(&**device, options, progress))
            .and_then(|()| Ok(names::mend(device, &left.past_end, options.memory_bytes)?))
            .and_then(|()| mend_blocks(&**device, options, progress));
        match mended {
            Ok(()) => {}
            Err(CheckError::Stopped) => return Ok(CheckReport { stopped: true, ..report }),
            Err(CheckError::Fatal(error)) => return Err(error),
            Err(CheckError::Unusable(what)) => {
                return Err(PoolError::Damaged { structure: "names tree", block: SUPERBLOCK, what });
            }
        }
        let quick = CheckOptions { verify_data: false, ..options.clone() };
        let (again, besides) = find(&**device, &quick, progress)?;
        if again.is_clean() || again.stopped {
            break;
        }
        left = besides;
    }
    Ok(report)
}

/// Writes the better superblock over the worse one.
fn mend_superblocks(device: &dyn BlockDevice) -> Result<()> {
    let superblock = read_superblock(device)?;
    for at in [SUPERBLOCK_COPY, SUPERBLOCK] {
        let mut buffer = AlignedBuffer::zeroed(1);
        let read = device.read(at, &mut buffer);
        let found = read.ok().and_then(|()| Superblock::decode(buffer.block(0)?, at).ok());
        if found.as_ref() != Some(&superblock) {
            let bytes = AlignedBuffer::copy_of(&superblock.encode(at)[..]);
            device.write(at, &bytes).map_err(|source| PoolError::Io { action: "write", block: at, source })?;
            log::sync(device, at)?;
        }
    }
    Ok(())
}

/// Mends maps, and then makes anew what follows from them.
fn mend_blocks(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> std::result::Result<(), CheckError> {
    let superblock = read_superblock(device)?;
    let mut patch = Patch::recover(device, &superblock)?;
    // What is wrong has been told; only what there is matters now.
    let mut unheard = Findings::default();
    let gone = || CheckError::Unusable("the pool changed while it was mended".to_owned());
    let mut context = Context::open(device, options, progress, &mut unheard)?.ok_or_else(gone)?;
    let listed = inodes::check(&mut context)?;
    maps::mend(&mut context, &mut patch, &listed)?;
    let mut context = Context::open(device, options, progress, &mut unheard)?.ok_or_else(gone)?;
    let listed = inodes::check(&mut context)?;
    groups::mend(&mut context, &mut patch, &listed)
}
