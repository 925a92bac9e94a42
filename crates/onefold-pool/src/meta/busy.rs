//! Busy blocks: free in their bitmaps, but not allocatable. Either their writes are in progress and not yet committed
//! (reserved), or they were freed and the free is not yet durable, or the journal still names them.
//!
//! Random overwrites free a block here and there in each group of a pool. A complete map for each group would take half
//! a gigabyte in a pool of 16 TiB. So a group keeps only the nonzero words of its map, until a complete map takes less.
//! The total memory is counted; if it is too much, the engine commits ([`BusyBlocks::is_too_much`]).

use onefold_block::BlockNo;

use super::hash::PlainMap;
use crate::format::geometry::GROUP_BLOCKS;

const WORDS: usize = 512;
const _: () = assert!(WORDS as u64 * 64 == GROUP_BLOCKS);
/// Maximum number of words that a group keeps singly: they then take half of a complete map.
const SPARSE_WORDS_MAX: usize = 128;
/// Number of busy blocks below which a group with a complete map returns to single words.
const SPARSE_BELOW_BLOCKS: u32 = 32;
/// Memory of a group besides its words, in bytes: an entry of a hash map that may have just grown, and an allocation.
const GROUP_BYTES: usize = 112;
const WORD_BYTES: usize = size_of::<SparseWord>();
const MAP_BYTES: usize = WORDS * size_of::<u64>();

/// One bit for each of 64 blocks of a group.
#[derive(Clone, Copy, Debug)]
struct SparseWord {
    number: u16,
    bits: u64,
}

#[derive(Debug)]
enum Words {
    /// Nonzero words, in order.
    Sparse(Vec<SparseWord>),
    All(Box<[u64; WORDS]>),
}

/// The busy blocks of one group; at least one.
#[derive(Debug)]
pub(crate) struct GroupBusy {
    words: Words,
    count: u32,
}

/// The busy blocks of all groups.
#[derive(Debug)]
pub(crate) struct BusyBlocks {
    groups: PlainMap<u64, GroupBusy>,
    count: u64,
    bytes: usize,
    bytes_max: usize,
}

fn place(block: BlockNo) -> (u64, usize, u64) {
    let within = block.0 % GROUP_BLOCKS;
    (block.0 / GROUP_BLOCKS, usize::try_from(within / 64).expect("below 512"), 1 << (within % 64))
}

/// Returns the words that contain bits of a run within one group, with these bits.
fn words_of(first: BlockNo, count: u64) -> impl Iterator<Item = (usize, u64)> {
    let (from, to) = (first.0 % GROUP_BLOCKS, first.0 % GROUP_BLOCKS + count);
    (from / 64..to.div_ceil(64)).map(move |word| {
        let low = from.saturating_sub(word * 64).min(63);
        let high = (to - word * 64).min(64);
        let mask = (u64::MAX >> (64 - (high - low))) << low;
        (usize::try_from(word).expect("below 512"), mask)
    })
}

impl GroupBusy {
    fn new() -> GroupBusy {
        GroupBusy { words: Words::Sparse(Vec::new()), count: 0 }
    }

    /// Returns which of blocks `number * 64..` of the group are busy, one bit each.
    pub(crate) fn word(&self, number: usize) -> u64 {
        match &self.words {
            Words::Sparse(words) => find(words, number).map_or(0, |at| words[at].bits),
            Words::All(words) => words[number],
        }
    }

    fn set_word(&mut self, number: usize, bits: u64) {
        let words = match &mut self.words {
            Words::Sparse(words) => words,
            Words::All(words) => {
                words[number] = bits;
                return;
            }
        };
        match (find(words, number), bits) {
            (Ok(at), 0) => drop(words.remove(at)),
            (Ok(at), bits) => words[at].bits = bits,
            (Err(_), 0) => {}
            (Err(_), _) if words.len() == SPARSE_WORDS_MAX => {
                let mut all = Box::new([0; WORDS]);
                words.iter().for_each(|word| all[usize::from(word.number)] = word.bits);
                all[number] = bits;
                self.words = Words::All(all);
            }
            (Err(at), bits) => {
                if words.len() == words.capacity() {
                    // Most groups have few words: grows by at most half.
                    words.reserve_exact(words.len() / 2 + 1);
                }
                words.insert(at, SparseWord { number: u16::try_from(number).expect("below 512"), bits });
            }
        }
    }

    /// Returns to single words if few blocks are left.
    fn thin_out(&mut self) {
        if let Words::All(words) = &self.words
            && self.count < SPARSE_BELOW_BLOCKS
        {
            let with_bits = (0..).zip(words.iter()).filter(|(_, bits)| **bits != 0);
            self.words = Words::Sparse(with_bits.map(|(number, &bits)| SparseWord { number, bits }).collect());
        }
    }

    fn bytes(&self) -> usize {
        match &self.words {
            Words::Sparse(words) => GROUP_BYTES + words.capacity() * WORD_BYTES,
            Words::All(_) => GROUP_BYTES + MAP_BYTES,
        }
    }
}

fn find(words: &[SparseWord], number: usize) -> Result<usize, usize> {
    words.binary_search_by_key(&number, |word| usize::from(word.number))
}

impl BusyBlocks {
    /// Returns an empty set that should take at most `bytes_max` bytes of memory.
    pub(crate) fn new(bytes_max: u64) -> BusyBlocks {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        BusyBlocks { groups: PlainMap::default(), count: 0, bytes: 0, bytes_max }
    }

    /// Returns the number of busy blocks.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns whether they take more memory than they should.
    pub(crate) fn is_too_much(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Returns the busy blocks of a group; `None` if it has none.
    pub(crate) fn of_group(&self, group: u64) -> Option<&GroupBusy> {
        self.groups.get(&group)
    }

    /// Makes a block busy. Returns false if it was already.
    pub(crate) fn set(&mut self, block: BlockNo) -> bool {
        let (group, word, bit) = place(block);
        self.change(group, |busy| {
            let before = busy.word(word);
            if before & bit != 0 {
                return 0;
            }
            busy.set_word(word, before | bit);
            1
        }) > 0
    }

    /// Makes the blocks of a run within one group busy. Returns false, without effect, if one was already.
    pub(crate) fn set_run(&mut self, first: BlockNo, count: u64) -> bool {
        let busy = self.of_group(first.0 / GROUP_BLOCKS);
        if busy.is_some_and(|busy| words_of(first, count).any(|(word, mask)| busy.word(word) & mask != 0)) {
            return false;
        }
        self.change(first.0 / GROUP_BLOCKS, |busy| {
            for (word, mask) in words_of(first, count) {
                busy.set_word(word, busy.word(word) | mask);
            }
            i64::try_from(count).expect("a group has fewer")
        });
        true
    }

    /// Ends the busy state of those blocks of a run within one group that have it. Returns their number. Blocks that
    /// are then free become allocatable through [`super::Meta::free_again`].
    pub(crate) fn clear_run(&mut self, first: BlockNo, count: u64) -> u64 {
        if self.of_group(first.0 / GROUP_BLOCKS).is_none() {
            return 0;
        }
        let change = self.change(first.0 / GROUP_BLOCKS, |busy| {
            let mut cleared = 0;
            for (word, mask) in words_of(first, count) {
                let before = busy.word(word);
                cleared += i64::from((before & mask).count_ones());
                busy.set_word(word, before & !mask);
            }
            -cleared
        });
        change.unsigned_abs()
    }

    /// Ends a block's busy state, like [`BusyBlocks::clear_run`]. Returns false if it was not busy.
    pub(crate) fn clear(&mut self, block: BlockNo) -> bool {
        self.clear_run(block, 1) > 0
    }

    /// Changes the busy blocks of a group. Returns the result of `change`: by how much their number rises.
    fn change(&mut self, group: u64, change: impl FnOnce(&mut GroupBusy) -> i64) -> i64 {
        let busy = self.groups.entry(group).or_insert_with(GroupBusy::new);
        let bytes_before = if busy.count == 0 { 0 } else { busy.bytes() };
        let more = change(busy);
        busy.count = u32::try_from(i64::from(busy.count) + more).expect("a group has 32,768 blocks");
        self.count = self.count.saturating_add_signed(more);
        let bytes = if busy.count == 0 {
            self.groups.remove(&group);
            0
        } else {
            busy.thin_out();
            busy.bytes()
        };
        self.bytes = self.bytes + bytes - bytes_before;
        more
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use onefold_block::random::SeededRandom;

    use super::*;

    fn words(busy: &BusyBlocks, group: u64) -> Vec<u64> {
        (0..WORDS).map(|word| busy.of_group(group).map_or(0, |busy| busy.word(word))).collect()
    }

    fn bytes_counted(busy: &BusyBlocks) -> usize {
        busy.groups.values().map(GroupBusy::bytes).sum()
    }

    #[test]
    fn a_run_is_busy_as_its_blocks_are_one_by_one() {
        let base = GROUP_BLOCKS * 2;
        for (first, count) in [(0, 1), (63, 1), (63, 2), (64, 64), (1, 255), (100, 9000), (GROUP_BLOCKS - 7, 7)] {
            let (mut by_run, mut by_block) = (BusyBlocks::new(0), BusyBlocks::new(0));
            assert!(by_run.set_run(BlockNo(base + first), count));
            for block in first..first + count {
                assert!(by_block.set(BlockNo(base + block)));
            }
            assert_eq!(words(&by_run, 2), words(&by_block, 2), "{first} {count}");
            assert_eq!(by_run.count(), count);
            assert!(!by_run.set_run(BlockNo(base + first + count - 1), 1));
            assert!(by_run.clear(BlockNo(base + first)));
            by_run.clear_run(BlockNo(base + first), count);
            assert_eq!((by_run.count(), by_run.groups.len(), by_run.bytes), (0, 0, 0));
        }
    }

    #[test]
    fn busy_blocks_are_counted_once() {
        let mut busy = BusyBlocks::new(0);
        let block = BlockNo(GROUP_BLOCKS * 3 + 65);
        assert!(busy.set(block) && !busy.set(block));
        assert_eq!((busy.count(), words(&busy, 3)[1]), (1, 2));
        assert!(busy.clear(block) && !busy.clear(block));
        assert!(busy.count() == 0 && busy.of_group(3).is_none());
    }

    #[test]
    fn whatever_changes_the_blocks_are_those_of_a_plain_set() {
        let random = SeededRandom::new(5);
        let (mut busy, mut model) = (BusyBlocks::new(1 << 20), BTreeSet::new());
        for round in 0..6000 {
            let most = if round / 1500 % 2 == 0 { 3000 } else { 40 };
            let count = 1 + random.below(most);
            let first = random.below(2) * GROUP_BLOCKS + random.below(GROUP_BLOCKS - count);
            let run = first..first + count;
            if random.below(3) > 0 {
                let is_free = model.range(run.clone()).next().is_none();
                assert_eq!(busy.set_run(BlockNo(first), count), is_free);
                if is_free {
                    model.extend(run);
                }
            } else {
                let cleared = run.filter(|block| model.remove(block)).count() as u64;
                assert_eq!(busy.clear_run(BlockNo(first), count), cleared);
            }
            assert_eq!((busy.count(), busy.bytes), (model.len() as u64, bytes_counted(&busy)));
        }
        for group in 0..2 {
            let expected = (0..WORDS as u64).map(|word| {
                let first = group * GROUP_BLOCKS + word * 64;
                model.range(first..first + 64).fold(0, |bits, block| bits | 1 << (block - first))
            });
            assert_eq!(words(&busy, group), expected.collect::<Vec<u64>>());
        }
    }

    /// Regression: each group with a busy block took 4 KiB, half a gigabyte in a pool of 16 TiB, on top of the `memory`
    /// setting.
    #[test]
    fn a_busy_block_here_and_there_takes_little() {
        let mut busy = BusyBlocks::new(16 << 20);
        let groups = (16 << 40) / (GROUP_BLOCKS * 4096);
        (0..groups).for_each(|group| assert!(busy.set(BlockNo(group * GROUP_BLOCKS + group % 30_000))));
        let taken = busy.groups.capacity() * size_of::<(u64, GroupBusy)>() + 32 * busy.groups.len();
        assert!(busy.bytes >= taken && busy.bytes <= 17 << 20, "{} bytes counted, {taken} taken", busy.bytes);
        (0..groups / 10).for_each(|group| assert!(busy.set(BlockNo(group * GROUP_BLOCKS + 31_000))));
        assert!(busy.is_too_much());
        (0..groups).for_each(|group| assert!(busy.clear_run(BlockNo(group * GROUP_BLOCKS), GROUP_BLOCKS) > 0));
        assert!(!busy.is_too_much() && busy.bytes == 0);
    }
}
