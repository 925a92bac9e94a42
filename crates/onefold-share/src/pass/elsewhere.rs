//! Places whose files other hosts have locked at the moment.
//!
//! A merge request passes on what is known of such a place: its owner takes it in, or the next pass does. If the
//! content of the place is not known, the place was in a log of this pass, and the logs of its file stay.

use std::collections::BTreeSet;
use std::path::Path;

use onefold_sort::SortWriter;

use super::PassError;
use super::rows::Candidate;
use crate::format::entry::{ContentEntry, ContentPlace};
use crate::format::{FileBlock, FileNo, FingerprintPrefix, Slot};

/// Collects such places.
pub(super) struct LockedPlaces {
    /// Files whose logs stay.
    pub(super) left: BTreeSet<FileNo>,
    /// Merge requests.
    pub(super) requests: SortWriter,
    /// The entries of the slots that were filled for this batch, in order of the slots.
    pub(super) by_slot: Vec<ContentEntry>,
}

impl LockedPlaces {
    /// Returns an empty list. It keeps at most `memory_bytes` in memory, and the rest in files in `folder`.
    pub(super) fn new(folder: &Path, memory_bytes: usize) -> LockedPlaces {
        let requests = SortWriter::new(folder, memory_bytes);
        LockedPlaces { left: BTreeSet::new(), requests, by_slot: Vec::new() }
    }

    /// Leaves a place whose content is known.
    pub(super) fn leave(&mut self, place: Candidate) -> Result<(), PassError> {
        Ok(self.requests.push(place.row())?)
    }

    /// Leaves a place that was to share with a slot, or to become a hole.
    pub(super) fn leave_target(&mut self, file: FileNo, block: FileBlock, slot: Option<Slot>) -> Result<(), PassError> {
        match slot.and_then(|slot| self.digest_of(slot)) {
            Some(digest) => self.leave(Candidate { file, block, digest }),
            // A place that shares with a slot known to the index, or that was found to be zero, was in a log.
            None => {
                self.left.insert(file);
                Ok(())
            }
        }
    }

    fn digest_of(&self, slot: Slot) -> Option<FingerprintPrefix> {
        let at = self.by_slot.binary_search_by_key(&ContentPlace::Shared(slot), |entry| entry.place).ok()?;
        Some(self.by_slot[at].digest)
    }
}
