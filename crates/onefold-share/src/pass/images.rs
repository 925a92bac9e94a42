//! The image files of a pass: which are there, which may be worked on.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use onefold_block::substrate::{Access, FileHandle, FileStat};
use onefold_block::{BLOCK_BYTES_U64, FingerprintKey, Substrate, Timestamp};

use crate::domain::{Domain, DomainRules};
use crate::format::log::LogKind;
use crate::format::mark::{Mark, Stamp};
use crate::format::{FileBlock, FileNo};
use crate::opt_out::OptOuts;
use crate::selection::Selection;
use crate::state::files::Files;
use crate::state::locks::{Held, Subject};
use crate::state::logs::LogName;
use crate::state::{State, StateError};
use crate::status::is_gone;

/// All files that a pass has come across. The locks that it has taken are held until it ends.
pub(super) struct Images<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    files: &'a mut Files,
    known: BTreeMap<FileNo, Image<S>>,
    selection: Selection<'a>,
    /// Which files are selected: asked once, as there may be as many patterns as entries.
    selected: RefCell<BTreeMap<FileNo, bool>>,
    opt_outs: OptOuts<'b, S>,
    domains: DomainRules<'b, S>,
}

/// An image file.
struct Image<S: Substrate> {
    /// How many whole blocks it has; none where it is gone, another file has its name, it is opted out, or it belongs to
    /// another domain than its number.
    blocks: Option<u64>,
    /// Whether it is there, in another domain than its number.
    has_left_domain: bool,
    owner: Owner<S>,
}

/// Who may share in a file.
enum Owner<S: Substrate> {
    /// Nobody has asked.
    Unknown,
    /// This host, until the pass ends.
    Us { _lock: Option<Held<S>> },
    /// Another host, or a door.
    Others,
}

impl<'a, 'b, S: Substrate> Images<'a, 'b, S> {
    pub(super) fn new(
        state: &'a State<'b, S>,
        files: &'a mut Files,
        selection: Selection<'a>,
    ) -> Result<Images<'a, 'b, S>, StateError> {
        let (opt_outs, domains) = (OptOuts::new(state.substrate()), DomainRules::of(state)?);
        let (known, selected) = (BTreeMap::new(), RefCell::default());
        Ok(Images { state, files, known, selection, selected, opt_outs, domains })
    }

    /// Returns the key that blocks of a file are digested with. Of a file that is not known it matches nothing.
    pub(super) fn key(&self, number: FileNo) -> FingerprintKey {
        self.state.key(self.files.domain(number).unwrap_or(&Domain::Owner(u32::MAX)))
    }

    /// Returns the keys of the domains of all known files.
    pub(super) fn keys(&self) -> Vec<FingerprintKey> {
        let domains: BTreeSet<&Domain> = self.files.iter().map(|mark| &mark.membership.domain).collect();
        domains.into_iter().map(|domain| self.state.key(domain)).collect()
    }

    /// Tells whether two files belong to one domain.
    pub(super) fn are_of_one_domain(&self, one: FileNo, other: FileNo) -> bool {
        self.files.domain(one) == self.files.domain(other)
    }

    /// Returns the number of a file, if it is known.
    pub(super) fn number_of(&self, handle: &FileHandle) -> Option<FileNo> {
        self.files.of(handle).map(|mark| mark.number)
    }

    /// As [`Images::number_of`]; also where another host has given the number since the marks were read.
    pub(super) fn latest_number_of(&mut self, handle: &FileHandle) -> Result<Option<FileNo>, StateError> {
        if self.number_of(handle).is_none() {
            self.files.load_new(self.state)?;
        }
        Ok(self.number_of(handle))
    }

    /// Tells whether a file is there.
    pub(super) fn is_there(&mut self, number: FileNo) -> Result<bool, StateError> {
        Ok(self.image(number)?.blocks.is_some())
    }

    /// Tells whether this pass may read and change a file. A file without a name is nobody's: no run would ever come to it.
    pub(super) fn is_selected(&self, number: FileNo) -> bool {
        let known = self.selected.borrow().get(&number).copied();
        known.unwrap_or_else(|| {
            let is_selected = self.files.is_selected(number, &self.selection);
            self.selected.borrow_mut().insert(number, is_selected);
            is_selected
        })
    }

    /// Tells whether a block may be within a file that is there. Of a file that another host has it may: that host may just
    /// have seen what is not known here yet, and nobody else can tell. A file outside of the selection is not looked at.
    pub(super) fn may_have(&mut self, number: FileNo, block: FileBlock) -> Result<bool, StateError> {
        if !self.is_selected(number) {
            return Ok(true);
        }
        if self.image(number)?.blocks.is_some_and(|blocks| block.0 < blocks) {
            return Ok(true);
        }
        // Where it has just become this host's, it is looked at anew.
        Ok(!self.own(number)? || self.image(number)?.blocks.is_some_and(|blocks| block.0 < blocks))
    }

    /// Returns the number that stands for a file that has several.
    pub(super) fn first_number(&mut self, number: FileNo) -> Result<FileNo, StateError> {
        loop {
            let first = self.files.first_number(number);
            let is_asked_for = self.known.get(&first).is_some_and(|image| !matches!(image.owner, Owner::Unknown));
            // Another host may have forgotten the first one since: under that number the file would not be found.
            if first == number || is_asked_for || self.files.reload(self.state, first)?.is_some() {
                return Ok(first);
            }
        }
    }

    /// Tells whether a file is this host's to share in, and makes it so where nobody has it. No file outside of the selection is.
    pub(super) fn own(&mut self, number: FileNo) -> Result<bool, StateError> {
        let number = self.first_number(number)?;
        if !self.is_selected(number) {
            return Ok(false);
        }
        if matches!(self.image(number)?.owner, Owner::Unknown) {
            let lock = match self.files.get(number) {
                Some(mark) => Some(self.state.try_lock(&Subject::File(mark.handle.clone()))?),
                None => None,
            };
            let owner = match lock {
                Some(Some(lock)) => {
                    // Whoever had it before may have found it under another name, or longer.
                    self.files.reload(self.state, number)?;
                    self.known.remove(&number);
                    self.selected.get_mut().clear();
                    Owner::Us { _lock: Some(lock) }
                }
                Some(None) => Owner::Others,
                // There is no such file any more.
                None => Owner::Us { _lock: None },
            };
            self.image(number)?.owner = owner;
        }
        // It may have been found under another name since.
        Ok(matches!(self.image(number)?.owner, Owner::Us { .. }) && self.is_selected(number))
    }

    /// Opens a file by its name, and only if that still leads to it, and the file still belongs to the domain of its number:
    /// nothing is shared out of one domain into another.
    pub(super) fn open(&self, number: FileNo, access: Access) -> io::Result<S::File> {
        let (file, stat) = self.open_named(number, access)?;
        if !self.is_in_domain(number, &file, &stat)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(file)
    }

    fn open_named(&self, number: FileNo, access: Access) -> io::Result<(S::File, FileStat)> {
        let mark = self.files.get(number).filter(|mark| !mark.is_forgotten()).ok_or(io::ErrorKind::NotFound)?;
        let file = self.state.substrate().open(&mark.path, access)?;
        let stat = self.state.substrate().stat(&file)?;
        if stat.handle != mark.handle {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok((file, stat))
    }

    /// Tells whether a file belongs to the domain of its number.
    fn is_in_domain(&self, number: FileNo, file: &S::File, stat: &FileStat) -> io::Result<bool> {
        let Some(mark) = self.files.get(number) else { return Ok(false) };
        let now = self.domains.membership(&mark.path, file, stat, Some(&mark.membership))?;
        Ok(now.domain == mark.membership.domain)
    }

    /// Returns all files that are known, those that other hosts have found since the marks were read, too.
    pub(super) fn in_use(&mut self) -> Result<Vec<FileNo>, StateError> {
        self.files.load_new(self.state)?;
        let is_used = |mark: &&Mark| self.files.first_number(mark.number) == mark.number && !mark.is_forgotten();
        Ok(self.files.iter().filter(is_used).map(|mark| mark.number).collect())
    }

    /// Opens a file for reading, also where another host has found it under another name. None where it is gone.
    pub(super) fn open_anywhere(&self, number: FileNo) -> io::Result<Option<S::File>> {
        let Some(mark) = self.files.get(number) else { return Ok(None) };
        let by_handle = self.state.substrate().open_handle(&mark.handle, Access::Read);
        let opened = match by_handle {
            Err(error) if error.kind() != io::ErrorKind::NotFound => self.open(number, Access::Read),
            opened => opened,
        };
        match opened {
            Ok(file) => Ok(Some(file)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tells whether the room of a file was reserved, so that its zeros stay.
    pub(super) fn is_reserved(&self, number: FileNo) -> bool {
        self.files.get(number).is_some_and(|mark| mark.flags.is_reserved)
    }

    /// Returns since when a file is known to be gone, if it is, and a pass has taken note of that.
    pub(super) fn gone_since(&self, number: FileNo) -> Option<Timestamp> {
        self.files.get(number).and_then(Mark::gone_since)
    }

    /// Notes that only what is said about a file has changed, as [`Files::restamp`].
    pub(super) fn restamp(&mut self, number: FileNo, before: Stamp, after: Stamp) -> Result<(), StateError> {
        self.files.restamp(self.state, number, before, after)
    }

    /// Returns the path of a file, for messages.
    pub(super) fn path(&self, number: FileNo) -> std::path::PathBuf {
        self.files.get(number).map(|mark| mark.path.clone()).unwrap_or_default()
    }

    /// Takes note that a file must be read again. To be done before what was known of it goes: who dies in between has lost
    /// nothing.
    pub(super) fn forget_scan(&mut self, number: FileNo) -> Result<(), StateError> {
        self.files.forget_scan(self.state, number)
    }

    /// Tells whether what a log tells may be out of date, as [`Files::is_unnoted`].
    pub(super) fn is_unnoted(&self, log: &LogName) -> bool {
        log.kind == LogKind::Log && log.host != self.state.host() && self.files.is_unnoted(log)
    }

    /// Takes note that ranges of a file must be read again, as [`Files::read_again`].
    pub(super) fn read_again(
        &mut self,
        number: FileNo,
        ranges: &[(std::ops::Range<u64>, bool)],
        now: Timestamp,
    ) -> Result<(), StateError> {
        self.files.read_again(self.state, number, ranges, now)
    }

    /// Takes note that all files must be read again.
    pub(super) fn forget_scans(&mut self) -> Result<(), StateError> {
        self.files.forget_scans(self.state)
    }

    /// Takes note that no entry names a file any more that is gone, for a pass that began at `now`.
    pub(super) fn let_go(&mut self, number: FileNo, now: Timestamp) -> Result<(), StateError> {
        self.files.let_go(self.state, number, now)
    }

    /// Returns all files of the selection that are known, not there, and nobody else's; and those whose going is a short while ago.
    pub(super) fn gone(&mut self) -> Result<Vec<FileNo>, StateError> {
        let marks = self.files.iter().filter(|mark| !mark.is_forgotten() || mark.gone_since().is_some());
        let numbers: Vec<FileNo> = marks.map(|mark| mark.number).collect();
        let mut gone = Vec::new();
        for number in numbers {
            if self.is_selected(number)
                && !self.is_there(number)?
                && self.own(number)?
                && !self.is_there(number)?
                && !self.waits(number)?
            {
                gone.push(number);
            }
        }
        Ok(gone)
    }

    /// Tells whether a file waits to be read in another domain. Who its tenant is has to be known until then.
    fn waits(&mut self, number: FileNo) -> Result<bool, StateError> {
        let is_last = self.files.get(number).is_some_and(|mark| {
            let last = self.files.of(&mark.handle);
            last.is_some_and(|last| last.membership.domain == mark.membership.domain)
        });
        Ok(is_last && self.image(number)?.has_left_domain)
    }

    fn image(&mut self, number: FileNo) -> Result<&mut Image<S>, StateError> {
        if !self.known.contains_key(&number) {
            let (mut blocks, mut has_left_domain) = self.look(number);
            if blocks.is_none() && self.files.reload(self.state, number)?.is_some() {
                // Another host may have found it under another name since the marks were read.
                (blocks, has_left_domain) = self.look(number);
            }
            self.known.insert(number, Image { blocks, has_left_domain, owner: Owner::Unknown });
        }
        Ok(self.known.get_mut(&number).expect("it was put there"))
    }

    /// Returns how many blocks a file has, none where it is gone, opted out or of another domain; and whether it is there, in
    /// another domain. One that cannot be looked at is taken for there: what that costs is told when it is to be read.
    fn look(&self, number: FileNo) -> (Option<u64>, bool) {
        let there = self.open_named(number, Access::Read).and_then(|(file, stat)| {
            if !self.is_in_domain(number, &file, &stat)? {
                return Ok((None, true));
            }
            let opted_out = self.opt_outs.of(&self.path(number))?.is_some();
            Ok(((!opted_out).then_some(stat.length / BLOCK_BYTES_U64), false))
        });
        there.unwrap_or_else(|error| ((!is_gone(&error)).then_some(u64::MAX), false))
    }
}
