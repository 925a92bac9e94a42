//! The names tree on damaged pages, without a pool around it.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;

use onefold_block::{BLOCK_BYTES, BlockNo};
use onefold_pool::format::BlockBytes;
use onefold_pool::tree::{self, Key, Pages, TreeError, TreeFinding};

use crate::Choices;

/// Maximum number of pages that one operation may touch; more count as a hang. The sound tree has a dozen.
const TOUCHES_MAX: usize = 100_000;

/// Number of items of the sound tree: enough for three levels.
const ITEMS: u64 = 250;

/// Pages in memory, any of which may hold anything.
#[derive(Clone, Default)]
struct AnyPages {
    pages: BTreeMap<BlockNo, BlockBytes>,
    next: u64,
    touches: usize,
}

/// Why a page is unavailable.
#[derive(Debug, thiserror::Error)]
enum PageError {
    #[error("there is no such page")]
    Missing,
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl AnyPages {
    fn touch(&mut self, at: BlockNo) -> Result<&mut BlockBytes, PageError> {
        self.touches += 1;
        assert!(self.touches <= TOUCHES_MAX, "an operation on a tree does not end");
        self.pages.get_mut(&at).ok_or(PageError::Missing)
    }
}

impl Pages for AnyPages {
    type Error = PageError;

    fn page(&mut self, at: BlockNo) -> Result<&[u8; BLOCK_BYTES], PageError> {
        Ok(self.touch(at)?)
    }

    fn edit(&mut self, at: BlockNo, range: Range<usize>) -> Result<&mut [u8], PageError> {
        assert!(range.start >= 16 && !range.is_empty(), "an edit of {range:?}");
        Ok(&mut self.touch(at)?[range])
    }

    fn allocate(&mut self) -> Result<BlockNo, PageError> {
        self.next += 1;
        self.pages.insert(BlockNo(self.next), [0; BLOCK_BYTES]);
        Ok(BlockNo(self.next))
    }

    fn free(&mut self, at: BlockNo) -> Result<(), PageError> {
        self.pages.remove(&at).map(drop).ok_or(PageError::Missing)
    }
}

/// Returns a sound tree of a few levels, with its root.
fn sound() -> &'static (AnyPages, BlockNo) {
    static SOUND: OnceLock<(AnyPages, BlockNo)> = OnceLock::new();
    SOUND.get_or_init(|| {
        let mut pages = AnyPages::default();
        let mut root = tree::create(&mut pages).expect("pages are made on demand");
        for number in 0..ITEMS {
            let value = vec![number.to_le_bytes()[0]; 900];
            tree::insert(&mut pages, &mut root, &key(number), &value).expect("a sound tree takes items");
        }
        (pages, root)
    })
}

fn key(number: u64) -> Key {
    Key { ino: number / 3, kind: 1, sub: number % 3 }
}

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let (mut pages, mut root) = sound().clone();
    pages.touches = 0;
    damage(&mut choices, &mut pages);
    let mut numbers = Vec::new();
    while !choices.is_used_up() {
        numbers.push((choices.byte(), choices.below(ITEMS + 50)));
    }
    examine(&mut pages, root);
    for (what, number) in numbers.into_iter().take(40) {
        // The owner of the pages restores them after an error.
        let before = pages.clone();
        let old_root = root;
        let done = match what % 7 {
            0 => tree::get(&mut pages, root, &key(number)).map(drop),
            1 => tree::first_at_or_after(&mut pages, root, &key(number)).map(drop),
            2 => tree::last_before(&mut pages, root, &key(number)).map(drop),
            3 => tree::scan(&mut pages, root, key(number).., |_, _| ControlFlow::<()>::Continue(())).map(drop),
            4 | 5 => tree::delete(&mut pages, &mut root, &key(number)).map(drop),
            _ => tree::insert(&mut pages, &mut root, &key(number), &[7; 700]).map(drop),
        };
        if done.is_err() {
            (pages, root) = (before, old_root);
        }
        pages.touches = 0;
    }
    examine(&mut pages, root);
}

fn damage(choices: &mut Choices<'_>, pages: &mut AnyPages) {
    let all: Vec<BlockNo> = pages.pages.keys().copied().collect();
    for _ in 0..=choices.below(4) {
        let at = *choices.one_of(&all);
        let other = *choices.one_of(&all);
        let copy = pages.pages[&other];
        let Some(page) = pages.pages.get_mut(&at) else { continue };
        let cell = usize::from(u16::from_le_bytes([page[24], page[25]])).min(BLOCK_BYTES - 32);
        let (first, length) = match choices.below(6) {
            0 => (16, 8),
            1 => (24 + 2 * choices.index(8), 2),
            2 => (cell, 25),
            3 => {
                // A child that is named twice, or that leads back up.
                page[cell + 17..cell + 25].copy_from_slice(&other.0.to_le_bytes());
                continue;
            }
            4 => {
                *page = copy;
                continue;
            }
            _ => (16 + choices.index(BLOCK_BYTES - 32), 8),
        };
        let at = first + choices.index(length);
        page[at] = choices.byte();
    }
}

fn examine(pages: &mut AnyPages, root: BlockNo) {
    let mut found = 0;
    let _ = tree::check(pages, root, &mut |_: TreeFinding<'_, PageError>| {
        found += 1;
        assert!(found <= TOUCHES_MAX, "a check of a tree does not end");
        Ok(())
    });
    pages.touches = 0;
}
