//! A sort that one thread feeds.

use std::io;
use std::path::Path;

use crate::{Merge, Row, Rows, Sorter};

/// Takes rows down in any order and returns them sorted, once. For a sort that several threads feed, use a [`Sorter`].
#[derive(Debug)]
pub struct SortWriter {
    sorter: Sorter,
    rows: Rows,
}

impl SortWriter {
    /// Returns an empty list, of which at most `memory_bytes` are in memory and the rest in files in `folder`. Memory
    /// is taken with the first row.
    #[must_use]
    pub fn new(folder: &Path, memory_bytes: usize) -> SortWriter {
        SortWriter { sorter: Sorter::new(folder), rows: Rows::new(memory_bytes) }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// Those of writing a file; no space.
    pub fn push(&mut self, row: Row) -> io::Result<()> {
        self.rows.push(row, &self.sorter)
    }

    /// Returns all rows in order. What is in memory stays there.
    ///
    /// # Errors
    /// Those of reading the files.
    pub fn finish(self) -> io::Result<Merge> {
        self.sorter.merged(vec![self.rows.sorted()])
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;
    use crate::ROW_BYTES;

    #[test]
    fn rows_come_out_in_order_from_memory_and_from_files() {
        let random = SeededRandom::new(3);
        let rows: Vec<Row> = (0..5000).map(|_| [random.next_u64() % 50, random.next_u64(), 1]).collect();
        let mut expected = rows.clone();
        expected.sort_unstable();
        let folder = tempfile::tempdir().unwrap();
        for rows_max in [1, 64, 4999, 5000, 5001] {
            let mut writer = SortWriter::new(folder.path(), rows_max * ROW_BYTES);
            rows.iter().for_each(|row| writer.push(*row).unwrap());
            let all = writer.finish().unwrap().collect::<io::Result<Vec<Row>>>().unwrap();
            assert!(all == expected, "{rows_max} rows in memory");
        }
        assert_eq!(SortWriter::new(folder.path(), 0).finish().unwrap().count(), 0);
    }
}
