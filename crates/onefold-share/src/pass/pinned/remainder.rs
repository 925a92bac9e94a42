//! The rest of an extent, and the files that refer to it.

use onefold_block::BLOCK_BYTES_U64;

use super::Loss;
use crate::format::{FileBlock, FileNo};

/// A file that refers to a part of an extent. The arena comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    Arena(u32),
    Image(FileNo),
}

/// A part of an extent that a file refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) holder: Holder,
    /// Offset in the file.
    pub(super) offset: u64,
    /// Offset in the extent.
    pub(super) within: u64,
    pub(super) length: u64,
}

impl Part {
    pub(super) fn first_block(&self) -> FileBlock {
        FileBlock(self.offset / BLOCK_BYTES_U64)
    }
}

/// A part of an extent to which some file refers, and the place of its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopiedPart {
    pub(super) within: u64,
    pub(super) length: u64,
    pub(super) offset: u64,
}

/// The rest of an extent.
pub(super) struct Remainder {
    pub(super) loss: Loss,
    pub(super) parts: Vec<Part>,
    /// Disjoint and in order. Their copies are not made yet.
    pub(super) runs: Vec<CopiedPart>,
}

impl Remainder {
    pub(super) fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.length).sum()
    }

    /// Returns the blocks of images that are parts of the extent.
    pub(super) fn image_parts(&self) -> impl Iterator<Item = (FileNo, FileBlock, u64)> {
        self.parts.iter().filter_map(|part| match part.holder {
            Holder::Image(number) => Some((number, part.first_block(), part.length.div_ceil(BLOCK_BYTES_U64))),
            Holder::Arena(_) => None,
        })
    }
}

/// Sorts parts by their place in the extent, and returns the ranges that they cover.
pub(super) fn runs_of(parts: &mut [Part]) -> Vec<CopiedPart> {
    parts.sort_by_key(|part| part.within);
    let mut runs: Vec<CopiedPart> = Vec::new();
    for part in parts {
        match runs.last_mut() {
            Some(last) if part.within <= last.within + last.length => {
                last.length = last.length.max(part.within + part.length - last.within);
            }
            _ => runs.push(CopiedPart { within: part.within, length: part.length, offset: 0 }),
        }
    }
    runs
}

/// Returns the place of the copy for a place in the extent.
pub(super) fn copy_of(runs: &[CopiedPart], within: u64) -> Option<u64> {
    let run = runs[..runs.partition_point(|run| run.within <= within)].last()?;
    (within < run.within + run.length).then(|| run.offset + (within - run.within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_an_extent_is_told_once_and_found_again() {
        const K: u64 = BLOCK_BYTES_U64;
        let part =
            |within, length| Part { holder: Holder::Arena(0), offset: 0, within: within * K, length: length * K };
        let mut parts = [part(8, 2), part(0, 3), part(1, 1), part(2, 2), part(4, 1), part(20, 1)];
        let mut runs = runs_of(&mut parts);
        let found: Vec<_> = runs.iter().map(|run| (run.within / K, run.length / K)).collect();
        assert_eq!(found, [(0, 5), (8, 2), (20, 1)]);
        let mut offset = 0;
        for run in &mut runs {
            run.offset = offset;
            offset += run.length;
        }
        let at = |within: u64| copy_of(&runs, within * K).map(|offset| offset / K);
        assert_eq!(
            [0, 4, 5, 8, 9, 10, 20, 21].map(at),
            [Some(0), Some(4), None, Some(5), Some(6), None, Some(7), None]
        );
    }
}
