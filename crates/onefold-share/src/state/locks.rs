//! Locks: empty files that are never replaced, locked as a whole.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use onefold_substrate::{Access, FileHandle, Substrate};
use parking_lot::Mutex;

use super::{State, StateError};
use crate::format::prefix::Prefix;

const FOLDER: &str = "locks";

/// Subject of a lock: a thing on which one host at a time works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An image file. Only the holder shares its blocks, and nobody does while a door holds it.
    File(FileHandle),
    /// The part of the index with these digests. The holder makes a new generation of it.
    Shard(Prefix),
    /// An arena file.
    Arena(u32),
    /// The slots of an arena file that are emptied, by a host that also holds [`Subject::Arena`].
    Sweep(u32),
    /// The rests of whole extents, whose slots the holder moves to another place. If two hosts moved one slot, each
    /// with the images that it may share in, the first would leave its images behind.
    Moves,
    /// The comparison of the maps of all images with those of the arena files. The modification time of this lock's
    /// file is the time of the last comparison.
    Maps,
    /// The claims: the holder settles, in a moment, which files' logs it works on.
    Claims,
}

impl Subject {
    fn name(&self) -> String {
        match self {
            Subject::File(handle) => format!("file.{handle}"),
            Subject::Shard(prefix) => format!("shard.{prefix}"),
            Subject::Arena(number) => format!("arena.{number}"),
            Subject::Sweep(number) => format!("sweep.{number}"),
            Subject::Moves => "moves".to_owned(),
            Subject::Maps => "maps".to_owned(),
            Subject::Claims => "claims".to_owned(),
        }
    }
}

/// A lock that is held as long as this exists, or until other hosts take this one for dead.
pub struct LockGuard<S: Substrate> {
    file: Arc<S::File>,
}

impl<S: Substrate> LockGuard<S> {
    /// Returns the file that is locked.
    pub(crate) fn file(&self) -> &S::File {
        &self.file
    }
}

/// Locks that are kept for longer than a piece of work, by the names of their files.
///
/// Work on the same open state folder may take them as if they were free: they keep out other hosts, not the own scan
/// and pass.
pub(super) struct KeptLocks<S: Substrate>(Mutex<BTreeMap<String, Arc<S::File>>>);

impl<S: Substrate> Default for KeptLocks<S> {
    fn default() -> KeptLocks<S> {
        KeptLocks(Mutex::new(BTreeMap::new()))
    }
}

impl<S: Substrate> State<'_, S> {
    /// Returns whether a pass has ever been about to publish a part of the index: the lock that it took then is never
    /// removed.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn had_index(&self) -> Result<bool, StateError> {
        Ok(self.names(FOLDER)?.iter().any(|name| name.starts_with("shard.")))
    }

    /// Takes a lock, unless another process has it. A lock that is kept ([`State::keep`]) can be taken once more.
    ///
    /// # Errors
    /// No space for its file; errors of the device.
    pub fn try_lock(&self, subject: &Subject) -> Result<Option<LockGuard<S>>, StateError> {
        let name = subject.name();
        if let Some(file) = self.kept.0.lock().get(&name) {
            return Ok(Some(LockGuard { file: Arc::clone(file) }));
        }
        let path = self.path(FOLDER, name);
        let file = match self.open_own(&path, Access::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.substrate().create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.open_own(&path, Access::Write),
                created => created,
            },
            opened => opened,
        };
        let file = file.map_err(StateError::at(&path))?;
        let is_taken = self.substrate().try_lock(&file).map_err(StateError::at(&path))?;
        Ok(is_taken.then(|| LockGuard { file: Arc::new(file) }))
    }

    /// Takes a lock, unless another process has it, and keeps it until [`State::let_go`], or until the state folder is
    /// closed. Returns whether it is kept.
    ///
    /// # Errors
    /// As [`State::try_lock`].
    pub fn keep(&self, subject: &Subject) -> Result<bool, StateError> {
        let Some(held) = self.try_lock(subject)? else { return Ok(false) };
        self.kept.0.lock().insert(subject.name(), held.file);
        Ok(true)
    }

    /// Stops keeping a lock. Work that has it at the moment still holds it.
    pub fn let_go(&self, subject: &Subject) {
        self.kept.0.lock().remove(&subject.name());
    }
}
