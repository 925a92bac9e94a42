//! What watches say of themselves: a file for each, locked as long as it runs, and written in place.

use std::io;
use std::path::PathBuf;

use onefold_substrate::{Access, Substrate};

use super::trust::open_again;
use super::{Locked, State, StateError, TRIES};
use crate::format::FormatError;
use crate::format::watch::WatchStatus;

pub(super) const FOLDER: &str = "watches";

/// The file in which a watch says what it does. Goes with it; where it is killed, with the next watch that begins.
pub struct WatchFile<'a, S: Substrate> {
    substrate: &'a S,
    identity: [u8; 16],
    path: PathBuf,
    /// None after a write that failed.
    file: Option<S::File>,
    _lock: S::File,
}

/// A watch that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenWatch {
    /// What it said last.
    pub status: WatchStatus,
    /// Whether it still runs; otherwise it was killed, or its host died.
    pub is_running: bool,
}

impl<'a, S: Substrate> State<'a, S> {
    /// Makes the file of a watch, and removes those of watches that run no more.
    ///
    /// # Errors
    /// No space; those of the device.
    pub fn begin_watch(&self) -> Result<WatchFile<'a, S>, StateError> {
        for name in self.names(FOLDER)? {
            let path = self.path(FOLDER, name);
            let Some(file) = self.open_left(&path)? else { continue };
            if self.substrate().try_lock(&file).map_err(StateError::at(&path))? {
                self.remove(&path)?;
            }
        }
        let Locked { file, path, lock } = self.new_locked(FOLDER)?;
        let (substrate, identity) = (self.substrate(), self.identity().uuid);
        Ok(WatchFile { substrate, identity, path, file: Some(file), _lock: lock })
    }

    /// Returns what all watches say of themselves. Disturbs none of them.
    ///
    /// # Errors
    /// Errors of the device. Files that cannot be read are passed over.
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
        // It may be written at this moment: then it is whole a moment later.
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
    /// Says something else.
    ///
    /// # Errors
    /// No space; those of the device. What was said before may be lost then.
    pub fn say(&mut self, status: &WatchStatus) -> Result<(), StateError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => open_again(self.substrate, &self.path).map_err(StateError::at(&self.path))?,
        };
        let written = status.write(self.substrate, file, self.identity).map_err(StateError::at(&self.path))?;
        self.file = Some(written);
        Ok(())
    }

    /// Says nothing any more.
    pub fn end(self) {
        // What cannot be removed now, the next watch removes.
        let _ = self.substrate.remove(&self.path);
    }
}
