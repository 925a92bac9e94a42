//! Repairs a pool that no process has open.
//!
//! The names tree and the file maps are the truth; everything else follows from them:
//! 1. A bad superblock copy is rewritten from the good one.
//! 2. An unusable journal or pool state is replaced by the best reading of the rest, and metadata that the journal
//!    still holds is restored from there ([`ground`]); the journal is emptied.
//! 3. A names tree with unusable or unreachable pages is rebuilt from all of its readable leaves ([`salvage`]).
//! 4. Unreadable parts of file maps become holes ([`maps`]); the check's report names file and block.
//! 5. Bitmaps, fingerprint stores, reference counts and counters are rebuilt ([`groups`]).
//! 6. Ordinary operations bring names and inodes into agreement ([`names`]). Inodes that no directory leads to go to
//!    `/lost+found`; files that name blocks of another sharing domain get copies ([`domains`]).
//! 7. Step 5 runs again to free the blocks that step 6 has dropped.
//!
//! All changes go through the journal, and each step handles the result of an interrupted one: running an interrupted
//! repair again finishes it. The pool is held meanwhile, as by a host that has it open ([`held`]).
//!
//! Data that does not match its fingerprint stays unchanged, as its right content is unknown. It is marked, so that no
//! later write is shared with it.

mod domains;
mod each_item;
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
use super::{CheckOptions, RepairFacts, ensure_memory, find, inodes};
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

/// Maximum number of rounds: blocks dropped in one round may leave work for the next.
const ROUNDS_MAX: u32 = 3;

/// Checks a pool and repairs what can be repaired. Returns the problems before the repair.
///
/// # Errors
/// See [`super::check`]; [`PoolError::InUse`] if another host has the pool open; [`PoolError::UnprovenNames`]; device
/// errors.
pub fn repair(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    environment: &Environment,
    progress: &dyn Progress,
) -> Result<CheckReport> {
    ensure_memory(options)?;
    // Taken before the check, which must not run while another host writes.
    held::while_held(device, options.host, environment, |device| repair_held(device, options, environment, progress))
}

fn repair_held(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    environment: &Environment,
    progress: &dyn Progress,
) -> Result<CheckReport> {
    let (report, facts) = find(&**device, options, progress)?;
    if report.is_clean() || report.stopped || facts.is_beyond_repair {
        return Ok(report);
    }
    let mended = mend(device, options, environment, progress, facts).and_then(|left| {
        let mut lost = data_problems(&report);
        let mut lost_total = lost.len() as u64;
        if options.verify_data && report.problems_total > report.problems.len() as u64 {
            // Damaged data may only have been counted, behind a thousand other problems; after their repair it is
            // reported.
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

/// Returns the number of remaining problems.
fn mend(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    environment: &Environment,
    progress: &dyn Progress,
    facts: RepairFacts,
) -> std::result::Result<u64, CheckError> {
    mend_superblocks(&**device)?;
    let quick = CheckOptions { verify_data: false, ..options.clone() };
    let superblock = read_superblock(&**device)?;
    let mut left = facts;
    let chosen = match left.ground.take() {
        Some(ground) => Some(ground),
        None => super::readings::better(&**device, &superblock, options, progress)?,
    };
    if let Some(ground) = chosen {
        ground::settle(&**device, &superblock, &ground)?;
        drop(ground);
        let (report, facts) = find(&**device, &quick, progress)?;
        if report.is_clean() {
            return Ok(0);
        }
        left = facts;
    }
    let mut problems_left = 0;
    for _ in 0..ROUNDS_MAX {
        if left.lost_names {
            salvage::mend(&**device, options, progress)?;
        }
        mend_blocks(&**device, options, progress)?;
        names::mend(device, environment, &left, options.memory_bytes)?;
        mend_blocks(&**device, options, progress)?;
        let (again, facts) = find(&**device, &quick, progress)?;
        if again.stopped {
            return Err(CheckError::Stopped);
        }
        problems_left = again.problems_total;
        if problems_left == 0 {
            break;
        }
        left = facts;
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

/// Repairs maps, and then rebuilds what follows from them.
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
