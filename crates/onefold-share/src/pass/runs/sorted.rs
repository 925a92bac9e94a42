//! Runs from file to file in order of their targets, in bounded memory, for finders that come to them in another order.
//!
//! | bits of the row | are                                              |
//! |-----------------|--------------------------------------------------|
//! | 0..71           | the target: number of the file, block            |
//! | 71..103         | number of the source's file                      |
//! | 103..122        | how many blocks, less one                        |
//! | 122..128        | the key, its high bits                           |
//! | 128..167        | block of the source                              |
//! | 167..192        | the key, its low bits                            |
//!
//! The first bits are the highest ones of the row's first word. Longer runs are cut.

use std::io;
use std::path::Path;

use onefold_sort::{Merge, Row, SortWriter};

use super::{ContentKey, FilePlace, FinderRun, RunBatch, Source};
use crate::format::{FileBlock, FileNo};

/// Maximum length of a run in a row, in blocks: 2 GiB.
const COUNT_MAX: u64 = 1 << COUNT_BITS;
const COUNT_BITS: u32 = 19;
/// Bits of the target block's number that are in the second word of the row.
const TARGET_LOW_BITS: u32 = 7;
const KEY_HIGH_BITS: u32 = 6;
const KEY_LOW_BITS: u32 = 25;
const _: () = assert!(FileBlock::LIMIT == 1 << (32 + TARGET_LOW_BITS), "a file and a block are 71 bits");
const _: () = assert!(FileBlock::LIMIT == 1 << (u64::BITS - KEY_LOW_BITS), "a block and bits of the key are a word");
const _: () = assert!(TARGET_LOW_BITS + 32 + COUNT_BITS + KEY_HIGH_BITS == u64::BITS);
const _: () = assert!(ContentKey::LIMIT == 1 << (KEY_HIGH_BITS + KEY_LOW_BITS));

/// Takes runs in any order.
#[derive(Debug)]
pub struct RunSorter(SortWriter);

/// Runs in order of their targets.
#[derive(Debug)]
pub struct SortedRuns(Merge);

impl RunSorter {
    /// Returns an empty list. It keeps at most `memory_bytes` in memory, and the rest in files in `folder`.
    #[must_use]
    pub fn new(folder: &Path, memory_bytes: usize) -> RunSorter {
        RunSorter(SortWriter::new(folder, memory_bytes))
    }

    /// Adds a run.
    ///
    /// # Errors
    /// Errors of writing a file; no space. `InvalidInput` if the run is not from file to file.
    pub fn push(&mut self, run: &FinderRun) -> io::Result<()> {
        let mut at = 0;
        while at < run.count {
            let count = COUNT_MAX.min(run.count - at);
            self.0.push(row(&run.part(at, count)).ok_or(io::ErrorKind::InvalidInput)?)?;
            at += count;
        }
        Ok(())
    }

    /// Returns all runs in order.
    ///
    /// # Errors
    /// Errors of reading the files.
    pub fn finish(self) -> io::Result<SortedRuns> {
        Ok(SortedRuns(self.0.finish()?))
    }
}

impl RunBatch for SortedRuns {
    fn next_run(&mut self) -> io::Result<Option<FinderRun>> {
        Ok(self.0.next().transpose()?.map(run_of))
    }
}

/// Returns the row of a run that is not too long.
fn row(run: &FinderRun) -> Option<Row> {
    let Source::File(source) = run.source else { return None };
    let key = u64::from(run.key.number());
    let (target, count) = (run.first, run.count - 1);
    let second = target << (u64::BITS - TARGET_LOW_BITS)
        | u64::from(source.file.0) << (COUNT_BITS + KEY_HIGH_BITS)
        | count << KEY_HIGH_BITS
        | key >> KEY_LOW_BITS;
    let third = source.block.0 << KEY_LOW_BITS | key & low(KEY_LOW_BITS);
    Some([u64::from(run.file.0) << 32 | target >> TARGET_LOW_BITS, second, third])
}

fn run_of([first, second, third]: Row) -> FinderRun {
    let block = (first & low(32)) << TARGET_LOW_BITS | second >> (u64::BITS - TARGET_LOW_BITS);
    let source = FilePlace {
        file: FileNo(number(second >> (COUNT_BITS + KEY_HIGH_BITS) & low(32))),
        block: FileBlock(third >> KEY_LOW_BITS),
    };
    let key = (second & low(KEY_HIGH_BITS)) << KEY_LOW_BITS | third & low(KEY_LOW_BITS);
    FinderRun {
        file: FileNo(number(first >> 32)),
        first: block,
        source: Source::File(source),
        count: 1 + (second >> KEY_HIGH_BITS & low(COUNT_BITS)),
        key: ContentKey::new(number(key)).expect("31 bits"),
    }
}

/// Returns a word with this many low bits set.
fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

fn number(word: u64) -> u32 {
    u32::try_from(word).expect("32 bits at most")
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;

    fn place(random: &SeededRandom, count: u64) -> FilePlace {
        let file = FileNo(number(random.next_u64() >> 32));
        FilePlace { file, block: FileBlock(random.below(FileBlock::LIMIT - count)) }
    }

    #[test]
    fn rows_hold_all_that_is_packed_into_them() {
        let random = SeededRandom::new(5);
        for _ in 0..10_000 {
            let count = 1 + random.below(COUNT_MAX);
            let key = ContentKey::new(number(random.below(u64::from(ContentKey::LIMIT)))).unwrap();
            let run = FinderRun::between(place(&random, count), place(&random, count), count, key).unwrap();
            assert_eq!(run_of(row(&run).unwrap()), run);
        }
    }

    #[test]
    fn runs_come_in_order_of_their_targets_and_long_ones_in_parts() {
        let random = SeededRandom::new(6);
        let mut sorter = RunSorter::new(Path::new("/var/tmp"), 1 << 10);
        let mut blocks = 0;
        for _ in 0..500 {
            let count = 1 + random.below(3 * COUNT_MAX);
            let near = |file, block| FilePlace { file: FileNo(file), block: FileBlock(block) };
            let target = near(number(random.below(3)), random.below(1000));
            sorter
                .push(&FinderRun::between(near(9, random.below(50)), target, count, ContentKey::default()).unwrap())
                .unwrap();
            blocks += count;
        }
        let mut sorted = sorter.finish().unwrap();
        let mut last = None;
        while let Some(run) = sorted.next_run().unwrap() {
            assert!(last <= Some(run.target()) && run.count <= COUNT_MAX, "{last:?} {run:?}");
            (last, blocks) = (Some(run.target()), blocks - run.count);
        }
        assert_eq!((blocks, sorted.next_run().unwrap()), (0, None));
    }

    #[test]
    fn runs_of_logs_are_refused() {
        let run = FinderRun { file: FileNo(1), first: 3, source: Source::Zeros, count: 1, key: ContentKey::default() };
        let refused = RunSorter::new(Path::new("/var/tmp"), 0).push(&run).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
