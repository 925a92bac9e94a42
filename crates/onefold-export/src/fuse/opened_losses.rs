//! What each opened file and folder knows of lost writes, so that each reports them once.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_pool::{Ino, LossesSeen, Pool};
use parking_lot::Mutex;

/// The losses that openings know of, by handle.
///
/// An opening that is not listed knows of none: it was made when there were none, and was not synced since.
#[derive(Debug, Default)]
pub(super) struct OpenedLosses {
    listed: Mutex<HashMap<u64, Arc<LossesSeen>>>,
}

impl OpenedLosses {
    /// Notes a new opening of a file or folder.
    pub(super) fn opened(&self, pool: &Pool, ino: Ino, handle: u64) {
        if !pool.is_without_losses() {
            self.listed.lock().insert(handle, Arc::new(pool.losses_seen_by_opening(ino)));
        }
    }

    /// Returns what an opening knows.
    pub(super) fn of(&self, handle: u64) -> Arc<LossesSeen> {
        Arc::clone(self.listed.lock().entry(handle).or_default())
    }

    /// Notes the end of an opening.
    pub(super) fn released(&self, handle: u64) {
        self.listed.lock().remove(&handle);
    }
}
