//! Everything below a directory, in bounded memory.
//!
//! A walk enters each directory once, however many names it has. So a directory that contains itself does not cause an
//! endless walk, and the work is linear in the entries. There is no recursion: each level has a list of waiting
//! directories.

use std::ops::ControlFlow;

use super::{FileSet, GuestFile, Insertion, ResolvedFile, Tree};
use crate::error::GuestError;
use crate::filesystem::{DirectoryEntry, FileKind};

/// Maximum length of a path that a walk enters. Programs can name paths of up to 4096 bytes.
const PATH_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes for the names of waiting directories, with 32 bytes added for each.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Whether a walk continues in other file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// Enter mounted file systems.
    Enter,
    /// Visit mount points without entering them.
    Stay,
}

/// The visitor's choice for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// Continue, and enter the entry if it is a directory.
    Enter,
    /// Continue without entering it.
    Skip,
    /// End the walk.
    Stop,
}

/// A file that a walk visits.
#[derive(Clone, Copy, Debug)]
pub struct WalkEntry<'w> {
    /// Its path, which begins with the path of the walk's first directory.
    pub path: &'w [u8],
    /// Its name: the end of the path.
    pub name: &'w [u8],
    /// The file.
    pub file: GuestFile,
    /// Its kind, from the directory if the directory records it.
    pub kind: FileKind,
    /// Levels below the walk's first directory, from 1.
    pub depth: usize,
}

/// Why a directory or a file is skipped.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// It cannot be read.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The directory has a second name, which may be inside of itself.
    #[error("this directory was entered by another name before")]
    EnteredBefore,
    /// The path has become too long.
    #[error("it lies deeper than a walk goes")]
    TooDeep,
    /// There are too many directories at once.
    #[error("too many directories wait to be entered")]
    TooMany,
}

/// Callbacks of a walk. The entries of a directory are visited together, in the order of the directory. Then the walk
/// enters each directory among them, sorted by name.
pub trait Visitor {
    /// Called for each file. Returns how to continue.
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep;

    /// Called after everything below a directory was visited. `depth` is 0 for the walk's first directory.
    fn leave(&mut self, path: &[u8], depth: usize) {
        let _ = (path, depth);
    }

    /// Called for everything that cannot be read. The walk continues.
    fn failed(&mut self, path: &[u8], error: WalkError);
}

impl Tree<'_> {
    /// Visits everything below a directory, but not the directory itself. Symbolic links are not followed.
    ///
    /// # Errors
    /// When `from` is not a directory.
    pub fn walk(&self, from: &ResolvedFile, crossing: Crossing, visitor: &mut dyn Visitor) -> Result<(), GuestError> {
        if from.stat.kind != FileKind::Directory {
            return Err(GuestError::NotADirectory);
        }
        let mut walk = Walk::new(self, from, crossing);
        walk.entered.insert(from.file);
        let mut outcome = walk.enter(from.file, visitor);
        while outcome.is_continue() && !walk.levels.is_empty() {
            outcome = walk.go_on(visitor);
        }
        Ok(())
    }
}

/// The state of a walk.
struct Walk<'t, 'a> {
    tree: &'t Tree<'a>,
    crossing: Crossing,
    begun_in: GuestFile,
    path: Vec<u8>,
    /// One for each directory from the first one to the current one.
    levels: Vec<Level>,
    entered: FileSet,
    waiting_bytes: usize,
}

/// A visited directory, and the directories in it that were not entered yet.
struct Level {
    /// Length of its path.
    path_bytes: usize,
    names: Vec<u8>,
    /// Sorted by name in reverse order.
    waiting: Vec<PendingDirectory>,
    waiting_bytes: usize,
}

struct PendingDirectory {
    start: usize,
    length: usize,
    directory: GuestFile,
}

impl PendingDirectory {
    fn name<'n>(&self, names: &'n [u8]) -> &'n [u8] {
        names.get(self.start..self.start + self.length).unwrap_or_default()
    }
}

impl<'t, 'a> Walk<'t, 'a> {
    fn new(tree: &'t Tree<'a>, from: &ResolvedFile, crossing: Crossing) -> Walk<'t, 'a> {
        let path = if from.path == b"/" { Vec::new() } else { from.path.clone() };
        let entered = FileSet::default();
        Walk { tree, crossing, begun_in: from.file, path, levels: Vec::new(), entered, waiting_bytes: 0 }
    }

    /// Enters the next waiting directory, or leaves the deepest one.
    fn go_on(&mut self, visitor: &mut dyn Visitor) -> ControlFlow<()> {
        let Some(level) = self.levels.last_mut() else { return ControlFlow::Break(()) };
        self.path.truncate(level.path_bytes);
        let Some(next) = level.waiting.pop() else {
            self.waiting_bytes -= level.waiting_bytes;
            visitor.leave(if self.path.is_empty() { b"/" } else { &self.path }, self.levels.len() - 1);
            self.levels.pop();
            return ControlFlow::Continue(());
        };
        self.path.push(b'/');
        self.path.extend_from_slice(next.name(&level.names));
        if self.path.len() > PATH_BYTES_MAX {
            visitor.failed(&self.path, WalkError::TooDeep);
            return ControlFlow::Continue(());
        }
        match self.entered.insert(next.directory) {
            Insertion::Known => visitor.failed(&self.path, WalkError::EnteredBefore),
            Insertion::Full => visitor.failed(&self.path, WalkError::TooMany),
            Insertion::New => return self.enter(next.directory, visitor),
        }
        ControlFlow::Continue(())
    }

    /// Visits the entries of a directory, and records the directories among them.
    fn enter(&mut self, directory: GuestFile, visitor: &mut dyn Visitor) -> ControlFlow<()> {
        let path_bytes = self.path.len();
        let mut level = Level { path_bytes, names: Vec::new(), waiting: Vec::new(), waiting_bytes: 0 };
        let mut outcome = ControlFlow::Continue(());
        let tree = self.tree;
        let read = tree.each_entry(directory, &mut |entry, file| {
            outcome = self.visit(&mut level, &entry, file, visitor);
            outcome
        });
        self.path.truncate(path_bytes);
        if let Err(error) = read {
            visitor.failed(if self.path.is_empty() { b"/" } else { &self.path }, error.into());
        }
        let names = std::mem::take(&mut level.names);
        level.waiting.sort_by(|one, two| two.name(&names).cmp(one.name(&names)));
        level.names = names;
        self.levels.push(level);
        outcome
    }

    fn visit(
        &mut self,
        level: &mut Level,
        entry: &DirectoryEntry,
        file: GuestFile,
        visitor: &mut dyn Visitor,
    ) -> ControlFlow<()> {
        self.path.truncate(level.path_bytes);
        self.path.push(b'/');
        self.path.extend_from_slice(&entry.name);
        let kind = match entry.kind.map_or_else(|| self.tree.stat(file).map(|stat| stat.kind), Ok) {
            Ok(kind) => kind,
            Err(error) => {
                visitor.failed(&self.path, error.into());
                return ControlFlow::Continue(());
            }
        };
        let depth = self.levels.len() + 1;
        let name = self.path.get(level.path_bytes + 1..).unwrap_or_default();
        match visitor.visit(&WalkEntry { path: &self.path, name, file, kind, depth }) {
            WalkStep::Stop => return ControlFlow::Break(()),
            WalkStep::Skip => return ControlFlow::Continue(()),
            WalkStep::Enter => {}
        }
        if kind != FileKind::Directory || (self.crossing == Crossing::Stay && file.system != self.begun_in.system) {
            return ControlFlow::Continue(());
        }
        let bytes = size_of::<PendingDirectory>() + entry.name.len();
        if self.waiting_bytes + bytes > WAITING_BYTES_MAX {
            visitor.failed(&self.path, WalkError::TooMany);
            return ControlFlow::Continue(());
        }
        self.waiting_bytes += bytes;
        level.waiting_bytes += bytes;
        level.waiting.push(PendingDirectory { start: level.names.len(), length: entry.name.len(), directory: file });
        level.names.extend_from_slice(&entry.name);
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Links;
    use super::*;
    use crate::filesystem::FileSystem;
    use crate::memory::MemoryFileSystem;

    #[derive(Default)]
    struct Notes {
        visited: Vec<String>,
        left: Vec<(String, usize)>,
        failed: Vec<String>,
        skip: Option<&'static str>,
        stop: Option<&'static str>,
    }

    impl Visitor for Notes {
        fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
            let path = String::from_utf8(entry.path.to_vec()).unwrap();
            assert!(path.ends_with(&format!("/{}", std::str::from_utf8(entry.name).unwrap())));
            assert_eq!(path.matches('/').count(), entry.depth);
            let step = match Some(path.as_str()) {
                path if path == self.skip => WalkStep::Skip,
                path if path == self.stop => WalkStep::Stop,
                _ => WalkStep::Enter,
            };
            self.visited.push(path);
            step
        }

        fn leave(&mut self, path: &[u8], depth: usize) {
            self.left.push((String::from_utf8(path.to_vec()).unwrap(), depth));
        }

        fn failed(&mut self, path: &[u8], error: WalkError) {
            self.failed.push(format!("{}: {error}", String::from_utf8_lossy(path)));
        }
    }

    fn walk(tree: &Tree<'_>, crossing: Crossing, mut notes: Notes) -> Notes {
        tree.walk(&tree.find(b"/", Links::Follow).unwrap(), crossing, &mut notes).unwrap();
        notes
    }

    fn small() -> MemoryFileSystem {
        let mut system = MemoryFileSystem::default();
        for path in ["/b/two", "/b/c/three", "/a/one", "/file"] {
            system.write(path, "");
        }
        system.symlink("/link", "b");
        system
    }

    #[test]
    fn entries_come_before_what_is_below_them_and_a_directory_is_left_at_its_end() {
        let system = small();
        let notes = walk(&Tree::new(&system), Crossing::Enter, Notes::default());
        let visited = ["/b", "/a", "/file", "/link", "/a/one", "/b/two", "/b/c", "/b/c/three"];
        assert_eq!(notes.visited, visited);
        let left = [("/a", 1), ("/b/c", 2), ("/b", 1), ("/", 0)];
        assert_eq!(notes.left, left.map(|(path, depth)| (path.to_owned(), depth)));
        assert!(notes.failed.is_empty());
    }

    #[test]
    fn a_visitor_skips_and_stops() {
        let system = small();
        let tree = Tree::new(&system);
        let notes = walk(&tree, Crossing::Enter, Notes { skip: Some("/b"), ..Notes::default() });
        assert_eq!(notes.visited, ["/b", "/a", "/file", "/link", "/a/one"]);
        let notes = walk(&tree, Crossing::Enter, Notes { stop: Some("/file"), ..Notes::default() });
        assert_eq!(notes.visited, ["/b", "/a", "/file"]);
        assert!(notes.left.is_empty());
    }

    #[test]
    fn a_mount_is_entered_or_only_visited() {
        let system = small();
        let mut home = MemoryFileSystem::default();
        home.write("/of-home", "");
        let mut tree = Tree::new(&system);
        tree.mount(b"/b", &home).unwrap();
        let visited = walk(&tree, Crossing::Enter, Notes::default()).visited;
        assert_eq!(visited, ["/b", "/a", "/file", "/link", "/a/one", "/b/of-home"]);
        let visited = walk(&tree, Crossing::Stay, Notes::default()).visited;
        assert_eq!(visited, ["/b", "/a", "/file", "/link", "/a/one"]);
    }

    #[test]
    fn a_directory_that_contains_itself_ends() {
        let mut system = small();
        let inner = system.directory("/b/c");
        let root = system.root();
        system.link(inner, b"again", root);
        system.link(inner, b"self", inner);
        let notes = walk(&Tree::new(&system), Crossing::Enter, Notes::default());
        let before = "this directory was entered by another name before";
        assert_eq!(notes.failed, [format!("/b/c/again: {before}"), format!("/b/c/self: {before}")]);
        assert_eq!(notes.visited.len(), 10);
    }

    /// A chain in which each directory contains the next one twice has 2^60 paths.
    #[test]
    fn directories_with_two_names_are_entered_once() {
        let mut system = MemoryFileSystem::default();
        let mut above = system.root();
        for level in 0..60 {
            let below = system.directory(&format!("/{level}"));
            system.link(above, b"x", below);
            system.link(above, b"y", below);
            above = below;
        }
        let notes = walk(&Tree::new(&system), Crossing::Enter, Notes::default());
        assert_eq!(notes.visited.len(), 180);
    }

    #[test]
    fn a_walk_goes_no_deeper_than_paths_can_be() {
        let mut system = MemoryFileSystem::default();
        let name = "n".repeat(255);
        let path: String = (0..300).map(|_| format!("/{name}")).collect();
        system.directory(&path);
        let notes = walk(&Tree::new(&system), Crossing::Enter, Notes::default());
        assert_eq!((notes.visited.len(), notes.failed.len(), notes.left.len()), (257, 1, 257));
        assert!(notes.failed[0].ends_with("it lies deeper than a walk goes"));
    }
}
