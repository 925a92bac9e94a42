//! Names beneath the root.
//!
//! The owners of the images may rename and replace things during a look-up. So no path is ever resolved by hand: the
//! kernel does it from the descriptor of the root, or of a folder that is kept open, and refuses symbolic links, other
//! mounts and ways out in the same step.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use onefold_substrate::{Protection, UserNo};
use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, retry_on_intr};

use crate::sys::{self, RawHandle};

/// The folder beneath which all names are.
#[derive(Debug)]
pub(super) struct Root {
    folder: Arc<OwnedFd>,
    kept: Mutex<Vec<KeptFolder>>,
}

/// A folder that stays open: paths that begin with its path are resolved from here, whatever has its name by then.
#[derive(Debug)]
struct KeptFolder {
    path: PathBuf,
    folder: Arc<OwnedFd>,
}

impl Root {
    /// Opens the root. Its own path is the caller's word: symbolic links in it are followed.
    pub(super) fn open(path: &Path) -> Result<Root, Errno> {
        // O_PATH: nothing is read through it, so that the right to enter the folder is enough.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
        Ok(Root { folder: Arc::new(folder), kept: Mutex::default() })
    }

    /// Opens a folder and keeps it; returns what protects it. The empty path is the root itself.
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
        // A descriptor of O_PATH takes no mode; this one is of the same folder.
        Ok(rustix::fs::fchmod(self.open_folder(path)?, mode)?)
    }

    /// Opens a folder by its name in the folder above; none for the root.
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

    /// Creates a file with these permissions, or what the umask leaves of them; returns it and the folder that it is
    /// in.
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
        let (base, rest) = self.base(path);
        open_beneath(&base, rest, flags, mode)
    }
}

fn open_beneath(folder: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = flags | OFlags::CLOEXEC;
    // No O_NOFOLLOW: together with O_PATH it would open a symbolic link itself. NO_SYMLINKS refuses those at the
    // end too.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    retry_on_intr(|| openat2(folder, path, flags, mode, resolve))
}

/// Returns what protects an open file or folder.
pub(super) fn protection(opened: impl AsFd) -> io::Result<Protection> {
    let stat = rustix::fs::fstat(opened)?;
    #[allow(clippy::useless_conversion, reason = "the width of the count differs between machines")]
    let links = u64::from(stat.st_nlink);
    Ok(Protection { owner: UserNo(stat.st_uid), mode: stat.st_mode & Protection::MODE, links })
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
