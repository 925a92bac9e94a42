//! Slots that no entry names are emptied: at the end of a pass, and before its first batch those that a pass has left
//! that was killed.

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

/// Empties slots that are not named, of arena files that nobody works on: those of `filled`, and those that hold such
/// slots. What others have published since is named, too; what that says of contents of `seen` is kept. Returns how
/// many slots came free.
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
    // Who fills an arena file has its lock until the entries that name its slots are published.
    index.read_news(state, seen)?;
    // What is declared is all that is left of what was in the holes of a host that died.
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

/// Empties the slots of a batch that was not published, for the pass ends. What is declared is kept. What cannot be
/// emptied now, the next pass empties.
pub(super) fn discard<S: Substrate>(state: &State<'_, S>, arena: &mut ArenaWriter<'_, '_, S>, named: &SlotSet) {
    let mut locks = Vec::new();
    if state.policy().is_declared() {
        // Who has declared what it shares with slots looks whether these are free; nobody else has the lock of an arena
        // file that is being filled.
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
