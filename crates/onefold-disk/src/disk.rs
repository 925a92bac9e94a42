//! The traits of a readable disk, and of a sink for one.

use std::ops::Range;

use crate::error::DiskError;

/// Maximum length of a disk in an image, in bytes. A longer one in a header is taken as false: the search for data
/// would not end.
pub const SIZE_BYTES_MAX: u64 = 1 << 44;

/// The bytes of a disk. Reads come from several threads.
pub trait Disk: Send + Sync {
    /// Returns the length in bytes.
    fn size_bytes(&self) -> u64;

    /// Returns the next range at or after `offset` that may hold nonzero bytes; `None` if only zeros follow. The range
    /// is not empty and does not end past the disk.
    ///
    /// # Errors
    /// When the image is damaged or its device fails.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError>;

    /// Returns where the bytes from `offset` on lie in the file of the image. If the disk does not know, it returns a
    /// range without an offset for all bytes.
    ///
    /// # Errors
    /// When the image is damaged or its device fails.
    fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
        Ok(FilePlacement { offset: None, length_bytes: self.size_bytes().saturating_sub(offset) })
    }

    /// Fills `into` from `offset`. Bytes past the end read as zeros.
    ///
    /// # Errors
    /// When the image is damaged, has become shorter since it was opened, or its device fails.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError>;

    /// As [`Disk::read`], for bytes to which the caller does not return. A cache does not keep them.
    ///
    /// # Errors
    /// Those of [`Disk::read`].
    fn read_once(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.read(offset, into)
    }
}

impl<D: Disk + ?Sized> Disk for Box<D> {
    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        (**self).next_data(offset)
    }

    fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
        (**self).in_file(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        (**self).read(offset, into)
    }

    fn read_once(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        (**self).read_once(offset, into)
    }
}

/// Where a range of a disk lies in the file of its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePlacement {
    /// Its first byte in the file; `None` if the file does not hold these bytes as they are: they are a hole,
    /// compressed, or in another file of the chain.
    pub offset: Option<u64>,
    /// Length for which this holds; 0 from the end of the disk on.
    pub length_bytes: u64,
}

/// A new target that reads as zeros until it is written. Writes come from several threads and never overlap.
pub trait Sink: Sync {
    /// Writes all of `from` at `offset`.
    ///
    /// # Errors
    /// When the write fails; some of it may have been written.
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), DiskError>;
}
