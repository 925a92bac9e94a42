//! Reading the fingerprint stores into the filter after a mount. The pool serves meanwhile: what is not yet in the
//! filter is merely not found.

use super::Engine;
use crate::error::Result;
use crate::filter::StorePageNo;
use crate::format::geometry::STORE_PAGES_PER_GROUP;
use crate::format::header::BlockKind;
use crate::format::state::Field;
use crate::format::store_page::{self, BlockUse};
use crate::meta::op::damaged;

/// Store pages taken in under one hold of the metadata lock.
const PAGES_PER_STEP: u64 = 32;

impl Engine {
    /// Takes some more store pages into the filter. Returns false when all are in.
    ///
    /// # Errors
    /// Device errors; damage. The filter then stays incomplete, which costs savings and nothing else.
    pub(crate) fn index_some(&self) -> Result<bool> {
        self.view(|op| {
            let geometry = op.meta.geometry;
            let first = op.meta.filter_pages_ready;
            let pages = op.state(Field::GroupsReady) * STORE_PAGES_PER_GROUP;
            if first >= pages {
                // Groups that are not ready hold nothing; once they are, their blocks are entered as they are written.
                op.meta.filter_pages_ready = geometry.store_page_count();
                return Ok(false);
            }
            let end = (first + PAGES_PER_STEP).min(pages);
            for page_no in first..end {
                op.want(geometry.store_page_by_no(page_no).0, BlockKind::StorePage)?;
            }
            op.settle()?;
            for page_no in first..end {
                let (at, _) = geometry.store_page_by_no(page_no);
                let page = *op.block(at, BlockKind::StorePage)?;
                for index in 0..crate::format::geometry::ENTRIES_PER_STORE_PAGE {
                    let index = usize::try_from(index).expect("below 170");
                    let entry = store_page::entry(&page, index)
                        .ok_or_else(|| damaged(BlockKind::StorePage.name(), at, "an entry makes no sense"))?;
                    if entry.usage == BlockUse::Data && !entry.private {
                        let _ = op.meta.filter.insert(entry.fingerprint, StorePageNo(page_no));
                    }
                }
                op.meta.filter_pages_ready = page_no + 1;
            }
            Ok(true)
        })
    }

    /// Returns the number of groups whose fingerprints are not in the filter yet.
    pub(crate) fn groups_pending(&self) -> u64 {
        let meta = self.meta();
        let ready = meta.state(Field::GroupsReady);
        ready.saturating_sub(meta.filter_pages_ready / STORE_PAGES_PER_GROUP)
    }
}
