//! Scratch files: a host writes files under names of its own, before they get their final names, or none.

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::Timestamp;
use onefold_substrate::{Access, Substrate};

use super::{SCRATCH, State, StateError, TRIES, hosts};

/// A file that does not have its final name yet.
pub(crate) struct Scratch<S: Substrate> {
    pub(super) path: PathBuf,
    /// Held until the file has its name, or is gone.
    _lock: S::File,
}

/// A file that was just made. No other host touches it as long as its lock is held.
pub(super) struct LockedFile<S: Substrate> {
    pub(super) file: S::File,
    pub(super) path: PathBuf,
    /// Another opening of the file.
    pub(super) lock: S::File,
}

impl<S: Substrate> State<'_, S> {
    /// Writes a file under a name that no other host uses.
    pub(crate) fn write_scratch(
        &self,
        write: impl FnOnce(S::File) -> io::Result<()>,
    ) -> Result<Scratch<S>, StateError> {
        let (file, scratch) = self.new_scratch()?;
        match write(file) {
            Ok(()) => Ok(scratch),
            Err(error) => {
                self.discard(&scratch);
                Err(StateError::at(&scratch.path)(error))
            }
        }
    }

    /// Gives a file its name, if the name is free. Returns whether it was free.
    pub(crate) fn publish(&self, scratch: &Scratch<S>, name: &Path) -> Result<bool, StateError> {
        let linked = self.substrate.link(&scratch.path, name);
        self.discard(scratch);
        match linked {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(StateError::at(name)(error)),
        }
    }

    /// Removes a file that is to have no name.
    pub(crate) fn discard(&self, scratch: &Scratch<S>) {
        // A file that cannot be removed now is swept by the next host.
        let _ = self.substrate.remove(&scratch.path);
    }

    /// Gives a file its name, in place of an existing file.
    pub(crate) fn replace(&self, scratch: &Scratch<S>, name: &Path) -> Result<(), StateError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.substrate.rename(&scratch.path, name) {
                // Another host gives the same name at this moment.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && tries < TRIES => self.pause(),
                renamed => return renamed.map_err(StateError::at(name)),
            }
        }
    }

    /// Removes a file of the state folder, if it still exists.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), StateError> {
        match self.substrate.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StateError::at(path)(error)),
            _ => Ok(()),
        }
    }

    pub(super) fn new_scratch(&self) -> Result<(S::File, Scratch<S>), StateError> {
        let LockedFile { file, path, lock } = self.new_locked(SCRATCH)?;
        Ok((file, Scratch { path, _lock: lock }))
    }

    /// Creates an empty file under a name of this host's, `HOST.NUMBER`, and locks it, so that a sweeping host sees
    /// that it is in use.
    pub(super) fn new_locked(&self, folder: &str) -> Result<LockedFile<S>, StateError> {
        for _ in 0..TRIES {
            let path = self.path(folder, format!("{}.{}", self.host, self.next_name()));
            let file = self.substrate.create(&path).map_err(StateError::at(&path))?;
            // Before it has its lock, a sweeping host may take it for left over. Then another one is made.
            let Some(lock) = self.open_left(&path)? else { continue };
            if self.substrate.try_lock(&lock).map_err(StateError::at(&path))?
                && self.open_own(&path, Access::Read).is_ok()
            {
                return Ok(LockedFile { file, path, lock });
            }
        }
        Err(StateError::Restless)
    }

    /// Removes the unfinished files of dead hosts.
    pub(super) fn sweep_scratch(&self) -> Result<(), StateError> {
        for name in self.names(SCRATCH)?.into_iter().filter(|name| !name.ends_with(hosts::PRESENCE)) {
            let path = self.path(SCRATCH, name);
            let Some(file) = self.open_left(&path)? else { continue };
            if self.substrate.try_lock(&file).map_err(StateError::at(&path))? {
                self.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Returns the file system's present time, which it would note for a change.
    pub(crate) fn now(&self) -> Result<Timestamp, StateError> {
        let (file, scratch) = self.new_scratch()?;
        let stat = self.substrate.stat(&file).map_err(StateError::at(&scratch.path));
        self.remove(&scratch.path)?;
        stat.map(|stat| stat.modified)
    }

    /// Returns an empty file that has no name, and goes when it is closed.
    pub(crate) fn nameless(&self) -> Result<S::File, StateError> {
        let (file, scratch) = self.new_scratch()?;
        self.remove(&scratch.path)?;
        Ok(file)
    }

    /// Returns a file that is one hole of `length` bytes, as a source of zeros, with perhaps a block behind it. It has
    /// no name.
    pub(crate) fn zeros(&self, length: u64) -> Result<S::File, StateError> {
        let (file, scratch) = self.new_scratch()?;
        let made = self.substrate.set_len(&file, length).map_err(StateError::at(&scratch.path));
        let made = made.and_then(|()| self.join_tree(&file, length));
        self.remove(&scratch.path)?;
        made.map(|()| file)
    }
}
