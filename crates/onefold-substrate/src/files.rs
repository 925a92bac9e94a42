//! Files of a file system: opening, reading, writing, and making durable.

use std::io;
use std::path::Path;
use std::sync::Arc;

use onefold_block::Timestamp;

use crate::file::{Access, FileHandle, FileStat};
use crate::protection::{Protection, UserNo};

/// Read at once to bring it in, where there is no other way.
const READ_BYTES: u64 = 1 << 20;

/// What any thread reads an open file by.
pub trait Reader: Send + Sync {
    /// As [`Files::read_at`].
    ///
    /// # Errors
    /// Those of the device.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Told of a range that will be read after others: asks the disk for it where that pays. Nothing else depends on
    /// it.
    fn prefetch(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }
}

/// Files of one file system, as a host has it mounted.
pub trait Files {
    /// An open file. Dropping it closes it, and lets go of its lock.
    type File;

    /// Returns the user for whom this opens and creates files.
    fn user(&self) -> UserNo;

    /// Returns what protects an open file.
    ///
    /// # Errors
    /// Those of the device.
    fn protection(&self, file: &Self::File) -> io::Result<Protection>;

    /// Sets the permission bits of an open file.
    ///
    /// # Errors
    /// `PermissionDenied` for all but its owner and root; those of the device.
    fn set_mode(&self, file: &Self::File, mode: u32) -> io::Result<()>;

    /// Opens a regular file.
    ///
    /// # Errors
    /// Those of `openat2(2)`: `NotFound`; `PermissionDenied`; `CrossesDevices` where the path leads to another file
    /// system; `FilesystemLoop` where it has a symbolic link; `InvalidInput` where it is no regular file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Self::File>;

    /// Opens a regular file by what stands for it, whatever its names.
    ///
    /// # Errors
    /// `Unsupported`, or `PermissionDenied`, where that cannot be done; `NotFound` where there is no such file any
    /// more.
    fn open_handle(&self, handle: &FileHandle, access: Access) -> io::Result<Self::File> {
        let _ = (handle, access);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Creates a file that only its owner may read, and opens it for writing.
    ///
    /// # Errors
    /// `AlreadyExists`; those of [`Files::open`]; no space.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Returns what a file is and when it was changed.
    ///
    /// # Errors
    /// Those of the device.
    fn stat(&self, file: &Self::File) -> io::Result<FileStat>;

    /// Reads from an offset until `into` is full or the file ends; returns how many bytes were read.
    ///
    /// # Errors
    /// Those of the device.
    fn read_at(&self, file: &Self::File, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Returns what other threads read a file by. It keeps the file open, and its lock and exclusive use with it, until
    /// it is dropped. None where only the caller's own thread may read.
    fn reader(&self, file: &Self::File) -> Option<Arc<dyn Reader>> {
        let _ = file;
        None
    }

    /// As [`Files::reader`], of a file that stays open until the reader is dropped.
    fn borrowed_reader<'f>(&'f self, file: &'f Self::File) -> Option<Arc<dyn Reader + 'f>> {
        let reader: Arc<dyn Reader> = self.reader(file)?;
        Some(reader)
    }

    /// Returns the file for libraries that read files of the operating system only. It keeps the file open, as a reader
    /// does. None where it is no such file.
    ///
    /// # Errors
    /// Too many open files.
    fn as_system_file(&self, file: &Self::File) -> io::Result<Option<std::fs::File>> {
        let _ = file;
        Ok(None)
    }

    /// Asks for a range to be brought into memory, and does not wait for it. Whoever reads it soon waits for less, and
    /// nothing else depends on it.
    fn prefetch(&self, file: &Self::File, offset: u64, length: u64) {
        let _ = (file, offset, length);
    }

    /// Brings a range into memory and waits for it, so that whoever works on it next need not wait for the disk. What
    /// is behind the end of the file is left out.
    ///
    /// # Errors
    /// Those of the device.
    fn bring_in(&self, file: &Self::File, offset: u64, length: u64) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(length.min(READ_BYTES)).expect("a small number")];
        let mut done = 0;
        while done < length {
            let at_once = usize::try_from((length - done).min(READ_BYTES)).expect("a small number");
            match self.read_at(file, offset + done, &mut bytes[..at_once])? {
                0 => break,
                count => done += count as u64,
            }
        }
        Ok(())
    }

    /// Writes all of `from`. Nothing is durable before [`Files::sync`].
    ///
    /// # Errors
    /// No space; those of the device. Any part may have been written then.
    fn write_at(&self, file: &Self::File, offset: u64, from: &[u8]) -> io::Result<()>;

    /// Asks for what was written to a range to be brought to the disk, and does not wait for it. [`Files::sync`] has
    /// less to wait for then, and nothing else depends on it.
    fn write_back(&self, file: &Self::File, offset: u64, length: u64) {
        let _ = (file, offset, length);
    }

    /// Sets a file's length: what is beyond is dropped, what is new is a hole.
    ///
    /// # Errors
    /// No space; those of the device.
    fn set_len(&self, file: &Self::File, length: u64) -> io::Result<()>;

    /// Makes a file's content, length and times durable, and the name that it was created with, if it was created so. A
    /// name given to it afterwards never leads to less.
    ///
    /// # Errors
    /// Those of the device; what was written before may be lost then.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Has all that was written to a file so far get its place, so that maps tell it. Whoever writes to it should not
    /// wait for that, as he may for [`Files::sync`]; nothing is durable for it.
    ///
    /// # Errors
    /// Those of the device; what was written before may be lost then.
    fn settle(&self, file: &Self::File) -> io::Result<()> {
        self.sync(file)
    }

    /// Sets when a file's content changed last: for who has put back what was in it then.
    ///
    /// # Errors
    /// `Unsupported`; `PermissionDenied`; those of the device.
    fn set_modified(&self, file: &Self::File, modified: Timestamp) -> io::Result<()> {
        let _ = (file, modified);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// As [`Names::attribute`](crate::Names::attribute), of an open file: no other file can take its place meanwhile.
    ///
    /// # Errors
    /// Those of the device.
    fn attribute_of(&self, file: &Self::File, name: &str) -> io::Result<Option<Vec<u8>>> {
        let _ = (file, name);
        Ok(None)
    }
}
