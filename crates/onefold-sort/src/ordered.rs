//! Rows that come in order already and are read again later, once.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use crate::{BUFFER_BYTES, ROW_BYTES, Row, decode, encode};

/// Takes rows down. They lie in memory as long as they are few, and in a file without a name from then on.
#[derive(Debug)]
pub struct OrderedWriter<'a> {
    folder: &'a Path,
    rows_max: usize,
    rows: Vec<Row>,
    file: Option<BufWriter<File>>,
}

/// Rows that were taken down, in the same order.
#[derive(Debug)]
pub struct OrderedRows {
    file: Option<BufReader<File>>,
    rows: std::vec::IntoIter<Row>,
}

impl<'a> OrderedWriter<'a> {
    /// Returns an empty list, of which at most `memory_bytes` are in memory and the rest in a file in `folder`.
    #[must_use]
    pub fn new(folder: &'a Path, memory_bytes: usize) -> OrderedWriter<'a> {
        OrderedWriter { folder, rows_max: (memory_bytes / ROW_BYTES).max(1), rows: Vec::new(), file: None }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// Those of writing the file; no space.
    pub fn push(&mut self, row: Row) -> io::Result<()> {
        if self.rows.len() == self.rows_max {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(BufWriter::with_capacity(BUFFER_BYTES, tempfile::tempfile_in(self.folder)?)),
            };
            for row in self.rows.drain(..) {
                file.write_all(&encode(row))?;
            }
        }
        self.rows.push(row);
        Ok(())
    }

    /// Returns what was taken down, to be read.
    ///
    /// # Errors
    /// Those of writing the file; no space.
    pub fn finish(self) -> io::Result<OrderedRows> {
        let file = match self.file {
            None => None,
            Some(out) => {
                let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.rewind()?;
                Some(BufReader::with_capacity(BUFFER_BYTES, file))
            }
        };
        Ok(OrderedRows { file, rows: self.rows.into_iter() })
    }
}

impl Iterator for OrderedRows {
    type Item = io::Result<Row>;

    fn next(&mut self) -> Option<io::Result<Row>> {
        if let Some(file) = &mut self.file {
            let mut bytes = [0; ROW_BYTES];
            match file.read_exact(&mut bytes) {
                Ok(()) => return Some(Ok(decode(bytes))),
                // The file is our own and holds whole rows: an end is the end, and the last rows are in memory.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.file = None,
                Err(error) => {
                    self.file = None;
                    self.rows = Vec::new().into_iter();
                    return Some(Err(error));
                }
            }
        }
        self.rows.next().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_in_their_order_whatever_fits_into_memory() {
        let folder = tempfile::tempdir().unwrap();
        let expected: Vec<Row> = (0..1000).map(|number| [number, number * 7, u64::MAX - number]).collect();
        for rows_max in [1, 7, 999, 1000, 5000] {
            let mut writer = OrderedWriter::new(folder.path(), rows_max * ROW_BYTES);
            expected.iter().for_each(|row| writer.push(*row).unwrap());
            let rows: Vec<Row> = writer.finish().unwrap().map(Result::unwrap).collect();
            assert_eq!(rows, expected, "{rows_max} rows in memory");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the files have no names");
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(OrderedWriter::new(Path::new("/proc/nowhere"), 100).finish().unwrap().count(), 0);
    }
}
