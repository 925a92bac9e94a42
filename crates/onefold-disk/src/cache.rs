//! A cache of the most recently read pages of a disk.
//!
//! Readers of tables and trees read a few bytes here and there, often repeatedly. Through an image of many layers, each
//! such read is a search. The limit is in bytes, so that no disk decides how much memory the cache takes.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cache_memory::{CacheMemory, PAGE_BYTES, PageCache};
use crate::disk::{Disk, FilePlacement};
use crate::error::DiskError;

/// Longest read that goes through the pages. Longer reads are streams, which are read once and would only evict pages.
const CACHED_READ_BYTES_MAX: usize = 4 * PAGE_BYTES;

/// A disk with a cache of its most recently read pages.
pub struct CachedDisk<'a> {
    disk: &'a dyn Disk,
    page_bytes: usize,
    pages: Mutex<PageCache>,
    /// Memory to read a page of which only a part is asked for. A thread takes it out meanwhile.
    spare: Mutex<Vec<u8>>,
}

impl<'a> CachedDisk<'a> {
    /// Returns `disk` with a cache of at most `limit_bytes`, in whole pages of 16 KiB.
    #[must_use]
    pub fn new(disk: &'a dyn Disk, limit_bytes: usize) -> CachedDisk<'a> {
        CachedDisk::with_memory(disk, limit_bytes, CacheMemory::default())
    }

    /// As [`CachedDisk::new`], with the memory of a cache before, and pages of the same length.
    #[must_use]
    pub fn with_memory(disk: &'a dyn Disk, limit_bytes: usize, memory: CacheMemory) -> CachedDisk<'a> {
        let page_bytes = memory.page_bytes();
        let pages = PageCache::new(memory, limit_bytes);
        CachedDisk { disk, page_bytes, pages: Mutex::new(pages), spare: Mutex::default() }
    }

    /// Returns the memory of the cache.
    #[must_use]
    pub fn into_memory(self) -> CacheMemory {
        self.pages.into_inner().unwrap_or_else(PoisonError::into_inner).into_memory()
    }

    fn pages(&self) -> MutexGuard<'_, PageCache> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_pages(&self, mut offset: u64, mut into: &mut [u8]) -> Result<(), DiskError> {
        while !into.is_empty() {
            let number = offset / self.page_bytes as u64;
            let within = usize::try_from(offset % self.page_bytes as u64).expect("less than a page");
            let mut length = into.len().min(self.page_bytes - within);
            // Two threads that miss the same page both read it; neither holds the lock meanwhile.
            let is_known = self.pages().copy(number, within, &mut into[..length]);
            if !is_known && length == self.page_bytes {
                length *= self.pages().missing(number, into.len() / self.page_bytes).max(1);
                self.read_whole(number, &mut into[..length])?;
            } else if !is_known {
                self.read_part(number, within, &mut into[..length])?;
            }
            offset += length as u64;
            into = &mut into[length..];
        }
        Ok(())
    }

    /// Reads missing pages from `number` on, which fill `into`.
    fn read_whole(&self, number: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read(number * self.page_bytes as u64, into)?;
        let mut pages = self.pages();
        for (number, page) in (number..).zip(into.chunks_exact(self.page_bytes)) {
            pages.keep(number, page);
        }
        Ok(())
    }

    /// Reads a missing page, and fills `into` from its byte `within`.
    fn read_part(&self, number: u64, within: usize, into: &mut [u8]) -> Result<(), DiskError> {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = std::mem::take(&mut *spare());
        page.resize(self.page_bytes, 0);
        self.disk.read(number * self.page_bytes as u64, &mut page)?;
        self.pages().keep(number, &page);
        into.copy_from_slice(&page[within..within + into.len()]);
        *spare() = page;
        Ok(())
    }
}

impl std::fmt::Debug for CachedDisk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedDisk").field("size_bytes", &self.size_bytes()).finish_non_exhaustive()
    }
}

impl Disk for CachedDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.disk.next_data(offset)
    }

    fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
        self.disk.in_file(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let pages_end = offset.checked_add((into.len() + self.page_bytes) as u64);
        if into.len() > CACHED_READ_BYTES_MAX || pages_end.is_none() {
            return self.disk.read(offset, into);
        }
        // A bad sector elsewhere in the page must not fail a read that does not touch it.
        self.read_pages(offset, into).or_else(|_| self.disk.read(offset, into))
    }

    fn read_once(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read_once(offset, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk whose bytes depend on their offset; it records the reads.
    struct RecordingDisk {
        size_bytes: u64,
        /// Reads that reach this byte fail.
        bad: Option<u64>,
        reads: Mutex<Vec<Range<u64>>>,
    }

    impl RecordingDisk {
        fn new(size_bytes: u64) -> RecordingDisk {
            RecordingDisk { size_bytes, bad: None, reads: Mutex::default() }
        }

        fn byte(&self, at: u64) -> u8 {
            if at < self.size_bytes { 1 + u8::try_from((at / 3) % 251).unwrap() } else { 0 }
        }

        fn reads(&self) -> Vec<Range<u64>> {
            std::mem::take(&mut self.reads.lock().unwrap())
        }
    }

    impl Disk for RecordingDisk {
        fn size_bytes(&self) -> u64 {
            self.size_bytes
        }

        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            Ok((offset < self.size_bytes).then_some(offset..self.size_bytes))
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
            let range = offset..offset + into.len() as u64;
            self.reads.lock().unwrap().push(range.clone());
            if self.bad.is_some_and(|bad| range.contains(&bad)) {
                return Err(DiskError::Other("a bad sector".into()));
            }
            for (at, byte) in range.zip(into) {
                *byte = self.byte(at);
            }
            Ok(())
        }
    }

    const PAGE: u64 = PAGE_BYTES as u64;

    fn page(number: u64) -> Range<u64> {
        number * PAGE..(number + 1) * PAGE
    }

    #[test]
    fn all_reads_are_those_of_the_disk() {
        for page_bytes in [PAGE_BYTES, 8 << 10, 1] {
            check_reads(page_bytes);
        }
    }

    fn check_reads(page_bytes: usize) {
        let recorder = RecordingDisk::new(10 * PAGE + 700);
        let cached = CachedDisk::with_memory(&recorder, 3 * PAGE_BYTES, CacheMemory::of_pages(page_bytes));
        let mut state = 1_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..3000 {
            let (offset, length) = (random(11 * PAGE), usize::try_from(random(6 * PAGE)).unwrap());
            let mut into = vec![0xee; length];
            cached.read(offset, &mut into).unwrap();
            let expected: Vec<u8> = (offset..offset + length as u64).map(|at| recorder.byte(at)).collect();
            assert!(into == expected, "{length} bytes at {offset}");
        }
    }

    #[test]
    fn pages_that_were_read_last_are_kept_and_no_more_than_the_limit() {
        let recorder = RecordingDisk::new(10 * PAGE);
        let cached = CachedDisk::new(&recorder, 2 * PAGE_BYTES + 100);
        let read = |number: u64| {
            cached.read(number * PAGE + 5, &mut [0; 7]).unwrap();
            recorder.reads()
        };
        assert_eq!(read(1), [page(1)]);
        assert_eq!(read(2), [page(2)]);
        assert_eq!(read(1), []);
        assert_eq!(read(3), [page(3)], "the place of page 2, which was not used as long");
        assert_eq!(read(1), []);
        assert_eq!(read(2), [page(2)]);
    }

    #[test]
    fn memory_of_a_cache_serves_the_next_disk() {
        let (first, second) = (RecordingDisk::new(10 * PAGE), RecordingDisk::new(20 * PAGE + 9));
        let cached = CachedDisk::new(&first, 4 * PAGE_BYTES);
        (0..10).for_each(|number| cached.read(number * PAGE, &mut [0; 7]).unwrap());
        let cached = CachedDisk::with_memory(&second, 3 * PAGE_BYTES, cached.into_memory());
        for number in (1..21).chain([20, 3]) {
            let mut into = [0xee; 100];
            cached.read(number * PAGE, &mut into).unwrap();
            assert!((0..).zip(into).all(|(at, byte)| byte == second.byte(number * PAGE + at)), "page {number}");
        }
    }

    #[test]
    fn pages_have_the_length_of_those_before() {
        let recorder = RecordingDisk::new(10 * PAGE);
        let mut memory = CacheMemory::of_pages(PAGE_BYTES / 2);
        for _ in 0..2 {
            let cached = CachedDisk::with_memory(&recorder, 3 * PAGE_BYTES, memory);
            cached.read(PAGE + 5, &mut [0; 7]).unwrap();
            let half = PAGE..PAGE + PAGE / 2;
            assert_eq!(recorder.reads(), std::slice::from_ref(&half));
            memory = cached.into_memory();
        }
    }

    #[test]
    fn pages_that_are_missing_one_after_the_other_are_one_read() {
        let recorder = RecordingDisk::new(1000 * PAGE);
        let memory = CacheMemory::of_pages(PAGE_BYTES / 4);
        let cached = CachedDisk::with_memory(&recorder, 100 * PAGE_BYTES, memory);
        let (quarter, length) = (PAGE / 4, 2 * PAGE_BYTES);
        cached.read(2 * quarter, &mut [0; 7]).unwrap();
        assert_eq!(recorder.reads(), vec![2 * quarter..3 * quarter]);
        // The first page in part, one whole page before the known one, and five whole ones behind it.
        let mut into = vec![0; length - 100];
        cached.read(100, &mut into).unwrap();
        assert_eq!(recorder.reads(), [0..quarter, quarter..2 * quarter, 3 * quarter..8 * quarter]);
        assert!((100..).zip(&into).all(|(at, byte)| *byte == recorder.byte(at)));
        let mut again = vec![0; length];
        cached.read(0, &mut again).unwrap();
        assert!((0..).zip(&again).all(|(at, byte)| *byte == recorder.byte(at)));
        assert_eq!(recorder.reads(), []);
    }

    #[test]
    fn reads_without_a_return_bring_no_page() {
        let recorder = RecordingDisk::new(10 * PAGE);
        let cached = CachedDisk::new(&recorder, 20 * PAGE_BYTES);
        let mut into = [0; 50];
        cached.read_once(PAGE + 9, &mut into).unwrap();
        assert!((PAGE + 9..).zip(into).all(|(at, byte)| byte == recorder.byte(at)));
        assert_eq!(recorder.reads(), vec![PAGE + 9..PAGE + 59]);
        cached.read(PAGE + 9, &mut into).unwrap();
        assert_eq!(recorder.reads(), [page(1)]);
    }

    #[test]
    fn long_reads_go_past_the_pages() {
        let recorder = RecordingDisk::new(10 * PAGE);
        let cached = CachedDisk::new(&recorder, 20 * PAGE_BYTES);
        let mut into = vec![0; CACHED_READ_BYTES_MAX + 1];
        for _ in 0..2 {
            cached.read(3, &mut into).unwrap();
            let whole = 3..4 + CACHED_READ_BYTES_MAX as u64;
            assert_eq!(recorder.reads(), std::slice::from_ref(&whole));
        }
        let none = CachedDisk::new(&recorder, PAGE_BYTES - 1);
        for _ in 0..2 {
            none.read(0, &mut [0; 8]).unwrap();
            assert_eq!(recorder.reads(), [page(0)]);
        }
    }

    #[test]
    fn only_bytes_that_were_asked_for_fail() {
        let recorder = RecordingDisk { bad: Some(PAGE + 100), ..RecordingDisk::new(10 * PAGE) };
        let cached = CachedDisk::new(&recorder, 4 * PAGE_BYTES);
        let mut into = [0; 50];
        cached.read(PAGE, &mut into).unwrap();
        assert_eq!(into[0], recorder.byte(PAGE));
        assert_eq!(cached.read(PAGE + 90, &mut into).unwrap_err().to_string(), "a bad sector");
    }
}
