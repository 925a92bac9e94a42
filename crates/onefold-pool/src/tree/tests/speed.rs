//! Measures how long operations over pages in memory take.

use std::hint::black_box;
use std::time::{Duration, Instant};

use onefold_block::random::SeededRandom;

use super::super::{Key, get_with, insert};
use super::forest::Forest;

const VALUE_BYTES: usize = 96;

struct Times {
    insert: Duration,
    get: Duration,
    touch: Duration,
}

/// Measures random inserts, gets and changes of eight bytes of a value, each over all of `count` items.
fn measure(count: u32) -> Times {
    let mut forest = Forest::new();
    let random = SeededRandom::new(1);
    let keys = (0..count).map(|_| Key { ino: random.next_u64(), kind: 1, sub: 0 }).collect::<Vec<_>>();
    let mut value = [0; VALUE_BYTES];

    let each = |forest: &mut Forest, operation: &mut dyn FnMut(&mut Forest, &Key)| {
        let start = Instant::now();
        for key in &keys {
            operation(forest, key);
            forest.pages.commit();
        }
        start.elapsed() / count
    };
    let insert_time = each(&mut forest, &mut |forest, key| {
        assert!(!insert(&mut forest.pages, &mut forest.root, key, &value).unwrap());
    });
    let get_time = each(&mut forest, &mut |forest, key| {
        let length = get_with(&mut forest.pages, forest.root, key, |value| black_box(value).len());
        assert_eq!(length, Ok(Some(VALUE_BYTES)));
    });
    value[40..48].fill(1);
    let touch_time = each(&mut forest, &mut |forest, key| {
        assert!(insert(&mut forest.pages, &mut forest.root, key, &value).unwrap());
    });
    Times { insert: insert_time, get: get_time, touch: touch_time }
}

#[test]
fn operations_take_less_than_a_disk_would() {
    // A bound that only an accidental walk over all items would break.
    let times = measure(5_000);
    assert!(times.insert.max(times.get).max(times.touch) < Duration::from_millis(1));
}

#[test]
#[ignore = "prints times, which only a quiet machine makes worth reading"]
fn times_at_a_hundred_thousand_items() {
    let times = measure(100_000);
    println!("insert {:?}, get {:?}, change of 8 bytes {:?}", times.insert, times.get, times.touch);
}
