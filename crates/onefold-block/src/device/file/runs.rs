//! Sorts a batch and joins adjacent operations into one transfer.

use std::ops::Range;

use crate::{BLOCK_BYTES_U64, BlockNo};

/// Consecutive blocks whose buffers are some of a batch's slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    /// Offset on the device, in bytes.
    pub(super) offset: u64,
    /// Length in bytes.
    pub(super) bytes: usize,
    /// Range of the sorted slices.
    pub(super) slices: Range<usize>,
}

/// Maximum length of a run, so that a long sequence keeps several transfers in flight.
const RUN_BYTES_MAX: usize = 1 << 20;
/// Maximum number of slices in a run. The system takes 1024 at once.
const RUN_SLICES_MAX: usize = 256;

/// Sorts the operations by place. Returns their slices in that order, with the runs that they form.
pub(super) fn into_runs<S>(
    mut operations: Vec<(BlockNo, S)>,
    bytes_of: impl Fn(&S) -> usize,
) -> (Vec<S>, Vec<Transfer>) {
    operations.sort_by_key(|(first, _)| *first);
    let mut runs: Vec<Transfer> = Vec::with_capacity(operations.len());
    let mut slices = Vec::with_capacity(operations.len());
    for (first, slice) in operations {
        let bytes = bytes_of(&slice);
        let offset = first.0 * BLOCK_BYTES_U64;
        match runs.last_mut() {
            Some(run)
                if run.offset + run.bytes as u64 == offset
                    && run.bytes + bytes <= RUN_BYTES_MAX
                    && run.slices.len() < RUN_SLICES_MAX =>
            {
                run.bytes += bytes;
                run.slices.end += 1;
            }
            _ => runs.push(Transfer { offset, bytes, slices: slices.len()..slices.len() + 1 }),
        }
        slices.push(slice);
    }
    (slices, runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    /// Returns the runs that operations, given as (first block, blocks), form: (first block, blocks, slices).
    fn runs_of(operations: &[(u64, usize)]) -> Vec<(u64, usize, Range<usize>)> {
        let operations = operations.iter().map(|&(first, blocks)| (BlockNo(first), blocks * BLOCK_BYTES)).collect();
        let (slices, runs) = into_runs(operations, |bytes| *bytes);
        let bytes_of = |run: &Transfer| slices[run.slices.clone()].iter().sum::<usize>();
        assert!(runs.iter().all(|run| run.bytes == bytes_of(run)));
        let plain = |run: Transfer| (run.offset / BLOCK_BYTES_U64, run.bytes / BLOCK_BYTES, run.slices);
        runs.into_iter().map(plain).collect()
    }

    #[test]
    fn neighbours_join_whatever_their_order_and_others_do_not() {
        assert_eq!(runs_of(&[(7, 1), (1, 2), (3, 4), (9, 1)]), [(1, 7, 0..3), (9, 1, 3..4)]);
        assert_eq!(runs_of(&[(5, 1), (5, 1)]), [(5, 1, 0..1), (5, 1, 1..2)], "the same place twice is two transfers");
        assert_eq!(runs_of(&[]), []);
    }

    #[test]
    fn runs_are_bounded_in_bytes_and_slices() {
        let long: Vec<_> = (0..8).map(|index| (index * 128, 128)).collect();
        assert_eq!(runs_of(&long).len(), 4, "256 blocks each");
        let many: Vec<_> = (0..600).map(|index| (index, 1)).collect();
        let slices: Vec<_> = runs_of(&many).into_iter().map(|run| run.2.len()).collect();
        assert_eq!(slices, [256, 256, 88]);
        assert_eq!(runs_of(&[(0, 1000), (1000, 1000)]).len(), 2, "one large operation is a run of its own");
    }
}
