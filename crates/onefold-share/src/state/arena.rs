//! The virtual arena: files that own no data, only references to shared blocks. They give these blocks lasting names.
//!
//! A block is put in by cloning it into a slot, before anything has read it. Afterwards the slot, to which nobody
//! writes, is read to make sure that it holds the content of its entry. A slot that no entry names is punched by the
//! next pass. Emptying a slot is always safe: other files keep their own references.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{Access, At, ShareError, Substrate};

use super::locks::{LockGuard, Subject};
use super::{ARENA as FOLDER, State, StateError};
use crate::extents::Extents;
use crate::format::Slot;

const FILE_BYTES: u64 = Slot::IN_FILE * BLOCK_BYTES_U64;
const TRIES: u32 = 10_000;
/// Maximum number of arena files that are tried before a new one is made.
const LOOKED_AT_MAX: usize = 8;

/// The arena files into which a pass puts shared blocks. Their locks are held until it is dropped. Until the index that
/// names their slots is published, a sweeping host would take them for unnamed.
pub(crate) struct ArenaWriter<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    /// The last file is being filled, the others are full.
    files: Vec<OpenArena<S>>,
    /// The file with which blocks are prepared for cloning, if that is needed; set once a block was put in.
    scratch: Option<S::File>,
}

struct OpenArena<S: Substrate> {
    number: u32,
    file: S::File,
    next: u64,
    /// The first slot that no entry names yet.
    published: u64,
    _lock: LockGuard<S>,
}

/// The lock of an arena file.
pub(crate) struct ArenaLock<S: Substrate> {
    number: u32,
    _held: [Option<LockGuard<S>>; 2],
}

/// Consecutive slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRun {
    /// The first.
    pub first: Slot,
    /// Their number, at least one.
    pub count: u64,
}

/// Arena files of which all locks are held: no host fills them, empties their slots, or shares with these once it has
/// checked the locks. Work on this same open state folder may take the locks once more.
pub(crate) struct KeptArenas<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    numbers: BTreeSet<u32>,
}

impl<'a, 'b, S: Substrate> KeptArenas<'a, 'b, S> {
    pub(crate) fn new(state: &'a State<'b, S>) -> KeptArenas<'a, 'b, S> {
        KeptArenas { state, numbers: BTreeSet::new() }
    }

    /// Takes and keeps the locks of an arena file, unless another process has one of them. Returns whether they are
    /// kept.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn keep(&mut self, number: u32) -> Result<bool, StateError> {
        if !self.state.keep(&Subject::Arena(number))? {
            return Ok(false);
        }
        // From here on it is released in any case.
        self.numbers.insert(number);
        let is_kept = self.state.keep(&Subject::Sweep(number))?;
        if !is_kept {
            self.numbers.remove(&number);
            self.state.let_go(&Subject::Arena(number));
        }
        Ok(is_kept)
    }

    /// Returns the numbers of these files.
    pub(crate) fn numbers(&self) -> &BTreeSet<u32> {
        &self.numbers
    }
}

impl<S: Substrate> Drop for KeptArenas<'_, '_, S> {
    fn drop(&mut self) {
        for number in &self.numbers {
            self.state.let_go(&Subject::Arena(*number));
            self.state.let_go(&Subject::Sweep(*number));
        }
    }
}

impl<'a, 'b, S: Substrate> ArenaWriter<'a, 'b, S> {
    /// Returns a writer without a file; it chooses one later.
    #[must_use]
    pub(crate) fn new(state: &'a State<'b, S>) -> ArenaWriter<'a, 'b, S> {
        ArenaWriter { state, files: Vec::new(), scratch: None }
    }

    /// Clones up to `count` blocks into slots, as many as one arena file has room for, and returns these slots.
    ///
    /// # Errors
    /// Errors of the state folder, and of cloning.
    pub(crate) fn put(
        &mut self,
        source: At<'_, S::File>,
        count: u64,
    ) -> Result<Result<SlotRun, ShareError>, StateError> {
        let substrate = self.state.substrate();
        if self.files.last().is_none_or(|filling| filling.next == Slot::IN_FILE) {
            // Before there is a file, so that nothing is cloned without it.
            if self.scratch.is_none() {
                self.scratch = self.state.clone_scratch()?;
            }
            self.files.push(Self::choose(self.state)?);
        }
        let filling = self.files.last_mut().expect("one with room was pushed");
        let at_once = (substrate.abilities().share_bytes_max / BLOCK_BYTES_U64).max(1);
        let count = count.min(Slot::IN_FILE - filling.next).min(at_once);
        let into = At { file: &filling.file, offset: filling.next * BLOCK_BYTES_U64 };
        let length = count * BLOCK_BYTES_U64;
        let ready = self.scratch.as_ref().map_or(Ok(()), |scratch| substrate.prepare_clone(source, length, scratch));
        if let Err(error) = ready.and_then(|()| substrate.clone_range(source, into, length)) {
            // No entry names the part that was cloned.
            filling.next += count;
            return Ok(Err(error));
        }
        let first = Slot::new(filling.number, filling.next).expect("within a file whose number was checked");
        filling.next += count;
        Ok(Ok(SlotRun { first, count }))
    }

    /// Makes all slots durable. An entry that outlives its slot would only be in the way.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn sync(&self) -> Result<(), StateError> {
        for filling in &self.files {
            let path = arena_path(self.state, filling.number);
            self.state.substrate().sync(&filling.file).map_err(StateError::at(&path))?;
        }
        Ok(())
    }

    /// Notes that the entries of all useful slots are published.
    pub(crate) fn note_published(&mut self) {
        // The last file is filled further. The slots of the others are named, and nothing more is put into them.
        let full = self.files.len().saturating_sub(1);
        self.files.drain(..full);
        self.files.iter_mut().for_each(|filling| filling.published = filling.next);
    }

    /// Empties the slots that were filled since entries were published last, except those for which `is_kept` returns
    /// true. Slots that cannot be emptied now are emptied by the next pass.
    pub(crate) fn discard(&mut self, is_kept: impl Fn(Slot) -> bool) {
        for filling in &mut self.files {
            let slots = filling.published..filling.next;
            let kept = |index: &u64| Slot::new(filling.number, *index).is_some_and(&is_kept);
            for run in slots.collect::<Vec<_>>().chunk_by(|one, other| kept(one) == kept(other)) {
                let (Some(first), false) = (run.first(), run.first().is_some_and(kept)) else { continue };
                let (offset, length) = (first * BLOCK_BYTES_U64, run.len() as u64 * BLOCK_BYTES_U64);
                // A failure comes from the device; the pass ends anyhow.
                let _ = self.state.substrate().punch(&filling.file, offset, length);
            }
            filling.published = filling.next;
        }
    }

    /// Returns the numbers of the files that were filled.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.files.iter().map(|filling| filling.number)
    }

    /// Returns one of the files that were filled, by its number.
    #[must_use]
    pub(crate) fn file(&self, number: u32) -> Option<&S::File> {
        self.files.iter().rev().find(|filling| filling.number == number).map(|filling| &filling.file)
    }

    /// Finds an arena file with room on which no host works, or makes one.
    fn choose(state: &State<'_, S>) -> Result<OpenArena<S>, StateError> {
        let mut numbers = state.arenas()?;
        numbers.sort_unstable();
        // The newest ones may have room; other hosts may be filling some of them.
        let newer = numbers.last().map_or(0, |newest| newest + 1);
        let with_room = numbers.iter().copied().rev().take(LOOKED_AT_MAX);
        // Once the highest number is taken, the numbers of removed files are tried.
        let unused = (newer..newer.saturating_add(TRIES))
            .take_while(|number| Slot::new(*number, 0).is_some())
            .chain((0..newer).filter(|number| numbers.binary_search(number).is_err()).take(TRIES as usize));
        for number in with_room.chain(unused) {
            let Some(lock) = state.try_lock(&Subject::Arena(number))? else { continue };
            let path = arena_path(state, number);
            let file = match state.open_own(&path, Access::Write) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    state.substrate().create(&path).map_err(StateError::at(&path))?
                }
                opened => opened.map_err(StateError::at(&path))?,
            };
            // A process of another user may have the file open since the time when others had rights to it.
            if state.substrate().protection(&file).map_err(StateError::at(&path))?.is_sticky() {
                continue;
            }
            // Its maker may have died before the file had its length.
            if state.substrate().stat(&file).map_err(StateError::at(&path))?.length < FILE_BYTES {
                state.join_tree(&file, 0)?;
                state.substrate().set_len(&file, FILE_BYTES).map_err(StateError::at(&path))?;
            }
            let extents = Extents::load(state.substrate(), &file).map_err(StateError::at(&path))?;
            let next = extents.end().div_ceil(BLOCK_BYTES_U64);
            if next < Slot::IN_FILE {
                return Ok(OpenArena { number, file, next, published: next, _lock: lock });
            }
        }
        Err(StateError::Restless)
    }
}

impl<S: Substrate> State<'_, S> {
    /// Returns the numbers of all arena files.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn arenas(&self) -> Result<Vec<u32>, StateError> {
        let names = self.names(FOLDER)?;
        // A file that cannot have a slot is foreign.
        let numbers = names.iter().filter_map(|name| name.parse().ok());
        Ok(numbers.filter(|number| Slot::new(*number, 0).is_some()).collect())
    }

    /// Opens an arena file. `None` if it does not exist.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn open_arena(&self, number: u32, access: Access) -> Result<Option<S::File>, StateError> {
        let path = arena_path(self, number);
        match self.open_own(&path, access) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StateError::at(&path)(error)),
        }
    }

    /// Locks an arena file against filling and sweeping, unless another process has a lock.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn lock_arena(&self, number: u32) -> Result<Option<ArenaLock<S>>, StateError> {
        let Some(held) = self.try_lock(&Subject::Arena(number))? else { return Ok(None) };
        let sweep = if self.policy().is_declared() {
            // A host that has just declared shares with these slots checks whether this lock is free.
            let Some(sweep) = self.try_lock(&Subject::Sweep(number))? else { return Ok(None) };
            Some(sweep)
        } else {
            None
        };
        Ok(Some(ArenaLock { number, _held: [Some(held), sweep] }))
    }

    /// Removes an arena file that is empty, or empties the slots for which `is_named` returns false. The caller has to
    /// know all entries that were published before the lock was taken. Returns how many slots were emptied.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn sweep_arena(
        &self,
        lock: &ArenaLock<S>,
        mut is_named: impl FnMut(Slot) -> bool,
    ) -> Result<u64, StateError> {
        let number = lock.number;
        let Some(file) = self.open_arena(number, Access::Write)? else { return Ok(0) };
        let path = arena_path(self, number);
        let extents = Extents::load(self.substrate(), &file).map_err(StateError::at(&path))?;
        let (mut freed, mut kept) = (0, 0);
        // Start of the range that is to be punched.
        let mut unnamed: Option<u64> = None;
        let punch = |from: u64, to: u64| {
            let (offset, length) = (from * BLOCK_BYTES_U64, (to - from) * BLOCK_BYTES_U64);
            self.substrate().punch(&file, offset, length).map_err(StateError::at(&path))
        };
        for extent in extents.iter() {
            let first = extent.offset / BLOCK_BYTES_U64;
            let end = extent.end().div_ceil(BLOCK_BYTES_U64);
            for index in first..end {
                let named = Slot::new(number, index).is_some_and(&mut is_named);
                match (named, unnamed) {
                    (false, None) => unnamed = Some(index),
                    (true, Some(from)) => {
                        punch(from, index)?;
                        unnamed = None;
                    }
                    _ => {}
                }
                kept += u64::from(named);
                freed += u64::from(!named);
            }
            if let Some(from) = unnamed.take() {
                punch(from, end)?;
            }
        }
        if kept == 0 {
            self.remove(&path)?;
        }
        Ok(freed)
    }
}

pub(super) fn arena_path<S: Substrate>(state: &State<'_, S>, number: u32) -> PathBuf {
    state.path(FOLDER, number.to_string())
}
