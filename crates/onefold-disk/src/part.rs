//! A part of a disk as a disk of its own.

use std::ops::Range;

use crate::disk::{Disk, FilePlacement};
use crate::error::DiskError;

/// Consecutive bytes of a disk.
pub struct DiskPart<D> {
    disk: D,
    range: Range<u64>,
}

impl<D: Disk> DiskPart<D> {
    /// Returns the bytes `range` of a disk, as far as it has them.
    pub fn new(disk: D, range: Range<u64>) -> DiskPart<D> {
        let end = range.end.min(disk.size_bytes());
        DiskPart { disk, range: range.start.min(end)..end }
    }
}

impl<D> std::fmt::Debug for DiskPart<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskPart").field("range", &self.range).finish_non_exhaustive()
    }
}

impl<D: Disk> Disk for DiskPart<D> {
    fn size_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let at = self.range.start.saturating_add(offset);
        if at >= self.range.end {
            return Ok(None);
        }
        let next = self.disk.next_data(at)?.filter(|data| data.start < self.range.end);
        Ok(next.map(|data| data.start - self.range.start..data.end.min(self.range.end) - self.range.start))
    }

    fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
        let left = self.size_bytes().saturating_sub(offset);
        if left == 0 {
            return Ok(FilePlacement { offset: None, length_bytes: 0 });
        }
        let found = self.disk.in_file(self.range.start + offset)?;
        Ok(FilePlacement { length_bytes: found.length_bytes.min(left), ..found })
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let left = usize::try_from(self.size_bytes().saturating_sub(offset)).unwrap_or(usize::MAX);
        let (within, past) = into.split_at_mut(left.min(into.len()));
        past.fill(0);
        if within.is_empty() { Ok(()) } else { self.disk.read(self.range.start + offset, within) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk of 1000 bytes with two ranges of data, whose bytes are their place.
    struct NumberedBytes;

    const DATA: [Range<u64>; 2] = [100..300, 400..700];

    impl Disk for NumberedBytes {
        fn size_bytes(&self) -> u64 {
            1000
        }

        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            Ok(DATA.into_iter().find(|data| data.end > offset).map(|data| data.start.max(offset)..data.end))
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
            for (at, byte) in (offset..).zip(into) {
                *byte = if at < 1000 { u8::try_from(at % 251).unwrap() } else { 0 };
            }
            Ok(())
        }
    }

    #[test]
    fn a_part_begins_and_ends_where_it_does() {
        let part = DiskPart::new(NumberedBytes, 200..500);
        assert_eq!(part.size_bytes(), 300);
        assert_eq!(part.next_data(0).unwrap(), Some(0..100));
        assert_eq!(part.next_data(150).unwrap(), Some(200..300));
        assert_eq!(part.next_data(300).unwrap(), None);
        let mut into = [9; 20];
        part.read(290, &mut into).unwrap();
        let expected: Vec<u8> = (490..500).map(|at: u64| u8::try_from(at % 251).unwrap()).chain([0; 10]).collect();
        assert_eq!(into[..], expected, "the disk goes on behind the part");
        part.read(u64::MAX, &mut into).unwrap();
        assert_eq!(into, [0; 20]);
    }

    #[test]
    fn a_part_has_no_more_than_its_disk() {
        assert_eq!(DiskPart::new(NumberedBytes, 900..2000).size_bytes(), 100);
        assert_eq!(DiskPart::new(NumberedBytes, 1500..2000).size_bytes(), 0);
        let gap = DiskPart::new(NumberedBytes, 300..400);
        assert_eq!(gap.next_data(0).unwrap(), None);
        assert_eq!(gap.in_file(40).unwrap(), FilePlacement { offset: None, length_bytes: 60 });
        assert_eq!(gap.in_file(100).unwrap(), FilePlacement { offset: None, length_bytes: 0 });
    }
}
