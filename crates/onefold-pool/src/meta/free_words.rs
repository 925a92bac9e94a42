//! The free blocks of one group as bits: the combination of its bitmaps, its busy blocks and the ranges kept from data.

use std::ops::{ControlFlow, Range};

use onefold_block::BlockNo;

use super::busy::GroupBusy;
use super::cache::Cache;
use super::groups::Groups;
use crate::format::BlockBytes;
use crate::format::geometry::{BITMAP_BLOCKS, BITS_PER_BITMAP_BLOCK, Geometry};
use crate::format::get_u64;
use crate::format::group_summaries::GroupSummary;
use crate::format::header::HEADER_BYTES;

const WORDS_PER_BITMAP: u64 = BITS_PER_BITMAP_BLOCK / 64;
const _: () = assert!(BITMAP_BLOCKS == 2);

/// The bitmap blocks of a group; a short group does not use the second.
pub(crate) type Bitmaps<'a> = [Option<&'a BlockBytes>; 2];

/// The purpose of a search for free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchPurpose {
    /// Data, which may not take blocks kept for metadata.
    Data,
    /// Metadata, which may take all free blocks.
    Metadata,
}

/// Result of a search in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupSearchResult {
    /// The first run that is long enough: place within the group, and length, cut to the wanted maximum.
    pub(crate) run: Option<(u64, u64)>,
    /// The facts learned about the group. Useful only if no run was found and the search began at the group's start.
    pub(crate) known: GroupSummary,
    /// Number of words of 64 blocks that were scanned.
    pub(crate) words: u64,
}

/// The free blocks of a group.
pub(crate) struct FreeWords<'a> {
    /// Number of blocks of the group.
    end: u64,
    bitmaps: Bitmaps<'a>,
    busy: Option<&'a GroupBusy>,
    /// Ranges of free blocks that may not be taken, within the group.
    kept: Vec<Range<u64>>,
    /// Single free blocks that may not be taken, of the whole pool, ascending.
    stock: &'a [BlockNo],
    /// The group's first block.
    first: u64,
}

/// Returns the bitmap blocks that describe a group's blocks: a short group needs only the first.
pub(crate) fn bitmaps_of(geometry: &Geometry, group: u64) -> impl Iterator<Item = BlockNo> + use<> {
    let (geometry, count) = (*geometry, geometry.group_blocks(group).div_ceil(BITS_PER_BITMAP_BLOCK));
    (0..count).map(move |index| geometry.bitmap_block(group, index))
}

impl<'a> FreeWords<'a> {
    /// Returns the free blocks of a group whose bitmaps are in memory; `None` if one is missing.
    pub(crate) fn cached(
        cache: &'a Cache,
        groups: &'a Groups,
        geometry: &Geometry,
        group: u64,
        free_for: SearchPurpose,
    ) -> Option<FreeWords<'a>> {
        let mut bitmaps = Bitmaps::default();
        for (place, block) in bitmaps.iter_mut().zip(bitmaps_of(geometry, group)) {
            *place = Some(cache.peek(block)?);
        }
        Some(FreeWords::new(bitmaps, groups, geometry, group, free_for))
    }

    /// Returns the free blocks of a group with these bitmaps.
    pub(crate) fn new(
        bitmaps: Bitmaps<'a>,
        groups: &'a Groups,
        geometry: &Geometry,
        group: u64,
        free_for: SearchPurpose,
    ) -> FreeWords<'a> {
        let (first, end) = (geometry.group_first(group).0, geometry.group_blocks(group));
        let mut kept = Vec::new();
        let mut keep = |range: &Range<u64>| {
            let within = range.start.saturating_sub(first)..range.end.saturating_sub(first).min(end);
            if !within.is_empty() {
                kept.push(within);
            }
        };
        groups.full_backing.without_room().for_each(&mut keep);
        let mut stock: &[BlockNo] = &[];
        if free_for == SearchPurpose::Data {
            keep(&(groups.metadata_run.0..groups.metadata_run.1));
            stock = groups.stock.among(BlockNo(first), BlockNo(first + end));
        }
        FreeWords { end, bitmaps, busy: groups.busy.of_group(group), kept, stock, first }
    }

    /// Returns the blocks `word * 64..` that are neither used nor busy, one bit each.
    fn unused(&self, word: u64) -> u64 {
        let index = usize::try_from(word / WORDS_PER_BITMAP).expect("below 2");
        let offset = HEADER_BYTES + usize::try_from(word % WORDS_PER_BITMAP).expect("below 510") * 8;
        let used = self.bitmaps[index].map_or(u64::MAX, |bitmap| get_u64(bitmap, offset));
        let busy = self.busy.map_or(0, |busy| busy.word(usize::try_from(word).expect("below 512")));
        !(used | busy) & bits(&(0..self.end), word)
    }

    /// Returns which of the blocks `word * 64..` are free and may be taken, one bit each.
    fn free(&self, unused: u64, word: u64) -> u64 {
        let mut free = self.kept.iter().fold(unused, |free, range| free & !bits(range, word));
        if !self.stock.is_empty() {
            let base = self.first + word * 64;
            let place = self.stock.partition_point(|block| block.0 < base);
            for block in self.stock[place..].iter().take_while(|block| block.0 < base + 64) {
                free &= !(1 << (block.0 - base));
            }
        }
        free
    }

    /// Visits the runs of allocatable free blocks at or after `from`, each with its place and length. A run with
    /// `enough` blocks may be visited before its end is known; it must be the last one then. Returns the number of
    /// unused blocks on the way, and of words scanned.
    fn each_run(&self, from: u64, enough: u64, mut visit: impl FnMut(u64, u64) -> ControlFlow<()>) -> (u64, u64) {
        let (mut unused_count, mut began) = (0, None);
        let words = from / 64..self.end.div_ceil(64);
        for word in words.clone() {
            let base = word * 64;
            let unused = self.unused(word);
            unused_count += u64::from(unused.count_ones());
            let looked = (unused_count, word + 1 - words.start);
            let mut left = self.free(unused, word) & bits(&(from..self.end), word);
            if let Some(first) = began {
                let end = base + u64::from(left.trailing_ones());
                if end == base + 64 && end - first < enough {
                    continue;
                }
                if visit(first, end - first).is_break() {
                    return looked;
                }
                began = None;
                left &= left.wrapping_add(1);
            }
            while left != 0 {
                let first = u64::from(left.trailing_zeros());
                let filled = left | (left - 1);
                let end = u64::from(filled.trailing_ones());
                if end == 64 && 64 - first < enough {
                    // The run may continue in the next word.
                    began = Some(base + first);
                    break;
                }
                if visit(base + first, end - first).is_break() {
                    return looked;
                }
                left = filled & filled.wrapping_add(1);
            }
        }
        if let Some(first) = began {
            let _ = visit(first, self.end - first);
        }
        (unused_count, words.end.saturating_sub(words.start))
    }

    /// Finds the first run of at least `least` blocks at or after `from`, and cuts it to `most`.
    pub(crate) fn find(&self, from: u64, least: u64, most: u64) -> GroupSearchResult {
        let (mut run, mut longest) = (None, 0);
        let (free, words) = self.each_run(from, most.max(least), |first, count| {
            longest = longest.max(count);
            if count < least {
                return ControlFlow::Continue(());
            }
            run = Some((first, count.min(most)));
            ControlFlow::Break(())
        });
        GroupSearchResult { run, known: GroupSummary::new(longest, free), words }
    }

    /// Returns the first runs of allocatable free blocks, up to `blocks_max` blocks: place within the group, and
    /// length.
    pub(crate) fn first_runs(&self, blocks_max: u64) -> Vec<(u64, u64)> {
        let (mut runs, mut missing) = (Vec::new(), blocks_max);
        self.each_run(0, blocks_max, |first, count| {
            let count = count.min(missing);
            missing -= count;
            runs.push((first, count));
            if missing == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        runs
    }

    /// Returns the summary of the group, and the number of words scanned.
    pub(crate) fn survey(&self) -> (GroupSummary, u64) {
        let found = self.find(0, u64::MAX, 0);
        (found.known, found.words)
    }

    /// Returns the length of the run that newly freed blocks join, exact up to at least `enough`.
    pub(crate) fn run_around(&self, first: u64, count: u64, enough: u64) -> u64 {
        let free = |word| self.free(self.unused(word), word);
        let (mut from, mut to) = (first, first + count);
        while from > 0 && to - from < enough {
            // The block before is the highest bit.
            let last = from - 1;
            let ones = (free(last / 64) << (63 - last % 64)).leading_ones();
            from -= u64::from(ones);
            if ones == 0 || from % 64 != 0 {
                break;
            }
        }
        while to < self.end && to - from < enough {
            let ones = (free(to / 64) >> (to % 64)).trailing_ones();
            to += u64::from(ones);
            if ones == 0 || to % 64 != 0 {
                break;
            }
        }
        to - from
    }
}

/// Returns which of the blocks `word * 64..` are in a range, one bit each.
fn bits(range: &Range<u64>, word: u64) -> u64 {
    let (from, to) = (range.start.max(word * 64), range.end.min(word * 64 + 64));
    if from >= to { 0 } else { (u64::MAX >> (64 - (to - from))) << (from - word * 64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StorePlacement;
    use crate::format::geometry::GROUP_BLOCKS;
    use onefold_block::BLOCK_BYTES;

    fn next(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    /// Returns a bitmap pair in which runs of used and free blocks alternate, up to `run_max` long.
    fn bitmaps(seed: &mut u64, run_max: u64) -> [BlockBytes; 2] {
        let mut both = [[0; BLOCK_BYTES]; 2];
        let (mut block, mut used) = (0, false);
        while block < GROUP_BLOCKS {
            let end = (block + 1 + next(seed) % run_max).min(GROUP_BLOCKS);
            for block in (block..end).filter(|_| used) {
                let (index, bit) = (block / BITS_PER_BITMAP_BLOCK, block % BITS_PER_BITMAP_BLOCK);
                both[usize::try_from(index).unwrap()][HEADER_BYTES + usize::try_from(bit / 8).unwrap()] |=
                    1 << (bit % 8);
            }
            (block, used) = (end, !used);
        }
        both
    }

    /// Returns the length of the run of free blocks that begins at `first`.
    fn plain_run(free: &[bool], first: usize) -> u64 {
        free[first..].iter().take_while(|free| **free).count() as u64
    }

    #[test]
    fn runs_are_found_and_measured_as_block_by_block() {
        let mut seed = 3;
        // The last group of the second pool is short.
        for (blocks, group) in [(GROUP_BLOCKS * 3, 1), (GROUP_BLOCKS * 2 + 5000, 2)] {
            let geometry = Geometry::plan(blocks, None, StorePlacement::InGroups).unwrap();
            let (base, end) = (geometry.group_first(group).0, geometry.group_blocks(group));
            for round in 0..60 {
                let both = bitmaps(&mut seed, [2, 40, 200, 5000][round % 4]);
                let mut groups = Groups::new(0);
                for _ in 0..round % 7 * 300 {
                    groups.busy.set(BlockNo(base + next(&mut seed) % end));
                }
                if round % 3 == 0 {
                    let first = base + next(&mut seed) % (end - 300);
                    groups.metadata_run = (first, first + 256);
                }
                groups.stock.add((0..round as u64 % 4 * 200).map(|_| BlockNo(next(&mut seed) % (base + end))));
                if round % 5 == 0 {
                    let first = base + next(&mut seed) % (end - 3000);
                    groups.note_full_backing(first..first + 2900);
                }
                let words = FreeWords::new(both.each_ref().map(Some), &groups, &geometry, group, SearchPurpose::Data);
                let used = |block: u64| {
                    let (index, bit) = (block / BITS_PER_BITMAP_BLOCK, block % BITS_PER_BITMAP_BLOCK);
                    let at = HEADER_BYTES + usize::try_from(bit / 8).unwrap();
                    both[usize::try_from(index).unwrap()][at] >> (bit % 8) & 1 == 1
                };
                let busy = |block: u64| {
                    let word =
                        groups.busy.of_group(group).map_or(0, |busy| busy.word(usize::try_from(block / 64).unwrap()));
                    word >> (block % 64) & 1 == 1
                };
                let stock: std::collections::HashSet<BlockNo> =
                    groups.stock.among(BlockNo(0), BlockNo(base + end)).iter().copied().collect();
                let no_room: Vec<Range<u64>> = groups.full_backing.without_room().cloned().collect();
                let kept = |block: u64| {
                    (groups.metadata_run.0..groups.metadata_run.1).contains(&(base + block))
                        || no_room.iter().any(|range| range.contains(&(base + block)))
                        || stock.contains(&BlockNo(base + block))
                };
                let unused: Vec<bool> = (0..end).map(|block| !used(block) && !busy(block)).collect();
                let free: Vec<bool> = (0..end).zip(&unused).map(|(block, unused)| *unused && !kept(block)).collect();
                let starts: Vec<usize> = (0..free.len()).filter(|&at| free[at] && (at == 0 || !free[at - 1])).collect();
                let longest = starts.iter().map(|&at| plain_run(&free, at)).max().unwrap_or(0);
                let count = unused.iter().filter(|unused| **unused).count() as u64;
                assert_eq!(words.survey().0, GroupSummary::new(longest, count));
                for (least, most) in [(1, 1), (1, 257), (3, 40), (32, 257), (64, 64), (256, 256), (1000, 2000)] {
                    let from = next(&mut seed) % end;
                    let at = usize::try_from(from).unwrap();
                    let begins = |at: &usize| {
                        let run = plain_run(&free, *at);
                        (run >= least).then(|| (*at as u64, run.min(most)))
                    };
                    let first = Some(at).filter(|&at| free[at]);
                    let expected = first.into_iter().chain(starts.iter().copied().filter(|&one| one > at));
                    let expected = expected.clone().find_map(|at| begins(&at));
                    assert_eq!(words.find(from, least, most).run, expected, "{from} {least} {most}");
                }
                let all: u64 = starts.iter().map(|&at| plain_run(&free, at)).sum();
                let gathered: u64 = words.first_runs(300).iter().map(|(_, count)| count).sum();
                assert_eq!(gathered, all.min(300));
                for &at in starts.iter().step_by(1 + starts.len() / 50) {
                    let run = plain_run(&free, at);
                    let first = next(&mut seed) % run;
                    let count = 1 + next(&mut seed) % (run - first);
                    assert_eq!(words.run_around(at as u64 + first, count, u64::MAX), run);
                    assert!(words.run_around(at as u64 + first, count, 256) >= run.min(256));
                }
            }
        }
    }
}
