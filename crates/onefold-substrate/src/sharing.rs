//! Compare-and-share, clones, and the maps that tell where data lies.

use std::io;
use std::path::Path;

use crate::abilities::{Abilities, Room};
use crate::extent::{AgedExtent, MappedExtent};
use crate::file::At;
use crate::files::Files;
use crate::outcome::{Compared, Refusal, ShareError};

/// Files whose file system can let them share blocks.
pub trait Sharing: Files {
    /// Returns what the file system can do. Probed once, when the substrate was opened, never by a call that may fail
    /// in the middle of a pass.
    fn abilities(&self) -> &Abilities;

    /// Returns where the data of a file lies from an offset on, in order and without holes between that are told: what
    /// is between two extents is a hole. At most as many as the substrate likes to give at once; ask again from the end
    /// of the last. Empty when there is no data from the offset on.
    ///
    /// A hint: data that was just written may be missing its place, and all of it may have changed on return.
    ///
    /// # Errors
    /// `Unsupported` where the file system has no maps.
    fn extents(&self, file: &Self::File, from: u64) -> io::Result<Vec<MappedExtent>>;

    /// Compares `length` bytes of two files and, where they are equal, makes the second range refer to the blocks of
    /// the first, in one step. Offsets and length are multiples of [`Abilities::block_bytes`], the length at most
    /// [`Abilities::share_bytes_max`], both ranges within their files and apart. It does not matter how the ranges are
    /// stored: where they share their blocks already they are compared nevertheless.
    ///
    /// # Errors
    /// As [`ShareError`] says. Nothing was changed then, or the first part of the range was shared.
    fn share(&self, source: At<'_, Self::File>, into: At<'_, Self::File>, length: u64) -> Result<Compared, ShareError>;

    /// Makes all that was shared into a file durable.
    ///
    /// # Errors
    /// Those of the device.
    fn sync_shares(&self, file: &Self::File) -> io::Result<()> {
        self.sync(file)
    }

    /// Tells whether [`Sharing::sync_shares`] makes durable what was shared into any file of the file system: once for
    /// many is enough.
    fn syncs_all_shares(&self) -> bool {
        false
    }

    /// Makes a range refer to the blocks of another one, whatever it held before. Rules as in [`Sharing::share`]. Only
    /// for files that sharing made itself, and for holes that a share has left: it does not look at what it replaces.
    ///
    /// # Errors
    /// As [`ShareError`] says.
    fn clone_range(&self, source: At<'_, Self::File>, into: At<'_, Self::File>, length: u64) -> Result<(), ShareError>;

    /// Creates a file that holds what `source` holds at one moment, the call's, by referring to its blocks; with the
    /// permissions of the source, as a plain copy would get them. It may be written to by whoever these let.
    ///
    /// # Errors
    /// As [`ShareError`] says, and those of [`Files::create`]; nothing is left of the file then.
    fn create_clone(&self, source: &Self::File, path: &Path) -> Result<Self::File, ShareError> {
        let _ = (source, path);
        Err(ShareError::Io(io::ErrorKind::Unsupported.into()))
    }

    /// Makes a range a hole. Only for files that sharing made itself.
    ///
    /// # Errors
    /// Those of the device.
    fn punch(&self, file: &Self::File, offset: u64, length: u64) -> io::Result<()>;

    /// Tells why blocks of a file could not be shared, as far as that can be seen without trying. None says nothing.
    ///
    /// # Errors
    /// Those of the device.
    fn refusal(&self, file: &Self::File) -> io::Result<Option<Refusal>> {
        let _ = file;
        Ok(None)
    }

    /// Returns how much room there is.
    ///
    /// # Errors
    /// Those of the device.
    fn room(&self) -> io::Result<Room>;

    /// Returns the file system's present generation, a number that grows with its changes, where
    /// [`Sharing::changed_since`] tells of this file all that was changed. None where nothing tells, or not of this
    /// file: its blocks may be overwritten where they lie.
    ///
    /// # Errors
    /// Those of the device.
    fn generation(&self, file: &Self::File) -> io::Result<Option<u64>> {
        let _ = file;
        Ok(None)
    }

    /// Returns the extents of those parts of a file's map, from an offset on, that were touched in a generation or
    /// later, in order; neighbours that were not touched may be among them, and holes are left out. Bytes of the file
    /// are others than at a look in that generation only within extents that are younger ([`AgedExtent::generation`]),
    /// or lie elsewhere than then. At most as many as the substrate likes to give at once; ask again from the end of
    /// the last. Empty when there is nothing from the offset on. What was written and not [settled](Files::settle) may
    /// be missing.
    ///
    /// # Errors
    /// `Unsupported` where [`Sharing::generation`] gives none; those of the device.
    fn changed_since(&self, file: &Self::File, generation: u64, from: u64) -> io::Result<Vec<AgedExtent>> {
        let _ = (file, generation, from);
        Err(io::ErrorKind::Unsupported.into())
    }
}
