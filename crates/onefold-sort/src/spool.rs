//! Rows that come in order already and are read again as often as wanted, from anywhere.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::{BUFFER_BYTES, ROW_BYTES, Row, decode, encode};

/// Takes rows down, in order. They lie in memory as long as they are few, and in a file without a name from then on.
#[derive(Debug)]
pub struct SpoolWriter {
    folder: PathBuf,
    rows_max: usize,
    rows: Vec<Row>,
    file: Option<BufWriter<File>>,
    filed: u64,
}

/// Rows in order.
#[derive(Debug)]
pub struct Spool {
    /// The first `filed` rows.
    file: Option<File>,
    filed: u64,
    /// All others.
    rows: Vec<Row>,
}

/// Reads rows of a spool one after the other.
#[derive(Debug)]
pub struct SpoolReader<'a> {
    spool: &'a Spool,
    next: u64,
    end: u64,
    buffer: Vec<u8>,
    /// The number of the first row in the buffer.
    buffered: u64,
}

impl SpoolWriter {
    /// Returns an empty list, of which at most `memory_bytes` are in memory and the rest in a file in `folder`.
    #[must_use]
    pub fn new(folder: &Path, memory_bytes: usize) -> SpoolWriter {
        let rows_max = (memory_bytes / ROW_BYTES).max(1);
        SpoolWriter { folder: folder.to_owned(), rows_max, rows: Vec::new(), file: None, filed: 0 }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// Those of writing the file; no space.
    pub fn push(&mut self, row: Row) -> io::Result<()> {
        if self.rows.len() == self.rows_max {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(BufWriter::with_capacity(BUFFER_BYTES, tempfile::tempfile_in(&self.folder)?)),
            };
            self.filed += self.rows.len() as u64;
            for row in self.rows.drain(..) {
                file.write_all(&encode(row))?;
            }
        }
        self.rows.push(row);
        Ok(())
    }

    /// Returns what was taken down.
    ///
    /// # Errors
    /// Those of writing the file; no space.
    pub fn finish(self) -> io::Result<Spool> {
        let file = match self.file {
            None => None,
            Some(out) => Some(out.into_inner().map_err(io::IntoInnerError::into_error)?),
        };
        Ok(Spool { file, filed: self.filed, rows: self.rows })
    }
}

impl Spool {
    /// Returns how many rows there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.filed + self.rows.len() as u64
    }

    /// Tells whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of the first row whose first word is not below `word`.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn lower_bound(&self, word: u64) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.row(middle)?[0] < word { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Returns the rows from number `from` to before number `to`.
    #[must_use]
    pub fn read(&self, from: u64, to: u64) -> SpoolReader<'_> {
        SpoolReader { spool: self, next: from, end: to.min(self.len()), buffer: Vec::new(), buffered: 0 }
    }

    fn row(&self, number: u64) -> io::Result<Row> {
        match &self.file {
            Some(file) if number < self.filed => {
                let mut bytes = [0; ROW_BYTES];
                file.read_exact_at(&mut bytes, number * ROW_BYTES as u64)?;
                Ok(decode(bytes))
            }
            _ => Ok(self.rows[usize::try_from(number - self.filed).expect("in memory")]),
        }
    }
}

impl SpoolReader<'_> {
    fn filed_row(&mut self, file: &File, number: u64) -> io::Result<Row> {
        let buffered_end = self.buffered + (self.buffer.len() / ROW_BYTES) as u64;
        if !(self.buffered..buffered_end).contains(&number) {
            let count = (self.spool.filed.min(self.end) - number).min((BUFFER_BYTES / ROW_BYTES) as u64);
            self.buffer.resize(usize::try_from(count).expect("at most a buffer") * ROW_BYTES, 0);
            file.read_exact_at(&mut self.buffer, number * ROW_BYTES as u64)?;
            self.buffered = number;
        }
        let at = usize::try_from(number - self.buffered).expect("within the buffer");
        Ok(decode(self.buffer.as_chunks().0[at]))
    }
}

impl Iterator for SpoolReader<'_> {
    type Item = io::Result<Row>;

    fn next(&mut self) -> Option<io::Result<Row>> {
        if self.next >= self.end {
            return None;
        }
        let number = self.next;
        self.next += 1;
        Some(match &self.spool.file {
            Some(file) if number < self.spool.filed => {
                let row = self.filed_row(file, number);
                if row.is_err() {
                    self.next = self.end;
                }
                row
            }
            _ => self.spool.row(number),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_can_be_read_from_anywhere_whatever_fits_into_memory() {
        let folder = tempfile::tempdir().unwrap();
        // Each first word three times, every other one not at all; more rows than a buffer holds.
        let expected: Vec<Row> = (0..20_000).map(|number| [number / 3 * 2, number, !number]).collect();
        for rows_max in [1, 7, 19_999, 20_000, 50_000] {
            let mut writer = SpoolWriter::new(folder.path(), rows_max * ROW_BYTES);
            expected.iter().for_each(|row| writer.push(*row).unwrap());
            let spool = writer.finish().unwrap();
            assert_eq!(spool.len(), 20_000);
            for (from, to) in [(0, 20_000), (0, u64::MAX), (5, 6), (6_000, 19_999), (20_000, 20_000), (9, 3)] {
                let rows: Vec<Row> = spool.read(from, to).map(Result::unwrap).collect();
                let to = usize::try_from(to.min(20_000)).unwrap();
                let from = usize::try_from(from).unwrap().min(to);
                assert!(rows == expected[from..to], "{rows_max} rows in memory, from {from} to {to}");
            }
            for (word, at) in [(0, 0), (1, 3), (2, 3), (3, 6), (13_332, 19_998), (13_333, 20_000), (u64::MAX, 20_000)] {
                assert_eq!(spool.lower_bound(word).unwrap(), at, "{word}");
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the files have no names");
    }
}
