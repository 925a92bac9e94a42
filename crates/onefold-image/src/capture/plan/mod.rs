//! The plan of a capture: groups sectors into units, in the order of the disk.
//!
//! One sweep passes over the captured runs, the holes of the image and the extents of files, all in the order of the
//! disk. Pieces of files are sorted by file and unit, and units by their first sector. Data that does not fit into
//! memory goes into temporary files.
//!
//! **Holes never change a unit.** A hole is left out only if it covers a whole unit. Otherwise its zeros are part of
//! the unit. So a file gives the same units in an image that was made sparse.
//!
//! **The end of a file.** A file ends somewhere in its last block, and file systems usually keep the rest of that block
//! zero. The last unit includes this rest up to a multiple of 4 KiB of the file: it is one run and one write, and zeros
//! compress to nothing. If these sectors are not zero, the reader of the unit cuts it at the last sector of the
//! content, and makes the rest a unit of its own ([`PlannedUnit::slack`]). So with blocks of 4 KiB, the last unit of a
//! file has at most two forms, whatever lies behind its end. An alternative is to cut each file at its last sector.
//! That gives a single form, even across file systems with smaller blocks, but costs a run of zeros and a small write
//! for each file. Larger clusters, as FAT has them, often have old data behind the first 4 KiB. These sectors belong to
//! no file.

mod claim;
mod file_unit;
mod rows;
mod stream;

use std::io;
use std::path::Path;

use onefold_disk::{Disk, DiskError};
use onefold_guest::guest::{OrderError, PlacedExtent};
use onefold_sort::SortWriter;

pub(super) use self::stream::Plan;

use self::claim::Claim;
use self::file_unit::{FileUnitParts, push_run};
use self::rows::{FileUnit, Piece, PlacedRow};
use super::policy::{GRID_SECTORS, TakenRun};
use crate::format::descriptor::UnitKind;
use crate::{SECTOR_BYTES, SectorRun};

/// Maximum number of runs of a unit. A unit of a file in more pieces is split into several.
pub(crate) const RUNS_MAX: usize = 256;

/// Why a capture cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The disk cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The files of the guest cannot be sorted.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// Temporary files cannot be written or read.
    #[error("cannot use temporary files")]
    Temporary(#[from] io::Error),
}

/// The next item on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlanItem {
    /// A unit.
    Unit(PlannedUnit),
    /// Sectors that are a hole of the image, and that must read as zero.
    Hole(SectorRun),
}

/// The runs of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedUnit {
    /// The places of its bytes, in the unit's own order: from 1 to [`RUNS_MAX`].
    pub(crate) runs: Vec<SectorRun>,
    /// Number of sectors at the end of the unit that lie behind the end of its file. If one of them is not zero, all of
    /// them become another unit.
    pub(crate) slack: u64,
}

/// How a disk is cut into units.
#[derive(Clone, Copy, Debug)]
struct CutRules {
    /// Sectors of a unit of a file; 0 if units do not follow files.
    file_sectors: u64,
    /// Sectors of any other unit. They also define the grid of such units.
    grid_sectors: u64,
    /// Whether the grid restarts with each volume.
    is_by_volume: bool,
}

impl CutRules {
    fn of(units: UnitKind) -> CutRules {
        match units {
            UnitKind::Files { unit_bytes } => CutRules {
                file_sectors: u64::from(unit_bytes) / SECTOR_BYTES,
                grid_sectors: GRID_SECTORS,
                is_by_volume: true,
            },
            UnitKind::Fixed { unit_bytes } => CutRules {
                file_sectors: 0,
                grid_sectors: (u64::from(unit_bytes) / SECTOR_BYTES).max(1),
                is_by_volume: false,
            },
        }
    }
}

/// A unit of no file that is being assembled along the disk.
#[derive(Debug, Default)]
struct Window {
    /// Its volume, and its number on the grid.
    key: (Option<usize>, u64),
    runs: Vec<SectorRun>,
    has_data: bool,
}

/// Takes the runs of a disk in order, and makes a plan of them.
pub(crate) struct Planner<'a, F: Iterator<Item = Result<PlacedExtent, OrderError>>> {
    disk: &'a dyn Disk,
    cut: CutRules,
    files: F,
    /// The claim at or after the current sector.
    claim: Option<Claim>,
    /// The data of the image at or after the current sector; empty before the first query.
    data: SectorRun,
    window: Window,
    /// Adjacent holes that have no row yet.
    hole: Option<SectorRun>,
    pieces: SortWriter,
    placed: SortWriter,
}

impl<'a, F: Iterator<Item = Result<PlacedExtent, OrderError>>> Planner<'a, F> {
    /// Returns the planner of a disk. `files` are the extents of its files, in the order of the disk. Rows take about
    /// `memory_bytes`; the rest goes into temporary files in `folder`.
    pub(crate) fn new(disk: &'a dyn Disk, units: UnitKind, files: F, folder: &Path, memory_bytes: usize) -> Self {
        Planner {
            disk,
            cut: CutRules::of(units),
            files,
            claim: None,
            data: SectorRun { start: 0, count: 0 },
            window: Window::default(),
            hole: None,
            pieces: SortWriter::new(folder, memory_bytes / 2),
            placed: SortWriter::new(folder, memory_bytes / 2),
        }
    }

    /// Adds a run, which begins at or after the end of the previous one.
    pub(crate) fn add(&mut self, run: TakenRun) -> Result<(), PlanError> {
        let mut at = run.sectors.start;
        while at < run.sectors.end() {
            let (is_hole, end) = self.data_at(at)?;
            let count = end.min(run.sectors.end()) - at;
            self.add_claimed(TakenRun { sectors: SectorRun { start: at, count }, ..run }, is_hole)?;
            at += count;
        }
        Ok(())
    }

    /// Returns whether a sector lies in a hole of the image, and the sector at which that state ends.
    fn data_at(&mut self, sector: u64) -> Result<(bool, u64), PlanError> {
        if self.data.end() <= sector {
            let next = self.disk.next_data(sector.saturating_mul(SECTOR_BYTES))?;
            // The hole after the last data has no end.
            let (start, end) =
                next.map_or((u64::MAX, u64::MAX), |data| (data.start / SECTOR_BYTES, data.end.div_ceil(SECTOR_BYTES)));
            let start = start.max(sector);
            self.data = SectorRun { start, count: end.max(start) - start };
        }
        if sector < self.data.start {
            return Ok((true, self.data.start));
        }
        // An empty range from the disk must not cause an endless loop.
        Ok((false, self.data.end().max(sector + 1)))
    }

    /// Adds sectors that are either all data or all a hole of the image.
    fn add_claimed(&mut self, run: TakenRun, is_hole: bool) -> Result<(), PlanError> {
        let (mut at, end) = (run.sectors.start, run.sectors.end());
        while at < end {
            let claim = self.claim_at(at)?;
            let owner = claim.filter(|claim| claim.sectors.start <= at);
            let stop = match (owner, claim) {
                (Some(owner), _) => owner.sectors.end().min(end),
                (None, Some(next)) => next.sectors.start.min(end),
                (None, None) => end,
            };
            let sectors = SectorRun { start: at, count: stop - at };
            match owner {
                Some(owner) => self.add_file(owner, sectors, is_hole)?,
                None => self.add_other(TakenRun { sectors, ..run }, is_hole)?,
            }
            at = stop;
        }
        Ok(())
    }

    /// Returns the claim on a sector, or the next claim after it. The first claim on a sector wins: a claim that begins
    /// later only gets the sectors after its end.
    fn claim_at(&mut self, sector: u64) -> Result<Option<Claim>, PlanError> {
        while self.claim.is_none_or(|claim| claim.sectors.end() <= sector) {
            let Some(extent) = self.files.next().transpose()? else {
                self.claim = None;
                break;
            };
            if let Some(claim) = Claim::of(&extent).filter(|claim| self.is_usable(claim)) {
                self.claim = Some(claim);
            }
        }
        Ok(self.claim)
    }

    /// Returns whether rows can hold the numbers of a claim, and whether it leaves out the last sector of the disk.
    /// That sector may be truncated. The length of a unit is well defined only if a truncated sector is its last one.
    fn is_usable(&self, claim: &Claim) -> bool {
        let last = claim.offset.saturating_add(claim.sectors.count) / self.cut.file_sectors.max(1);
        let unit = FileUnit { volume: claim.volume, file: claim.file, number: last };
        let whole_sectors = self.disk.size_bytes() / SECTOR_BYTES;
        self.cut.file_sectors > 0 && rows::fits(unit, claim.sectors.end()) && claim.sectors.end() <= whole_sectors
    }

    /// Adds sectors of a file.
    fn add_file(&mut self, claim: Claim, sectors: SectorRun, is_hole: bool) -> Result<(), PlanError> {
        let unit_sectors = self.cut.file_sectors;
        let mut rest = sectors;
        while rest.count > 0 {
            let in_file = claim.offset + (rest.start - claim.sectors.start);
            let (number, offset) = (in_file / unit_sectors, in_file % unit_sectors);
            let whole = rest.count / unit_sectors * unit_sectors;
            if is_hole && offset == 0 && whole > 0 {
                self.add_hole(take(&mut rest, whole))?;
                continue;
            }
            let is_behind_end = claim.content_end <= rest.start;
            let until_end = if is_behind_end { rest.count } else { claim.content_end - rest.start };
            let sectors = take(&mut rest, until_end.min(unit_sectors - offset));
            let unit = FileUnit { volume: claim.volume, file: claim.file, number };
            self.pieces.push(rows::encode_piece(unit, Piece { offset, sectors, is_behind_end, is_hole }))?;
        }
        Ok(())
    }

    /// Adds sectors of no file.
    fn add_other(&mut self, run: TakenRun, is_hole: bool) -> Result<(), PlanError> {
        let grid = self.cut.grid_sectors;
        let (volume, phase) = if self.cut.is_by_volume { (run.volume, run.phase) } else { (None, 0) };
        let mut rest = run.sectors;
        while rest.count > 0 {
            let on_grid = rest.start.saturating_add(phase);
            let offset = on_grid % grid;
            let whole = rest.count / grid * grid;
            if is_hole && offset == 0 && whole > 0 {
                self.add_hole(take(&mut rest, whole))?;
                continue;
            }
            let key = (volume, on_grid / grid);
            if self.window.key != key {
                self.end_window()?;
                self.window.key = key;
            }
            let sectors = take(&mut rest, grid - offset);
            push_run(&mut self.window.runs, sectors);
            self.window.has_data |= !is_hole;
        }
        Ok(())
    }

    /// Adds the current unit of no file to the plan.
    fn end_window(&mut self) -> Result<(), PlanError> {
        let Window { runs, has_data, .. } = std::mem::take(&mut self.window);
        if !has_data {
            return runs.into_iter().try_for_each(|run| self.add_hole(run));
        }
        runs.chunks(RUNS_MAX).try_for_each(|runs| push_unit(&mut self.placed, runs, 0))?;
        Ok(())
    }

    fn add_hole(&mut self, hole: SectorRun) -> Result<(), PlanError> {
        match &mut self.hole {
            Some(last) if last.end() == hole.start => last.count += hole.count,
            last => {
                if let Some(last) = last.replace(hole) {
                    self.placed.push(rows::encode_placed(PlacedRow::Hole(last)))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the plan.
    pub(crate) fn finish(mut self) -> Result<Plan, PlanError> {
        self.end_window()?;
        let mut unit = FileUnitParts::default();
        let pieces = std::mem::replace(&mut self.pieces, SortWriter::new(Path::new(""), 0));
        for row in pieces.finish()? {
            let (name, piece) = rows::decode_piece(row?);
            if !unit.takes(name, piece, self.cut.file_sectors) {
                self.end_file_unit(&mut unit)?;
            }
            unit.push(name, piece);
        }
        self.end_file_unit(&mut unit)?;
        if let Some(last) = self.hole.take() {
            self.placed.push(rows::encode_placed(PlacedRow::Hole(last)))?;
        }
        Ok(Plan::new(self.placed.finish()?))
    }

    fn end_file_unit(&mut self, unit: &mut FileUnitParts) -> Result<(), PlanError> {
        if unit.has_data {
            push_unit(&mut self.placed, &unit.runs, unit.slack)?;
        } else {
            unit.runs.iter().try_for_each(|run| self.add_hole(*run))?;
        }
        unit.clear();
        Ok(())
    }
}

/// Takes at most `count` sectors from the front of a run, and returns them.
fn take(rest: &mut SectorRun, count: u64) -> SectorRun {
    let taken = SectorRun { start: rest.start, count: count.min(rest.count) };
    *rest = SectorRun { start: taken.end(), count: rest.count - taken.count };
    taken
}

fn push_unit(placed: &mut SortWriter, runs: &[SectorRun], slack: u64) -> io::Result<()> {
    let Some(unit) = runs.first().map(|first| first.start) else { return Ok(()) };
    for (number, sectors) in (0..).zip(runs) {
        placed.push(rows::encode_placed(PlacedRow::Run { unit, number, slack, sectors: *sectors }))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
