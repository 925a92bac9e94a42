//! A disk on which places that nothing reads are holes.

use std::ops::Range;

use onefold_disk::{Disk, DiskError, FilePlacement};
use onefold_guest::error::GuestError;
use onefold_guest::guest::Guest;

use crate::SECTOR_BYTES;

/// Sectors of a disk that nothing reads, though maps call them allocated, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnreadSectors {
    /// Bytes of whole sectors: in order, without overlap, and none empty.
    ranges: Vec<Range<u64>>,
    /// The volume of each range, by its index in the guest.
    volumes: Vec<usize>,
    /// For each volume of the guest, how many of its bytes they are.
    volume_bytes: Vec<u64>,
}

impl UnreadSectors {
    /// Returns those of a guest.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn of(guest: &Guest<'_>) -> Result<UnreadSectors, GuestError> {
        let mut unread = UnreadSectors { volume_bytes: vec![0; guest.volumes().len()], ..UnreadSectors::default() };
        for (range, volume) in guest.unread()? {
            unread.add(range.start_bytes..range.end_bytes().min(guest.disk().size_bytes()), volume);
        }
        Ok(unread)
    }

    /// Adds the whole sectors of a range of a volume, unless it begins before the end of the last one.
    fn add(&mut self, range: Range<u64>, volume: usize) {
        let reached = self.ranges.last().map_or(0, |last| last.end);
        let start = range.start.next_multiple_of(SECTOR_BYTES).max(reached);
        let end = range.end / SECTOR_BYTES * SECTOR_BYTES;
        if start < end {
            self.ranges.push(start..end);
            self.volumes.push(volume);
            if let Some(bytes) = self.volume_bytes.get_mut(volume) {
                *bytes += end - start;
            }
        }
    }

    /// Removes the places of some volumes. Returns whether there were any.
    pub(super) fn forget(&mut self, is_forgotten: &dyn Fn(usize) -> bool) -> bool {
        let (count, mut unread) = (self.ranges.len(), UnreadSectors::default());
        unread.volume_bytes = vec![0; self.volume_bytes.len()];
        for (range, volume) in self.ranges.drain(..).zip(self.volumes.drain(..)) {
            if !is_forgotten(volume) {
                unread.add(range, volume);
            }
        }
        *self = unread;
        self.ranges.len() < count
    }

    /// Returns for each volume how many of its bytes are unread; no entry means none.
    pub(super) fn volume_bytes(&self) -> &[u64] {
        &self.volume_bytes
    }

    /// Returns the first range that ends behind `offset`, and all later ones.
    fn from(&self, offset: u64) -> &[Range<u64>] {
        &self.ranges[self.ranges.partition_point(|range| range.end <= offset)..]
    }
}

/// A disk whose unread sectors are holes.
pub(super) struct ReadDisk<'d> {
    disk: &'d dyn Disk,
    unread: &'d UnreadSectors,
}

impl<'d> ReadDisk<'d> {
    pub(super) fn new(disk: &'d dyn Disk, unread: &'d UnreadSectors) -> ReadDisk<'d> {
        ReadDisk { disk, unread }
    }
}

impl Disk for ReadDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
        // The places that are unread here are zeros, whatever the file holds.
        let placement = self.disk.in_file(offset)?;
        Ok(match self.unread.from(offset).first() {
            Some(unread) if unread.start <= offset => {
                let length_bytes = unread.end.min(self.size_bytes()).saturating_sub(offset);
                FilePlacement { offset: None, length_bytes }
            }
            Some(unread) => {
                FilePlacement { length_bytes: placement.length_bytes.min(unread.start - offset), ..placement }
            }
            None => placement,
        })
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let mut offset = offset;
        while let Some(data) = self.disk.next_data(offset)? {
            let start = data.start.max(offset);
            match self.unread.from(start).first() {
                Some(unread) if unread.start <= start => {
                    if unread.end < data.end {
                        // The rest of this data, up to the next unread place.
                        let next = self.unread.from(unread.end).first().map_or(data.end, |next| next.start);
                        let end = next.min(data.end);
                        if unread.end < end {
                            return Ok(Some(unread.end..end));
                        }
                    }
                    offset = unread.end;
                }
                Some(unread) => return Ok(Some(start..unread.start.min(data.end))),
                None => return Ok(Some(start..data.end)),
            }
        }
        Ok(None)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let end = offset.saturating_add(into.len() as u64);
        let unread = self.unread.from(offset);
        if unread.first().is_some_and(|first| first.start <= offset && end <= first.end) {
            into.fill(0);
            return Ok(());
        }
        self.disk.read(offset, into)?;
        for range in unread.iter().take_while(|range| range.start < end) {
            let place = |at: u64| usize::try_from(at.clamp(offset, end) - offset).unwrap_or(into.len());
            let (start, stop) = (place(range.start), place(range.end));
            into[start..stop].fill(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;

    /// A disk of ones with holes.
    struct Ones {
        size_bytes: u64,
        data: Vec<Range<u64>>,
    }

    impl Disk for Ones {
        fn size_bytes(&self) -> u64 {
            self.size_bytes
        }

        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            let next = self.data.iter().find(|data| data.end > offset);
            Ok(next.map(|data| data.start.max(offset)..data.end))
        }

        fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
            Ok(FilePlacement { offset: Some(offset), length_bytes: self.size_bytes - offset })
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
            for (at, byte) in (offset..).zip(into) {
                *byte = u8::from(self.data.iter().any(|data| data.contains(&at)));
            }
            Ok(())
        }
    }

    fn ranges(random: &SeededRandom, size_bytes: u64, unit: u64) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let mut at = random.below(4) * unit;
        while at < size_bytes {
            let end = (at + (1 + random.below(5)) * unit).min(size_bytes);
            ranges.push(at..end);
            // Neighbours may touch.
            at = end + random.below(6) * unit;
        }
        ranges
    }

    #[test]
    fn the_places_of_a_volume_can_be_read_again() {
        let mut unread = UnreadSectors { volume_bytes: vec![0; 3], ..UnreadSectors::default() };
        for (volume, start) in [(0, 0), (1, 1024), (0, 4096), (2, 8192)] {
            unread.add(start..start + 512, volume);
        }
        assert!(!unread.forget(&|volume| volume > 2));
        assert_eq!(unread.volume_bytes(), [1024, 512, 512]);
        assert!(unread.forget(&|volume| volume == 0));
        assert_eq!((&unread.ranges, unread.volume_bytes()), (&vec![1024..1536, 8192..8704], &[0, 512, 512][..]));
    }

    #[test]
    fn unread_places_are_holes_and_all_others_are_those_of_the_disk() {
        for seed in 0..100 {
            let random = SeededRandom::new(seed);
            let size_bytes = 60 * SECTOR_BYTES + random.below(2) * 100;
            let disk = Ones { size_bytes, data: ranges(&random, size_bytes, 256) };
            let mut unread = UnreadSectors { volume_bytes: vec![0], ..UnreadSectors::default() };
            ranges(&random, size_bytes, 300).into_iter().for_each(|range| unread.add(range, 0));
            let read = ReadDisk::new(&disk, &unread);
            let mut plain = vec![0; usize::try_from(size_bytes).unwrap()];
            disk.read(0, &mut plain).unwrap();
            for range in &unread.ranges {
                assert!(range.start % SECTOR_BYTES == 0 && range.end % SECTOR_BYTES == 0 && range.start < range.end);
                plain[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].fill(0);
            }
            let expected_bytes: u64 = unread.ranges.iter().map(|range| range.end - range.start).sum();
            assert_eq!(unread.volume_bytes(), [expected_bytes]);
            for _ in 0..30 {
                let start = usize::try_from(random.below(size_bytes)).unwrap();
                let length = usize::try_from(random.below(4000)).unwrap().min(plain.len() - start);
                let mut into = vec![9; length];
                read.read(start as u64, &mut into).unwrap();
                assert!(into == plain[start..start + length], "seed {seed} {start} {length}");
                let FilePlacement { offset, length_bytes } = read.in_file(start as u64).unwrap();
                let is_unread = |at: u64| unread.ranges.iter().any(|range| range.contains(&at));
                let end = start as u64 + length_bytes;
                assert!(length_bytes > 0 && end <= size_bytes, "seed {seed} {start} {length_bytes}");
                assert!((start as u64..end).all(|at| is_unread(at) == offset.is_none()), "seed {seed} {start}");
            }
            let (mut at, mut has_data) = (0, vec![0; plain.len()]);
            while let Some(data) = read.next_data(at).unwrap() {
                assert!(data.start >= at && data.start < data.end && data.end <= size_bytes, "seed {seed} {data:?}");
                has_data[usize::try_from(data.start).unwrap()..usize::try_from(data.end).unwrap()].fill(1);
                at = data.end;
            }
            assert!(has_data == plain, "seed {seed}");
        }
    }
}
