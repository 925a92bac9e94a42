//! Keeps damaged data, which may be the best copy there is, but lets no further file refer to it.

use onefold_block::BlockNo;

use super::Data;
use crate::error::Result;
use crate::format::store_page::{BlockUse, StoreEntry};
use crate::meta::Privilege;

impl Data {
    /// Marks a data block whose content does not match its fingerprint as private, so that no later write shares it.
    /// Otherwise a writer of the correct content would get the wrong content.
    ///
    /// # Errors
    /// Damage of the block's entry; device errors.
    pub(crate) fn quarantine(&self, block: BlockNo) -> Result<()> {
        if self.engine.options.read_only {
            return Ok(());
        }
        self.readers.cache.forget(block);
        self.engine.run(Privilege::Freeing, |op| {
            let entry = op.entry(block)?;
            if entry.usage != BlockUse::Data || entry.private {
                return Ok(());
            }
            op.unindex(entry.fingerprint, block);
            op.set_entry(block, &StoreEntry { private: true, ..entry })
        })
    }
}
