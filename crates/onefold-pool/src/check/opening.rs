//! The beginning of a check: finds the pool, and the ground that the check stands on.

use onefold_block::BlockDevice;

use super::CheckOptions;
use super::context::Context;
use super::findings::CheckFindings;
use super::fixed;
use super::ground::{Ground, JournalReading};
use super::reader::CheckError;
use super::readings;
use crate::engine::open;
use crate::error::PoolError;
use crate::format::geometry::STATE;
use crate::progress::Progress;

/// Finds the pool and recovers it in memory. If journal or pool state are damaged, the check continues with the
/// best reading of the rest. `None` if nothing is left to continue with.
pub(super) fn open_context<'a>(
    device: &'a dyn BlockDevice,
    options: &CheckOptions,
    progress: &'a dyn Progress,
) -> Result<(Option<Context<'a>>, CheckFindings), CheckError> {
    let mut findings = CheckFindings::default();
    let superblock = open::read_superblock(device)?;
    open::check_length(device, &superblock)?;
    fixed::check_superblocks(device, &superblock, &mut findings)?;
    fixed::check_journal_headers(device, &superblock, &mut findings)?;
    let (journal, recovered) = match Ground::recover(device, &superblock) {
        Ok(ground) => (None, Some(ground)),
        Err(PoolError::Damaged { block, what, .. }) => (Some((block, what)), None),
        Err(PoolError::Io { block, source, .. }) => (Some((block, format!("cannot be read: {source}"))), None),
        Err(error) => return Err(error.into()),
    };
    // The recovered blocks may be large, so they are dropped before other readings are tried.
    let state = match recovered {
        Some(ground) => match Context::on(device, &superblock, options, progress, &ground) {
            Ok(context) => return Ok((Some(context), findings)),
            Err(what) => Some(what),
        },
        None => None,
    };
    let chosen = readings::find(device, &superblock, options, progress)?;
    if let Some((block, what)) = journal {
        let reading = chosen.as_ref().map_or(JournalReading::Nothing, |ground| ground.reading);
        findings.tell("journal", Some(block), format!("{what}; {}", reading.words()));
    }
    if let Some(what) = state {
        let source = match &chosen {
            Some(ground) if ground.is_state_rebuilt => "it can be rebuilt from the rest of the pool",
            Some(_) => "the journal still holds it",
            None => "nothing else can be judged",
        };
        findings.tell("pool state", Some(STATE), format!("the pool state is unusable: {what}; {source}"));
    }
    let context = chosen.and_then(|ground| {
        let context = Context::on(device, &superblock, options, progress, &ground).ok()?;
        Some(Context { chosen: Some(ground), ..context })
    });
    Ok((context, findings))
}
