//! Measures the run of equal blocks around a block: options may exclude short runs.

use std::io;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::Substrate;

use crate::extents::Extents;

/// Maximum number of blocks that are looked at in each direction: 16 MiB of them.
const BLOCKS_MAX: u64 = 4096;

/// Consecutive blocks that equal consecutive blocks elsewhere, at other places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EqualRun {
    /// Their number, at least one.
    pub blocks: u64,
    /// Whether there may be more, because not all were looked at.
    pub is_cut: bool,
}

/// Measures the run around a block that is equal to one of another file.
pub(super) fn run_around<S: Substrate>(
    substrate: &S,
    file: &S::File,
    block: u64,
    other: &S::File,
    other_block: u64,
) -> io::Result<EqualRun> {
    let mut pair = Pair { substrate, files: [file, other], maps: [Extents::new(), Extents::new()] };
    let mut count = |step: &dyn Fn(u64, u64) -> Option<u64>| -> io::Result<u64> {
        for distance in 1..=BLOCKS_MAX {
            let (Some(one), Some(two)) = (step(block, distance), step(other_block, distance)) else {
                return Ok(distance - 1);
            };
            if !pair.are_equal_and_apart([one, two])? {
                return Ok(distance - 1);
            }
        }
        Ok(BLOCKS_MAX)
    };
    let (before, behind) = (count(&u64::checked_sub)?, count(&u64::checked_add)?);
    Ok(EqualRun { blocks: before + 1 + behind, is_cut: before == BLOCKS_MAX || behind == BLOCKS_MAX })
}

/// Two files, and the places of their blocks.
struct Pair<'a, S: Substrate> {
    substrate: &'a S,
    files: [&'a S::File; 2],
    maps: [Extents; 2],
}

impl<S: Substrate> Pair<'_, S> {
    fn are_equal_and_apart(&mut self, blocks: [u64; 2]) -> io::Result<bool> {
        let mut bytes = [[0; BLOCK_BYTES]; 2];
        let mut places = [None; 2];
        for at in 0..2 {
            let offset = blocks[at].saturating_mul(BLOCK_BYTES_U64);
            let placed = self.maps[at].at(self.substrate, self.files[at], offset)?;
            if !placed.is_data || self.substrate.read_at(self.files[at], offset, &mut bytes[at])? < BLOCK_BYTES {
                return Ok(false);
            }
            places[at] = placed.place;
        }
        Ok(bytes[0] == bytes[1] && (places[0].is_none() || places[0] != places[1]))
    }
}
