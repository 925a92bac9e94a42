//! Examines an image before its target is touched. Each header is read and verified, no sector belongs to two chunks,
//! the bytes add up to the totals of the manifest, and a pack is known for each unit. Only the units are not read.

use std::ops::Range;

use super::headers::ImageHeaders;
use super::threads::{StepProgress, on_threads};
use super::work::{Job, group_chunks, threads_of};
use super::{InstallError, InstallOptions, check_interrupt};
use crate::archive::{Archive, ArchiveError, WantedUnit};
use crate::claims::Claims;
use crate::format::FormatError;
use crate::format::chunk_header::ChunkHeader;
use crate::format::manifest::Manifest;
use crate::image_source::ImageSource;
use crate::placed::{HeaderError, bytes_of, check};
use crate::{SECTOR_BYTES, SectorRun, UnitName};

use onefold_disk::OnProgress;

/// Divisor for the share of the memory that headers get. Those beyond it are read anew whenever they are needed.
const HEADERS_SHARE: u64 = 16;
/// Divisor for the share of the memory that the claimed sectors get.
const CLAIMS_SHARE: u64 = 4;

/// Examines an image, so that damage is found before a target is touched.
///
/// # Errors
/// When a header is lost, damaged or invalid, no pack has a unit, chunks and totals of the manifest disagree, or the
/// store fails.
pub fn examine(
    source: &dyn ImageSource,
    manifest: &Manifest,
    options: &InstallOptions,
    progress: OnProgress<'_>,
) -> Result<(), InstallError> {
    read_examined(source, manifest, options, progress).map(|_| ())
}

/// As [`examine`]; returns the headers, for an installation with these options.
///
/// # Errors
/// As [`examine`].
pub(super) fn read_examined<'a>(
    source: &'a dyn ImageSource,
    manifest: &'a Manifest,
    options: &InstallOptions,
    progress: OnProgress<'a>,
) -> Result<ImageHeaders<'a>, InstallError> {
    let examined = || {
        let beside = beside_headers(options);
        let bytes_max = options.memory_bytes / HEADERS_SHARE;
        let headers = ImageHeaders::read(source, manifest, bytes_max, threads_of(&beside, manifest), progress)?;
        let examination = Examination { source, headers: &headers, manifest, progress };
        examination.run(&beside)?;
        Ok(headers)
    };
    examined().map_err(|error| match error {
        InstallError::Archive(error) => source.of_image(&manifest.image, error).into(),
        error => error,
    })
}

/// Returns the options of the work beside the headers: these, and their stored bytes while they are read, take a part
/// of the memory.
pub(super) fn beside_headers(options: &InstallOptions) -> InstallOptions {
    InstallOptions { memory_bytes: options.memory_bytes - 2 * (options.memory_bytes / HEADERS_SHARE), ..*options }
}

/// Calls `each` with the ranges of the disk that no chunk has, in order. `options` are those of the work beside the
/// headers.
///
/// # Errors
/// When a header cannot be read any more, the user has interrupted the work, and the first of `each`.
pub(super) fn each_free_range(
    job: &Job<'_>,
    options: &InstallOptions,
    each: &mut dyn FnMut(Range<u64>) -> Result<(), InstallError>,
) -> Result<(), InstallError> {
    let (headers, manifest) = (job.headers, job.manifest);
    let examination = Examination { source: headers.source, headers, manifest, progress: job.progress };
    let size_bytes = manifest.size_bytes;
    let mut free = |start, end| match start < end {
        true => each(bytes_of(SectorRun { start, count: end - start }, size_bytes)),
        false => Ok(()),
    };
    let mut claims = Claims::new(size_bytes, options.memory_bytes / CLAIMS_SHARE);
    let mut chunks: Vec<usize> = (0..manifest.chunks.len()).collect();
    loop {
        examination.claim(&claims, &chunks, options)?;
        claims.each_unclaimed(&mut |run| free(run.start, run.end()))?;
        let end = claims.window().end;
        match claims.next() {
            Some(next) => chunks = next,
            None => return free(end, size_bytes.div_ceil(SECTOR_BYTES)),
        }
        // No chunk has a sector between two windows.
        free(end, claims.window().start)?;
    }
}

struct Examination<'a> {
    source: &'a dyn ImageSource,
    headers: &'a ImageHeaders<'a>,
    manifest: &'a Manifest,
    progress: OnProgress<'a>,
}

impl Examination<'_> {
    fn run(&self, options: &InstallOptions) -> Result<(), InstallError> {
        let (manifest, threads) = (self.manifest, threads_of(options, self.manifest));
        let mut claims = Claims::new(manifest.size_bytes, options.memory_bytes / CLAIMS_SHARE);
        let all: Vec<usize> = (0..manifest.chunks.len()).collect();
        let groups: Vec<&[usize]> = all.chunks(group_chunks(options, manifest, 1)).collect();
        let found = on_threads(threads, groups.len(), &|at, sum| {
            self.each_claimed(&claims, groups[at], &mut |header| {
                self.find_units(header)?;
                for unit in &header.units {
                    sum.data_bytes = sum.data_bytes.saturating_add(unit.plain_bytes.into());
                }
                for run in &header.zeros {
                    let range = bytes_of(*run, manifest.size_bytes);
                    sum.zero_bytes = sum.zero_bytes.saturating_add(range.end - range.start);
                }
                Ok(())
            })
        })?;
        while let Some(chunks) = claims.next() {
            self.claim(&claims, &chunks, options)?;
        }
        check_totals(manifest, found)
    }

    /// Claims the sectors of some chunks.
    fn claim(&self, claims: &Claims, chunks: &[usize], options: &InstallOptions) -> Result<(), InstallError> {
        let groups: Vec<&[usize]> = chunks.chunks(group_chunks(options, self.manifest, 1)).collect();
        let threads = threads_of(options, self.manifest);
        on_threads(threads, groups.len(), &|at, _| self.each_claimed(claims, groups[at], &mut |_| Ok(())))?;
        Ok(())
    }

    /// Calls `each` with the headers of some chunks, whose sectors belong to no other chunk.
    fn each_claimed(
        &self,
        claims: &Claims,
        chunks: &[usize],
        each: &mut dyn FnMut(&ChunkHeader) -> Result<(), InstallError>,
    ) -> Result<(), InstallError> {
        check_interrupt(self.progress, self.manifest)?;
        let names: Vec<UnitName> = chunks.iter().map(|index| self.manifest.chunks[*index]).collect();
        let headers = self.headers.of(&names)?;
        for (at, (index, name)) in chunks.iter().zip(&names).enumerate() {
            check_interrupt(self.progress, self.manifest)?;
            let header = headers.get(at)?;
            check(name, &header, self.manifest.size_bytes)?;
            if !claims.claim(*index, &header) {
                return Err(HeaderError { header: *name, what: "another chunk has the same sectors" }.into());
            }
            each(&header)?;
        }
        Ok(())
    }

    fn find_units(&self, header: &ChunkHeader) -> Result<(), ArchiveError> {
        header
            .units
            .iter()
            .try_for_each(|unit| self.source.find(WantedUnit { name: unit.name, plain_bytes: Some(unit.plain_bytes) }))
    }
}

/// Fails if the chunks of an image have other bytes than its manifest says.
fn check_totals(manifest: &Manifest, found: StepProgress) -> Result<(), InstallError> {
    let totals = &manifest.totals;
    if (found.data_bytes, found.zero_bytes) == (totals.data_bytes, totals.zero_bytes) {
        return Ok(());
    }
    let source = FormatError::Value { structure: "manifest", what: "its totals differ from those of its chunks" };
    Err(ArchiveError::Damaged { name: Archive::manifest_name(manifest), source }.into())
}
