//! The bytes that a pass would free, for a pass that only plans.
//!
//! A planned place frees its block if nothing else refers to that block, which the map of its file shows. Where the
//! file system frees whole extents only (Btrfs), this is the most that can come free.

use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::{Merge, SortWriter};
use onefold_substrate::{Access, MappedExtent, Substrate};

use super::images::Images;
use super::lists::part_bytes;
use super::rows::{Target, WaitingPlace};
use super::{PassError, PassOptions};
use crate::extents::each_extent;
use crate::format::{FileBlock, FileNo};
use crate::state::State;

/// Returns the bytes of all planned places that would come free. `None` if the file system shows no maps to this user.
pub(super) fn bytes_to_free<S: Substrate>(
    state: &State<'_, S>,
    images: &Images<'_, '_, S>,
    (waiting, targets): (Merge, Merge),
    options: &PassOptions<'_>,
) -> Result<Option<u64>, PassError> {
    let mut places = SortWriter::new(options.temporary_folder, part_bytes(options) / 2);
    for row in waiting {
        let WaitingPlace { file, block, .. } = WaitingPlace::of(row?);
        places.push(Target { file, block, slot: None }.row())?;
    }
    for row in targets {
        let Target { file, block, .. } = Target::of(row?);
        places.push(Target { file, block, slot: None }.row())?;
    }
    let mut places = places.finish()?.map(|row| row.map(Target::of)).peekable();
    let (mut freed, mut blocks) = (0_u64, Vec::new());
    while let Some(Target { file, block, .. }) = places.next().transpose()? {
        blocks.push(block);
        let goes_on = |next: &io::Result<Target>| next.as_ref().is_ok_and(|next| next.file == file);
        if blocks.len() < PIECE_BLOCKS && places.peek().is_some_and(goes_on) {
            continue;
        }
        options.pace.boundary().map_err(crate::state::StateError::from)?;
        match of_file(state.substrate(), images, file, &blocks) {
            Ok(bytes) => freed = freed.saturating_add(bytes),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            // A file that is gone or cannot be mapped is not shared in, either.
            Err(_) => {}
        }
        blocks.clear();
    }
    Ok(Some(freed))
}

/// Maximum number of blocks that are compared with a map at a time.
const PIECE_BLOCKS: usize = 1 << 20;

/// Returns the bytes of blocks of a file, given in order, to which nothing else refers.
fn of_file<S: Substrate>(
    substrate: &S,
    images: &Images<'_, '_, S>,
    number: FileNo,
    blocks: &[FileBlock],
) -> io::Result<u64> {
    let file = images.open(number, Access::Read)?;
    let mut freed = 0_u64;
    each_extent(substrate, &file, |extent| -> io::Result<()> {
        if !extent.is_shared && !extent.is_unwritten && extent.place.is_some() {
            freed = freed.saturating_add(blocks_in(extent, blocks).saturating_mul(BLOCK_BYTES_U64));
        }
        Ok(())
    })?;
    Ok(freed)
}

/// Returns how many of these blocks, which are in order, begin in an extent.
fn blocks_in(extent: &MappedExtent, blocks: &[FileBlock]) -> u64 {
    let before = |offset: u64| blocks.partition_point(|block| block.0.saturating_mul(BLOCK_BYTES_U64) < offset);
    (before(extent.end()) - before(extent.offset)) as u64
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
        let blocks = [1, 2, 3, 7, 9].map(FileBlock);
        for (offset, length, expected) in [(0, 1, 0), (0, 2, 1), (1, 3, 3), (4, 3, 0), (4, 100, 2), (10, 1, 0)] {
            assert_eq!(blocks_in(&extent(offset, length), &blocks), expected, "{offset} {length}");
        }
        assert_eq!(blocks_in(&extent(0, 100), &[]), 0);
    }
}
