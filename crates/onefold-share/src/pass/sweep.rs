//! Empties the slots that no entry names: at the end of a pass, and before its first batch those that a killed pass has
//! left.

use std::collections::BTreeSet;

use onefold_sort::Spool;
use onefold_substrate::Substrate;

use super::PassError;
use super::arenas::Arenas;
use super::since::SeenIndex;
use super::slots::SlotSet;
use crate::state::arena::ArenaWriter;
use crate::state::locks::Subject;
use crate::state::{State, StateError};

/// Empties unnamed slots in arena files that no host works on: those of `filled`, and those that hold such slots. Slots
/// that other hosts have published since count as named, and their entries of contents of `seen` are kept. Returns how
/// many slots were emptied.
pub(super) fn sweep<S: Substrate>(
    state: &State<'_, S>,
    filled: &BTreeSet<u32>,
    arenas: &Arenas,
    index: &mut SeenIndex,
    seen: Option<&Spool>,
) -> Result<u64, PassError> {
    let mut locks = Vec::new();
    for number in state.arenas()? {
        if filled.contains(&number) || arenas.filled.has_more(number, &index.named) {
            locks.extend(state.lock_arena(number)?);
        }
    }
    if locks.is_empty() {
        return Ok(0);
    }
    // A host that fills an arena file has its lock until the entries that name its slots are published.
    index.read_news(state, seen)?;
    // A declared slot may have the only copy of a block that was in a hole of a dead host.
    match state.each_declared_slot(|slot| index.named.insert(slot)) {
        Err(StateError::Damaged { .. } | StateError::Newer { .. }) => return Ok(0),
        read => read?,
    }
    let mut swept = 0;
    for lock in &locks {
        swept += state.sweep_arena(lock, |slot| index.named.contains(slot))?;
    }
    Ok(swept)
}

/// Empties the slots of a batch that was not published, when the pass ends. Declared slots are kept. Slots that cannot
/// be emptied now are emptied by the next pass.
pub(super) fn discard<S: Substrate>(state: &State<'_, S>, arena: &mut ArenaWriter<'_, '_, S>, named: &SlotSet) {
    let mut locks = Vec::new();
    if state.policy().is_declared() {
        // A host that has declared shares with slots checks whether the locks are free; no other host has the lock of
        // an arena file that is being filled.
        for number in arena.numbers() {
            let Ok(Some(lock)) = state.try_lock(&Subject::Sweep(number)) else { return };
            locks.push(lock);
        }
    }
    let mut declared = SlotSet::default();
    if state.each_declared_slot(|slot| declared.insert(slot)).is_ok() {
        arena.discard(|slot| named.contains(slot) || declared.contains(slot));
    }
}
