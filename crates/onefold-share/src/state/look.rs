//! Opens the state folder without touching it: nothing is made, swept or dropped, and no lock is taken.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};

use onefold_block::{Clock, FingerprintKey};
use onefold_substrate::{HeldLock, Substrate};
use parking_lot::Mutex;

use super::hosts::{HostNo, Presence};
use super::locks::KeptLocks;
use super::{Notice, SCRATCH, State, StateError, StateFolder};
use crate::format::identity::Identity;
use crate::policy::SharePolicy;

const LOCKS: &str = "locks";

/// Files that were found to be useless. A read-only view treats them as gone, because the next run drops them.
#[derive(Debug, Default)]
pub(super) struct UselessFiles {
    paths: Mutex<BTreeSet<PathBuf>>,
}

impl UselessFiles {
    pub(super) fn insert(&self, path: &Path) {
        self.paths.lock().insert(path.to_owned());
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.paths.lock().contains(path)
    }
}

/// Locks that are held in the state folder, and files left behind in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateActivity {
    /// Locks that are held, by the names of their files.
    pub locks: Vec<HeldLock>,
    /// Number of files of hosts that died during their work. The next run removes them.
    pub left_over: u64,
}

impl<'a, S: Substrate> State<'a, S> {
    /// Opens the state folder to look at it. `None` if there is none, or nothing useful in it.
    ///
    /// Queries of the returned state change nothing: useless files are reported, and left.
    ///
    /// # Errors
    /// Errors of the device; `Newer`.
    pub fn look(
        substrate: &'a S,
        clock: &'a dyn Clock,
        notices: &'a dyn Fn(Notice),
    ) -> Result<Option<State<'a, S>>, StateError> {
        let identity = Identity { uuid: [0; 16], key: [0; FingerprintKey::BYTES] };
        let mut state = State {
            substrate,
            policy: SharePolicy::of(substrate.abilities()),
            folder: StateFolder::of(substrate),
            clock,
            identity,
            host: HostNo(0),
            next_name: AtomicU64::new(0),
            presence: Presence::new(None),
            last_log: AtomicU64::new(0),
            kept: KeptLocks::default(),
            has_lost_entries: AtomicBool::new(false),
            notices,
            has_dropped_older: AtomicBool::new(false),
            useless: Some(UselessFiles::default()),
            reported: Mutex::default(),
            map_lengths: Mutex::default(),
        };
        if !state.keep_folders()? {
            return Ok(None);
        }
        let lost = match state.read_identity() {
            Ok(Some(identity)) => {
                state.identity = identity;
                return Ok(Some(state));
            }
            Ok(None) => state.check_nothing_declared(false),
            Err(error) => Err(error),
        };
        match lost {
            Err(why @ StateError::IdentityLost { .. }) => state.notice(Notice::IdentityLost(why)),
            lost => lost?,
        }
        Ok(None)
    }

    /// Returns the work on it at this moment. `None` if the file system cannot tell without trying a lock, because that
    /// could keep out a host that wants it.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn work(&self) -> Result<Option<StateActivity>, StateError> {
        let held = |folder: &str| {
            let path = self.folder.join(folder);
            match self.substrate().held_locks(&path) {
                Ok(held) => Ok(Some(held)),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Vec::new())),
                Err(error) => Err(StateError::at(&path)(error)),
            }
        };
        // Listed before the locks are looked at: a file that is made meanwhile is not left over.
        let scratch = self.names(SCRATCH)?;
        let (Some(locks), Some(writing)) = (held(LOCKS)?, held(SCRATCH)?) else { return Ok(None) };
        let left_over = scratch.iter().filter(|name| writing.iter().all(|held| held.name != Path::new(name)));
        // Files that got their names or were removed since the list are not left over either.
        let left_over = left_over.filter(|name| {
            let path = self.path(SCRATCH, name);
            self.open_own(&path, onefold_substrate::Access::Read).is_ok()
        });
        Ok(Some(StateActivity { left_over: left_over.count() as u64, locks }))
    }
}
