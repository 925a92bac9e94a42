//! The real files of a folder, accessed through one descriptor of it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_block::Timestamp;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::files::{EntryKind, Files};
use crate::store::{ByteRange, within};

/// Mode of files and folders: only their owner has access.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const FOLDER_MODE: Mode = Mode::RWXU;
/// Maximum number of `openat2` attempts while concurrent renames disturb it.
const ATTEMPTS_MAX: usize = 16;

/// Files of a real folder.
#[derive(Debug)]
pub(super) struct RealFiles {
    root: OwnedFd,
}

impl RealFiles {
    /// Opens the folder that the user names.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub(super) fn open(path: &Path) -> io::Result<RealFiles> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(RealFiles { root: rustix::fs::open(path, flags, Mode::empty())? })
    }

    fn open_at(&self, path: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { "." } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let mut result = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS_MAX {
            result = openat2(&self.root, path, flags | OFlags::CLOEXEC, mode, resolve);
            if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        Ok(result?)
    }

    /// Opens a file to read it; `None` if the name is not a regular file.
    fn regular_file(&self, path: &str) -> io::Result<Option<(File, u64)>> {
        // Without NONBLOCK, the open of a FIFO would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match self.open_at(path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        Ok(metadata.is_file().then_some((file, metadata.len())))
    }

    fn folder(&self, path: &str) -> io::Result<OwnedFd> {
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }
}

impl Files for RealFiles {
    type File = File;

    fn make_file(&self, path: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        self.open_at(path, flags, FILE_MODE).map(File::from)
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync_file(&self, file: &mut File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_named(&self, path: &str) -> io::Result<()> {
        self.regular_file(path)?.map_or(Ok(()), |(file, _)| file.sync_all())
    }

    fn link(&self, folder: &str, from: &str, to: &str) -> io::Result<()> {
        let folder = self.folder(folder)?;
        Ok(rustix::fs::linkat(&folder, from, &folder, to, AtFlags::empty())?)
    }

    fn rename(&self, folder: &str, from: &str, to: &str) -> io::Result<()> {
        let folder = self.folder(folder)?;
        Ok(rustix::fs::renameat(&folder, from, &folder, to)?)
    }

    fn unlink(&self, folder: &str, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self.folder(folder)?, name, AtFlags::empty())?)
    }

    fn make_folder(&self, folder: &str, name: &str) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(self.folder(folder)?, name, FOLDER_MODE)?)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.folder(folder)?)?)
    }

    fn read(&self, path: &str, range: ByteRange) -> io::Result<Option<Vec<u8>>> {
        let Some((file, file_bytes)) = self.regular_file(path)? else { return Ok(None) };
        let (start, length) = within(range, file_bytes);
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, start)?;
        Ok(Some(bytes))
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::new(self.folder(folder)?)? {
            if let Ok(name) = entry?.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn find(&self, folder: &str, name: &str) -> io::Result<EntryKind> {
        let stat = rustix::fs::statat(self.folder(folder)?, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File {
                length_bytes: u64::try_from(stat.st_size).unwrap_or(0),
                modified: Timestamp {
                    seconds: stat.st_mtime,
                    nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
                },
            },
            FileType::Directory => EntryKind::Folder,
            _ => EntryKind::Other,
        })
    }
}
