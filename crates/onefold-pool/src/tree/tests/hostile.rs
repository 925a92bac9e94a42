//! Pages of random bytes, or with a few bytes changed: errors are fine, but panics, hangs and undetected damage are
//! not.

use std::ops::ControlFlow;

use onefold_block::random::SeededRandom;
use onefold_block::{BLOCK_BYTES, BlockNo};

use super::super::cells::{truncate, write_all};
use super::super::node::interior_cell;
use super::super::{Defect, Key, Pages, TreeError, delete, first_at_or_after, get, insert, last_before, scan};
use super::forest::{Forest, ForestProblem, inode, value};
use super::memory::{MemoryError, MemoryPages};

/// Runs operations of all kinds. They may fail, but must end.
fn exercise(forest: &mut Forest, random: &SeededRandom) {
    forest.examine_any();
    for _ in 0..20 {
        let key = if random.below(4) == 0 {
            Key { ino: random.next_u64(), kind: 1, sub: 0 }
        } else {
            inode(random.below(600))
        };
        let (pages, root) = (&mut forest.pages, &mut forest.root);
        let done = match random.below(6) {
            0 => get(pages, *root, &key).map(drop),
            1 => first_at_or_after(pages, *root, &key).map(drop),
            2 => last_before(pages, *root, &key).map(drop),
            3 => scan(pages, *root, key.., |_, _| ControlFlow::<()>::Continue(())).map(drop),
            4 => delete(pages, root, &key).map(drop),
            _ => insert(pages, root, &key, &value(random, 1024)).map(drop),
        };
        match done {
            Ok(()) => forest.pages.commit(),
            Err(_) => forest.pages.roll_back(),
        }
    }
}

impl Forest {
    /// Like `examine`, but items may appear twice.
    fn examine_any(&mut self) -> Vec<ForestProblem> {
        let mut wrong = Vec::new();
        super::super::check(&mut self.pages, self.root, &mut |finding| {
            match finding {
                super::super::TreeFinding::Damage(damage) => wrong.push(ForestProblem::Damage(damage)),
                super::super::TreeFinding::Unreadable { page, .. } => wrong.push(ForestProblem::Unreadable(page)),
                _ => {}
            }
            Ok(())
        })
        .unwrap();
        wrong
    }
}

/// Returns a copy of the tree, whose root keeps its number.
fn copy(sound: &Forest) -> Forest {
    Forest { pages: MemoryPages::of_image(&sound.pages.image()), root: sound.root }
}

fn any_page(forest: &Forest, random: &SeededRandom) -> BlockNo {
    let pages = forest.pages.in_use();
    pages[usize::try_from(random.below(pages.len() as u64)).unwrap()]
}

#[test]
fn pages_with_changed_bytes_never_panic_or_hang() {
    let random = SeededRandom::new(1);
    let sound = Forest::of_items(600);
    for _ in 0..4000 {
        let mut forest = copy(&sound);
        let page = any_page(&forest, &random);
        // Half of the changes hit the header and the first slots, which hold most of the meaning.
        let end = if random.below(2) == 0 { 64 } else { BLOCK_BYTES };
        for _ in 0..=random.below(4) {
            let place = 16 + random.below(end as u64 - 16);
            forest.pages.raw(page)[usize::try_from(place).unwrap()] = random.next_u64().to_le_bytes()[0];
        }
        exercise(&mut forest, &random);
    }
}

#[test]
fn pages_of_random_bytes_never_panic_or_hang() {
    let random = SeededRandom::new(2);
    let sound = Forest::of_items(600);
    for _ in 0..2000 {
        let mut forest = copy(&sound);
        let page = any_page(&forest, &random);
        let bytes = forest.pages.raw(page);
        for byte in &mut bytes[16..] {
            *byte = random.next_u64().to_le_bytes()[0];
        }
        // Without a plausible header, nothing else would ever be read.
        bytes[16..24].copy_from_slice(&[random.below(3).to_le_bytes()[0], 0, 200, 0, 0, 2, 0, 0]);
        exercise(&mut forest, &random);
    }
}

#[test]
fn every_page_swapped_for_another_is_noticed() {
    let random = SeededRandom::new(3);
    let sound = Forest::of_items(600);
    for _ in 0..200 {
        let mut forest = copy(&sound);
        let (from, to) = (any_page(&forest, &random), any_page(&forest, &random));
        // A leaf over the root makes a sound smaller tree; only its own address in the common header shows the mistake.
        if from == to || to == forest.root {
            continue;
        }
        let bytes = *forest.pages.raw(from);
        *forest.pages.raw(to) = bytes;
        assert_ne!(forest.examine_any(), [], "{from} over {to}");
        exercise(&mut forest, &random);
    }
}

/// Returns a tree in which every item of an interior level leads to the same page on the level below.
fn diamond(levels: u8) -> Forest {
    let mut forest = Forest::new();
    forest.insert(&inode(1), b"the only item");
    for level in 1..=levels {
        let below = forest.root;
        let cells = (0..100).map(|ino| interior_cell(&inode(ino * 2), below)).collect::<Vec<_>>();
        forest.root = forest.pages.allocate().unwrap();
        let cells = cells.iter().map(Vec::as_slice).collect::<Vec<_>>();
        write_all(&mut forest.pages, forest.root, level, &cells).unwrap();
    }
    forest
}

#[test]
fn pages_that_share_children_do_not_multiply_the_work() {
    // Followed blindly, 100 children on each of 11 levels are more paths than can ever be walked.
    let mut forest = diamond(11);
    assert_ne!(forest.examine_any(), []);
    let end = scan(&mut forest.pages, forest.root, .., |_, _| ControlFlow::<()>::Continue(()));
    assert!(matches!(end, Err(MemoryError::Tree(TreeError::Corrupt { what: Defect::KeyOrder { .. }, .. }))), "{end:?}");
    let end = scan(&mut forest.pages, forest.root, inode(1000).., |_, _| ControlFlow::<()>::Continue(()));
    assert_eq!(end, Ok(ControlFlow::Continue(())));
    exercise(&mut forest, &SeededRandom::new(4));
}

#[test]
fn page_that_is_its_own_child_is_an_error() {
    let mut forest = Forest::of_items(600);
    let root = forest.root;
    let cells = [interior_cell(&Key::MIN, root), interior_cell(&inode(300), root)];
    write_all(&mut forest.pages, root, 1, &[&cells[0], &cells[1]]).unwrap();
    let expected =
        Err(MemoryError::Tree(TreeError::Corrupt { page: root, what: Defect::Level { found: 1, expected: 0 } }));
    assert_eq!(get(&mut forest.pages, root, &inode(5)), expected);
}

/// The check names each deliberate defect. The byte offsets are those of the layout table.
#[test]
fn check_names_the_defect() {
    type Change = fn(&mut [u8; BLOCK_BYTES]);
    type DefectPredicate = fn(&Defect) -> bool;
    let cases: [(Change, DefectPredicate); 8] = [
        (|page| page[17] = 1, |what| matches!(what, Defect::Padding)),
        (|page| page[16] = 12, |what| matches!(what, Defect::LevelTooHigh { found: 12 })),
        (|page| page[16] = 1, |what| matches!(what, Defect::Level { found: 1, expected: 0 })),
        (|page| page[19] = 0xff, |what| matches!(what, Defect::Layout { .. })),
        (|page| page[18..20].fill(0), |what| matches!(what, Defect::TooFewItems { count: 0 })),
        (|page| page[24..26].fill(0), |what| matches!(what, Defect::CellBounds { index: 0 })),
        (|page| page.copy_within(24..26, 26), |what| matches!(what, Defect::CellOverlap { .. })),
        (|page| page[22] += 1, |what| matches!(what, Defect::Accounting { .. })),
    ];
    for (change, expected) in cases {
        let mut forest = Forest::of_items(600);
        let leaf = first_leaf(&mut forest);
        change(forest.pages.raw(leaf));
        let wrong = forest.examine_any();
        let is_expected = |wrong: &ForestProblem| matches!(wrong, ForestProblem::Damage(TreeError::Corrupt { page, what }) if *page == leaf && expected(what));
        assert!(wrong.iter().any(is_expected), "{wrong:?}");
    }
}

#[test]
fn check_names_a_page_that_is_too_empty() {
    let mut forest = Forest::of_items(600);
    let leaf = first_leaf(&mut forest);
    truncate(&mut forest.pages, leaf, 1).unwrap();
    let wrong = forest.examine_any();
    let is_underfull = |what: &Defect| matches!(what, Defect::Underfull { used_bytes } if *used_bytes < 350);
    assert!(
        matches!(&wrong[..], [ForestProblem::Damage(TreeError::Corrupt { page, what })] if *page == leaf && is_underfull(what))
    );
}

#[test]
fn check_names_a_child_with_an_impossible_number() {
    let mut forest = Forest::of_items(600);
    let (leaf, root) = (first_leaf(&mut forest), forest.root);
    let page = forest.pages.raw(root);
    let first_cell = usize::from(u16::from_le_bytes([page[24], page[25]]));
    page[first_cell + 17 + 6] = 1;
    let what = Defect::ChildNo { index: 0, found: leaf.0 + (1 << 48) };
    assert_eq!(forest.examine_any(), [ForestProblem::Damage(TreeError::Corrupt { page: root, what })]);
    assert_eq!(get(&mut forest.pages, root, &inode(0)), Err(MemoryError::Tree(what.of(root))));
}

#[test]
fn neighbours_that_are_one_page_are_not_merged() {
    let mut forest = Forest::new();
    for ino in 0..3 {
        forest.insert(&inode(ino), b"value");
    }
    let leaf = forest.root;
    forest.root = forest.pages.allocate().unwrap();
    let cells = [interior_cell(&Key::MIN, leaf), interior_cell(&inode(9), leaf)];
    write_all(&mut forest.pages, forest.root, 1, &[&cells[0], &cells[1]]).unwrap();
    let expected = MemoryError::Tree(Defect::SameChild { index: 0 }.of(forest.root));
    assert_eq!(delete(&mut forest.pages, &mut forest.root, &inode(1)), Err(expected));
}

#[test]
fn cell_in_the_gap_is_out_of_bounds() {
    let mut forest = Forest::of_items(3);
    let root = forest.root;
    // The page has only zeros, which would pass for an item without a value.
    forest.pages.raw(root)[24..26].copy_from_slice(&2000u16.to_le_bytes());
    let error = Defect::CellBounds { index: 0 }.of(root);
    assert!(forest.examine_any().contains(&ForestProblem::Damage(error)));
    assert_eq!(get(&mut forest.pages, root, &inode(0)), Err(MemoryError::Tree(error)));
}

#[test]
fn check_names_a_first_separator_which_is_not_the_pages_own() {
    let mut forest = Forest::of_items(600);
    let root = forest.root;
    let page = forest.pages.raw(root);
    let first_cell = usize::from(u16::from_le_bytes([page[24], page[25]]));
    page[first_cell + 8] = 1;
    assert_eq!(forest.examine_any(), [ForestProblem::Damage(Defect::KeyRange { index: 0 }.of(root))]);
}

#[test]
fn check_names_keys_out_of_order_and_out_of_range() {
    let mut forest = Forest::of_items(600);
    let leaf = first_leaf(&mut forest);
    let page = forest.pages.raw(leaf);
    let slots = [page[24], page[25], page[26], page[27]];
    page[24..28].copy_from_slice(&[slots[2], slots[3], slots[0], slots[1]]);
    let damage = |what| ForestProblem::Damage(TreeError::Corrupt { page: leaf, what });
    assert_eq!(forest.examine_any(), [damage(Defect::KeyOrder { index: 1 })]);

    let cell = usize::from(u16::from_le_bytes([slots[0], slots[1]]));
    let page = forest.pages.raw(leaf);
    page[24..28].copy_from_slice(&slots);
    page[cell] = 0xff;
    assert_eq!(forest.examine_any(), [damage(Defect::KeyRange { index: 0 })]);
}

#[test]
fn check_goes_on_beside_a_page_that_cannot_be_read() {
    let mut forest = Forest::of_items(600);
    let items = forest.examine().2.len();
    let leaf = first_leaf(&mut forest);
    forest.pages.free(leaf).unwrap();
    let (totals, wrong, ..) = forest.examine();
    assert_eq!(wrong, [ForestProblem::Unreadable(leaf)]);
    assert!(totals.items > 500 && totals.items < items as u64, "{totals:?} of {items}");
}

/// Returns the leaf of the lowest keys: ascending inserts never move it.
fn first_leaf(forest: &mut Forest) -> BlockNo {
    let first = BlockNo(0);
    assert_ne!(forest.root, first);
    assert_eq!(forest.pages.raw(first)[16], 0);
    first
}
