//! Files of no package: found by a walk through the tree, and claimed to be equal by their paths.

use std::hash::{DefaultHasher, Hash, Hasher};

use onefold_guest::filesystem::{FileKind, FileSystem};
use onefold_guest::tree::{Crossing, GuestFile, Links, Tree, Visitor, WalkEntry, WalkError, WalkStep};

use crate::state::StateError;

/// Size of each of the three probes of a file, in bytes.
const PROBE_BYTES: usize = onefold_block::BLOCK_BYTES;

/// Returns the regular files of a tree that are not among `packaged`, which is in order; at most `most`. Each comes
/// with a number for its path. They come in the order of the file systems. Unreadable parts are left out. `go_on` is
/// asked at each entry.
///
/// # Errors
/// Errors of `go_on`, which end the walk.
pub(super) fn unpackaged(
    tree: &Tree<'_>,
    packaged: &[GuestFile],
    most: usize,
    go_on: &dyn Fn() -> Result<(), StateError>,
) -> Result<Vec<(GuestFile, u64)>, StateError> {
    let mut finder = Finder { packaged, most, go_on, found: Vec::new(), stopped: None };
    if let Ok(root) = tree.find(b"/", Links::Follow) {
        // A tree whose root cannot be read has no files.
        let _ = tree.walk(&root, Crossing::Enter, &mut finder);
    }
    let Finder { mut found, stopped, .. } = finder;
    if let Some(stopped) = stopped {
        return Err(stopped);
    }
    found.sort_unstable();
    found.dedup_by_key(|(file, _)| *file);
    Ok(found)
}

struct Finder<'p> {
    packaged: &'p [GuestFile],
    most: usize,
    go_on: &'p dyn Fn() -> Result<(), StateError>,
    found: Vec<(GuestFile, u64)>,
    /// The error that ended the walk, if one did.
    stopped: Option<StateError>,
}

impl Visitor for Finder<'_> {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        self.stopped = (self.go_on)().err();
        if self.stopped.is_some() || self.found.len() >= self.most {
            return WalkStep::Stop;
        }
        if entry.kind == FileKind::Regular && self.packaged.binary_search(&entry.file).is_err() {
            let mut hasher = DefaultHasher::new();
            entry.path.hash(&mut hasher);
            self.found.push((entry.file, hasher.finish()));
        }
        WalkStep::Enter
    }

    fn failed(&mut self, _: &[u8], _: WalkError) {}
}

/// Returns a number for the first, the middle and the last block of a file: files with others are not equal. `None`
/// where one of them cannot be read.
pub(super) fn probes(system: &dyn FileSystem, file: GuestFile, size_bytes: u64) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut block = [0; PROBE_BYTES];
    let whole = PROBE_BYTES as u64;
    let last = size_bytes.saturating_sub(1) / whole * whole;
    let middle = last / 2 / whole * whole;
    let mut places = vec![0, middle, last];
    places.dedup();
    for offset in places {
        let count = system.read(file.file, offset, &mut block).ok()?;
        block.get(..count)?.hash(&mut hasher);
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use onefold_guest::memory::MemoryFileSystem;

    use std::cell::Cell;

    use super::*;

    fn all(tree: &Tree<'_>, packaged: &[GuestFile], most: usize) -> Vec<(GuestFile, u64)> {
        unpackaged(tree, packaged, most, &|| Ok(())).unwrap()
    }

    /// A guest may have millions of files, and the walk comes before the first of them is added.
    #[test]
    fn a_walk_ends_when_it_is_told_to() {
        let mut system = MemoryFileSystem::default();
        for at in 0..100 {
            system.write(&format!("/srv/{at}"), "content");
        }
        let asked = Cell::new(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            if asked.get() > 10 { Err(StateError::Interrupted) } else { Ok(()) }
        };
        let ended = unpackaged(&Tree::new(&system), &[], 1000, &go_on).unwrap_err();
        assert!(matches!(ended, StateError::Interrupted) && asked.get() == 11, "{ended} {}", asked.get());
    }

    #[test]
    fn files_of_no_package_are_found_once_with_their_paths() {
        let (mut one, mut two) = (MemoryFileSystem::default(), MemoryFileSystem::default());
        one.write("/usr/bin/tool", "packaged");
        for system in [&mut one, &mut two] {
            let file = system.write("/srv/data", "content");
            let root = system.root();
            system.link(root, b"second", file);
            system.symlink("/link", "srv/data");
        }
        two.write("/usr/bin/tool", "of no package here");
        let (one, two) = (Tree::new(&one), Tree::new(&two));
        let packaged = [one.find(b"/usr/bin/tool", Links::Keep).unwrap().file];
        let (of_one, of_two) = (all(&one, &packaged, 100), all(&two, &[], 100));
        assert_eq!((of_one.len(), of_two.len()), (1, 2));
        assert!(of_two.iter().any(|(_, path)| *path == of_one[0].1));
        assert_eq!(all(&two, &[], 1).len(), 1);
    }

    #[test]
    fn a_change_in_a_probe_is_seen() {
        let content: Vec<u8> = (0..100_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let number = |content: &[u8]| {
            let mut system = MemoryFileSystem::default();
            system.write("/file", content);
            let tree = Tree::new(&system);
            let file = tree.find(b"/file", Links::Keep).unwrap().file;
            probes(tree.system(file.system), file, content.len() as u64).unwrap()
        };
        let whole = number(&content);
        for (at, is_seen) in [(0, true), (4095, true), (4096, false), (50_000, true), (99_999, true), (90_000, false)] {
            let mut changed = content.clone();
            changed[at] ^= 1;
            assert_eq!(number(&changed) != whole, is_seen, "{at}");
        }
    }
}
