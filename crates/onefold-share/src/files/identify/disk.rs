//! A raw image as a disk: read through the substrate, and never opened by a name of its own.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use onefold_disk::{Disk, DiskError, FilePlacement};
use onefold_substrate::Reader;

/// The bytes of a file of the substrate, as a disk. Bytes past the end read as zeros.
pub(in crate::files) struct SubstrateDisk<'f> {
    reader: Arc<dyn Reader + 'f>,
    size_bytes: u64,
}

impl<'f> SubstrateDisk<'f> {
    pub(in crate::files) fn new(reader: Arc<dyn Reader + 'f>, size_bytes: u64) -> SubstrateDisk<'f> {
        SubstrateDisk { reader, size_bytes }
    }
}

impl Disk for SubstrateDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        Ok((offset < self.size_bytes).then_some(offset..self.size_bytes))
    }

    fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
        Ok(FilePlacement { offset: Some(offset), length_bytes: self.size_bytes.saturating_sub(offset) })
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let failed = |why: std::io::Error| DiskError::Other(Box::<dyn Error + Send + Sync>::from(why));
        let count = self.reader.read_at(offset, into).map_err(failed)?;
        if let Some(rest) = into.get_mut(count..) {
            rest.fill(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    struct ReadCounter(u64);

    impl Reader for ReadCounter {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            if offset == 13 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let count = usize::try_from(self.0.saturating_sub(offset)).unwrap().min(into.len());
            into[..count].fill(7);
            Ok(count)
        }
    }

    #[test]
    fn bytes_past_the_end_are_zeros_and_failures_are_reported() {
        let disk = SubstrateDisk::new(Arc::new(ReadCounter(6)), 10);
        let mut bytes = [1; 4];
        disk.read(4, &mut bytes).unwrap();
        assert_eq!(bytes, [7, 7, 0, 0]);
        assert_eq!((disk.next_data(9).unwrap(), disk.next_data(10).unwrap()), (Some(9..10), None));
        assert_eq!(disk.in_file(4).unwrap(), FilePlacement { offset: Some(4), length_bytes: 6 });
        assert!(disk.read(13, &mut bytes).is_err());
    }
}
