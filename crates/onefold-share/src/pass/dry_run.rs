//! The bytes that a pass would free, for a pass that only plans.
//!
//! A planned place frees its block if nothing else refers to that block, which the map of its file shows. Where the
//! file system frees whole extents only (Btrfs), this is the most that can come free.

use std::io;
use std::ops::Range;

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::SortWriter;
use onefold_substrate::{Access, MappedExtent, Substrate};

use super::images::Images;
use super::lists::part_bytes;
use super::{PassError, PassOptions};
use crate::extents::each_extent;
use crate::format::{FileBlock, FileNo};
use crate::state::State;

/// The places that are to share, in any order. A place may be given several times.
pub(super) struct PlannedPlaces<'a> {
    places: SortWriter,
    options: &'a PassOptions<'a>,
}

impl<'a> PlannedPlaces<'a> {
    pub(super) fn new(options: &'a PassOptions<'a>) -> PlannedPlaces<'a> {
        PlannedPlaces { places: SortWriter::new(options.temporary_folder, part_bytes(options) / 2), options }
    }

    /// Adds consecutive blocks of a file.
    pub(super) fn add(&mut self, file: FileNo, block: FileBlock, count: u64) -> io::Result<()> {
        self.places.push([u64::from(file.0), block.0, count])
    }

    /// Returns the bytes of all places that would come free. `None` if the file system shows no maps to this user.
    pub(super) fn bytes_to_free<S: Substrate>(
        self,
        state: &State<'_, S>,
        images: &Images<'_, '_, S>,
    ) -> Result<Option<u64>, PassError> {
        let mut places = self.places.finish()?.peekable();
        let (mut freed, mut ranges) = (0_u64, Vec::new());
        while let Some([file, block, count]) = places.next().transpose()? {
            add_range(&mut ranges, block..block.saturating_add(count));
            // The rest of a range that overlaps the last one of a piece would count twice.
            let goes_on = |next: &io::Result<[u64; 3]>| {
                let end = ranges.last().map_or(0, |last: &Range<u64>| last.end);
                next.as_ref().is_ok_and(|next| next[0] == file && (ranges.len() < PIECE_RANGES || next[1] <= end))
            };
            if places.peek().is_some_and(goes_on) {
                continue;
            }
            self.options.pace.boundary().map_err(crate::state::StateError::from)?;
            let number = FileNo(u32::try_from(file).expect("a row has the number of a file"));
            match of_file(state.substrate(), images, number, &ranges) {
                Ok(bytes) => freed = freed.saturating_add(bytes),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
                // A file that is gone or cannot be mapped is not shared in, either.
                Err(_) => {}
            }
            ranges.clear();
        }
        Ok(Some(freed))
    }
}

/// Maximum number of ranges that are compared with a map at a time.
const PIECE_RANGES: usize = 1 << 19;

/// Adds a range that does not begin before the last one.
fn add_range(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
        _ => ranges.push(range),
    }
}

/// Returns the bytes of ranges of blocks of a file, given in order, to which nothing else refers.
fn of_file<S: Substrate>(
    substrate: &S,
    images: &Images<'_, '_, S>,
    number: FileNo,
    ranges: &[Range<u64>],
) -> io::Result<u64> {
    let file = images.open(number, Access::Read)?;
    let mut freed = 0_u64;
    each_extent(substrate, &file, |extent| -> io::Result<()> {
        if !extent.is_shared && !extent.is_unwritten && extent.place.is_some() {
            freed = freed.saturating_add(blocks_in(extent, ranges).saturating_mul(BLOCK_BYTES_U64));
        }
        Ok(())
    })?;
    Ok(freed)
}

/// Returns how many blocks of these ranges, which are in order and apart, begin in an extent.
fn blocks_in(extent: &MappedExtent, ranges: &[Range<u64>]) -> u64 {
    let (first, end) = (extent.offset.div_ceil(BLOCK_BYTES_U64), extent.end().div_ceil(BLOCK_BYTES_U64));
    let reached = ranges.get(ranges.partition_point(|range| range.end <= first)..).unwrap_or_default();
    let inside = reached.iter().take_while(|range| range.start < end);
    inside.map(|range| range.end.min(end) - range.start.max(first)).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_in_the_extent_in_which_they_begin() {
        let extent = |offset, length| MappedExtent {
            offset: offset * BLOCK_BYTES_U64,
            length: length * BLOCK_BYTES_U64,
            place: Some(0),
            is_shared: false,
            is_unwritten: false,
        };
        let ranges = [1..4, 7..8, 9..10];
        for (offset, length, expected) in [(0, 1, 0), (0, 2, 1), (1, 3, 3), (4, 3, 0), (4, 100, 2), (10, 1, 0)] {
            assert_eq!(blocks_in(&extent(offset, length), &ranges), expected, "{offset} {length}");
        }
        assert_eq!(blocks_in(&extent(0, 100), &[]), 0);
        let far = FileBlock::LIMIT..u64::MAX;
        assert_eq!(blocks_in(&extent(0, 100), &[far]), 0);
    }

    #[test]
    fn a_block_that_is_planned_twice_counts_once() {
        let mut ranges = Vec::new();
        for range in [1..3, 2..3, 3..5, 7..9, 7..8, 9..10, 20..21] {
            add_range(&mut ranges, range);
        }
        assert_eq!(ranges, [1..5, 7..10, 20..21]);
    }
}
