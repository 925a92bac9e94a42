//! Names through which later members of an archive may lead elsewhere: directories, symbolic links, and files with
//! several names, to which a later member may be a further name.
//!
//! A folder has each name once, but a hostile folder may have a symbolic link and a directory of the same name. A
//! program that unpacks both in turn would write the content of the directory to the target of the link.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use onefold_guest::filesystem::{FileKind, FileStat};
use onefold_guest::tree::GuestFile;

/// Maximum number of names of one folder that are kept, at up to 27 bytes each while the table grows.
const NAMES_MAX: usize = 4 << 20;

const HAS_ANOTHER: &str = "the folder has another file of this name, through which it would lead";

/// The names that an archive may have once: those that were given, and those of the folder whose entries are being
/// added.
#[derive(Default)]
pub(super) struct ArchiveNames {
    named: HashMap<Vec<u8>, GuestFile>,
    folder: Vec<u8>,
    /// Hashes of names, under a random key: a guest cannot choose names with equal hashes.
    names: HashSet<u64>,
    hasher: RandomState,
}

impl ArchiveNames {
    /// Returns whether a path was given before, or lies below one that was. It may not come again, as the archive may
    /// have another file of this name by now.
    pub(super) fn has_named(&self, path: &[u8]) -> bool {
        let ends = (0..path.len()).filter(|at| path.get(*at) == Some(&b'/'));
        self.named.contains_key(&b"/"[..])
            || self.is_named(path)
            || ends.filter_map(|end| path.get(..end)).any(|above| self.named.contains_key(above))
    }

    /// Records the file of a given path.
    pub(super) fn note_named(&mut self, path: &[u8], file: GuestFile) {
        self.named.insert(path.to_vec(), file);
    }

    /// Returns whether this path was given itself: the archive has its file, with everything below.
    pub(super) fn is_named(&self, path: &[u8]) -> bool {
        self.named.contains_key(path)
    }

    /// Records an entry of a folder, or returns why an archive may not have it. `stat` must come from the file itself,
    /// because the kind in the directory entry may be wrong.
    pub(super) fn refuse(&mut self, path: &[u8], file: GuestFile, stat: &FileStat) -> Option<&'static str> {
        let (folder, name) =
            path.iter().rposition(|byte| *byte == b'/').map_or((&b""[..], path), |at| path.split_at(at));
        if self.folder != folder {
            self.folder = folder.to_vec();
            self.names.clear();
        }
        let hash = self.hasher.hash_one(name);
        if self.names.contains(&hash) || self.named.get(path).is_some_and(|named| *named != file) {
            return Some(HAS_ANOTHER);
        }
        if matches!(stat.kind, FileKind::Directory | FileKind::SymbolicLink) || stat.links > 1 {
            if self.names.len() >= NAMES_MAX {
                return Some(
                    "the folder has more directories, links, and files with several names than are kept apart",
                );
            }
            self.names.insert(hash);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_guest::filesystem::FileNumber;
    use onefold_guest::memory::MemoryFileSystem;
    use onefold_guest::tree::{Links, SystemIndex, Tree};

    fn file(number: u64) -> GuestFile {
        GuestFile { system: SystemIndex(0), file: FileNumber(number) }
    }

    fn stat(kind: FileKind, links: u32) -> FileStat {
        let mut system = MemoryFileSystem::default();
        system.write("/file", "");
        let stat = Tree::new(&system).find(b"/file", Links::Keep).unwrap().stat;
        FileStat { kind, links, ..stat }
    }

    #[test]
    fn nothing_leads_through_another_file_of_its_name() {
        let mut places = ArchiveNames::default();
        for (path, kind, links, expected) in [
            ("/link", FileKind::SymbolicLink, 1, false),
            ("/link", FileKind::Directory, 2, true),
            ("/link", FileKind::Regular, 1, true),
            ("/folder", FileKind::Directory, 2, false),
            ("/folder", FileKind::SymbolicLink, 1, true),
            ("/file", FileKind::Regular, 1, false),
            ("/file", FileKind::SymbolicLink, 1, false),
            // A further name of the file would become a further name of the link.
            ("/several", FileKind::Regular, 2, false),
            ("/several", FileKind::SymbolicLink, 1, true),
            ("/folder/link", FileKind::SymbolicLink, 1, false),
            ("/folder/folder", FileKind::Directory, 2, false),
            ("/link", FileKind::SymbolicLink, 1, false),
        ] {
            let is_refused = places.refuse(path.as_bytes(), file(1), &stat(kind, links)).is_some();
            assert_eq!(is_refused, expected, "{path} {kind:?}");
        }
    }

    #[test]
    fn a_path_that_was_given_is_that_of_one_file_and_comes_once() {
        let mut places = ArchiveNames::default();
        assert!(!places.has_named(b"/a/x"));
        places.note_named(b"/a/x", file(5));
        for (path, expected) in [("/a/x", true), ("/a/x/y/z", true), ("/a/xy", false), ("/a", false), ("/", false)] {
            assert_eq!(places.has_named(path.as_bytes()), expected, "{path}");
        }
        let mut is_refused = |number, kind| places.refuse(b"/a/x", file(number), &stat(kind, 1)).is_some();
        assert!(is_refused(6, FileKind::Directory) && is_refused(6, FileKind::Regular));
        assert!(!is_refused(5, FileKind::SymbolicLink));
        assert!(places.is_named(b"/a/x") && !places.is_named(b"/a/x/y"));
        places.note_named(b"/", file(2));
        assert!(places.has_named(b"/b"));
    }
}
