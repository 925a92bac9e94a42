//! Creating, linking, renaming and removing.

use std::io;
use std::path::{Path, PathBuf};

use onefold_substrate::{FolderEntry, ListedKind};
use rustix::io::Errno;

use super::checks::StepChange;
use super::durability::{NameChange, UnsyncedNames};
use super::files::FileNo;
use super::names::{FolderNo, Name, NameTarget};
use super::rights::{ENTER, READ, WRITE};
use super::world::{Actor, World};

impl World {
    /// Finds a regular file.
    pub(super) fn find_file(&self, path: &Path) -> io::Result<FileNo> {
        let (folder, name) = self.names.resolve(path)?;
        self.file_entry(folder, name)
    }

    pub(super) fn create(&mut self, actor: Actor, path: &Path) -> io::Result<FileNo> {
        let (folder, name) = self.names.resolve(path)?;
        if self.names.get(folder, name).is_none() {
            self.names.permit(folder, WRITE | ENTER)?;
        }
        self.create_file(actor, folder, &name.into())
    }

    pub(super) fn create_folder(&mut self, actor: Actor, path: &Path) -> io::Result<FolderNo> {
        let (folder, name) = self.names.resolve(path)?;
        if self.names.get(folder, name).is_none() {
            self.names.permit(folder, WRITE | ENTER)?;
        }
        let new = NameTarget::Folder(self.names.add_folder());
        self.add_entry(actor, folder, name.into(), new)?;
        self.names.find_folder(path)
    }

    pub(super) fn create_symlink(&mut self, actor: Actor, folder: FolderNo, name: Name) -> io::Result<()> {
        self.add_entry(actor, folder, name, NameTarget::Symlink)
    }

    pub(super) fn link(&mut self, actor: Actor, from: &Path, to: &Path) -> io::Result<()> {
        let (from_folder, from_name) = self.names.resolve(from)?;
        let (folder, name) = self.names.resolve(to)?;
        self.names.permit(folder, WRITE | ENTER)?;
        self.link_entry(actor, (from_folder, from_name), (folder, name.into()))
    }

    pub(super) fn link_entry(&mut self, actor: Actor, from: (FolderNo, &[u8]), to: (FolderNo, Name)) -> io::Result<()> {
        self.settle_names(actor.host(), from.0);
        let no = self.file_entry(from.0, from.1)?;
        self.add_entry(actor, to.0, to.1, NameTarget::File(no))?;
        self.files.get_mut(no).changed = self.file_time(actor.host());
        Ok(())
    }

    pub(super) fn rename(&mut self, actor: Actor, from: &Path, to: &Path) -> io::Result<()> {
        let (from_folder, from_name) = self.names.resolve(from)?;
        let (folder, name) = self.names.resolve(to)?;
        self.permit_removal(from_folder, from_name)?;
        self.permit_removal(folder, name)?;
        self.rename_entry(actor, (from_folder, from_name.into()), (folder, name.into()))
    }

    pub(super) fn rename_entry(
        &mut self,
        actor: Actor,
        from: (FolderNo, Name),
        to: (FolderNo, Name),
    ) -> io::Result<()> {
        self.settle_names(actor.host(), from.0);
        self.settle_names(actor.host(), to.0);
        let moved = self.file_entry(from.0, &from.1)?;
        match self.names.get(to.0, &to.1) {
            Some(NameTarget::Folder(_)) => return Err(Errno::ISDIR.into()),
            // If both names lead to one file, POSIX requires that nothing happens.
            Some(NameTarget::File(replaced)) if replaced == moved => return Ok(()),
            _ => {}
        }
        self.change_names(actor, vec![(to.0, to.1, Some(NameTarget::File(moved))), (from.0, from.1, None)]);
        self.files.get_mut(moved).changed = self.file_time(actor.host());
        Ok(())
    }

    pub(super) fn remove(&mut self, actor: Actor, path: &Path) -> io::Result<()> {
        let (folder, name) = self.names.resolve(path)?;
        self.permit_removal(folder, name)?;
        self.remove_entry(actor, folder, name.into())
    }

    pub(super) fn remove_entry(&mut self, actor: Actor, folder: FolderNo, name: Name) -> io::Result<()> {
        self.settle_names(actor.host(), folder);
        match self.names.get(folder, &name).ok_or(Errno::NOENT)? {
            NameTarget::Folder(_) => Err(Errno::ISDIR.into()),
            NameTarget::File(_) | NameTarget::Symlink => {
                self.change_names(actor, vec![(folder, name, None)]);
                Ok(())
            }
        }
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<FolderEntry>> {
        let folder = self.names.find_folder(path)?;
        self.names.permit(folder, READ)?;
        let listed = |(name, entry): (&Name, &NameTarget)| FolderEntry {
            name: PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name)),
            kind: match entry {
                NameTarget::File(_) => ListedKind::File,
                NameTarget::Folder(_) => ListedKind::Folder,
                NameTarget::Symlink => ListedKind::Other,
            },
        };
        Ok(self.names.folder(folder).entries.iter().map(listed).collect())
    }

    fn file_entry(&self, folder: FolderNo, name: &[u8]) -> io::Result<FileNo> {
        match self.names.get(folder, name) {
            Some(NameTarget::File(no)) => Ok(no),
            Some(NameTarget::Folder(_)) => Err(Errno::INVAL.into()),
            Some(NameTarget::Symlink) => Err(Errno::LOOP.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn add_entry(&mut self, actor: Actor, folder: FolderNo, name: Name, entry: NameTarget) -> io::Result<()> {
        self.settle_names(actor.host(), folder);
        if self.names.get(folder, &name).is_some() {
            return Err(Errno::EXIST.into());
        }
        self.change_names(actor, vec![(folder, name, Some(entry))]);
        Ok(())
    }

    /// Changes names together, in a way that a crash of the host may undo. The caller has made the changes of other
    /// hosts in these folders durable.
    pub(super) fn change_names(&mut self, actor: Actor, changes: Vec<(FolderNo, Name, Option<NameTarget>)>) {
        let mut done = Vec::with_capacity(changes.len());
        for (folder, name, after) in changes {
            let before = self.names.get(folder, &name);
            if let Some(NameTarget::File(no)) = before {
                self.files.get_mut(no).pins += 1;
            }
            let is_followed = matches!(actor, Actor::Writer(_));
            self.set_entry(folder, &name, after, is_followed);
            done.push(NameChange { folder, name, before, after });
        }
        let at = self.time.load(std::sync::atomic::Ordering::Relaxed);
        self.note_names(actor.host(), UnsyncedNames { at, changes: done });
    }

    /// Makes a name lead to another target, or none. The caller frees a file without names.
    pub(super) fn set_entry(&mut self, folder: FolderNo, name: &Name, after: Option<NameTarget>, is_followed: bool) {
        let entries = &mut self.names.folder_mut(folder).entries;
        let before = match after {
            Some(entry) => entries.insert(name.clone(), entry),
            None => entries.remove(name),
        };
        if let Some(NameTarget::File(no)) = after {
            self.files.get_mut(no).names += 1;
        }
        if let Some(NameTarget::File(no)) = before {
            self.files.get_mut(no).names -= 1;
        }
        if is_followed {
            let image = match after {
                Some(NameTarget::File(no)) if self.files.get(no).is_image => Some(no),
                _ => None,
            };
            self.reference.set_name(folder, name, image);
        }
        self.changes.push(StepChange::Named(folder, name.clone()));
    }
}
