//! The notes of a monitor that are not logged: disjoint runs of blocks, in order. The last note about a block counts.
//!
//! Bounded: if there are too many runs, first the contents of blocks are forgotten, and then which of several near
//! blocks were changed. That a block was changed is never forgotten.

use std::collections::BTreeMap;

use crate::format::log::{Note, WrittenBlock};
use crate::format::{FileBlock, FingerprintPrefix};

/// Memory of a run, in bytes: 32 in nodes of a tree that are half full.
pub(super) const RUN_BYTES: usize = 64;

/// All notes.
#[derive(Debug, Default)]
pub(super) struct Notes {
    runs: BTreeMap<u64, NoteRun>,
    unseen_blocks: u64,
    /// Where the next search for unseen blocks begins, so that blocks of a busy place do not delay others.
    cursor: u64,
}

/// Blocks with the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NoteRun {
    /// At least one; exactly one if the content is known.
    count: u64,
    what: NoteState,
}

/// State of changed blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoteState {
    /// The content is known: `None` if the block is zero.
    Written(Option<FingerprintPrefix>),
    /// The content is unknown, and will not be read.
    Changed,
    /// The content is unknown, and will be read later.
    Unseen,
    /// The content is unknown, and the reading with this number reads it now.
    Reading(u64),
}

/// Blocks that were given out to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnseenRun {
    pub(super) first: u64,
    pub(super) count: u64,
    number: u64,
}

impl Notes {
    /// Returns how many runs there are.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns how many blocks wait to be read.
    pub(super) fn unseen_blocks(&self) -> u64 {
        self.unseen_blocks
    }

    /// Notes what was written to a block.
    pub(super) fn written(&mut self, block: u64, digest: Option<FingerprintPrefix>) {
        self.set(block, 1, NoteState::Written(digest));
    }

    /// Notes that blocks were changed.
    pub(super) fn changed(&mut self, first: u64, count: u64) {
        self.set(first, count, NoteState::Changed);
    }

    /// Notes that blocks were changed, and are to be read.
    pub(super) fn unseen(&mut self, first: u64, count: u64) {
        self.set(first, count, NoteState::Unseen);
    }

    /// Gives out at most `blocks_max` consecutive blocks that wait to be read. `number` must be one that was not used
    /// before.
    pub(super) fn take_unseen(&mut self, blocks_max: u64, number: u64) -> Option<UnseenRun> {
        if self.unseen_blocks == 0 {
            return None;
        }
        let is_unseen = |&(_, run): &(&u64, &NoteRun)| run.what == NoteState::Unseen;
        let behind = self.runs.range(self.cursor..).find(is_unseen);
        let (&first, run) = behind.or_else(|| self.runs.range(..self.cursor).find(is_unseen))?;
        let count = run.count.min(blocks_max);
        self.set(first, count, NoteState::Reading(number));
        self.cursor = first + count;
        Some(UnseenRun { first, count, number })
    }

    /// Takes in the digests of blocks that were given out, as many of the first blocks as there are digests. Blocks
    /// that were changed meanwhile keep their state; the others count as changed.
    pub(super) fn read(&mut self, unseen: UnseenRun, digests: &[Option<FingerprintPrefix>]) {
        let end = unseen.first + unseen.count;
        let mut at = unseen.first;
        // A later note may reach beyond the end.
        while at < end
            && let Some((&first, &run)) = self.runs.range(at..end).next()
        {
            at = first + run.count;
            if run.what != NoteState::Reading(unseen.number) {
                continue;
            }
            // The rest of a cut run still lies within the blocks that were given out; only new notes do not.
            for block in first..at {
                match usize::try_from(block - unseen.first).ok().and_then(|index| digests.get(index)) {
                    Some(digest) => self.written(block, *digest),
                    None => {
                        self.changed(block, at - block);
                        break;
                    }
                }
            }
        }
    }

    /// Removes and returns the notes that can be logged, in order: all except those of blocks that are still to be
    /// read.
    pub(super) fn take(&mut self) -> Vec<Note> {
        let is_waiting = |run: &NoteRun| matches!(run.what, NoteState::Unseen | NoteState::Reading(_));
        let (waiting, taken): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.runs).into_iter().partition(|(_, run)| is_waiting(run));
        self.runs = waiting;
        let note = |(first, run): (u64, NoteRun)| match run.what {
            NoteState::Written(digest) => WrittenBlock { block: FileBlock(first), digest }.into(),
            _ => Note::Changed { first: FileBlock(first), count: run.count },
        };
        taken.into_iter().map(note).collect()
    }

    /// Puts back notes that could not be logged, beneath newer ones.
    pub(super) fn put_back(&mut self, notes: Vec<Note>) {
        let newer = std::mem::take(&mut self.runs);
        self.unseen_blocks = 0;
        for note in notes {
            match note {
                Note::Written(written) => self.written(written.block.0, written.digest),
                Note::Changed { first, count } => self.changed(first.0, count),
            }
        }
        for (first, run) in newer {
            self.set(first, run.count, run.what);
        }
    }

    /// Forgets the contents of blocks, and joins runs across gaps, the smaller ones first, until there are at most
    /// `runs_max`. Returns how many blocks are less well known than before.
    pub(super) fn shed(&mut self, runs_max: usize) -> u64 {
        let mut shed = 0;
        let mut runs: Vec<(u64, u64)> = Vec::with_capacity(self.runs.len());
        for (first, run) in std::mem::take(&mut self.runs) {
            shed += if run.what == NoteState::Changed { 0 } else { run.count };
            runs.push((first, first + run.count));
        }
        self.unseen_blocks = 0;
        let mut gap = 0;
        loop {
            let mut joined: Vec<(u64, u64)> = Vec::new();
            for (first, end) in runs {
                match joined.last_mut() {
                    Some(last) if first - last.1 <= gap => {
                        shed += first - last.1;
                        last.1 = end;
                    }
                    _ => joined.push((first, end)),
                }
            }
            runs = joined;
            if runs.len() <= runs_max.max(1) {
                break;
            }
            gap = (gap * 2).max(1);
        }
        self.runs = runs
            .into_iter()
            .map(|(first, end)| (first, NoteRun { count: end - first, what: NoteState::Changed }))
            .collect();
        shed
    }

    /// Sets the state of blocks.
    fn set(&mut self, first: u64, count: u64, what: NoteState) {
        self.cut(first, first + count);
        if what == NoteState::Unseen {
            self.unseen_blocks += count;
        }
        // Blocks without individual contents are one run as long as possible.
        let is_run = matches!(what, NoteState::Changed | NoteState::Unseen);
        if is_run
            && let Some((&before, run)) = self.runs.range_mut(..first).next_back()
            && before + run.count == first
            && run.what == what
        {
            run.count += count;
            return;
        }
        self.runs.insert(first, NoteRun { count, what });
    }

    /// Drops the state of blocks.
    fn cut(&mut self, first: u64, end: u64) {
        if let Some((&before, run)) = self.runs.range_mut(..first).next_back()
            && before + run.count > first
        {
            let (old_end, what) = (before + run.count, run.what);
            run.count = first - before;
            if old_end > end {
                self.runs.insert(end, NoteRun { count: old_end - end, what });
            }
            self.forget(what, old_end.min(end) - first);
        }
        while let Some((&at, &run)) = self.runs.range(first..end).next() {
            self.runs.remove(&at);
            let old_end = at + run.count;
            if old_end > end {
                self.runs.insert(end, NoteRun { count: old_end - end, what: run.what });
            }
            self.forget(run.what, old_end.min(end) - at);
        }
    }

    fn forget(&mut self, what: NoteState, count: u64) {
        if what == NoteState::Unseen {
            self.unseen_blocks -= count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;

    const BLOCKS: u64 = 200;

    fn digest(number: u64) -> Option<FingerprintPrefix> {
        (number > 0).then(|| FingerprintPrefix([u8::try_from(number).unwrap(); FingerprintPrefix::BYTES]))
    }

    /// Notes and a naive list of the last note about each block.
    #[derive(Default)]
    struct Pair {
        notes: Notes,
        naive: BTreeMap<u64, NoteState>,
    }

    impl Pair {
        fn set(&mut self, first: u64, count: u64, what: NoteState) {
            self.naive.extend((first..first + count).map(|block| (block, what)));
        }

        fn check(&self) {
            let (mut end, mut told) = (0, BTreeMap::new());
            for (&first, run) in &self.notes.runs {
                assert!(run.count > 0 && first >= end, "a run at {first} after {end}");
                end = first + run.count;
                assert!(run.count == 1 || !matches!(run.what, NoteState::Written(_)), "a long run of one content");
                told.extend((first..end).map(|block| (block, run.what)));
            }
            assert_eq!(told, self.naive);
            let unseen = self.naive.values().filter(|what| **what == NoteState::Unseen).count();
            assert_eq!(self.notes.unseen_blocks(), unseen as u64);
        }

        fn take(&mut self) -> Vec<Note> {
            let mut expected = Vec::new();
            self.naive.retain(|&block, what| {
                match what {
                    NoteState::Written(digest) => expected.push((block, Some(*digest))),
                    NoteState::Changed => expected.push((block, None)),
                    _ => return true,
                }
                false
            });
            let taken = self.notes.take();
            let told: Vec<_> = taken.iter().flat_map(blocks_of).collect();
            assert_eq!(told, expected);
            taken
        }
    }

    fn blocks_of(note: &Note) -> Vec<(u64, Option<Option<FingerprintPrefix>>)> {
        match *note {
            Note::Written(written) => vec![(written.block.0, Some(written.digest))],
            Note::Changed { first, count } => (first.0..first.0 + count).map(|block| (block, None)).collect(),
        }
    }

    #[test]
    fn the_last_word_about_each_block_is_kept() {
        for seed in 0..60 {
            let random = SeededRandom::new(seed);
            let mut pair = Pair::default();
            let (mut given, mut number) = (Vec::new(), 0);
            for _ in 0..400 {
                let (first, count) = (random.below(BLOCKS), 1 + random.below(12));
                match random.below(12) {
                    0..=3 => {
                        let digest = digest(random.below(5));
                        pair.notes.written(first, digest);
                        pair.set(first, 1, NoteState::Written(digest));
                    }
                    4 | 5 => {
                        pair.notes.changed(first, count);
                        pair.set(first, count, NoteState::Changed);
                    }
                    6 | 7 => {
                        pair.notes.unseen(first, count);
                        pair.set(first, count, NoteState::Unseen);
                    }
                    8 => {
                        number += 1;
                        if let Some(unseen) = pair.notes.take_unseen(count, number) {
                            assert!(unseen.count <= count);
                            let blocks = unseen.first..unseen.first + unseen.count;
                            assert!(blocks.clone().all(|block| pair.naive[&block] == NoteState::Unseen));
                            pair.set(unseen.first, unseen.count, NoteState::Reading(number));
                            given.push(unseen);
                        } else {
                            assert_eq!(pair.notes.unseen_blocks(), 0);
                        }
                    }
                    9 if !given.is_empty() => {
                        let unseen = given.swap_remove(usize::try_from(random.below(given.len() as u64)).unwrap());
                        let digests: Vec<_> = (0..random.below(unseen.count + 1)).map(digest).collect();
                        pair.notes.read(unseen, &digests);
                        for (block, index) in (unseen.first..unseen.first + unseen.count).zip(0..) {
                            let what =
                                pair.naive.get_mut(&block).filter(|what| **what == NoteState::Reading(unseen.number));
                            let read =
                                digests.get(index).map_or(NoteState::Changed, |digest| NoteState::Written(*digest));
                            what.into_iter().for_each(|what| *what = read);
                        }
                    }
                    10 => {
                        let taken = pair.take();
                        if random.below(2) == 0 {
                            // Something is noted before writing the log fails.
                            pair.notes.written(first, digest(1));
                            pair.naive.insert(first, NoteState::Written(digest(1)));
                            for (block, what) in taken.iter().flat_map(blocks_of) {
                                pair.naive.entry(block).or_insert(what.map_or(NoteState::Changed, NoteState::Written));
                            }
                            pair.notes.put_back(taken);
                        }
                    }
                    _ => {}
                }
                pair.check();
            }
        }
    }

    #[test]
    fn what_is_shed_is_known_to_have_changed() {
        let mut notes = Notes::default();
        for block in (0..1000).chain((5000..9000).step_by(2)).chain([1 << 30]) {
            notes.written(block, digest(1));
        }
        notes.unseen(9001, 5);
        // The gaps of one block are joined, the others are not.
        assert_eq!(notes.shed(3), 1000 + 2000 + 1 + 5 + 1999 + 2);
        let whole = [(0, 1000), (5000, 4006), (1 << 30, 1)];
        let whole = whole.map(|(first, count)| Note::Changed { first: FileBlock(first), count });
        assert_eq!((notes.unseen_blocks(), notes.take()), (0, whole.into()));
        notes.changed(3, 2);
        notes.changed(1 << 38, 2);
        notes.shed(1);
        assert_eq!(notes.take(), [Note::Changed { first: FileBlock(3), count: (1 << 38) - 1 }]);
    }
}
