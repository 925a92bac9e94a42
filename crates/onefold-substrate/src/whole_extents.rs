//! Extents whose room comes free as a whole only.

use std::io;

use crate::extent::{Reference, Slice, WholeExtent};
use crate::sharing::Sharing;

/// Extents that stay allocated until nothing refers to any part of them (Btrfs). By default there are none.
pub trait WholeExtents: Sharing {
    /// Returns in which whole extents the data of a file lies from an offset on, in order; only of use where
    /// [`Abilities::frees_whole_extents`](crate::Abilities::frees_whole_extents). At most as many as the substrate
    /// likes to give at once; ask again from the end of the last. Empty when there is nothing from the offset on. What
    /// is stored in another way (compressed, within metadata, not yet written back) is left out.
    ///
    /// A hint like [`Sharing::extents`].
    ///
    /// # Errors
    /// `Unsupported`, or `PermissionDenied`, where it cannot be told; those of the device.
    fn slices(&self, file: &Self::File, from: u64) -> io::Result<Vec<Slice>> {
        let _ = (file, from);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns who refers to any part of a whole extent, on this file system: each slice that lies in it once, in no
    /// order. Empty where there is no such extent any more. A hint.
    ///
    /// # Errors
    /// As [`WholeExtents::slices`]; `InvalidInput` where there are more than can be told.
    fn references(&self, extent: WholeExtent) -> io::Result<Vec<Reference>> {
        let _ = extent;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns how much room is left for what the file system notes about files, in bytes: each piece of a file that
    /// lies by itself takes a record. As much as is free, where that is one room.
    ///
    /// # Errors
    /// Those of the device.
    fn room_for_records(&self) -> io::Result<u64> {
        self.room().map(|room| room.free)
    }
}
