//! Measures how sequential a deduplicated layout would be. A run consists of shared blocks that follow each other, in
//! the same order and without gaps, at the first places of their contents.

use std::io;

use crate::repeats::class;
use onefold_sort::Merge;

/// Runs of shared blocks by their length, in classes that double: 1, 2, 3 to 4, 5 to 8, and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunCount {
    /// Runs, and the blocks in them, for each class.
    pub(crate) classes: Vec<(u64, u64)>,
    pub(crate) runs: u64,
    pub(crate) blocks: u64,
}

impl RunCount {
    fn add(&mut self, length: u64) {
        let class = class(length);
        if self.classes.len() <= class {
            self.classes.resize(class + 1, (0, 0));
        }
        self.classes[class].0 += 1;
        self.classes[class].1 += length;
        self.runs += 1;
        self.blocks += length;
    }
}

/// Counts runs in sorted rows of places and first places.
pub(crate) fn count_runs(rows: Merge) -> io::Result<RunCount> {
    let mut count = RunCount::default();
    let mut last: Option<(u64, u64)> = None;
    let mut length = 0;
    for row in rows {
        let [place, first, _] = row?;
        // Places of two images never follow each other: no image has as many blocks as a place can represent.
        if last.is_some_and(|(last_place, last_first)| place == last_place + 1 && first == last_first + 1) {
            length += 1;
        } else {
            if length > 0 {
                count.add(length);
            }
            length = 1;
        }
        last = Some((place, first));
    }
    if length > 0 {
        count.add(length);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_sort::Sorter;

    fn runs(pairs: &[(u64, u64)]) -> RunCount {
        let sorter = Sorter::new(std::path::Path::new("/nowhere"));
        let rows = pairs.iter().map(|&(place, first)| [place, first, 0]).collect();
        count_runs(sorter.merged(vec![rows]).unwrap()).unwrap()
    }

    #[test]
    fn a_run_ends_where_either_side_jumps() {
        assert_eq!(runs(&[]), RunCount::default());
        let count = runs(&[(100, 1), (101, 2), (102, 3), (103, 9), (105, 10), (106, 11)]);
        assert_eq!((count.runs, count.blocks), (3, 6));
        assert_eq!(count.classes, [(1, 1), (1, 2), (1, 3)]);
    }
}
