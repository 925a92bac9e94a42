//! Parts of units as sortable rows.
//!
//! The first sort groups the pieces of each unit of a file:
//!
//! | word | bits | |
//! |---|---|---|
//! | 0 | | number of the file |
//! | 1 | 48..64 | volume |
//! | 1 | 0..48 | number of the unit in the file |
//! | 2 | 53..64 | first sector in the unit |
//! | 2 | 13..53 | first sector on the disk |
//! | 2 | 2..13 | number of sectors, less one |
//! | 2 | 1 | whether the bytes lie behind the end of the file |
//! | 2 | 0 | whether the sectors are a hole of the image |
//!
//! The second sort puts units into the order of the disk. A unit has a row for each run:
//!
//! | word | bits | |
//! |---|---|---|
//! | 0 | | first sector of the unit |
//! | 1 | 16..64 | number of the run in the unit |
//! | 1 | 4..16 | sectors at the end of the unit that lie behind the end of the file |
//! | 1 | 0 | whether it is a hole instead of a unit |
//! | 2 | 11..64 | first sector of the run; of a hole, all bits are its number of sectors |
//! | 2 | 0..11 | number of its sectors, less one |

use onefold_sort::Row;

use crate::SectorRun;

const VOLUME_BITS: u32 = 16;
const NUMBER_BITS: u32 = 64 - VOLUME_BITS;
const COUNT_BITS: u32 = 11;
const PLACE_BITS: u32 = 40;
const PLACE_SHIFT: u32 = COUNT_BITS + 2;
const OFFSET_SHIFT: u32 = PLACE_BITS + PLACE_SHIFT;
const BEHIND_END: u64 = 2;
const HOLE: u64 = 1;
const RUN_SHIFT: u32 = 16;
const SLACK_SHIFT: u32 = 4;
const SLACK_MASK: u64 = (1 << (RUN_SHIFT - SLACK_SHIFT)) - 1;

/// Maximum number of sectors in one row: those of a unit of 1 MiB.
pub(super) const SECTORS_MAX: u64 = 1 << COUNT_BITS;

/// A unit of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileUnit {
    /// The volume.
    pub(super) volume: u64,
    /// The number of the file.
    pub(super) file: u64,
    /// The number of the unit in the file.
    pub(super) number: u64,
}

/// A part of a unit of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its first sector in the unit.
    pub(super) offset: u64,
    /// Place on the disk, at most [`SECTORS_MAX`] sectors.
    pub(super) sectors: SectorRun,
    /// Whether its bytes lie behind the end of the file.
    pub(super) is_behind_end: bool,
    /// Whether it is a hole of the image.
    pub(super) is_hole: bool,
}

/// Returns whether rows can hold the numbers of a unit and its pieces, if the pieces lie before sector `end`.
pub(super) fn fits(unit: FileUnit, end: u64) -> bool {
    unit.volume >> VOLUME_BITS == 0 && unit.number >> NUMBER_BITS == 0 && end >> PLACE_BITS == 0
}

/// Returns the row of a piece. Unit and piece must fit.
pub(super) fn encode_piece(unit: FileUnit, piece: Piece) -> Row {
    let flags = if piece.is_behind_end { BEHIND_END } else { 0 } | if piece.is_hole { HOLE } else { 0 };
    let word = piece.offset << OFFSET_SHIFT
        | piece.sectors.start << PLACE_SHIFT
        | (piece.sectors.count - 1) << (PLACE_SHIFT - COUNT_BITS)
        | flags;
    [unit.file, unit.volume << NUMBER_BITS | unit.number, word]
}

/// Returns the unit and the piece of a row.
pub(super) fn decode_piece([file, unit, word]: Row) -> (FileUnit, Piece) {
    let unit = FileUnit { volume: unit >> NUMBER_BITS, file, number: unit & ((1 << NUMBER_BITS) - 1) };
    let start = word >> PLACE_SHIFT & ((1 << PLACE_BITS) - 1);
    let count = (word >> (PLACE_SHIFT - COUNT_BITS) & (SECTORS_MAX - 1)) + 1;
    let piece = Piece {
        offset: word >> OFFSET_SHIFT,
        sectors: SectorRun { start, count },
        is_behind_end: word & BEHIND_END != 0,
        is_hole: word & HOLE != 0,
    };
    (unit, piece)
}

/// A row of the second sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacedRow {
    /// A hole of the image.
    Hole(SectorRun),
    /// A run of a unit.
    Run {
        /// The first sector of the unit.
        unit: u64,
        /// The number of the run in the unit.
        number: u64,
        /// Number of sectors at the end of the unit that lie behind the end of its file.
        slack: u64,
        /// Place on the disk, at most [`SECTORS_MAX`] sectors.
        sectors: SectorRun,
    },
}

/// Returns the row of a hole or a run.
pub(super) fn encode_placed(placed: PlacedRow) -> Row {
    match placed {
        PlacedRow::Hole(hole) => [hole.start, HOLE, hole.count],
        PlacedRow::Run { unit, number, slack, sectors } => {
            let word = sectors.start << COUNT_BITS | (sectors.count - 1);
            [unit, number << RUN_SHIFT | slack.min(SLACK_MASK) << SLACK_SHIFT, word]
        }
    }
}

/// Returns the hole or run of a row.
pub(super) fn decode_placed([first, word, place]: Row) -> PlacedRow {
    if word & HOLE != 0 {
        return PlacedRow::Hole(SectorRun { start: first, count: place });
    }
    PlacedRow::Run {
        unit: first,
        number: word >> RUN_SHIFT,
        slack: word >> SLACK_SHIFT & SLACK_MASK,
        sectors: SectorRun { start: place >> COUNT_BITS, count: (place & (SECTORS_MAX - 1)) + 1 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_survive_their_rows_and_sort_by_unit_and_offset() {
        let last = FileUnit { volume: 65_535, file: u64::MAX, number: (1 << 48) - 1 };
        let mut rows = Vec::new();
        for unit in [FileUnit { volume: 0, file: 0, number: 0 }, FileUnit { volume: 3, file: 12, number: 70_000 }, last]
        {
            for (offset, start, count) in [(0, 0, 1), (1, (1 << 40) - 2048, 2048), (2047, 5, 1)] {
                for (is_behind_end, is_hole) in [(false, false), (true, false), (false, true), (true, true)] {
                    let sectors = SectorRun { start, count };
                    let piece = Piece { offset, sectors, is_behind_end, is_hole };
                    assert!(fits(unit, sectors.end() - 1));
                    assert_eq!(decode_piece(encode_piece(unit, piece)), (unit, piece));
                }
                let piece = Piece { offset, sectors: SectorRun { start, count }, is_behind_end: false, is_hole: false };
                rows.push(encode_piece(unit, piece));
            }
        }
        assert!(rows.is_sorted());
        assert!(!fits(FileUnit { number: 1 << 48, ..last }, 0) && !fits(FileUnit { volume: 1 << 16, ..last }, 0));
        assert!(!fits(last, 1 << 40));
    }

    #[test]
    fn runs_and_holes_survive_their_rows() {
        let run = |unit, number, slack, start, count| PlacedRow::Run {
            unit,
            number,
            slack,
            sectors: SectorRun { start, count },
        };
        let all = [
            PlacedRow::Hole(SectorRun { start: 0, count: u64::MAX }),
            run(7, 0, 0, 7, 2048),
            run(7, 255, 7, (1 << 53) - 1, 1),
            run(u64::MAX >> 9, 1, 4095, 0, 100),
        ];
        for placed in all {
            assert_eq!(decode_placed(encode_placed(placed)), placed);
        }
    }
}
