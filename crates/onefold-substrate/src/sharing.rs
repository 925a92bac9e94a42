//! Compare-and-share, clones, and the maps that show where data lies.

use std::io;
use std::path::Path;

use crate::abilities::{Abilities, Room};
use crate::extent::{AgedExtent, MappedExtent};
use crate::file::At;
use crate::files::Files;
use crate::outcome::{ComparisonResult, Refusal, ShareError};

/// Files that can share blocks.
pub trait Sharing: Files {
    /// Returns the abilities of the file system. They were probed once, when the substrate was opened: a probe that
    /// could fail must not run in the middle of a pass.
    fn abilities(&self) -> &Abilities;

    /// Returns the extents of a file's data from an offset on, in order. The space between two extents is a hole. The
    /// substrate limits the number of extents; the caller continues from the end of the last one. Empty if the file has
    /// no data from the offset on.
    ///
    /// A hint: newly written data may lack its place, and the whole map may have changed by the time the call returns.
    ///
    /// # Errors
    /// `Unsupported` if the file system has no maps.
    fn extents(&self, file: &Self::File, from: u64) -> io::Result<Vec<MappedExtent>>;

    /// Like [`Sharing::extents`], but may leave out what begins at `end` or behind it, and cut there what begins
    /// before. File systems look up for each extent whether it is shared, so a short range is to cost no long map.
    ///
    /// # Errors
    /// As [`Sharing::extents`].
    fn extents_up_to(&self, file: &Self::File, from: u64, end: u64) -> io::Result<Vec<MappedExtent>> {
        let _ = end;
        self.extents(file, from)
    }

    /// Compares `length` bytes of two files and, if they are equal, makes the second range refer to the blocks of the
    /// first, in one step. Offsets and length are multiples of [`Abilities::block_bytes`]. The length is at most
    /// [`Abilities::share_bytes_max`]. Both ranges lie within their files and do not overlap. The ranges may be stored
    /// in any way: even ranges that already share their blocks are compared.
    ///
    /// # Errors
    /// See [`ShareError`]. Either nothing was changed then, or the first part of the range was shared.
    fn share(
        &self,
        source: At<'_, Self::File>,
        into: At<'_, Self::File>,
        length: u64,
    ) -> Result<ComparisonResult, ShareError>;

    /// Makes all shares into a file durable.
    ///
    /// # Errors
    /// Those of the device.
    fn sync_shares(&self, file: &Self::File) -> io::Result<()> {
        self.sync(file)
    }

    /// Returns whether [`Sharing::sync_shares`] makes the shares into all files of the file system durable, so that one
    /// call is enough for many files.
    fn syncs_all_shares(&self) -> bool {
        false
    }

    /// Makes a range refer to the blocks of another range, whatever it held before. The rules of [`Sharing::share`]
    /// apply. Only for files that sharing made itself, and for holes that a share has left, as the replaced bytes are
    /// not compared.
    ///
    /// # Errors
    /// See [`ShareError`].
    fn clone_range(&self, source: At<'_, Self::File>, into: At<'_, Self::File>, length: u64) -> Result<(), ShareError>;

    /// Creates a file with the content that `source` has at one moment during the call, by referring to its blocks. The
    /// file gets the permissions of the source, as a plain copy would; users may write to it as far as these permit.
    ///
    /// # Errors
    /// See [`ShareError`], and those of [`Files::create`]; nothing remains of the file then.
    fn create_clone(&self, source: &Self::File, path: &Path) -> Result<Self::File, ShareError> {
        let _ = (source, path);
        Err(ShareError::Io(io::ErrorKind::Unsupported.into()))
    }

    /// Makes a range a hole. Only for files that sharing made itself.
    ///
    /// # Errors
    /// Those of the device.
    fn punch(&self, file: &Self::File, offset: u64, length: u64) -> io::Result<()>;

    /// Returns why blocks of a file cannot be shared, as far as it shows without a trial. `None` promises nothing.
    ///
    /// # Errors
    /// Those of the device.
    fn refusal(&self, file: &Self::File) -> io::Result<Option<Refusal>> {
        let _ = file;
        Ok(None)
    }

    /// Returns the total and free room of the file system.
    ///
    /// # Errors
    /// Those of the device.
    fn room(&self) -> io::Result<Room>;

    /// Returns the present generation of the file system, a number that grows with its changes, if
    /// [`Sharing::changed_since`] reports all changes of this file. `None` if changes are not recorded, for the file
    /// system or for this file, whose blocks may be overwritten in place.
    ///
    /// # Errors
    /// Those of the device.
    fn generation(&self, file: &Self::File) -> io::Result<Option<u64>> {
        let _ = file;
        Ok(None)
    }

    /// Returns the extents in those parts of a file's map, from an offset on, that were touched in a generation or
    /// later, in order. Untouched neighbours may be among them; holes are left out. Compared with that generation,
    /// bytes of the file differ only within extents that are younger ([`AgedExtent::generation`]) or lie elsewhere than
    /// they did then. The substrate limits the number of extents; the caller continues from the end of the last one.
    /// Empty if no extent follows. Data that was written but not [settled](Files::settle) may be missing.
    ///
    /// # Errors
    /// `Unsupported` if [`Sharing::generation`] returns `None`; those of the device.
    fn changed_since(&self, file: &Self::File, generation: u64, from: u64) -> io::Result<Vec<AgedExtent>> {
        let _ = (file, generation, from);
        Err(io::ErrorKind::Unsupported.into())
    }
}
