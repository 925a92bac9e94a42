//! Users and their rights: owners, permission bits, and folders that a mount keeps open.

use std::io;
use std::path::Path;

use onefold_substrate::{Protection, UserNo};
use rustix::io::Errno;

use super::files::FileNo;
use super::names::{FolderNo, NameTarget};
use super::world::{Actor, World};

/// The right to read, as a permission bit of others.
pub(super) const READ: u32 = 0o4;
/// The right to write.
pub(super) const WRITE: u32 = 0o2;
/// The right to reach the entries of a folder.
pub(super) const ENTER: u32 = 0o1;

/// The owner and the mode of a file or folder. Users belong to no groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ownership {
    pub(super) owner: UserNo,
    pub(super) mode: u32,
}

impl Default for Ownership {
    fn default() -> Ownership {
        Ownership { owner: UserNo::ROOT, mode: 0o600 }
    }
}

impl Ownership {
    pub(super) fn permits(self, user: UserNo, rights: u32) -> bool {
        let granted = if user == self.owner { self.mode >> 6 } else { self.mode };
        user == UserNo::ROOT || granted & rights == rights
    }

    fn protection(self, links: u32) -> Protection {
        Protection { owner: self.owner, mode: self.mode, links: links.into() }
    }
}

impl World {
    /// Fails if the caller lacks these rights to a file.
    pub(super) fn permit_file(&self, no: FileNo, rights: u32) -> io::Result<()> {
        let owned = self.files.get(no).owned;
        let may = self.names.caller.as_ref().is_none_or(|caller| owned.permits(caller.user, rights));
        if may { Ok(()) } else { Err(Errno::ACCESS.into()) }
    }

    /// Fails if the caller may not remove or replace a name.
    pub(super) fn permit_removal(&self, folder: FolderNo, name: &[u8]) -> io::Result<()> {
        self.names.permit(folder, WRITE | ENTER)?;
        let (Some(caller), Some(entry)) = (&self.names.caller, self.names.get(folder, name)) else { return Ok(()) };
        let of_folder = self.names.folder(folder).owned;
        let owner = match entry {
            NameTarget::File(no) => self.files.get(no).owned.owner,
            NameTarget::Folder(below) => self.names.folder(below).owned.owner,
            NameTarget::Symlink => UserNo::ROOT,
        };
        let is_free = of_folder.mode & Protection::STICKY == 0;
        let may = is_free || [UserNo::ROOT, of_folder.owner, owner].contains(&caller.user);
        if may { Ok(()) } else { Err(Errno::PERM.into()) }
    }

    pub(super) fn file_protection(&self, no: FileNo) -> Protection {
        let file = self.files.get(no);
        file.owned.protection(file.names)
    }

    pub(super) fn folder_protection(&self, folder: FolderNo) -> Protection {
        self.names.folder(folder).owned.protection(1)
    }

    /// Returns the owner of a new file. The first images, which the observer makes, belong to all users in turn.
    pub(super) fn owner_for(&self, actor: Actor, no: FileNo) -> UserNo {
        match &self.names.caller {
            Some(caller) => caller.user,
            None if actor.host() == self.observer() => self.options.user_of(no.0 % self.options.hosts.max(1)),
            None => self.machine(actor.host()).user,
        }
    }

    /// Sets owner and mode of a file or folder, as an administrator does.
    pub(super) fn set_owned(&mut self, path: &Path, owned: Ownership) -> io::Result<()> {
        match self.names.find_folder(path) {
            Ok(folder) => self.names.folder_mut(folder).owned = owned,
            Err(_) => {
                let no = self.find_file(path)?;
                self.files.get_mut(no).owned = owned;
            }
        }
        Ok(())
    }

    /// Renames a folder durably, as an administrator does.
    pub(super) fn rename_folder(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (above, name) = self.names.resolve(from)?;
        let (to_above, to_name) = self.names.resolve(to)?;
        let entry = self.names.get(above, name).ok_or(Errno::NOENT)?;
        if self.names.get(to_above, to_name).is_some() {
            return Err(Errno::EXIST.into());
        }
        self.names.folder_mut(above).entries.remove(name);
        self.names.folder_mut(to_above).entries.insert(to_name.into(), entry);
        Ok(())
    }

    /// Checks that a host does not expose blocks to new users. A file of its own that receives them must belong to its
    /// user, and must never have been accessible to others.
    pub(super) fn check_exposure(&mut self, actor: Actor, into: FileNo) {
        let Actor::Engine(host) = actor else { return };
        let (file, user) = (self.files.get(into), self.machine(host).user);
        if file.is_image {
            return;
        }
        let protection = file.owned.protection(file.names);
        if protection.owner != user || !protection.is_private() || protection.is_sticky() {
            let path = self.names.path_of(into);
            self.violated(format!(
                "{host} clones blocks for {user} into {path}, which others may read: {protection:?}"
            ));
        }
    }
}
