//! What a check stands on: the metadata that recovery puts in place, and the pool state.
//!
//! Where journal or pool state are damaged there may be several readings of what is left. Each is tried by an
//! examination in memory, and the one that the rest of the pool contradicts least is taken. So a repair guesses at
//! nothing, and needs no order in which to believe two witnesses.

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_block::{BlockDevice, BlockNo};

use super::context::Context;
use super::fixed;
use super::lost_state;
use super::reader::{CheckError, Reader};
use super::{CheckOptions, examine};
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::geometry::STATE;
use crate::format::state::Field;
use crate::format::superblock::Superblock;
use crate::journal::log::LogPosition;
use crate::journal::replay::{self, Replayed};
use crate::journal::salvage::Remains;
use crate::progress::Progress;

/// Numbers of the pool state that everything else depends on.
const ROOTS: [Field; 4] = [Field::TreeRoot, Field::NextIno, Field::GroupsReady, Field::NextReclaim];

/// How the journal was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// As any opening of the pool does.
    Recovered,
    /// All transactions that follow one another up to the newest, those that are in place already included.
    NewestChain,
    /// Those from the log's beginning up to the damage.
    UpToDamage,
    /// None.
    Nothing,
}

impl Reading {
    /// Returns what the reading means to the user.
    pub(super) fn words(self) -> &'static str {
        match self {
            Reading::Recovered => "it can be read",
            Reading::NewestChain => "all that its later part holds can still be used",
            Reading::UpToDamage => "what was changed after the damaged place, in the last moments, is lost",
            Reading::Nothing => "what was changed in the last moments may be lost",
        }
    }
}

/// Metadata that may not be in place, and where the journal stands.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) reading: Reading,
    pub(super) blocks: Arc<BTreeMap<BlockNo, Box<BlockBytes>>>,
    pub(super) next_sequence: u64,
    pub(super) position: LogPosition,
    /// The pool state was made anew: its counters are not known.
    pub(super) is_state_rebuilt: bool,
}

impl Ground {
    fn new(reading: Reading, replayed: Replayed) -> Ground {
        Ground {
            reading,
            blocks: Arc::new(replayed.blocks),
            next_sequence: replayed.next_sequence,
            position: replayed.position,
            is_state_rebuilt: false,
        }
    }

    /// Returns what an opening of the pool would stand on.
    ///
    /// # Errors
    /// Damage of the journal; device errors.
    pub(super) fn recover(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Ground> {
        let replayed = replay::replay(device, &superblock.geometry, superblock.pool_tag())?;
        Ok(Ground::new(Reading::Recovered, replayed))
    }

    fn reader<'a>(&self, device: &'a dyn BlockDevice, superblock: &Superblock) -> Reader<'a> {
        let total_blocks = superblock.geometry.total_blocks;
        Reader::new(device, superblock.pool_tag(), total_blocks, Arc::clone(&self.blocks))
    }

    /// Returns the same with a pool state that was made anew from what the pool holds.
    fn with_rebuilt_state(&self, device: &dyn BlockDevice, superblock: &Superblock) -> Ground {
        let state = lost_state::rebuild(&mut self.reader(device, superblock), superblock);
        let mut blocks = (*self.blocks).clone();
        blocks.insert(STATE, state);
        Ground { blocks: Arc::new(blocks), is_state_rebuilt: true, ..self.clone() }
    }
}

/// Returns the best reading of a pool whose journal or pool state cannot be used.
///
/// # Errors
/// Device errors; the caller's wish to stop.
pub(super) fn find(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> std::result::Result<Option<Ground>, CheckError> {
    let geometry = &superblock.geometry;
    let remains = Remains::read(device, geometry, superblock.pool_tag());
    let mut readings = Vec::new();
    readings.extend(remains.newest_chain(device, geometry).map(|read| Ground::new(Reading::NewestChain, read)));
    match Ground::recover(device, superblock) {
        Ok(ground) => readings.push(ground),
        Err(PoolError::Damaged { .. } | PoolError::Io { .. }) => {
            let read = remains.since_tail(device, geometry).map(|read| Ground::new(Reading::UpToDamage, read));
            readings.push(read.unwrap_or_else(|| Ground::new(Reading::Nothing, remains.nothing())));
        }
        Err(error) => return Err(error.into()),
    }
    let mut tried = Vec::new();
    for ground in readings {
        let rebuilt = ground.with_rebuilt_state(device, superblock);
        if fixed::usable_state(&mut ground.reader(device, superblock), geometry).is_ok() {
            tried.push(ground);
        }
        tried.push(rebuilt);
    }
    Ok(best(device, superblock, options, progress, tried)?.map(|(ground, _)| ground))
}

/// Returns a reading that is contradicted less than `recovered`, which can be used but with damage. There may be one
/// where blocks were damaged, or put back to an older version, that the journal still holds.
///
/// # Errors
/// As [`find`].
pub(super) fn better(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> std::result::Result<Option<Ground>, CheckError> {
    let geometry = &superblock.geometry;
    let Ok(recovered) = Ground::recover(device, superblock) else { return Ok(None) };
    let remains = Remains::read(device, geometry, superblock.pool_tag());
    let mut others = Vec::new();
    // A journal that was switched off for a while holds what is out of date.
    let chain = remains.newest_chain(device, geometry).filter(|chain| {
        chain.next_sequence == recovered.next_sequence && chain.position.chain == recovered.position.chain
    });
    others.extend(chain.map(|read| Ground::new(Reading::NewestChain, read)));
    let rebuilt = recovered.with_rebuilt_state(device, superblock);
    if has_other_roots(&recovered, &rebuilt, device, superblock) {
        others.push(rebuilt);
    }
    if others.is_empty() {
        return Ok(None);
    }
    let Some((_, worst)) = best(device, superblock, options, progress, vec![recovered])? else { return Ok(None) };
    let found = best(device, superblock, options, progress, others)?;
    Ok(found.filter(|(_, contradictions)| *contradictions < worst).map(|(ground, _)| ground))
}

/// Tells whether two pool states differ in more than counters and numbers to give out.
fn has_other_roots(one: &Ground, other: &Ground, device: &dyn BlockDevice, superblock: &Superblock) -> bool {
    let [one, other] = [one, other]
        .map(|ground| fixed::usable_state(&mut ground.reader(device, superblock), &superblock.geometry).ok());
    let (Some(one), Some(other)) = (one, other) else { return true };
    ROOTS.iter().any(|field| match field {
        Field::NextIno | Field::NextReclaim => field.get(&one) < field.get(&other),
        _ => field.get(&one) != field.get(&other),
    })
}

/// Returns the one of `grounds` that is contradicted least, the first among equals, and how much it is.
fn best(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    options: &CheckOptions,
    progress: &dyn Progress,
    grounds: Vec<Ground>,
) -> std::result::Result<Option<(Ground, u64)>, CheckError> {
    let quick = CheckOptions { verify_data: false, ..options.clone() };
    let mut least: Option<(Ground, u64)> = None;
    for ground in grounds {
        if least.as_ref().is_some_and(|(_, contradictions)| *contradictions == 0) {
            break;
        }
        let Ok(mut context) = Context::on(device, superblock, &quick, progress, &ground) else { continue };
        match examine(&mut context, &quick) {
            Ok(()) => {}
            Err(CheckError::Unusable(what)) => context.findings.tell("names tree", None, what),
            Err(error) => return Err(error),
        }
        let contradictions = context.findings.contradictions();
        if least.as_ref().is_none_or(|(_, fewest)| contradictions < *fewest) {
            least = Some((ground, contradictions));
        }
    }
    Ok(least)
}
