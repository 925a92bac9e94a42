//! The image files of a pass: which are there, and which may be worked on.

mod notes;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use onefold_block::{BLOCK_BYTES_U64, FingerprintKey, Timestamp};
use onefold_substrate::{Access, FileHandle, FileStat, Substrate};

use crate::domain::{Domain, DomainRules};
use crate::format::log::LogKind;
use crate::format::mark::Mark;
use crate::format::{FileBlock, FileNo};
use crate::opt_out::OptOuts;
use crate::pass::PassOptions;
use crate::selection::Selection;
use crate::state::files::{Marks, StampChange};
use crate::state::locks::{LockGuard, Subject};
use crate::state::logs::LogName;
use crate::state::{State, StateError};
use onefold_substrate::is_gone;

/// All files that a pass has come across.
///
/// Claims settle which host works on a file's logs ([`State::claim`]). The lock of an image is taken for a moment when
/// something has to be decided about it. It is held only while the image's blocks are put into slots or share with
/// them.
pub(super) struct Images<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    files: &'a mut Marks,
    known: BTreeMap<FileNo, Image>,
    selection: Selection<'a>,
    /// Whether the pass changes nothing.
    is_dry_run: bool,
    /// Which files are selected. Cached, because there may be as many patterns as entries.
    selected: RefCell<BTreeMap<FileNo, bool>>,
    opt_outs: OptOuts<'b, S>,
    domains: DomainRules<'b, S>,
    /// Files whose locks this pass has.
    held: HeldFiles,
    /// Files whose times this pass has set without a change of their content.
    restamped: BTreeMap<FileNo, StampChange>,
}

type HeldFiles = Rc<RefCell<BTreeSet<FileHandle>>>;

/// An image file.
struct Image {
    /// Number of its whole blocks. `None` if it is gone, another file has its name, it is opted out, or it belongs to
    /// another domain than its number.
    blocks: Option<u64>,
    /// Whether it exists, in another domain than its number.
    has_left_domain: bool,
    owner: Owner,
}

/// The owner of a file when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Not asked for yet.
    Unknown,
    /// No other host: this host may decide about it.
    Us,
    /// Another host, or a door.
    Others,
}

/// Result of taking a file to share in it.
pub(super) enum Hold<S: Substrate> {
    /// This host has it as long as this is kept. There is no lock if the file no longer exists.
    Ours { _lock: Option<ImageLock<S>> },
    /// Another host or a door has it, or it is outside the selection.
    Others,
}

/// The lock of an image, held as long as this is kept.
pub(super) struct ImageLock<S: Substrate> {
    handle: FileHandle,
    held: HeldFiles,
    _lock: LockGuard<S>,
}

impl<S: Substrate> Drop for ImageLock<S> {
    fn drop(&mut self) {
        self.held.borrow_mut().remove(&self.handle);
    }
}

impl<'a, 'b, S: Substrate> Images<'a, 'b, S> {
    pub(super) fn new(
        state: &'a State<'b, S>,
        files: &'a mut Marks,
        options: &PassOptions<'a>,
    ) -> Result<Images<'a, 'b, S>, StateError> {
        Ok(Images {
            state,
            files,
            known: BTreeMap::new(),
            selection: options.selection,
            is_dry_run: options.is_dry_run,
            selected: RefCell::default(),
            opt_outs: OptOuts::new(state.substrate()),
            domains: DomainRules::of(state)?,
            held: HeldFiles::default(),
            restamped: BTreeMap::new(),
        })
    }

    /// Returns the key with which blocks of a file are digested. The key of an unknown file matches nothing.
    pub(super) fn key(&self, number: FileNo) -> FingerprintKey {
        self.state.key(self.files.domain(number).unwrap_or(&Domain::Owner(u32::MAX)))
    }

    /// Returns the keys of the domains of all known files.
    pub(super) fn keys(&self) -> Vec<FingerprintKey> {
        let domains: BTreeSet<&Domain> = self.files.iter().map(|mark| &mark.membership.domain).collect();
        domains.into_iter().map(|domain| self.state.key(domain)).collect()
    }

    /// Returns whether two files belong to one domain.
    pub(super) fn are_of_one_domain(&self, one: FileNo, other: FileNo) -> bool {
        self.files.domain(one) == self.files.domain(other)
    }

    /// Returns the number of a file, if it is known.
    pub(super) fn number_of(&self, handle: &FileHandle) -> Option<FileNo> {
        self.files.of(handle).map(|mark| mark.number)
    }

    /// Does the same as [`Images::number_of`], but also if another host has given the number since the marks were read.
    pub(super) fn latest_number_of(&mut self, handle: &FileHandle) -> Result<Option<FileNo>, StateError> {
        if self.number_of(handle).is_none() {
            self.files.load_new(self.state)?;
        }
        Ok(self.number_of(handle))
    }

    /// Returns whether a file is there.
    pub(super) fn is_there(&mut self, number: FileNo) -> Result<bool, StateError> {
        Ok(self.image(number)?.blocks.is_some())
    }

    /// Returns whether this pass may read and change a file. A file without a name is not selected: no run would ever
    /// come to it.
    pub(super) fn is_selected(&self, number: FileNo) -> bool {
        let known = self.selected.borrow().get(&number).copied();
        known.unwrap_or_else(|| {
            let is_selected = self.files.is_selected(number, &self.selection);
            self.selected.borrow_mut().insert(number, is_selected);
            is_selected
        })
    }

    /// Returns whether a file is there, and this pass may read it.
    pub(super) fn is_admitted(&mut self, number: FileNo) -> Result<bool, StateError> {
        // The look-up may find it under another name.
        Ok(self.is_selected(number) && self.is_there(number)? && self.is_selected(number))
    }

    /// Drops the cached opt-outs of folders, so that they are asked for anew.
    pub(super) fn forget_opt_outs(&self) {
        self.opt_outs.forget();
    }

    /// Drops what is known of a file, so that it is looked at anew. Its owner stays as it was found.
    pub(super) fn look_again(&mut self, number: FileNo) {
        // Its mark may have been read again since, and name another path.
        self.selected.get_mut().remove(&number);
        let (blocks, has_left_domain) = self.look(number);
        if let Some(image) = self.known.get_mut(&number) {
            (image.blocks, image.has_left_domain) = (blocks, has_left_domain);
        }
    }

    /// Returns whether a block may be within a file that is there. For a file that another host has, returns true: that
    /// host may just have seen changes that are not known here yet, and only it can tell. A file outside the selection
    /// is not looked at.
    pub(super) fn may_have(&mut self, number: FileNo, block: FileBlock) -> Result<bool, StateError> {
        if !self.is_selected(number) {
            return Ok(true);
        }
        if self.image(number)?.blocks.is_some_and(|blocks| block.0 < blocks) {
            return Ok(true);
        }
        // If it has just become this host's, it is looked at anew.
        if !self.own(number)? {
            return Ok(true);
        }
        let blocks = self.image(number)?.blocks;
        // If it comes back, it is read: its entries are dropped.
        if blocks.is_none() && !self.is_dry_run && !self.forget_scan_once(number)? {
            return Ok(true);
        }
        Ok(blocks.is_some_and(|blocks| block.0 < blocks))
    }

    /// Returns the number that stands for a file with several numbers.
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

    /// Returns whether this host may decide about a file: no other host had it when it was first asked for. Its name is
    /// up to date then. A file outside the selection is never this host's.
    pub(super) fn own(&mut self, number: FileNo) -> Result<bool, StateError> {
        let number = self.first_number(number)?;
        if !self.is_selected(number) {
            return Ok(false);
        }
        if matches!(self.image(number)?.owner, Owner::Unknown) {
            let owner = match self.hold(number)? {
                Hold::Ours { .. } => Owner::Us,
                Hold::Others => Owner::Others,
            };
            self.image(number)?.owner = owner;
        }
        // It may have been found under another name since.
        Ok(matches!(self.image(number)?.owner, Owner::Us) && self.is_selected(number))
    }

    /// Takes a file to share in it, if no other host has it. Its name is up to date then.
    pub(super) fn hold(&mut self, number: FileNo) -> Result<Hold<S>, StateError> {
        let number = self.first_number(number)?;
        if !self.is_selected(number) {
            return Ok(Hold::Others);
        }
        let Some(mark) = self.files.get(number) else { return Ok(Hold::Ours { _lock: None }) };
        let handle = mark.handle.clone();
        let Some(lock) = self.lock(handle.clone())? else { return Ok(Hold::Others) };
        // The host that had it before may have found it under another name, or longer.
        self.files.reload(self.state, number)?;
        self.known.remove(&number);
        self.selected.get_mut().clear();
        // If the number stands for another file by now, this lock is not that file's.
        let is_another = self.files.get(number).is_some_and(|mark| mark.handle != handle);
        if is_another || !self.is_selected(number) {
            return Ok(Hold::Others);
        }
        Ok(Hold::Ours { _lock: Some(lock) })
    }

    fn lock(&self, handle: FileHandle) -> Result<Option<ImageLock<S>>, StateError> {
        let Some(lock) = self.state.try_lock(&Subject::File(handle.clone()))? else { return Ok(None) };
        self.held.borrow_mut().insert(handle.clone());
        Ok(Some(ImageLock { handle, held: Rc::clone(&self.held), _lock: lock }))
    }

    /// Opens a file by its name. Fails unless the name still leads to it, and the file still belongs to the domain of
    /// its number: nothing is shared out of one domain into another.
    pub(super) fn open(&self, number: FileNo, access: Access) -> io::Result<S::File> {
        let (file, stat) = self.open_named(number, access)?;
        if !self.is_in_domain(number, &file, &stat)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(file)
    }

    /// Returns the mark that counts for a file. Its number may be the second one of the file, with another name, but
    /// only the name of the first one is checked against the selection.
    fn mark(&self, number: FileNo) -> Option<&Mark> {
        self.files.get(self.files.first_number(number))
    }

    fn open_named(&self, number: FileNo, access: Access) -> io::Result<(S::File, FileStat)> {
        let mark = self.mark(number).filter(|mark| !mark.is_forgotten()).ok_or(io::ErrorKind::NotFound)?;
        let file = self.state.substrate().open(&mark.path, access)?;
        let stat = self.state.substrate().stat(&file)?;
        if stat.handle != mark.handle {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok((file, stat))
    }

    /// Returns whether a file belongs to the domain of its number.
    fn is_in_domain(&self, number: FileNo, file: &S::File, stat: &FileStat) -> io::Result<bool> {
        let Some(mark) = self.mark(number) else { return Ok(false) };
        let now = self.domains.membership(&mark.path, file, stat, Some(&mark.membership))?;
        Ok(now.domain == mark.membership.domain)
    }

    /// Returns all known files, including those that other hosts have found since the marks were read.
    pub(super) fn in_use(&mut self) -> Result<Vec<FileNo>, StateError> {
        self.files.load_new(self.state)?;
        let is_used = |mark: &&Mark| self.files.first_number(mark.number) == mark.number && !mark.is_forgotten();
        Ok(self.files.iter().filter(is_used).map(|mark| mark.number).collect())
    }

    /// Opens a file for reading, even if another host has found it under another name. `None` if it is gone.
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

    /// Returns whether the space of a file was reserved, so that its zeros stay.
    pub(super) fn is_reserved(&self, number: FileNo) -> bool {
        self.files.get(number).is_some_and(|mark| mark.flags.is_reserved)
    }

    /// Returns since when a file is known to be gone, if a pass has noted that.
    pub(super) fn gone_since(&self, number: FileNo) -> Option<Timestamp> {
        self.files.get(number).and_then(Mark::gone_since)
    }

    /// Returns the path of a file, for messages.
    pub(super) fn path(&self, number: FileNo) -> std::path::PathBuf {
        self.mark(number).map(|mark| mark.path.clone()).unwrap_or_default()
    }

    /// Returns whether the content of a log may be out of date, as [`Marks::is_unnoted`].
    pub(super) fn is_unnoted(&self, log: &LogName) -> bool {
        log.kind == LogKind::Log && log.host != self.state.host() && self.files.is_unnoted(log)
    }

    /// Returns all known files of the selection that are gone, and that no other host has, and those that went a short
    /// while ago. A file that comes back is read again, because its entries are dropped.
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
                && (self.is_dry_run || self.forget_scan_once(number)?)
            {
                gone.push(number);
            }
        }
        Ok(gone)
    }

    /// Returns whether a file waits to be read in another domain. Its tenant has to be known until then.
    fn waits(&mut self, number: FileNo) -> Result<bool, StateError> {
        let is_last = self.files.get(number).is_some_and(|mark| {
            let last = self.files.of(&mark.handle);
            last.is_some_and(|last| last.membership.domain == mark.membership.domain)
        });
        Ok(is_last && self.image(number)?.has_left_domain)
    }

    fn image(&mut self, number: FileNo) -> Result<&mut Image, StateError> {
        if !self.known.contains_key(&number) {
            let (mut blocks, mut has_left_domain) = self.look(number);
            let first = self.files.first_number(number);
            if blocks.is_none() && (self.files.reload(self.state, first)?.is_some() || first != number) {
                // Another host may have found it under another name since the marks were read.
                self.selected.get_mut().remove(&number);
                (blocks, has_left_domain) = self.look(number);
            }
            self.known.insert(number, Image { blocks, has_left_domain, owner: Owner::Unknown });
        }
        Ok(self.known.get_mut(&number).expect("it was put there"))
    }

    /// Returns how many blocks a file has, and whether it exists in another domain. The number is `None` if the file is
    /// gone, opted out or of another domain. A file that cannot be looked at counts as there: the failure is reported
    /// when the file is to be read.
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
