//! A unit of a file, assembled from its pieces.

use super::RUNS_MAX;
use super::rows::{FileUnit, Piece};
use crate::SectorRun;

/// The pieces of one unit of a file.
#[derive(Debug, Default)]
pub(super) struct FileUnitParts {
    unit: Option<FileUnit>,
    /// Its runs, in the order of the file.
    pub(super) runs: Vec<SectorRun>,
    sectors: u64,
    /// Number of sectors at the end that lie behind the end of the file.
    pub(super) slack: u64,
    /// Whether at least one piece is not a hole of the image.
    pub(super) has_data: bool,
}

impl FileUnitParts {
    /// Returns whether a piece belongs to this unit and the unit has room for it. Extents of a hostile file may overlap
    /// in the file, so a unit could otherwise have any number of sectors.
    pub(super) fn takes(&self, unit: FileUnit, piece: Piece, sectors_max: u64) -> bool {
        self.unit == Some(unit) && self.runs.len() < RUNS_MAX && self.sectors + piece.sectors.count <= sectors_max
    }

    /// Adds a piece.
    pub(super) fn push(&mut self, unit: FileUnit, piece: Piece) {
        self.unit = Some(unit);
        push_run(&mut self.runs, piece.sectors);
        self.sectors += piece.sectors.count;
        self.slack = if piece.is_behind_end { self.slack + piece.sectors.count } else { 0 };
        self.has_data |= !piece.is_hole;
    }

    /// Resets this to the unit without pieces.
    pub(super) fn clear(&mut self) {
        *self = FileUnitParts { runs: std::mem::take(&mut self.runs), ..FileUnitParts::default() };
        self.runs.clear();
    }
}

/// Appends a run, and merges it with the last one if they are adjacent.
pub(super) fn push_run(runs: &mut Vec<SectorRun>, run: SectorRun) {
    match runs.last_mut() {
        Some(last) if last.end() == run.start => last.count += run.count,
        _ => runs.push(run),
    }
}
