//! Raw images: a file or a block device with the bytes of a disk, one to one.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::disk::{Disk, FilePlacement, Sink};
use crate::error::{DiskError, FileAction};

/// Message for a read that finds no bytes within the length that the file had when it was opened.
const HAS_SHRUNK: &str = "it has become shorter since it was opened";

/// A regular file or a block device with the bytes of a disk.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    path: PathBuf,
    size_bytes: u64,
}

impl FileDisk {
    /// Wraps an open file; `path` is for messages.
    ///
    /// # Errors
    /// If the length of the file cannot be determined.
    pub fn new(file: File, path: &Path) -> Result<FileDisk, DiskError> {
        let path = path.to_owned();
        // The metadata of a block device has no length, but seeking finds its end.
        match seek(&file, SeekFrom::End(0)) {
            Ok(size_bytes) => Ok(FileDisk { file, path, size_bytes }),
            Err(errno) => Err(DiskError::File { action: FileAction::Measure, path, source: errno.into() }),
        }
    }

    fn error(&self, source: io::Error) -> DiskError {
        DiskError::File { action: FileAction::Read, path: self.path.clone(), source }
    }
}

impl Disk for FileDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let start = match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // A block device does not report holes.
            Err(Errno::INVAL) if offset < self.size_bytes => return Ok(Some(offset..self.size_bytes)),
            Err(Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(self.error(errno.into())),
        };
        let end = seek(&self.file, SeekFrom::Hole(start)).map_err(|errno| self.error(errno.into()))?;
        let end = end.min(self.size_bytes);
        // If the file has shrunk meanwhile, the disk ends there.
        Ok((start < end).then_some(start..end))
    }

    fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
        Ok(FilePlacement { offset: Some(offset), length_bytes: self.size_bytes.saturating_sub(offset) })
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let within = self.size_bytes.saturating_sub(offset);
        let wanted = usize::try_from(within).unwrap_or(usize::MAX).min(into.len());
        let (into, past_end) = into.split_at_mut(wanted);
        past_end.fill(0);
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                // Zeros would be taken for content.
                Ok(0) => return Err(self.error(io::Error::new(io::ErrorKind::UnexpectedEof, HAS_SHRUNK))),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(error)),
            }
        }
        Ok(())
    }
}

/// A new regular file that becomes a raw image.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    path: PathBuf,
}

impl FileSink {
    /// Wraps a new empty file and makes it `size_bytes` long; `path` is for messages.
    ///
    /// # Errors
    /// If the file cannot have that length.
    pub fn new(file: File, path: &Path, size_bytes: u64) -> Result<FileSink, DiskError> {
        let sink = FileSink { file, path: path.to_owned() };
        sink.file.set_len(size_bytes).map_err(|error| sink.error(error))?;
        Ok(sink)
    }

    /// Makes all writes durable.
    ///
    /// # Errors
    /// When that fails; no earlier write is reliable then.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.file.sync_all().map_err(|error| self.error(error))
    }

    fn error(&self, source: io::Error) -> DiskError {
        DiskError::File { action: FileAction::Write, path: self.path.clone(), source }
    }
}

impl Sink for FileSink {
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        self.file.write_all_at(from, offset).map_err(|error| self.error(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_tells_its_data_and_reads_zeros_past_its_end() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        file.as_file().write_all_at(&[7; 4096], 64 << 10).unwrap();
        let disk = FileDisk::new(file.reopen().unwrap(), file.path()).unwrap();
        assert_eq!(disk.size_bytes(), 1 << 20);
        let data = disk.next_data(0).unwrap().unwrap();
        assert!(data.contains(&(64 << 10)) && data.contains(&((64 << 10) + 4095)), "{data:?}");
        assert_eq!(disk.next_data(1 << 20).unwrap(), None);
        let mut into = [1; 8192];
        disk.read((1 << 20) - 4096, &mut into).unwrap();
        assert_eq!(into, [0; 8192]);
    }

    /// Regression: zeros in place of lost bytes went into copies of guest files, as content.
    #[test]
    fn a_file_that_shrinks_while_it_is_read_is_an_error_and_no_zeros() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(&[7; 8192], 0).unwrap();
        let disk = FileDisk::new(file.reopen().unwrap(), file.path()).unwrap();
        file.as_file().set_len(5000).unwrap();
        let mut into = [1; 4096];
        disk.read(0, &mut into).unwrap();
        assert_eq!(into, [7; 4096]);
        for offset in [4096, 8000] {
            let error = disk.read(offset, &mut into).unwrap_err();
            assert!(matches!(&error, DiskError::File { source, .. } if source.to_string() == HAS_SHRUNK), "{error:?}");
        }
        disk.read(8192, &mut into).unwrap();
        assert_eq!(into, [0; 4096], "past the end that it had");
    }

    #[test]
    fn an_empty_file_has_no_data() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let disk = FileDisk::new(file.reopen().unwrap(), file.path()).unwrap();
        assert_eq!(disk.next_data(0).unwrap(), None);
    }
}
