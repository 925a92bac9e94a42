//! The known image files, each with a number and a mark.
//!
//! A number belongs to one domain. A file that comes into another domain gets another number. From then on, entries,
//! logs and requests with the old number name a file that is gone, and no content of another domain is ever taken for
//! its content.

mod notes;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{Access, FileHandle, Substrate};

pub(crate) use self::notes::{MarkUpdate, StampChange};
use super::logs::LogName;
use super::{State, StateError};
use crate::domain::{Domain, Membership};
use crate::format::mark::{Mark, MarkFlags};
use crate::format::reading::ReadingState;
use crate::format::{FileNo, FormatError};
use crate::selection::Selection;

const FOLDER: &str = "files";
/// Maximum number of attempts to get a number for a new file while other hosts take numbers, too.
const TRIES: u32 = 10_000;
/// All marks.
#[derive(Debug, Default)]
pub struct Marks {
    by_number: BTreeMap<FileNo, Mark>,
    /// The numbers of each file, in order. There are several if two hosts saw it at the same moment, or if its domain
    /// has changed.
    by_handle: BTreeMap<FileHandle, Vec<FileNo>>,
}

impl Marks {
    /// Reads all marks. Useless ones are dropped.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn load<S: Substrate>(state: &State<'_, S>) -> Result<Marks, StateError> {
        let mut files = Marks::default();
        files.load_new(state)?;
        Ok(files)
    }

    /// Reads the marks of files that got a number since.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn load_new<S: Substrate>(&mut self, state: &State<'_, S>) -> Result<(), StateError> {
        for name in state.names(FOLDER)? {
            if name.parse().is_ok_and(|number| self.by_number.contains_key(&FileNo(number))) {
                continue;
            }
            let path = state.path(FOLDER, &name);
            match read(state, &path, &name) {
                Ok(Some(mark)) => self.insert(mark),
                Ok(None) => {}
                Err(why) => state.refuse(path, why)?,
            }
        }
        Ok(())
    }

    /// Returns the mark with a number.
    #[must_use]
    pub fn get(&self, number: FileNo) -> Option<&Mark> {
        self.by_number.get(&number)
    }

    /// Returns the mark of a file, in the domain that it entered last.
    #[must_use]
    pub fn of(&self, handle: &FileHandle) -> Option<&Mark> {
        let last = self.by_handle.get(handle)?.last()?;
        self.get(self.first_number(*last))
    }

    /// Returns the number that stands for a file in the domain of this number: two hosts that saw the file at the same
    /// moment gave it two.
    #[must_use]
    pub(crate) fn first_number(&self, number: FileNo) -> FileNo {
        let Some(mark) = self.get(number) else { return number };
        let mut numbers = self.by_handle.get(&mark.handle).into_iter().flatten().copied();
        numbers.find(|other| self.domain(*other) == Some(&mark.membership.domain)).unwrap_or(number)
    }

    /// Returns all numbers that a file has in the domain of this one.
    pub(crate) fn numbers(&self, number: FileNo) -> impl Iterator<Item = FileNo> {
        let numbers = self.get(number).and_then(|mark| self.by_handle.get(&mark.handle));
        let numbers = numbers.map_or(&[][..], Vec::as_slice);
        numbers.iter().copied().filter(move |other| self.domain(*other) == self.domain(number))
    }

    /// Returns the domain of a number.
    #[must_use]
    pub fn domain(&self, number: FileNo) -> Option<&Domain> {
        self.get(number).map(|mark| &mark.membership.domain)
    }

    /// Returns whether a run of this selection may read and change a file. A file without a name is not selected: no
    /// run would ever come to it.
    #[must_use]
    pub(crate) fn is_selected(&self, number: FileNo, selection: &Selection<'_>) -> bool {
        let mark = self.get(self.first_number(number));
        mark.is_none_or(|mark| mark.is_forgotten() || selection.contains(&mark.path))
    }

    /// Returns whether a log was published after the file's mark was written: by a host that died before it wrote the
    /// mark, or by the monitor of another host. The host that wrote the mark may have logged later blocks under an
    /// earlier number.
    pub(crate) fn is_unnoted(&self, log: &LogName) -> bool {
        let noted = self.get(self.first_number(log.file)).and_then(|mark| mark.last_log);
        noted.is_some_and(|noted| log.order().number() > noted)
    }

    /// Returns all marks, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Mark> {
        self.by_number.values()
    }

    /// Returns the mark of each file that has a name, in the domain that the file entered last.
    pub(crate) fn of_files(&self) -> impl Iterator<Item = &Mark> {
        let is_used = |mark: &&Mark| self.of(&mark.handle).is_some_and(|used| used.number == mark.number);
        self.iter().filter(|mark| !mark.is_forgotten()).filter(is_used)
    }

    /// Returns the files of a selection that have moved or are gone, and how many blocks they had when they were read.
    /// This only looks at each name.
    pub(crate) fn gone<S: Substrate>(&self, state: &State<'_, S>, selection: &Selection<'_>) -> BTreeMap<FileNo, u64> {
        let is_gone = |mark: &&Mark| {
            let there = state.substrate().open(&mark.path, Access::Read).and_then(|file| state.substrate().stat(&file));
            match there {
                Ok(stat) => stat.handle != mark.handle,
                Err(error) => onefold_substrate::is_gone(&error),
            }
        };
        let is_looked_at = |mark: &&Mark| !mark.is_forgotten() && self.is_selected(mark.number, selection);
        let gone = self.iter().filter(is_looked_at).filter(is_gone);
        gone.map(|mark| (mark.number, mark.scanned.map_or(0, |stamp| stamp.length / BLOCK_BYTES_U64))).collect()
    }

    /// Returns a file's number in its domain, and gives it one if it has none.
    ///
    /// # Errors
    /// No space; errors of the device.
    pub fn number<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        handle: &FileHandle,
        path: &Path,
        membership: &Membership,
    ) -> Result<FileNo, StateError> {
        let known = |files: &Marks| {
            let mark = files.of(handle).filter(|mark| mark.membership.domain == membership.domain);
            mark.map(|mark| mark.number)
        };
        if let Some(number) = known(self) {
            return Ok(number);
        }
        let highest = self.by_number.last_key_value().map_or(0, |(number, _)| number.0);
        // Another host may have given out the highest number.
        let numbers = (highest.saturating_add(1)..=u32::MAX).chain(1..highest).map(FileNo);
        let mut tries = 0;
        for number in numbers {
            if self.by_number.contains_key(&number) {
                continue;
            }
            tries += 1;
            if tries > TRIES {
                break;
            }
            // Reserved space stays reserved in another domain.
            let before = self.of(handle).map_or_else(MarkFlags::default, |mark| mark.flags);
            let mark = Mark {
                number,
                handle: handle.clone(),
                path: path.to_owned(),
                scanned: None,
                flags: MarkFlags { is_ahead: false, ..before },
                membership: membership.clone(),
                reading: ReadingState::default(),
                last_log: None,
            };
            let name = mark_path(state, number);
            let uuid = state.identity().uuid;
            let scratch = state.write_scratch(|file| mark.write(state.substrate(), file, uuid))?;
            if state.publish(&scratch, &name)? {
                self.insert(mark);
                return Ok(number);
            }
            // Another host has taken it, perhaps for this very file.
            self.reload(state, number)?;
            if let Some(number) = known(self) {
                return Ok(number);
            }
        }
        Err(StateError::Restless)
    }

    /// Does the same as [`Marks::number`], with the latest mark of the file; the caller has its lock. Another host may
    /// have forgotten the number that is known here. Numbers of the file in other domains are forgotten.
    ///
    /// # Errors
    /// As [`Marks::number`].
    pub(crate) fn latest_number<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        handle: &FileHandle,
        path: &Path,
        membership: &Membership,
    ) -> Result<FileNo, StateError> {
        let mut number = self.number(state, handle, path, membership)?;
        if self.reload(state, number)?.is_none() {
            number = self.number(state, handle, path, membership)?;
        }
        // Only once the new number exists: a host that dies in between leaves two, of which the later one counts.
        let others = self.by_handle.get(handle).into_iter().flatten().copied();
        let others: Vec<FileNo> = others.filter(|other| self.domain(*other) != Some(&membership.domain)).collect();
        others.into_iter().try_for_each(|other| self.forget(state, other))?;
        Ok(number)
    }

    /// Replaces a mark, if it has changed.
    fn replace<S: Substrate>(&mut self, state: &State<'_, S>, mark: Mark) -> Result<(), StateError> {
        if self.by_number.get(&mark.number) == Some(&mark) {
            return Ok(());
        }
        let uuid = state.identity().uuid;
        let scratch = state.write_scratch(|file| mark.write(state.substrate(), file, uuid))?;
        state.replace(&scratch, &mark_path(state, mark.number))?;
        self.insert(mark);
        Ok(())
    }

    /// Reads a file's mark again: others may have written or removed it since. A useless mark counts as missing.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn reload<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        number: FileNo,
    ) -> Result<Option<&Mark>, StateError> {
        let path = mark_path(state, number);
        match read(state, &path, &number.to_string()) {
            Ok(Some(mark)) => self.insert(mark),
            // A host that found the file gone has forgotten it. If it was found again by another name, it has another
            // number.
            Ok(None) => self.remove(number),
            Err(FormatError::Io(source)) => return Err(StateError::at(&path)(source)),
            Err(why) => {
                state.refuse(path, why)?;
                self.remove(number);
            }
        }
        Ok(self.get(number))
    }

    fn remove(&mut self, number: FileNo) {
        let Some(mark) = self.by_number.remove(&number) else { return };
        if let Some(numbers) = self.by_handle.get_mut(&mark.handle) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_handle.remove(&mark.handle);
            }
        }
    }

    fn insert(&mut self, mark: Mark) {
        // The number may have been given to another file since it was read last.
        if self.get(mark.number).is_some_and(|known| known.handle != mark.handle) {
            self.remove(mark.number);
        }
        // Two hosts that saw a file at the same moment gave it two numbers. The lower one is used from then on.
        let numbers = self.by_handle.entry(mark.handle.clone()).or_default();
        if let Err(place) = numbers.binary_search(&mark.number) {
            numbers.insert(place, mark.number);
        }
        self.by_number.insert(mark.number, mark);
    }
}

fn mark_path<S: Substrate>(state: &State<'_, S>, number: FileNo) -> PathBuf {
    state.path(FOLDER, format!("{number}"))
}

/// Reads a mark. `None` if it is gone meanwhile.
fn read<S: Substrate>(state: &State<'_, S>, path: &Path, name: &str) -> Result<Option<Mark>, FormatError> {
    let file = match state.open_own(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mark = Mark::read(state.substrate(), file, &state.identity().uuid)?;
    if mark.number.to_string() != name {
        return Err(FormatError::Damaged("it is the mark of another file"));
    }
    Ok(Some(mark))
}
