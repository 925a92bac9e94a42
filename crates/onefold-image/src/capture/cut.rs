//! Cuts a disk into units: for a capture, and for those who look for units on a disk that is not captured.

use std::path::Path;

use onefold_block::BLOCK_BYTES;
use onefold_block::zero::is_zero;
use onefold_disk::{CachedDisk, Disk, OnProgress};
use onefold_guest::budget::Budget;
use onefold_guest::content::VolumeContent;
use onefold_guest::error::GuestError;
use onefold_guest::guest::{Guest, GuestVolume};

use super::batch::{Item, KnownUnit, Outcome, Reader, Units};
use super::error::CaptureError;
use super::plan::{Plan, PlanError, Planner};
use super::policy::{MapSurvey, Scope, each_taken};
use super::source::PolledDisk;
use super::unread::{ReadDisk, UnreadSectors};
use super::{Memory, pipeline};
use crate::compress;
use crate::format::chunk_header::PlacedUnit;
use crate::format::descriptor::UnitKind;
use crate::format::pack::{Codec, UnitHeader};
use crate::{SECTOR_BYTES, SectorRun, UnitKey, UnitName};

/// Number of runs of the map, or extents of files, that are planned between two calls of the progress callback.
const RUNS_BETWEEN: u32 = 4096;

/// How the disk of a seed is cut.
#[derive(Clone, Copy, Debug)]
pub struct SeedOptions<'o> {
    /// Number of threads that read and name units.
    pub threads: usize,
    /// Approximate memory to use, in bytes. A smaller value than [`MEMORY_BYTES_MIN`](super::MEMORY_BYTES_MIN) counts
    /// as that.
    pub memory_bytes: usize,
    /// The folder for unnamed temporary files.
    pub folder: &'o Path,
}

/// The parameters of a capture that decide about units and work; as in [`CaptureOptions`](super::CaptureOptions).
#[derive(Clone, Copy, Debug)]
pub(super) struct CutOptions<'o> {
    pub(super) scope: Scope,
    pub(super) exact: bool,
    pub(super) threads: usize,
    pub(super) memory_bytes: usize,
    pub(super) level: i32,
    pub(super) folder: &'o Path,
}

impl CutOptions<'_> {
    /// Returns the places of a guest that become zeros although they are allocated.
    pub(super) fn unread(&self, guest: &Guest<'_>) -> Result<UnreadSectors, GuestError> {
        match (self.scope, self.exact) {
            (Scope::Allocated, false) => UnreadSectors::of(guest),
            (Scope::All, _) | (_, true) => Ok(UnreadSectors::default()),
        }
    }

    /// Makes the plan of a disk, and removes the places from `unread` that are in doubt. `disk` asks whether to go on.
    pub(super) fn plan(
        &self,
        units: UnitKind,
        guest: &Guest<'_>,
        disk: &PolledDisk<'_>,
        unread: &mut UnreadSectors,
        memory: &Memory,
    ) -> Result<(MapSurvey, Plan), CaptureError> {
        loop {
            let (found, plan) = self.plan_once(units, guest, disk, unread, memory)?;
            // What is in doubt is read. Each round forgets at least one volume.
            if !unread.forget(&|volume| found.is_in_doubt(volume)) {
                return Ok((found, plan));
            }
        }
    }

    /// As [`CutOptions::plan`], with all of `unread`, whatever is in doubt.
    pub(super) fn plan_once(
        &self,
        units: UnitKind,
        guest: &Guest<'_>,
        disk: &PolledDisk<'_>,
        unread: &UnreadSectors,
        memory: &Memory,
    ) -> Result<(MapSurvey, Plan), CaptureError> {
        let files = match units {
            UnitKind::Files { .. } => {
                Some(guest.files_in_order(self.folder, memory.files_bytes).map_err(PlanError::from)?)
            }
            UnitKind::Fixed { .. } => None,
        };
        let polled = |number: u32| if number.is_multiple_of(RUNS_BETWEEN) { disk.poll() } else { Ok(()) };
        let files = (0_u32..).cycle().zip(files.into_iter().flatten()).map(|(number, extent)| {
            polled(number).map_err(GuestError::Disk)?;
            extent
        });
        let read = ReadDisk::new(disk.disk(), unread);
        let mut planner = Planner::new(&read, units, files, self.folder, memory.plan_bytes);
        let (mut failed, mut runs) = (None, 0_u32);
        let mut add = |run| -> Result<(), PlanError> {
            runs = runs.wrapping_add(1);
            polled(runs)?;
            planner.add(run)
        };
        let found = each_taken(guest, self.scope, &mut |run| {
            add(run).map_err(|error| {
                failed = Some(error);
                // This error only ends the visits.
                GuestError::NotFound
            })
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        Ok((found?, planner.finish()?))
    }
}

/// Cuts a disk into units as a capture does, and calls `each` with those that are not zero, in the order of the disk.
/// Reads the whole disk, as far as it is not free. A disk of unknown content may be a plain file, so it is cut as the
/// content of a file, too; the last sectors of a unit may lie behind the end of the disk then, and are zeros.
///
/// # Errors
/// When the disk cannot be read, temporary files fail, or `progress` stops the work.
pub fn each_unit(
    disk: &dyn Disk,
    units: UnitKind,
    key: &UnitKey,
    options: &SeedOptions<'_>,
    progress: OnProgress<'_>,
    each: &mut dyn FnMut(PlacedUnit),
) -> Result<(), CaptureError> {
    let SeedOptions { threads, memory_bytes, folder } = *options;
    let (scope, exact, level) = (Scope::Allocated, false, compress::LEVEL);
    let cut = CutOptions { scope, exact, threads, memory_bytes, level, folder };
    let polled = PolledDisk::new(disk, progress);
    match each_named(&polled, units, key, &cut, each) {
        Err(_) if polled.is_stopped() => Err(CaptureError::Stopped),
        done => done,
    }
}

/// As [`each_unit`]; `polled` asks whether to go on.
fn each_named(
    polled: &PolledDisk<'_>,
    units: UnitKind,
    key: &UnitKey,
    cut: &CutOptions<'_>,
    each: &mut dyn FnMut(PlacedUnit),
) -> Result<(), CaptureError> {
    let memory = Memory::of(cut, units.unit_bytes() as usize);
    let cached = CachedDisk::new(polled, memory.cache_bytes);
    let guest = Guest::open(&cached)?.with_budget(Budget::new(memory.maps_bytes));
    if let (UnitKind::Files { unit_bytes }, [GuestVolume { content: VolumeContent::Unknown, .. }]) =
        (units, guest.volumes())
    {
        each_of_file(polled, unit_bytes, key, each)?;
    }
    let mut unread = cut.unread(&guest)?;
    let (_, plan) = cut.plan(units, &guest, polled, &mut unread, &memory)?;
    let read = ReadDisk::new(polled.disk(), &unread);
    let mut readers: Vec<Reader> = Vec::new();
    readers.resize_with(memory.width.threads, Reader::default);
    let read = &read;
    let works = readers.into_iter().map(|mut reader| move |batch| reader.run(read, key, &mut NamedUnits, batch));
    pipeline::run(plan, memory.width, works.collect(), &mut |outcome: Outcome| {
        polled.poll()?;
        for item in outcome.items {
            if let Item::Known { unit, .. } = item {
                each(unit);
            }
        }
        Ok(())
    })
}

/// Cuts a disk as the content of a file.
fn each_of_file(
    disk: &dyn Disk,
    unit_bytes: u32,
    key: &UnitKey,
    each: &mut dyn FnMut(PlacedUnit),
) -> Result<(), CaptureError> {
    let mut plain = vec![0; unit_bytes as usize];
    let mut offset = 0;
    while let Some(data) = disk.next_data(offset)? {
        // Holes have no unit.
        offset = offset.max(data.start / u64::from(unit_bytes) * u64::from(unit_bytes));
        let left = usize::try_from(disk.size_bytes() - offset).unwrap_or(usize::MAX);
        // The last unit of a file ends with its block.
        let plain = &mut plain[..left.min(unit_bytes as usize).next_multiple_of(BLOCK_BYTES)];
        disk.read_once(offset, plain)?;
        let sectors = SectorRun { start: offset / SECTOR_BYTES, count: plain.len() as u64 / SECTOR_BYTES };
        if !is_zero(plain) {
            let plain_bytes = u32::try_from(plain.len()).unwrap_or(u32::MAX);
            each(PlacedUnit { name: key.name(plain), plain_bytes, runs: vec![sectors] });
        }
        offset += plain.len() as u64;
    }
    Ok(())
}

/// Units that are only named: each counts as known, so none is stored.
struct NamedUnits;

impl Units for NamedUnits {
    type Error = CaptureError;

    fn find(&mut self, _: &UnitName) -> Result<Option<KnownUnit>, CaptureError> {
        Ok(Some(KnownUnit::Own))
    }

    fn compress(&mut self, plain: &[u8], into: &mut Vec<u8>) -> Result<UnitHeader, CaptureError> {
        into.extend_from_slice(plain);
        let bytes = u32::try_from(plain.len()).unwrap_or(u32::MAX);
        Ok(UnitHeader { codec: Codec::Plain, stored_bytes: bytes, plain_bytes: bytes })
    }
}
