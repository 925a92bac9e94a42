//! Very many paths at once, as package databases list them.
//!
//! The paths form a trie of their names. [`PathSet::resolve`] goes down it level by level: of each directory it looks up
//! the names that the trie has there, in one reading. Where a name is a symbolic link with more names below it, as
//! `/lib` on today's systems, these are moved to where the link leads, and looked for in the next round. So each
//! directory is read once in a round, a round follows one link of every path, and there are as many rounds as a path may
//! have links: the work is linear in directories and paths, whatever a hostile guest lists.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;

use super::{GuestFile, Links, Problem, ProblemLog, Tree};
use crate::filesystem::FileKind;

/// Names in a set, which take about 100 bytes each.
const NAMES_MAX: usize = 2_000_000;
/// Symbolic links to directories that a set follows.
const LINKS_MAX: usize = 1 << 16;
/// Rounds: links that one path may lead through, as in Linux.
const ROUNDS_MAX: usize = 40;
/// So few names are looked up by the directory's own index.
const LOOK_UPS_MAX: usize = 2;
/// No directory has a longer name.
const NAME_BYTES_MAX: usize = 255;

const ROOT: u32 = 0;

/// A path of a [`PathSet`]. Equal paths have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(u32);

/// Paths that are resolved together.
#[derive(Debug)]
pub struct PathSet {
    names: Vec<Name>,
    text: Vec<u8>,
    /// The hash of parent and name, and the last name with it.
    index: HashMap<u64, u32>,
    hasher: RandomState,
    last: LastPath,
    links_followed: usize,
}

/// A name below another one.
#[derive(Debug)]
struct Name {
    parent: u32,
    start: usize,
    length: u8,
    /// Whether names below it were added that nobody has looked for.
    is_open: bool,
    kind: Option<FileKind>,
    file: Option<GuestFile>,
    first_child: Option<u32>,
    next_sibling: Option<u32>,
    /// The next one with the same hash.
    next_equal: Option<u32>,
    /// The name that this one is now, since it was moved.
    moved_to: Option<u32>,
}

/// The path that was added last. Package lists are in order, so that the next one mostly begins alike.
#[derive(Debug, Default)]
struct LastPath {
    path: Vec<u8>,
    /// Where in the path each name ends, and its number.
    ends: Vec<(usize, u32)>,
}

impl Default for PathSet {
    fn default() -> PathSet {
        PathSet::new()
    }
}

impl PathSet {
    /// Returns an empty set.
    #[must_use]
    pub fn new() -> PathSet {
        let root = Name {
            parent: ROOT,
            start: 0,
            length: 0,
            is_open: false,
            kind: Some(FileKind::Directory),
            file: None,
            first_child: None,
            next_sibling: None,
            next_equal: None,
            moved_to: None,
        };
        PathSet {
            names: vec![root],
            text: Vec::new(),
            index: HashMap::new(),
            hasher: RandomState::new(),
            last: LastPath::default(),
            links_followed: 0,
        }
    }

    /// Adds a path, which begins at the root with or without a slash. `None` where it has a name that no file has, as
    /// `..` in a list of paths, or where the set is full: it holds two million names.
    pub fn add(&mut self, path: &[u8]) -> Option<PathId> {
        let common = path.iter().zip(&self.last.path).take_while(|(one, two)| one == two).count();
        let is_kept = |end: &usize| *end <= common && path.get(*end).is_none_or(|byte| *byte == b'/');
        let kept = self.last.ends.partition_point(|(end, _)| *end <= common);
        let kept = self.last.ends[..kept].iter().rposition(|(end, _)| is_kept(end)).map_or(0, |at| at + 1);
        self.last.ends.truncate(kept);
        let (mut at, mut name) = self.last.ends.last().copied().unwrap_or((0, ROOT));
        self.last.path.clear();
        self.last.path.extend_from_slice(path);
        while at < path.len() {
            let rest = &path[at..];
            let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
            let length = rest[slashes..].iter().position(|byte| *byte == b'/').unwrap_or(rest.len() - slashes);
            let part = &rest[slashes..slashes + length];
            at += slashes + length;
            if part.is_empty() || part == b"." {
                continue;
            }
            name = self.child_or_new(self.now(name), part)?;
            self.last.ends.push((at, name));
        }
        Some(PathId(self.now(name)))
    }

    /// Returns whether no further name has room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.names.len() >= NAMES_MAX
    }

    /// Returns the file of a path after [`PathSet::resolve`]; `None` where there is none. A symbolic link at the end is
    /// not followed.
    #[must_use]
    pub fn file(&self, path: PathId) -> Option<GuestFile> {
        self.name(self.now(path.0)).and_then(|name| name.file)
    }

    /// Returns a path as it was resolved: without links on the way.
    #[must_use]
    pub fn path(&self, path: PathId) -> Vec<u8> {
        let mut parts = Vec::new();
        let mut at = self.now(path.0);
        while at != ROOT
            && let Some(name) = self.name(at)
        {
            parts.push(at);
            at = self.now(name.parent);
        }
        if parts.is_empty() {
            return b"/".to_vec();
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(self.text_of(*part));
        }
        path
    }

    /// Looks for all paths that were added. A directory that cannot be read is noted in `problems`, and what is below it
    /// has no file.
    pub fn resolve(&mut self, tree: &Tree<'_>, problems: &ProblemLog) {
        self.names[0].file = Some(tree.root());
        let mut open = vec![ROOT];
        for _ in 0..ROUNDS_MAX {
            let links = self.go_down(tree, problems, open);
            if links.is_empty() {
                return;
            }
            open = links.into_iter().filter_map(|link| self.follow(tree, link, problems)).collect();
            open.sort_unstable();
            open.dedup();
        }
    }

    /// Looks for the names below directories, level by level; returns the symbolic links that names are below of.
    fn go_down(&mut self, tree: &Tree<'_>, problems: &ProblemLog, open: Vec<u32>) -> Vec<u32> {
        let mut links = Vec::new();
        let mut level = open;
        while !level.is_empty() {
            level.sort_by_key(|name| self.names[*name as usize].file);
            let mut below = Vec::new();
            for directory in level {
                if !std::mem::take(&mut self.names[directory as usize].is_open) {
                    continue;
                }
                self.read_directory(tree, directory, problems);
                let mut child = self.names[directory as usize].first_child;
                while let Some(at) = child {
                    let name = &self.names[at as usize];
                    match name.kind {
                        Some(FileKind::Directory) if name.is_open => below.push(at),
                        Some(FileKind::SymbolicLink) if name.is_open => links.push(at),
                        _ => {}
                    }
                    child = name.next_sibling;
                }
            }
            level = below;
        }
        links
    }

    /// Looks for the names below one directory.
    fn read_directory(&mut self, tree: &Tree<'_>, directory: u32, problems: &ProblemLog) {
        let Some(file) = self.names[directory as usize].file else { return };
        let wanted: Vec<u32> = self.children(directory).take(LOOK_UPS_MAX + 1).collect();
        let outcome = if wanted.len() <= LOOK_UPS_MAX {
            wanted.into_iter().try_for_each(|name| {
                let found = tree.system(file.system).look_up(file.file, self.text_of(name))?;
                if let Some(found) = found {
                    let seen = tree.seen(GuestFile { system: file.system, file: found });
                    self.found(tree, name, seen, None);
                }
                Ok(())
            })
        } else {
            tree.each_entry(file, &mut |entry, seen| {
                if let Some(name) = self.child(directory, &entry.name) {
                    self.found(tree, name, seen, entry.kind);
                }
                ControlFlow::Continue(())
            })
        };
        if let Err(error) = outcome {
            problems.note(Problem::of_file(&self.path(PathId(directory)), error.to_string()));
        }
    }

    /// Notes the file of a name. Its kind is needed only where there are names below it.
    fn found(&mut self, tree: &Tree<'_>, name: u32, file: GuestFile, kind: Option<FileKind>) {
        let has_names_below = self.names[name as usize].first_child.is_some();
        let kind = kind.or_else(|| has_names_below.then(|| tree.stat(file).ok().map(|stat| stat.kind)).flatten());
        let name = &mut self.names[name as usize];
        name.file = Some(file);
        name.kind = kind;
    }

    /// Moves the names below a symbolic link to where it leads; returns that directory.
    fn follow(&mut self, tree: &Tree<'_>, link: u32, problems: &ProblemLog) -> Option<u32> {
        let path = self.path(PathId(link));
        self.links_followed += 1;
        if self.links_followed > LINKS_MAX {
            problems.note(Problem::of_file(&path, "more symbolic links than are followed"));
            return None;
        }
        let found = problems.skip(&path, tree.find(&path, Links::Follow))?;
        if found.stat.kind != FileKind::Directory {
            return None;
        }
        self.last = LastPath::default();
        let Some(target) = self.add(&found.path).map(|id| self.now(id.0)) else {
            problems.note(Problem::of_file(&path, "more paths than are looked up"));
            return None;
        };
        let into = &mut self.names[target as usize];
        (into.file, into.kind) = (Some(found.file), Some(FileKind::Directory));
        self.names[link as usize].is_open = false;
        if self.move_below(link, target).is_none() {
            problems.note(Problem::of_file(&path, "more paths than are looked up"));
        }
        Some(target)
    }

    /// Moves everything below `from` to `into`. `None` when the set is full.
    fn move_below(&mut self, from: u32, into: u32) -> Option<()> {
        let mut ahead = vec![(from, into)];
        while let Some((from, into)) = ahead.pop() {
            if from == into {
                continue;
            }
            let children: Vec<u32> = self.children(from).collect();
            for child in children {
                if self.names[child as usize].moved_to.is_some() {
                    continue;
                }
                let name = self.text_of(child).to_vec();
                let new = self.child_or_new(into, &name)?;
                let new = self.now(new);
                if new != child {
                    self.names[child as usize].moved_to = Some(new);
                    ahead.push((child, new));
                }
            }
        }
        Some(())
    }

    fn child_or_new(&mut self, parent: u32, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one((parent, text));
        if let Some(known) = self.child_of_hash(hash, parent, text) {
            return Some(known);
        }
        if self.names.len() >= NAMES_MAX || text.len() > NAME_BYTES_MAX || text == b".." {
            return None;
        }
        let number = u32::try_from(self.names.len()).ok()?;
        let next_equal = self.index.insert(hash, number);
        let start = self.text.len();
        self.text.extend_from_slice(text);
        let next_sibling = self.names[parent as usize].first_child.replace(number);
        self.open(parent);
        self.names.push(Name {
            parent,
            start,
            length: u8::try_from(text.len()).ok()?,
            is_open: false,
            kind: None,
            file: None,
            first_child: None,
            next_sibling,
            next_equal,
            moved_to: None,
        });
        Some(number)
    }

    /// Marks a name and those above it: there is something to look for below.
    fn open(&mut self, name: u32) {
        let mut at = name;
        while !std::mem::replace(&mut self.names[at as usize].is_open, true) {
            at = self.names[at as usize].parent;
        }
    }

    fn child(&self, parent: u32, text: &[u8]) -> Option<u32> {
        self.child_of_hash(self.hasher.hash_one((parent, text)), parent, text)
    }

    fn child_of_hash(&self, hash: u64, parent: u32, text: &[u8]) -> Option<u32> {
        let mut at = self.index.get(&hash).copied();
        while let Some(number) = at {
            let name = self.name(number)?;
            if name.parent == parent && self.text_of(number) == text {
                return Some(number);
            }
            at = name.next_equal;
        }
        None
    }

    fn children(&self, parent: u32) -> impl Iterator<Item = u32> {
        let first = self.name(parent).and_then(|name| name.first_child);
        std::iter::successors(first, |at| self.name(*at).and_then(|name| name.next_sibling))
    }

    fn name(&self, number: u32) -> Option<&Name> {
        self.names.get(number as usize)
    }

    fn text_of(&self, number: u32) -> &[u8] {
        self.name(number)
            .and_then(|name| self.text.get(name.start..name.start + usize::from(name.length)))
            .unwrap_or_default()
    }

    /// Returns the number that a name has after it was moved.
    fn now(&self, number: u32) -> u32 {
        let mut at = number;
        while let Some(moved_to) = self.name(at).and_then(|name| name.moved_to) {
            at = moved_to;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryFileSystem;

    fn merged() -> MemoryFileSystem {
        let mut system = MemoryFileSystem::default();
        for path in ["/usr/bin/ls", "/usr/bin/cat", "/usr/bin/cp", "/usr/lib/modules/6.1/a.ko", "/usr/lib/libc.so.6"] {
            system.write(path, path);
        }
        system.symlink("/bin", "usr/bin");
        system.symlink("/lib", "/usr/lib");
        system.symlink("/usr/lib64", "lib");
        system.symlink("/lib64", "usr/lib64");
        system.symlink("/usr/lib/ring", "ring2");
        system.symlink("/usr/lib/ring2", "ring");
        system.symlink("/usr/lib/libc.so", "libc.so.6");
        system
    }

    const LISTED: [&str; 17] = [
        "/.",
        "/bin",
        "/bin/ls",
        "/bin/cat",
        "/bin/none",
        "/usr/bin/cat",
        "/usr/bin/cp",
        "/lib/modules/6.1/a.ko",
        "/lib64/modules/6.1/a.ko",
        "/usr/lib64/libc.so",
        "lib/libc.so.6",
        "/lib//modules/",
        "/lib/ring/x",
        "/usr/bin/ls/below-a-file",
        "/none/at/all",
        "/lib64",
        "/bin/ls",
    ];

    #[test]
    fn paths_lead_to_the_same_files_together_and_alone() {
        let system = merged();
        let tree = Tree::new(&system);
        let (mut set, problems) = (PathSet::new(), ProblemLog::default());
        let ids: Vec<PathId> = LISTED.iter().map(|path| set.add(path.as_bytes()).unwrap()).collect();
        assert_eq!(ids[2], ids[16]);
        set.resolve(&tree, &problems);
        for (path, id) in LISTED.iter().zip(&ids) {
            let alone = tree.find(path.trim_end_matches('/').as_bytes(), Links::Keep).ok();
            assert_eq!(set.file(*id), alone.as_ref().map(|found| found.file), "{path}");
            if let Some(alone) = alone {
                assert_eq!(set.path(*id), alone.path, "{path}");
            }
        }
        let noted: Vec<String> = problems.first().iter().map(ToString::to_string).collect();
        assert_eq!(noted, ["/usr/lib/ring: too many levels of symbolic links"]);
    }

    #[test]
    fn paths_that_are_added_later_are_found_by_the_next_call() {
        let system = merged();
        let tree = Tree::new(&system);
        let (mut set, problems) = (PathSet::new(), ProblemLog::default());
        let first = set.add(b"/lib/libc.so.6").unwrap();
        set.resolve(&tree, &problems);
        let second = set.add(b"/lib/modules/6.1/a.ko").unwrap();
        let third = set.add(b"/usr/lib/libc.so.6").unwrap();
        set.resolve(&tree, &problems);
        assert!(set.file(first).is_some() && set.file(second).is_some());
        assert_eq!(set.file(first), set.file(third));
    }

    #[test]
    fn a_link_to_a_directory_above_itself_ends() {
        let mut system = MemoryFileSystem::default();
        system.write("/a/x", "");
        system.symlink("/a/b", "/a");
        let tree = Tree::new(&system);
        let (mut set, problems) = (PathSet::new(), ProblemLog::default());
        let ids = ["/a/b/b/b/x", "/a/b/x", "/a/b/none", "/a/b/b"].map(|path| set.add(path.as_bytes()).unwrap());
        set.resolve(&tree, &problems);
        let alone = |path: &[u8]| tree.find(path, Links::Keep).ok().map(|found| found.file);
        assert_eq!(ids.map(|id| set.file(id)), [alone(b"/a/x"), alone(b"/a/x"), None, alone(b"/a/b")]);
        assert_eq!((set.path(ids[0]), problems.count()), (b"/a/x".to_vec(), 0));
    }

    #[test]
    fn a_name_that_no_directory_can_have_is_no_path() {
        let mut set = PathSet::new();
        assert_eq!(set.add(&[b'n'; 256]), None);
        assert_eq!(set.add(b"/usr/../lib"), None);
        assert!(set.add(b"/usr/lib").is_some());
        assert!(set.add(&[b'n'; 255]).is_some());
        assert_eq!(set.add(b"").unwrap(), set.add(b"/").unwrap());
    }

    #[test]
    fn a_million_equal_paths_take_one_name() {
        let mut set = PathSet::new();
        for _ in 0..1_000_000 {
            set.add(b"/usr/share/doc").unwrap();
        }
        assert_eq!(set.names.len(), 4);
    }
}
