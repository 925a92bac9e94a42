//! Intents, as files: what hosts are about to share where a share may be cut short and leave a hole. Of use only where
//! that is so ([`ShareSteps::Declared`](crate::policy::ShareSteps)).
//!
//! A pass has one, locked as long as its host lives, and writes into it in place. Who finds the lock free fills the
//! holes (`mend`). The slots that an intent names are all that is left of what was in a hole:
//!
//! 1. Who shares declares first, and then makes sure that nobody empties slots of these arena files at the moment, by
//!    taking the lock for it, and after that, that the files which it has open still have their names
//!    (`State::keeps_slots`).
//! 2. Who empties slots takes that lock first, and then reads all intents. An arena file of which no slot is left is
//!    removed.
//!
//! So either the one sees the other's lock, or that the file is gone, or the other one sees the intent.
//!
//! An intent counts whatever identity its file names: where the identity of the state folder was lost, the holes are
//! still there, and their slots are the last copy. Only a person decides about such an intent (`mend::Foreign`), and no
//! new identity is made as long as there is one.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use onefold_substrate::{Access, FileHandle, Substrate};

use super::arena::arena_path;
use super::hosts::HostNo;
use super::locks::Subject;
use super::trust::open_again;
use super::{Locked, State, StateError, TRIES};
use crate::format::intent::{self, DeclaredIntent, Intent};
use crate::format::{FormatError, Slot};

pub(super) const FOLDER: &str = "intents";

/// The file in which a pass declares what it is about to share.
pub(crate) struct IntentFile<'a, S: Substrate> {
    substrate: &'a S,
    identity: [u8; 16],
    path: PathBuf,
    /// None after a write that failed.
    file: Option<S::File>,
    is_declared: bool,
    _lock: S::File,
}

/// The file of a host that is dead, locked.
pub(crate) struct LeftIntent<S: Substrate> {
    pub(crate) path: PathBuf,
    /// What it says; none if nothing is declared.
    pub(crate) intent: Result<Option<DeclaredIntent>, FormatError>,
    lock: S::File,
}

/// A file in which something is declared, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIntent {
    /// The file.
    pub path: PathBuf,
    /// The image, below the root; none if the file cannot be read.
    pub image: Option<PathBuf>,
}

/// What comes of asking for a dead host's file.
pub(crate) enum TakenIntent<S: Substrate> {
    /// It is the caller's now.
    Taken(LeftIntent<S>),
    /// It is no more.
    Gone,
    /// Its host is at work.
    Alive,
    /// Its host is dead, and another one has taken it. What it says, if anything.
    Elsewhere(Option<Intent>),
}

impl<'a, S: Substrate> State<'a, S> {
    /// Makes a file for intents, in which nothing is declared.
    ///
    /// # Errors
    /// No space; those of the device.
    pub(crate) fn begin_intents(&self) -> Result<IntentFile<'a, S>, StateError> {
        let Locked { file, path, lock } = self.new_locked(FOLDER)?;
        let (substrate, identity) = (self.substrate(), self.identity().uuid);
        Ok(IntentFile { substrate, identity, path, file: Some(file), is_declared: false, _lock: lock })
    }

    /// Returns all that is declared, by any host and under any identity.
    ///
    /// # Errors
    /// Errors of the device; `Damaged` where an intent cannot be read: what it names is not known then.
    pub(crate) fn intents(&self) -> Result<Vec<Intent>, StateError> {
        let mut intents = Vec::new();
        for name in self.intent_names()? {
            intents.extend(self.read_intent(&self.path(FOLDER, name))?);
        }
        Ok(intents)
    }

    /// Returns the files in which something is declared, or of which nobody knows whether there is. Left out are those
    /// that a host was writing when it died: it had not begun to share, or was done.
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

    /// Returns the paths of all files of intents.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn intent_paths(&self) -> Result<Vec<PathBuf>, StateError> {
        Ok(self.intent_names()?.into_iter().map(|name| self.path(FOLDER, name)).collect())
    }

    /// Takes a file of intents, if its host is dead and nobody else has it.
    ///
    /// # Errors
    /// Errors of the device; `Damaged` and `Newer`, where another host has it.
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
        // Whoever was first has removed it; what its file says still may not hold any more.
        match self.open_own(path, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(TakenIntent::Gone),
            opened => drop(opened.map_err(StateError::at(path))?),
        }
        let intent = intent::read_declared(substrate, &lock, &self.identity().uuid);
        Ok(TakenIntent::Taken(LeftIntent { path: path.to_owned(), intent, lock }))
    }

    /// Takes note that nothing of an intent is left to be done.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn retire_intent(&self, left: LeftIntent<S>) -> Result<(), StateError> {
        let LeftIntent { path, lock, intent } = left;
        // The name may come back after a crash. What it says then must be true.
        if !matches!(intent, Ok(None)) {
            intent::write(None, self.substrate(), lock, self.identity().uuid).map_err(StateError::at(&path))?;
        }
        self.remove(&path)
    }

    /// Returns whether the slots of an arena file, which the caller has open, stay as long as he has them declared:
    /// nobody empties some at the moment, whoever does from now on sees what was declared before this, and the slots
    /// can be found by the arena file's number. A file that was removed still has its blocks for who has it open, but
    /// nobody else finds them there; and what was emptied before that may be back, if the host that did so has died.
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

    /// Returns whether something of an image is declared: a host shares it, or has left it with holes, perhaps.
    ///
    /// # Errors
    /// As [`State::intents`].
    pub(crate) fn is_declared(&self, handle: &FileHandle) -> Result<bool, StateError> {
        Ok(self.declared_images()?.contains(handle))
    }

    /// Returns all images of which something is declared.
    ///
    /// # Errors
    /// As [`State::intents`].
    pub(crate) fn declared_images(&self) -> Result<BTreeSet<FileHandle>, StateError> {
        Ok(self.intents()?.into_iter().map(|intent| intent.handle).collect())
    }

    /// Hands on the slots that must be kept for holes to be filled from them.
    ///
    /// # Errors
    /// As [`State::intents`].
    pub(crate) fn each_declared_slot(&self, mut each: impl FnMut(Slot)) -> Result<(), StateError> {
        self.intents()?.iter().flat_map(|intent| &intent.runs).for_each(|run| run.slots().for_each(&mut each));
        Ok(())
    }

    fn intent_names(&self) -> Result<Vec<String>, StateError> {
        match self.names(FOLDER) {
            // It is made where it is of use.
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
                // It may be written at this moment: then it is whole a moment later.
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
    /// Declares what is about to be shared. Durable on return.
    ///
    /// # Errors
    /// No space; those of the device. Whatever of it can be read then, nothing of it was shared.
    pub(crate) fn declare(&mut self, intent: &Intent) -> Result<(), StateError> {
        self.write(Some(intent))?;
        self.is_declared = true;
        Ok(())
    }

    /// Declares that all of it is done, and durable.
    ///
    /// # Errors
    /// Errors of the device. It is still declared then.
    pub(crate) fn retire(&mut self) -> Result<(), StateError> {
        // What cannot be written can perhaps be removed.
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
        // What is declared still is for others to look after. A panic is no time for calls; they remove what is of no
        // use.
        if !self.is_declared && !std::thread::panicking() {
            let _ = self.substrate.remove(&self.path);
        }
    }
}
