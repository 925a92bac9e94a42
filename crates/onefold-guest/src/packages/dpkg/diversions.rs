//! Diversions (dpkg-divert(1)): three lines for each.
//!
//! | line | is |
//! |---|---|
//! | 1 | the path that packages have |
//! | 2 | the path that the file has instead |
//! | 3 | the package that keeps the first path, or `:` for none |

use std::collections::HashMap;

use super::{FOLDER, SETTINGS_BYTES_MAX};
use crate::tree::{ProblemLog, Tree};

/// The files that were renamed in favour of a package or of the administrator.
#[derive(Debug, Default)]
pub(super) struct Diversions {
    of_path: HashMap<Vec<u8>, Diversion>,
    /// The lengths of these paths, one bit each; lengths that differ by 64 share a bit. A system diverts about a dozen
    /// paths, so most other paths need no further look-up.
    lengths: u64,
}

#[derive(Debug)]
struct Diversion {
    instead: Vec<u8>,
    keeper: Vec<u8>,
}

impl Diversions {
    /// Reads the diversions of a system.
    pub(super) fn read(tree: &Tree<'_>, problems: &ProblemLog) -> Diversions {
        let path = [FOLDER, b"/diversions"].concat();
        let text = problems.skip(&path, tree.read_path(&path, SETTINGS_BYTES_MAX)).unwrap_or_default();
        Diversions::parse(&text, &path, problems)
    }

    fn parse(text: &[u8], path: &[u8], problems: &ProblemLog) -> Diversions {
        let mut found = Diversions::default();
        let mut lines = (1..).zip(text.split(|byte| *byte == b'\n'));
        while let Some((number, from)) = lines.next() {
            let instead = lines.next().map(|(_, line)| line);
            let keeper = lines.next().map(|(_, line)| line);
            match (from, instead, keeper) {
                ([b'/', ..], Some(instead @ [b'/', ..]), Some(keeper)) if !keeper.is_empty() => {
                    let diversion = Diversion { instead: instead.to_vec(), keeper: keeper.to_vec() };
                    found.lengths |= length_bit(from);
                    found.of_path.insert(from.to_vec(), diversion);
                }
                (b"", None, _) => {}
                _ => {
                    problems.note_line(path, number, "these lines are no diversion");
                    break;
                }
            }
        }
        found
    }

    /// Returns the place of the file with this path in a package.
    pub(super) fn place<'p>(&'p self, path: &'p [u8], package: &str) -> &'p [u8] {
        if self.lengths & length_bit(path) == 0 {
            return path;
        }
        match self.of_path.get(path) {
            Some(diversion) if diversion.keeper != package.as_bytes() => &diversion.instead,
            _ => path,
        }
    }
}

/// Returns the bit of the length of a path.
fn length_bit(path: &[u8]) -> u64 {
    1 << (path.len() % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_diverted_for_all_packages_but_one() {
        let text = b"/bin/sh\n/bin/sh.distrib\ndash\n/etc/motd\n/etc/motd.old\n:\n";
        let problems = ProblemLog::default();
        let diversions = Diversions::parse(text, b"diversions", &problems);
        assert_eq!(problems.count(), 0);
        for (path, package, place) in [
            ("/bin/sh", "dash", "/bin/sh"),
            ("/bin/sh", "bash", "/bin/sh.distrib"),
            ("/etc/motd", "base-files", "/etc/motd.old"),
            ("/etc/issue", "base-files", "/etc/issue"),
        ] {
            assert_eq!(diversions.place(path.as_bytes(), package), place.as_bytes(), "{path} of {package}");
        }
    }

    #[test]
    fn lines_that_are_no_diversion_are_a_problem() {
        for text in ["/a\n/b\n", "/a\nb\nc\n", "a\n/b\nc\n", "/a\n/b\nc\n\n/d", "/a"] {
            let problems = ProblemLog::default();
            Diversions::parse(text.as_bytes(), b"diversions", &problems);
            assert_eq!(problems.count(), 1, "{text}");
        }
        let problems = ProblemLog::default();
        assert!(Diversions::parse(b"", b"diversions", &problems).of_path.is_empty());
        assert_eq!(problems.count(), 0);
    }
}
