//! Results on standard output: as text for people, or as one JSON document for machines.

pub(crate) mod analysis;
mod document;
mod files;
pub(crate) mod findings;
mod listing;
pub(crate) mod sampled;
pub(crate) mod space;
mod table;

use std::io::{self, Write};

use onefold_block::shown::ShownText;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure};

pub(crate) use crate::machine_name::machine_name;
pub(crate) use document::Document;
pub(crate) use listing::{RowForm, StdoutListing};
pub(crate) use table::TextTable;

/// The result of a command that succeeded.
#[derive(Debug)]
pub(crate) struct Report {
    /// For people; without a newline at its end. May be empty, also where machines ask.
    pub(crate) text: String,
    /// For machines: an object; null if everything was printed already, or if the text is for people.
    pub(crate) json: Value,
    /// How the command ends.
    pub(crate) exit: Exit,
}

impl Report {
    /// Returns the result of a command that is done.
    pub(crate) fn done(text: impl Into<String>, json: Value) -> Report {
        Report { text: text.into(), json, exit: Exit::Done }
    }

    /// Prints the result.
    pub(crate) fn print(&self, as_json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match as_json {
            true if !self.json.is_null() => writeln!(out, "{}", Document::lines(&self.json))?,
            false if !self.text.is_empty() => writeln!(out, "{}", ShownText::lines(&self.text))?,
            _ => {}
        }
        out.flush()
    }
}

/// Prints a line for people to standard error. A closed stream does not end the command.
pub(crate) fn print_note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", ShownText::line(text));
}

/// Prints a failure: to standard error for people, or as the one document on standard output for machines.
pub(crate) fn print_failure(failure: &Failure, as_json: bool) {
    // Without both streams, only the exit code is left to report.
    let _ = writeln!(io::stderr().lock(), "{failure}");
    if as_json {
        print_failure_document(failure);
    }
}

/// Prints a failure as the one document on standard output.
pub(crate) fn print_failure_document(failure: &Failure) {
    let document = json!({ "error": failure.error, "causes": failure.causes, "hint": failure.hint });
    let _ = writeln!(io::stdout().lock(), "{}", Document::lines(&document));
}
