//! Contents of the arena files, as their maps show them.

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{Access, Substrate};

use super::PassError;
use super::slots::SlotSet;
use crate::extents::Extents;
use crate::format::Slot;
use crate::pace::Pace;
use crate::state::State;

/// The slots that hold a block, and those of them that other files refer to, too.
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
                // Imprecise maps show too much as shared, never too little. On Btrfs, all of an extent is shown as
                // shared if any of it is, and as long as any of it is shared, none of it can be freed.
                if extent.is_shared {
                    self.wanted.insert(slot);
                }
            }
        }
        Ok(())
    }
}
