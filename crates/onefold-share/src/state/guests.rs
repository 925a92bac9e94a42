//! Kept guests: what guests said of their files when their images were examined last. An image that has not changed since
//! is not examined again.
//!
//! Nobody's lock is needed: what is kept of an image holds for its stamp alone, and is written as a whole.

use std::io;
use std::path::PathBuf;

use onefold_substrate::{Access, Substrate};

use super::files::StampChange;
use super::{State, StateError};
use crate::format::guest::{self, GuestHead, KeptGuest};
use crate::format::{FileNo, FormatError};

pub(super) const FOLDER: &str = "guests";

impl<S: Substrate> State<'_, S> {
    /// Returns what is kept of an image, if its head is `wanted`.
    ///
    /// # Errors
    /// Those of the device. What is of no use is dropped.
    pub(crate) fn kept_guest(
        &self,
        number: FileNo,
        wanted: impl FnOnce(&GuestHead) -> bool,
    ) -> Result<Option<KeptGuest>, StateError> {
        let path = path(self, number);
        let file = match self.open_own(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::at(&path)(error)),
        };
        match guest::read(self.substrate(), file, &self.identity().uuid, wanted) {
            Ok((of, guest)) if of == number => Ok(guest),
            Ok(_) => self.refuse(path, FormatError::Damaged("it is the guest of another file")).map(|()| None),
            Err(FormatError::Io(source)) => Err(StateError::at(&path)(source)),
            Err(why) => self.refuse(path, why).map(|()| None),
        }
    }

    /// Keeps what the guest of an image says.
    ///
    /// # Errors
    /// No space; those of the device.
    pub(crate) fn keep_guest(&self, number: FileNo, guest: &KeptGuest) -> Result<(), StateError> {
        let uuid = self.identity().uuid;
        let scratch = self.write_scratch(|file| guest::write(self.substrate(), file, uuid, number, guest).map(drop))?;
        self.replace(&scratch, &path(self, number))
    }

    /// Brings what is kept of an image up to date with times that were set without a change of its content.
    ///
    /// # Errors
    /// As [`State::keep_guest`].
    pub(crate) fn restamp_guest(&self, number: FileNo, change: StampChange) -> Result<(), StateError> {
        let StampChange { before, after } = change;
        let is_same = (before.length, before.modified) == (after.length, after.modified);
        let Some(mut guest) = self.kept_guest(number, |head| is_same && head.stamp == Some(before))? else {
            return Ok(());
        };
        guest.head.stamp = Some(after);
        self.keep_guest(number, &guest)
    }

    /// Drops what is kept of an image.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn forget_guest(&self, number: FileNo) -> Result<(), StateError> {
        self.remove(&path(self, number))
    }

    /// Returns the numbers of the images of which something is kept.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn kept_guests(&self) -> Result<Vec<FileNo>, StateError> {
        Ok(self.names(FOLDER)?.into_iter().filter_map(|name| name.parse().map(FileNo).ok()).collect())
    }
}

fn path<S: Substrate>(state: &State<'_, S>, number: FileNo) -> PathBuf {
    state.path(FOLDER, number.to_string())
}
