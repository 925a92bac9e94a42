//! A tree with its pages, and the queries of the other tests.

use std::collections::BTreeMap;

use onefold_block::BlockNo;
use onefold_block::random::SeededRandom;

use super::super::{Key, TreeError, TreeFinding, TreeTotals, check, create, delete, get, insert};
use super::memory::{MemoryError, MemoryPages};

pub(super) struct Forest {
    pub(super) pages: MemoryPages,
    pub(super) root: BlockNo,
}

/// A problem that a check found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ForestProblem {
    Damage(TreeError),
    Unreadable(BlockNo),
}

impl Forest {
    pub(super) fn new() -> Forest {
        let mut pages = MemoryPages::default();
        let root = create(&mut pages).unwrap();
        pages.commit();
        Forest { pages, root }
    }

    /// Returns a tree of `count` items: ascending inode numbers, values of 0 to 300 bytes.
    pub(super) fn of_items(count: u64) -> Forest {
        let random = SeededRandom::new(count);
        let mut forest = Forest::new();
        for ino in 0..count {
            forest.insert(&inode(ino), &value(&random, 300));
        }
        forest
    }

    pub(super) fn insert(&mut self, key: &Key, value: &[u8]) -> bool {
        let existed = insert(&mut self.pages, &mut self.root, key, value).unwrap();
        self.pages.commit();
        existed
    }

    pub(super) fn delete(&mut self, key: &Key) -> bool {
        let existed = delete(&mut self.pages, &mut self.root, key).unwrap();
        self.pages.commit();
        existed
    }

    pub(super) fn get(&mut self, key: &Key) -> Option<Vec<u8>> {
        get(&mut self.pages, self.root, key).unwrap()
    }

    /// Returns all findings of a check: damage and content.
    pub(super) fn examine(&mut self) -> (TreeTotals, Vec<ForestProblem>, BTreeMap<Key, Vec<u8>>, Vec<BlockNo>) {
        let (mut wrong, mut items, mut found) = (Vec::new(), BTreeMap::new(), Vec::new());
        let totals = check(&mut self.pages, self.root, &mut |finding: TreeFinding<'_, MemoryError>| {
            match finding {
                TreeFinding::Page { at } => found.push(at),
                TreeFinding::Item { key, value } => assert_eq!(items.insert(key, value.to_vec()), None),
                TreeFinding::Damage(damage) => wrong.push(ForestProblem::Damage(damage)),
                TreeFinding::Unreadable { page, .. } => wrong.push(ForestProblem::Unreadable(page)),
            }
            Ok(())
        });
        found.sort_unstable();
        (totals.unwrap(), wrong, items, found)
    }

    /// Asserts that the tree is sound, no page is lost, and the content is `expected`.
    pub(super) fn assert_sound(&mut self, expected: &BTreeMap<Key, Vec<u8>>) -> TreeTotals {
        let (totals, wrong, items, found) = self.examine();
        assert_eq!(wrong, []);
        assert_eq!(found, self.pages.in_use());
        assert!(items == *expected, "{} items instead of {}", items.len(), expected.len());
        assert_eq!(totals.items, expected.len() as u64);
        totals
    }
}

pub(super) fn inode(ino: u64) -> Key {
    Key { ino, kind: 1, sub: 0 }
}

/// Returns a value of up to `bytes_max` random bytes.
pub(super) fn value(random: &SeededRandom, bytes_max: u64) -> Vec<u8> {
    let length = random.below(bytes_max + 1);
    (0..length).map(|_| random.next_u64().to_le_bytes()[0]).collect()
}
