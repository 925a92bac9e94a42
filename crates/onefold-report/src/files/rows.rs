//! Names and extents of files as rows. They are sorted first by file, where they are joined, and then by place.
//!
//! | by file: word | bits | name | extent |
//! |---|---|---|---|
//! | 0 | | file | file |
//! | 1 | 49..64 | volume | volume |
//! | 1 | 48 | 0 | 1 |
//! | 1 | 0..48 | 0 | place on the disk, in sectors |
//! | 2 | | owner | length, in bytes |
//!
//! Sorted by place, a row is the first byte, the rank of the owner, and the byte after the last.

use std::io;

use onefold_guest::filesystem::FileNumber;
use onefold_guest::volume::DiskRange;
use onefold_sort::{Merge, Row, SortWriter};

const SECTOR_BYTES: u64 = 512;
const VOLUME_SHIFT: u32 = 49;
const EXTENT: u64 = 1 << 48;
const PLACE_MAX: u64 = EXTENT - 1;
/// Maximum number of volumes whose files can be distinguished.
pub(super) const VOLUMES_MAX: usize = 1 << 15;

/// Returns the row of a file's owner; `None` for a volume beyond [`VOLUMES_MAX`].
pub(super) fn name_row(volume: usize, file: FileNumber, owner: u32) -> Option<Row> {
    Some([file.0, volume_word(volume)?, owner.into()])
}

/// Returns the row of an extent; `None` if the place of the extent is impossible.
pub(super) fn extent_row(volume: usize, file: FileNumber, range: &DiskRange) -> Option<Row> {
    let place = range.start_bytes / SECTOR_BYTES;
    if place > PLACE_MAX || !range.start_bytes.is_multiple_of(SECTOR_BYTES) || range.length_bytes == 0 {
        return None;
    }
    Some([file.0, volume_word(volume)? | EXTENT | place, range.length_bytes])
}

fn volume_word(volume: usize) -> Option<u64> {
    (volume < VOLUMES_MAX).then_some((volume as u64) << VOLUME_SHIFT)
}

/// Assigns an owner to each extent, and adds the extent to the rows by place. The owner of a file is the first of its
/// names by `ranks`. `nameless` returns the rank for files of a volume that have no name.
///
/// # Errors
/// Those of temporary files.
pub(super) fn join(
    by_file: Merge,
    ranks: &[u32],
    nameless: &dyn Fn(usize) -> u32,
    by_place: &mut SortWriter,
) -> io::Result<()> {
    let mut current = None;
    let mut owner = None;
    for row in by_file {
        let [file, word, value] = row?;
        let volume = word >> VOLUME_SHIFT;
        if current != Some((file, volume)) {
            current = Some((file, volume));
            owner = None;
        }
        if word & EXTENT == 0 {
            let rank = usize::try_from(value).ok().and_then(|number| ranks.get(number)).copied();
            owner = owner.into_iter().chain(rank).min();
        } else {
            let start = (word & PLACE_MAX) * SECTOR_BYTES;
            let rank = owner.unwrap_or_else(|| nameless(usize::try_from(volume).unwrap_or(usize::MAX)));
            by_place.push([start, rank.into(), start.saturating_add(value)])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_gets_the_first_name_of_its_file() {
        let folder = std::env::temp_dir();
        let mut by_file = SortWriter::new(&folder, 1 << 20);
        let range = |start_bytes| DiskRange { start_bytes, length_bytes: 8192 };
        let rows = [
            extent_row(1, FileNumber(7), &range(4096)),
            name_row(1, FileNumber(7), 2),
            name_row(1, FileNumber(7), 0),
            extent_row(2, FileNumber(7), &range(0)),
            extent_row(1, FileNumber(u64::MAX), &range(65536)),
            name_row(1, FileNumber(u64::MAX), 1),
            name_row(1, FileNumber(9), 1),
        ];
        rows.into_iter().for_each(|row| by_file.push(row.unwrap()).unwrap());
        let mut by_place = SortWriter::new(&folder, 1 << 20);
        let nameless = |volume: usize| u32::try_from(volume).unwrap() * 100;
        join(by_file.finish().unwrap(), &[5, 6, 4], &nameless, &mut by_place).unwrap();
        let rows: Vec<Row> = by_place.finish().unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, [[0, 200, 8192], [4096, 4, 12288], [65536, 6, 73728]]);
    }

    #[test]
    fn places_that_no_extent_has_give_no_row() {
        let range = |start_bytes, length_bytes| DiskRange { start_bytes, length_bytes };
        assert_eq!(extent_row(0, FileNumber(1), &range(100, 512)), None);
        assert_eq!(extent_row(0, FileNumber(1), &range(512, 0)), None);
        assert_eq!(extent_row(0, FileNumber(1), &range(1 << 60, 512)), None);
        assert_eq!(extent_row(VOLUMES_MAX, FileNumber(1), &range(0, 512)), None);
        assert_eq!(name_row(VOLUMES_MAX, FileNumber(1), 0), None);
    }
}
