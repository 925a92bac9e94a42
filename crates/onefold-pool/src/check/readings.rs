//! The readings of a pool whose journal or pool state is damaged: each is tried by a check in memory.

use onefold_block::BlockDevice;

use super::context::Context;
use super::ground::{Ground, JournalReading};
use super::reader::CheckError;
use super::{CheckOptions, examine};
use crate::error::PoolError;
use crate::format::BlockBytes;
use crate::format::state::Field;
use crate::format::superblock::Superblock;
use crate::progress::Progress;

/// Numbers of the pool state on which everything else depends.
const ROOTS: [Field; 4] = [Field::TreeRoot, Field::NextIno, Field::GroupsReady, Field::NextReclaim];

/// A possible ground, in the form of the inputs to make it, because a ground may be large.
struct PossibleGround {
    reading: JournalReading,
    /// The rebuilt pool state, if it was rebuilt.
    state: Option<Box<BlockBytes>>,
}

impl PossibleGround {
    fn ground(&self, device: &dyn BlockDevice, superblock: &Superblock) -> Option<Ground> {
        let ground = Ground::read(device, superblock, self.reading)?;
        Some(match &self.state {
            Some(state) => ground.with_state(state.clone()),
            None => ground,
        })
    }
}

/// Returns the best reading of a pool whose journal or pool state is unusable.
///
/// # Errors
/// Device errors; the caller's request to stop.
pub(super) fn find(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Option<Ground>, CheckError> {
    let from_the_tail = match Ground::recover(device, superblock) {
        Ok(_) => JournalReading::Recovered,
        Err(PoolError::Damaged { .. } | PoolError::Io { .. }) => {
            let is_led_to = Ground::read(device, superblock, JournalReading::UpToDamage).is_some();
            if is_led_to { JournalReading::UpToDamage } else { JournalReading::Nothing }
        }
        Err(error) => return Err(error.into()),
    };
    let mut candidates = Vec::new();
    for reading in [JournalReading::NewestChain, from_the_tail] {
        let Some(ground) = Ground::read(device, superblock, reading) else { continue };
        if ground.state(device, superblock).is_some() {
            candidates.push(PossibleGround { reading, state: None });
        }
        candidates.push(PossibleGround { reading, state: Some(ground.rebuilt_state(device, superblock)) });
    }
    let Some((best, _)) = best(device, superblock, options, progress, candidates)? else { return Ok(None) };
    Ok(best.ground(device, superblock))
}

/// Returns a reading with fewer contradictions than the ground of an opening, which is usable but damaged. One may
/// exist if blocks were damaged, or reverted to an older version, and the journal still holds them.
///
/// # Errors
/// See [`find`].
pub(super) fn better(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Option<Ground>, CheckError> {
    let Ok(recovered) = Ground::recover(device, superblock) else { return Ok(None) };
    let log_end = (recovered.next_sequence, recovered.position.chain);
    let (state, rebuilt) = (recovered.state(device, superblock), recovered.rebuilt_state(device, superblock));
    let rebuilt_ground = recovered.with_state(rebuilt.clone());
    let has_other_roots = have_other_roots(state.as_deref(), rebuilt_ground.state(device, superblock).as_deref());
    drop(rebuilt_ground);
    let mut others = Vec::new();
    // A journal that was switched off for a while holds outdated blocks.
    let chain = Ground::read(device, superblock, JournalReading::NewestChain);
    if chain.is_some_and(|chain| (chain.next_sequence, chain.position.chain) == log_end) {
        others.push(PossibleGround { reading: JournalReading::NewestChain, state: None });
    }
    if has_other_roots {
        others.push(PossibleGround { reading: JournalReading::Recovered, state: Some(rebuilt) });
    }
    if others.is_empty() {
        return Ok(None);
    }
    let own = vec![PossibleGround { reading: JournalReading::Recovered, state: None }];
    let Some((_, worst)) = best(device, superblock, options, progress, own)? else { return Ok(None) };
    let found = best(device, superblock, options, progress, others)?;
    let found = found.filter(|(_, contradictions)| *contradictions < worst);
    Ok(found.and_then(|(best, _)| best.ground(device, superblock)))
}

/// Returns whether two pool states differ in more than counters and numbers to assign, or one of them is unusable.
fn have_other_roots(one: Option<&BlockBytes>, other: Option<&BlockBytes>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return true };
    ROOTS.iter().any(|field| match field {
        Field::NextIno | Field::NextReclaim => field.get(one) < field.get(other),
        _ => field.get(one) != field.get(other),
    })
}

/// Returns the one of `candidates` with the fewest contradictions, the first among equals, and their number.
fn best(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    options: &CheckOptions,
    progress: &dyn Progress,
    candidates: Vec<PossibleGround>,
) -> Result<Option<(PossibleGround, u64)>, CheckError> {
    let quick = CheckOptions { verify_data: false, ..options.clone() };
    let mut least: Option<(PossibleGround, u64)> = None;
    for candidate in candidates {
        if least.as_ref().is_some_and(|(_, contradictions)| *contradictions == 0) {
            break;
        }
        let Some(ground) = candidate.ground(device, superblock) else { continue };
        let Ok(mut context) = Context::on(device, superblock, &quick, progress, &ground) else { continue };
        match examine(&mut context, &quick) {
            Ok(()) => {}
            Err(CheckError::Unusable(what)) => context.findings.tell("names tree", None, what),
            Err(error) => return Err(error),
        }
        let contradictions = context.findings.contradictions();
        if least.as_ref().is_none_or(|(_, fewest)| contradictions < *fewest) {
            least = Some((candidate, contradictions));
        }
    }
    Ok(least)
}
