//! The owner of each block of an image, as a list of runs. A long list is kept in a file. It is read in the order of
//! the disk.

use std::io;
use std::path::Path;

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::{OrderedRows, OrderedWriter, Row};

use crate::sizes::PIECE_BLOCKS;

/// Converts ranges of bytes with their owners to blocks. The ranges come in the order of the disk and without gaps.
pub(super) struct BlockWriter<'a> {
    rows: OrderedWriter<'a>,
    /// The current run: first block, the block after it, owner.
    run: Option<(u64, u64, u32)>,
    /// The owner of the bytes of an incomplete block, and whether they are free.
    partial: Option<(u32, bool)>,
    /// The byte after the last range.
    end_bytes: u64,
    /// Blocks of each owner.
    blocks: Vec<u64>,
}

impl<'a> BlockWriter<'a> {
    /// Returns an empty list. Runs beyond `memory_bytes` go to an unnamed file in `folder`.
    pub(super) fn new(folder: &'a Path, memory_bytes: usize, owners: usize) -> BlockWriter<'a> {
        let rows = OrderedWriter::new(folder, memory_bytes);
        BlockWriter { rows, run: None, partial: None, end_bytes: 0, blocks: vec![0; owners] }
    }

    /// Adds the bytes from the end of the previous range to `end`. A block with bytes of several owners belongs to the
    /// first owner that is not free.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn push(&mut self, end: u64, owner: u32, is_free: bool) -> io::Result<()> {
        let mut start = self.end_bytes;
        while start < end {
            let block = start / BLOCK_BYTES_U64;
            let block_end = (block + 1).saturating_mul(BLOCK_BYTES_U64);
            if start.is_multiple_of(BLOCK_BYTES_U64) && end >= block_end {
                let blocks_end = end / BLOCK_BYTES_U64;
                self.add(block, blocks_end, owner)?;
                start = blocks_end * BLOCK_BYTES_U64;
                continue;
            }
            if self.partial.is_none_or(|(_, before_is_free)| before_is_free && !is_free) {
                self.partial = Some((owner, is_free));
            }
            start = end.min(block_end);
            if start == block_end
                && let Some((owner, _)) = self.partial.take()
            {
                self.add(block, block + 1, owner)?;
            }
        }
        self.end_bytes = self.end_bytes.max(end);
        Ok(())
    }

    fn add(&mut self, first: u64, end: u64, owner: u32) -> io::Result<()> {
        let count = usize::try_from(owner).ok().and_then(|at| self.blocks.get_mut(at));
        if let Some(count) = count {
            *count = count.saturating_add(end - first);
        }
        match &mut self.run {
            Some((_, run_end, run_owner)) if *run_owner == owner && *run_end == first => *run_end = end,
            run => {
                let last = run.replace((first, end, owner));
                last.map_or(Ok(()), |last| self.rows.push(row_of(last)))?;
            }
        }
        Ok(())
    }

    /// Returns the list, and the number of blocks of each owner.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn finish(mut self) -> io::Result<(OrderedRows, Vec<u64>)> {
        if let Some((owner, _)) = self.partial.take() {
            let block = self.end_bytes / BLOCK_BYTES_U64;
            self.add(block, block + 1, owner)?;
        }
        if let Some(run) = self.run.take() {
            self.rows.push(row_of(run))?;
        }
        Ok((self.rows.finish()?, self.blocks))
    }
}

fn row_of((first, end, owner): (u64, u64, u32)) -> Row {
    [first, end, owner.into()]
}

/// The owners of the blocks of an image, piece by piece in the order of the disk.
pub(crate) struct BlockOwners {
    runs: OrderedRows,
    run: Option<Row>,
    /// For each owner of the list, its number in records.
    numbers: Vec<u16>,
}

/// The owners of the blocks of one piece.
pub(crate) type PieceOwners = [u16; PIECE_BLOCKS];

impl BlockOwners {
    /// Returns the owners of runs. A run is the first block, the block after the last, and an index into `numbers`.
    pub(crate) fn new(runs: OrderedRows, numbers: Vec<u16>) -> BlockOwners {
        BlockOwners { runs, run: None, numbers }
    }

    /// Returns the owners of a piece of blocks that begins at block `first`. It must come after all earlier pieces.
    /// Blocks outside of the list belong to owner 0.
    ///
    /// # Errors
    /// Those of the file.
    pub(crate) fn piece(&mut self, first: u64) -> io::Result<PieceOwners> {
        let mut owners = [0; PIECE_BLOCKS];
        let end = first.saturating_add(PIECE_BLOCKS as u64);
        loop {
            let Some([run_first, run_end, owner]) =
                self.run.map_or_else(|| self.runs.next().transpose(), |run| Ok(Some(run)))?
            else {
                return Ok(owners);
            };
            let place = |block: u64| usize::try_from(block.clamp(first, end) - first).unwrap_or(PIECE_BLOCKS);
            let number = usize::try_from(owner).ok().and_then(|at| self.numbers.get(at)).copied().unwrap_or(0);
            if let Some(part) = owners.get_mut(place(run_first)..place(run_end)) {
                part.fill(number);
            }
            self.run = (run_end > end).then_some([run_first, run_end, owner]);
            if run_end >= end {
                return Ok(owners);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(ranges: &[(u64, u32, bool)], memory_bytes: usize) -> (Vec<u16>, Vec<u64>) {
        let folder = std::env::temp_dir();
        let mut writer = BlockWriter::new(&folder, memory_bytes, 10);
        ranges.iter().for_each(|&(end, owner, is_free)| writer.push(end, owner, is_free).unwrap());
        let (runs, blocks) = writer.finish().unwrap();
        let mut owners = BlockOwners::new(runs, (0..10).collect());
        let pieces = (0..3).map(|piece| owners.piece(piece * PIECE_BLOCKS as u64).unwrap());
        (pieces.flatten().collect(), blocks)
    }

    #[test]
    fn a_block_belongs_to_the_first_owner_that_is_not_free() {
        let ranges =
            [(4096, 1, false), (5000, 2, true), (6000, 3, false), (8192, 4, false), (12288, 5, true), (13000, 6, true)];
        let (found, blocks) = owners(&ranges, 1 << 20);
        assert_eq!(found[..5], [1, 3, 5, 6, 0]);
        assert_eq!(blocks, [0, 1, 0, 1, 0, 1, 1, 0, 0, 0]);
    }

    #[test]
    fn pieces_have_what_a_naive_list_has() {
        for step in [512, 1024, 4096, 40_960, 1 << 20, 1_500_000] {
            let mut ranges = Vec::new();
            let mut naive: Vec<(u64, u16, bool)> = Vec::new();
            for at in 1..=(700 * 4096 / step) {
                let (owner, is_free) = (u16::try_from(at * 7 % 10).unwrap(), at % 3 == 0);
                ranges.push((at * step, u32::from(owner), is_free));
                naive.push((at * step, owner, is_free));
            }
            let end = naive.last().map_or(0, |range| range.0);
            let expected = |block: u64| {
                let (start, stop) = (block * 4096, block * 4096 + 4096);
                let within = |at: usize| naive[at].0 > start && at.checked_sub(1).map_or(0, |at| naive[at].0) < stop;
                let all: Vec<&(u64, u16, bool)> =
                    (0..naive.len()).filter(|at| within(*at)).map(|at| &naive[at]).collect();
                let first = all.iter().find(|range| !range.2).or_else(|| all.first());
                first.map_or(0, |range| range.1)
            };
            for memory_bytes in [1, 1 << 20] {
                let (found, _) = owners(&ranges, memory_bytes);
                for (block, owner) in (0..).zip(&found) {
                    let expected = if block * 4096 < end { expected(block) } else { 0 };
                    assert_eq!(*owner, expected, "step {step}, block {block}");
                }
            }
        }
    }
}
