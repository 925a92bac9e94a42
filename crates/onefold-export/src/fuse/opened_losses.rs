//! Tracks which lost writes each opening of a file or folder has seen, so that each opening reports them once.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_pool::{Ino, Pool, SeenLosses};
use parking_lot::Mutex;

/// The losses that openings have seen, by handle.
///
/// An opening that is not listed has seen none: it was made when there were none, and has not been synced since.
#[derive(Debug, Default)]
pub(super) struct OpenedLosses {
    listed: Mutex<HashMap<u64, Arc<SeenLosses>>>,
}

impl OpenedLosses {
    /// Notes a new opening of a file or folder.
    pub(super) fn opened(&self, pool: &Pool, ino: Ino, handle: u64) {
        if !pool.is_without_losses() {
            self.listed.lock().insert(handle, Arc::new(pool.losses_seen_by_opening(ino)));
        }
    }

    /// Returns the losses that an opening has seen.
    pub(super) fn of(&self, handle: u64) -> Arc<SeenLosses> {
        Arc::clone(self.listed.lock().entry(handle).or_default())
    }

    /// Notes the end of an opening.
    pub(super) fn released(&self, handle: u64) {
        self.listed.lock().remove(&handle);
    }
}
