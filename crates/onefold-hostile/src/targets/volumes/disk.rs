//! A disk with few nonzero sectors, and a limit for reads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onefold_disk::{Disk, DiskError};
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin};

pub(super) const SECTOR_BYTES: u64 = 512;
pub(super) const SECTOR_LENGTH: usize = 512;
/// Maximum number of bytes that all reads for one input may have. A sound seed takes a hundredth of it.
const READ_BYTES_MAX: u64 = 1 << 30;
/// Message of the failing read.
const GONE: &str = "the disk is gone";

/// The sectors of a disk that are not zero.
#[derive(Clone)]
pub(super) struct Sectors {
    pub(super) size_bytes: u64,
    pub(super) sectors: BTreeMap<u64, [u8; SECTOR_LENGTH]>,
}

impl Sectors {
    /// Returns the image of a seed.
    pub(super) fn decode(mut packed: &[u8]) -> Sectors {
        let number = |bytes: &[u8]| u64::from(u32::from_le_bytes(bytes.try_into().expect("four bytes")));
        let mut image = Sectors { size_bytes: number(&packed[..4]), sectors: BTreeMap::new() };
        let mut at = 0;
        packed = &packed[4..];
        while !packed.is_empty() {
            let length = usize::try_from(number(&packed[4..8])).expect("a small seed");
            at += number(&packed[..4]);
            image.put(at, &packed[8..8 + length]);
            at += length as u64;
            packed = &packed[8 + length..];
        }
        image
    }

    /// Writes bytes at an offset of the disk; bytes past its end are dropped.
    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) {
        for (place, byte) in (at..self.size_bytes).zip(bytes) {
            let sector = self.sectors.entry(place / SECTOR_BYTES).or_insert([0; SECTOR_LENGTH]);
            sector[usize::try_from(place % SECTOR_BYTES).expect("less than a sector")] = *byte;
        }
    }

    /// Fills `into` from an offset of the disk.
    pub(super) fn copy(&self, at: u64, into: &mut [u8]) {
        into.fill(0);
        let end = at + into.len() as u64;
        for (number, sector) in self.sectors.range(at / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)) {
            let start = number * SECTOR_BYTES;
            let (from, to) = (start.max(at), (start + SECTOR_BYTES).min(end));
            let part = |place: u64, of: u64| usize::try_from(place - of).expect("within the read");
            into[part(from, at)..part(to, at)].copy_from_slice(&sector[part(from, start)..part(to, start)]);
        }
    }
}

/// A disk that counts the bytes read.
pub(super) struct CountedDisk {
    pub(super) image: Sectors,
    read_bytes: AtomicU64,
    /// Number of bytes after which reads fail.
    fails_after: u64,
    has_failed: AtomicBool,
}

impl CountedDisk {
    pub(super) fn new(image: Sectors) -> CountedDisk {
        CountedDisk { image, read_bytes: AtomicU64::new(0), fails_after: u64::MAX, has_failed: AtomicBool::new(false) }
    }

    /// Makes a later read fail, after `part` in 256 parts of the bytes read so far. Returns whether there was a read.
    pub(super) fn fail_after(&mut self, part: u64) -> bool {
        let read = self.read_bytes.swap(0, Ordering::Relaxed);
        self.fails_after = read * part / 256;
        read > 0
    }

    /// Returns whether a read has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns the whole disk as a volume.
    pub(super) fn whole(&self) -> Volume {
        let ranges = vec![DiskRange { start_bytes: 0, length_bytes: self.image.size_bytes }];
        Volume { origin: VolumeOrigin::WholeDisk, ranges }
    }
}

impl Disk for CountedDisk {
    fn size_bytes(&self) -> u64 {
        self.image.size_bytes
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        Ok((offset < self.size_bytes()).then_some(offset..self.size_bytes()))
    }

    /// Fills `into` from an offset of the disk.
    ///
    /// # Panics
    /// When the range is not on the disk, or too much was read.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let end = offset.checked_add(into.len() as u64).expect("an offset that can be");
        assert!(end <= self.size_bytes(), "{offset} to {end} of a disk of {} bytes", self.size_bytes());
        let before = self.read_bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        assert!(before < READ_BYTES_MAX, "reads without end");
        if before >= self.fails_after {
            self.has_failed.store(true, Ordering::Relaxed);
            return Err(DiskError::Other(GONE.into()));
        }
        self.image.copy(offset, into);
        Ok(())
    }
}
