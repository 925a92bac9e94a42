//! Directories: looking up, adding and removing names, and listing.

use std::ops::ControlFlow;

use onefold_block::Timestamp;

use crate::attr::{DirEntry, FileKind, Ino};
use crate::error::PoolError;
use crate::format::inode::Inode;
use crate::format::items::{self, DirItem};
use crate::meta::op::damaged;
use crate::meta::{Op, OpResult};
use crate::tree;
use onefold_block::BlockNo;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct EntryName<'a> {
    pub(crate) bytes: &'a [u8],
    /// Its hash under the pool's secret.
    pub(crate) hash: u64,
}

impl<'a> EntryName<'a> {
    /// Checks a name of a new entry, or one to look up.
    ///
    /// # Errors
    /// [`PoolError::NameTooLong`]; [`PoolError::Invalid`] for an empty one or one with a slash or NUL.
    pub(crate) fn new(bytes: &'a [u8], hash: &super::NameHash) -> Result<EntryName<'a>, PoolError> {
        if bytes.len() > crate::NAME_BYTES_MAX {
            return Err(PoolError::NameTooLong);
        }
        if bytes.is_empty() || bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(PoolError::Invalid("a name is not empty and has no slash or NUL"));
        }
        Ok(EntryName { bytes, hash: hash.of(bytes) })
    }

    /// Checks a name to be made, moved or removed, which excludes the dots.
    ///
    /// # Errors
    /// See [`EntryName::new`], and [`PoolError::Invalid`] for the dots.
    pub(crate) fn changeable(bytes: &'a [u8], hash: &super::NameHash) -> Result<EntryName<'a>, PoolError> {
        if bytes == b"." || bytes == b".." {
            return Err(PoolError::Invalid("the dots cannot be made, moved or removed"));
        }
        EntryName::new(bytes, hash)
    }
}

/// An entry and its place.
#[derive(Clone, Debug)]
pub(crate) struct FoundEntry {
    pub(crate) cookie: u64,
    pub(crate) item: DirItem,
}

impl Op<'_> {
    /// Looks a name up.
    pub(crate) fn find_entry(&mut self, directory: Ino, name: EntryName<'_>) -> OpResult<Option<FoundEntry>> {
        let (first, last) = items::dir_cookies(name.hash);
        let root = self.tree_root();
        let range = items::dir_entry_key(directory, first)..=items::dir_entry_key(directory, last);
        let mut found = None;
        let mut nonsense = false;
        let _ = tree::scan(self, root, range, |key, value| match DirItem::decode(value) {
            Some(item) if item.name == name.bytes => {
                found = Some(FoundEntry { cookie: key.sub, item });
                ControlFlow::Break(())
            }
            Some(_) => ControlFlow::Continue(()),
            None => {
                nonsense = true;
                ControlFlow::Break(())
            }
        })?;
        if nonsense {
            return Err(damaged("directory", BlockNo(0), format!("an entry of directory {directory} makes no sense")));
        }
        Ok(found)
    }

    /// Looks up a name that must exist.
    pub(crate) fn entry_of(&mut self, directory: Ino, name: EntryName<'_>) -> OpResult<FoundEntry> {
        self.find_entry(directory, name)?.ok_or_else(|| PoolError::NotFound.into())
    }

    /// Adds a name that does not exist, and notes the change in the directory's inode.
    pub(crate) fn add_entry(
        &mut self,
        directory: &mut Inode,
        name: EntryName<'_>,
        child: &Inode,
        now: Timestamp,
    ) -> OpResult<()> {
        let (first, last) = items::dir_cookies(name.hash);
        let root = self.tree_root();
        let ino = directory.attr.ino;
        let mut taken = Vec::new();
        let range = items::dir_entry_key(ino, first)..=items::dir_entry_key(ino, last);
        let _ = tree::scan(self, root, range, |key, _| -> ControlFlow<()> {
            taken.push(key.sub);
            ControlFlow::Continue(())
        })?;
        let cookie = (first..=last).find(|cookie| !taken.contains(cookie)).ok_or(PoolError::NoSpace)?;
        let item = DirItem { ino: child.attr.ino, kind: child.attr.kind, name: name.bytes.to_vec() };
        self.put_item(&items::dir_entry_key(ino, cookie), &item.encode())?;
        directory.attr.size_bytes += 1;
        if child.attr.kind == FileKind::Directory {
            directory.attr.link_count = directory.attr.link_count.checked_add(1).ok_or(PoolError::TooManyLinks)?;
        }
        self.touch_directory(directory, now)
    }

    /// Removes an entry, and notes the change in the directory's inode.
    pub(crate) fn remove_entry(&mut self, directory: &mut Inode, entry: &FoundEntry, now: Timestamp) -> OpResult<()> {
        self.remove_found_item(&items::dir_entry_key(directory.attr.ino, entry.cookie))?;
        directory.attr.size_bytes = directory.attr.size_bytes.saturating_sub(1);
        if entry.item.kind == FileKind::Directory {
            directory.attr.link_count = directory.attr.link_count.saturating_sub(1);
        }
        self.touch_directory(directory, now)
    }

    fn touch_directory(&mut self, directory: &mut Inode, now: Timestamp) -> OpResult<()> {
        directory.attr.modified = now;
        directory.attr.changed = now;
        self.put_inode(directory)
    }

    /// Returns whether a directory has no entries.
    pub(crate) fn is_empty_directory(&mut self, ino: Ino) -> OpResult<bool> {
        let root = self.tree_root();
        let range = items::dir_entry_key(ino, 0)..=items::dir_entry_key(ino, u64::MAX);
        Ok(tree::scan(self, root, range, |_, _| ControlFlow::Break(()))?.is_continue())
    }

    /// Returns up to `count` entries after a cookie, without the dots.
    pub(crate) fn list_entries(&mut self, ino: Ino, after: u64, count: usize) -> OpResult<Vec<DirEntry>> {
        let root = self.tree_root();
        let mut found = Vec::new();
        let mut nonsense = false;
        let first = items::dir_entry_key(ino, after.saturating_add(1));
        let _ = tree::scan(self, root, first..=items::dir_entry_key(ino, items::DIR_COOKIE_MAX), |key, value| {
            match DirItem::decode(value) {
                Some(item) => found.push(DirEntry { ino: item.ino, kind: item.kind, name: item.name, cookie: key.sub }),
                None => nonsense = true,
            }
            if nonsense || found.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if nonsense {
            return Err(damaged("directory", BlockNo(0), format!("an entry of directory {ino} makes no sense")));
        }
        Ok(found)
    }
}
