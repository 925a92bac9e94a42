//! The names of one folder through which further members of an archive may lead: directories and symbolic links.
//!
//! A folder has each name once, but a hostile one may have a symbolic link and a directory of one name. Programs that
//! unpack one after the other would write what is in the directory to where the link leads.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use onefold_guest::filesystem::FileKind;

/// Names that are kept, at 8 bytes each.
const NAMES_MAX: usize = 4 << 20;

/// The directories and symbolic links of the folder whose entries come one after the other.
#[derive(Default)]
pub(super) struct Places {
    folder: Vec<u8>,
    /// Hashes of names, under a key of its own: a guest cannot choose names that have one hash.
    names: HashSet<u64>,
    hasher: RandomState,
}

impl Places {
    /// Notes an entry of a folder; returns why an archive may not have it.
    pub(super) fn refuse(&mut self, path: &[u8], kind: FileKind) -> Option<&'static str> {
        let (folder, name) =
            path.iter().rposition(|byte| *byte == b'/').map_or((&b""[..], path), |at| path.split_at(at));
        if self.folder != folder {
            self.folder = folder.to_vec();
            self.names.clear();
        }
        let hash = self.hasher.hash_one(name);
        if self.names.contains(&hash) {
            return Some("the folder has another file of this name, through which it would lead");
        }
        if matches!(kind, FileKind::Directory | FileKind::SymbolicLink) {
            if self.names.len() >= NAMES_MAX {
                return Some("the folder has more directories and symbolic links than are kept apart");
            }
            self.names.insert(hash);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_through_another_file_of_its_name() {
        let mut places = Places::default();
        let mut is_refused = |path: &str, kind| places.refuse(path.as_bytes(), kind).is_some();
        for (path, kind, expected) in [
            ("/link", FileKind::SymbolicLink, false),
            ("/link", FileKind::Directory, true),
            ("/link", FileKind::Regular, true),
            ("/folder", FileKind::Directory, false),
            ("/folder", FileKind::SymbolicLink, true),
            ("/file", FileKind::Regular, false),
            ("/file", FileKind::SymbolicLink, false),
            ("/folder/link", FileKind::SymbolicLink, false),
            ("/folder/folder", FileKind::Directory, false),
            ("/link", FileKind::SymbolicLink, false),
        ] {
            assert_eq!(is_refused(path, kind), expected, "{path} {kind:?}");
        }
    }
}
