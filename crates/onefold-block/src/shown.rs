//! Names and foreign text in a form that is safe to print.
//!
//! A file name is any bytes without `/` and NUL, chosen by the owner of the folder. Messages of other programs, or of a
//! library about a foreign image, often quote such names. If printed unchanged, they can move the cursor, recolour or
//! retitle a terminal, forge lines of a log, or reverse the order of the letters around them.
//!
//! [`Show::shown`] is for a name: its result is unambiguous, because it also escapes the backslash and the backtick,
//! which messages put around names. [`ShownText`] is for text that already consists of messages: it escapes the same
//! characters except backslash and backtick, so that names which were already escaped do not change. [`ShownOutput`] is
//! for the output of another program.
//!
//! | in the name | shown as |
//! |---|---|
//! | newline, tab, carriage return | `\n`, `\t`, `\r` |
//! | another control character of ASCII | `\x1b` |
//! | a byte that is not UTF-8 | `\xff`, from `\x80` on |
//! | backslash, backtick | `\\`, `` \` `` |
//! | another control, bidirectional control, format or invisible character | `\u{202e}` |
//!
//! All other characters, of any script, are shown as they are.

use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::Utf8Chunk;

/// Maximum number of bytes of another program's output that are shown.
const OUTPUT_BYTES_MAX: usize = 4 << 10;

/// Characters besides the ASCII controls that are not shown unchanged, as sorted ranges: the general categories Cc, Cf,
/// Zl and Zp, and the property `Default_Ignorable_Code_Point`, of Unicode 14.
const HIDDEN: [(u32, u32); 26] = [
    (0x7f, 0x9f),
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x600, 0x605),
    (0x61c, 0x61c),
    (0x6dd, 0x6dd),
    (0x70f, 0x70f),
    (0x890, 0x891),
    (0x8e2, 0x8e2),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x200b, 0x200f),
    (0x2028, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfffb),
    (0x110bd, 0x110bd),
    (0x110cd, 0x110cd),
    (0x13430, 0x1343f),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
];

/// Returns whether a character controls a terminal or the direction of text, or is invisible.
#[must_use]
pub fn is_hidden(character: char) -> bool {
    let code = u32::from(character);
    // Nearly all text takes this path.
    if (0x20..0x7f).contains(&code) {
        return false;
    }
    code < 0x20 || HIDDEN.binary_search_by(|&(first, last)| range_order(first, last, code)).is_ok()
}

fn range_order(first: u32, last: u32, code: u32) -> std::cmp::Ordering {
    if last < code {
        std::cmp::Ordering::Less
    } else if first > code {
        std::cmp::Ordering::Greater
    } else {
        std::cmp::Ordering::Equal
    }
}

/// Names in messages. In scope, it replaces [`Path::display`], which a lint forbids.
pub trait Show {
    /// Returns the name in a form that is safe to print and unambiguous.
    fn shown(&self) -> ShownName<'_>;
}

impl Show for Path {
    fn shown(&self) -> ShownName<'_> {
        ShownName(self.as_os_str().as_bytes())
    }
}

impl Show for OsStr {
    fn shown(&self) -> ShownName<'_> {
        ShownName(self.as_bytes())
    }
}

impl Show for str {
    fn shown(&self) -> ShownName<'_> {
        ShownName(self.as_bytes())
    }
}

impl Show for [u8] {
    fn shown(&self) -> ShownName<'_> {
        ShownName(self)
    }
}

/// A name in printable form. Width and precision of a format are ignored.
#[derive(Clone, Copy, Debug)]
pub struct ShownName<'a>(&'a [u8]);

impl fmt::Display for ShownName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_escaped = |character| is_hidden(character) || matches!(character, '\\' | '`');
        self.0.utf8_chunks().try_for_each(|chunk| write_chunk(f, &chunk, is_escaped))
    }
}

/// Text of messages in printable form, the last defence before a stream: names in it are already escaped.
#[derive(Clone, Copy, Debug)]
pub struct ShownText<'a> {
    text: &'a str,
    keeps_lines: bool,
}

impl<'a> ShownText<'a> {
    /// Shows text on one line: its newlines are escaped.
    #[must_use]
    pub fn line(text: &'a str) -> ShownText<'a> {
        ShownText { text, keeps_lines: false }
    }

    /// Shows text on several lines: its newlines stay.
    #[must_use]
    pub fn lines(text: &'a str) -> ShownText<'a> {
        ShownText { text, keeps_lines: true }
    }
}

impl fmt::Display for ShownText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(f, self.text, |character| is_hidden(character) && !(self.keeps_lines && character == '\n'))
    }
}

/// The output of another program, on one line: its lines are trimmed and joined by `; `, and empty ones are left out.
/// At most 4 KiB are shown.
#[derive(Clone, Copy, Debug)]
pub struct ShownOutput<'a>(pub &'a [u8]);

impl fmt::Display for ShownOutput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounded = &self.0[..self.0.len().min(OUTPUT_BYTES_MAX)];
        let lines = bounded.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        for (at, line) in lines.enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            line.utf8_chunks().try_for_each(|chunk| write_chunk(f, &chunk, is_hidden))?;
        }
        match self.0.len() - bounded.len() {
            0 => Ok(()),
            more => write!(f, " (and {more} bytes more)"),
        }
    }
}

fn write_chunk(f: &mut impl Write, chunk: &Utf8Chunk<'_>, is_escaped: impl Fn(char) -> bool) -> fmt::Result {
    write_text(f, chunk.valid(), is_escaped)?;
    chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

/// Writes the stretches between escaped characters as a whole.
fn write_text(f: &mut impl Write, text: &str, is_escaped: impl Fn(char) -> bool) -> fmt::Result {
    // Nearly all text is plain: the processor compares many bytes at once.
    if text.bytes().fold(true, |is_plain, byte| is_plain & matches!(byte, 0x20..0x7f) & !matches!(byte, b'\\' | b'`')) {
        return f.write_str(text);
    }
    let mut rest = text;
    while let Some(at) = rest.find(&is_escaped) {
        let (plain, tail) = rest.split_at(at);
        f.write_str(plain)?;
        let mut characters = tail.chars();
        if let Some(character) = characters.next() {
            write_escaped(f, character)?;
        }
        rest = characters.as_str();
    }
    f.write_str(rest)
}

fn write_escaped(f: &mut impl Write, character: char) -> fmt::Result {
    match character {
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        '\\' => f.write_str("\\\\"),
        '`' => f.write_str("\\`"),
        character if character.is_ascii() => write!(f, "\\x{:02x}", u32::from(character)),
        character => write!(f, "\\u{{{:x}}}", u32::from(character)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_char() -> impl Iterator<Item = char> {
        (0..=0x0010_ffff).filter_map(char::from_u32)
    }

    /// Decodes the output of [`Show::shown`].
    fn read_back(shown: &str) -> Vec<u8> {
        let (mut bytes, mut rest) = (Vec::new(), shown);
        while let Some(at) = rest.find('\\') {
            bytes.extend_from_slice(&rest.as_bytes()[..at]);
            let escape = &rest[at + 1..];
            let length = match escape.as_bytes()[0] {
                b'n' => {
                    bytes.push(b'\n');
                    1
                }
                b'r' => {
                    bytes.push(b'\r');
                    1
                }
                b't' => {
                    bytes.push(b'\t');
                    1
                }
                b'x' => {
                    bytes.push(u8::from_str_radix(&escape[1..3], 16).unwrap());
                    3
                }
                b'u' => {
                    let end = escape.find('}').unwrap();
                    let code = u32::from_str_radix(&escape[2..end], 16).unwrap();
                    bytes.extend_from_slice(char::from_u32(code).unwrap().encode_utf8(&mut [0; 4]).as_bytes());
                    end + 1
                }
                other => {
                    bytes.push(other);
                    1
                }
            };
            rest = &escape[length..];
        }
        bytes.extend_from_slice(rest.as_bytes());
        bytes
    }

    fn shown(name: &[u8]) -> String {
        name.shown().to_string()
    }

    #[test]
    fn ordinary_names_of_any_script_stay_as_they_are() {
        for name in
            ["vm/a b.raw", "äöü-œ", "e\u{301}", "Ελλάδα", "образ", "דיסק", "قرص", "磁盘イメージ", "디스크", "💾", ""]
        {
            assert_eq!(name.shown().to_string(), name);
            assert_eq!(ShownText::line(name).to_string(), name);
        }
    }

    #[test]
    fn each_kind_of_character_has_its_escape() {
        assert_eq!(shown(b"\x1b[31mx\x07\x7f\0"), r"\x1b[31mx\x07\x7f\x00");
        assert_eq!(shown(b"a\nb\tc\rd"), r"a\nb\tc\rd");
        assert_eq!(shown(b"a\\x1b`"), r"a\\x1b\`");
        assert_eq!(shown("\u{9b}31m\u{85}".as_bytes()), r"\u{9b}31m\u{85}");
        assert_eq!(shown("a\u{202e}war.b\u{2066}\u{200f}\u{61c}".as_bytes()), r"a\u{202e}war.b\u{2066}\u{200f}\u{61c}");
        assert_eq!(shown("\u{2028}\u{2029}\u{200b}\u{feff}".as_bytes()), r"\u{2028}\u{2029}\u{200b}\u{feff}");
        assert_eq!(shown(b"\xff\x9b\xc3"), r"\xff\x9b\xc3");
        assert_eq!(shown(b"\xe2\x80x\xed\xa0\x80"), r"\xe2\x80x\xed\xa0\x80", "a sequence cut off, and a surrogate");
    }

    #[test]
    fn paths_names_text_and_bytes_are_shown_alike() {
        let name = "a\u{1b}/b";
        let all = [Path::new(name).shown(), OsStr::new(name).shown(), name.shown(), name.as_bytes().shown()];
        assert!(all.iter().all(|shown| shown.to_string() == r"a\x1b/b"));
    }

    #[test]
    fn no_control_separator_or_bidirectional_character_is_printed() {
        let must = |character: char| {
            character.is_control()
                || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
                || matches!(character, '\u{61c}' | '\u{ad}' | '\u{feff}' | '\u{180e}' | '\u{fff9}'..='\u{fffb}')
                || matches!(character, '\u{e0000}'..='\u{e0fff}')
        };
        for character in every_char() {
            let text = character.to_string();
            let is_escaped = text.shown().to_string() != text;
            assert!(is_escaped || !must(character), "{character:?}");
            assert!(!is_escaped || is_hidden(character) || matches!(character, '\\' | '`'), "{character:?}");
            assert!(!(is_escaped && character.is_alphanumeric()) || is_filler(character), "{character:?}");
        }
    }

    /// Letters without a glyph.
    fn is_filler(character: char) -> bool {
        matches!(character, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}')
    }

    #[test]
    fn what_is_shown_leads_back_to_the_name() {
        for character in every_char() {
            let name = format!("a{character}\\{character}");
            let shown = name.shown().to_string();
            assert!(!shown.chars().any(is_hidden), "{shown:?}");
            assert_eq!(read_back(&shown), name.as_bytes());
        }
        for first in 0..=255 {
            for second in 0..=255 {
                let name = [first, b'x', second, first, second];
                assert_eq!(read_back(&shown(&name)), name, "{name:?}");
            }
        }
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(HIDDEN.is_sorted_by(|one, next| one.0 <= one.1 && one.1 < next.0));
    }

    #[test]
    fn text_is_shown_once_however_often_it_passes() {
        let name = "a\u{1b}`\\\n\u{202e}".shown().to_string();
        let message = format!("cannot open `{name}`\nhint");
        assert_eq!(ShownText::lines(&message).to_string(), message);
        let foreign = "a\u{1b}[2J\nb\\c `d`";
        let line = ShownText::line(foreign).to_string();
        assert_eq!(line, r"a\x1b[2J\nb\c `d`");
        assert_eq!(ShownText::line(&line).to_string(), line);
        assert_eq!(ShownText::lines(foreign).to_string(), "a\\x1b[2J\nb\\c `d`");
    }

    #[test]
    fn output_of_a_program_is_one_bounded_line() {
        let output = b"qemu-img: '\x1b]0;x\x07\xff'\r\n\n  more\t\n";
        assert_eq!(ShownOutput(output).to_string(), r"qemu-img: '\x1b]0;x\x07\xff'; more");
        assert_eq!(ShownOutput(b"\n \n").to_string(), "");
        let long = ShownOutput(&[b'a'; OUTPUT_BYTES_MAX + 5]).to_string();
        assert!(long.ends_with("aa (and 5 bytes more)") && long.len() < OUTPUT_BYTES_MAX + 40);
        let escapes = ShownOutput(&[0x1b; OUTPUT_BYTES_MAX * 2]).to_string();
        assert!(escapes.len() < OUTPUT_BYTES_MAX * 4 + 40, "{}", escapes.len());
    }
}
