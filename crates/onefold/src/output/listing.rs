//! Results that are too long for memory: rows are printed as they are found, for people, for programs that take raw
//! names, or as one JSON document.

use std::io::{self, BufWriter, StdoutLock, Write};

use onefold_block::shown::ShownText;
use serde::Serialize;
use serde_json::{Map, Value};

use super::document::{Document, write_line};
use crate::cli::Talk;

/// Form of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowForm {
    /// Lines for people.
    Lines,
    /// Raw names, each followed by a zero byte.
    Raw,
    /// Members of a list in one JSON document.
    Json,
}

impl RowForm {
    /// Returns the form that the user requests.
    pub(crate) fn of(talk: Talk, raw: bool) -> RowForm {
        match (talk.json, raw) {
            (true, _) => RowForm::Json,
            (false, true) => RowForm::Raw,
            (false, false) => RowForm::Lines,
        }
    }
}

/// Rows on their way to standard output.
pub(crate) struct Listing<W: Write> {
    out: W,
    form: RowForm,
    /// Name of the list in the document.
    name: &'static str,
    rows: u64,
    /// Holds a row of a document until it is printed.
    buffer: Vec<u8>,
}

/// A listing on standard output.
pub(crate) type StdoutListing = Listing<BufWriter<StdoutLock<'static>>>;

/// Number of bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 64 << 10;

impl StdoutListing {
    /// Returns a listing on standard output; `name` is the name of the list in a document.
    pub(crate) fn new(form: RowForm, name: &'static str) -> StdoutListing {
        Listing::onto(BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()), form, name)
    }
}

impl<W: Write> Listing<W> {
    fn onto(out: W, form: RowForm, name: &'static str) -> Listing<W> {
        Listing { out, form, name, rows: 0, buffer: Vec::new() }
    }

    /// Returns the form of the rows.
    pub(crate) fn form(&self) -> RowForm {
        self.form
    }

    /// Returns whether nothing has been printed yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Prints a row for people. Names in `text` must be escaped already.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.rows += 1;
        writeln!(self.out, "{}", ShownText::line(text))
    }

    /// Prints a raw name.
    pub(crate) fn raw(&mut self, name: &[u8]) -> io::Result<()> {
        self.rows += 1;
        self.out.write_all(name)?;
        self.out.write_all(&[0])
    }

    /// Prints a member of the list.
    pub(crate) fn json(&mut self, row: &impl Serialize) -> io::Result<()> {
        match self.rows {
            0 => write!(self.out, "{{\n  {}: [\n    ", Document::line(&self.name.into()))?,
            _ => self.out.write_all(b",\n    ")?,
        }
        self.rows += 1;
        write_line(&mut self.out, row, &mut self.buffer)
    }

    /// Ends the listing; `further` are the other members of the document.
    pub(crate) fn finish(mut self, further: &Map<String, Value>) -> io::Result<()> {
        if self.form == RowForm::Json {
            match self.rows {
                0 => write!(self.out, "{{\n  {}: []", Document::line(&self.name.into()))?,
                _ => self.out.write_all(b"\n  ]")?,
            }
            for (name, value) in further {
                write!(self.out, ",\n  {}: {}", Document::line(&name.as_str().into()), Document::line(value))?;
            }
            self.out.write_all(b"\n}\n")?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn printed(form: RowForm, print: impl FnOnce(&mut Listing<&mut Vec<u8>>), further: &Value) -> String {
        let mut out = Vec::new();
        let mut listing = Listing::onto(&mut out, form, "files");
        print(&mut listing);
        listing.finish(further.as_object().unwrap()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_document_is_whole_however_many_rows_it_has() {
        let further = json!({ "damage": [], "in_use": false });
        for count in 0..3 {
            let rows: Vec<Value> = (0..count).map(|number| json!({ "path": format!("a\u{1b}{number}\n") })).collect();
            let text = printed(RowForm::Json, |list| rows.iter().for_each(|row| list.json(row).unwrap()), &further);
            let expected = json!({ "files": rows, "damage": [], "in_use": false });
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
            assert!(!text.contains('\u{1b}') && text.ends_with("}\n"), "{text}");
        }
    }

    #[test]
    fn lines_are_escaped_and_raw_names_are_not() {
        let further = json!({ "damage": [] });
        let text = printed(RowForm::Lines, |list| list.line("a\u{1b}\nb").unwrap(), &further);
        assert_eq!(text, "a\\x1b\\nb\n");
        let text = printed(RowForm::Raw, |list| list.raw(b"a\x1b\nb").unwrap(), &further);
        assert_eq!(text, "a\u{1b}\nb\0");
    }
}
