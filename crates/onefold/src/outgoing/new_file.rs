//! A new file that appears under its name when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use onefold_block::Show;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::failure::{Failure, Outcome};

/// A new file with a temporary name. It is removed if it is dropped unpublished.
pub(super) struct UnpublishedFile {
    /// The file itself. It is not opened again by its name, under which another user of the directory may have put
    /// something else.
    file: File,
    name: PathBuf,
    temporary: PathBuf,
    is_published: bool,
}

impl UnpublishedFile {
    /// Makes a file that lets others do no more than `mode`.
    pub(super) fn create(name: &Path, mode: u16) -> Outcome<UnpublishedFile> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
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
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = name.with_file_name(format!(".onefold-export-{}-{number}", std::process::id()));
        // The writer of qcow2 reads its own tables.
        let created = OpenOptions::new().read(true).write(true).create_new(true).mode(u32::from(mode)).open(&temporary);
        let file = created.map_err(|error| Failure::of_io(cannot(), &error))?;
        Ok(UnpublishedFile { file, name: name.to_owned(), temporary, is_published: false })
    }

    /// Returns the name that it will have.
    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    /// Returns the name that it has until then.
    #[cfg(test)]
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Returns a further descriptor of the file, open for reading and writing.
    pub(super) fn descriptor(&self) -> Outcome<File> {
        self.file.try_clone().map_err(|error| self.cannot(&error))
    }

    /// Gives the file its name, durably. Its content must be durable before.
    pub(super) fn publish(mut self) -> Outcome<()> {
        match renameat_with(CWD, &self.temporary, CWD, &self.name, RenameFlags::NOREPLACE) {
            Ok(()) => self.is_published = true,
            // NFS cannot refuse to replace a file in a rename. A second name never replaces one; dropping removes the first.
            Err(Errno::INVAL) => fs::hard_link(&self.temporary, &self.name).map_err(|error| self.cannot(&error))?,
            Err(errno) => return Err(self.cannot(&io::Error::from(errno))),
        }
        let directory = match self.name.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(|error| self.cannot(&error))
    }

    fn cannot(&self, error: &io::Error) -> Failure {
        Failure::of_io(format!("cannot write `{}`", self.name.shown()), error)
    }
}

impl Drop for UnpublishedFile {
    fn drop(&mut self) {
        if !self.is_published {
            // A file that cannot be removed has a name that says what it is.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_name_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("x".repeat(255));
        drop(UnpublishedFile::create(&name, 0o644).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

        let file = UnpublishedFile::create(&name, 0o644).unwrap();
        let late = UnpublishedFile::create(&name, 0o644).unwrap();
        assert!(!name.exists());
        file.publish().unwrap();
        assert!(name.exists());
        assert!(UnpublishedFile::create(&name, 0o644).is_err(), "an existing file is not overwritten");
        assert!(late.publish().is_err(), "a file that appeared meanwhile is not overwritten");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_hint_never_suggests_removing_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let failure = UnpublishedFile::create(folder.path(), 0o644).err().unwrap();
        assert!(!failure.to_string().contains("remove"), "{failure}");
    }
}
