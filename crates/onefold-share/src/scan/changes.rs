//! Finds the changes of a known file since the last look at it, as far as the file system shows them.
//!
//! | file system | how | what it misses |
//! |---|---|---|
//! | reports generations ([`Sharing::generation`]) | extents of touched parts that are newer, or at another place than in the kept map | nothing |
//! | reports maps | compares the present map with the kept one | data that was overwritten in place |
//! | neither, or the map is too large to be kept | - | everything |

use std::io;

use onefold_substrate::{AgedExtent, Substrate};

use crate::format::FileNo;
use crate::format::map::KeptExtent;
use crate::format::reading::ReadingState;
use crate::kept_map::{Differences, KeptMap, looked};
use crate::ranges::Ranges;
use crate::state::{State, StateError};

/// Result of a look at a file.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Ranges that differ from the last look.
    pub(super) differences: Differences,
    /// The present map, to be kept once the changed ranges were read; `None` if it is too large, or there is none.
    pub(super) map: Option<KeptMap>,
    /// The present generation.
    pub(super) generation: Option<u64>,
    /// Whether these are all changes since the last look.
    pub(super) are_all: bool,
}

impl Changes {
    /// Looks at a file of which everything up to `known_to` was read before, in bytes.
    pub(super) fn of<S: Substrate>(
        state: &State<'_, S>,
        number: FileNo,
        file: &S::File,
        reading: &ReadingState,
        known_to: u64,
        pace: &crate::pace::Pace<'_>,
    ) -> Result<Changes, StateError> {
        let before = if known_to > 0 { state.kept_map(number)? } else { None };
        // If it cannot be read now, maps are compared.
        let generation = state.substrate().generation(file).unwrap_or(None);
        if let Some(generation) = generation {
            let (since, base) = match (reading.generation, before.clone()) {
                (Some(since), Some(base)) => (Some(since), base),
                _ => (None, KeptMap::default()),
            };
            match touched(state.substrate(), file, since.unwrap_or(0), base, known_to, pace) {
                Ok(Some((differences, map))) => {
                    let differences =
                        if since.is_some() { differences } else { Self::compared(before, &map, known_to) };
                    return Ok(Changes {
                        differences,
                        map: Some(map),
                        generation: Some(generation),
                        are_all: since.is_some(),
                    });
                }
                Ok(None) => return Ok(Changes::default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(StateError::Interrupted),
                // The maps may suffice.
                Err(_) => {}
            }
        }
        let map = match KeptMap::load(state.substrate(), file, pace) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(StateError::Interrupted),
            // A map is a hint: without one the file is read by its turns.
            map => map.unwrap_or(None),
        };
        let differences = map.as_ref().map_or_else(Differences::default, |map| Self::compared(before, map, known_to));
        Ok(Changes { differences, map, ..Changes::default() })
    }

    fn compared(before: Option<KeptMap>, now: &KeptMap, known_to: u64) -> Differences {
        before.map_or_else(Differences::default, |before| before.differences(now, known_to))
    }
}

/// Returns the ranges that were touched since a generation and are newer, or at another place than in a base. Also
/// returns the base, updated for all touched ranges. `None` if that becomes too large.
fn touched<S: Substrate>(
    substrate: &S,
    file: &S::File,
    since: u64,
    mut base: KeptMap,
    known_to: u64,
    pace: &crate::pace::Pace<'_>,
) -> io::Result<Option<(Differences, KeptMap)>> {
    let (mut changed, mut laid): (_, Vec<KeptExtent>) = (Vec::new(), Vec::new());
    let mut next = 0;
    loop {
        let more = substrate.changed_since(file, since, next)?;
        looked(pace, more.len())?;
        let Some(end) = more.last().map(AgedExtent::end).filter(|end| *end > next) else { break };
        for aged in more.iter().filter(|aged| aged.offset >= next && aged.length > 0) {
            let extent = KeptExtent::from(aged);
            // Data written in the very generation of the last look may have been written after it. Then it is at
            // another place, because space freed in a generation is not allocated again in the same one.
            if !aged.is_unwritten && (aged.generation > since || !base.has(&extent)) {
                changed.push(aged.offset..aged.end().min(known_to));
            }
            laid.push(extent);
        }
        if laid.len() > crate::format::map::EXTENTS_MAX {
            return Ok(None);
        }
        next = end;
    }
    base.lay(laid);
    let fits = base.extents().len() <= crate::format::map::EXTENTS_MAX;
    Ok(fits.then(|| (Differences { changed: Ranges::around(changed), emptied: Ranges::default() }, base)))
}
