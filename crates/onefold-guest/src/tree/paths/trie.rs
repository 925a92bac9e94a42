//! The names of a set of paths: each below another one, found by a hash of both.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use super::super::GuestFile;
use crate::filesystem::FileKind;

/// Names in a set, which take about 120 bytes each. A desktop with everything has 400,000.
const NAMES_MAX: usize = 1_000_000;
/// No directory has a longer name.
const NAME_BYTES_MAX: usize = 255;

/// The root, which has no name.
pub(super) const ROOT: u32 = 0;

/// Names in the order in which they were added. Each has a number.
#[derive(Debug)]
pub(super) struct Trie {
    names: Vec<Name>,
    text: Vec<u8>,
    /// The hash of parent and name, and the last name with it.
    index: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
    hasher: RandomState,
}

/// Passes on keys that are hashes already. They have a secret key, so that no guest can make them collide.
#[derive(Clone, Copy, Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A name below another one.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) parent: u32,
    start: usize,
    length: u8,
    /// Whether names below it were added that nobody has looked for.
    pub(super) is_open: bool,
    pub(super) kind: Option<FileKind>,
    pub(super) file: Option<GuestFile>,
    pub(super) first_child: Option<u32>,
    pub(super) next_sibling: Option<u32>,
    /// The next one with the same hash.
    next_equal: Option<u32>,
    /// The name that this one is now, since it was moved.
    pub(super) moved_to: Option<u32>,
}

impl Trie {
    /// Returns the root alone.
    pub(super) fn new() -> Trie {
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
        Trie { names: vec![root], text: Vec::new(), index: HashMap::default(), hasher: RandomState::new() }
    }

    /// Returns the number of a name below another one, which is added where it is not there. `None` where no directory
    /// has such a name, or the trie is full.
    pub(super) fn child_or_new(&mut self, parent: u32, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one((parent, text));
        if let Some(known) = self.child_of_hash(hash, parent, text) {
            return Some(known);
        }
        if self.is_full() || text.len() > NAME_BYTES_MAX || text == b".." {
            return None;
        }
        let number = u32::try_from(self.names.len()).ok()?;
        let length = u8::try_from(text.len()).ok()?;
        let next_sibling = self.name_mut(parent)?.first_child.replace(number);
        let next_equal = self.index.insert(hash, number);
        let start = self.text.len();
        self.text.extend_from_slice(text);
        self.open(parent);
        self.names.push(Name {
            parent,
            start,
            length,
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
        while let Some(name) = self.name_mut(at)
            && !std::mem::replace(&mut name.is_open, true)
        {
            at = name.parent;
        }
    }

    /// Returns the number of a name below another one, where it is there.
    pub(super) fn child(&self, parent: u32, text: &[u8]) -> Option<u32> {
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

    /// Returns the numbers of all names below another one.
    pub(super) fn children(&self, parent: u32) -> impl Iterator<Item = u32> {
        let first = self.name(parent).and_then(|name| name.first_child);
        std::iter::successors(first, |at| self.name(*at).and_then(|name| name.next_sibling))
    }

    /// Returns whether no further name has room.
    pub(super) fn is_full(&self) -> bool {
        self.names.len() >= NAMES_MAX
    }

    /// Returns what is known of a name.
    pub(super) fn name(&self, number: u32) -> Option<&Name> {
        self.names.get(number as usize)
    }

    /// Returns what is known of a name, to be changed.
    pub(super) fn name_mut(&mut self, number: u32) -> Option<&mut Name> {
        self.names.get_mut(number as usize)
    }

    /// Returns a name itself.
    pub(super) fn text_of(&self, number: u32) -> &[u8] {
        self.name(number)
            .and_then(|name| self.text.get(name.start..name.start + usize::from(name.length)))
            .unwrap_or_default()
    }

    /// Returns the number that a name has after it was moved.
    pub(super) fn now(&self, number: u32) -> u32 {
        let mut at = number;
        while let Some(moved_to) = self.name(at).and_then(|name| name.moved_to) {
            at = moved_to;
        }
        at
    }
}
