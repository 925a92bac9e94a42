//! Operations that are interrupted at every access in turn, rolled back and repeated.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use onefold_block::BlockNo;
use onefold_block::random::SeededRandom;

use super::super::{Key, delete, insert, scan};
use super::forest::{Forest, value};
use super::memory::{MemoryError, MemoryPages};

/// Runs `operation` with the first access refused, then the second, and so on until it succeeds. Asserts that each
/// failure leaves nothing behind. Returns the number of failures.
fn retry<R>(
    forest: &mut Forest,
    mut operation: impl FnMut(&mut MemoryPages, &mut BlockNo) -> Result<R, MemoryError>,
) -> (R, usize) {
    let (image, root) = (forest.pages.image(), forest.root);
    let mut failures = 0;
    loop {
        forest.pages.refuse_after(failures);
        match operation(&mut forest.pages, &mut forest.root) {
            Ok(result) => {
                forest.pages.commit();
                return (result, failures);
            }
            Err(error) => assert_eq!(error, MemoryError::Refused),
        }
        forest.pages.roll_back();
        assert_eq!(forest.root, root, "the root is told only when all is done");
        assert!(forest.pages.image() == image, "access {failures} left something behind");
        failures += 1;
    }
}

#[test]
fn operations_cut_short_anywhere_can_be_rolled_back_and_done_again() {
    let random = SeededRandom::new(1);
    let (mut forest, mut model) = (Forest::new(), BTreeMap::new());
    let mut failures_max = 0;
    for step in 0..1500 {
        let key = Key { ino: random.below(12), kind: 0, sub: random.below(12) };
        let deletes = if step / 300 % 2 == 0 { 20 } else { 75 };
        let failures = if random.below(100) < deletes {
            let (existed, failures) = retry(&mut forest, |pages, root| delete(pages, root, &key));
            assert_eq!(existed, model.remove(&key).is_some());
            failures
        } else {
            let value = value(&random, 1024);
            let (existed, failures) = retry(&mut forest, |pages, root| insert(pages, root, &key, &value));
            assert_eq!(existed, model.insert(key, value).is_some());
            failures
        };
        failures_max = failures_max.max(failures);
        forest.assert_sound(&model);
    }
    assert!(failures_max > 15, "no operation was long enough to prove anything: {failures_max}");
}

#[test]
fn splits_and_merges_of_all_levels_can_be_rolled_back() {
    let random = SeededRandom::new(2);
    let (mut forest, mut model) = (Forest::new(), BTreeMap::new());
    let new_item = || (Key { ino: random.next_u64(), kind: 1, sub: 0 }, vec![3; 900]);
    while forest.assert_sound(&model).levels < 3 {
        let (key, value) = new_item();
        forest.insert(&key, &value);
        model.insert(key, value);
    }
    while forest.assert_sound(&model).levels == 3 {
        let (key, _) = model.pop_last().unwrap();
        retry(&mut forest, |pages, root| delete(pages, root, &key));
    }
    while forest.assert_sound(&model).levels == 2 {
        let (key, value) = new_item();
        retry(&mut forest, |pages, root| insert(pages, root, &key, &value));
        model.insert(key, value);
    }
}

#[test]
fn scan_tried_again_shows_the_same() {
    let mut forest = Forest::of_items(300);
    let mut seen = Vec::new();
    let ((), failures) = retry(&mut forest, |pages, root| {
        seen.clear();
        let end = scan(pages, *root, .., |key, value| {
            seen.push((key, value.to_vec()));
            ControlFlow::<()>::Continue(())
        });
        end.map(drop)
    });
    assert!(failures > 10);
    assert_eq!(seen, forest.examine().2.into_iter().collect::<Vec<_>>());
}
