//! Names beneath the root.
//!
//! Owners of images may rename and replace files and folders during a look-up. So this module never resolves a path by
//! hand: the kernel does it, from the descriptor of the root or of a kept folder. In the same step it refuses symbolic
//! links, other mounts, and ways out of the root.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use onefold_substrate::{Protection, UserNo};
use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, retry_on_intr};

use crate::sys::handles::{self, RawHandle};

/// The folder above all names.
#[derive(Debug)]
pub(super) struct RootFolder {
    folder: Arc<OwnedFd>,
    kept: Mutex<Vec<KeptFolder>>,
}

/// A folder that stays open: paths that begin with its path are resolved from it, whatever bears its name by then.
#[derive(Debug)]
struct KeptFolder {
    path: PathBuf,
    folder: Arc<OwnedFd>,
}

impl RootFolder {
    /// Opens the root. Its own path is trusted: symbolic links in it are followed.
    pub(super) fn open(path: &Path) -> Result<RootFolder, Errno> {
        // O_PATH: nothing is read through it, so permission to enter the folder is enough.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
        Ok(RootFolder { folder: Arc::new(folder), kept: Mutex::default() })
    }

    /// Opens a folder and keeps it open; returns its protection. The empty path is the root itself.
    pub(super) fn keep(&self, path: &Path) -> io::Result<Protection> {
        let Some(folder) = self.open_by_name(path)? else { return protection(&self.folder) };
        let protection = protection(&folder)?;
        let mut kept = self.kept.lock();
        kept.retain(|kept| !kept.path.starts_with(path));
        kept.push(KeptFolder { path: path.to_owned(), folder: Arc::new(folder) });
        Ok(protection)
    }

    /// Returns whether the name of a kept folder still leads to it.
    pub(super) fn is_kept(&self, path: &Path) -> io::Result<bool> {
        let found = match self.open_by_name(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            found => found?,
        };
        let Some(found) = found else { return Ok(true) };
        let kept = self.kept.lock().iter().find(|kept| kept.path == path).map(|kept| Arc::clone(&kept.folder));
        let Some(kept) = kept else { return Ok(false) };
        let [found, kept] = [rustix::fs::fstat(&found)?, rustix::fs::fstat(&*kept)?];
        Ok((found.st_dev, found.st_ino) == (kept.st_dev, kept.st_ino))
    }

    /// Sets the permission bits of a kept folder.
    pub(super) fn set_kept_mode(&self, path: &Path, mode: Mode) -> io::Result<()> {
        if !self.kept.lock().iter().any(|kept| kept.path == path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // fchmod refuses an O_PATH descriptor, so the folder is opened again from it.
        Ok(rustix::fs::fchmod(self.open_folder(path)?, mode)?)
    }

    /// Opens a folder by its name in the parent folder; `None` for the root.
    fn open_by_name(&self, path: &Path) -> io::Result<Option<OwnedFd>> {
        let path = checked(path)?;
        let (Some(name), Some(above)) = (path.file_name(), path.parent()) else { return Ok(None) };
        let (base, rest) = self.base(above);
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Ok(Some(open_beneath(&base, &rest.join(name), flags, Mode::empty())?))
    }

    /// Returns the innermost kept folder on a path, or the root, and the rest of the path.
    fn base<'a>(&self, path: &'a Path) -> (Arc<OwnedFd>, &'a Path) {
        let kept = self.kept.lock();
        let on_path = kept.iter().filter_map(|kept| Some((kept, path.strip_prefix(&kept.path).ok()?)));
        match on_path.min_by_key(|(_, rest)| rest.as_os_str().len()) {
            Some((kept, rest)) => (Arc::clone(&kept.folder), rest),
            None => (Arc::clone(&self.folder), path),
        }
    }

    /// Returns the root's descriptor.
    pub(super) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// Opens a folder for listing.
    pub(super) fn open_folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = checked(path)?;
        Ok(quietly(OFlags::DIRECTORY, |flags| self.open_beneath(path, flags, Mode::empty()))?)
    }

    /// Opens a regular file.
    pub(super) fn open_file(&self, path: &Path, access: OFlags) -> io::Result<OwnedFd> {
        let path = checked(path)?;
        // Opening a device can have effects, and O_PATH opens nothing. Another file may take the name between the check
        // and the opening, but only a process that may make devices can put a device there, and O_NONBLOCK does not
        // wait for a pipe.
        check_regular(&self.open_beneath(path, OFlags::PATH, Mode::empty())?)?;
        // For regular files, O_NONBLOCK has a single effect: if the owner holds a lease, the call fails with EAGAIN
        // instead of waiting.
        let file = quietly(access | OFlags::NONBLOCK, |flags| self.open_beneath(path, flags, Mode::empty()))?;
        check_regular(&file)?;
        Ok(file)
    }

    /// Opens a regular file by its handle. `NotFound` if it no longer exists.
    pub(super) fn open_handle(&self, handle: &RawHandle, access: OFlags) -> io::Result<OwnedFd> {
        // An O_PATH descriptor cannot name a mount in this call.
        let mount = self.open_folder(Path::new(""))?;
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match retry_on_intr(|| handles::open_by_handle(mount.as_fd(), handle, flags)) {
            Err(Errno::STALE) => return Err(io::ErrorKind::NotFound.into()),
            opened => opened?,
        };
        check_regular(&file)?;
        Ok(file)
    }

    /// Opens a regular file or a folder for its metadata, not its content.
    pub(super) fn open_any(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = checked(path)?;
        // The check is needed for the reasons given in `open_file`.
        let found = rustix::fs::fstat(self.open_beneath(path, OFlags::PATH, Mode::empty())?)?;
        if !matches!(FileType::from_raw_mode(found.st_mode), FileType::RegularFile | FileType::Directory) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(quietly(OFlags::RDONLY | OFlags::NONBLOCK, |flags| self.open_beneath(path, flags, Mode::empty()))?)
    }

    /// Creates a file with the given permissions, less those that the umask removes. Returns the file and its folder.
    pub(super) fn create_file(&self, path: &Path, mode: Mode) -> io::Result<(OwnedFd, OwnedFd)> {
        let (folder, name) = self.split(path, OFlags::RDONLY)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = retry_on_intr(|| rustix::fs::openat(&folder, name, flags, mode))?;
        Ok((file, folder))
    }

    /// Returns the folder of a name, fit only as the base of further look-ups, and the name.
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
        let (base, rest) = self.base(path);
        open_beneath(&base, rest, flags, mode)
    }
}

/// Returns a name of a folder as a path.
pub(super) fn path_of(name: &CStr) -> PathBuf {
    OsStr::from_bytes(name.to_bytes()).into()
}

fn open_beneath(folder: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = flags | OFlags::CLOEXEC;
    // No O_NOFOLLOW: together with O_PATH it would open a symbolic link itself. NO_SYMLINKS also refuses one at the
    // end.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    retry_on_intr(|| openat2(folder, path, flags, mode, resolve))
}

/// Returns the protection of an open file or folder.
pub(super) fn protection(opened: impl AsFd) -> io::Result<Protection> {
    let stat = rustix::fs::fstat(opened)?;
    #[allow(clippy::useless_conversion, reason = "the width of the count differs between machines")]
    let links = u64::from(stat.st_nlink);
    Ok(Protection { owner: UserNo(stat.st_uid), mode: stat.st_mode & Protection::MODE, links })
}

/// Refuses `..` and absolute paths, which could lead out of the root.
fn checked(path: &Path) -> io::Result<&Path> {
    let is_beneath = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    is_beneath.then_some(path).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Opens without changing the time of last access if the kernel permits it: to the owner and to root.
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
