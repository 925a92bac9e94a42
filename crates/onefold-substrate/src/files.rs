//! Files of a file system: opening, reading, writing, and making durable.

use std::io;
use std::path::Path;
use std::sync::Arc;

use onefold_block::Timestamp;

use crate::file::{Access, FileHandle, FileStat};
use crate::protection::{Protection, UserNo};

/// Size of one read that brings data in, if there is no other way.
const READ_BYTES: u64 = 1 << 20;

/// Reads an open file from any thread.
pub trait Reader: Send + Sync {
    /// See [`Files::read_at`].
    ///
    /// # Errors
    /// Those of the device.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Announces a range that will be read after others, so that the disk can start on it if that pays. Nothing else
    /// depends on it.
    fn prefetch(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }
}

/// The files of one file system, as mounted on one host.
pub trait Files {
    /// An open file. Dropping it closes the file and releases its lock.
    type File;

    /// Returns the user as whom this process opens and creates files.
    fn user(&self) -> UserNo;

    /// Returns the protection of an open file.
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
    /// Those of `openat2(2)`: `NotFound`; `PermissionDenied`; `CrossesDevices` if the path leads to another file
    /// system; `FilesystemLoop` if it has a symbolic link; `InvalidInput` if it leads to no regular file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Self::File>;

    /// Opens a regular file by its handle, whatever its names.
    ///
    /// # Errors
    /// `Unsupported` or `PermissionDenied` if opening by handle is impossible; `NotFound` if the file no longer exists.
    fn open_handle(&self, handle: &FileHandle, access: Access) -> io::Result<Self::File> {
        let _ = (handle, access);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Creates a file that only its owner may read, and opens it for writing.
    ///
    /// # Errors
    /// `AlreadyExists`; those of [`Files::open`]; no space.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Returns the identity, size, owner and times of a file.
    ///
    /// # Errors
    /// Those of the device.
    fn stat(&self, file: &Self::File) -> io::Result<FileStat>;

    /// Reads from an offset until `into` is full or the file ends. Returns the number of bytes read.
    ///
    /// # Errors
    /// Those of the device.
    fn read_at(&self, file: &Self::File, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Returns a reader of the file for other threads. Until it is dropped, the reader keeps the file open, with its
    /// lock and exclusive use. `None` if only the caller's own thread may read.
    fn reader(&self, file: &Self::File) -> Option<Arc<dyn Reader>> {
        let _ = file;
        None
    }

    /// Like [`Files::reader`], but borrows a file that stays open until the reader is dropped.
    fn borrowed_reader<'f>(&'f self, file: &'f Self::File) -> Option<Arc<dyn Reader + 'f>> {
        let reader: Arc<dyn Reader> = self.reader(file)?;
        Some(reader)
    }

    /// Returns the file for libraries that read only files of the operating system. It keeps the file open, as a reader
    /// does. `None` if the file is not one of the operating system's.
    ///
    /// # Errors
    /// Too many open files.
    fn as_system_file(&self, file: &Self::File) -> io::Result<Option<std::fs::File>> {
        let _ = file;
        Ok(None)
    }

    /// Requests that a range be brought into memory, without waiting for it. A reader that follows soon waits for less.
    /// Nothing else depends on it.
    fn prefetch(&self, file: &Self::File, offset: u64, length: u64) {
        let _ = (file, offset, length);
    }

    /// Brings a range into memory and waits for it, so that the next user of the range need not wait for the disk.
    /// Ignores the part of the range behind the end of the file.
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
    /// No space; those of the device. Any part of `from` may have been written then.
    fn write_at(&self, file: &Self::File, offset: u64, from: &[u8]) -> io::Result<()>;

    /// Requests that written data of a range be sent to the disk, without waiting for it. [`Files::sync`] then has less
    /// to wait for. Nothing else depends on it.
    fn write_back(&self, file: &Self::File, offset: u64, length: u64) {
        let _ = (file, offset, length);
    }

    /// Sets a file's length. Data beyond the new end is dropped, and an added part is a hole.
    ///
    /// # Errors
    /// No space; those of the device.
    fn set_len(&self, file: &Self::File, length: u64) -> io::Result<()>;

    /// Makes a file's content, length and times durable, and the name with which [`Files::create`] made it. A name that
    /// the file gets afterwards never leads to an older state.
    ///
    /// # Errors
    /// Those of the device; earlier writes may be lost then.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Gives all data written to a file so far its place on the device, so that maps show it. Other writers should not
    /// have to wait for this, as they may for [`Files::sync`]. Makes nothing durable.
    ///
    /// # Errors
    /// Those of the device; earlier writes may be lost then.
    fn settle(&self, file: &Self::File) -> io::Result<()> {
        self.sync(file)
    }

    /// Sets a file's modification time, for a caller that has restored the content of that time.
    ///
    /// # Errors
    /// `Unsupported`; `PermissionDenied`; those of the device.
    fn set_modified(&self, file: &Self::File, modified: Timestamp) -> io::Result<()> {
        let _ = (file, modified);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Like [`Names::attribute`](crate::Names::attribute), but of an open file: no other file can take its place
    /// meanwhile.
    ///
    /// # Errors
    /// Those of the device.
    fn attribute_of(&self, file: &Self::File, name: &str) -> io::Result<Option<Vec<u8>>> {
        let _ = (file, name);
        Ok(None)
    }

    /// Like [`Names::set_attribute`](crate::Names::set_attribute), but of an open file: no other file can take its
    /// place meanwhile.
    ///
    /// # Errors
    /// `Unsupported`; `PermissionDenied`; no space; those of the device.
    fn set_attribute_of(&self, file: &Self::File, name: &str, value: Option<&[u8]>) -> io::Result<()> {
        let _ = (file, name, value);
        Err(io::ErrorKind::Unsupported.into())
    }
}
