//! The runs of a map under construction: free runs, overlaid by runs in use.

use std::collections::BTreeSet;

use crate::budget::push_row;
use crate::filesystem::{AllocationClass, common_length};

/// Number of lists of runs whose memory the finished map may take.
pub(super) const WHOLE_PARTS: usize = 3;

/// A run of blocks by their linear numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassRun {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) class: AllocationClass,
}

/// A map under construction.
#[derive(Debug)]
pub(super) struct AllocationBuilder {
    /// Free runs and doubtful groups, in order.
    pub(super) base: Vec<ClassRun>,
    /// Runs in use that overlay the base. Blocks in neither list are data.
    used: Vec<ClassRun>,
    /// Maximum number of runs in each list.
    pub(super) runs_max: usize,
    /// Blocks of a group.
    group_blocks: u64,
    /// Groups that are doubtful because they have too many runs in use.
    doubtful: BTreeSet<u64>,
    /// Whether there were too many runs.
    pub(super) is_short: bool,
}

impl AllocationBuilder {
    /// Returns an empty map for groups of this size, with at most `runs_max` runs of each kind.
    pub(super) fn new(group_blocks: u64, runs_max: usize) -> AllocationBuilder {
        let doubtful = BTreeSet::new();
        AllocationBuilder { base: Vec::new(), used: Vec::new(), runs_max, group_blocks, doubtful, is_short: false }
    }

    /// Records that blocks are in use. Returns whether one of them is in a free run.
    pub(super) fn claim(&mut self, start: u64, count: u64, class: AllocationClass) -> bool {
        let end = start.saturating_add(count);
        let from = self.base.partition_point(|run| run.end <= start);
        let free = |run: &&ClassRun| run.class == AllocationClass::Free;
        let is_free = self.base.iter().skip(from).take_while(|run| run.start < end).find(free).is_some();
        let is_full = self.used.len() >= self.runs_max;
        match self.used.last_mut() {
            // Data needs no run, unless it hides a free one.
            _ if class == AllocationClass::Data && !is_free => {}
            Some(last) if last.end == start && last.class == class => last.end = end,
            _ if is_full => {
                self.is_short = true;
                if is_free {
                    self.doubtful.insert(start / self.group_blocks);
                }
            }
            _ => push_row(&mut self.used, ClassRun { start, end, class }, self.runs_max),
        }
        is_free
    }

    /// Makes all free blocks doubtful.
    pub(super) fn doubt_all(&mut self) {
        for run in self.base.iter_mut().filter(|run| run.class == AllocationClass::Free) {
            run.class = AllocationClass::Doubtful;
        }
    }

    /// Makes whole groups doubtful.
    fn doubt_groups(&mut self) {
        if self.doubtful.is_empty() {
            return;
        }
        self.base.retain(|run| !self.doubtful.contains(&(run.start / self.group_blocks)));
        self.base.extend(self.doubtful.iter().map(|group| {
            let start = group * self.group_blocks;
            ClassRun { start, end: start.saturating_add(self.group_blocks), class: AllocationClass::Doubtful }
        }));
        self.base.sort_unstable_by_key(|run| run.start);
    }

    /// Returns the number of blocks that are in use and in a free run.
    pub(super) fn contradictory_blocks(&mut self) -> u64 {
        self.used.sort_unstable_by_key(|run| run.start);
        let free = self.base.iter().filter(|run| run.class == AllocationClass::Free);
        common_length(free.map(|run| run.start..run.end), self.used.iter().map(|run| run.start..run.end))
    }

    /// Appends a run of a group to the base, which is not full.
    pub(super) fn add_free(&mut self, start: u64, end: u64) {
        push_row(&mut self.base, ClassRun { start, end, class: AllocationClass::Free }, self.runs_max);
    }

    /// Returns runs that cover the blocks from 0 to `blocks`. If they do not fit into the memory of the map, the last
    /// one extends over the rest, and is doubtful.
    pub(super) fn finish(&mut self, blocks: u64) -> Vec<ClassRun> {
        self.doubt_groups();
        self.used.sort_unstable_by_key(|run| run.start);
        // The rows are counted first, so that the list takes no more memory than they need.
        let mut count = RunCounter::default();
        self.each_run(blocks, &mut |run| count.add(run));
        let whole_max = self.runs_max.saturating_mul(WHOLE_PARTS).max(1);
        self.is_short |= count.rows > whole_max;
        // One more for the bytes behind the file system.
        let mut whole = Vec::with_capacity(count.rows.min(whole_max) + 1);
        self.each_run(blocks, &mut |run| {
            let is_full = whole.len() >= whole_max;
            match whole.last_mut() {
                Some(last) if is_full && !joins(last, &run) => {
                    *last = ClassRun { start: last.start, end: run.end, class: AllocationClass::Doubtful };
                }
                _ => push(&mut whole, run),
            }
        });
        whole
    }

    /// Calls `visit` with runs that cover the blocks from 0 to `blocks`. Neighbours may be alike. The used runs are in
    /// order.
    fn each_run(&self, blocks: u64, visit: &mut dyn FnMut(ClassRun)) {
        let mut visit = |run: ClassRun| {
            if run.start < run.end {
                visit(run);
            }
        };
        let mut base = self.base.iter().copied().peekable();
        let mut at = 0;
        let end = ClassRun { start: blocks, end: blocks, class: AllocationClass::Outside };
        for used in self.used.iter().copied().chain([end]) {
            let start = used.start.clamp(at, blocks);
            while at < start {
                while base.next_if(|run| run.end <= at).is_some() {}
                let (stop, class) = match base.peek() {
                    Some(run) if run.start <= at => (run.end, run.class),
                    Some(run) => (run.start, AllocationClass::Data),
                    None => (start, AllocationClass::Data),
                };
                visit(ClassRun { start: at, end: stop.min(start), class });
                at = stop.min(start);
            }
            visit(ClassRun { start: at, end: used.end.clamp(at, blocks), class: used.class });
            at = used.end.clamp(at, blocks);
        }
    }
}

/// The number of rows that a list of runs needs.
#[derive(Default)]
struct RunCounter {
    rows: usize,
    last: Option<ClassRun>,
}

impl RunCounter {
    fn add(&mut self, run: ClassRun) {
        self.rows += usize::from(!self.last.as_ref().is_some_and(|last| joins(last, &run)));
        self.last = Some(run);
    }
}

/// Returns whether a run continues the one before it.
fn joins(last: &ClassRun, run: &ClassRun) -> bool {
    last.class == run.class && last.end == run.start
}

/// Appends a run, and merges it with the last one if they have the same class and are adjacent.
pub(super) fn push(runs: &mut Vec<ClassRun>, run: ClassRun) {
    match runs.last_mut() {
        _ if run.start >= run.end => {}
        Some(last) if joins(last, &run) => last.end = run.end,
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DIRECTORY, SUPERBLOCK, TREE};
    use super::*;

    #[test]
    fn what_is_in_use_hides_what_is_free() {
        let free = |start, end| ClassRun { start, end, class: AllocationClass::Free };
        let doubtful = ClassRun { start: 100, end: 200, class: AllocationClass::Doubtful };
        let mut runs = AllocationBuilder::new(100, 10);
        runs.base = vec![free(10, 20), free(50, 60), doubtful];
        assert!(!runs.claim(150, 1, DIRECTORY));
        assert!(!runs.claim(20, 30, AllocationClass::Data));
        assert!(runs.claim(55, 1, AllocationClass::Data));
        assert!(runs.claim(0, 11, SUPERBLOCK));
        assert!(!runs.claim(5, 2, TREE));
        assert_eq!(runs.contradictory_blocks(), 2, "55 and 10");
        let found: Vec<_> = runs.finish(190).iter().map(|run| (run.start, run.end, run.class)).collect();
        let (free, data, doubtful) = (AllocationClass::Free, AllocationClass::Data, AllocationClass::Doubtful);
        let expected = [
            (0, 11, SUPERBLOCK),
            (11, 20, free),
            (20, 50, data),
            (50, 55, free),
            (55, 56, data),
            (56, 60, free),
            (60, 100, data),
            (100, 150, doubtful),
            (150, 151, DIRECTORY),
            (151, 190, doubtful),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn more_runs_than_are_kept_put_their_groups_in_doubt() {
        let mut runs = AllocationBuilder::new(100, 4);
        let free = |start, end| ClassRun { start, end, class: AllocationClass::Free };
        runs.base = vec![free(10, 20), free(110, 120), free(210, 220)];
        for (start, class) in [(12, DIRECTORY), (13, TREE), (14, DIRECTORY), (15, TREE), (30, DIRECTORY), (40, TREE)] {
            runs.claim(start, 1, class);
        }
        assert!(runs.claim(115, 1, AllocationClass::Data));
        assert!(!runs.claim(230, 1, DIRECTORY));
        assert_eq!(runs.used.len(), 4);
        let found: Vec<_> = runs.finish(300).iter().map(|run| (run.start, run.end, run.class)).collect();
        let (free, data, doubtful) = (AllocationClass::Free, AllocationClass::Data, AllocationClass::Doubtful);
        let expected = [
            (0, 10, data),
            (10, 12, free),
            (12, 13, DIRECTORY),
            (13, 14, TREE),
            (14, 15, DIRECTORY),
            (15, 16, TREE),
            (16, 20, free),
            (20, 100, data),
            (100, 200, doubtful),
            (200, 210, data),
            (210, 220, free),
            (220, 300, data),
        ];
        assert_eq!(found, expected);
    }

    /// Fills both lists, so that the map has twice as many rows as both together.
    fn filled(runs_max: u32) -> AllocationBuilder {
        let mut runs = AllocationBuilder::new(1 << 20, runs_max as usize);
        for start in (0..runs_max).map(|run| u64::from(run) * 10) {
            runs.add_free(start, start + 5);
        }
        for start in (0..runs_max).map(|run| u64::from(run) * 10) {
            runs.claim(start + 2, 1, TREE);
        }
        runs
    }

    #[test]
    fn a_map_takes_no_more_memory_than_its_parts() {
        let mut runs = filled(1000);
        assert!(runs.base.capacity() <= 1000 && runs.used.capacity() <= 1000);
        let whole = runs.finish(10_000);
        assert!(whole.capacity() <= WHOLE_PARTS * 1000 + 1, "{}", whole.capacity());
        assert!(runs.is_short);
        let last = whole.last().expect("runs");
        // A free run with a used one in it, and the data behind it, are four rows.
        assert_eq!((last.start, last.end, last.class), (7495, 10_000, AllocationClass::Doubtful));
    }

    #[test]
    fn a_map_that_fits_is_whole() {
        // Without data between free runs, a map needs three rows for each of them.
        let mut runs = AllocationBuilder::new(1 << 20, 100);
        for start in (0..100).map(|run| run * 5) {
            runs.add_free(start, start + 5);
            runs.claim(start + 2, 1, TREE);
        }
        let whole = runs.finish(500);
        assert_eq!((whole.len(), whole.capacity(), runs.is_short), (201, 202, false));
        assert!(whole.iter().all(|run| run.class != AllocationClass::Doubtful));
    }
}
