//! Names: look-up, creation, links, removal, rename, listing.

use std::ops::ControlFlow;

use super::Pool;
use crate::attr::{Attr, DirEntry, FileKind, Ino, NewFile, RenameMode};
use crate::error::{PoolError, Result};
use crate::meta::Privilege;
use crate::names::directory::EntryName;
use crate::names::rename::Move;

/// Number of entries of a listing that are read at once.
const LIST_ENTRIES: usize = 128;
/// Maximum number of links of a file.
const LINKS_MAX: u32 = u32::MAX / 2;

impl Pool {
    /// Looks up a name; the dots are names, too. `.` finds any inode that still has another name: a door that keeps
    /// only an inode number looks the inode up this way. Takes a hold.
    ///
    /// # Errors
    /// [`PoolError::NotFound`], [`PoolError::NotADirectory`], [`PoolError::NameTooLong`].
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let checked = EntryName::new(name, &self.engine.name_hash)?;
        // Accepted writes change no names; only the found file's attributes have to wait for its own writes.
        let is_behind = self.blocks_behind() > 0;
        let found = self.engine.view(|op| {
            let ino = match name {
                b"." => parent,
                b".." => Ino(op.directory(parent)?.parent),
                _ => {
                    op.directory(parent)?;
                    op.entry_of(parent, checked)?.item.ino
                }
            };
            let attr = op.inode(ino)?.door_attr();
            if name == b"." && attr.link_count == 0 {
                // The inode is being removed: a door's record of its number is stale.
                return Err(PoolError::NotFound.into());
            }
            op.hold(ino);
            Ok(attr)
        })?;
        if !is_behind || found.kind != FileKind::Regular {
            return Ok(found);
        }
        self.attr(found.ino).inspect_err(|_| self.engine.release(found.ino, 1))
    }

    /// Returns holds. Returning the last hold of an inode without names frees the inode.
    pub fn release(&self, ino: Ino, holds: u64) {
        // Accepted writes to the file may still need it.
        self.data.settle_file(ino);
        self.engine.release(ino, holds);
    }

    /// Makes a file of any kind but a symbolic link. Takes a hold.
    ///
    /// # Errors
    /// [`PoolError::Exists`], [`PoolError::NotFound`] for a parent that was removed, no space.
    pub fn create_file(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr> {
        if new.kind == FileKind::Symlink {
            return Err(PoolError::Invalid("a symbolic link needs a target"));
        }
        self.create_named(parent, name, new, &[])
    }

    /// Makes a symbolic link. Takes a hold.
    ///
    /// # Errors
    /// See [`Pool::create_file`]; [`PoolError::NameTooLong`] for a target of more than 4095 bytes.
    pub fn create_symlink(&self, parent: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Attr> {
        if target.len() > crate::SYMLINK_BYTES_MAX {
            return Err(PoolError::NameTooLong);
        }
        if target.is_empty() {
            return Err(PoolError::NotFound);
        }
        let new = NewFile { kind: FileKind::Symlink, mode: 0o777, umask: 0, uid, gid, rdev: 0 };
        self.create_named(parent, name, &new, target)
    }

    fn create_named(&self, parent: Ino, name: &[u8], new: &NewFile, target: &[u8]) -> Result<Attr> {
        let name = EntryName::changeable(name, &self.engine.name_hash)?;
        let now = self.engine.environment.clock.now();
        self.settled().run(Privilege::Normal, |op| {
            let mut directory = op.directory(parent)?;
            if op.find_entry(parent, name)?.is_some() {
                return Err(PoolError::Exists.into());
            }
            let mut inode = op.new_inode(&directory, new, now)?;
            if new.kind == FileKind::Symlink {
                op.put_target(inode.attr.ino, target)?;
                inode.attr.size_bytes = target.len() as u64;
                op.put_inode(&inode)?;
            }
            op.add_entry(&mut directory, name, &inode, now)?;
            op.hold_on_success(inode.attr.ino);
            Ok(inode.door_attr())
        })
    }

    /// Makes a regular file without a name (`O_TMPFILE`): it is removed with its last hold, unless it is linked. Takes
    /// a hold.
    ///
    /// # Errors
    /// See [`Pool::create_file`].
    pub fn create_unnamed(&self, parent: Ino, new: &NewFile) -> Result<Attr> {
        let now = self.engine.environment.clock.now();
        self.settled().run(Privilege::Normal, |op| {
            let directory = op.directory(parent)?;
            let mut inode = op.new_inode(&directory, new, now)?;
            inode.attr.link_count = 1;
            op.hold_on_success(inode.attr.ino);
            op.drop_link(&mut inode, now)?;
            Ok(inode.door_attr())
        })
    }

    /// Reads a symbolic link's target.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for another kind of file.
    pub fn read_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.settled().view(|op| op.target(ino))
    }

    /// Gives a file another name. Takes a hold.
    ///
    /// # Errors
    /// [`PoolError::NotPermitted`] for a directory, [`PoolError::CrossDomain`]; see also [`Pool::create_file`].
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let name = EntryName::changeable(name, &self.engine.name_hash)?;
        let now = self.engine.environment.clock.now();
        self.settled().run(Privilege::Normal, |op| {
            let mut inode = op.inode(ino)?;
            let mut directory = op.directory(parent)?;
            if inode.attr.kind == FileKind::Directory {
                return Err(PoolError::NotPermitted("a directory has one name").into());
            }
            if inode.attr.link_count >= LINKS_MAX {
                return Err(PoolError::TooManyLinks.into());
            }
            if directory.attr.link_count == 0 {
                return Err(PoolError::NotFound.into());
            }
            if op.find_entry(parent, name)?.is_some() {
                return Err(PoolError::Exists.into());
            }
            op.check_domain(&inode, &directory)?;
            if inode.attr.link_count == 0 {
                op.remove_item(&crate::format::items::orphan_key(ino))?;
                op.got_name(ino);
            }
            inode.attr.link_count += 1;
            inode.attr.changed = now;
            op.put_inode(&inode)?;
            op.add_entry(&mut directory, name, &inode, now)?;
            op.hold_on_success(ino);
            Ok(inode.door_attr())
        })
    }

    /// Removes a name of any inode except a directory.
    ///
    /// # Errors
    /// [`PoolError::IsADirectory`], [`PoolError::NotFound`].
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let name = EntryName::changeable(name, &self.engine.name_hash)?;
        self.remove(parent, name, |kind| match kind {
            FileKind::Directory => Err(PoolError::IsADirectory),
            _ => Ok(()),
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`PoolError::NotEmpty`], [`PoolError::NotADirectory`], [`PoolError::NotFound`].
    pub fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<()> {
        if name == b".." {
            return Err(PoolError::NotEmpty);
        }
        let name = EntryName::changeable(name, &self.engine.name_hash)?;
        self.remove(parent, name, |kind| match kind {
            FileKind::Directory => Ok(()),
            _ => Err(PoolError::NotADirectory),
        })
    }

    fn remove(&self, parent: Ino, name: EntryName<'_>, allow: impl Fn(FileKind) -> Result<()>) -> Result<()> {
        let now = self.engine.environment.clock.now();
        self.settled().run_with_reclaim(|op| {
            let mut directory = op.directory(parent)?;
            let entry = op.entry_of(parent, name)?;
            let mut inode = op.inode(entry.item.ino)?;
            allow(inode.attr.kind)?;
            if inode.attr.kind == FileKind::Directory && !op.is_empty_directory(inode.attr.ino)? {
                return Err(PoolError::NotEmpty.into());
            }
            op.remove_entry(&mut directory, &entry, now)?;
            op.drop_link(&mut inode, now)
        })?;
        self.engine.wake.hurry();
        Ok(())
    }

    /// Renames, replaces or exchanges.
    ///
    /// # Errors
    /// [`PoolError::CrossDomain`], [`PoolError::NotEmpty`], [`PoolError::Exists`], [`PoolError::Invalid`] for a
    /// directory that would move below itself.
    pub fn rename(&self, parent: Ino, name: &[u8], new_parent: Ino, new_name: &[u8], mode: RenameMode) -> Result<()> {
        let from_name = EntryName::changeable(name, &self.engine.name_hash)?;
        let to_name = EntryName::changeable(new_name, &self.engine.name_hash)?;
        let now = self.engine.environment.clock.now();
        let places = Move { from: parent, from_name, to: new_parent, to_name };
        self.settled().run(Privilege::Normal, |op| {
            op.directory(parent)?;
            op.rename_entry(places, mode, now)
        })?;
        self.engine.wake.hurry();
        Ok(())
    }

    /// Returns a directory's parent; the root is its own.
    ///
    /// # Errors
    /// [`PoolError::NotADirectory`].
    pub fn parent(&self, directory: Ino) -> Result<Ino> {
        self.settled().view(|op| Ok(Ino(op.directory(directory)?.parent)))
    }

    /// Lists a directory after a cookie: 0 to begin. `.` has cookie 1, `..` has 2. `Break` from `visit` ends the
    /// listing, and the entry then does not count as listed.
    ///
    /// # Errors
    /// [`PoolError::NotADirectory`], damage.
    pub fn read_directory(
        &self,
        ino: Ino,
        after_cookie: u64,
        visit: &mut dyn FnMut(&DirEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        let parent = self.parent(ino)?;
        for (cookie, name, of) in [(1, &b"."[..], ino), (2, b"..", parent)] {
            let entry = DirEntry { ino: of, kind: FileKind::Directory, name: name.to_vec(), cookie };
            if after_cookie < cookie && visit(&entry).is_break() {
                return Ok(());
            }
        }
        let mut after = after_cookie.max(2);
        loop {
            let entries = self.settled().view(|op| op.list_entries(ino, after, LIST_ENTRIES))?;
            for entry in &entries {
                if visit(entry).is_break() {
                    return Ok(());
                }
            }
            match entries.last() {
                Some(last) if entries.len() == LIST_ENTRIES => after = last.cookie,
                _ => return Ok(()),
            }
        }
    }
}
