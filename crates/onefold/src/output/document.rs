//! Printed JSON.
//!
//! JSON itself escapes only ASCII control characters. All other characters that could affect a terminal are printed as
//! JSON's own escapes too. So a program reads the same text, and a person sees no forged one.

use std::fmt;
use std::io::{self, Write};

use onefold_block::shown::is_hidden;
use serde::Serialize;
use serde_json::Value;

/// A document as it is printed.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    value: &'a Value,
    is_one_line: bool,
}

impl Document<'_> {
    /// Prints on one line, for streams of documents.
    pub(crate) fn line(value: &Value) -> Document<'_> {
        Document { value, is_one_line: true }
    }

    /// Prints indented, on several lines.
    pub(crate) fn lines(value: &Value) -> Document<'_> {
        Document { value, is_one_line: false }
    }
}

impl fmt::Display for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.is_one_line { format!("{}", self.value) } else { format!("{:#}", self.value) };
        each_part(&text, &mut |part| f.write_str(part))
    }
}

/// Writes a value on one line, in the form of [`Document::line`]. Uses `buffer` meanwhile, which saves an allocation.
pub(super) fn write_line(out: &mut impl Write, value: &impl Serialize, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    serde_json::to_writer(&mut *buffer, value)?;
    let text = std::str::from_utf8(buffer).map_err(io::Error::other)?;
    each_part(text, &mut |part| out.write_all(part.as_bytes()))
}

/// Calls `write` with the parts of a JSON text, with hidden characters escaped.
fn each_part<E>(text: &str, write: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    if is_plain(text) {
        return write(text);
    }
    let mut rest = text;
    // Outside of strings, JSON contains no such character except the newline.
    while let Some(at) = rest.find(|character| is_hidden(character) && character != '\n') {
        let (plain, tail) = rest.split_at(at);
        write(plain)?;
        let mut characters = tail.chars();
        if let Some(character) = characters.next() {
            for unit in character.encode_utf16(&mut [0; 2]) {
                write(&format!("\\u{unit:04x}"))?;
            }
        }
        rest = characters.as_str();
    }
    write(rest)
}

/// Returns whether a text contains only letters, signs and newlines of ASCII, as nearly all texts do.
fn is_plain(text: &str) -> bool {
    // Without an early exit, the processor compares many bytes at once.
    text.bytes().fold(true, |is_plain, byte| is_plain & (matches!(byte, 0x20..0x7f) | (byte == b'\n')))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::machine_name::machine_name;
    use serde_json::json;

    #[test]
    fn a_document_holds_names_as_they_are_and_prints_nothing_hidden() {
        let name = "a\u{1b}[31m\u{9b}\u{7f}\n\\\"\u{202e}\u{e0041}\u{2028}ä";
        let value = json!({ "path": machine_name(Path::new(name)), name: [name] });
        for document in [Document::lines(&value), Document::line(&value)] {
            let text = document.to_string();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            let is_newline = |character| !document.is_one_line && character == '\n';
            assert!(!text.chars().any(|character| is_hidden(character) && !is_newline(character)), "{text:?}");
            assert!(text.contains("\\u001b[31m\\u009b\\u007f\\n") && text.contains("\\udb40\\udc41"), "{text}");
        }
        let (mut out, mut buffer) = (Vec::new(), b"what was there".to_vec());
        write_line(&mut out, &value, &mut buffer).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), Document::line(&value).to_string());
    }
}
