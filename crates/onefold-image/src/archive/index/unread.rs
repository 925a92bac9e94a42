//! Packs whose units an index does not know, because what says so cannot be read.

use std::collections::HashMap;

use super::{Index, IndexSource};
use crate::ObjectId;
use crate::archive::ArchiveError;
use crate::store::StoreError;

/// Packs that an index lacks, because neither their segment nor their table gave their units. Both may be read later.
/// Each has the error of a store that failed, which may pass; `None` if segment and table are missing or damaged.
pub(in crate::archive) type UnreadPacks = HashMap<ObjectId, Option<StoreError>>;

/// A reading of all packs that an index lacks, after which it lacked the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct VainReading {
    /// Position of the ledger then.
    position: u64,
    /// Look-ups that have asked for another reading, with the one that got this.
    asked: usize,
}

impl Index {
    /// Reads the parts again of packs whose units it does not know. Returns whether it knows more now.
    ///
    /// Packs that the store failed to read are read each time. All others stay as they are until the ledger moves or
    /// a user puts them back. They may be thousands, so they are read for one of as many calls as there are packs:
    /// the look-ups of many lost units make but a few requests each.
    pub(in crate::archive) fn read_again(&mut self, reading: &IndexSource<'_>) -> Result<bool, ArchiveError> {
        let is_due = match &mut self.vain {
            Some(vain) if vain.position == reading.state.position && vain.asked < self.unread.len() => {
                vain.asked += 1;
                false
            }
            _ => true,
        };
        let again: Vec<ObjectId> =
            self.unread.extract_if(|_, failure| is_due || failure.is_some()).map(|(pack, _)| pack).collect();
        if again.is_empty() {
            return Ok(false);
        }
        again.iter().for_each(|pack| _ = self.seen.remove(pack));
        self.read_on(reading)?;
        let knows_more = again.iter().any(|pack| !self.unread.contains_key(pack));
        if is_due {
            self.vain = (!knows_more).then_some(VainReading { position: reading.state.position, asked: 1 });
        }
        Ok(knows_more)
    }

    /// Returns the packs whose units it does not know.
    pub(in crate::archive) fn unread(&self) -> &UnreadPacks {
        &self.unread
    }
}
