//! The scan cursor: the path of the file with which the next scan goes on. Each scan writes it; the last one written
//! counts.

use std::io;
use std::path::{Path, PathBuf};

use onefold_substrate::{Access, Substrate};

use super::{State, StateError};
use crate::format::{FormatError, cursor};

pub(super) const FILE: &str = "cursor";

impl<S: Substrate> State<'_, S> {
    /// Returns the path with which the next scan goes on; `None` if it begins with the first.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn scan_cursor(&self) -> Result<Option<PathBuf>, StateError> {
        let path = self.path("", FILE);
        let file = match self.open_own(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::at(&path)(error)),
        };
        match cursor::read(self.substrate(), file, &self.identity().uuid) {
            Ok(cursor) => Ok(Some(cursor).filter(|cursor| !cursor.as_os_str().is_empty())),
            Err(FormatError::Io(source)) => Err(StateError::at(&path)(source)),
            Err(why) => {
                self.refuse(path, why)?;
                Ok(None)
            }
        }
    }

    /// Notes the path with which the next scan goes on; `None` if it begins with the first.
    ///
    /// # Errors
    /// No space; errors of the device.
    pub(crate) fn set_scan_cursor(&self, cursor: Option<&Path>) -> Result<(), StateError> {
        let path = self.path("", FILE);
        let Some(cursor) = cursor else { return self.remove(&path) };
        let uuid = self.identity().uuid;
        let scratch = self.write_scratch(|file| cursor::write(self.substrate(), file, uuid, cursor))?;
        self.replace(&scratch, &path)
    }
}
