//! Claims: which pass works on which files' logs. Each pass has a file that names the files, from before it reads the
//! logs until its end.
//!
//! An owner's lock would do as well. But it would have to be held from the first log to the last call, for hours, and
//! each lock is an open file. So the lock of an image is taken only while its blocks are shared, and a claim keeps
//! other passes from planning the same work. A claim holds as long as its host is present. It only saves work.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use onefold_substrate::{Access, Substrate};

use super::hosts::HostNo;
use super::locks::Subject;
use super::{State, StateError};
use crate::format::FileNo;
use crate::format::claim;

pub(super) const FOLDER: &str = "claims";

impl<S: Substrate> State<'_, S> {
    /// Claims files for a pass of this host, except those that other hosts have claimed. Returns the claimed files;
    /// `None` if another host is claiming files at this moment.
    ///
    /// # Errors
    /// No space; errors of the device.
    pub(crate) fn claim(&self, wanted: &BTreeSet<FileNo>) -> Result<Option<BTreeSet<FileNo>>, StateError> {
        let Some(_held) = self.try_lock(&Subject::Claims)? else { return Ok(None) };
        let mut own = wanted.clone();
        for name in self.names(FOLDER)? {
            let path = self.path(FOLDER, &name);
            let host = HostNo::parse(&name).filter(|host| *host != self.host());
            if host.is_none_or(|host| !self.is_present(host).unwrap_or(true)) {
                self.remove(&path)?;
                continue;
            }
            match self.open_own(&path, Access::Read) {
                Ok(file) => match claim::read(self.substrate(), file, &self.identity().uuid) {
                    Ok(files) => own.retain(|file| !files.contains(file)),
                    Err(why) => self.refuse(path, why)?,
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StateError::at(&path)(error)),
            }
        }
        if own.is_empty() {
            return Ok(Some(own));
        }
        let uuid = self.identity().uuid;
        let scratch = self.write_scratch(|file| claim::write(self.substrate(), file, uuid, &own))?;
        self.replace(&scratch, &self.claim_path()).inspect_err(|_| self.discard(&scratch))?;
        Ok(Some(own))
    }

    /// Releases the claims of this host.
    pub(crate) fn unclaim(&self) {
        // A claim that cannot be removed now holds until this host is no longer present.
        let _ = self.remove(&self.claim_path());
    }

    fn claim_path(&self) -> PathBuf {
        self.path(FOLDER, self.host().to_string())
    }
}
