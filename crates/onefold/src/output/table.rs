//! Text in columns.

use std::fmt;

/// Rows of cells: the first column is flush left, the others are numbers and flush right.
#[derive(Debug, Default)]
pub(crate) struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Returns a table with a row of headings.
    pub(crate) fn new<const N: usize>(headings: [&str; N]) -> TextTable {
        TextTable { rows: vec![Vec::from(headings.map(str::to_owned))] }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(Vec::from(cells));
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => line.push_str(&format!("{cell:<width$}")),
                    _ => line.push_str(&format!("  {cell:>width$}")),
                }
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(["file", "bytes"]);
        table.row(["ä.raw".to_owned(), "5".to_owned()]);
        table.row(["long-name.raw".to_owned(), "1,000".to_owned()]);
        assert_eq!(table.to_string(), "file           bytes\nä.raw              5\nlong-name.raw  1,000");
    }
}
