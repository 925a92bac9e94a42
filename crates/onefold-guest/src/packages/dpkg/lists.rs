//! The paths of one package, from three texts.
//!
//! | text | a line is |
//! |---|---|
//! | `NAME.list` | an absolute path: a file, a directory (the root is `/.`) or a link |
//! | `NAME.md5sums` | 32 hexadecimal digits, two blanks, and a path without the first slash |
//! | `Conffiles` in `status` | a path, its digest as it was packaged or `newconffile`, and flags |

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use super::super::{Digest, OwnedPath, Package};
use super::Folders;
use crate::tree::{PATH_BYTES_MAX, ProblemLog};

/// Maximum number of paths of one package. The largest one of Debian has about 30,000.
const PATHS_MAX: usize = 1_000_000;

/// Reason to skip a path. No program of the guest can name it.
const TOO_LONG: &str = "this path has more than 4096 bytes";

/// The texts of a package, with their paths for messages.
pub(super) struct Texts<'x> {
    pub(super) list: Option<(&'x [u8], &'x [u8])>,
    pub(super) digests: Option<(&'x [u8], &'x [u8])>,
    pub(super) conffiles: &'x [u8],
}

/// Facts about a path besides its place in the list.
struct PathFacts {
    digest: Option<Digest>,
    is_configuration: bool,
}

/// Calls `visit` with each path of a package until it breaks. If there is no list, the digests name the paths.
pub(super) fn each_path(
    texts: &Texts<'_>,
    package: &Package,
    folders: &Folders,
    problems: &ProblemLog,
    visit: &mut dyn FnMut(&OwnedPath<'_>) -> ControlFlow<()>,
) {
    let known = known(texts, problems);
    let mut emit = |packaged_path: &[u8]| {
        let facts = known.get(packaged_path.strip_prefix(b"/").unwrap_or(packaged_path));
        let path = folders.diversions.place(packaged_path, &package.name);
        visit(&OwnedPath {
            path,
            packaged_path,
            size_bytes: None,
            modified: None,
            mode: folders.overrides.mode(packaged_path),
            digest: facts.and_then(|facts| facts.digest),
            is_configuration: facts.is_some_and(|facts| facts.is_configuration),
            is_excluded: folders.excludes.has(packaged_path, problems),
        })
    };
    match texts.list {
        Some(list) => each_listed(list, problems, &mut emit),
        None => {
            let mut paths: Vec<&[u8]> = known.keys().copied().collect();
            paths.sort_unstable();
            _ = paths.into_iter().try_for_each(|path| emit(&[b"/", path].concat()));
        }
    }
}

/// Calls `visit` with each path of a list, once, until it breaks. The list is in the form of [`Texts`].
fn each_listed(list: (&[u8], &[u8]), problems: &ProblemLog, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {
    let mut seen = HashSet::new();
    each_line(list, problems, &mut |path| {
        let is_new = seen.insert(path);
        (is_new, if is_new { visit(path) } else { ControlFlow::Continue(()) })
    });
}

/// As [`each_listed`], but a path that the list repeats comes several times. Only repetitions in consecutive lines are
/// dropped.
pub(super) fn each_listed_again(
    list: (&[u8], &[u8]),
    problems: &ProblemLog,
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) {
    let mut last: &[u8] = b"";
    each_line(list, problems, &mut |path| {
        let is_new = std::mem::replace(&mut last, path) != path;
        (is_new, if is_new { visit(path) } else { ControlFlow::Continue(()) })
    });
}

/// Calls `visit` with the path of each line of a list until it breaks. `visit` returns whether the path counts as a new
/// one.
fn each_line<'x>(
    (list_path, list): (&[u8], &'x [u8]),
    problems: &ProblemLog,
    visit: &mut dyn FnMut(&'x [u8]) -> (bool, ControlFlow<()>),
) {
    let mut count = 0;
    for (number, line) in (1..).zip(list.split(|byte| *byte == b'\n')) {
        let Some(path) = listed_path(line) else {
            if !line.is_empty() {
                problems.note_line(list_path, number, "this is no absolute path");
            }
            continue;
        };
        if count >= PATHS_MAX {
            problems.note_line(list_path, number, "more paths than are read");
            return;
        }
        if path.len() > PATH_BYTES_MAX {
            problems.note_line(list_path, number, TOO_LONG);
            continue;
        }
        let (is_new, outcome) = visit(path);
        count += usize::from(is_new);
        if outcome.is_break() {
            return;
        }
    }
}

/// Returns the path of a line of a list.
fn listed_path(line: &[u8]) -> Option<&[u8]> {
    if !line.starts_with(b"/") || line.contains(&0) {
        return None;
    }
    let path = line.strip_suffix(b"/.").unwrap_or(line);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    Some(if path.is_empty() { b"/" } else { path })
}

/// Returns the information from digests and configuration files about paths, which have no leading slash.
fn known<'x>(texts: &Texts<'x>, problems: &ProblemLog) -> HashMap<&'x [u8], PathFacts> {
    let mut known = HashMap::new();
    if let Some((path, text)) = texts.digests {
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')).filter(|(_, line)| !line.is_empty()) {
            if known.len() >= PATHS_MAX {
                problems.note_line(path, number, "more paths than are read");
                break;
            }
            match digest_line(line) {
                Some((packaged, _)) if packaged.len() >= PATH_BYTES_MAX => {
                    problems.note_line(path, number, TOO_LONG);
                }
                Some((packaged, digest)) => {
                    known.insert(packaged, PathFacts { digest: Some(digest), is_configuration: false });
                }
                None => problems.note_line(path, number, "this is no digest with a path"),
            }
        }
    }
    for line in texts.conffiles.split(|byte| *byte == b'\n') {
        if let Some((path, digest)) = conffile_line(line)
            && path.len() < PATH_BYTES_MAX
            && known.len() < PATHS_MAX
        {
            known.insert(path, PathFacts { digest, is_configuration: true });
        }
    }
    known
}

/// Returns path and digest of a line of `md5sums`. The path has no leading slash.
fn digest_line(line: &[u8]) -> Option<(&[u8], Digest)> {
    let (digits, rest) = line.split_at_checked(32)?;
    let digest = Digest::parse_md5(digits)?;
    let path = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
    let path = path.strip_prefix(b"./").or_else(|| path.strip_prefix(b"/")).unwrap_or(path);
    (!path.is_empty() && !path.contains(&0)).then_some((path, digest))
}

/// Returns path and digest of a configuration file. The path has no leading slash. A file that was never installed, or
/// that is to be removed, has no digest.
fn conffile_line(line: &[u8]) -> Option<(&[u8], Option<Digest>)> {
    let line = line.trim_ascii();
    let kept = line.strip_suffix(b" remove-on-upgrade");
    let (line, is_to_go) = (kept.unwrap_or(line).trim_ascii_end(), kept.is_some());
    let line = line.strip_suffix(b" obsolete").unwrap_or(line).trim_ascii_end();
    // The path may contain blanks.
    let blank = line.iter().rposition(|byte| *byte == b' ')?;
    let (path, digest) = (line.get(..blank)?.trim_ascii_end(), line.get(blank + 1..)?);
    Some((path.strip_prefix(b"/")?, Digest::parse_md5(digest).filter(|_| !is_to_go)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "d41d8cd98f00b204e9800998ecf8427e";

    #[test]
    fn lines_are_paths_and_digests() {
        for (line, path) in [("/.", "/"), ("/usr/bin", "/usr/bin"), ("/usr/", "/usr"), ("/a b", "/a b")] {
            assert_eq!(listed_path(line.as_bytes()), Some(path.as_bytes()), "{line}");
        }
        for line in ["", "usr/bin", "/a\0b"] {
            assert_eq!(listed_path(line.as_bytes()), None, "{line}");
        }
        let digest = Digest::parse_md5(ONE.as_bytes()).unwrap();
        for (line, path) in [
            (format!("{ONE}  usr/bin/ls"), "usr/bin/ls"),
            (format!("{ONE}  ./a  b"), "a  b"),
            (format!("{ONE} */x"), "x"),
        ] {
            assert_eq!(digest_line(line.as_bytes()), Some((path.as_bytes(), digest)), "{line}");
        }
        for line in [format!("{ONE} usr"), format!("{ONE}  "), ONE[1..].to_owned(), format!("x{ONE}  usr")] {
            assert_eq!(digest_line(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn configuration_files_have_digests_and_flags() {
        let digest = Digest::parse_md5(ONE.as_bytes());
        for (line, expected) in [
            (format!("/etc/a {ONE}"), Some(("etc/a", digest))),
            (format!("/etc/a b {ONE} obsolete"), Some(("etc/a b", digest))),
            (format!("/etc/a {ONE} obsolete remove-on-upgrade"), Some(("etc/a", None))),
            (format!("/etc/a {ONE} remove-on-upgrade"), Some(("etc/a", None))),
            ("/etc/a newconffile".to_owned(), Some(("etc/a", None))),
            ("/etc/a".to_owned(), None),
            (format!("etc/a {ONE}"), None),
        ] {
            let expected = expected.map(|(path, digest)| (path.as_bytes(), digest));
            assert_eq!(conffile_line(line.as_bytes()), expected, "{line}");
        }
    }
}
