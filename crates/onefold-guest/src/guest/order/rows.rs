//! Extents as sortable rows.
//!
//! An extent takes two rows with the same first word. A unique number keeps them together and separates them from
//! others:
//!
//! | word | bits | first row | second row |
//! |---|---|---|---|
//! | 0 | 16..64 | place on the disk, in bytes | the same |
//! | 0 | 0..16 | volume | the same |
//! | 1 | 28..64 | number of the extent | the same |
//! | 1 | 27 | 0 | 1 |
//! | 1 | 0..27 | length, in units | 0..23: bytes of it that are not used; 23: whether units are sectors; 24..27: kind |
//! | 2 | | file | first byte in the file |

use onefold_sort::Row;

use super::PlacedExtent;
use crate::error::Encoding;
use crate::filesystem::{ExtentKind, FileNumber};
use crate::volume::DiskRange;

const SECTOR_BYTES: u64 = 512;
const PLACE_BITS: u32 = 48;
const VOLUME_BITS: u32 = 16;
const NUMBER_BITS: u32 = 36;
const NUMBER_SHIFT: u32 = 28;
const SECOND: u64 = 1 << 27;
const LENGTH_MAX: u64 = (1 << 27) - 1;
/// Value for a range without used bytes.
const UNUSED_MAX: u64 = (1 << 23) - 1;
const IN_SECTORS: u64 = 1 << 23;
const KIND_SHIFT: u32 = 24;

/// All kinds. Their indices here are their numbers in rows.
const KINDS: [ExtentKind; 7] = [
    ExtentKind::Written,
    ExtentKind::Unwritten,
    ExtentKind::Encoded(Encoding::Encrypted),
    ExtentKind::Encoded(Encoding::Compressed),
    ExtentKind::Encoded(Encoding::Deduplicated),
    ExtentKind::Inline,
    ExtentKind::Shared,
];

/// Returns how much of an extent fits into one pair of rows: a length in bytes, at least 1 if `extent` is not empty.
pub(super) fn length_in_rows(extent: &PlacedExtent) -> u64 {
    let unit = unit_bytes(extent);
    let length = extent.range.length_bytes.min(LENGTH_MAX * unit);
    match length.saturating_sub(extent.used_bytes) < UNUSED_MAX || extent.used_bytes == 0 {
        true => length,
        // The used bytes with the rest of their sector. The bytes after it are unused.
        false => extent.used_bytes.next_multiple_of(unit).min(length),
    }
}

/// Returns the rows of an extent that is no longer than [`length_in_rows`]; `None` if one of its numbers exceeds the
/// limits of real disks.
pub(super) fn encode(extent: &PlacedExtent, number: u64) -> Option<[Row; 2]> {
    let place = extent.range.start_bytes;
    let volume = u64::try_from(extent.volume).ok()?;
    if place >> PLACE_BITS != 0 || volume >> VOLUME_BITS != 0 || number >> NUMBER_BITS != 0 {
        return None;
    }
    let unit = unit_bytes(extent);
    let length = extent.range.length_bytes / unit;
    let unused = extent.range.length_bytes.saturating_sub(extent.used_bytes).min(UNUSED_MAX);
    let kind = KINDS.iter().position(|kind| *kind == extent.kind)? as u64;
    let in_sectors = if unit == 1 { 0 } else { IN_SECTORS };
    let first = place << VOLUME_BITS | volume;
    let number = number << NUMBER_SHIFT;
    Some([
        [first, number | length.min(LENGTH_MAX), extent.file.0],
        [first, number | SECOND | kind << KIND_SHIFT | in_sectors | unused, extent.offset],
    ])
}

/// Returns the extent of two rows; `None` if they are not the rows of an extent.
pub(super) fn decode([first, second]: [Row; 2]) -> Option<PlacedExtent> {
    if first[0] != second[0] || first[1] >> NUMBER_SHIFT != second[1] >> NUMBER_SHIFT || second[1] & SECOND == 0 {
        return None;
    }
    let unit = if second[1] & IN_SECTORS == 0 { 1 } else { SECTOR_BYTES };
    let length_bytes = (first[1] & LENGTH_MAX) * unit;
    let unused = second[1] & UNUSED_MAX;
    let used_bytes = if unused == UNUSED_MAX { 0 } else { length_bytes.saturating_sub(unused) };
    let kind = usize::try_from(second[1] >> KIND_SHIFT & 7).ok()?;
    Some(PlacedExtent {
        range: DiskRange { start_bytes: first[0] >> VOLUME_BITS, length_bytes },
        volume: usize::try_from(first[0] & ((1 << VOLUME_BITS) - 1)).ok()?,
        file: FileNumber(first[2]),
        offset: second[2],
        used_bytes,
        kind: *KINDS.get(kind)?,
    })
}

fn unit_bytes(extent: &PlacedExtent) -> u64 {
    if extent.range.length_bytes.is_multiple_of(SECTOR_BYTES) { SECTOR_BYTES } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start_bytes: u64, length_bytes: u64, used_bytes: u64) -> PlacedExtent {
        let range = DiskRange { start_bytes, length_bytes };
        PlacedExtent {
            range,
            volume: 3,
            file: FileNumber(u64::MAX),
            offset: 1 << 60,
            used_bytes,
            kind: ExtentKind::Shared,
        }
    }

    #[test]
    fn rows_hold_all_of_an_extent() {
        for (at, kind) in KINDS.into_iter().enumerate() {
            for (start, length, used) in
                [(0, 4096, 4096), ((1 << 48) - 1, 60, 60), (1 << 44, 1 << 21, 1), (512, 512, 0)]
            {
                let extent = PlacedExtent { kind, volume: at * 9999, ..extent(start, length, used) };
                assert_eq!(length_in_rows(&extent), length);
                assert_eq!(decode(encode(&extent, (1 << 36) - 1).unwrap()), Some(extent));
            }
        }
    }

    #[test]
    fn a_long_unused_end_is_cut_off_before_it_means_that_none_is_used() {
        for unused in [UNUSED_MAX - 1, UNUSED_MAX, UNUSED_MAX + 1] {
            let mut whole = extent(512, 1 << 24, (1 << 24) - unused);
            let length = length_in_rows(&whole);
            assert_eq!(length == 1 << 24, unused < UNUSED_MAX, "{unused}");
            whole.range.length_bytes = length;
            assert_eq!(decode(encode(&whole, 0).unwrap()), Some(whole), "{unused}");
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_or_refused() {
        assert_eq!(length_in_rows(&extent(0, 1 << 40, 1 << 40)), LENGTH_MAX * 512);
        assert_eq!(length_in_rows(&extent(0, 1 << 30, 700)), 1024, "what is used, and the rest of its sector");
        let unused = extent(0, 1 << 30, 0);
        assert_eq!(length_in_rows(&unused), 1 << 30);
        assert_eq!(decode(encode(&unused, 0).unwrap()), Some(unused));
        assert_eq!(encode(&extent(1 << 48, 512, 512), 0), None);
        assert_eq!(encode(&extent(0, 512, 512), 1 << 36), None);
        assert_eq!(encode(&PlacedExtent { volume: 1 << 16, ..extent(0, 512, 512) }, 0), None);
        let [first, second] = encode(&extent(0, 512, 512), 1).unwrap();
        let [other, _] = encode(&extent(0, 512, 512), 2).unwrap();
        assert_eq!(decode([other, second]), None);
        assert_eq!(decode([first, first]), None);
    }
}
