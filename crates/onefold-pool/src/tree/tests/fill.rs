//! Tests how full pages are after long runs of one kind, and how few bytes a change edits.

use std::collections::BTreeMap;

use onefold_block::random::SeededRandom;

use super::super::node::BODY_BYTES;
use super::super::{Key, TreeTotals, VALUE_BYTES_MAX};
use super::forest::{Forest, inode, value};

const ITEMS: u64 = 100_000;

/// About the size of an inode.
const VALUE: [u8; 96] = [9; 96];

fn insert_all(inos: impl Iterator<Item = u64>) -> (Forest, TreeTotals) {
    let mut forest = Forest::new();
    for ino in inos {
        forest.insert(&inode(ino), &VALUE);
    }
    let expected = (0..ITEMS).map(|ino| (inode(ino), VALUE.to_vec())).collect();
    let totals = forest.assert_sound(&expected);
    (forest, totals)
}

fn percent_used(totals: &TreeTotals) -> u64 {
    totals.used_bytes * 100 / (totals.pages * BODY_BYTES as u64)
}

/// Returns all numbers below `ITEMS` in random order.
fn shuffled(seed: u64) -> Vec<u64> {
    let random = SeededRandom::new(seed);
    let mut inos = (0..ITEMS).collect::<Vec<_>>();
    for last in (1..inos.len()).rev() {
        inos.swap(last, usize::try_from(random.below(last as u64 + 1)).unwrap());
    }
    inos
}

#[test]
fn ascending_inserts_fill_pages() {
    let (_, totals) = insert_all(0..ITEMS);
    assert!(percent_used(&totals) >= 95, "{totals:?}");
    assert_eq!(totals.levels, 3);
}

#[test]
fn descending_inserts_half_fill_pages() {
    let (_, totals) = insert_all((0..ITEMS).rev());
    assert!(percent_used(&totals) >= 48, "{totals:?}");
}

#[test]
fn random_inserts_fill_two_thirds_of_pages() {
    let (_, totals) = insert_all(shuffled(1).into_iter());
    assert!(percent_used(&totals) >= 66, "{totals:?}");
}

#[test]
fn deleting_all_in_any_order_leaves_one_empty_page() {
    for order in [(0..ITEMS).collect(), (0..ITEMS).rev().collect(), shuffled(2)] {
        let (mut forest, _) = insert_all(0..ITEMS);
        for (done, ino) in order.into_iter().enumerate() {
            assert!(forest.delete(&inode(ino)));
            if done % 20_000 == 0 {
                assert_eq!(forest.examine().1, []);
            }
        }
        let totals = forest.assert_sound(&BTreeMap::new());
        assert_eq!(totals, TreeTotals { pages: 1, items: 0, used_bytes: 0, levels: 1 });
    }
}

#[test]
fn pages_stay_a_third_full_when_nine_of_ten_items_go() {
    let (mut forest, _) = insert_all(0..ITEMS);
    for ino in (0..ITEMS).filter(|ino| ino % 10 != 0) {
        forest.delete(&inode(ino));
    }
    let (totals, wrong, ..) = forest.examine();
    assert_eq!(wrong, []);
    assert!(percent_used(&totals) >= 33, "{totals:?}");
}

#[test]
fn last_page_is_not_filled_from_the_page_before_it() {
    let mut forest = Forest::new();
    for ino in 0..20_000 {
        forest.insert(&inode(ino), &VALUE);
        // The last page, which may hold nothing else, gets emptier.
        forest.insert(&inode(ino), &VALUE[..90]);
    }
    let (totals, wrong, ..) = forest.examine();
    assert_eq!(wrong, []);
    assert!(percent_used(&totals) >= 95, "{totals:?}");
}

#[test]
fn item_put_in_and_taken_out_again_leaves_no_dead_bytes() {
    let mut forest = Forest::of_items(20);
    forest.pages.bytes_edited = 0;
    for _ in 0..1000 {
        forest.insert(&inode(10_000), &VALUE);
        forest.delete(&inode(10_000));
    }
    // Cell, header and slot: the cost of a compacted page would show.
    assert!(forest.pages.bytes_edited < 1000 * 160, "{} bytes", forest.pages.bytes_edited);
}

#[test]
fn shrinking_values_merge_pages() {
    let random = SeededRandom::new(3);
    let mut forest = Forest::new();
    let mut expected = BTreeMap::new();
    for ino in 0..2000 {
        forest.insert(&inode(ino), &[1; VALUE_BYTES_MAX]);
    }
    let before = forest.examine().0;
    for ino in 0..2000 {
        let value = value(&random, 8);
        assert!(forest.insert(&inode(ino), &value));
        expected.insert(inode(ino), value);
    }
    let after = forest.assert_sound(&expected);
    assert!(after.pages * 20 < before.pages, "{after:?} from {before:?}");
}

#[test]
fn changing_a_time_edits_only_its_bytes() {
    let mut forest = Forest::of_items(1000);
    let mut value = VALUE;
    forest.insert(&inode(500), &value);
    (forest.pages.edits, forest.pages.bytes_edited) = (0, 0);

    value[40..48].copy_from_slice(&[1; 8]);
    assert!(forest.insert(&inode(500), &value));
    assert_eq!((forest.pages.edits, forest.pages.bytes_edited), (1, 8));

    assert!(forest.insert(&inode(500), &value));
    assert_eq!((forest.pages.edits, forest.pages.bytes_edited), (1, 8), "nothing has changed");
    assert_eq!(forest.get(&inode(500)).as_deref(), Some(&value[..]));
}

#[test]
fn inserts_edit_little_more_than_the_item() {
    let random = SeededRandom::new(4);
    let mut forest = Forest::new();
    for sub in shuffled(5) {
        forest.insert(&Key { ino: 1, kind: 2, sub }, &value(&random, 60));
    }
    let per_insert = forest.pages.bytes_edited / usize::try_from(ITEMS).unwrap();
    assert!(per_insert < 250, "{per_insert} bytes");
}
