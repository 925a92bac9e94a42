//! Places of the units of a chunk on a disk.

use crate::format::chunk_header::{ChunkHeader, PlacedUnit};
use crate::{SECTOR_BYTES, SectorRun, UnitName};

/// Why the header of a chunk is invalid for its disk, although its bytes are intact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header `{header}` of a chunk of the image is damaged: {what}")]
pub struct HeaderError {
    /// Name of the header as a unit.
    pub header: UnitName,
    /// Why it is invalid.
    pub what: &'static str,
}

/// Consecutive bytes of a unit that are also consecutive on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte on the disk.
    pub(crate) on_disk: u64,
    /// First byte in the unit's plain bytes.
    pub(crate) in_unit: usize,
    /// Length in bytes, not 0.
    pub(crate) length: usize,
}

/// Returns the range of a run's bytes on a disk of `size_bytes`, whose last sector may be truncated.
pub(crate) fn bytes_of(run: SectorRun, size_bytes: u64) -> std::ops::Range<u64> {
    run.start_bytes().min(size_bytes)..(run.end().saturating_mul(SECTOR_BYTES)).min(size_bytes)
}

/// Returns the pieces of a unit in the order of its bytes. The unit must come from a header that [`check`] has
/// accepted.
pub(crate) fn pieces(unit: &PlacedUnit, size_bytes: u64) -> impl Iterator<Item = Piece> {
    let mut in_unit = 0;
    unit.runs.iter().map(move |run| {
        let range = bytes_of(*run, size_bytes);
        // A checked unit has at most 1 MiB.
        let length = usize::try_from(range.end - range.start).unwrap_or(0);
        let piece = Piece { on_disk: range.start, in_unit, length };
        in_unit += length;
        piece
    })
}

/// Checks that all runs of a header lie on a disk of `size_bytes`, and that each unit fills its runs.
///
/// # Errors
/// When a run or a unit fails this check.
pub(crate) fn check(name: &UnitName, header: &ChunkHeader, size_bytes: u64) -> Result<(), HeaderError> {
    let damaged = |what| Err(HeaderError { header: *name, what });
    let sectors = size_bytes.div_ceil(SECTOR_BYTES);
    let is_on_disk =
        |run: &SectorRun| run.count > 0 && run.start.checked_add(run.count).is_some_and(|end| end <= sectors);
    for unit in &header.units {
        if !unit.runs.iter().all(is_on_disk) {
            return damaged("a unit lies outside of the disk");
        }
        let length = unit.runs.iter().try_fold(0_u64, |sum, run| {
            let range = bytes_of(*run, size_bytes);
            sum.checked_add(range.end - range.start)
        });
        if length != Some(u64::from(unit.plain_bytes)) {
            return damaged("a unit is longer or shorter than its places");
        }
    }
    if !header.zeros.iter().all(is_on_disk) {
        return damaged("a run of zeros lies outside of the disk");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(of: &[(u64, u64)]) -> Vec<SectorRun> {
        of.iter().map(|&(start, count)| SectorRun { start, count }).collect()
    }

    fn header(plain_bytes: u32, unit: &[(u64, u64)], zeros: &[(u64, u64)]) -> ChunkHeader {
        let unit = PlacedUnit { name: UnitName([1; 32]), plain_bytes, runs: runs(unit) };
        ChunkHeader { region: 0, units: vec![unit], zeros: runs(zeros) }
    }

    #[test]
    fn a_unit_is_cut_into_pieces_in_the_order_of_its_bytes() {
        let header = header(1636, &[(7, 1), (1, 1), (19, 2)], &[]);
        // The disk ends 412 bytes before the end of its last sector.
        let size_bytes = 20 * 512 + 100;
        check(&UnitName([2; 32]), &header, size_bytes).unwrap();
        let pieces: Vec<Piece> = pieces(&header.units[0], size_bytes).collect();
        let expected = [(7 * 512, 0, 512), (512, 512, 512), (19 * 512, 1024, 612)];
        assert_eq!(pieces, expected.map(|(on_disk, in_unit, length)| Piece { on_disk, in_unit, length }));
    }

    #[test]
    fn places_outside_of_the_disk_are_damage() {
        for (plain_bytes, unit, zeros, fits) in [
            (512, (9, 1), (0, 10), true),
            (512, (10, 1), (0, 1), false),
            (1024, (9, 2), (0, 1), false),
            (512, (u64::MAX, 1), (0, 1), false),
            (512, (0, u64::MAX), (0, 1), false),
            (0, (0, 0), (0, 1), false),
            (511, (0, 1), (0, 1), false),
            (513, (0, 1), (0, 1), false),
            (512, (0, 1), (5, 6), false),
            (512, (0, 1), (5, 0), false),
        ] {
            let header = header(plain_bytes, &[unit], &[zeros]);
            assert_eq!(check(&UnitName([2; 32]), &header, 10 * 512).is_ok(), fits, "{plain_bytes} {unit:?} {zeros:?}");
        }
    }
}
