//! Damaged data is kept, for it may be the best copy there is, but it takes no new readers.

use onefold_block::BlockNo;

use super::Data;
use crate::error::Result;
use crate::format::store_page::{BlockUse, Entry};
use crate::meta::Privilege;

impl Data {
    /// Marks a data block whose content is known not to match its fingerprint as private: no later write is shared with
    /// it. Else whoever writes the right content again would be given the wrong one.
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
            op.set_entry(block, &Entry { private: true, ..entry })
        })
    }
}
