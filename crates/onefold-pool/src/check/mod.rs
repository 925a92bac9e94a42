//! Checks a pool that no process has open.
//!
//! A check never writes. It recovers the journal in memory and then checks everything in the pool: the fixed
//! structures, the block groups, the names tree and all of its items, all file maps, every reference count, and the
//! pool state's counters. With [`CheckOptions::verify_data`] it also reads all data. It continues after damage, as far
//! as the rest is usable.
//!
//! **Memory.** [`CheckOptions::memory_bytes`] bounds what a check remembers:
//! 1. references are counted in passes, each over as many block groups as fit (`span`), and each with a walk over all
//!    maps;
//! 2. 32 bytes are kept for each inode (`inodes`), and a place in a `node_set` for each map node. A pool with more of
//!    them than fit is refused with the memory that it would need.

mod context;
pub(crate) mod data;
pub(crate) mod findings;
mod fixed;
mod ground;
mod inodes;
mod items;
mod links;
mod lost_state;
mod maps;
mod node_set;
mod opening;
mod paths;
mod reader;
mod readings;
mod references;
mod repair;
mod span;
mod state;
#[cfg(test)]
mod tests;
mod trace;

use onefold_block::BlockDevice;

use crate::attr::Ino;
use crate::error::{PoolError, Result};
use crate::format::geometry::STATE;
use crate::host::HostId;
use crate::progress::Progress;

pub use findings::{CheckProblem, CheckReport, FilePlace};
pub use repair::repair;

use context::Context;
use findings::CheckFindings;
use ground::Ground;
use reader::CheckError;

/// Options of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Maximum memory that it takes, in bytes; at least [`crate::MEMORY_BYTES_MIN`].
    pub memory_bytes: u64,
    /// Whether all data is read and compared with its fingerprints.
    pub verify_data: bool,
    /// Identity of this host, for a repair on storage that other hosts reach, as in [`crate::OpenOptions::host`]. A
    /// check changes nothing and does not need it.
    pub host: Option<HostId>,
    /// Treatment of blocks that only their own header shows to be pages of names, in a pool whose users can know all of
    /// such a header.
    pub unproven_names: UnprovenNames,
}

/// Treatment of blocks that look like pages of the names tree, but that users may have written: no other structure
/// mentions them, and the metadata tag of the pool is not secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnprovenNames {
    /// A repair that finds some of them fails, and changes no names.
    #[default]
    Refuse,
    /// All of their names and inodes count.
    Take,
    /// They count as blocks without a use. Files that only they name are lost.
    Leave,
}

/// Options of a scrub.
#[derive(Clone, Debug, Default)]
pub struct ScrubOptions {
    /// Maximum read rate in bytes per second; `None` for no limit.
    pub bytes_per_second: Option<u64>,
}

/// Checks the pool on a device that nothing changes meanwhile.
///
/// # Errors
/// [`PoolError::NotAPool`], [`PoolError::NewerFormat`], [`PoolError::DeviceTooSmall`], [`PoolError::MemoryTooSmall`],
/// damage of both superblock copies. All other damage is in the report.
pub fn check(device: &dyn BlockDevice, options: &CheckOptions, progress: &dyn Progress) -> Result<CheckReport> {
    ensure_memory(options)?;
    Ok(find(device, options, progress)?.0)
}

fn ensure_memory(options: &CheckOptions) -> Result<()> {
    if options.memory_bytes < crate::MEMORY_BYTES_MIN {
        return Err(PoolError::MemoryTooSmall { given: options.memory_bytes, needed: crate::MEMORY_BYTES_MIN });
    }
    Ok(())
}

/// Checks a pool; returns the report, and the additional facts that a repair needs.
fn find(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<(CheckReport, RepairFacts)> {
    let (context, findings) = match opening::open_context(device, options, progress) {
        Ok(opened) => opened,
        Err(CheckError::Fatal(error)) => return Err(error),
        Err(CheckError::Stopped) => {
            return Ok((CheckReport { stopped: true, ..CheckReport::default() }, RepairFacts::default()));
        }
        Err(CheckError::Unusable(what)) => {
            return Err(PoolError::Damaged { structure: "pool state", block: STATE, what });
        }
    };
    let Some(mut context) = context else {
        return Ok((report_of(findings), RepairFacts { is_beyond_repair: true, ..RepairFacts::default() }));
    };
    context.findings.precede_by(findings);
    let stopped = match examine(&mut context, options) {
        Ok(()) => false,
        Err(CheckError::Stopped) => true,
        Err(CheckError::Fatal(error)) => return Err(error),
        Err(CheckError::Unusable(what)) => {
            context.findings.tell("names tree", None, what);
            false
        }
    };
    paths::name_files(&mut context);
    let blocks_checked = context.blocks_checked();
    let (inodes_checked, data_blocks_hashed) = (context.inodes_checked, context.data_blocks_hashed);
    let findings = std::mem::take(&mut context.findings);
    let facts = RepairFacts {
        is_beyond_repair: false,
        lost_names: findings.lost_names,
        past_end: findings.past_end.clone(),
        mixed_domains: findings.mixed_domains,
        ground: context.chosen.take(),
    };
    let report = report_of(findings);
    Ok((CheckReport { inodes_checked, blocks_checked, data_blocks_hashed, stopped, ..report }, facts))
}

/// Facts beside the report that a repair needs.
#[derive(Default)]
struct RepairFacts {
    /// Nothing usable is left: the use of the allocated blocks is unknown, and freeing them would end every chance of
    /// recovering them.
    is_beyond_repair: bool,
    /// Whether pages of the names tree are unusable or unreachable.
    lost_names: bool,
    /// Files with data past their end.
    past_end: Vec<Ino>,
    /// Whether files of several sharing domains have blocks in common.
    mixed_domains: bool,
    /// The chosen ground, if journal or pool state is unusable.
    ground: Option<Ground>,
}

fn examine(context: &mut Context<'_>, options: &CheckOptions) -> std::result::Result<(), CheckError> {
    let listed = inodes::check(context)?;
    links::check(context, &listed)?;
    let counted = references::check_all(context, &listed)?;
    state::check(context, &listed, &counted);
    if options.verify_data {
        data::check(context)?;
    }
    Ok(())
}

fn report_of(findings: CheckFindings) -> CheckReport {
    let problems = findings.found.into_iter().map(|found| found.problem).collect();
    CheckReport { problems, problems_total: findings.total, ..CheckReport::default() }
}
