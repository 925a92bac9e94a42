//! Clones of whole files.

use std::io;
use std::path::Path;

use onefold_substrate::ShareError;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, IFlags, Mode, ioctl_ficlone, ioctl_getflags, ioctl_setflags};
use rustix::io::retry_on_intr;

use crate::file::LinuxFile;
use crate::names::RootFolder;
use crate::share;

/// Creates a clone of a file. If cloning fails after the name was created, the name is removed again.
pub(super) fn create_clone(root: &RootFolder, source: &LinuxFile, path: &Path) -> Result<LinuxFile, ShareError> {
    let from = rustix::fs::fstat(source.as_fd()).map_err(io::Error::from)?;
    let (file, folder) = root.create_file(path, Mode::from_raw_mode(from.st_mode & 0o777))?;
    let clone = LinuxFile::created(file, folder);
    // A `nodatacow` file shares its blocks only with another one. The flag can be set as long as a file is empty.
    if let Ok(flags) = ioctl_getflags(source.as_fd())
        && flags.contains(IFlags::NOCOW)
    {
        let own = ioctl_getflags(clone.as_fd()).unwrap_or(IFlags::empty());
        // If this fails, cloning fails, too, and reports why.
        let _ = ioctl_setflags(clone.as_fd(), own | IFlags::NOCOW);
    }
    match ioctl_ficlone(clone.as_fd(), source.as_fd()) {
        Ok(()) => Ok(clone),
        Err(errno) => {
            let why = share::meaning_of_clone(errno, source, &clone);
            let (folder, name) = root.parent(path)?;
            let _ = retry_on_intr(|| rustix::fs::unlinkat(&folder, name, AtFlags::empty()));
            Err(why)
        }
    }
}
