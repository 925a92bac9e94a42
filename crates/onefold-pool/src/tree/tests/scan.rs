//! Scans over ranges.

use std::ops::{Bound, ControlFlow};

use onefold_block::random::SeededRandom;

use super::super::{Key, first_at_or_after, get_with, last_before, scan};
use super::forest::{Forest, inode};

/// Returns a tree of the even inode numbers below 4000.
fn evens() -> Forest {
    let mut forest = Forest::new();
    for half in 0..2000 {
        forest.insert(&inode(2 * half), &[half.to_le_bytes()[0]; 90]);
    }
    forest
}

fn inos(forest: &mut Forest, range: (Bound<Key>, Bound<Key>)) -> Vec<u64> {
    let mut inos = Vec::new();
    let end = scan(&mut forest.pages, forest.root, range, |key, _| {
        inos.push(key.ino);
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(end, Ok(ControlFlow::Continue(())));
    inos
}

#[test]
fn scan_shows_what_is_in_range_in_order() {
    let random = SeededRandom::new(1);
    let mut forest = evens();
    let all = (0..4000).step_by(2).collect::<Vec<u64>>();
    for _ in 0..2000 {
        let (low, high) = (random.below(4010), random.below(4010));
        let bound = |ino| match random.below(3) {
            0 => Bound::Included(inode(ino)),
            1 => Bound::Excluded(inode(ino)),
            _ => Bound::Unbounded,
        };
        let range = (bound(low), bound(high));
        let is_in = |ino: &u64| std::ops::RangeBounds::contains(&range, &inode(*ino));
        let expected = all.iter().copied().filter(is_in).collect::<Vec<_>>();
        assert_eq!(inos(&mut forest, range), expected, "{range:?}");
    }
}

#[test]
fn scan_of_an_empty_tree_shows_nothing() {
    let mut forest = Forest::new();
    assert_eq!(inos(&mut forest, (Bound::Unbounded, Bound::Unbounded)), []);
    assert_eq!(first_at_or_after(&mut forest.pages, forest.root, &Key::MIN), Ok(None));
    assert_eq!(last_before(&mut forest.pages, forest.root, &Key::MAX), Ok(None));
}

#[test]
fn scan_stops_where_the_visitor_breaks() {
    let mut forest = evens();
    let mut seen = 0;
    let end = scan(&mut forest.pages, forest.root, inode(1001).., |key, _| {
        seen += 1;
        if seen == 100 { ControlFlow::Break(key.ino) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(end, Ok(ControlFlow::Break(1002 + 2 * 99)));
}

#[test]
fn scan_reads_no_page_past_its_range() {
    let mut forest = evens();
    for ino in (0..4000).step_by(2) {
        // The root, the leaf (three times), and the root once more, to see that the next leaf is past the range.
        forest.pages.refuse_after(5);
        assert_eq!(inos(&mut forest, (Bound::Included(inode(ino)), Bound::Excluded(inode(ino + 1)))), [ino]);
        forest.pages.commit();
    }
}

#[test]
fn get_with_lends_the_value() {
    let mut forest = evens();
    assert_eq!(get_with(&mut forest.pages, forest.root, &inode(10), |value| value.len()), Ok(Some(90)));
    assert_eq!(get_with(&mut forest.pages, forest.root, &inode(11), |value| value.len()), Ok(None));
}
