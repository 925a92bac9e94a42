//! Intents, as files: shares that hosts are about to make on file systems where a share may be cut short and leave a
//! hole. Used only there ([`ShareSteps::Declared`](crate::policy::ShareSteps)).
//!
//! A pass has one file, locked as long as its host lives, and writes into it in place. A host that finds the lock free
//! fills the holes (`mend`). The slots that an intent names may have the only copy of the blocks in a hole. So the
//! order is:
//!
//! 1. A sharing host declares first. Then it takes the lock for emptying slots of these arena files, so that no host is
//!    emptying any. After that, it checks that the files which it has open still have their names
//!    (`State::keeps_slots`).
//! 2. A host that empties slots takes that lock first, and then reads all intents. An arena file without any slot left
//!    is removed.
//!
//! So either the sharing host sees the other's lock, or that the file is gone, or the other host sees the intent.
//!
//! An intent counts whatever identity its file names. If the identity of the state folder was lost, the holes still
//! exist, and their slots are the last copy. Only a person decides about such an intent
//! (`mend::ForeignIntentPolicy`), and no new identity is made as long as there is one.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use onefold_substrate::{Access, FileHandle, Substrate};

use super::arena::arena_path;
use super::hosts::HostNo;
use super::locks::Subject;
use super::trust::open_again;
use super::{LockedFile, State, StateError, TRIES};
use crate::format::intent::{self, DeclaredIntent, Intent};
use crate::format::{FormatError, Slot};

pub(super) const FOLDER: &str = "intents";

/// The file in which a pass declares its shares.
pub(crate) struct IntentFile<'a, S: Substrate> {
    substrate: &'a S,
    identity: [u8; 16],
    path: PathBuf,
    /// `None` after a write that failed.
    file: Option<S::File>,
    is_declared: bool,
    _lock: S::File,
}

/// The intent file of a dead host, locked by the caller.
pub(crate) struct LeftIntent<S: Substrate> {
    pub(crate) path: PathBuf,
    /// Its content; `None` inside if nothing is declared.
    pub(crate) intent: Result<Option<DeclaredIntent>, FormatError>,
    lock: S::File,
}

/// A file with declared shares, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIntent {
    /// The file.
    pub path: PathBuf,
    /// The image, below the root; `None` if the file cannot be read.
    pub image: Option<PathBuf>,
}

/// Result of trying to take a dead host's file.
pub(crate) enum TakenIntent<S: Substrate> {
    /// The caller has it now.
    Taken(LeftIntent<S>),
    /// It no longer exists.
    Gone,
    /// Its host is at work.
    Alive,
    /// Its host is dead, and another one has taken it. The content, if there is any.
    Elsewhere(Option<Intent>),
}

impl<'a, S: Substrate> State<'a, S> {
    /// Makes a file for intents, in which nothing is declared.
    ///
    /// # Errors
    /// No space; errors of the device.
    pub(crate) fn begin_intents(&self) -> Result<IntentFile<'a, S>, StateError> {
        let LockedFile { file, path, lock } = self.new_locked(FOLDER)?;
        let (substrate, identity) = (self.substrate(), self.identity().uuid);
        Ok(IntentFile { substrate, identity, path, file: Some(file), is_declared: false, _lock: lock })
    }

    /// Returns all declared shares, of any host and under any identity.
    ///
    /// # Errors
    /// Errors of the device; `Damaged` if an intent cannot be read, so that it is not known what it names.
    pub(crate) fn intents(&self) -> Result<Vec<Intent>, StateError> {
        let mut intents = Vec::new();
        for name in self.intent_names()? {
            intents.extend(self.read_intent(&self.path(FOLDER, name))?);
        }
        Ok(intents)
    }

    /// Returns the files with declared shares, and those of which this is unknown. Leaves out files that a host was
    /// writing when it died: it had not begun to share, or was done.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn open_intents(&self) -> Result<Vec<OpenIntent>, StateError> {
        let mut open = Vec::new();
        for path in self.intent_paths()? {
            match self.read_intent(&path) {
                Ok(None) | Err(StateError::Damaged { why: FormatError::Damaged(_), .. }) => {}
                Ok(Some(intent)) => open.push(OpenIntent { path, image: Some(intent.path) }),
                Err(StateError::Damaged { .. } | StateError::Newer { .. }) => {
                    open.push(OpenIntent { path, image: None });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(open)
    }

    /// Returns the paths of all intent files.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn intent_paths(&self) -> Result<Vec<PathBuf>, StateError> {
        Ok(self.intent_names()?.into_iter().map(|name| self.path(FOLDER, name)).collect())
    }

    /// Takes an intent file, if its host is dead and no other host has it.
    ///
    /// # Errors
    /// Errors of the device; `Damaged` and `Newer`, if another host has it.
    pub(crate) fn take_intent(&self, path: &Path) -> Result<TakenIntent<S>, StateError> {
        let substrate = self.substrate();
        let lock = match self.open_own(path, Access::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(TakenIntent::Gone),
            opened => opened.map_err(StateError::at(path))?,
        };
        if !substrate.try_lock(&lock).map_err(StateError::at(path))? {
            // A host is present before it declares anything, and as long as it has something declared.
            if HostNo::of_name(path).map_or(Ok(false), |host| self.is_present(host))? {
                return Ok(TakenIntent::Alive);
            }
            return self.read_intent(path).map(TakenIntent::Elsewhere);
        }
        // Another host may have taken it first and removed it. The content of the removed file no longer counts.
        match self.open_own(path, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(TakenIntent::Gone),
            opened => drop(opened.map_err(StateError::at(path))?),
        }
        let intent = intent::read_declared(substrate, &lock, &self.identity().uuid);
        Ok(TakenIntent::Taken(LeftIntent { path: path.to_owned(), intent, lock }))
    }

    /// Notes that an intent needs no more work.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn retire_intent(&self, left: LeftIntent<S>) -> Result<(), StateError> {
        let LeftIntent { path, lock, intent } = left;
        // The name may come back after a crash. Its content has to be true then.
        if !matches!(intent, Ok(None)) {
            intent::write(None, self.substrate(), lock, self.identity().uuid).map_err(StateError::at(&path))?;
        }
        self.remove(&path)
    }

    /// Returns whether the slots of an arena file, which the caller has open, stay as long as the caller has them
    /// declared. No host is emptying slots at the moment. A host that begins to from now on sees the earlier
    /// declarations. The slots can be found by the arena file's number. A removed file still has its blocks for a
    /// process that has it open, but no other host finds them there. Slots that were emptied before may be back, if the
    /// host that did so has died.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn keeps_slots(&self, arena: u32, opened: &S::File) -> Result<bool, StateError> {
        if self.try_lock(&Subject::Sweep(arena))?.is_none() {
            return Ok(false);
        }
        let Some(named) = self.open_arena(arena, Access::Read)? else { return Ok(false) };
        let path = arena_path(self, arena);
        let handle = |file| self.substrate().stat(file).map(|stat| stat.handle).map_err(StateError::at(&path));
        Ok(handle(&named)? == handle(opened)?)
    }

    /// Returns whether a share of an image is declared: a host is sharing it, or may have left it with holes.
    ///
    /// # Errors
    /// As [`State::intents`].
    pub(crate) fn is_declared(&self, handle: &FileHandle) -> Result<bool, StateError> {
        Ok(self.declared_images()?.contains(handle))
    }

    /// Returns all images with declared shares.
    ///
    /// # Errors
    /// As [`State::intents`].
    pub(crate) fn declared_images(&self) -> Result<BTreeSet<FileHandle>, StateError> {
        Ok(self.intents()?.into_iter().map(|intent| intent.handle).collect())
    }

    /// Calls `each` with the slots that must be kept because holes may be filled from them.
    ///
    /// # Errors
    /// As [`State::intents`].
    pub(crate) fn each_declared_slot(&self, mut each: impl FnMut(Slot)) -> Result<(), StateError> {
        self.intents()?.iter().flat_map(|intent| &intent.runs).for_each(|run| run.slots().for_each(&mut each));
        Ok(())
    }

    fn intent_names(&self) -> Result<Vec<String>, StateError> {
        match self.names(FOLDER) {
            // The folder is made when it is needed.
            Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names,
        }
    }

    fn read_intent(&self, path: &Path) -> Result<Option<Intent>, StateError> {
        let mut tries = 0;
        loop {
            let file = match self.open_own(path, Access::Read) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened.map_err(StateError::at(path))?,
            };
            tries += 1;
            match intent::read_declared(self.substrate(), &file, &self.identity().uuid) {
                Ok(declared) => return Ok(declared.map(|declared| declared.intent)),
                // It may be written at this moment, and be whole a moment later.
                Err(FormatError::Damaged(_) | FormatError::Foreign) if tries < TRIES => self.pause(),
                Err(FormatError::Io(source)) => return Err(StateError::at(path)(source)),
                Err(why @ FormatError::Newer { .. }) => return Err(StateError::Newer { path: path.to_owned(), why }),
                Err(why @ (FormatError::Damaged(_) | FormatError::Foreign | FormatError::Older { .. })) => {
                    return Err(StateError::Damaged { path: path.to_owned(), why });
                }
            }
        }
    }
}

impl<S: Substrate> IntentFile<'_, S> {
    /// Declares shares. Durable on return.
    ///
    /// # Errors
    /// No space; errors of the device. Whatever part of the intent can be read then, nothing of it was shared.
    pub(crate) fn declare(&mut self, intent: &Intent) -> Result<(), StateError> {
        self.write(Some(intent))?;
        self.is_declared = true;
        Ok(())
    }

    /// Declares that all shares are done, and durable.
    ///
    /// # Errors
    /// Errors of the device. The shares are still declared then.
    pub(crate) fn retire(&mut self) -> Result<(), StateError> {
        // A file that cannot be written can perhaps be removed.
        self.write(None).or_else(|error| self.substrate.remove(&self.path).map_err(|_| error))?;
        self.is_declared = false;
        Ok(())
    }

    fn write(&mut self, intent: Option<&Intent>) -> Result<(), StateError> {
        let at = || StateError::at(&self.path);
        let file = match self.file.take() {
            Some(file) => file,
            None => open_again(self.substrate, &self.path).map_err(at())?,
        };
        self.file = Some(intent::write(intent, self.substrate, file, self.identity).map_err(at())?);
        Ok(())
    }
}

impl<S: Substrate> Drop for IntentFile<'_, S> {
    fn drop(&mut self) {
        // Shares that are still declared are for other hosts to handle. During a panic, no calls are made; other hosts
        // remove a useless file.
        if !self.is_declared && !std::thread::panicking() {
            let _ = self.substrate.remove(&self.path);
        }
    }
}
