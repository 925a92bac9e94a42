//! The contents of a common volume, from its own record: the file `/onefold/contents` in the volume.
//!
//! | line | is |
//! |---|---|
//! | first | `onefold-common 1` |
//! | others | MD5 digest, length in bytes, `added` (by a user) or `found` (on two disks), path in the volume |
//!
//! Words are separated by one space. A content with several names has a line for each; the first is that of its file,
//! the others are hard links to it. Empty lines fill the last block.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::names::{folders_of, hexadecimal, is_plain};

/// Path of the record in a volume.
pub(super) const PATH: &str = "/onefold/contents";
/// The folder of the record.
pub(super) const RECORD_FOLDER: &str = "/onefold";
const HEAD: &str = "onefold-common 1";
/// Maximum length of a record, in bytes.
pub(super) const BYTES_MAX: usize = 128 << 20;
/// Maximum length of a line beside its path, in bytes.
const LINE_BYTES: usize = 64;
/// Maximum number of contents of a volume.
pub(super) const CONTENTS_MAX: usize = 1 << 20;
/// Maximum number of names of one content. ext4 takes 65,000.
pub(super) const NAMES_MAX: usize = 1000;

/// Identity of a content: its MD5 digest and its length in bytes.
pub(super) type ContentId = ([u8; 16], u64);

/// A content of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Whether a user added it. Collection keeps such contents.
    pub is_added: bool,
    /// Its paths in the volume, that of its file first.
    pub paths: Vec<String>,
}

/// All contents of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    by_id: BTreeMap<ContentId, Content>,
    paths: BTreeSet<String>,
    /// Upper bound of the length of the record.
    bytes: usize,
}

/// Why a record cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of its record of contents cannot be read")]
pub(super) struct RecordError {
    /// The number of the line, from 1 on.
    pub(super) line: u64,
}

impl Contents {
    /// Returns how many contents there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns all contents with their digests and lengths.
    pub fn iter(&self) -> impl Iterator<Item = (&ContentId, &Content)> {
        self.by_id.iter()
    }

    /// Returns a content.
    pub(super) fn get(&self, id: &ContentId) -> Option<&Content> {
        self.by_id.get(id)
    }

    /// Returns whether a path is free: not taken, not that of a folder, and not below that of a file.
    pub(super) fn is_free(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let is_folder = self.paths.range(below.clone()..).next().is_some_and(|first| first.starts_with(&below));
        !is_folder && !self.paths.contains(path) && !folders_of(path).any(|folder| self.paths.contains(folder))
    }

    /// Returns the folders of the contents, the highest ones first.
    pub(super) fn folders(&self) -> BTreeSet<&str> {
        self.paths.iter().flat_map(|path| folders_of(path)).collect()
    }

    /// Adds a name of a content. The content counts as added by a user if it did before, or if `is_added` is set.
    /// Returns false, and adds nothing, if the path is not free or there are too many contents or names.
    pub(super) fn add(&mut self, id: ContentId, is_added: bool, path: &str) -> bool {
        let is_full = self.by_id.len() >= CONTENTS_MAX && !self.by_id.contains_key(&id);
        let bytes = self.bytes.saturating_add(path.len()).saturating_add(LINE_BYTES);
        if is_full || bytes > BYTES_MAX - LINE_BYTES || !self.is_free(path) {
            return false;
        }
        let content = self.by_id.entry(id).or_insert_with(|| Content { is_added: false, paths: Vec::new() });
        if content.paths.len() >= NAMES_MAX {
            return false;
        }
        content.is_added |= is_added;
        content.paths.push(path.to_owned());
        self.paths.insert(path.to_owned());
        self.bytes = bytes;
        true
    }

    /// Notes that a user added a content.
    pub(super) fn keep(&mut self, id: &ContentId) {
        if let Some(content) = self.by_id.get_mut(id) {
            content.is_added = true;
        }
    }

    /// Removes a content, and returns it.
    pub(super) fn remove(&mut self, id: &ContentId) -> Option<Content> {
        let content = self.by_id.remove(id)?;
        content.paths.iter().for_each(|path| {
            self.paths.remove(path);
            self.bytes = self.bytes.saturating_sub(path.len() + LINE_BYTES);
        });
        Some(content)
    }

    /// Returns the record.
    pub(super) fn encode(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for ((digest, length), content) in &self.by_id {
            let word = if content.is_added { "added" } else { "found" };
            for path in &content.paths {
                // Writing to a string does not fail.
                let _ = writeln!(text, "{} {length} {word} {path}", hexadecimal(digest));
            }
        }
        text
    }

    /// Returns the contents in a record.
    ///
    /// # Errors
    /// The number of the first line that [`Contents::encode`] would not write.
    pub(super) fn decode(bytes: &[u8]) -> Result<Contents, RecordError> {
        let mut contents = Contents::default();
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            let text = std::str::from_utf8(line).map_err(|_| RecordError { line: number })?;
            let is_read = match number {
                1 => text == HEAD,
                _ => text.is_empty() || contents.add_line(text).is_some(),
            };
            if !is_read {
                return Err(RecordError { line: number });
            }
        }
        Ok(contents)
    }

    fn add_line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let (digest, length) = (words.next()?, words.next()?.parse().ok()?);
        let is_added = match words.next()? {
            "added" => true,
            "found" => false,
            _ => return None,
        };
        let path = words.next()?;
        let is_whole = words.next().is_none() && is_plain(path) && length > 0;
        (is_whole && self.add((digest_of(digest)?, length), is_added, path)).then_some(())
    }
}

fn digest_of(digits: &str) -> Option<[u8; 16]> {
    let is_plain = digits.len() == 32 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_plain.then(|| u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Contents {
        let mut contents = Contents::default();
        assert!(contents.add(([1; 16], 7), false, "/dpkg/a_1_b/usr/f"));
        assert!(contents.add(([1; 16], 7), true, "/dpkg/a_2_b/usr/f"));
        assert!(contents.add(([0xab; 16], u64::MAX), false, "/dpkg/c_1_b/g"));
        assert!(!contents.add(([3; 16], 1), false, "/dpkg/c_1_b/g"));
        contents
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let contents = some();
        let mut text = contents.encode();
        assert!(text.contains("01010101010101010101010101010101 7 added /dpkg/a_2_b/usr/f\n"), "{text}");
        text.push_str("\n\n\n");
        assert_eq!(Contents::decode(text.as_bytes()), Ok(contents));
        assert_eq!(Contents::decode(b"onefold-common 1\n"), Ok(Contents::default()));
    }

    #[test]
    fn other_records_are_refused_with_their_line() {
        let good = "01010101010101010101010101010101 7 found /dpkg/a/f";
        for (text, line) in [
            (String::new(), 1),
            ("onefold-common 2\n".to_owned(), 1),
            (format!("onefold-common 1\n{good}\n{good}\n"), 3),
            (format!("onefold-common 1\n{good} x\n"), 2),
            (format!("onefold-common 1\n{}\n", good.replace("/dpkg", "/etc")), 2),
            (format!("onefold-common 1\n{}\n", good.replace("0101 7", "01 7")), 2),
            (format!("onefold-common 1\n{}\n", good.replace(" 7 ", " 0 ")), 2),
            (format!("onefold-common 1\n{}\n", good.replace(" 7 ", " -7 ")), 2),
            (format!("onefold-common 1\n{}\n", good.replace("found", "lost")), 2),
        ] {
            assert_eq!(Contents::decode(text.as_bytes()), Err(RecordError { line }), "{text}");
        }
        assert_eq!(Contents::decode(b"onefold-common 1\n\xff"), Err(RecordError { line: 2 }));
    }

    #[test]
    fn a_removed_content_frees_its_paths_and_folders() {
        let mut contents = some();
        assert_eq!(contents.remove(&([1; 16], 7)).unwrap().paths.len(), 2);
        assert_eq!(contents.folders().into_iter().collect::<Vec<_>>(), ["/dpkg", "/dpkg/c_1_b"]);
        assert!(contents.is_free("/dpkg/a_1_b/usr/f") && !contents.is_free("/dpkg/c_1_b/g"));
        assert!(contents.remove(&([0xab; 16], u64::MAX)).is_some());
        assert_eq!(contents, Contents::default());
    }

    /// Databases of two guests may say that one path is a file and a folder. `debugfs` would fail, and with it each
    /// pass.
    #[test]
    fn no_path_is_both_a_file_and_a_folder() {
        let mut contents = some();
        for path in ["/dpkg/a_1_b/usr", "/dpkg/a_1_b", "/dpkg/a_1_b/usr/f/g", "/dpkg/c_1_b/g/h/i"] {
            assert!(!contents.add(([9; 16], 1), true, path), "{path}");
        }
        assert_eq!(contents, some());
        assert!(contents.add(([9; 16], 1), true, "/dpkg/a_1_b/us"));
    }

    #[test]
    fn a_record_is_never_longer_than_what_is_read() {
        let mut contents = Contents { bytes: BYTES_MAX - 2 * LINE_BYTES - 8, ..Contents::default() };
        assert!(!contents.add(([9; 16], 1), true, "/dpkg/a/b"));
        assert!(contents.add(([9; 16], u64::MAX), true, "/dpkg/a/"));
        let line = contents.encode().len() - HEAD.len() - 1;
        assert!(line <= LINE_BYTES + 8 && HEAD.len() < LINE_BYTES, "{line}");
    }
}
