//! Capture: reads a disk into an image of an archive.
//!
//! Stages from first to last: `policy` chooses the sectors to capture, and `plan` groups them into units; `cut` does
//! both. The threads of `batch` read, name, look up and compress units. `pipeline` restores the order of their results,
//! and `collector` passes new units to the writer, builds the headers of chunks and counts every byte.

mod batch;
mod chunks;
mod collector;
mod cut;
mod error;
mod pipeline;
mod plan;
mod policy;
mod recent;
mod restore;
mod source;
mod units;
mod unread;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;

use onefold_block::Timestamp;
use onefold_disk::{CachedDisk, OnProgress, Progress};
use onefold_guest::budget::Budget;
use onefold_guest::guest::Guest;

pub use cut::{SeedOptions, each_unit};
pub use error::CaptureError;
pub use plan::PlanError;
pub use policy::Scope;
pub use restore::restore;
pub use source::{FileState, Source};

use self::batch::Reader;
use self::collector::{AddedUnits, Collector, CollectorResult};
use self::cut::CutOptions;
use self::pipeline::Width;
use self::plan::Plan;
use self::policy::MapSurvey;
use self::recent::RecentUnits;
use self::source::PolledDisk;
use self::units::{SharedUnits, ThreadUnits, WriterUnits};
use self::unread::ReadDisk;
use crate::archive::{Archive, ArchiveError, ManifestDraft, Writer};
use crate::compress;
use crate::format::manifest::{Manifest, REGIONS_MAX};
use crate::format::pack;
use crate::{ImageName, ImageVersion, UnitName};

/// Parameters of a capture.
#[derive(Clone, Debug)]
pub struct CaptureOptions<'o> {
    /// Name of the image.
    pub name: ImageName,
    /// When the capture began.
    pub began: Timestamp,
    /// The bytes to capture.
    pub scope: Scope,
    /// Whether allocated places that nothing reads are captured as they are. Otherwise, and unless all bytes are
    /// captured, they become zeros: the log of a clean journal, and parts of inode tables that were never used.
    pub exact: bool,
    /// Number of threads that read, name and compress.
    pub threads: usize,
    /// Approximate memory to use, in bytes. A smaller value than [`MEMORY_BYTES_MIN`] counts as that.
    pub memory_bytes: usize,
    /// Level of compression.
    pub level: i32,
    /// The folder for unnamed temporary files.
    pub folder: &'o Path,
}

/// A captured image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureReport {
    /// Name and version.
    pub image: ImageVersion,
    /// Its manifest.
    pub manifest: Manifest,
}

/// Minimum memory of a capture.
pub const MEMORY_BYTES_MIN: usize = 64 << 20;
/// Maximum number of threads, whatever is asked for.
const THREADS_MAX: usize = 64;
/// Plain bytes of a batch. With larger batches, threads wait longer for one another at the end. With smaller ones, they
/// wait more often during the capture.
const BATCH_BYTES: usize = 2 << 20;
const BATCH_BYTES_MIN: usize = 128 << 10;
/// Minimum number of batches that may wait for collection, in addition to those that threads work on. While a pack is
/// made durable, the threads continue until this room is used.
const BATCHES_WAITING_MIN: usize = 4;
const BATCHES_WAITING_MAX: usize = 48;
/// Buffer of a thread for a read with gaps.
const READ_BYTES: usize = 1 << 20;
/// Maximum memory for rows that are sorted. The sorter takes it at once.
const SORTED_BYTES_MAX: usize = 1 << 30;
/// Maximum length of a pack. With little memory packs are shorter.
const PACK_BYTES: usize = 32 << 20;
const _: () = assert!(PACK_BYTES as u64 == pack::PACK_BYTES);
/// A pack takes at most this fraction of all memory. One is filled while another one is put.
const PACK_SHARE: usize = 8;
/// Maximum number of attempts to store units again after packs that the image relies on were removed.
const ATTEMPTS: u32 = 10;

/// Captures a disk as the next version of an image. When this returns, the image is durable. After an error the
/// archive has the images of before; only after [`ArchiveError::Doubtful`] it may have the new one. Packs that were put
/// are collected when the writer is given up.
///
/// # Errors
/// When the source cannot be read or changes during the capture, temporary files or the archive fail, or `progress`
/// stops the work.
pub fn capture(
    archive: &Archive,
    writer: &mut Writer<'_>,
    source: Source<'_>,
    options: &CaptureOptions<'_>,
    progress: OnProgress<'_>,
) -> Result<CaptureReport, CaptureError> {
    let polled = PolledDisk::new(source.disk, progress);
    match capture_polled(archive, writer, source, &polled, options, progress) {
        Err(_) if polled.is_stopped() => Err(CaptureError::Stopped),
        captured => captured,
    }
}

/// As [`capture`]; the readers of the guest get the disk by `polled`.
fn capture_polled(
    archive: &Archive,
    writer: &mut Writer<'_>,
    source: Source<'_>,
    polled: &PolledDisk<'_>,
    options: &CaptureOptions<'_>,
    progress: OnProgress<'_>,
) -> Result<CaptureReport, CaptureError> {
    let size_bytes = source.disk.size_bytes();
    let units = archive.descriptor().units;
    let region_bytes = archive.descriptor().region_bytes;
    let size_max = region_bytes.saturating_mul(REGIONS_MAX);
    if size_bytes > size_max {
        return Err(CaptureError::TooLarge { size_bytes, size_max });
    }
    let cut = options.cut();
    let memory = Memory::of(&cut, units.unit_bytes() as usize);
    archive.limit_tables(memory.tables_bytes);
    let cached = CachedDisk::new(polled, memory.cache_bytes);
    let guest = Guest::open(&cached)?.with_budget(Budget::new(memory.maps_bytes));
    let mut unread = cut.unread(&guest)?;
    let recent = RecentUnits::new(memory.recent_bytes);
    writer.limit_packs(memory.pack_bytes as u64);
    let mut added = AddedUnits::default();
    let mut id = writer.id();
    for _ in 0..ATTEMPTS {
        if writer.id() != id {
            // The writer was given up, and what it stored under its old name is lost.
            id = writer.id();
            added = AddedUnits::default();
            recent.clear();
        }
        let (found, plan) = cut.plan(units, &guest, polled, &mut unread, &memory)?;
        let read = ReadDisk::new(source.disk, &unread);
        let source = Source { disk: &read, ..source };
        let only = None;
        let pass = Pass { archive, source, options, memory: &memory, recent: &recent, only, found: &found, progress };
        let collected = match pass.run(writer, plan, &mut added) {
            Err(CaptureError::Archive(ArchiveError::Retired(_))) => continue,
            collected => collected?,
        };
        let CollectorResult { totals, chunks, regions, volume_bytes } = collected;
        if (source.has_changed)().map_err(CaptureError::State)? {
            return Err(CaptureError::Changed);
        }
        let draft = ManifestDraft {
            name: options.name.clone(),
            captured: options.began,
            size_bytes,
            units,
            region_bytes,
            volumes: found.volumes(&guest, options.scope, &volume_bytes, unread.volume_bytes()),
            totals,
            chunks,
            regions,
        };
        match writer.commit(draft) {
            Ok((image, manifest)) => return Ok(CaptureReport { image, manifest }),
            // These units were removed meanwhile. The next pass notices that and stores them again.
            Err(ArchiveError::Retired(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(CaptureError::Restless)
}

impl<'o> CaptureOptions<'o> {
    /// Returns how the disk is cut into units.
    fn cut(&self) -> CutOptions<'o> {
        let CaptureOptions { scope, exact, threads, memory_bytes, level, folder, .. } = *self;
        CutOptions { scope, exact, threads, memory_bytes, level, folder }
    }
}

/// One pass over the data of a disk.
struct Pass<'p> {
    archive: &'p Archive,
    source: Source<'p>,
    options: &'p CaptureOptions<'p>,
    memory: &'p Memory,
    recent: &'p RecentUnits,
    only: Option<&'p HashSet<UnitName>>,
    found: &'p MapSurvey,
    progress: OnProgress<'p>,
}

impl Pass<'_> {
    fn run(
        &self,
        writer: &mut Writer<'_>,
        plan: Plan,
        added: &mut AddedUnits,
    ) -> Result<CollectorResult, CaptureError> {
        let Pass { archive, source, options, memory, recent, only, found, progress } = *self;
        let descriptor = archive.descriptor();
        let disk = source.disk;
        let shared = SharedUnits { archive, recent, only };
        let work = || -> Result<_, CaptureError> {
            let mut units = ThreadUnits::new(shared, options.level)?;
            let mut reader = Reader::default();
            Ok(move |batch| reader.run(disk, &descriptor.key, &mut units, batch))
        };
        let works = (0..memory.width.threads).map(|_| work()).collect::<Result<Vec<_>, CaptureError>>()?;
        let mut keep = WriterUnits::new(writer, ThreadUnits::new(shared, options.level)?);
        let size_bytes = disk.size_bytes();
        let mut collector =
            Collector::new(&mut keep, added, &descriptor.key, found, size_bytes, descriptor.region_bytes);
        let mut collect = |outcome| {
            collector.collect(outcome)?;
            match progress(Progress { done_bytes: collector.reached_bytes(), total_bytes: size_bytes }) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(CaptureError::Stopped),
            }
        };
        pipeline::run(plan, memory.width, works, &mut collect)?;
        collector.finish()
    }
}

/// Returns about how many bytes the tables of a compressor take. At high levels zstd makes two tables, each of two
/// entries of four bytes for each byte of a unit.
fn compressor_bytes(level: i32, unit_bytes: usize) -> usize {
    const FIXED_BYTES: usize = 1 << 20;
    if level <= compress::LEVEL { FIXED_BYTES } else { FIXED_BYTES.max(16 * unit_bytes) }
}

/// Division of a capture's memory. The plan is complete before the data is read, so the two phases together need less
/// than the sum of all fields.
struct Memory {
    /// Recently read pages, for the readers of the guest.
    cache_bytes: usize,
    /// Allocation maps.
    maps_bytes: usize,
    /// Extents of files that are being sorted.
    files_bytes: usize,
    /// Units that are being sorted.
    plan_bytes: usize,
    /// Names of new units.
    recent_bytes: usize,
    /// Length of a pack. Two packs are in memory.
    pack_bytes: usize,
    /// Tables of packs, with those that are followed.
    tables_bytes: usize,
    /// Size of the work in progress in the threads.
    width: Width,
}

impl Memory {
    fn of(options: &CutOptions<'_>, unit_bytes: usize) -> Memory {
        let bytes = options.memory_bytes.max(MEMORY_BYTES_MIN);
        let thread_bytes = READ_BYTES + compressor_bytes(options.level, unit_bytes);
        let pack_bytes = (bytes / PACK_SHARE).min(PACK_BYTES);
        // The writer has two packs, and the caller's thread compresses headers of chunks.
        let left = bytes.saturating_sub(2 * pack_bytes + thread_bytes);
        let threads = options.threads.clamp(1, THREADS_MAX).min(left / 4 / (4 * BATCH_BYTES_MIN + thread_bytes)).max(1);
        // A thread holds the plain bytes of a batch and their stored form. A waiting batch holds only the stored form.
        let of_batches = (left / 4).saturating_sub(threads * thread_bytes);
        let batch_bytes = (of_batches / (3 * threads + BATCHES_WAITING_MIN)).clamp(BATCH_BYTES_MIN, BATCH_BYTES);
        let batches = (of_batches / batch_bytes).saturating_sub(2 * threads);
        let batches = batches.clamp(threads + 1, threads + BATCHES_WAITING_MAX);
        Memory {
            cache_bytes: (bytes / 16).min(32 << 20),
            maps_bytes: bytes / 4,
            files_bytes: (bytes / 8).min(SORTED_BYTES_MAX),
            plan_bytes: (bytes / 8).min(SORTED_BYTES_MAX),
            recent_bytes: left / 16,
            pack_bytes,
            tables_bytes: left / 16,
            width: Width { threads, batches, batch_bytes: batch_bytes as u64 },
        }
    }
}

#[cfg(test)]
mod tests;
