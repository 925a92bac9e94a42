//! Mending a pool that nobody has open.
//!
//! The names tree and the file maps are the truth; everything else follows from them:
//! 1. a bad superblock copy is written anew from the good one;
//! 2. a journal or pool state that cannot be used is replaced by the best reading of what is left, and metadata that
//!    the journal still holds is put back from there ([`ground`]); the journal is emptied;
//! 3. a names tree with unusable pages, or with pages that nothing leads to, is built anew from all of its leaves that
//!    can be read ([`salvage`]);
//! 4. what cannot be read of file maps becomes a hole ([`maps`]): the check's report names file and block;
//! 5. bitmaps, fingerprint stores, reference counts and counters are made anew ([`groups`]);
//! 6. names and inodes are brought into agreement by operations like any other ([`names`]); what no directory leads to
//!    goes to `/lost+found`; files that name blocks of another sharing domain get copies ([`domains`]);
//! 7. what 6 has let go of is freed, by 5 again.
//!
//! All changes go through the journal, and each step finds what an interrupted one has left: a repair that was cut
//! short is finished by running it again. The pool is held meanwhile as by a host that has it open ([`held`]).
//!
//! Data that does not match its fingerprint stays as it is: nobody knows what it was. It is marked, so that no later
//! write is shared with it.

mod domains;
mod ground;
mod groups;
mod held;
mod maps;
mod names;
mod patch;
mod salvage;
mod settle;

use std::sync::Arc;

use onefold_block::{AlignedBuffer, BlockDevice, BlockNo};

use super::context::Context;
use super::findings::CheckReport;
use super::reader::CheckError;
use super::{Besides, CheckOptions, ensure_memory, find, inodes};
use crate::data::Data;
use crate::engine::Engine;
use crate::engine::open::read_superblock;
use crate::error::{PoolError, Result};
use crate::format::geometry::{SUPERBLOCK, SUPERBLOCK_COPY};
use crate::format::superblock::Superblock;
use crate::journal::log;
use crate::options::{Environment, OpenOptions};
use crate::progress::Progress;
use patch::Patch;

/// What one round lets go of may leave something for the next.
const ROUNDS_MAX: u32 = 3;

/// Checks a pool and mends what can be mended. Returns what was wrong before.
///
/// # Errors
/// As [`super::check`]; [`PoolError::InUse`] if another host has the pool open; device errors.
pub fn repair(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    environment: &Environment,
    progress: &dyn Progress,
) -> Result<CheckReport> {
    ensure_memory(options)?;
    // Before the check: it must not watch another host write.
    held::while_held(device, options.host, environment, |device| repair_held(device, options, environment, progress))
}

fn repair_held(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    environment: &Environment,
    progress: &dyn Progress,
) -> Result<CheckReport> {
    let (report, besides) = find(&**device, options, progress)?;
    if report.is_clean() || report.stopped || besides.is_beyond_repair {
        return Ok(report);
    }
    let mended = mend(device, options, environment, progress, besides).and_then(|left| {
        let mut lost = data_problems(&report);
        let mut lost_total = lost.len() as u64;
        if options.verify_data && report.problems_total > report.problems.len() as u64 {
            // Damaged data may have been counted only, behind a thousand other problems: with these mended it is told.
            let (again, _) = find(&**device, options, progress)?;
            lost = data_problems(&again);
            lost_total = again.problems_total.saturating_sub(left);
        }
        if !lost.is_empty() {
            quarantine(device, environment, &lost)?;
        }
        Ok(left + lost_total)
    });
    match mended {
        Ok(problems_left) => Ok(CheckReport { problems_left, ..report }),
        Err(CheckError::Stopped) => Ok(CheckReport { stopped: true, ..report }),
        Err(CheckError::Fatal(error)) => Err(error),
        Err(CheckError::Unusable(what)) => Err(PoolError::Damaged { structure: "names tree", block: SUPERBLOCK, what }),
    }
}

/// Returns the blocks whose data is damaged.
fn data_problems(report: &CheckReport) -> Vec<BlockNo> {
    let of_data = report.problems.iter().filter(|problem| problem.structure == "data");
    of_data.filter_map(|problem| problem.block).collect()
}

/// Marks damaged data, so that no later write is shared with it.
fn quarantine(
    device: &Arc<dyn BlockDevice>,
    environment: &Environment,
    blocks: &[BlockNo],
) -> std::result::Result<(), CheckError> {
    let options = OpenOptions { background: false, memory_bytes: crate::MEMORY_BYTES_MIN, ..OpenOptions::default() };
    let data = Data::new(Arc::new(Engine::open(Arc::clone(device), options, environment.clone())?));
    for &block in blocks {
        data.quarantine(block)?;
    }
    Ok(data.engine.commit_and_close()?)
}

/// Returns how many problems are left.
fn mend(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    environment: &Environment,
    progress: &dyn Progress,
    besides: Besides,
) -> std::result::Result<u64, CheckError> {
    mend_superblocks(&**device)?;
    let quick = CheckOptions { verify_data: false, ..options.clone() };
    let superblock = read_superblock(&**device)?;
    let mut left = besides;
    let chosen = match left.ground.take() {
        Some(ground) => Some(ground),
        None => super::ground::better(&**device, &superblock, options, progress)?,
    };
    if let Some(ground) = chosen {
        ground::settle(&**device, &superblock, &ground)?;
        drop(ground);
        let (report, besides) = find(&**device, &quick, progress)?;
        if report.is_clean() {
            return Ok(0);
        }
        left = besides;
    }
    let mut problems_left = 0;
    for _ in 0..ROUNDS_MAX {
        if left.lost_names {
            salvage::mend(&**device, options, progress)?;
        }
        mend_blocks(&**device, options, progress)?;
        names::mend(device, environment, &left, options.memory_bytes)?;
        mend_blocks(&**device, options, progress)?;
        let (again, besides) = find(&**device, &quick, progress)?;
        if again.stopped {
            return Err(CheckError::Stopped);
        }
        problems_left = again.problems_total;
        if problems_left == 0 {
            break;
        }
        left = besides;
    }
    Ok(problems_left)
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
    let mut context = Context::reopen(device, options, progress)?;
    let listed = inodes::check(&mut context)?;
    maps::mend(&mut context, &mut patch, &listed)?;
    let mut context = Context::reopen(device, options, progress)?;
    let listed = inodes::check(&mut context)?;
    groups::mend(&mut context, &mut patch, &listed)
}
