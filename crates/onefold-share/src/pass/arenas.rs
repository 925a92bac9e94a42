//! What the arena files hold, as their maps tell.

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{Access, Substrate};

use super::PassError;
use super::slots::SlotSet;
use crate::extents::Extents;
use crate::format::Slot;
use crate::pace::Pace;
use crate::state::State;

/// Which slots hold a block, and which of these are referred to by others, too.
#[derive(Debug, Default)]
pub(super) struct Arenas {
    pub(super) filled: SlotSet,
    pub(super) wanted: SlotSet,
}

impl Arenas {
    /// Looks at all arena files. Entries of shards that were opened before name only slots that were filled before
    /// this.
    pub(super) fn look<S: Substrate>(state: &State<'_, S>, pace: &Pace<'_>) -> Result<Arenas, PassError> {
        let mut arenas = Arenas::default();
        for number in state.arenas()? {
            pace.boundary()?;
            arenas.look_at(state, number)?;
        }
        Ok(arenas)
    }

    /// Looks at an arena file.
    pub(super) fn look_at<S: Substrate>(&mut self, state: &State<'_, S>, number: u32) -> Result<(), PassError> {
        let Some(file) = state.open_arena(number, Access::Read)? else { return Ok(()) };
        let extents = Extents::load(state.substrate(), &file)?;
        for extent in extents.iter().filter(|extent| !extent.is_unwritten) {
            let (first, end) = (extent.offset / BLOCK_BYTES_U64, extent.end().div_ceil(BLOCK_BYTES_U64));
            for slot in (first..end).map_while(|index| Slot::new(number, index)) {
                self.filled.insert(slot);
                // Where maps do not tell all, they take too much for shared, never too little: on Btrfs what lies in
                // one extent is shared if any of it is, and as long as any of it is nothing of it could come free.
                if extent.is_shared {
                    self.wanted.insert(slot);
                }
            }
        }
        Ok(())
    }
}
