//! Names beneath the root.
//!
//! Whoever owns the images may rename and replace things while they are looked for. So no path is ever resolved by
//! hand: the kernel does it from the root's descriptor, and refuses symbolic links, other mounts and ways out in the
//! same step.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, retry_on_intr};

use super::sys::{self, RawHandle};

/// The folder beneath which all names are.
#[derive(Debug)]
pub(super) struct Root {
    folder: OwnedFd,
}

impl Root {
    /// Opens the root. Its own path is the caller's word: symbolic links in it are followed.
    pub(super) fn open(path: &Path) -> Result<Root, Errno> {
        // O_PATH: nothing is read through it, so that the right to enter the folder is enough.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())).map(|folder| Root { folder })
    }

    /// Returns the root's descriptor.
    pub(super) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// Opens a folder, for reading what is in it.
    pub(super) fn open_folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = checked(path)?;
        Ok(quietly(OFlags::DIRECTORY, |flags| self.open_beneath(path, flags, Mode::empty()))?)
    }

    /// Opens a regular file.
    pub(super) fn open_file(&self, path: &Path, access: OFlags) -> io::Result<OwnedFd> {
        let path = checked(path)?;
        // To open a device can do something to it, and what O_PATH opens is not opened. Between the look and the
        // opening another thing may take the name; only who may make devices can put one there, and a pipe does not
        // wait.
        check_regular(&self.open_beneath(path, OFlags::PATH, Mode::empty())?)?;
        // O_NONBLOCK is without meaning for regular files, but for one thing: a lease that the owner has taken is not
        // waited for, the call fails with EAGAIN.
        let file = quietly(access | OFlags::NONBLOCK, |flags| self.open_beneath(path, flags, Mode::empty()))?;
        check_regular(&file)?;
        Ok(file)
    }

    /// Opens a regular file by its handle. `NotFound` where there is none any more.
    pub(super) fn open_handle(&self, handle: &RawHandle, access: OFlags) -> io::Result<OwnedFd> {
        // What is open for names only stands for no mount.
        let mount = self.open_folder(Path::new(""))?;
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match retry_on_intr(|| sys::open_by_handle(mount.as_fd(), handle, flags)) {
            Err(Errno::STALE) => return Err(io::ErrorKind::NotFound.into()),
            opened => opened?,
        };
        check_regular(&file)?;
        Ok(file)
    }

    /// Opens a regular file or a folder, for what is said of it rather than what is in it.
    pub(super) fn open_any(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = checked(path)?;
        // As in `open_file`.
        let found = rustix::fs::fstat(self.open_beneath(path, OFlags::PATH, Mode::empty())?)?;
        if !matches!(FileType::from_raw_mode(found.st_mode), FileType::RegularFile | FileType::Directory) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(quietly(OFlags::RDONLY | OFlags::NONBLOCK, |flags| self.open_beneath(path, flags, Mode::empty()))?)
    }

    /// Creates a file with these permissions, or what the umask leaves of them; returns it and the folder that it is in.
    pub(super) fn create_file(&self, path: &Path, mode: Mode) -> io::Result<(OwnedFd, OwnedFd)> {
        let (folder, name) = self.split(path, OFlags::RDONLY)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = retry_on_intr(|| rustix::fs::openat(&folder, name, flags, mode))?;
        Ok((file, folder))
    }

    /// Returns the folder that a name is in, only good for going on from there, and the name.
    pub(super) fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        self.split(path, OFlags::PATH)
    }

    fn split<'a>(&self, path: &'a Path, access: OFlags) -> io::Result<(OwnedFd, &'a OsStr)> {
        let path = checked(path)?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok((self.open_beneath(folder, access | OFlags::DIRECTORY, Mode::empty())?, name))
    }

    fn open_beneath(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = flags | OFlags::CLOEXEC;
        // No O_NOFOLLOW: together with O_PATH it would open a symbolic link itself. NO_SYMLINKS refuses those at the
        // end too.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        retry_on_intr(|| openat2(&self.folder, path, flags, mode, resolve))
    }
}

/// Refuses paths that could lead out of the root, or need the kernel's care not to: `..` and absolute ones.
fn checked(path: &Path) -> io::Result<&Path> {
    let is_beneath = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    is_beneath.then_some(path).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Opens without leaving a trace in the time of last access, where that is permitted: to the owner and to root.
fn quietly(flags: OFlags, open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        outcome => outcome,
    }
}

fn check_regular(file: &OwnedFd) -> io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
    if kind == FileType::RegularFile { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_beneath_the_root_pass() {
        for path in ["", ".", "a", "a/b", "./a", "a/./b"] {
            checked(Path::new(path)).unwrap();
        }
        for path in ["/", "/a", "..", "a/..", "a/../b", "./../a"] {
            assert_eq!(checked(Path::new(path)).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}
