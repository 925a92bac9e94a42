//! Reasons why a path is missing, for hints: names that the user may have meant, and a link whose target does not
//! exist.
//!
//! A hint takes at most the steps of one path, and is not made from the names of a giant directory.

use std::ops::ControlFlow;

use super::find::STEPS_MAX;
use super::{Links, ResolvedFile, Tree};
use crate::error::GuestError;
use crate::filesystem::{FileKind, SEARCHED_BYTES_MAX};

/// Maximum number of names that are returned.
const NAMES_MAX: usize = 3;
/// Maximum number of entries of a directory that are compared.
const ENTRIES_MAX: usize = 20_000;
/// Maximum length of a name that is compared, as in Linux.
const NAME_BYTES_MAX: usize = 255;

impl Tree<'_> {
    /// Returns existing paths that are similar to a missing one, the most similar first. There are at most three. They
    /// differ in the first name of the path that does not exist.
    #[must_use]
    pub fn similar(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let Some((directory, missing)) = self.first_missing(path) else { return Vec::new() };
        // Blocks of a directory may hold no entry that the limit would count.
        if directory.stat.size_bytes > SEARCHED_BYTES_MAX {
            return Vec::new();
        }
        let allowed = (missing.len() / 3).clamp(1, 3);
        let mut near: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut looked_at = 0;
        // After an error there are fewer names to choose from.
        let _ = self.each_entry(directory.file, &mut |entry, _| {
            looked_at += 1;
            // An entry with the same name is a link without a target.
            if entry.name != missing
                && let Some(distance) = distance(&missing, &entry.name, allowed)
            {
                near.push((distance, entry.name));
                near.sort();
                near.truncate(NAMES_MAX);
            }
            if looked_at < ENTRIES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        near.into_iter().map(|(_, name)| below(&directory.path, &name)).collect()
    }

    /// Returns the symbolic link at which a missing path ends, and its stored target; `None` if the path is missing for
    /// another reason.
    #[must_use]
    pub fn broken_link(&self, path: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (directory, missing) = self.first_missing(path)?;
        let link = self.find(&below(&directory.path, &missing), Links::Keep).ok()?;
        let target = self.system(link.file.system).read_link(link.file.file).ok()?;
        (link.stat.kind == FileKind::SymbolicLink).then_some((link.path, target))
    }

    /// Returns the last existing directory of a path, and the name that is missing in it.
    fn first_missing(&self, path: &[u8]) -> Option<(ResolvedFile, Vec<u8>)> {
        let mut steps_left = STEPS_MAX;
        let mut found = self.find_within(b"/", Links::Follow, &mut steps_left).ok()?;
        let mut reached = Vec::new();
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            reached.push(b'/');
            reached.extend_from_slice(name);
            match self.find_within(&reached, Links::Follow, &mut steps_left) {
                Ok(next) if next.stat.kind == FileKind::Directory => found = next,
                Ok(_) | Err(GuestError::Unsupported(_)) => return None,
                Err(_) if name.len() <= NAME_BYTES_MAX => return Some((found, name.to_vec())),
                Err(_) => return None,
            }
        }
        None
    }
}

/// Returns the path of a name in a directory.
fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// Returns how many bytes must be changed, added, removed or swapped with their neighbour to turn one name into the
/// other; `None` for more than `allowed`. Upper and lower case of a letter count as equal, so names with a different
/// case come first.
fn distance(one: &[u8], two: &[u8], allowed: usize) -> Option<usize> {
    if one.len().abs_diff(two.len()) > allowed || two.len() > NAME_BYTES_MAX {
        return None;
    }
    let is_equal = |left: Option<&u8>, right: Option<&u8>| match (left, right) {
        (Some(left), Some(right)) => left.eq_ignore_ascii_case(right),
        _ => false,
    };
    // The distances of the beginning of one name from each beginning of the other, and those of the two before it.
    let (mut older, mut row) = (Vec::new(), (0..=two.len()).collect::<Vec<usize>>());
    for at in 0..one.len() {
        let mut next = vec![at + 1];
        for to in 0..two.len() {
            let cost =
                |row: &[usize], column: usize, more: usize| row.get(column).map_or(usize::MAX, |cell| cell + more);
            let unequal = usize::from(!is_equal(one.get(at), two.get(to)));
            let mut best = cost(&row, to, unequal).min(cost(&row, to + 1, 1)).min(cost(&next, to, 1));
            if let (Some(left), Some(right)) = (at.checked_sub(1), to.checked_sub(1))
                && is_equal(one.get(left), two.get(to))
                && is_equal(one.get(at), two.get(right))
            {
                best = best.min(cost(&older, right, 1));
            }
            next.push(best);
        }
        if next.iter().chain(&row).all(|cell| *cell > allowed) {
            return None;
        }
        older = std::mem::replace(&mut row, next);
    }
    row.last().copied().filter(|distance| *distance <= allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::FileSystem;
    use crate::memory::MemoryFileSystem;

    #[test]
    fn the_distance_of_names_counts_changes() {
        for (one, two, expected) in [
            ("passwd", "passwd", Some(0)),
            ("passwd", "PASSWD", Some(0)),
            ("paswd", "passwd", Some(1)),
            ("passwdd", "passwd", Some(1)),
            ("kitten", "sitting", Some(3)),
            ("ect", "etc", Some(1)),
            ("Ect", "etc", Some(1)),
            ("abcd", "badc", Some(2)),
            ("abc", "xyz", Some(3)),
            ("abc", "wxyz", None),
            ("", "ab", Some(2)),
        ] {
            assert_eq!(distance(one.as_bytes(), two.as_bytes(), 3), expected, "{one} {two}");
        }
    }

    #[test]
    fn a_missing_path_has_similar_ones() {
        let mut system = MemoryFileSystem::default();
        for path in ["/etc/passwd", "/etc/passwd-", "/etc/shadow", "/var/log/dpkg.log", "/var/lib/x"] {
            system.write(path, "");
        }
        system.symlink("/logs", "var/log");
        let tree = Tree::new(&system);
        let similar = |path: &str| -> Vec<String> {
            tree.similar(path.as_bytes()).into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
        };
        assert_eq!(similar("/etc/paswd"), ["/etc/passwd"]);
        assert_eq!(similar("/etc/passwdd"), ["/etc/passwd", "/etc/passwd-"]);
        assert_eq!(similar("/ETC/passwd"), ["/etc"]);
        assert_eq!(similar("/ect/passwd"), ["/etc"]);
        assert_eq!(similar("/logs/dpgk.log"), ["/var/log/dpkg.log"]);
        assert_eq!(similar("/varr/log/dpkg.log"), ["/var"]);
        assert!(similar("/etc/unlike-all-of-them").is_empty());
        assert!(similar("/etc/passwd").is_empty(), "it exists");
        assert!(similar("/etc/passwd/x").is_empty(), "no directory to look into");
    }

    /// Regression: each name of the path was followed again with all steps of a path, and blocks without entries were
    /// not counted.
    #[test]
    fn a_hint_takes_no_more_work_than_a_path() {
        let mut system = MemoryFileSystem::default();
        system.write("/etc/passwd", "");
        let root = system.root();
        system.stat_mut(root).unwrap().size_bytes = 1 << 20;
        let again = |times: usize| [b"/etc/..".repeat(times).as_slice(), b"/etc/paswd"].concat();
        let tree = Tree::new(&system);
        assert_eq!(tree.similar(&again(100)), [b"/etc/passwd".to_vec()]);
        assert!(tree.find(&again(200), Links::Keep).is_err_and(|error| matches!(error, GuestError::NotFound)));
        assert!(tree.similar(&again(200)).is_empty(), "the path can be followed, and all its beginnings cannot");
        system.stat_mut(root).unwrap().size_bytes = SEARCHED_BYTES_MAX;
        assert_eq!(Tree::new(&system).similar(b"/et"), [b"/etc".to_vec()]);
        system.stat_mut(root).unwrap().size_bytes = SEARCHED_BYTES_MAX + 1;
        assert!(Tree::new(&system).similar(b"/et").is_empty());
    }

    /// Regression: the hint for a link without a target was the link itself.
    #[test]
    fn a_link_that_leads_nowhere_is_told_and_not_similar_to_itself() {
        let mut system = MemoryFileSystem::default();
        system.write("/etc/passwd", "");
        system.symlink("/etc/nowhere", "../gone/file");
        system.symlink("/etc/nowhere2", "nowhere");
        system.symlink("/etc/fine", "passwd");
        let tree = Tree::new(&system);
        let broken = |path: &str| tree.broken_link(path.as_bytes());
        let expected = Some((b"/etc/nowhere".to_vec(), b"../gone/file".to_vec()));
        assert_eq!(broken("/etc/nowhere"), expected);
        assert_eq!(broken("/etc/nowhere/below"), expected);
        assert_eq!(broken("/etc/nowhere2"), Some((b"/etc/nowhere2".to_vec(), b"nowhere".to_vec())));
        assert_eq!((broken("/etc/fine"), broken("/etc/missing"), broken("/etc/passwd")), (None, None, None));
        assert_eq!(tree.similar(b"/etc/nowhere"), [b"/etc/nowhere2".to_vec()]);
    }
}
