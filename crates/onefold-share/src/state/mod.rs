//! The state folder: what hosts know of each other, in files beside the images.
//!
//! Nothing here is needed to keep data right, and all of it may be deleted at any time, but for intents and the arena (OCFS2):
//! while an image has holes, they are the last copy of what was there. Names that appear are whole: a file
//! is written under a name of its host's own and then linked or renamed to the one that counts. Locks are taken on files
//! that are never replaced: who held the lock of a replaced file would hold nothing.

pub mod arena;
pub mod ask;
pub mod backlog;
pub mod batches;
mod claims;
pub mod cursor;
mod domains;
pub mod files;
mod folder;
pub mod hosts;
pub mod intents;
pub mod locks;
pub mod logs;
pub mod look;
pub mod maps;
pub(crate) mod merged_logs;

pub mod shards;
mod tag;
mod tree;
pub mod trust;
pub mod watches;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onefold_block::{Clock, FingerprintKey, Random, Show, Timestamp};
use onefold_substrate::{Access, Listed, ListedKind, Substrate};

pub use self::folder::StateFolder;
use self::hosts::{HostNo, Presence};
use self::intents::OpenIntent;
use crate::domain::Domain;
use crate::domain::settings::{self, SettingsError};
use crate::format::FormatError;
use crate::format::identity::Identity;
use crate::pace::Stopped;

use self::look::Useless;
use self::trust::{Distrust, WritableRoot};

const ARENA: &str = "arena";
pub(crate) const IDENTITY: &str = "identity";
const SCRATCH: &str = "scratch";
const SUBFOLDERS: [&str; 11] = [
    ARENA,
    batches::FOLDER,
    claims::FOLDER,
    "files",
    "locks",
    "logs",
    maps::FOLDER,
    "requests",
    SCRATCH,
    "shards",
    watches::FOLDER,
];

/// Returns whether a name is one that things in a state folder have. What is called otherwise is somebody else's.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    let others = [IDENTITY, cursor::FILE, tree::TREE, intents::FOLDER, tag::TAG, settings::FILE];
    SUBFOLDERS.iter().chain(&others).any(|known| name == known.as_bytes())
}

/// Times that something is tried which others may thwart that come at the same moment.
const TRIES: usize = 10;
/// What is waited in between, where it is others who have to come to an end: they rename or write a file.
const TRY_PAUSE: Duration = Duration::from_millis(5);

/// The state folder, as a host has it open.
pub struct State<'a, S: Substrate> {
    substrate: &'a S,
    folder: StateFolder,
    /// For waiting.
    clock: &'a dyn Clock,
    identity: Identity,
    host: HostNo,
    next_name: AtomicU64,
    presence: Presence<S>,
    /// The order of the last log that was written through this.
    last_log: AtomicU64,
    kept: locks::Kept<S>,
    /// Whether a part of the index was dropped since somebody asked.
    has_lost_entries: AtomicBool,
    notices: &'a dyn Fn(Notice),
    /// Whether something of an earlier version was dropped: one notice is enough.
    has_dropped_older: AtomicBool,
    /// Only where nothing is to be changed: what was of no use, and is taken for gone.
    useless: Option<Useless>,
    /// Folders of which a notice said that others had rights to something in them.
    reported: parking_lot::Mutex<BTreeSet<PathBuf>>,
}

/// A file that has no name yet that counts.
pub(crate) struct Scratch<S: Substrate> {
    path: PathBuf,
    /// Kept until it has one, or is gone.
    _lock: S::File,
}

/// A file that was made just now, and that nobody else touches as long as its lock is there.
struct Locked<S: Substrate> {
    file: S::File,
    path: PathBuf,
    /// Another opening of the file.
    lock: S::File,
}

/// Something that a user may want to know and nothing depends on.
#[derive(Debug)]
pub enum Notice {
    /// A file of the state folder was of no use and is gone.
    Dropped {
        /// Its path.
        path: PathBuf,
        /// What was wrong with it.
        why: FormatError,
    },
    /// What an earlier version of this program left is of no use any more; images are read anew, once.
    Older {
        /// The first such file.
        path: PathBuf,
        /// The versions.
        why: FormatError,
    },
    /// A file of the state folder is of no use; the next run drops it.
    Useless {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        why: FormatError,
    },
    /// A file of the state folder is not used, and left alone.
    LeftAlone {
        /// Its path.
        path: PathBuf,
        /// Why.
        why: FormatError,
    },
    /// The identity is lost while something is declared: no run goes on until a person has decided.
    IdentityLost(StateError),
    /// Others than the owner had rights to a file or folder of the state folder, and perhaps to more in its folder. They have
    /// them no longer.
    Tightened {
        /// Its path.
        path: PathBuf,
        /// Whether it is an arena file: nothing more is put into those that others may have open.
        is_retired: bool,
    },
    /// Others than the owner have rights to a file or folder of the state folder. The next run takes them away.
    Exposed {
        /// Its path.
        path: PathBuf,
    },
    /// Another user can put an earlier state folder in place of the present one.
    WritableRoot {
        /// Who.
        root: WritableRoot,
    },
    /// Ranges of an image cannot be read. All else of it is; these are tried again after pauses.
    Failing {
        /// Its path.
        path: PathBuf,
        /// The first such range, in bytes.
        first: std::ops::Range<u64>,
        /// Bytes of all of them.
        bytes: u64,
        /// Why.
        why: io::Error,
    },
    /// An image cannot be read, or not as a whole. The others go on.
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
}

impl Notice {
    /// Returns whether a run that gives it has left something undone, or has lost something that it finds again.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self {
            Notice::Dropped { .. }
            | Notice::Useless { .. }
            | Notice::LeftAlone { .. }
            | Notice::IdentityLost(_)
            | Notice::Failing { .. }
            | Notice::Unreadable { .. } => true,
            Notice::Older { .. } | Notice::Tightened { .. } | Notice::Exposed { .. } | Notice::WritableRoot { .. } => {
                false
            }
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Dropped { path, why } => write!(f, "`{}` is dropped: {why}", path.shown()),
            Notice::Older { path, why } => {
                write!(f, "all images are read anew, once: `{}` is of an earlier version ({why})", path.shown())
            }
            Notice::Useless { path, why } => {
                write!(f, "`{}` is of no use, and dropped by the next run: {why}", path.shown())
            }
            Notice::LeftAlone { path, why } => write!(f, "`{}` is not used: {why}", path.shown()),
            Notice::IdentityLost(why) => why.fmt(f),
            Notice::Tightened { path, is_retired } => {
                let retired = if *is_retired { "; nothing more is put into such files" } else { "" };
                write!(
                    f,
                    "others than its owner had rights to `{}`, and perhaps to more in its folder: these were taken \
                     away{retired}",
                    path.shown()
                )
            }
            Notice::Exposed { path } => write!(
                f,
                "others than its owner have rights to `{}`, and perhaps to more in its folder: the next run takes them away",
                path.shown()
            ),
            Notice::WritableRoot { root } => write!(
                f,
                "{root}: such users can take the state folder away and put an earlier one back, which costs savings; let root \
                 own that folder and nobody else write into it"
            ),
            Notice::Failing { path, first, bytes, why } => write!(
                f,
                "`{}`: {bytes} bytes cannot be read, the first at {}: {why}; they are tried again after a while",
                path.shown(),
                first.start
            ),
            Notice::Unreadable { path, why } => write!(f, "`{}` cannot be read: {why}", path.shown()),
        }
    }
}

/// Why the state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be made, read or written.
    #[error("`{}`: {source}", path.shown())]
    Io {
        /// What failed.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or folder of it is not one to rely on. Nothing of it was used.
    #[error("`{}` is not used: {why}", path.shown())]
    Untrusted {
        /// Its path.
        path: PathBuf,
        /// Why.
        why: Distrust,
    },
    /// It was made by a later version of this program.
    #[error("`{}`: {why}", path.shown())]
    Newer {
        /// Its path.
        path: PathBuf,
        /// The versions.
        why: FormatError,
    },
    /// A part of it turned out to be damaged while it was read.
    #[error("`{}`: {why}", path.shown())]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        why: FormatError,
    },
    /// Its identity is gone or damaged, while images may have holes that can be filled from it.
    #[error("`{}` is {}, and images may have holes that can be filled only from what is declared here: {}",
        path.shown(), if *.is_damaged { "damaged" } else { "missing" }, named(.intents))]
    IdentityLost {
        /// Its path.
        path: PathBuf,
        /// Whether the file is there, and cannot be read.
        is_damaged: bool,
        /// The files in which something is declared.
        intents: Vec<OpenIntent>,
    },
    /// An administrator's settings cannot be used.
    #[error("`{}` is not used: {why}", path.shown())]
    Settings {
        /// Their path.
        path: PathBuf,
        /// Why.
        why: SettingsError,
    },
    /// The user wanted the work to stop.
    #[error("interrupted")]
    Interrupted,
    /// Other hosts make and remove it all the time.
    #[error("the state folder changes too fast to be opened")]
    Restless,
}

/// Most files that a message names.
const NAMED_MAX: usize = 8;

/// Names files in which something is declared, with their images.
fn named(intents: &[OpenIntent]) -> String {
    let named = intents.iter().take(NAMED_MAX).map(|intent| match &intent.image {
        Some(image) => format!("`{}` (image `{}`)", intent.path.shown(), image.shown()),
        None => format!("`{}` (cannot be read)", intent.path.shown()),
    });
    let mut text = named.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = intents.len().checked_sub(NAMED_MAX) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

impl From<Stopped> for StateError {
    fn from(_: Stopped) -> StateError {
        StateError::Interrupted
    }
}

impl StateError {
    /// Returns what turns an error into one that names the file. `Interrupted` is what work that was told to stop ends with;
    /// substrates never give it.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> StateError + use<'_> {
        |source| match (Distrust::of(&source), source.kind()) {
            (Some(why), _) => StateError::Untrusted { path: path.to_owned(), why },
            (None, io::ErrorKind::Interrupted) => StateError::Interrupted,
            (None, _) => StateError::Io { path: path.to_owned(), source },
        }
    }
}

impl<'a, S: Substrate> State<'a, S> {
    /// Opens the state folder of the substrate's user, and makes it where there is none.
    ///
    /// # Errors
    /// As [`StateError`] says.
    pub fn open(
        substrate: &'a S,
        clock: &'a dyn Clock,
        random: &dyn Random,
        notices: &'a dyn Fn(Notice),
    ) -> Result<State<'a, S>, StateError> {
        let mut state = Self::unidentified(substrate, clock, random, notices)?;
        state.report_root()?;
        state.make_folders()?;
        for _ in 0..TRIES {
            if let Some(identity) = state.read_identity()? {
                state.identity = identity;
                state.sweep_scratch()?;
                state.write_tag()?;
                return Ok(state);
            }
            state.make_identity(random)?;
        }
        Err(StateError::Restless)
    }

    /// Opens the state folder to mend what is declared in it, also where its identity is lost. None where there is no state
    /// folder, or nothing is declared in one without an identity.
    ///
    /// Files of a state without an identity are foreign to it: only [`mend`](crate::mend) has a use for it.
    ///
    /// # Errors
    /// As [`StateError`] says, but for `IdentityLost`.
    pub fn open_to_mend(
        substrate: &'a S,
        clock: &'a dyn Clock,
        random: &dyn Random,
        notices: &'a dyn Fn(Notice),
    ) -> Result<Option<State<'a, S>>, StateError> {
        let state = Self::unidentified(substrate, clock, random, notices)?;
        if !state.keep_folders()? {
            return Ok(None);
        }
        match state.read_identity() {
            Ok(None) if state.open_intents()?.is_empty() => return Ok(None),
            Ok(None) | Err(StateError::IdentityLost { .. }) => {}
            identity => return identity.and_then(|_| Self::open(substrate, clock, random, notices)).map(Some),
        }
        state.report_root()?;
        state.make_folders()?;
        Ok(Some(state))
    }

    /// Returns the state folder without its identity.
    fn unidentified(
        substrate: &'a S,
        clock: &'a dyn Clock,
        random: &dyn Random,
        notices: &'a dyn Fn(Notice),
    ) -> Result<State<'a, S>, StateError> {
        let folder = StateFolder::of(substrate);
        let mut host = [0; 8];
        random.fill(&mut host).map_err(StateError::at(folder.path()))?;
        let identity = Identity { uuid: [0; 16], key: [0; FingerprintKey::BYTES] };
        let (host, next_name) = (HostNo(u64::from_le_bytes(host)), AtomicU64::new(0));
        Ok(State {
            substrate,
            folder,
            clock,
            identity,
            host,
            next_name,
            presence: Presence::new(None),
            last_log: AtomicU64::new(0),
            kept: locks::Kept::default(),
            has_lost_entries: AtomicBool::new(false),
            notices,
            has_dropped_older: AtomicBool::new(false),
            useless: None,
            reported: parking_lot::Mutex::default(),
        })
    }

    /// Makes the folders that are missing, and keeps all of them open.
    fn make_folders(&self) -> Result<(), StateError> {
        for folder in self.folders() {
            match self.substrate.create_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(StateError::at(&folder)(error));
                }
                _ => {}
            }
            self.keep_own(&folder)?;
        }
        Ok(())
    }

    /// Keeps all folders open that there are. Returns whether there is a state folder.
    fn keep_folders(&self) -> Result<bool, StateError> {
        for (nth, folder) in self.folders().enumerate() {
            match self.keep_own(&folder) {
                Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    if nth == 0 {
                        return Ok(false);
                    }
                }
                kept => kept?,
            }
        }
        Ok(true)
    }

    /// Returns the paths of all folders: first the state folder itself.
    fn folders(&self) -> impl Iterator<Item = PathBuf> + use<'_, 'a, S> {
        let intents = self.substrate.abilities().shares_in_two_steps.then_some(intents::FOLDER);
        let below = SUBFOLDERS.into_iter().chain(intents).map(|name| self.folder.join(name));
        std::iter::once(self.folder.path().to_owned()).chain(below)
    }

    /// Returns the name of the folder.
    pub fn folder(&self) -> &StateFolder {
        &self.folder
    }

    /// Returns the file system.
    pub fn substrate(&self) -> &'a S {
        self.substrate
    }

    /// Returns the clock that is waited by.
    pub(crate) fn clock(&self) -> &'a dyn Clock {
        self.clock
    }

    /// Returns who the folder is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the key that fingerprints of a domain's files are made with.
    pub fn key(&self, domain: &Domain) -> FingerprintKey {
        domain.key(&self.identity.key)
    }

    /// Tells of something.
    pub fn notice(&self, notice: Notice) {
        (self.notices)(notice);
    }

    /// Returns what tells this host from all others, this time.
    pub(crate) fn host(&self) -> HostNo {
        self.host
    }

    /// Returns the next number for a name of this host's.
    pub(crate) fn next_name(&self) -> u64 {
        self.next_name.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a path in one of the folders.
    pub(crate) fn path(&self, folder: &str, name: impl AsRef<Path>) -> PathBuf {
        [self.folder.path(), Path::new(folder), name.as_ref()].iter().collect()
    }

    /// Writes a file under a name that nobody else uses.
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

    /// Gives a file its name, if nobody has it. Returns whether nobody had it.
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
        // What cannot be removed now, the next host sweeps.
        let _ = self.substrate.remove(&scratch.path);
    }

    /// Gives a file its name, in place of what has it.
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

    /// Removes a file of the state folder; one that is gone already is none.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), StateError> {
        match self.substrate.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StateError::at(path)(error)),
            _ => Ok(()),
        }
    }

    /// Deals with a file that could not be used: what is worthless goes, what a later version wrote stays.
    ///
    /// # Errors
    /// `Untrusted` for a file that was not used for that; those of the device.
    pub(crate) fn refuse(&self, path: PathBuf, why: FormatError) -> Result<(), StateError> {
        if let FormatError::Io(error) = &why
            && let Some(why) = Distrust::of(error)
        {
            return Err(StateError::Untrusted { path, why });
        }
        if matches!(why, FormatError::Older { .. }) {
            match &self.useless {
                Some(useless) => useless.insert(&path),
                None => self.remove(&path)?,
            }
            if !self.has_dropped_older.swap(true, Ordering::Relaxed) {
                self.notice(Notice::Older { path, why });
            }
        } else if let Some(useless) = &self.useless {
            useless.insert(&path);
            self.notice(if why.is_worthless() {
                Notice::Useless { path, why }
            } else {
                Notice::LeftAlone { path, why }
            });
        } else if why.is_worthless() {
            self.remove(&path)?;
            self.notice(Notice::Dropped { path, why });
        } else {
            self.notice(Notice::LeftAlone { path, why });
        }
        Ok(())
    }

    /// Returns the names of the files in a folder of the state folder.
    pub(crate) fn names(&self, folder: &str) -> Result<Vec<String>, StateError> {
        let path = self.path(folder, "");
        let listed = match self.substrate.list(&path) {
            // Whoever only looks does not make what is missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.useless.is_some() => Vec::new(),
            listed => listed.map_err(StateError::at(&path))?,
        };
        let is_taken = |listed: &Listed| {
            let useless = self.useless.as_ref();
            listed.kind == ListedKind::File && useless.is_none_or(|useless| !useless.contains(&path.join(&listed.name)))
        };
        let files = listed.into_iter().filter(is_taken);
        // A name that is no text is none of ours.
        Ok(files.filter_map(|listed| listed.name.into_os_string().into_string().ok()).collect())
    }

    /// Tells whether the state folder is still the one that was opened: anybody may have deleted it, and others have made a
    /// new one.
    ///
    /// # Errors
    /// Those of the device.
    pub fn is_current(&self) -> Result<bool, StateError> {
        for folder in self.folders() {
            if !self.substrate.is_folder_kept(&folder).map_err(StateError::at(&folder))? {
                return Ok(false);
            }
        }
        Ok(self.read_identity()?.is_some_and(|identity| identity == self.identity))
    }

    fn read_identity(&self) -> Result<Option<Identity>, StateError> {
        let path = self.path("", IDENTITY);
        let file = match self.open_own(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::at(&path)(error)),
        };
        match Identity::read(self.substrate, file) {
            Ok(identity) => Ok(Some(identity)),
            Err(FormatError::Io(source)) => Err(StateError::Io { path, source }),
            Err(why @ FormatError::Newer { .. }) => Err(StateError::Newer { path, why }),
            Err(why) => {
                self.check_nothing_declared(true)?;
                // All that was made with it is foreign from now on, and found again.
                self.refuse(path, why)?;
                Ok(None)
            }
        }
    }

    /// Refuses to go on without the identity while something is declared.
    fn check_nothing_declared(&self, is_damaged: bool) -> Result<(), StateError> {
        let intents = self.open_intents()?;
        if intents.is_empty() {
            Ok(())
        } else {
            Err(StateError::IdentityLost { path: self.path("", IDENTITY), is_damaged, intents })
        }
    }

    fn make_identity(&self, random: &dyn Random) -> Result<(), StateError> {
        self.check_nothing_declared(false)?;
        let path = self.path("", IDENTITY);
        let mut identity = Identity { uuid: [0; 16], key: [0; FingerprintKey::BYTES] };
        random.fill(&mut identity.uuid).map_err(StateError::at(&path))?;
        random.fill(&mut identity.key).map_err(StateError::at(&path))?;
        let scratch = self.write_scratch(|file| identity.write(self.substrate, file))?;
        // Whoever was first has made it; it is read next.
        self.publish(&scratch, &path)?;
        Ok(())
    }

    /// Waits for a moment, for others to come to an end.
    fn pause(&self) {
        self.clock.sleep(TRY_PAUSE);
    }

    fn new_scratch(&self) -> Result<(S::File, Scratch<S>), StateError> {
        let Locked { file, path, lock } = self.new_locked(SCRATCH)?;
        Ok((file, Scratch { path, _lock: lock }))
    }

    /// Creates an empty file under a name of this host's, `HOST.NUMBER`, and locks it: who sweeps sees that somebody has it.
    fn new_locked(&self, folder: &str) -> Result<Locked<S>, StateError> {
        for _ in 0..TRIES {
            let path = self.path(folder, format!("{}.{}", self.host, self.next_name()));
            let file = self.substrate.create(&path).map_err(StateError::at(&path))?;
            // Before it has its lock, somebody may take it for left over. Then another one is made.
            let Some(lock) = self.open_left(&path)? else { continue };
            if self.substrate.try_lock(&lock).map_err(StateError::at(&path))?
                && self.open_own(&path, Access::Read).is_ok()
            {
                return Ok(Locked { file, path, lock });
            }
        }
        Err(StateError::Restless)
    }

    /// Removes what hosts that died were writing.
    fn sweep_scratch(&self) -> Result<(), StateError> {
        for name in self.names(SCRATCH)?.into_iter().filter(|name| !name.ends_with(hosts::PRESENCE)) {
            let path = self.path(SCRATCH, name);
            let Some(file) = self.open_left(&path)? else { continue };
            if self.substrate.try_lock(&file).map_err(StateError::at(&path))? {
                self.remove(&path)?;
            }
        }
        Ok(())
    }
}

impl<S: Substrate> State<'_, S> {
    /// Returns what the file system takes for now: what it would note as the time of a change.
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

    /// Returns a file that is one hole of `length` bytes, to share zeros with, and perhaps a block behind it. It has no name.
    pub(crate) fn zeros(&self, length: u64) -> Result<S::File, StateError> {
        let (file, scratch) = self.new_scratch()?;
        let made = self.substrate.set_len(&file, length).map_err(StateError::at(&scratch.path));
        let made = made.and_then(|()| self.join_tree(&file, length));
        self.remove(&scratch.path)?;
        made.map(|()| file)
    }
}
