//! Trusted keys: which key signs the images of which names.
//!
//! The file has a line for each key: a pattern of names, the key in base 64, and a note, with blanks between them.
//! Lines that begin with `#` are comments. In a pattern, `*` stands for any characters, `/` included.

use std::fmt;

use crate::ImageName;
use crate::signature::{KeyId, PublicKey};

/// A pattern of names of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

/// A key, and the names of the images that it may sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedKey {
    pattern: NamePattern,
    key: PublicKey,
    note: String,
}

/// All keys that are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedKeys(Vec<TrustedKey>);

/// Maximum number of keys in a file.
const KEYS_MAX: usize = 10_000;
/// Maximum length of a pattern in bytes.
const PATTERN_BYTES_MAX: usize = 200;

/// Why a text is no list of trusted keys.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {what}")]
pub struct TrustError {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// Its fault.
    pub what: &'static str,
}

impl NamePattern {
    /// Returns a pattern; `None` if no name can match it.
    #[must_use]
    pub fn new(text: &str) -> Option<NamePattern> {
        // A name with each `*` replaced by a letter shows whether the other characters can be a name.
        let is_pattern = text.len() <= PATTERN_BYTES_MAX && ImageName::new(&text.replace('*', "a")).is_ok();
        is_pattern.then(|| NamePattern(text.to_owned()))
    }

    /// Returns whether every name matches.
    #[must_use]
    pub fn matches_all(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'*')
    }

    /// Returns whether a name matches. `*` stands for any characters, `/` included.
    #[must_use]
    pub fn matches(&self, name: &ImageName) -> bool {
        matches(self.0.as_bytes(), name.as_str().as_bytes())
    }
}

impl TrustedKey {
    /// Returns a key that is trusted for names; `None` if no name can match the pattern.
    #[must_use]
    pub fn new(pattern: &str, key: PublicKey, note: &str) -> Option<TrustedKey> {
        let note = note.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(TrustedKey { pattern: NamePattern::new(pattern)?, key, note })
    }

    /// Returns the pattern of the names.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern.0
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// Returns what its owner wrote about the key.
    #[must_use]
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Returns whether the key may sign images of a name.
    #[must_use]
    pub fn matches(&self, name: &ImageName) -> bool {
        self.pattern.matches(name)
    }
}

/// Returns whether a text matches a pattern. Its time is at most the product of both lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut in_pattern) = (0, 0);
    // After a `*`: its place, and how much of the text it stands for.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(in_pattern) {
            Some(b'*') => {
                star = Some((in_pattern, at));
                in_pattern += 1;
            }
            Some(byte) if *byte == text[at] => {
                at += 1;
                in_pattern += 1;
            }
            _ => match &mut star {
                None => return false,
                Some((place, covered)) => {
                    *covered += 1;
                    (in_pattern, at) = (*place + 1, *covered);
                }
            },
        }
    }
    pattern[in_pattern..].iter().all(|byte| *byte == b'*')
}

impl TrustedKeys {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// When a line is no key with a pattern.
    pub fn parse(text: &str) -> Result<TrustedKeys, TrustError> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = |what| TrustError { line: index + 1, what };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (pattern, rest) = line.split_once(char::is_whitespace).ok_or_else(|| wrong("there is no key"))?;
            let (key, note) = rest.trim_start().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
            let key = key.parse().map_err(|_| wrong("the second word is not a public key of minisign"))?;
            keys.push(TrustedKey::new(pattern, key, note).ok_or_else(|| wrong("no name can match the pattern"))?);
            if keys.len() > KEYS_MAX {
                return Err(wrong("too many keys"));
            }
        }
        Ok(TrustedKeys(keys))
    }

    /// Adds a key, unless it is already there with the same pattern. Returns whether it was added.
    pub fn add(&mut self, key: TrustedKey) -> bool {
        let is_new = !self.0.iter().any(|known| known.pattern == key.pattern && known.key == key.key);
        if is_new {
            self.0.push(key);
        }
        is_new
    }

    /// Adds the keys of another list.
    pub fn extend(&mut self, other: TrustedKeys) {
        for key in other.0 {
            self.add(key);
        }
    }

    /// Returns whether no key is trusted at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all keys.
    pub fn iter(&self) -> impl Iterator<Item = &TrustedKey> {
        self.0.iter()
    }

    /// Returns the keys that may sign images of a name.
    pub fn of_name(&self, name: &ImageName) -> impl Iterator<Item = &TrustedKey> {
        self.0.iter().filter(move |key| key.matches(name))
    }

    /// Returns a key by its number.
    #[must_use]
    pub fn find(&self, id: KeyId) -> Option<&TrustedKey> {
        self.0.iter().find(|key| key.key.id() == id)
    }
}

impl fmt::Display for TrustedKey {
    /// Writes the line of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pattern(), self.key.text())?;
        if !self.note.is_empty() {
            write!(f, " {}", self.note)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::SecretKey;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, expected) in [
            ("web", "web", true),
            ("web", "web2", false),
            ("web*", "web", true),
            ("*", "a/b/c", true),
            ("site/*/web", "site/1/web", true),
            ("site/*/web", "site/web", false),
            ("*b*b", "abab", true),
            ("*b*b", "aba", false),
            ("a*", "ba", false),
            ("***", "x", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        // Naive backtracking would take ages.
        assert!(!matches("*a".repeat(100).as_bytes(), "a".repeat(99).as_bytes()));
    }

    #[test]
    fn a_file_of_keys_is_read_as_it_was_written() {
        let [one, two] = [(), ()].map(|()| SecretKey::create(None).unwrap().public);
        let text = format!("# keys\n\n site/* {} the  build server\n* {}\n", one.text(), two.text());
        let mut keys = TrustedKeys::parse(&text).unwrap();
        assert_eq!(keys.iter().next().unwrap().to_string(), format!("site/* {} the build server", one.text()));
        let ids = |name: &str| {
            let name = ImageName::new(name).unwrap();
            keys.of_name(&name).map(|key| key.key().id()).collect::<Vec<_>>()
        };
        assert_eq!((ids("site/web"), ids("web")), (vec![one.id(), two.id()], vec![two.id()]));
        assert_eq!(keys.find(one.id()).unwrap().note(), "the build server");
        assert!(!keys.add(TrustedKey::new("*", two.clone(), "again").unwrap()));
        assert!(keys.add(TrustedKey::new("web", two, "").unwrap()) && !keys.is_empty());
    }

    #[test]
    fn a_wrong_line_is_named() {
        let key = SecretKey::create(None).unwrap().public;
        let line = |text: &str| TrustedKeys::parse(text).unwrap_err().line;
        assert_eq!(line("web"), 1);
        assert_eq!(line(&format!("# x\nweb {}x", key.text())), 2);
        assert_eq!(line(&format!("\n\nweb?b {}", key.text())), 3);
        assert_eq!(line(&format!("../x {}", key.text())), 1);
    }
}
