//! The state folder: the shared knowledge of hosts, in files beside the images.
//!
//! Nothing here is needed to keep data right, and all of it may be deleted at any time, except intents and the arena
//! (OCFS2): while an image has holes, they are the last copy of its blocks. A name that appears is that of a complete
//! file: a host writes a file under a name of its own, and then links or renames it to its final name. Locks are taken
//! on files that are never replaced: the lock of a replaced file would protect nothing.

pub(crate) mod arena;
pub mod ask;
pub(crate) mod backlog;
pub(crate) mod batches;
mod claims;
mod cursor;
mod domains;
mod error;
pub mod files;
mod files_run;
mod folder;
mod guests;
pub(crate) mod hosts;
mod identity;
pub(crate) mod intents;
pub mod locks;
pub mod logs;
mod look;
pub(crate) mod maps;
pub(crate) mod merged_logs;
mod notice;
mod scratch;
pub mod shards;
mod tag;
mod tree;
pub mod trust;
pub mod watches;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onefold_block::{Clock, FingerprintKey, Random};
use onefold_substrate::{FolderEntry, ListedKind, Substrate};

pub use self::error::StateError;
pub use self::folder::StateFolder;
use self::hosts::{HostNo, Presence};
use self::look::UselessFiles;
pub use self::notice::Notice;
use self::scratch::LockedFile;
pub(crate) use self::scratch::Scratch;
use self::trust::Distrust;
use crate::domain::Domain;
use crate::domain::settings;
use crate::format::FormatError;
use crate::format::identity::Identity;
use crate::policy::SharePolicy;

const ARENA: &str = "arena";
pub(crate) const IDENTITY: &str = "identity";
const SCRATCH: &str = "scratch";
const SUBFOLDERS: [&str; 12] = [
    ARENA,
    batches::FOLDER,
    claims::FOLDER,
    "files",
    guests::FOLDER,
    "locks",
    "logs",
    maps::FOLDER,
    "requests",
    SCRATCH,
    "shards",
    watches::FOLDER,
];

/// Returns whether a name has a form that names in a state folder have. Other names are foreign.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    let others = [IDENTITY, cursor::FILE, tree::TREE, intents::FOLDER, tag::TAG, settings::FILE];
    SUBFOLDERS.iter().chain(&others).any(|known| name == known.as_bytes())
}

/// Maximum number of attempts at an operation that a simultaneous one of another host may thwart.
const TRIES: usize = 10;
/// Pause between attempts, if another host has to finish first: it renames or writes a file.
const TRY_PAUSE: Duration = Duration::from_millis(5);

/// An open state folder of a host.
pub struct State<'a, S: Substrate> {
    substrate: &'a S,
    policy: SharePolicy,
    folder: StateFolder,
    /// Clock for waiting.
    clock: &'a dyn Clock,
    identity: Identity,
    host: HostNo,
    next_name: AtomicU64,
    presence: Presence<S>,
    /// The order of the last log that was written through this.
    last_log: AtomicU64,
    kept: locks::KeptLocks<S>,
    /// Whether a part of the index was dropped since the last query.
    has_lost_entries: AtomicBool,
    notices: &'a dyn Fn(Notice),
    /// Whether a file of an earlier version was dropped: one notice is enough.
    has_dropped_older: AtomicBool,
    /// Set if nothing is to be changed: useless files, which count as gone.
    useless: Option<UselessFiles>,
    /// Folders for which a notice has reported that others had rights to something in them.
    reported: parking_lot::Mutex<BTreeSet<PathBuf>>,
    map_lengths: parking_lot::Mutex<maps::MapLengths>,
}

impl<'a, S: Substrate> State<'a, S> {
    /// Opens the state folder of the substrate's user, and makes it if there is none.
    ///
    /// # Errors
    /// See [`StateError`].
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

    /// Opens the state folder to mend its declared shares, even if its identity is lost. `None` if there is no state
    /// folder, or if one without an identity has no declared shares.
    ///
    /// Files of a state without an identity are foreign to it: only [`mend`](crate::mend) has a use for it.
    ///
    /// # Errors
    /// See [`StateError`], but for `IdentityLost`.
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
            policy: SharePolicy::of(substrate.abilities()),
            folder,
            clock,
            identity,
            host,
            next_name,
            presence: Presence::new(None),
            last_log: AtomicU64::new(0),
            kept: locks::KeptLocks::default(),
            has_lost_entries: AtomicBool::new(false),
            notices,
            has_dropped_older: AtomicBool::new(false),
            useless: None,
            reported: parking_lot::Mutex::default(),
            map_lengths: parking_lot::Mutex::default(),
        })
    }

    /// Makes the missing folders, and keeps all folders open.
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

    /// Keeps all existing folders open. Returns whether there is a state folder.
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

    /// Returns the paths of all folders, the state folder itself first.
    fn folders(&self) -> impl Iterator<Item = PathBuf> + use<'_, 'a, S> {
        let intents = self.policy.is_declared().then_some(intents::FOLDER);
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

    /// Returns how hosts share on the file system.
    pub fn policy(&self) -> SharePolicy {
        self.policy
    }

    /// Returns the clock for waiting.
    pub(crate) fn clock(&self) -> &'a dyn Clock {
        self.clock
    }

    /// Returns the identity of the folder.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the key for fingerprints of a domain's files.
    pub fn key(&self, domain: &Domain) -> FingerprintKey {
        domain.key(&self.identity.key)
    }

    /// Reports a notice.
    pub fn notice(&self, notice: Notice) {
        (self.notices)(notice);
    }

    /// Returns the number that distinguishes this host from all others, until the folder is closed.
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

    /// Handles a file that could not be used. A worthless file is removed, and a file of a later version stays.
    ///
    /// # Errors
    /// `Untrusted` for a file that was not used for that reason; errors of the device.
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
            // A read-only view does not make missing folders.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.useless.is_some() => Vec::new(),
            listed => listed.map_err(StateError::at(&path))?,
        };
        let is_taken = |listed: &FolderEntry| {
            let useless = self.useless.as_ref();
            listed.kind == ListedKind::File && useless.is_none_or(|useless| !useless.contains(&path.join(&listed.name)))
        };
        let files = listed.into_iter().filter(is_taken);
        // A name that is no text is foreign.
        Ok(files.filter_map(|listed| listed.name.into_os_string().into_string().ok()).collect())
    }

    /// Returns whether the state folder is still the one that was opened: anybody may have deleted it, and others have
    /// made a new one.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn is_current(&self) -> Result<bool, StateError> {
        for folder in self.folders() {
            if !self.substrate.is_folder_kept(&folder).map_err(StateError::at(&folder))? {
                return Ok(false);
            }
        }
        Ok(self.read_identity()?.is_some_and(|identity| identity == self.identity))
    }

    /// Waits for a moment, so that other hosts can finish.
    fn pause(&self) {
        self.clock.sleep(TRY_PAUSE);
    }
}
