//! Joins neighbours: one request for blocks that follow each other on the device and in memory.

use std::ops::Range;

use super::{ReadOp, WriteOp};
use crate::{BLOCK_BYTES, BlockNo};

/// A run of places of a list whose blocks follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The places. Never empty.
    pub places: Range<usize>,
    /// The block at the first place; each further place has the next block. `None` if the places have no block.
    pub first: Option<BlockNo>,
}

/// Splits a list into runs of consecutive blocks and of places without a block, in order.
pub fn runs<T>(list: &[T], block_of: impl Fn(&T) -> Option<BlockNo>) -> impl Iterator<Item = BlockRun> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = block_of(list.get(at)?);
        let follows = |(offset, one): &(u64, &T)| block_of(one) == first.map(|first| first.plus(*offset));
        let places = at..at + (0..).zip(&list[at..]).take_while(follows).count();
        at = places.end;
        Some(BlockRun { places, first })
    })
}

/// Returns the operations that read `blocks` one after another into `into`, which has one block of bytes for each.
///
/// # Panics
/// When `into` is too short.
pub fn reads_of<'a>(blocks: &[BlockNo], into: &'a mut [u8]) -> Vec<ReadOp<'a>> {
    let mut rest = into;
    let mut batch = Vec::new();
    for run in runs(blocks, |block| Some(*block)) {
        let (into, after) = rest.split_at_mut(run.places.len() * BLOCK_BYTES);
        batch.extend(run.first.map(|first| ReadOp { first, into }));
        rest = after;
    }
    batch
}

/// Returns the operations that write `from`, one block of bytes for each of `blocks`.
///
/// # Panics
/// When `from` is too short.
pub fn writes_of<'a>(blocks: &[BlockNo], from: &'a [u8]) -> Vec<WriteOp<'a>> {
    let bytes = |places: Range<usize>| &from[places.start * BLOCK_BYTES..places.end * BLOCK_BYTES];
    runs(blocks, |block| Some(*block))
        .filter_map(|run| Some(WriteOp { first: run.first?, from: bytes(run.places) }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_form_a_run_and_places_without_a_block_another() {
        let list = [Some(4), Some(5), Some(7), Some(6), None, None, Some(8), Some(9), Some(10)];
        let found: Vec<_> = runs(&list, |one| one.map(BlockNo)).map(|run| (run.places, run.first)).collect();
        let first = |number| Some(BlockNo(number));
        assert_eq!(found, [(0..2, first(4)), (2..3, first(7)), (3..4, first(6)), (4..6, None), (6..9, first(8))]);
        assert_eq!(runs(&[], |one: &Option<u64>| one.map(BlockNo)).count(), 0);
    }

    #[test]
    fn requests_cover_each_block_at_its_own_place() {
        let blocks = [BlockNo(2), BlockNo(3), BlockNo(9)];
        let mut bytes = vec![0; 3 * BLOCK_BYTES];
        bytes[2 * BLOCK_BYTES] = 7;
        let writes: Vec<_> =
            writes_of(&blocks, &bytes).iter().map(|op| (op.first.0, op.from.len(), op.from[0])).collect();
        assert_eq!(writes, [(2, 2 * BLOCK_BYTES, 0), (9, BLOCK_BYTES, 7)]);
        let reads: Vec<_> =
            reads_of(&blocks, &mut bytes).iter().map(|op| (op.first.0, op.into.len(), op.into[0])).collect();
        assert_eq!(reads, writes);
    }
}
