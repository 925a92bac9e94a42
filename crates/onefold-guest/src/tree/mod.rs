//! The tree of a guest as the guest sees it: several mounted file systems, and paths through them.
//!
//! | module | is |
//! |---|---|
//! | `find` | a path through symbolic links, bounded as in Linux, and never out of the root |
//! | `paths` | very many paths at once: each directory is read once |
//! | `file_set` | a set of files in little memory |
//! | `walk` | everything below a directory, in bounded memory |
//! | `content` | the bytes of a file as a stream, and small files whole |
//! | `similar` | names that a missing path may have meant |
//! | `problem` | files and lines that could not be read |
//!
//! Names are bytes of the guest. Nothing here writes, and links of the guest never lead outside of it.

mod content;
mod file_set;
mod find;
mod paths;
mod problem;
mod similar;
mod walk;

use std::collections::HashMap;

pub use content::ContentReader;
pub use file_set::{FileSet, Insertion};
pub(crate) use find::PATH_BYTES_MAX;
pub use find::{Links, ResolvedFile};
pub use paths::{PathId, PathSet};
pub use problem::{Problem, ProblemLog};
pub use walk::{Crossing, Visitor, WalkEntry, WalkError, WalkStep};

use crate::error::GuestError;
use crate::filesystem::{DirectoryEntry, FileKind, FileNumber, FileStat, FileSystem};

/// Index of a file system in a tree. 0 is the file system of the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SystemIndex(pub u32);

/// A file of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GuestFile {
    /// Its file system.
    pub system: SystemIndex,
    /// Its number there.
    pub file: FileNumber,
}

/// File systems that form one tree.
pub struct Tree<'a> {
    systems: Vec<&'a dyn FileSystem>,
    root: GuestFile,
    /// Directories on which something is mounted, and the directory that is visible in their place. No value is also a
    /// key: a mount on a mount changes the value.
    mounts: HashMap<GuestFile, GuestFile>,
}

impl<'a> Tree<'a> {
    /// Returns the tree of one file system.
    #[must_use]
    pub fn new(root: &'a dyn FileSystem) -> Tree<'a> {
        let systems = vec![root];
        let root = GuestFile { system: SystemIndex(0), file: root.root() };
        Tree { systems, root, mounts: HashMap::new() }
    }

    /// Mounts a file system on the directory of a path. It hides the previous content from now on.
    ///
    /// # Errors
    /// When the path does not lead to a directory.
    pub fn mount(&mut self, path: &[u8], system: &'a dyn FileSystem) -> Result<SystemIndex, GuestError> {
        let mut steps_left = find::STEPS_MAX;
        self.mount_within(path, system, &mut steps_left)
    }

    /// As [`Tree::mount`], with a limit on the steps of paths: see [`Tree::find_within`].
    pub(crate) fn mount_within(
        &mut self,
        path: &[u8],
        system: &'a dyn FileSystem,
        steps_left: &mut u64,
    ) -> Result<SystemIndex, GuestError> {
        let covered = self.directory(path, steps_left)?;
        let index = SystemIndex(u32::try_from(self.systems.len()).unwrap_or(u32::MAX));
        self.systems.push(system);
        self.cover(covered, GuestFile { system: index, file: system.root() });
        Ok(index)
    }

    /// Shows a directory of the tree in a second place, as a bind mount does.
    ///
    /// # Errors
    /// When one of the paths does not lead to a directory.
    pub fn bind(&mut self, source: &[u8], path: &[u8]) -> Result<(), GuestError> {
        let mut steps_left = find::STEPS_MAX;
        self.bind_within(source, path, &mut steps_left)
    }

    /// As [`Tree::bind`], with a limit on the steps of paths: see [`Tree::find_within`].
    pub(crate) fn bind_within(&mut self, source: &[u8], path: &[u8], steps_left: &mut u64) -> Result<(), GuestError> {
        let (shown, covered) = (self.directory(source, steps_left)?, self.directory(path, steps_left)?);
        self.cover(covered, shown);
        Ok(())
    }

    fn directory(&self, path: &[u8], steps_left: &mut u64) -> Result<GuestFile, GuestError> {
        let found = self.find_within(path, Links::Follow, steps_left)?;
        if found.stat.kind == FileKind::Directory { Ok(found.file) } else { Err(GuestError::NotADirectory) }
    }

    fn cover(&mut self, covered: GuestFile, shown: GuestFile) {
        if covered == shown {
            return;
        }
        for seen in self.mounts.values_mut().filter(|seen| **seen == covered) {
            *seen = shown;
        }
        if self.root == covered {
            self.root = shown;
        }
        self.mounts.insert(covered, shown);
    }

    /// Returns the file that is visible in the place of a file: the root of a file system mounted on it, or the file
    /// itself.
    #[must_use]
    pub fn seen(&self, file: GuestFile) -> GuestFile {
        if self.mounts.is_empty() { file } else { self.mounts.get(&file).copied().unwrap_or(file) }
    }

    /// Returns the root directory.
    #[must_use]
    pub fn root(&self) -> GuestFile {
        self.root
    }

    /// Returns a file system of the tree. An index of another tree returns the file system of the root.
    #[must_use]
    pub fn system(&self, index: SystemIndex) -> &'a dyn FileSystem {
        let at = usize::try_from(index.0).unwrap_or(usize::MAX);
        self.systems.get(at).copied().unwrap_or(self.systems[0])
    }

    /// Returns the file systems, in the order of their indexes.
    #[must_use]
    pub fn systems(&self) -> &[&'a dyn FileSystem] {
        &self.systems
    }

    /// Returns the metadata of a file.
    ///
    /// # Errors
    /// Those of [`FileSystem::stat`].
    pub fn stat(&self, file: GuestFile) -> Result<FileStat, GuestError> {
        self.system(file.system).stat(file.file)
    }

    /// Calls `visit` with each entry of a directory, and the file that is visible in its place, until it breaks.
    ///
    /// # Errors
    /// Those of [`FileSystem::each_entry`].
    pub fn each_entry(
        &self,
        directory: GuestFile,
        visit: &mut dyn FnMut(DirectoryEntry, GuestFile) -> std::ops::ControlFlow<()>,
    ) -> Result<(), GuestError> {
        self.system(directory.system).each_entry(directory.file, &mut |mut entry| {
            let file = GuestFile { system: directory.system, file: entry.file };
            let seen = self.seen(file);
            if seen != file {
                entry.kind = Some(FileKind::Directory);
            }
            visit(entry, seen)
        })
    }
}

impl std::fmt::Debug for Tree<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("root", &self.root).field("mounts", &self.mounts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryFileSystem;

    #[test]
    fn a_mount_hides_what_was_there_and_a_mount_on_it_hides_the_first() {
        let mut root = MemoryFileSystem::default();
        root.write("/home/old", "");
        let (mut first, mut second) = (MemoryFileSystem::default(), MemoryFileSystem::default());
        first.write("/first", "");
        second.write("/second", "");
        let mut tree = Tree::new(&root);
        assert_eq!(tree.mount(b"/home", &first).unwrap(), SystemIndex(1));
        assert!(tree.find(b"/home/first", Links::Keep).is_ok());
        assert!(matches!(tree.find(b"/home/old", Links::Keep), Err(GuestError::NotFound)));
        assert_eq!(tree.mount(b"/home", &second).unwrap(), SystemIndex(2));
        assert_eq!(tree.find(b"/home/second", Links::Keep).unwrap().file.system, SystemIndex(2));
        assert!(matches!(tree.find(b"/home/first", Links::Keep), Err(GuestError::NotFound)));
        assert_eq!(tree.find(b"/home/..", Links::Keep).unwrap().file, tree.root());
    }

    #[test]
    fn a_bind_mount_shows_a_directory_in_two_places() {
        let mut root = MemoryFileSystem::default();
        root.write("/srv/data/file", "");
        root.directory("/export");
        root.write("/text", "");
        let mut tree = Tree::new(&root);
        tree.bind(b"/srv/data", b"/export").unwrap();
        let (one, two) = (tree.find(b"/srv/data/file", Links::Keep), tree.find(b"/export/file", Links::Keep));
        assert_eq!(one.unwrap().file, two.unwrap().file);
        assert!(matches!(tree.bind(b"/text", b"/export"), Err(GuestError::NotADirectory)));
        assert!(matches!(tree.bind(b"/none", b"/export"), Err(GuestError::NotFound)));
    }
}
