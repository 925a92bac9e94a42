//! Reads a volume by its own offsets, and converts these to places on the disk.

use std::sync::Arc;

use onefold_disk::{Disk, DiskError};

use super::{DiskRange, Volume};
use crate::error::{Damage, GuestError, UNREADABLE};

/// The bytes of a volume. All structures of a guest are read through it.
///
/// The disk should cache recently read data ([`onefold_disk::CachedDisk`]), because readers return to the same tables.
#[derive(Clone)]
pub struct VolumeReader<'a> {
    disk: &'a dyn Disk,
    /// For each range, its first byte in the volume. Sorted.
    ranges: Arc<[(u64, DiskRange)]>,
    size_bytes: u64,
}

/// One of the ways to read a disk.
type DiskRead<'r> = dyn Fn(&dyn Disk, u64, &mut [u8]) -> Result<(), DiskError> + 'r;

impl<'a> VolumeReader<'a> {
    /// Returns a reader of `volume`, whose ranges lie on `disk`.
    #[must_use]
    pub fn new(disk: &'a dyn Disk, volume: &Volume) -> VolumeReader<'a> {
        let mut size_bytes = 0_u64;
        let mut ranges = Vec::with_capacity(volume.ranges.len());
        for range in &volume.ranges {
            ranges.push((size_bytes, *range));
            size_bytes = size_bytes.saturating_add(range.length_bytes);
        }
        VolumeReader { disk, ranges: ranges.into(), size_bytes }
    }

    /// Returns the length of the volume in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Fills `into` from byte `offset` of the volume; `structure` names the structure in errors.
    ///
    /// # Errors
    /// When the range does not lie within the volume, which is damage of the structure that named it, or the medium
    /// below the disk fails there, which is damage of the structure that lies there; and all other errors of the disk.
    pub fn read(&self, offset: u64, into: &mut [u8], structure: &'static str) -> Result<(), GuestError> {
        self.read_by(&|disk, at, part| disk.read(at, part), offset, into, structure)
    }

    /// As [`VolumeReader::read`], for bytes to which the caller does not return. A cache does not keep them.
    ///
    /// # Errors
    /// Those of [`VolumeReader::read`].
    pub fn read_once(&self, offset: u64, into: &mut [u8], structure: &'static str) -> Result<(), GuestError> {
        self.read_by(&|disk, at, part| disk.read_once(at, part), offset, into, structure)
    }

    fn read_by(
        &self,
        read: &DiskRead<'_>,
        offset: u64,
        into: &mut [u8],
        structure: &'static str,
    ) -> Result<(), GuestError> {
        let end = offset.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > self.size_bytes) {
            return Err(self.damage(offset, structure, "it lies outside of the volume").into());
        }
        let mut rest = into;
        let mut at = offset;
        while !rest.is_empty() {
            let Some(range) = self.on_disk(at) else { return Ok(()) };
            let length = usize::try_from(range.length_bytes).unwrap_or(usize::MAX).min(rest.len());
            let (part, after) = rest.split_at_mut(length);
            match read(self.disk, range.start_bytes, part) {
                Err(error) if error.is_of_medium() => return Err(self.damage(at, structure, UNREADABLE).into()),
                outcome => outcome?,
            }
            at += length as u64;
            rest = after;
        }
        Ok(())
    }

    /// Returns `length` bytes from byte `offset` of the volume. The caller bounds `length`.
    ///
    /// # Errors
    /// Those of [`VolumeReader::read`]; nothing is allocated for a range outside of the volume.
    pub fn bytes(&self, offset: u64, length: usize, structure: &'static str) -> Result<Vec<u8>, GuestError> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.size_bytes) {
            return Err(self.damage(offset, structure, "it lies outside of the volume").into());
        }
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes, structure)?;
        Ok(bytes)
    }

    /// Returns the place of the bytes from `offset` of the volume on, up to the end of their range of the disk; `None`
    /// past the end of the volume.
    #[must_use]
    pub fn on_disk(&self, offset: u64) -> Option<DiskRange> {
        let after = self.ranges.partition_point(|(first, _)| *first <= offset);
        let (first, range) = self.ranges.get(after.checked_sub(1)?)?;
        let within = offset - first;
        (within < range.length_bytes)
            .then(|| DiskRange { start_bytes: range.start_bytes + within, length_bytes: range.length_bytes - within })
    }

    /// Returns the first byte of the volume at or after `offset` that is not in a hole of the image; `None` if only
    /// holes follow.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, GuestError> {
        let mut at = offset;
        while let Some(range) = self.on_disk(at) {
            let data = self.disk.next_data(range.start_bytes)?;
            if let Some(data) = data.filter(|data| data.start < range.end_bytes()) {
                return Ok(Some(at + data.start.saturating_sub(range.start_bytes)));
            }
            at += range.length_bytes;
        }
        Ok(None)
    }

    /// Calls `visit` with the ranges of the disk that a range of the volume occupies, in the volume's order. Skips
    /// parts outside of the volume.
    pub fn each_on_disk(&self, offset: u64, length_bytes: u64, visit: &mut dyn FnMut(DiskRange)) {
        let (mut at, mut rest) = (offset, length_bytes);
        while rest > 0
            && let Some(mut range) = self.on_disk(at)
        {
            range.length_bytes = range.length_bytes.min(rest);
            visit(range);
            at += range.length_bytes;
            rest -= range.length_bytes;
        }
    }

    /// Returns damage of a structure at byte `offset` of the volume, with its place on the disk. A place outside of the
    /// volume is computed as if the volume continued from its first byte.
    #[must_use]
    pub fn damage(&self, offset: u64, structure: &'static str, problem: &'static str) -> Damage {
        let first = self.ranges.first().map_or(0, |(_, range)| range.start_bytes);
        let place = self.on_disk(offset).map_or(first.saturating_add(offset), |range| range.start_bytes);
        Damage { place, structure, problem }
    }
}

impl std::fmt::Debug for VolumeReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeReader").field("ranges", &self.ranges).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::volume::VolumeOrigin;

    /// A disk whose bytes contain their own offsets.
    struct OffsetDisk;

    impl Disk for OffsetDisk {
        fn size_bytes(&self) -> u64 {
            200
        }

        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            // All but bytes 100 to 107, and those from 170.
            Ok((offset < 170).then(|| if offset < 100 { offset..100 } else { offset.max(108)..170 }))
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
            for (at, byte) in into.iter_mut().enumerate() {
                *byte = u8::try_from(offset + at as u64).unwrap_or(0);
            }
            Ok(())
        }
    }

    fn volume() -> Volume {
        let range = |start_bytes, length_bytes| DiskRange { start_bytes, length_bytes };
        Volume { origin: VolumeOrigin::WholeDisk, ranges: vec![range(100, 10), range(20, 5), range(150, 50)] }
    }

    #[test]
    fn a_read_goes_through_all_ranges() {
        let reader = VolumeReader::new(&OffsetDisk, &volume());
        assert_eq!(reader.size_bytes(), 65);
        assert_eq!(reader.bytes(8, 9, "test").unwrap(), [108, 109, 20, 21, 22, 23, 24, 150, 151]);
        let mut found = Vec::new();
        reader.each_on_disk(8, 1000, &mut |range| found.push((range.start_bytes, range.length_bytes)));
        assert_eq!(found, [(108, 2), (20, 5), (150, 50)]);
    }

    #[test]
    fn holes_of_the_image_are_passed_over() {
        let reader = VolumeReader::new(&OffsetDisk, &volume());
        let found = [0, 3, 8, 9, 12, 15, 34, 35, 64, 65].map(|offset| reader.next_data(offset).unwrap());
        let expected = [Some(8), Some(8), Some(8), Some(9), Some(12), Some(15), Some(34), None, None, None];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_place_outside_is_damage_of_what_named_it() {
        let reader = VolumeReader::new(&OffsetDisk, &volume());
        assert!(reader.bytes(65, 0, "test").unwrap().is_empty());
        for (offset, length) in [(65, 1), (60, 6), (u64::MAX, 2), (0, usize::MAX)] {
            let outcome = reader.bytes(offset, length, "test");
            assert!(matches!(outcome, Err(GuestError::Damaged(_))), "{outcome:?}");
        }
        assert_eq!(reader.on_disk(65), None);
    }
}
