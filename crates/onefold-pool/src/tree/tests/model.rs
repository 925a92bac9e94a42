//! Random operations on the tree and on a `BTreeMap`, compared after each.

use std::collections::BTreeMap;

use onefold_block::random::SeededRandom;

use super::super::{Key, TreeError, VALUE_BYTES_MAX, first_at_or_after, insert, last_before};
use super::forest::{Forest, value};
use super::memory::MemoryError;

struct Workload {
    seed: u64,
    steps: usize,
    /// Number of inode numbers, and of `sub`s, from which keys are drawn.
    spread: u64,
    value_bytes_max: u64,
    /// Percentage of deletes among the operations; it swings by 30 so that the tree grows and shrinks.
    deletes: u64,
    steps_between_checks: usize,
}

fn run(workload: &Workload) {
    let random = SeededRandom::new(workload.seed);
    let (mut forest, mut model) = (Forest::new(), BTreeMap::new());
    for step in 0..workload.steps {
        let key = Key { ino: random.below(workload.spread), kind: 0, sub: random.below(workload.spread) };
        let swing = if (step / 2000) % 2 == 0 { 0 } else { 30 };
        if random.below(100) < workload.deletes + swing {
            assert_eq!(forest.delete(&key), model.remove(&key).is_some(), "step {step}");
        } else {
            let value = value(&random, workload.value_bytes_max);
            assert_eq!(forest.insert(&key, &value), model.insert(key, value).is_some(), "step {step}");
        }
        compare_around(&mut forest, &model, &key);
        if step % workload.steps_between_checks == 0 {
            forest.assert_sound(&model);
        }
    }
    forest.assert_sound(&model);
}

fn compare_around(forest: &mut Forest, model: &BTreeMap<Key, Vec<u8>>, key: &Key) {
    assert_eq!(forest.get(key).as_ref(), model.get(key));
    let own = |(key, value): (&Key, &Vec<u8>)| (*key, value.clone());
    let (pages, root) = (&mut forest.pages, forest.root);
    assert_eq!(first_at_or_after(pages, root, key).unwrap(), model.range(key..).next().map(own));
    assert_eq!(last_before(pages, root, key).unwrap(), model.range(..key).next_back().map(own));
}

#[test]
fn small_values_do_as_in_a_map() {
    run(&Workload { seed: 1, steps: 20_000, spread: 60, value_bytes_max: 40, deletes: 35, steps_between_checks: 97 });
}

#[test]
fn big_values_do_as_in_a_map() {
    let value_bytes_max = VALUE_BYTES_MAX as u64;
    run(&Workload { seed: 2, steps: 20_000, spread: 40, value_bytes_max, deletes: 35, steps_between_checks: 97 });
}

#[test]
fn empty_values_do_as_in_a_map() {
    run(&Workload { seed: 3, steps: 20_000, spread: 80, value_bytes_max: 0, deletes: 35, steps_between_checks: 97 });
}

#[test]
fn tree_that_is_often_nearly_empty_does_as_a_map() {
    run(&Workload { seed: 4, steps: 20_000, spread: 6, value_bytes_max: 1024, deletes: 45, steps_between_checks: 7 });
}

#[test]
fn tree_of_three_levels_does_as_a_map() {
    let spread = 1000;
    run(&Workload { seed: 5, steps: 30_000, spread, value_bytes_max: 700, deletes: 10, steps_between_checks: 5000 });
}

#[test]
fn longest_value_is_taken_and_a_longer_one_refused() {
    let mut forest = Forest::new();
    let longest = vec![7; VALUE_BYTES_MAX];
    for sub in 0..10 {
        forest.insert(&Key { ino: 1, kind: 1, sub }, &longest);
    }
    assert_eq!(forest.get(&Key { ino: 1, kind: 1, sub: 9 }), Some(longest));

    let too_long = insert(&mut forest.pages, &mut forest.root, &Key::MIN, &vec![7; VALUE_BYTES_MAX + 1]);
    assert_eq!(too_long, Err(MemoryError::Tree(TreeError::ValueTooLong { bytes: VALUE_BYTES_MAX + 1 })));
}

#[test]
fn lowest_and_highest_key_are_keys_like_any_other() {
    let mut forest = Forest::of_items(500);
    assert!(forest.delete(&Key { ino: 0, kind: 1, sub: 0 }));
    forest.insert(&Key::MIN, b"low");
    forest.insert(&Key::MAX, b"high");
    assert_eq!(forest.get(&Key::MIN).as_deref(), Some(&b"low"[..]));
    assert_eq!(forest.get(&Key::MAX).as_deref(), Some(&b"high"[..]));
    assert!(forest.delete(&Key::MIN) && forest.delete(&Key::MAX));
    assert_eq!(forest.get(&Key::MIN), None);
}
