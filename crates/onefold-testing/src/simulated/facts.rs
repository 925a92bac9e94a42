//! Metadata of files: attributes, held locks, refusals; and clones of whole files.

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{HeldLock, Protection, Refusal, ShareError, UserNo};
use rustix::io::Errno;

use super::files::{AttributeMap, FileNo};
use super::names::NameTarget;
use super::sharing::SharedRanges;
use super::world::{Actor, World};

impl World {
    pub(super) fn attributes(&self, path: &Path) -> io::Result<&AttributeMap> {
        if let Ok(folder) = self.names.find_folder(path) {
            return Ok(&self.names.folder(folder).attributes);
        }
        let no = self.find_file(path)?;
        Ok(&self.files.get(no).attributes)
    }

    pub(super) fn set_attribute(
        &mut self,
        actor: Actor,
        path: &Path,
        name: &str,
        value: Option<&[u8]>,
    ) -> io::Result<()> {
        let attributes = match self.names.find_folder(path) {
            Ok(folder) => &mut self.names.folder_mut(folder).attributes,
            Err(_) => {
                let no = self.find_file(path)?;
                self.file_attributes(actor, no)?
            }
        };
        set_in(attributes, name, value);
        Ok(())
    }

    /// Returns the attributes of a file that are about to change.
    pub(super) fn file_attributes(&mut self, actor: Actor, no: FileNo) -> io::Result<&mut AttributeMap> {
        if self.files.get(no).refusal == Some(Refusal::Immutable) {
            return Err(Errno::PERM.into());
        }
        let changed = self.file_time(actor.host());
        let file = self.files.get_mut(no);
        file.changed = changed;
        Ok(&mut file.attributes)
    }

    /// Gives a file to another user.
    pub(super) fn give(&mut self, actor: Actor, no: FileNo, owner: u32) {
        let changed = self.file_time(actor.host());
        let file = self.files.get_mut(no);
        (file.owner, file.changed) = (owner, changed);
        self.tell(|world| format!("{} belongs to user {owner}", world.names.path_of(no)));
    }

    /// Returns the protection of a file or folder. All folders belong to root, and only root may write to them.
    pub(super) fn path_protection(&self, path: &Path) -> io::Result<Protection> {
        if self.names.find_folder(path).is_ok() {
            return Ok(Protection { owner: UserNo::ROOT, mode: 0o755, links: 1 });
        }
        let no = self.find_file(path)?;
        Ok(Protection { owner: UserNo(self.files.get(no).owner), mode: 0o600, links: 1 })
    }

    /// Returns the locked files of a folder, whichever host holds the locks.
    pub(super) fn held_locks(&self, folder: &Path) -> io::Result<Vec<HeldLock>> {
        let folder = self.names.folder(self.names.find_folder(folder)?);
        let held = folder.entries.iter().filter_map(|(name, entry)| match entry {
            NameTarget::File(no) if self.files.get(*no).lock.is_some() => {
                let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name);
                Some(HeldLock { name: PathBuf::from(name), process: None })
            }
            _ => None,
        });
        Ok(held.collect())
    }

    /// Creates a file with the content of another one.
    pub(super) fn create_clone(&mut self, actor: Actor, source: FileNo, path: &Path) -> Result<FileNo, ShareError> {
        if let Some(refusal @ Refusal::Swap) = self.files.get(source).refusal {
            return Err(ShareError::Refused(refusal));
        }
        let clone = self.create(actor, path)?;
        let (length, count) = (self.files.get(source).length, self.files.get(source).block_count());
        debug_assert!(count * BLOCK_BYTES_U64 >= length);
        self.set_length(actor, clone, length)?;
        self.clone_range(actor, SharedRanges { source: (source, 0), into: (clone, 0), count });
        Ok(clone)
    }
}

/// Sets or removes an attribute.
pub(super) fn set_in(attributes: &mut AttributeMap, name: &str, value: Option<&[u8]>) {
    match value {
        Some(value) => drop(attributes.insert(name.to_owned(), value.to_owned())),
        None => drop(attributes.remove(name)),
    }
}
