//! Reading around: a small read that has to go to the device brings the blocks beside it, too.
//!
//! A guest that starts reads some kilobytes here and there, and soon after what lies beside them: of 3,133 requests of a recorded
//! boot (Debian 12), 2,080 lie within aligned pieces of 64 KiB of which another one was read before, and reading these pieces
//! whole moves 8 % more bytes. One request of 64 KiB costs hardly more than one of 4 KiB. Readers of single blocks at random
//! would move sixteen times as much for nothing, so each file has a credit: reading around is paid from it, and blocks that
//! were brought and are then asked for earn.
//!
//! Only what lies on the device directly beside the missed block is brought, and only of the same file, whose range is locked
//! meanwhile: what a locked range names is not freed, and that is what the cache rests on.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use onefold_block::BlockNo;

use crate::attr::Ino;
use crate::format::map_node::MapEntry;

/// What is brought lies within a piece of so many blocks of the file (64 KiB), counted from its beginning.
const PIECE_BLOCKS: u64 = 16;
/// What reading around once costs. A request of 64 KiB takes about a quarter longer than one of 4 KiB, so it is worth it
/// where a fourth of them spare another request; half as much again is asked.
const COST: i32 = 4;
/// What a block earns that was brought and is asked for.
const GAIN: i32 = 2;
/// A file begins with enough for 64 tries.
const CREDIT_AT_FIRST: i32 = 64 * COST;
const CREDIT_MAX: i32 = 4 * CREDIT_AT_FIRST;
/// Without credit, one small read of so many tries all the same: what readers do changes.
const TRY_EACH: u32 = 64;
/// Files whose numbers are equal in their last bits have one credit together.
const ACCOUNTS: usize = 256;
/// A cache of fewer blocks than this keeps nothing until it is asked for.
const CACHE_BLOCKS_MIN: usize = 1024;

#[derive(Debug)]
struct Account {
    credit: AtomicI32,
    /// Small reads without credit.
    refused: AtomicU32,
}

/// Tells where reading around is worth it.
#[derive(Debug)]
pub(crate) struct ReadAround {
    accounts: Vec<Account>,
}

impl ReadAround {
    /// Returns one for a cache of so many blocks.
    pub(crate) fn new(cache_blocks: usize) -> ReadAround {
        let count = if cache_blocks < CACHE_BLOCKS_MIN { 0 } else { ACCOUNTS };
        let account = || Account { credit: AtomicI32::new(CREDIT_AT_FIRST), refused: AtomicU32::new(0) };
        ReadAround { accounts: std::iter::repeat_with(account).take(count).collect() }
    }

    fn account(&self, ino: Ino) -> Option<&Account> {
        let at = usize::try_from(ino.0 % ACCOUNTS as u64).ok()?;
        self.accounts.get(at)
    }

    /// Returns the blocks of a file that may be brought for a read of `wanted`, which are among them. None where it is not
    /// worth it.
    pub(crate) fn piece(&self, ino: Ino, wanted: &Range<u64>) -> Option<Range<u64>> {
        let account = self.account(ino)?;
        if wanted.end - wanted.start >= PIECE_BLOCKS {
            return None;
        }
        let has_credit = account.credit.load(Ordering::Relaxed) >= COST;
        if !has_credit && !account.refused.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRY_EACH) {
            return None;
        }
        let start = wanted.start / PIECE_BLOCKS * PIECE_BLOCKS;
        Some(start..wanted.end.checked_next_multiple_of(PIECE_BLOCKS)?)
    }

    /// Notes that a file was read around once.
    pub(crate) fn spend(&self, ino: Ino) {
        self.change(ino, -COST);
    }

    /// Notes that so many blocks were asked for that had been brought.
    pub(crate) fn earn(&self, ino: Ino, blocks: usize) {
        let blocks = i32::try_from(blocks).unwrap_or(CREDIT_MAX).min(CREDIT_MAX);
        self.change(ino, blocks * GAIN);
    }

    fn change(&self, ino: Ino, by: i32) {
        if let Some(account) = self.account(ino)
            && by != 0
        {
            let changed = |credit: i32| Some((credit + by).clamp(0, CREDIT_MAX));
            let _ = account.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
        }
    }
}

/// Returns the entries around `at` that name blocks beside each other on the device, in order, as far as none `is_cached`;
/// `at` is among them if it names one.
pub(crate) fn beside(entries: &[MapEntry], at: usize, is_cached: impl Fn(BlockNo) -> bool) -> Range<usize> {
    let Some(MapEntry::Block(block)) = entries.get(at) else { return at..at };
    let is_next = |at: usize, expected: Option<u64>| {
        let block = entries.get(at).and_then(MapEntry::block);
        block.is_some_and(|block| Some(block.0) == expected && !is_cached(block))
    };
    let (mut start, mut end) = (at, at + 1);
    while start > 0 && is_next(start - 1, block.0.checked_sub((at - start + 1) as u64)) {
        start -= 1;
    }
    while is_next(end, block.0.checked_add((end - at) as u64)) {
        end += 1;
    }
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_brought_is_within_aligned_pieces_and_large_reads_bring_nothing() {
        let around = ReadAround::new(CACHE_BLOCKS_MIN);
        assert_eq!(around.piece(Ino(3), &(5..6)), Some(0..16));
        assert_eq!(around.piece(Ino(3), &(16..24)), Some(16..32));
        assert_eq!(around.piece(Ino(3), &(15..17)), Some(0..32));
        assert_eq!(around.piece(Ino(3), &(0..16)), None);
        assert_eq!(around.piece(Ino(3), &(u64::MAX - 1..u64::MAX)), None, "there is no whole piece");
        assert_eq!(ReadAround::new(CACHE_BLOCKS_MIN - 1).piece(Ino(3), &(5..6)), None, "nowhere to keep it");
    }

    #[test]
    fn a_file_that_gains_nothing_is_rarely_read_around_until_it_gains_again() {
        let around = ReadAround::new(CACHE_BLOCKS_MIN);
        let tries = |reads: u32, gain: usize| {
            let tried = (0..reads).filter(|_| {
                let tries = around.piece(Ino(3), &(5..6)).is_some();
                if tries {
                    around.spend(Ino(3));
                    around.earn(Ino(3), gain);
                }
                tries
            });
            tried.count()
        };
        assert_eq!(tries(64, 0), 64);
        assert_eq!(tries(6400, 1), 100, "half of what it costs is not enough");
        assert_eq!(around.piece(Ino(3 + ACCOUNTS as u64 / 2), &(5..6)), Some(0..16), "others are");
        assert!(tries(200, 15) > 130, "one try in 64 is enough to find out");
    }

    #[test]
    fn only_what_lies_beside_it_and_is_not_here_is_brought() {
        let entries = [7, 20, 21, 22, 23, 30].map(|block| MapEntry::Block(BlockNo(block)));
        assert_eq!(beside(&entries, 2, |_| false), 1..5);
        assert_eq!(beside(&entries, 2, |block| block.0 == 23), 1..4);
        assert_eq!(beside(&entries, 4, |block| block.0 == 21), 3..5);
        assert_eq!(beside(&entries, 5, |_| false), 5..6);
        assert_eq!(beside(&[MapEntry::Hole, MapEntry::Reserved], 1, |_| false), 1..1);
        assert_eq!(beside(&entries, 6, |_| false), 6..6, "past the end");
    }
}
