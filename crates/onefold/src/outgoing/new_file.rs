//! A new file that appears under its name when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use onefold_block::Show;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, open, renameat_with};
use rustix::io::Errno;

use super::making;
use crate::failure::{Failure, Outcome};

/// A new file that has no name yet. Dropping it unpublished removes it.
pub(crate) struct UnpublishedFile {
    /// The file itself. It is not opened again by a name, under which another user of the directory may have put
    /// something else.
    file: File,
    name: PathBuf,
    /// Its name until then, on file systems that have no files without names. A killed process leaves such a file.
    temporary: Option<PathBuf>,
}

impl UnpublishedFile {
    /// Makes a file that lets others do no more than `mode`.
    pub(crate) fn create(name: &Path, mode: u16) -> Outcome<UnpublishedFile> {
        let cannot = || format!("cannot write `{}`", name.shown());
        if name.file_name().is_none() {
            return Err(Failure::usage(cannot()).because_of("it is not a file name"));
        }
        match fs::symlink_metadata(name) {
            Ok(metadata) if metadata.is_dir() => {
                let failure = Failure::new(cannot()).because_of("there is a directory of that name");
                return Err(failure.hint("give another name"));
            }
            Ok(_) => {
                let failure = Failure::new(cannot()).because_of("it exists");
                return Err(failure.hint("give another name, or remove that file first"));
            }
            Err(_) => {}
        }
        if is_among_devices(name) {
            return Err(no_device(cannot()));
        }
        let created = match create_unnamed(directory_of(name), mode) {
            Ok(file) => Ok(UnpublishedFile { file, name: name.to_owned(), temporary: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                UnpublishedFile::create_named(name, mode)
            }
            Err(errno) => Err(errno.into()),
        };
        created.map_err(|error| {
            let failure = Failure::of_io(cannot(), &error);
            match error.kind() {
                io::ErrorKind::NotFound => failure.hint(making(directory_of(name))),
                _ => failure,
            }
        })
    }

    fn create_named(name: &Path, mode: u16) -> io::Result<UnpublishedFile> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = name.with_file_name(format!(".onefold-export-{}-{number}", std::process::id()));
        // The writer of qcow2 reads its own tables.
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(u32::from(mode)).open(&temporary)?;
        Ok(UnpublishedFile { file, name: name.to_owned(), temporary: Some(temporary) })
    }

    /// Returns the name that it will have.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Returns a further descriptor of the file, open for reading and writing.
    pub(crate) fn descriptor(&self) -> Outcome<File> {
        self.file.try_clone().map_err(|error| self.cannot(&error))
    }

    /// Gives the file its name, which must be free, and makes the name durable. Its content must be durable before.
    pub(crate) fn publish(self) -> Outcome<()> {
        let named = match &self.temporary {
            Some(temporary) => match renameat_with(CWD, temporary, CWD, &self.name, RenameFlags::NOREPLACE) {
                // NFS cannot refuse to replace a file in a rename. A second name never replaces one.
                Err(Errno::INVAL) => linkat(CWD, temporary, CWD, &self.name, AtFlags::empty()),
                renamed => renamed,
            },
            None => {
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, own.as_str(), CWD, &self.name, AtFlags::SYMLINK_FOLLOW)
            }
        };
        named.map_err(|errno| self.cannot(&errno.into()))?;
        // A directory that may be written to but not read cannot be made durable.
        let Ok(directory) = File::open(directory_of(&self.name)) else { return Ok(()) };
        directory.sync_all().map_err(|error| self.cannot(&error))
    }

    fn cannot(&self, error: &io::Error) -> Failure {
        Failure::of_io(format!("cannot write `{}`", self.name.shown()), error)
    }
}

impl Drop for UnpublishedFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // After a rename nothing has this name. A file that cannot be removed has a name that says what it is.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Returns whether a file with this name would lie among the devices, in memory. The name is that of a device, then,
/// with a typing error, or of one that is gone.
pub(crate) fn is_among_devices(name: &Path) -> bool {
    let devices = Path::new("/dev");
    let Ok(folder) = directory_of(name).canonicalize() else { return false };
    let device_of = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    // Other file systems may be mounted below, as for shared memory. Without one of its own, it is a folder as any
    // other.
    folder.starts_with(devices)
        && device_of(devices) != device_of(Path::new("/"))
        && device_of(devices) == device_of(&folder)
}

/// Returns the failure for a name that [`is_among_devices`].
pub(crate) fn no_device(cannot: String) -> Failure {
    Failure::new(cannot).because_of("there is no such device").hint("`lsblk` lists the disks and their partitions")
}

/// Returns the directory that a name is in.
fn directory_of(name: &Path) -> &Path {
    name.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a file without a name, which is gone when its last descriptor is.
fn create_unnamed(directory: &Path, mode: u16) -> Result<File, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    open(directory, flags, Mode::from_raw_mode(u32::from(mode))).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_name_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let unnamed = |name: &Path| UnpublishedFile::create(name, 0o644).unwrap();
        let named = |name: &Path| UnpublishedFile::create_named(name, 0o644).unwrap();
        for (create, letter) in [(&unnamed as &dyn Fn(&Path) -> UnpublishedFile, "a"), (&named, "b")] {
            let name = folder.path().join(letter.repeat(255));
            let before = count();
            drop(create(&name));
            assert_eq!(count(), before);

            let (file, late) = (create(&name), create(&name));
            assert!(!name.exists());
            file.publish().unwrap();
            assert!(name.exists());
            assert!(UnpublishedFile::create(&name, 0o644).is_err(), "an existing file is not overwritten");
            assert!(late.publish().is_err(), "a file that appeared meanwhile is not overwritten");
            assert_eq!(count(), before + 1);
        }
    }

    #[test]
    fn a_hint_never_suggests_removing_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let failure = UnpublishedFile::create(folder.path(), 0o644).err().unwrap();
        assert!(!failure.to_string().contains("remove"), "{failure}");
    }
}
