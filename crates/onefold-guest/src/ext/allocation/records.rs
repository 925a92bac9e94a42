//! Runs of blocks whose use is known, collected in any order and in bounded memory.

use std::ops::Range;

use crate::filesystem::AllocationClass;

/// A run of blocks with a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Record {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) class: AllocationClass,
}

/// Runs of blocks whose use is known.
#[derive(Debug)]
pub(super) struct Records {
    records: Vec<Record>,
    /// Blocks of a group: the granularity if there are too many runs.
    grain: u64,
    records_max: usize,
    /// Whether whole groups were marked as doubtful.
    is_coarse: bool,
}

/// Maximum number of runs: about 100 MiB of them.
pub(super) const RECORDS_MAX: usize = 4 << 20;

impl Records {
    /// Returns an empty collection for at most `records_max` runs.
    pub(super) fn new(grain: u64, records_max: usize) -> Records {
        Records { records: Vec::new(), grain, records_max, is_coarse: false }
    }

    /// Adds a run.
    pub(super) fn push(&mut self, start: u64, end: u64, class: AllocationClass) {
        if let Some(last) = self.records.last_mut()
            && (last.end, last.class) == (start, class)
        {
            last.end = end;
            return;
        }
        self.records.push(Record { start, end, class });
        if self.records.len() >= self.records_max {
            self.shrink();
        }
    }

    /// Makes room: merges neighbours. If that is not enough, marks whole groups as doubtful, or treats several groups
    /// as one.
    fn shrink(&mut self) {
        self.join();
        while self.records.len() > (self.records_max / 2).max(1) {
            self.is_coarse = true;
            for record in &mut self.records {
                record.start -= record.start % self.grain;
                record.end = record.end.checked_next_multiple_of(self.grain).unwrap_or(u64::MAX);
                record.class = AllocationClass::Doubtful;
            }
            self.join();
            if self.records.len() > self.records_max / 2 {
                self.grain = self.grain.saturating_mul(2);
            }
        }
    }

    /// Returns whether whole groups were marked as doubtful because there were too many runs.
    pub(super) fn is_coarse(&self) -> bool {
        self.is_coarse
    }

    /// Returns the number of blocks of a class. Blocks of runs that overlap count again.
    pub(super) fn blocks_of(&self, class: AllocationClass) -> u64 {
        self.records.iter().filter(|record| record.class == class).map(|record| record.end - record.start).sum()
    }

    /// Returns the runs of a class in the order of their places, without overlap; `None` if whole groups were marked
    /// as doubtful.
    pub(super) fn of(&mut self, class: AllocationClass) -> Option<impl Iterator<Item = Range<u64>> + '_> {
        if self.is_coarse {
            return None;
        }
        self.join();
        let of_class = self.records.iter().filter(move |record| record.class == class);
        let mut after = 0;
        Some(of_class.map(move |record| {
            let run = record.start.max(after)..record.end.max(after);
            after = run.end;
            run
        }))
    }

    fn join(&mut self) {
        self.records.sort_unstable();
        self.records.dedup_by(|next, last| {
            let is_joined = next.class == last.class && next.start <= last.end;
            if is_joined {
                last.end = last.end.max(next.end);
            }
            is_joined
        });
    }

    /// Returns all runs, sorted by their first block. They may overlap.
    pub(super) fn sorted(mut self) -> Vec<Record> {
        self.join();
        self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::TableKind;

    #[test]
    fn too_many_runs_become_whole_groups() {
        let mut records = Records::new(100, 10);
        for start in (0..400).step_by(10) {
            records.push(start, start + 5, AllocationClass::Data);
        }
        let covered = records.sorted();
        assert!(covered.len() < 10, "{covered:?}");
        let is_covered = |block| covered.iter().any(|record| (record.start..record.end).contains(&block));
        assert!((0..400).step_by(10).all(is_covered), "{covered:?}");
    }

    #[test]
    fn too_many_groups_become_fewer() {
        let mut records = Records::new(100, 10);
        for start in (0..20_000).step_by(200) {
            records.push(start, start + 5, AllocationClass::Data);
            assert!(records.records.len() < 10);
        }
        let covered = records.sorted();
        let is_covered = |block| covered.iter().any(|record| (record.start..record.end).contains(&block));
        assert!((0..20_000).step_by(200).all(is_covered), "{covered:?}");
    }

    #[test]
    fn runs_of_a_class_are_in_order_and_do_not_overlap() {
        let directory = AllocationClass::Table(TableKind::Directory);
        let mut records = Records::new(100, 10);
        for (start, end, class) in [
            (7, 9, directory),
            (1, 3, directory),
            (2, 4, AllocationClass::Data),
            (2, 5, directory),
            (20, 22, directory),
        ] {
            records.push(start, end, class);
        }
        assert_eq!(records.blocks_of(directory), 9);
        assert_eq!(records.of(directory).unwrap().collect::<Vec<_>>(), [1..3, 3..5, 7..9, 20..22]);
        for start in 0..10 {
            records.push(30 * start, 30 * start + 1, directory);
        }
        assert!(records.is_coarse() && records.of(directory).is_none());
    }

    #[test]
    fn neighbours_are_one_run() {
        let mut records = Records::new(100, 10);
        for (start, end) in [(7, 9), (1, 3), (3, 5), (4, 7)] {
            records.push(start, end, AllocationClass::Data);
        }
        assert_eq!(records.sorted(), [Record { start: 1, end: 9, class: AllocationClass::Data }]);
    }
}
