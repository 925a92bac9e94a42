//! Locks: empty files that are never replaced, locked as a whole.

use std::io;

use onefold_block::Substrate;
use onefold_block::substrate::{Access, FileHandle};

use super::{State, StateError};
use crate::format::prefix::Prefix;

const FOLDER: &str = "locks";

/// What one host at a time works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An image file: its blocks are shared by who has this, and by nobody while a door has it.
    File(FileHandle),
    /// The part of the index with these digests: a new generation of it is made by who has this.
    Shard(Prefix),
    /// An arena file.
    Arena(u32),
}

impl Subject {
    fn name(&self) -> String {
        match self {
            Subject::File(handle) => format!("file.{handle}"),
            Subject::Shard(prefix) => format!("shard.{prefix}"),
            Subject::Arena(number) => format!("arena.{number}"),
        }
    }
}

/// A lock that is held as long as this exists, or until other hosts think this one dead.
pub struct Held<S: Substrate> {
    _file: S::File,
}

impl<S: Substrate> State<'_, S> {
    /// Takes a lock, unless somebody has it.
    ///
    /// # Errors
    /// No space for its file; those of the device.
    pub fn try_lock(&self, subject: &Subject) -> Result<Option<Held<S>>, StateError> {
        let path = Self::path(FOLDER, subject.name());
        let file = match self.substrate().open(&path, Access::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.substrate().create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.substrate().open(&path, Access::Write)
                }
                created => created,
            },
            opened => opened,
        };
        let file = file.map_err(StateError::at(&path))?;
        let is_taken = self.substrate().try_lock(&file).map_err(StateError::at(&path))?;
        Ok(is_taken.then_some(Held { _file: file }))
    }
}
