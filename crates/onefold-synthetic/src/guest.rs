//! Measures what the library reads of the guest in a raw image, without printing it, where no verb does only that.

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use onefold_disk::{CacheMemory, CachedDisk, Disk, DiskError};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{AllocationClass, ExtentKind, TableKind};
use onefold_guest::guest::{DiskRun, DiskUse, Guest, OrderError};

/// Size of the disk's cache in bytes: the program's default for `--memory`.
const CACHE_BYTES: usize = 64 << 20;
/// Size of a page of that cache for bitmaps alone, in bytes. Most reads are headers and records at distant places; the
/// bitmaps themselves are read in long pieces.
const SMALL_PAGE_BYTES: usize = 1024;
/// Memory for sorting all extents, in bytes.
const SORT_BYTES: usize = 64 << 20;

/// Summary of the list of all files in the order of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesSummary {
    /// Files with an extent.
    pub files: u64,
    /// Extents of those files.
    pub extents: u64,
    /// Files with content inside a metadata structure, which shares no blocks.
    pub inline_files: u64,
    /// Bytes of that content.
    pub inline_bytes: u64,
    /// Time from opening the disk to the last extent.
    pub time: Duration,
}

/// Summary of the map of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSummary {
    /// Runs of the map.
    pub runs: usize,
    /// Bytes that are not free.
    pub allocated_bytes: u64,
    /// Bytes of trees and lists that map files, attributes and free space.
    pub tree_bytes: u64,
    /// Bytes at the places of headers of all kinds that were read to identify the content of the volumes, although the
    /// map calls them content of files. They are read because another kind has its header there.
    pub probed_bytes: u64,
    /// Bytes of file content that were read after the volumes were open: a map needs none.
    pub data_read_bytes: u64,
    /// Time from opening the disk to the last run.
    pub time: Duration,
}

/// Summary of the bitmaps of the file systems on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapSummary {
    /// File systems with a reader.
    pub file_systems: usize,
    /// Bytes of these volumes that the bitmaps do not call free.
    pub allocated_bytes: u64,
    /// Bytes that they call free.
    pub free_bytes: u64,
    /// Time from opening the disk to the last range.
    pub time: Duration,
}

/// Lists every extent of every file in the order of the disk.
///
/// # Errors
/// Those of [`Guest::files_in_order`].
pub fn files(disk: &dyn Disk) -> Result<FilesSummary, OrderError> {
    let started = Instant::now();
    let cached = CachedDisk::new(disk, CACHE_BYTES);
    let guest = Guest::open(&cached)?;
    let mut owners = Vec::new();
    let (mut inline, mut inline_bytes) = (BTreeSet::new(), 0);
    for extent in guest.files_in_order(&env::temp_dir(), SORT_BYTES)? {
        let extent = extent?;
        let owner = (extent.volume, extent.file.0);
        if extent.kind == ExtentKind::Inline {
            inline.insert(owner);
            inline_bytes += extent.used_bytes;
        }
        owners.push(owner);
    }
    let time = started.elapsed();
    let extents = owners.len() as u64;
    let files = owners.into_iter().collect::<BTreeSet<_>>().len() as u64;
    Ok(FilesSummary { files, extents, inline_files: inline.len() as u64, inline_bytes, time })
}

/// Makes the map of a disk, and compares the reads for it with the map.
///
/// # Errors
/// Those of [`Guest::disk_map`].
pub fn map(disk: &dyn Disk) -> Result<MapSummary, GuestError> {
    let started = Instant::now();
    let cached = CachedDisk::new(disk, CACHE_BYTES);
    let asked = RecordingDisk { disk: &cached, ranges: Mutex::default() };
    let guest = Guest::open(&asked)?;
    let probed = asked.take();
    let runs = guest.disk_map()?;
    let time = started.elapsed();
    let data = |ranges: &[Range<u64>]| ranges.iter().map(|range| data_in(range, &runs)).sum();
    let bytes_of = |is_one: &dyn Fn(DiskUse) -> bool| {
        runs.iter().filter(|run| is_one(run.use_)).map(|run| run.range.length_bytes).sum()
    };
    let is_tree = |use_| matches!(use_, DiskUse::Volume(_, AllocationClass::Table(TableKind::Tree)));
    Ok(MapSummary {
        runs: runs.len(),
        allocated_bytes: bytes_of(&|use_| !use_.is_free()),
        tree_bytes: bytes_of(&is_tree),
        probed_bytes: data(&probed),
        data_read_bytes: data(&asked.take()),
        time,
    })
}

/// Sums up what the bitmaps of all file systems call free.
///
/// # Errors
/// When there is no file system, and those of the file system.
pub fn bitmaps(disk: &dyn Disk) -> Result<BitmapSummary, GuestError> {
    let started = Instant::now();
    let memory = CacheMemory::of_pages(SMALL_PAGE_BYTES);
    let cached = CachedDisk::with_memory(disk, CACHE_BYTES, memory);
    let guest = Guest::open(&cached)?;
    let (mut file_systems, mut allocated_bytes, mut free_bytes) = (0, 0, 0);
    for volume in guest.volumes() {
        let Some(system) = volume.file_system() else { continue };
        let free = system.free_by_bitmaps(guest.budget())?;
        let free: u64 = free.into_iter().map(|range| range.end - range.start).sum();
        file_systems += 1;
        free_bytes += free;
        allocated_bytes += volume.volume.size_bytes().saturating_sub(free);
    }
    if file_systems == 0 {
        return Err(GuestError::Unsupported("a disk without a readable file system"));
    }
    Ok(BitmapSummary { file_systems, allocated_bytes, free_bytes, time: started.elapsed() })
}

/// Returns how many bytes of a range are file content; `runs` are in order.
fn data_in(range: &Range<u64>, runs: &[DiskRun]) -> u64 {
    let first = runs.partition_point(|run| run.range.end_bytes() <= range.start);
    let runs = runs.iter().skip(first).take_while(|run| run.range.start_bytes < range.end);
    let data = runs.filter(|run| matches!(run.use_, DiskUse::Volume(_, AllocationClass::Data)));
    data.map(|run| run.range.end_bytes().min(range.end) - run.range.start_bytes.max(range.start)).sum()
}

/// A disk that records the ranges that are read.
struct RecordingDisk<'a> {
    disk: &'a dyn Disk,
    ranges: Mutex<Vec<Range<u64>>>,
}

impl RecordingDisk<'_> {
    /// Returns the ranges that were read since the last call.
    fn take(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *self.ranges.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Disk for RecordingDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.disk.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let range = offset..offset.saturating_add(into.len() as u64);
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner).push(range);
        self.disk.read(offset, into)
    }
}

impl fmt::Display for FilesSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FilesSummary { files, extents, inline_files, inline_bytes, time } = self;
        write!(f, r#"{{ "files": {files}, "extents": {extents}, "inline_files": {inline_files}, "#)?;
        write!(f, r#""inline_bytes": {inline_bytes}, "seconds": {} }}"#, time.as_secs_f64())
    }
}

impl fmt::Display for MapSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MapSummary { runs, allocated_bytes, tree_bytes, probed_bytes, data_read_bytes, time } = self;
        write!(f, r#"{{ "runs": {runs}, "allocated_bytes": {allocated_bytes}, "tree_bytes": {tree_bytes}, "#)?;
        write!(
            f,
            r#""probed_bytes": {probed_bytes}, "data_read_bytes": {data_read_bytes}, "seconds": {} }}"#,
            time.as_secs_f64()
        )
    }
}

impl fmt::Display for BitmapSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BitmapSummary { file_systems, allocated_bytes, free_bytes, time } = self;
        write!(f, r#"{{ "file_systems": {file_systems}, "allocated_bytes": {allocated_bytes}, "#)?;
        write!(f, r#""free_bytes": {free_bytes}, "seconds": {} }}"#, time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use onefold_guest::volume::DiskRange;

    use super::*;

    #[test]
    fn only_content_of_files_counts_as_data() {
        let run = |start_bytes, length_bytes, use_| DiskRun { range: DiskRange { start_bytes, length_bytes }, use_ };
        let data = DiskUse::Volume(0, AllocationClass::Data);
        let runs = [run(0, 10, DiskUse::Gap), run(10, 10, data), run(20, 5, DiskUse::Gap), run(25, 5, data)];
        let found: Vec<u64> =
            [0..10, 5..15, 12..14, 0..30, 19..26, 30..40].iter().map(|at| data_in(at, &runs)).collect();
        assert_eq!(found, [0, 5, 2, 15, 2, 0]);
    }
}
