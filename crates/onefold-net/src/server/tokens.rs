//! Tokens, and the names of the images that their holders may read.
//!
//! The file has a line for each right: a pattern of names, the token, and a note, with blanks between them, as the file
//! of trusted keys does. Lines that begin with `#` are comments. A token may have several lines.
//!
//! Only digests of tokens stay in memory. Their key is made when the server starts, so equal tokens have other digests
//! in each run, and nobody can choose a token by its digest. A presented token is compared with all of them, each in
//! constant time.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_block::Random;
use onefold_block::random::SystemRandom;
use onefold_image::ImageName;
use onefold_image::trust::NamePattern;
use parking_lot::Mutex;

use crate::NetError;
use crate::private::read_private;
use crate::token::{FORM, is_token};

/// Maximum number of rights in a file.
const RIGHTS_MAX: usize = 1000;

/// Images that a client may read.
#[derive(Clone, Debug)]
pub(super) enum Rights {
    /// Every image: the server asks for no token.
    All,
    /// The images whose name matches a pattern.
    Names(Arc<[NamePattern]>),
}

impl Rights {
    /// Returns whether the client may read every image, whatever its name.
    pub(super) fn include_all(&self) -> bool {
        match self {
            Rights::All => true,
            Rights::Names(patterns) => patterns.iter().any(NamePattern::matches_all),
        }
    }

    /// Returns whether the client may read the images of a name.
    pub(super) fn include(&self, name: &ImageName) -> bool {
        match self {
            Rights::All => true,
            Rights::Names(patterns) => patterns.iter().any(|pattern| pattern.matches(name)),
        }
    }
}

/// Why a client gets no rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRights {
    /// It has no token, or one that the server does not know.
    Unknown,
    /// The file of tokens cannot be used now.
    Unusable,
}

/// The tokens of a file, as it was when it was read last.
pub(super) struct TokenFile {
    path: PathBuf,
    key: [u8; 32],
    state: Mutex<FileState>,
}

struct FileState {
    /// Differs between versions of the file.
    version: Option<FileVersion>,
    /// `None` if the file cannot be used.
    tokens: Option<Arc<[Token]>>,
    /// Whether the system could not read the file, which may pass without a change of the file.
    is_unread: bool,
}

/// Device, number, length and time of the last change.
type FileVersion = (u64, u64, u64, (i64, i64));

struct Token {
    digest: blake3::Hash,
    patterns: Arc<[NamePattern]>,
}

impl fmt::Debug for TokenFile {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TokenFile {
    /// Reads the tokens of a file.
    ///
    /// # Errors
    /// When it cannot be read, is open to other users, has a line that is no right, or gives no right at all.
    pub(super) fn open(path: &Path) -> Result<TokenFile, NetError> {
        let mut key = [0; 32];
        SystemRandom.fill(&mut key).map_err(|error| NetError::Client(error.to_string()))?;
        // The version comes first: of a change in between, the next look knows.
        let version = version_of(path);
        let tokens = Some(read(path, &key)?);
        Ok(TokenFile { path: path.to_owned(), key, state: Mutex::new(FileState { version, tokens, is_unread: false }) })
    }

    /// Reads the file again if it has changed. While it cannot be used, no token is valid.
    ///
    /// # Errors
    /// As [`TokenFile::open`], once for each change of the file. A file that could not be read is tried each time.
    pub(super) fn refresh(&self) -> Result<(), NetError> {
        let version = version_of(&self.path);
        let is_again = {
            let state = self.state.lock();
            if version == state.version && !state.is_unread {
                return Ok(());
            }
            version == state.version
        };
        let (tokens, error) = match read(&self.path, &self.key) {
            Ok(tokens) => (Some(tokens), None),
            Err(error) => (None, Some(error)),
        };
        let is_unread = version.is_some() && matches!(error, Some(NetError::File { .. }));
        *self.state.lock() = FileState { version, tokens, is_unread };
        error.filter(|_| !(is_again && is_unread)).map_or(Ok(()), Err)
    }

    /// Returns the rights of the client that presents a token.
    pub(super) fn rights(&self, token: Option<&str>) -> Result<Rights, NoRights> {
        let tokens = self.state.lock().tokens.clone().ok_or(NoRights::Unusable)?;
        let digest = blake3::keyed_hash(&self.key, token.ok_or(NoRights::Unknown)?.as_bytes());
        let mut found = None;
        for known in &*tokens {
            // Digests are compared in constant time, and the search does not end at the right one.
            if known.digest == digest {
                found = Some(&known.patterns);
            }
        }
        found.map(|patterns| Rights::Names(Arc::clone(patterns))).ok_or(NoRights::Unknown)
    }
}

/// Returns the version of a file; `None` if there is none.
fn version_of(path: &Path) -> Option<FileVersion> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), (found.ctime(), found.ctime_nsec())))
}

fn read(path: &Path, key: &[u8; 32]) -> Result<Arc<[Token]>, NetError> {
    let content = |what: String| NetError::Content { path: path.to_owned(), what };
    let text = String::from_utf8(read_private(path)?).map_err(|_| content("is not a text".to_owned()))?;
    let tokens = parse(&text, key).map_err(|(line, what)| content(format!("has a wrong line {line}: {what}")))?;
    // A file that is being written begins empty.
    if tokens.is_empty() { Err(content("gives no right".to_owned())) } else { Ok(tokens) }
}

/// Parses the text of a file. An error has the number of the line and its fault.
fn parse(text: &str, key: &[u8; 32]) -> Result<Arc<[Token]>, (usize, &'static str)> {
    let mut rights: Vec<(blake3::Hash, NamePattern)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let pattern = words.next().and_then(NamePattern::new).ok_or((index + 1, "no name can match the pattern"))?;
        let token = words.next().ok_or((index + 1, "there is no token"))?;
        if !is_token(token) {
            return Err((index + 1, FORM));
        }
        if rights.len() == RIGHTS_MAX {
            return Err((index + 1, "there are more than 1000 rights"));
        }
        rights.push((blake3::keyed_hash(key, token.as_bytes()), pattern));
    }
    rights.sort_by(|(one, _), (other, _)| one.as_bytes().cmp(other.as_bytes()));
    let tokens = rights.chunk_by(|(one, _), (other, _)| one == other);
    Ok(tokens
        .map(|lines| Token { digest: lines[0].0, patterns: lines.iter().map(|line| line.1.clone()).collect() })
        .collect())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn token(letter: char) -> String {
        letter.to_string().repeat(32)
    }

    fn may(file: &TokenFile, presented: &str, name: &str) -> Result<bool, NoRights> {
        Ok(file.rights(Some(presented))?.include(&ImageName::new(name).unwrap()))
    }

    fn write(path: &Path, text: &str) {
        // As editors do, another file takes the place of the old one.
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, path).unwrap();
    }

    #[test]
    fn a_token_gives_the_rights_of_all_its_lines_and_no_other_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let (a, b) = (token('a'), token('b'));
        write(&path, &format!("# rights\nlab/* {a} the lab\n\n  web {a}\n* {b}\n"));
        let file = TokenFile::open(&path).unwrap();
        for (presented, name, expected) in [
            (&a, "lab/x", Ok(true)),
            (&a, "web", Ok(true)),
            (&a, "web2", Ok(false)),
            (&a, "db", Ok(false)),
            (&b, "db/x", Ok(true)),
            (&token('c'), "web", Err(NoRights::Unknown)),
            (&a[1..].to_owned(), "web", Err(NoRights::Unknown)),
            (&format!("{a}a"), "web", Err(NoRights::Unknown)),
            (&String::new(), "web", Err(NoRights::Unknown)),
        ] {
            assert_eq!(may(&file, presented, name), expected, "{presented} {name}");
        }
        assert_eq!(file.rights(None).err(), Some(NoRights::Unknown));
        let shown = format!("{file:?}");
        assert!(!shown.contains(&a), "{shown}");
    }

    #[test]
    fn a_changed_file_counts_and_one_that_cannot_be_used_gives_no_rights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let (a, b) = (token('a'), token('b'));
        write(&path, &format!("* {a}\n"));
        let file = TokenFile::open(&path).unwrap();
        write(&path, &format!("* {b}\n"));
        assert_eq!(may(&file, &a, "web"), Ok(true), "it was not looked at again");
        file.refresh().unwrap();
        assert_eq!((may(&file, &a, "web"), may(&file, &b, "web")), (Err(NoRights::Unknown), Ok(true)));
        write(&path, "web short\n");
        assert!(matches!(file.refresh(), Err(NetError::Content { .. })));
        assert!(file.refresh().is_ok(), "an error is reported once");
        assert_eq!(may(&file, &b, "web"), Err(NoRights::Unusable));
        fs::remove_file(&path).unwrap();
        assert!(matches!(file.refresh(), Err(NetError::File { .. })));
        write(&path, &format!("* {b}\n"));
        file.refresh().unwrap();
        assert_eq!(may(&file, &b, "web"), Ok(true));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(file.refresh(), Err(NetError::Open { .. })));
        assert_eq!(may(&file, &b, "web"), Err(NoRights::Unusable));
    }

    #[test]
    fn lines_that_are_no_rights_are_refused_with_their_number() {
        let a = token('a');
        for (text, line) in [
            (format!("* {a}\nweb\n"), 2),
            (format!("web {}\n", &a[1..]), 1),
            (format!("../* {a}\n"), 1),
            (format!("web {a}\"\n"), 1),
            (format!("web {}\n", "a".repeat(1025)), 1),
            (format!("web {a}\n").repeat(RIGHTS_MAX + 1), RIGHTS_MAX + 1),
        ] {
            assert_eq!(parse(&text, &[0; 32]).err().map(|(line, _)| line), Some(line), "{text:.80}");
        }
        assert_eq!(parse("# nothing\n", &[0; 32]).unwrap().len(), 0);
    }
}
