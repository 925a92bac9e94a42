//! A sample image, and a disk with changes over it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_disk::{Disk, DiskError};

const PAGE_BYTES: u64 = 4096;
const PAGE_LENGTH: usize = 4096;
/// The smallest unit of change, in bytes.
pub(super) const SECTOR_BYTES: usize = 512;
/// Maximum number of bytes to read, far more than all calls together read of a sound sample.
const READ_BYTES_MAX: u64 = 1 << 30;

type Page = Box<[u8; PAGE_LENGTH]>;

/// An image made by its file system's own tools.
pub(super) struct Image {
    pub(super) size_bytes: u64,
    pages: BTreeMap<u64, Page>,
}

impl Image {
    /// Decodes a sample: see `samples/make-xfs.sh`.
    pub(super) fn decode(sample: &[u8]) -> Image {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let (size, mut rest) = sample.split_at(8);
        let mut image = Image { size_bytes: number(size), pages: BTreeMap::new() };
        while !rest.is_empty() {
            let (header, after) = rest.split_at(8);
            let (offset, length) = (number(&header[..4]), number(&header[4..]));
            let (part, after) = after.split_at(usize::try_from(length).expect("a part of a small file"));
            for (at, byte) in (offset..).zip(part) {
                let page = image.pages.entry(at / PAGE_BYTES).or_insert_with(|| Box::new([0; PAGE_LENGTH]));
                page[within(at, PAGE_BYTES)] = *byte;
            }
            rest = after;
        }
        image
    }

    /// Returns the bytes of a range.
    pub(super) fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes);
        bytes
    }

    /// Returns the numbers of the sectors that are not zero.
    pub(super) fn sectors(&self) -> Vec<u64> {
        let per_page = PAGE_BYTES / SECTOR_BYTES as u64;
        let all = self.pages.iter().flat_map(|(page, bytes)| (page * per_page..).zip(bytes.chunks_exact(SECTOR_BYTES)));
        all.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)).map(|(sector, _)| sector).collect()
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let from = within(at, PAGE_BYTES);
            let (part, after) = rest.split_at_mut(rest.len().min(PAGE_LENGTH - from));
            match self.pages.get(&(at / PAGE_BYTES)) {
                Some(page) => part.copy_from_slice(&page[from..from + part.len()]),
                None => part.fill(0),
            }
            at += part.len() as u64;
            rest = after;
        }
    }
}

/// Returns a byte's offset within its page or sector.
fn within(at: u64, bytes: u64) -> usize {
    usize::try_from(at % bytes).expect("less than a page")
}

/// A disk with changes over an image.
pub(super) struct ChangedDisk<'i> {
    image: &'i Image,
    size_bytes: u64,
    sectors: BTreeMap<u64, [u8; SECTOR_BYTES]>,
    read_bytes: AtomicU64,
    /// Number of reads that succeed before one fails.
    reads_left: AtomicU64,
}

/// Message of the failing read.
pub(super) const GONE: &str = "the disk is gone";

impl<'i> ChangedDisk<'i> {
    /// Returns an image as a disk of `size_bytes`, without changes. Bytes behind the image are zeros.
    pub(super) fn new(image: &'i Image, size_bytes: u64) -> ChangedDisk<'i> {
        let (read_bytes, reads_left) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        ChangedDisk { image, size_bytes, sectors: BTreeMap::new(), read_bytes, reads_left }
    }

    /// Makes a read fail after `reads` others.
    pub(super) fn fail_after(&self, reads: u64) {
        self.reads_left.store(reads, Ordering::Relaxed);
    }

    /// Returns whether a read has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.reads_left.load(Ordering::Relaxed) == 0
    }

    /// Returns the bytes of a range, including the changes so far.
    pub(super) fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fill(offset, &mut bytes);
        bytes
    }

    /// Changes bytes.
    pub(super) fn put(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let number = at / SECTOR_BYTES as u64;
            let sector = self.sectors.entry(number).or_insert_with(|| {
                let mut sector = [0; SECTOR_BYTES];
                self.image.read(number * SECTOR_BYTES as u64, &mut sector);
                sector
            });
            sector[within(at, SECTOR_BYTES as u64)] = *byte;
        }
    }

    fn fill(&self, offset: u64, into: &mut [u8]) {
        self.image.read(offset, into);
        let end = offset + into.len() as u64;
        let (first, last) = (offset / SECTOR_BYTES as u64, end.div_ceil(SECTOR_BYTES as u64));
        for (number, sector) in self.sectors.range(first..last) {
            let start = number * SECTOR_BYTES as u64;
            let (from, to) = (start.max(offset), (start + SECTOR_BYTES as u64).min(end));
            if from < to {
                let part = |base: u64| usize::try_from(from - base).expect("within what is read");
                let length = usize::try_from(to - from).expect("at most a sector");
                into[part(offset)..][..length].copy_from_slice(&sector[part(start)..][..length]);
            }
        }
    }
}

impl Disk for ChangedDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        Ok((offset < self.size_bytes).then_some(offset..self.size_bytes))
    }

    /// Fills `into` from an offset of the disk.
    ///
    /// # Panics
    /// When the range is not on the disk, or too much was read.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let end = offset.checked_add(into.len() as u64).expect("an offset that can be");
        assert!(end <= self.size_bytes, "{offset} to {end} of a disk of {} bytes", self.size_bytes);
        let read_bytes = self.read_bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        assert!(read_bytes < READ_BYTES_MAX, "reads without end");
        let left = self.reads_left.load(Ordering::Relaxed).saturating_sub(1);
        self.reads_left.store(left, Ordering::Relaxed);
        self.fill(offset, into);
        if left == 0 { Err(DiskError::Other(GONE.into())) } else { Ok(()) }
    }
}
