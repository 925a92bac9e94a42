//! The part of the index that came last, in memory.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::ObjectId;
use crate::format::segment::IndexEntry;

/// Sorted runs of entries, longest first. Each run is at least twice as long as the next.
#[derive(Debug, Default)]
pub(super) struct MemoryRuns {
    packs: Vec<SourcedPack>,
    numbers: HashMap<ObjectId, u32>,
    runs: Vec<Vec<IndexEntry>>,
}

/// A pack, and the segment that named its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourcedPack {
    pub(super) id: ObjectId,
    pub(super) segment: Option<ObjectId>,
}

impl MemoryRuns {
    /// Returns the number of units.
    pub(super) fn units(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    /// Returns the memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        let entries: usize = self.runs.iter().map(|run| run.capacity() * size_of::<IndexEntry>()).sum();
        entries + self.packs.len() * 4 * size_of::<SourcedPack>()
    }

    /// Returns the packs that entries refer to.
    pub(super) fn packs(&self) -> &[SourcedPack] {
        &self.packs
    }

    pub(super) fn runs(&self) -> &[Vec<IndexEntry>] {
        &self.runs
    }

    /// Adds sorted entries. `packs` has those that they refer to; entries of packs that are `None` are left out.
    pub(super) fn add(&mut self, packs: &[Option<SourcedPack>], entries: &[IndexEntry]) {
        let numbers: Vec<Option<u32>> = packs.iter().map(|pack| pack.map(|pack| self.number(pack))).collect();
        let renumbered = |entry: &IndexEntry| numbers[entry.pack as usize].map(|pack| IndexEntry { pack, ..*entry });
        self.add_run(entries.iter().filter_map(renumbered).collect());
    }

    fn add_run(&mut self, run: Vec<IndexEntry>) {
        self.runs.push(run);
        while let [.., longer, shorter] = &self.runs[..]
            && longer.len() < 2 * shorter.len()
        {
            let (shorter, longer) = (self.runs.pop().unwrap_or_default(), self.runs.pop().unwrap_or_default());
            self.runs.push(merge(&longer, &shorter));
        }
    }

    fn number(&mut self, pack: SourcedPack) -> u32 {
        *self.numbers.entry(pack.id).or_insert_with(|| {
            self.packs.push(pack);
            u32::try_from(self.packs.len() - 1).expect("fewer packs than units")
        })
    }

    /// Drops the entries of packs that hold nothing any more.
    pub(super) fn forget(&mut self, is_live: impl Fn(ObjectId) -> bool) {
        if self.packs.iter().all(|pack| is_live(pack.id)) {
            return;
        }
        let packs = std::mem::take(&mut self.packs);
        self.numbers.clear();
        let mut runs = std::mem::take(&mut self.runs);
        let kept: Vec<Option<u32>> = packs.iter().map(|pack| is_live(pack.id).then(|| self.number(*pack))).collect();
        for run in &mut runs {
            run.retain_mut(|entry| {
                let number = kept[entry.pack as usize];
                entry.pack = number.unwrap_or_default();
                number.is_some()
            });
            run.shrink_to_fit();
        }
        runs.sort_by_key(|run| Reverse(run.len()));
        runs.into_iter().for_each(|run| self.add_run(run));
    }

    /// Calls `each` with the entries of a prefix and their packs until it returns false.
    pub(super) fn find(&self, prefix: u64, mut each: impl FnMut(IndexEntry, ObjectId) -> bool) {
        for run in &self.runs {
            let start = run.partition_point(|entry| entry.prefix < prefix);
            for entry in run[start..].iter().take_while(|entry| entry.prefix == prefix) {
                if !each(*entry, self.packs[entry.pack as usize].id) {
                    return;
                }
            }
        }
    }
}

/// Merges two sorted runs.
fn merge(one: &[IndexEntry], other: &[IndexEntry]) -> Vec<IndexEntry> {
    let mut merged = Vec::with_capacity(one.len() + other.len());
    let (mut one, mut other) = (one, other);
    while let ([first, rest @ ..], [second, others @ ..]) = (one, other) {
        if first.prefix <= second.prefix {
            merged.push(*first);
            one = rest;
        } else {
            merged.push(*second);
            other = others;
        }
    }
    merged.extend_from_slice(one);
    merged.extend_from_slice(other);
    merged
}
