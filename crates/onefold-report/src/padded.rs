//! A disk with sectors of zeros before it.

use std::ops::Range;

use onefold_disk::{Disk, DiskError};

/// A disk with zeros put before it: all its content lies `pad_bytes` further on.
pub(crate) struct PaddedDisk<'a> {
    disk: &'a dyn Disk,
    pad_bytes: u64,
}

impl<'a> PaddedDisk<'a> {
    pub(crate) fn new(disk: &'a dyn Disk, pad_bytes: u64) -> PaddedDisk<'a> {
        PaddedDisk { disk, pad_bytes }
    }
}

impl Disk for PaddedDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes().saturating_add(self.pad_bytes)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let data = self.disk.next_data(offset.saturating_sub(self.pad_bytes))?;
        Ok(data.map(|data| (data.start + self.pad_bytes).max(offset)..data.end + self.pad_bytes))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let zeros = usize::try_from(self.pad_bytes.saturating_sub(offset)).map_or(into.len(), |n| n.min(into.len()));
        let (pad, rest) = into.split_at_mut(zeros);
        pad.fill(0);
        if rest.is_empty() {
            return Ok(());
        }
        self.disk.read(offset.saturating_sub(self.pad_bytes), rest)
    }
}
