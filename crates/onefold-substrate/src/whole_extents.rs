//! Extents that are freed only as a whole.

use std::io;

use crate::extent::{Reference, Slice, WholeExtent};
use crate::sharing::Sharing;

/// Extents that stay allocated until nothing refers to any part of them (Btrfs). By default there are none.
pub trait WholeExtents: Sharing {
    /// Returns the slices of a file's data from an offset on, in order, with the whole extents that hold them. Useful
    /// only with [`Abilities::frees_whole_extents`](crate::Abilities::frees_whole_extents). The substrate limits the
    /// number of slices; the caller continues from the end of the last one. Empty if no slice follows. Data stored in
    /// another form (compressed, within metadata, not yet written back) is left out.
    ///
    /// A hint like [`Sharing::extents`].
    ///
    /// # Errors
    /// `Unsupported` or `PermissionDenied` if the slices cannot be read; those of the device.
    fn slices(&self, file: &Self::File, from: u64) -> io::Result<Vec<Slice>> {
        let _ = (file, from);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the references to any part of a whole extent on this file system: each slice in it once, in no order.
    /// Empty if the extent no longer exists. A hint.
    ///
    /// # Errors
    /// See [`WholeExtents::slices`]; `InvalidInput` if there are too many references to report.
    fn references(&self, extent: WholeExtent) -> io::Result<Vec<Reference>> {
        let _ = extent;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the room left for the file system's records about files, in bytes: each separate piece of a file takes a
    /// record. Where records and data share one room, its free part.
    ///
    /// # Errors
    /// Those of the device.
    fn room_for_records(&self) -> io::Result<u64> {
        self.room().map(|room| room.free)
    }
}
