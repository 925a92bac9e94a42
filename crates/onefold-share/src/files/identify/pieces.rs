//! The host's whole blocks in which a file of a guest lies.
//!
//! A range of a file begins at byte `place` of the disk and at byte `offset` of the content. Its blocks are the blocks
//! of the host that lie within it. If `place` and `offset` differ by whole blocks, these are blocks of the content.
//! Otherwise each of them begins within a block of the content, at a distance from its start that is the *phase*. Two
//! files can share only if their phases are equal.

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_disk::{Disk, DiskError, FilePlacement};
use onefold_guest::volume::DiskRange;

use crate::format::FileBlock;
use crate::format::guest::{CONTENT_BLOCKS_MAX, PHASES, PIECES_MAX, PhasedPieces, Piece};

const UNIT_BYTES: u64 = BLOCK_BYTES_U64 / PHASES as u64;
const _: () = assert!(BLOCK_BYTES.is_multiple_of(512) && UNIT_BYTES == 512, "a phase is in sectors");

/// The pieces of one file, by phase.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pub(super) by_phase: PhasedPieces,
    /// Bytes of the content that lie in no whole block of the host.
    pub(super) ragged_bytes: u64,
}

impl Pieces {
    /// Removes all pieces.
    pub(super) fn clear(&mut self) {
        self.by_phase.clear();
        self.ragged_bytes = 0;
    }

    /// Adds a range of the disk, which holds the content from byte `offset` on, as far as the image file maps it.
    /// Returns how many bytes of the content the image file does not map: they are compressed, or a hole of the format.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(super) fn add_of_disk(
        &mut self,
        disk: &dyn Disk,
        range: DiskRange,
        offset: u64,
        size: u64,
    ) -> Result<u64, DiskError> {
        let mut unmapped: u64 = 0;
        let mut done = 0;
        while done < range.length_bytes {
            let FilePlacement { offset: place, length_bytes } = disk.in_file(range.start_bytes.saturating_add(done))?;
            let left = range.length_bytes - done;
            // The disk has nothing behind its end.
            let length = if length_bytes == 0 { left } else { length_bytes.min(left) };
            let content = offset.saturating_add(done);
            match place {
                Some(place) => self.add(place, content, length, size),
                None => unmapped = unmapped.saturating_add(length.min(size.saturating_sub(content))),
            }
            done += length;
        }
        Ok(unmapped)
    }

    /// Adds the range of `length` bytes at byte `place` of the disk. It holds the content of a file of `size` bytes
    /// from byte `offset` on. Of bytes past the end of the file, only the rest of its last block is added.
    pub(super) fn add(&mut self, place: u64, offset: u64, length: u64, size: u64) {
        let used = length.min(size.saturating_sub(offset));
        let first = place.div_ceil(BLOCK_BYTES_U64);
        let skipped = first.saturating_mul(BLOCK_BYTES_U64).saturating_sub(place);
        let whole = length.saturating_sub(skipped) / BLOCK_BYTES_U64;
        let content = offset.saturating_add(skipped);
        let wanted = size.saturating_sub(content).div_ceil(BLOCK_BYTES_U64);
        let count = whole.min(wanted);
        let is_kept = count > 0 && content.is_multiple_of(UNIT_BYTES) && self.push(content, first, count);
        let kept = if is_kept { (count * BLOCK_BYTES_U64).min(size.saturating_sub(content)) } else { 0 };
        self.ragged_bytes = self.ragged_bytes.saturating_add(used.saturating_sub(kept));
    }

    fn push(&mut self, content_bytes: u64, block: u64, count: u64) -> bool {
        let (content, within) = (content_bytes / BLOCK_BYTES_U64, content_bytes % BLOCK_BYTES_U64);
        let phase = usize::try_from(within / UNIT_BYTES).unwrap_or_default();
        let Some(pieces) = self.by_phase.0.get_mut(phase) else { return false };
        if content.saturating_add(count) > CONTENT_BLOCKS_MAX || block.saturating_add(count) > FileBlock::LIMIT {
            return false;
        }
        if let Some(last) = pieces.last_mut()
            && last.content.checked_add(last.count) == Some(content)
            && last.block.checked_add(last.count) == Some(block)
        {
            last.count += count;
            return true;
        }
        let has_room = pieces.len() < PIECES_MAX;
        if has_room {
            pieces.push(Piece { content, block, count });
        }
        has_room
    }

    /// Returns each phase that has pieces, with its pieces.
    pub(super) fn phases(&self) -> impl Iterator<Item = (u64, &[Piece])> {
        self.by_phase.phases()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(size: u64, ranges: &[(u64, u64, u64)]) -> (Vec<(u64, u64, u64, u64)>, u64) {
        let mut pieces = Pieces::default();
        for &(place, offset, length) in ranges {
            pieces.add(place, offset, length, size);
        }
        let of_phase = |(phase, pieces): (u64, &[Piece])| {
            pieces.iter().map(move |one| (phase, one.content, one.block, one.count)).collect::<Vec<_>>()
        };
        let all = pieces.phases().flat_map(of_phase).collect();
        (all, pieces.ragged_bytes)
    }

    /// Clusters of 8 KiB, in reverse order; every fourth one is compressed.
    struct Clusters;

    impl Disk for Clusters {
        fn size_bytes(&self) -> u64 {
            1 << 20
        }

        fn next_data(&self, offset: u64) -> Result<Option<std::ops::Range<u64>>, DiskError> {
            Ok((offset < 1 << 20).then_some(offset..1 << 20))
        }

        fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
            let (cluster, within) = (offset / 8192, offset % 8192);
            let place = (offset < 1 << 20).then(|| (1 << 20) - 8192 * (cluster + 1) + within);
            let length_bytes = if offset < 1 << 20 { 8192 - within } else { 0 };
            Ok(FilePlacement { offset: place.filter(|_| cluster % 4 != 3), length_bytes })
        }

        fn read(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
            into.fill(0);
            Ok(())
        }
    }

    #[test]
    fn places_are_those_in_the_file_of_the_image() {
        let mut pieces = Pieces::default();
        let range = DiskRange { start_bytes: 4096, length_bytes: 32768 };
        // The disk's blocks 1 to 8 are in the file's clusters 127, 126, 125 and 123; the cluster of blocks 6 and 7 is
        // compressed.
        assert_eq!(pieces.add_of_disk(&Clusters, range, 0, 32000).unwrap(), 8192);
        let (_, found) = pieces.phases().next().unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.content, one.block, one.count)).collect();
        assert_eq!(found, [(0, 255, 1), (1, 252, 2), (3, 250, 2), (7, 246, 1)]);
        let behind = DiskRange { start_bytes: 1 << 20, length_bytes: 4096 };
        assert_eq!(pieces.add_of_disk(&Clusters, behind, 0, 1000).unwrap(), 1000);
    }

    #[test]
    fn the_last_block_is_whole_and_what_is_behind_it_is_left_out() {
        assert_eq!(pieces(5000, &[(40960, 0, 8192)]), (vec![(0, 0, 10, 2)], 0));
        assert_eq!(pieces(5000, &[(40960, 0, 1 << 20)]), (vec![(0, 0, 10, 2)], 0));
        assert_eq!(pieces(5000, &[(40960, 8192, 4096)]), (vec![], 0));
        assert_eq!(pieces(0, &[(40960, 0, 4096)]), (vec![], 0));
    }

    #[test]
    fn ranges_that_follow_on_each_other_are_one_piece() {
        assert_eq!(pieces(1 << 20, &[(0, 0, 4096), (4096, 4096, 8192)]), (vec![(0, 0, 0, 3)], 0));
        let gap = pieces(1 << 20, &[(0, 0, 4096), (4096, 8192, 4096), (12288, 12288, 4096)]);
        assert_eq!(gap, (vec![(0, 0, 0, 1), (0, 2, 1, 1), (0, 3, 3, 1)], 0));
    }

    #[test]
    fn blocks_that_begin_within_one_of_the_content_have_a_phase() {
        // A partition that begins at sector 63: the first whole block of the host begins 512 bytes into the content.
        assert_eq!(pieces(16384, &[(63 * 512, 0, 16384)]), (vec![(1, 0, 8, 3)], 4096));
        // Blocks of 1 KiB: the content begins in the middle of a block of the host.
        assert_eq!(pieces(5000, &[(9 * 1024, 0, 5120)]), (vec![], 5000));
        assert_eq!(pieces(9000, &[(9 * 1024, 0, 9216)]), (vec![(6, 0, 3, 1)], 9000 - 4096));
        // No sector begins there.
        assert_eq!(pieces(9000, &[(100, 0, 9216)]), (vec![], 9000));
    }

    #[test]
    fn places_that_cannot_be_have_no_pieces() {
        for (place, offset, length, size) in [
            (u64::MAX, 0, 4096, 4096),
            (0, u64::MAX - 4095, 4096, u64::MAX),
            (u64::MAX - 4095, u64::MAX - 4095, u64::MAX, u64::MAX),
        ] {
            assert_eq!(pieces(size, &[(place, offset, length)]).0, [], "{place} {offset}");
        }
        let hostile: Vec<_> = (0..100_000).map(|at| (at * 8192, at * 8192, 4096)).collect();
        assert_eq!(pieces(u64::MAX, &hostile).0.len(), PIECES_MAX);
    }
}
