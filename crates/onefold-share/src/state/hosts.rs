//! Presence of hosts: each host has a file that it keeps locked as long as it works.
//!
//! Another host that finds the lock free, or no file, takes the host for dead and finishes its work. If the host comes
//! back, work is done twice at worst. A dead host's file stays until another host has handled everything that it may
//! have left behind.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::Path;

use onefold_substrate::{Access, Substrate};

use super::{SCRATCH, Scratch, State, StateError};

/// The suffix of the names of these files.
pub(super) const PRESENCE: &str = ".host";

/// Number that distinguishes a host's names from all others'. Drawn anew each time that the state folder is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostNo(pub u64);

impl HostNo {
    /// Returns the number in a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<HostNo> {
        u64::from_str_radix(text, 16).ok().map(HostNo)
    }

    /// Returns whether a file name is one of this host's, `HOST.NUMBER`.
    #[must_use]
    pub(crate) fn has_named(self, path: &Path) -> bool {
        HostNo::of_name(path) == Some(self)
    }

    /// Returns the host that has named a file, `HOST.NUMBER`.
    pub(super) fn of_name(path: &Path) -> Option<HostNo> {
        let name = path.file_name().and_then(OsStr::to_str);
        name.and_then(|name| name.split_once('.')).and_then(|(host, _)| HostNo::parse(host))
    }
}

impl fmt::Display for HostNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The file that keeps a host present.
pub(super) type Presence<S> = parking_lot::Mutex<Option<Scratch<S>>>;

impl<S: Substrate> State<'_, S> {
    /// Shows other hosts that this one is at work, until [`State::leave`].
    ///
    /// # Errors
    /// No space; errors of the device.
    pub(crate) fn be_present(&self) -> Result<(), StateError> {
        let mut presence = self.presence.lock();
        if presence.is_none() {
            let (_, mut scratch) = self.new_scratch()?;
            // It gets its name together with its lock. Another host that saw the name without the lock would take this
            // host for dead.
            let path = self.path(SCRATCH, presence_name(self.host()));
            self.replace(&scratch, &path).inspect_err(|_| self.discard(&scratch))?;
            scratch.path = path;
            *presence = Some(scratch);
        }
        Ok(())
    }

    /// Shows other hosts that this one has left no unfinished work. Without this call, they look for work that it may
    /// have left.
    pub fn leave(&self) {
        if let Some(scratch) = self.presence.lock().take() {
            self.discard(&scratch);
        }
    }

    /// Returns whether a host is at work.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn is_present(&self, host: HostNo) -> Result<bool, StateError> {
        if host == self.host() {
            return Ok(true);
        }
        let path = self.path(SCRATCH, presence_name(host));
        match self.open_own(&path, Access::Write) {
            // Others may ask at this moment. The check must not take their locks for the host's.
            Ok(file) => self.substrate().is_locked(&file).map_err(StateError::at(&path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StateError::at(&path)(error)),
        }
    }

    /// Returns the hosts that died during their work.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn dead_hosts(&self) -> Result<Vec<HostNo>, StateError> {
        let mut dead = Vec::new();
        for name in self.names(SCRATCH)? {
            let Some(host) = name.strip_suffix(PRESENCE).and_then(HostNo::parse) else { continue };
            // A name in another notation is foreign: no host would ever remove it.
            if presence_name(host) == name && !self.is_present(host)? {
                dead.push(host);
            }
        }
        Ok(dead)
    }

    /// Notes that the work that a dead host may have left is done.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn forget_host(&self, host: HostNo) -> Result<(), StateError> {
        self.remove(&self.path(SCRATCH, presence_name(host)))
    }
}

fn presence_name(host: HostNo) -> String {
    format!("{host}{PRESENCE}")
}
