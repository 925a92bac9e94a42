//! The units that a removal of images would let a collection free.

use std::path::Path;

use super::need::{Needs, Room};
use super::{Archive, ArchiveError, COLLECT_BYTES_MIN};
use crate::ImageVersion;

/// The units that no other image needs than those of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalGain {
    /// Number of units.
    pub units: u64,
    /// Bytes that they take in packs.
    pub bytes: u64,
    /// Bytes of those in packs of which no other image needs anything. A collection frees them in any case. It frees
    /// the others when it rewrites their packs.
    pub whole_pack_bytes: u64,
}

impl Archive {
    /// Returns what no image would need any more if `images` were removed, by the ledger as last read. Changes nothing.
    /// Uses about `memory_bytes` of memory, and unnamed temporary files in `folder`. Calls `on_progress` with the
    /// number of packs and images that were read, and that of all.
    ///
    /// # Errors
    /// [`ArchiveError::Unknown`] when an image is damaged so that nobody can tell what it needs. Other errors when the
    /// store or temporary files fail.
    pub fn gain_of_removal(
        &self,
        images: &[ImageVersion],
        folder: &Path,
        memory_bytes: usize,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<RemovalGain, ArchiveError> {
        let room = Room { folder, memory_bytes: memory_bytes.max(COLLECT_BYTES_MIN) };
        let state = self.state.read().clone();
        let mut left = state.clone();
        left.images.retain(|image, _| !images.contains(image));
        // All is read twice: once with these images, and once without them.
        let before = Needs::of(self, state, room, &mut |done, total| on_progress(done, total.saturating_mul(2)))?;
        let after = Needs::of(self, left, room, &mut |done, total| {
            on_progress(total.saturating_add(done), total.saturating_mul(2))
        })?;
        let mut gain = RemovalGain { units: before.units.saturating_sub(after.units), ..RemovalGain::default() };
        for (before, after) in before.packs.iter().zip(&after.packs) {
            let bytes = before.needed_bytes.saturating_sub(after.needed_bytes);
            gain.bytes = gain.bytes.saturating_add(bytes);
            if after.is_unneeded() {
                gain.whole_pack_bytes = gain.whole_pack_bytes.saturating_add(bytes);
            }
        }
        Ok(gain)
    }
}
