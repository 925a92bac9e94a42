//! Files of no package: found by a walk through the tree, and claimed to be equal by their paths.

use std::hash::{DefaultHasher, Hash, Hasher};

use onefold_guest::filesystem::{FileKind, FileSystem};
use onefold_guest::tree::{Crossing, GuestFile, Links, Tree, Visitor, WalkEntry, WalkError, WalkStep};

/// Bytes of each of the three probes of a file.
const PROBE_BYTES: usize = onefold_block::BLOCK_BYTES;

/// Returns the regular files of a tree that are not among `packaged`, which is in order, with a number for the path of
/// each;
/// at most `most`. They come in the order of the file systems. What cannot be read is left out.
pub(super) fn unpackaged(tree: &Tree<'_>, packaged: &[GuestFile], most: usize) -> Vec<(GuestFile, u64)> {
    let mut finder = Finder { packaged, most, found: Vec::new() };
    if let Ok(root) = tree.find(b"/", Links::Follow) {
        // A tree whose root cannot be read has no files.
        let _ = tree.walk(&root, Crossing::Enter, &mut finder);
    }
    let mut found = finder.found;
    found.sort_unstable();
    found.dedup_by_key(|(file, _)| *file);
    found
}

struct Finder<'p> {
    packaged: &'p [GuestFile],
    most: usize,
    found: Vec<(GuestFile, u64)>,
}

impl Visitor for Finder<'_> {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        if self.found.len() >= self.most {
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
/// where
/// one of them cannot be read.
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

    use super::*;

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
        let (of_one, of_two) = (unpackaged(&one, &packaged, 100), unpackaged(&two, &[], 100));
        assert_eq!((of_one.len(), of_two.len()), (1, 2));
        assert!(of_two.iter().any(|(_, path)| *path == of_one[0].1));
        assert_eq!(unpackaged(&two, &[], 1).len(), 1);
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
