//! The names of a set of paths: each has a parent name, and is found by a hash of both.

use super::super::GuestFile;
use super::index::{HashIndex, NameHasher};
use crate::filesystem::FileKind;

/// Maximum number of names in a set. Each takes about 100 bytes. A complete desktop has 400,000.
const NAMES_MAX: usize = 1_000_000;
/// Maximum length of a name in a directory.
const NAME_BYTES_MAX: usize = 255;

/// The root, which has no name.
pub(super) const ROOT: u32 = 0;

/// Names in the order in which they were added. Each has a number.
#[derive(Debug)]
pub(super) struct Trie {
    names: Vec<Name>,
    text: Vec<u8>,
    /// Each name but the root, by the hash of its parent and text.
    index: HashIndex,
    hasher: NameHasher,
}

/// A name below another one.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) parent: u32,
    start: u32,
    length: u8,
    /// Whether names that were never looked up were added below it.
    pub(super) is_open: bool,
    pub(super) kind: Option<FileKind>,
    first_child: OptionalName,
    next_sibling: OptionalName,
    /// The current name after it was moved.
    moved_to: OptionalName,
    pub(super) file: Option<GuestFile>,
}

/// The number of a name, or none, in four bytes. There are so many names that their size matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OptionalName(u32);

impl OptionalName {
    const NONE: OptionalName = OptionalName(u32::MAX);

    fn get(self) -> Option<u32> {
        (self != OptionalName::NONE).then_some(self.0)
    }
}

impl Name {
    /// Returns a name of which only the place is known.
    fn new(parent: u32, start: u32, length: u8, next_sibling: OptionalName) -> Name {
        Name {
            parent,
            start,
            length,
            is_open: false,
            kind: None,
            first_child: OptionalName::NONE,
            next_sibling,
            moved_to: OptionalName::NONE,
            file: None,
        }
    }

    /// Returns whether there are names below it.
    pub(super) fn has_children(&self) -> bool {
        self.first_child != OptionalName::NONE
    }

    /// Returns whether it was moved.
    pub(super) fn is_moved(&self) -> bool {
        self.moved_to != OptionalName::NONE
    }

    /// Records that it is now another name.
    pub(super) fn move_to(&mut self, name: u32) {
        self.moved_to = OptionalName(name);
    }
}

impl Trie {
    /// Returns the root alone.
    pub(super) fn new() -> Trie {
        let root = Name { kind: Some(FileKind::Directory), ..Name::new(ROOT, 0, 0, OptionalName::NONE) };
        Trie { names: vec![root], text: Vec::new(), index: HashIndex::default(), hasher: NameHasher::new() }
    }

    /// Returns the number of a name below another one, and adds the name if necessary. Returns `None` if no directory
    /// can have such a name, or if the trie is full.
    pub(super) fn child_or_new(&mut self, parent: u32, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash(parent, text);
        if let Some(known) = self.child_of_hash(hash, parent, text) {
            return Some(known);
        }
        if self.is_full() || text.len() > NAME_BYTES_MAX || text == b".." {
            return None;
        }
        let number = u32::try_from(self.names.len()).ok()?;
        let start = u32::try_from(self.text.len()).ok()?;
        let length = u8::try_from(text.len()).ok()?;
        let next_sibling = std::mem::replace(&mut self.name_mut(parent)?.first_child, OptionalName(number));
        self.index.add(hash, number);
        self.text.extend_from_slice(text);
        self.open(parent);
        self.names.push(Name::new(parent, start, length, next_sibling));
        Some(number)
    }

    /// Marks a name and its parents: there is something to look up below.
    fn open(&mut self, name: u32) {
        let mut at = name;
        while let Some(name) = self.name_mut(at)
            && !std::mem::replace(&mut name.is_open, true)
        {
            at = name.parent;
        }
    }

    /// Returns the number of a name below another one, if it exists.
    pub(super) fn child(&self, parent: u32, text: &[u8]) -> Option<u32> {
        self.child_of_hash(self.hasher.hash(parent, text), parent, text)
    }

    fn child_of_hash(&self, hash: u32, parent: u32, text: &[u8]) -> Option<u32> {
        self.index
            .find(hash, |number| self.name(number).is_some_and(|name| name.parent == parent && self.text(name) == text))
    }

    /// Returns the numbers of all names below another one.
    pub(super) fn children(&self, parent: u32) -> impl Iterator<Item = u32> {
        let first = self.name(parent).and_then(|name| name.first_child.get());
        std::iter::successors(first, |at| self.name(*at).and_then(|name| name.next_sibling.get()))
    }

    /// Returns whether there is no room for another name.
    pub(super) fn is_full(&self) -> bool {
        self.names.len() >= NAMES_MAX
    }

    /// Returns the known facts about a name.
    pub(super) fn name(&self, number: u32) -> Option<&Name> {
        self.names.get(number as usize)
    }

    /// Returns the known facts about a name for changes.
    pub(super) fn name_mut(&mut self, number: u32) -> Option<&mut Name> {
        self.names.get_mut(number as usize)
    }

    /// Returns the text of a name.
    pub(super) fn text_of(&self, number: u32) -> &[u8] {
        self.name(number).map_or(&[], |name| self.text(name))
    }

    fn text(&self, name: &Name) -> &[u8] {
        let start = name.start as usize;
        self.text.get(start..start + usize::from(name.length)).unwrap_or_default()
    }

    /// Returns the current number of a name after moves.
    pub(super) fn now(&self, number: u32) -> u32 {
        let mut at = number;
        while let Some(moved_to) = self.name(at).and_then(|name| name.moved_to.get()) {
            at = moved_to;
        }
        at
    }
}
