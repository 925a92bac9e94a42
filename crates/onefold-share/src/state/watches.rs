//! Status files of watches: a file for each, locked as long as the watch runs, and written in place.

use std::io;
use std::path::PathBuf;

use onefold_substrate::{Access, Substrate};

use super::trust::open_again;
use super::{LockedFile, State, StateError, TRIES};
use crate::format::FormatError;
use crate::format::watch::WatchStatus;

pub(super) const FOLDER: &str = "watches";

/// The status file of a watch. It is removed with the watch. If the watch is killed, the next watch that begins removes
/// it.
pub struct WatchFile<'a, S: Substrate> {
    substrate: &'a S,
    identity: [u8; 16],
    path: PathBuf,
    /// `None` after a write that failed.
    file: Option<S::File>,
    _lock: S::File,
}

/// A watch that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenWatch {
    /// Its last status.
    pub status: WatchStatus,
    /// Whether it still runs; otherwise it was killed, or its host died.
    pub is_running: bool,
}

impl<'a, S: Substrate> State<'a, S> {
    /// Makes the file of a watch, and removes those of watches that no longer run.
    ///
    /// # Errors
    /// No space; errors of the device.
    pub fn begin_watch(&self) -> Result<WatchFile<'a, S>, StateError> {
        for name in self.names(FOLDER)? {
            let path = self.path(FOLDER, name);
            let Some(file) = self.open_left(&path)? else { continue };
            if self.substrate().try_lock(&file).map_err(StateError::at(&path))? {
                self.remove(&path)?;
            }
        }
        let LockedFile { file, path, lock } = self.new_locked(FOLDER)?;
        let (substrate, identity) = (self.substrate(), self.identity().uuid);
        Ok(WatchFile { substrate, identity, path, file: Some(file), _lock: lock })
    }

    /// Returns the status of all watches, without disturbing any.
    ///
    /// # Errors
    /// Errors of the device. Unreadable files are skipped.
    pub fn watches(&self) -> Result<Vec<SeenWatch>, StateError> {
        let mut seen = Vec::new();
        for name in self.names(FOLDER)? {
            let path = self.path(FOLDER, name);
            if let Some(status) = self.read_watch(&path)? {
                let Some(file) = self.open_left(&path)? else { continue };
                let is_running = !self.substrate().try_lock(&file).map_err(StateError::at(&path))?;
                seen.push(SeenWatch { status, is_running });
            }
        }
        Ok(seen)
    }

    fn read_watch(&self, path: &std::path::Path) -> Result<Option<WatchStatus>, StateError> {
        // It may be written at this moment, and be whole a moment later.
        for _ in 0..TRIES {
            let file = match self.open_own(path, Access::Read) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(StateError::at(path)(error)),
            };
            match WatchStatus::read(self.substrate(), file, &self.identity().uuid) {
                Ok(status) => return Ok(Some(status)),
                Err(FormatError::Damaged(_)) => self.pause(),
                Err(FormatError::Io(error)) => return Err(StateError::at(path)(error)),
                Err(FormatError::Foreign | FormatError::Older { .. } | FormatError::Newer { .. }) => return Ok(None),
            }
        }
        Ok(None)
    }
}

impl<S: Substrate> WatchFile<'_, S> {
    /// Writes another status.
    ///
    /// # Errors
    /// No space; errors of the device. The previous status may be lost then.
    pub fn say(&mut self, status: &WatchStatus) -> Result<(), StateError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => open_again(self.substrate, &self.path).map_err(StateError::at(&self.path))?,
        };
        let written = status.write(self.substrate, file, self.identity).map_err(StateError::at(&self.path))?;
        self.file = Some(written);
        Ok(())
    }

    /// Removes the status.
    pub fn end(self) {
        // A file that cannot be removed now is removed by the next watch.
        let _ = self.substrate.remove(&self.path);
    }
}
