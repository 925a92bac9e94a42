//! Resolves very many paths at once, as package databases list them.
//!
//! The paths form a trie of their names. [`PathSet::resolve`] processes it level by level: it reads each directory once
//! and looks up the names that the trie has there. A name may be a symbolic link with further names below it, as `/lib`
//! on current systems. These names are moved to the target of the link, and looked up in the next round. So each
//! directory is read once per round, a round follows one link of every path, and the number of rounds is limited by the
//! number of links in a path. The work is linear in directories and paths, whatever a hostile guest lists. Directories
//! may still be long, and several paths may lead to one of them, so a call reads at most 16 GiB of directories.

mod index;
#[cfg(test)]
mod tests;
mod trie;

use std::collections::HashMap;
use std::ops::ControlFlow;

use trie::{ROOT, Trie};

use super::find::STEPS_MAX;
use super::{GuestFile, Links, PATH_BYTES_MAX, Problem, ProblemLog, Tree};
use crate::error::GuestError;
use crate::filesystem::FileKind;

/// Maximum number of symbolic links to directories that a set follows.
const LINKS_MAX: usize = 1 << 16;
/// Maximum total number of steps for these links. A name, or 4 KiB of a directory, takes one. A usual link takes a
/// dozen.
const LINK_STEPS_MAX: u64 = 1 << 20;
/// Maximum number of rounds, which is the number of links that Linux follows in one path.
const ROUNDS_MAX: usize = 40;
/// Maximum number of names that are looked up by the directory's own index.
const LOOK_UPS_MAX: usize = 2;
/// A directory of up to this length is listed in any case, because an index does not help there.
const LISTED_BYTES_MAX: u64 = 16 << 10;
/// Reason to skip a directory after a call has read the maximum length of directories.
const TOO_LONG_TOGETHER: &str = "a directory after 16 GiB of others";
/// Maximum number of reads of one directory in a call. Links of several rounds may lead to it; a larger number means
/// that a directory contains itself.
const READINGS_MAX: u32 = 64;

/// Identifier of a path in a [`PathSet`]. Equal paths have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(u32);

/// Paths that are resolved together.
#[derive(Debug)]
pub struct PathSet {
    trie: Trie,
    last: LastPath,
    links_followed: usize,
    /// Remaining steps for links.
    link_steps_left: u64,
    /// Number of reads of each directory in this call.
    readings: HashMap<GuestFile, u32>,
    /// Remaining steps for directories in this call: one for each 4 KiB of a directory, for each operation that may
    /// read the whole directory.
    directory_steps_left: u64,
}

/// The last path that was added. Package lists are sorted, so the next one usually has a common prefix.
#[derive(Debug, Default)]
struct LastPath {
    path: Vec<u8>,
    /// End of each name in the path, and its number.
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
        PathSet {
            trie: Trie::new(),
            last: LastPath::default(),
            links_followed: 0,
            link_steps_left: LINK_STEPS_MAX,
            readings: HashMap::new(),
            directory_steps_left: STEPS_MAX,
        }
    }

    /// Adds a path, which begins at the root with or without a slash. `None` where it has a name that no file has, as
    /// `..` in a list of paths, or is longer than programs can name it, or where the set is full: it holds a million
    /// names.
    pub fn add(&mut self, path: &[u8]) -> Option<PathId> {
        if path.len() > PATH_BYTES_MAX {
            return None;
        }
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
            name = self.trie.child_or_new(self.trie.now(name), part)?;
            self.last.ends.push((at, name));
        }
        Some(PathId(name))
    }

    /// Returns whether there is no room for another name.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.trie.is_full()
    }

    /// Returns the file of a path after [`PathSet::resolve`]; `None` if there is none. Does not follow a symbolic link
    /// at the end.
    #[must_use]
    pub fn file(&self, path: PathId) -> Option<GuestFile> {
        self.trie.name(self.trie.now(path.0)).and_then(|name| name.file)
    }

    /// Returns a resolved path: without links on the way.
    #[must_use]
    pub fn path(&self, path: PathId) -> Vec<u8> {
        self.joined(path, |number| self.trie.now(number))
    }

    /// Returns a path as it was added, with one slash before each name. Links that an earlier call of
    /// [`PathSet::resolve`] followed are replaced by their targets.
    #[must_use]
    pub fn added_path(&self, path: PathId) -> Vec<u8> {
        self.joined(path, |number| number)
    }

    /// Returns the names from the root to a path. `now` maps each parent to its current name.
    fn joined(&self, path: PathId, now: impl Fn(u32) -> u32) -> Vec<u8> {
        let mut parts = Vec::new();
        let mut at = now(path.0);
        while at != ROOT
            && let Some(name) = self.trie.name(at)
        {
            parts.push(at);
            at = now(name.parent);
        }
        if parts.is_empty() {
            return b"/".to_vec();
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(self.trie.text_of(*part));
        }
        path
    }

    /// Looks up all paths that were added. If a directory cannot be read, this is recorded in `problems`, and names
    /// below it have no file.
    pub fn resolve(&mut self, tree: &Tree<'_>, problems: &ProblemLog) {
        self.readings.clear();
        self.directory_steps_left = STEPS_MAX;
        if let Some(root) = self.trie.name_mut(ROOT) {
            root.file = Some(tree.root());
        }
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

    /// Looks up the names below directories, level by level. Returns the symbolic links that have names below them.
    fn go_down(&mut self, tree: &Tree<'_>, problems: &ProblemLog, open: Vec<u32>) -> Vec<u32> {
        let mut links = Vec::new();
        let mut level = open;
        while !level.is_empty() {
            level.sort_by_key(|name| self.trie.name(*name).and_then(|name| name.file));
            let mut below = Vec::new();
            for directory in level {
                let Some(name) = self.trie.name_mut(directory) else { continue };
                if !std::mem::take(&mut name.is_open) {
                    continue;
                }
                self.read_directory(tree, directory, problems);
                for child in self.trie.children(directory) {
                    match self.trie.name(child).filter(|name| name.is_open).and_then(|name| name.kind) {
                        Some(FileKind::Directory) => below.push(child),
                        Some(FileKind::SymbolicLink) => links.push(child),
                        _ => {}
                    }
                }
            }
            level = below;
        }
        links
    }

    /// Looks up the names below one directory.
    fn read_directory(&mut self, tree: &Tree<'_>, directory: u32, problems: &ProblemLog) {
        let Some(file) = self.trie.name(directory).and_then(|name| name.file) else { return };
        let readings = self.readings.entry(file).or_insert(0);
        *readings += 1;
        if *readings > READINGS_MAX {
            let path = self.path(PathId(directory));
            problems.note(Problem::of_file(&path, "too many paths lead to this directory"));
            return;
        }
        if let Err(error) = self.read_names(tree, directory, file) {
            problems.note(Problem::of_file(&self.path(PathId(directory)), error.to_string()));
        }
    }

    /// Looks up the names below a directory whose file is `file`. If the index of the directory is damaged, each
    /// look-up may read as much as a listing does.
    fn read_names(&mut self, tree: &Tree<'_>, directory: u32, file: GuestFile) -> Result<(), GuestError> {
        let wanted: Vec<u32> = self.trie.children(directory).take(LOOK_UPS_MAX + 1).collect();
        let is_looked_up = wanted.len() <= LOOK_UPS_MAX;
        let steps = match is_looked_up {
            true => tree.look_up_steps(file) * wanted.len() as u64,
            false => tree.listing_steps(file),
        };
        let left = self.directory_steps_left.checked_sub(steps);
        self.directory_steps_left = left.ok_or(GuestError::Unsupported(TOO_LONG_TOGETHER))?;
        if is_looked_up {
            return self.look_up(tree, file, wanted);
        }
        tree.each_entry(file, &mut |entry, seen| {
            if let Some(name) = self.trie.child(directory, &entry.name) {
                self.found(tree, name, seen, entry.kind);
            }
            ControlFlow::Continue(())
        })
    }

    /// Looks up a few names in a directory whose file is `file`. A name that a listing does not contain is still looked
    /// up, because some file systems find names that differ in case.
    fn look_up(&mut self, tree: &Tree<'_>, file: GuestFile, mut wanted: Vec<u32>) -> Result<(), GuestError> {
        if tree.stat(file).is_ok_and(|stat| stat.size_bytes <= LISTED_BYTES_MAX) {
            tree.each_entry(file, &mut |entry, seen| {
                if let Some(at) = wanted.iter().position(|name| self.trie.text_of(*name) == entry.name) {
                    self.found(tree, wanted.swap_remove(at), seen, entry.kind);
                }
                if wanted.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        for name in wanted {
            if let Some(found) = tree.system(file.system).look_up(file.file, self.trie.text_of(name))? {
                let seen = tree.seen(GuestFile { system: file.system, file: found });
                self.found(tree, name, seen, None);
            }
        }
        Ok(())
    }

    /// Records the file of a name. Its kind is needed only where there are names below it.
    fn found(&mut self, tree: &Tree<'_>, name: u32, file: GuestFile, kind: Option<FileKind>) {
        let Some(name) = self.trie.name_mut(name) else { return };
        let has_names_below = name.has_children();
        let kind = kind.or_else(|| has_names_below.then(|| tree.stat(file).ok().map(|stat| stat.kind)).flatten());
        name.file = Some(file);
        name.kind = kind;
    }

    /// Moves the names below a symbolic link to its target. Returns the target directory.
    fn follow(&mut self, tree: &Tree<'_>, link: u32, problems: &ProblemLog) -> Option<u32> {
        let path = self.path(PathId(link));
        self.links_followed += 1;
        if self.links_followed > LINKS_MAX {
            problems.note(Problem::of_file(&path, "more symbolic links than are followed"));
            return None;
        }
        let found = problems.skip(&path, tree.find_within(&path, Links::Follow, &mut self.link_steps_left))?;
        if found.stat.kind != FileKind::Directory {
            return None;
        }
        self.last = LastPath::default();
        let Some(target) = self.add(&found.path).map(|id| self.trie.now(id.0)) else {
            problems.note(Problem::of_file(&path, "more paths than are looked up"));
            return None;
        };
        if let Some(into) = self.trie.name_mut(target) {
            (into.file, into.kind) = (Some(found.file), Some(FileKind::Directory));
        }
        if let Some(link) = self.trie.name_mut(link) {
            link.is_open = false;
        }
        if self.move_below(link, target).is_none() {
            problems.note(Problem::of_file(&path, "more paths than are looked up"));
        }
        Some(target)
    }

    /// Moves everything below `from` to `into`. Returns `None` if the set is full.
    fn move_below(&mut self, from: u32, into: u32) -> Option<()> {
        let mut ahead = vec![(from, into)];
        while let Some((from, into)) = ahead.pop() {
            if from == into {
                continue;
            }
            let children: Vec<u32> = self.trie.children(from).collect();
            for child in children {
                if self.trie.name(child).is_none_or(|name| name.is_moved()) {
                    continue;
                }
                let name = self.trie.text_of(child).to_vec();
                let new = self.trie.child_or_new(into, &name)?;
                let new = self.trie.now(new);
                if new != child
                    && let Some(moved) = self.trie.name_mut(child)
                {
                    moved.move_to(new);
                    ahead.push((child, new));
                }
            }
        }
        Some(())
    }
}
