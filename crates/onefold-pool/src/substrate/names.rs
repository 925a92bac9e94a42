//! Resolves paths to inodes: one name after another from a folder on, without following symbolic links or leaving it.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use onefold_substrate::{FolderEntry, ListedKind, UserNo};

use super::errors::io_error;
use crate::attr::{Attr, FileKind, Ino, NewFile};
use crate::pool::Pool;

/// `ELOOP`, for which the standard library has no stable name.
const SYMBOLIC_LINK: i32 = 40;

/// An inode that stays alive while this exists.
pub(super) struct HeldInode<'a> {
    pool: &'a Pool,
    attr: Attr,
}

impl<'a> HeldInode<'a> {
    /// Takes over the hold that came with the attributes.
    fn new(pool: &'a Pool, attr: Attr) -> HeldInode<'a> {
        HeldInode { pool, attr }
    }

    pub(super) fn ino(&self) -> Ino {
        self.attr.ino
    }

    pub(super) fn owner(&self) -> UserNo {
        UserNo(self.attr.uid)
    }

    pub(super) fn pool(&self) -> &'a Pool {
        self.pool
    }

    fn look_up(&self, name: &OsStr) -> io::Result<HeldInode<'a>> {
        let found = self.pool.lookup(self.ino(), name.as_bytes()).map_err(io_error)?;
        Ok(HeldInode::new(self.pool, found))
    }

    fn into_folder(self) -> io::Result<HeldInode<'a>> {
        match self.attr.kind {
            FileKind::Directory => Ok(self),
            FileKind::Symlink => Err(io::Error::from_raw_os_error(SYMBOLIC_LINK)),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }
}

impl Drop for HeldInode<'_> {
    fn drop(&mut self) {
        self.pool.release(self.attr.ino, 1);
    }
}

/// Returns a pool's root folder.
pub(super) fn root(pool: &Pool) -> io::Result<HeldInode<'_>> {
    Ok(HeldInode::new(pool, pool.lookup(Ino::ROOT, b".").map_err(io_error)?))
}

/// Returns the names of a path, which must not lead out of the folder at which it begins.
fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        }
    }
    Ok(names)
}

fn walk<'a>(pool: &'a Pool, from: &HeldInode<'_>, names: &[&OsStr]) -> io::Result<HeldInode<'a>> {
    let mut at = HeldInode::new(pool, pool.lookup(from.ino(), b".").map_err(io_error)?);
    for name in names {
        at = at.look_up(name)?.into_folder()?;
    }
    Ok(at)
}

/// Finds a folder.
pub(super) fn find_folder<'a>(pool: &'a Pool, from: &HeldInode<'_>, path: &Path) -> io::Result<HeldInode<'a>> {
    walk(pool, from, &names(path)?)
}

/// Finds the folder of an existing or new name, and the name.
pub(super) fn place<'a, 'p>(
    pool: &'a Pool,
    from: &HeldInode<'_>,
    path: &'p Path,
) -> io::Result<(HeldInode<'a>, &'p [u8])> {
    let names = names(path)?;
    let (name, folders) = names.split_last().ok_or(io::ErrorKind::InvalidInput)?;
    Ok((walk(pool, from, folders)?, name.as_bytes()))
}

/// Finds a regular file.
pub(super) fn find_file<'a>(pool: &'a Pool, from: &HeldInode<'_>, path: &Path) -> io::Result<HeldInode<'a>> {
    let (folder, name) = place(pool, from, path)?;
    let found = folder.look_up(OsStr::from_bytes(name))?;
    match found.attr.kind {
        FileKind::Regular => Ok(found),
        FileKind::Symlink => Err(io::Error::from_raw_os_error(SYMBOLIC_LINK)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Returns the attributes of a new file that only its owner may use, and that belongs to the folder's owner.
fn new_in(folder: &HeldInode<'_>, kind: FileKind, mode: u16) -> NewFile {
    NewFile { kind, mode, umask: 0, uid: folder.attr.uid, gid: folder.attr.gid, rdev: 0 }
}

/// Creates a file.
pub(super) fn create_file<'a>(pool: &'a Pool, from: &HeldInode<'_>, path: &Path) -> io::Result<HeldInode<'a>> {
    let (folder, name) = place(pool, from, path)?;
    let new = new_in(&folder, FileKind::Regular, 0o600);
    Ok(HeldInode::new(pool, pool.create_file(folder.ino(), name, &new).map_err(io_error)?))
}

/// Creates a folder.
pub(super) fn create_folder(pool: &Pool, from: &HeldInode<'_>, path: &Path) -> io::Result<()> {
    let (folder, name) = place(pool, from, path)?;
    let new = new_in(&folder, FileKind::Directory, 0o700);
    drop(HeldInode::new(pool, pool.create_file(folder.ino(), name, &new).map_err(io_error)?));
    Ok(())
}

/// Lists the entries of a folder.
pub(super) fn list(pool: &Pool, folder: &HeldInode<'_>) -> io::Result<Vec<FolderEntry>> {
    let mut listed = Vec::new();
    let each = &mut |entry: &crate::attr::DirEntry| {
        if !matches!(&entry.name[..], b"." | b"..") {
            let kind = match entry.kind {
                FileKind::Regular => ListedKind::File,
                FileKind::Directory => ListedKind::Folder,
                FileKind::Symlink
                | FileKind::Fifo
                | FileKind::Socket
                | FileKind::CharDevice
                | FileKind::BlockDevice => ListedKind::Other,
            };
            let name = PathBuf::from(std::ffi::OsString::from_vec(entry.name.clone()));
            listed.push(FolderEntry { name, kind });
        }
        ControlFlow::Continue(())
    };
    pool.read_directory(folder.ino(), 0, each).map_err(io_error)?;
    Ok(listed)
}
