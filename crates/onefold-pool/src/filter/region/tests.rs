//! Tests of regions of every shape, and of every way in which one can be damaged.

use super::*;
use onefold_block::random::SeededRandom;

const PAGES: u64 = 1 << 20;

/// Returns the words of region 7 with these entries in this shape, without spare words.
fn encoded(shape: RegionShape, entries: &[RegionEntry]) -> Vec<u64> {
    let mut words = vec![u64::MAX; shape.words()];
    words[0] = 7;
    encode(&mut words, shape, entries);
    words
}

fn random_entries(random: &SeededRandom, count: u64, remainder_bits: u32, pages: u64) -> Vec<RegionEntry> {
    let remainder = || random.next_u64() & packed::mask(remainder_bits);
    let mut entries: Vec<RegionEntry> =
        (0..count).map(|_| RegionEntry { remainder: remainder(), page: random.below(pages) }).collect();
    entries.sort_unstable();
    entries
}

#[test]
fn entries_come_out_as_they_went_in_whatever_the_widths() {
    let random = SeededRandom::new(1);
    for remainder_bits in [0, 1, 5, 9, 16, 34, 56] {
        for bucket_bits_max in [0, 1, 4, 56] {
            for (count, pages) in [(1, 1), (2, 2), (63, 1 << 20), (64, 3), (65, u64::MAX), (700, 1 << 21)] {
                let entries = random_entries(&random, count, remainder_bits, pages);
                let shape = RegionShape::fitting(&entries, remainder_bits, bucket_bits_max);
                let words = encoded(shape, &entries);
                assert_eq!(RegionShape::read(&words, remainder_bits), shape);
                assert!(shape.is_possible(bucket_bits_max));
                assert_eq!(Region::check(&words, shape, pages), Ok(()), "{shape:?}");
                let mut unpacked = Vec::new();
                Region::new(&words, shape).unpack(&mut unpacked);
                assert_eq!(unpacked, entries, "{shape:?}");
                assert_eq!(number(&words), 7);
            }
        }
    }
}

#[test]
fn inserting_one_by_one_and_removing_again_gives_the_same_words_as_writing_all_at_once() {
    let random = SeededRandom::new(2);
    for (remainder_bits, bucket_bits) in [(16, 5), (16, 0), (5, 5), (3, 1), (40, 7), (0, 0)] {
        let entries = random_entries(&random, 200, remainder_bits, PAGES);
        let shape = RegionShape { count: 0, bucket_bits, page_bits: 20, remainder_bits };
        let room = shape.with_count(entries.len()).words();
        let mut words = encoded(shape, &[]);
        words.resize(room, 0);

        let mut order: Vec<(u64, RegionEntry)> = entries.iter().map(|&entry| (random.next_u64(), entry)).collect();
        order.sort_unstable();
        let mut steps = Vec::new();
        for (count, &(_, entry)) in order.iter().enumerate() {
            steps.push(words.clone());
            assert!(insert(&mut words, shape.with_count(count), entry));
        }
        assert_eq!(words, encoded(shape.with_count(entries.len()), &entries));

        for (count, &(_, entry)) in order.iter().enumerate().rev() {
            let absent = RegionEntry { page: PAGES + 1, ..entry };
            assert!(!remove(&mut words, shape.with_count(count + 1), absent));
            assert!(remove(&mut words, shape.with_count(count + 1), entry));
            // Equal entries may have been removed in another order, which leaves the same words.
            assert_eq!(words, steps[count], "after {count} were left");
        }
    }
}

#[test]
fn the_shape_follows_the_number_of_entries() {
    let of = |count: u64| {
        let entries: Vec<RegionEntry> = (0..count).map(|remainder| RegionEntry { remainder, page: 5 }).collect();
        RegionShape::fitting(&entries, 20, 9)
    };
    let bucket_bits: Vec<u32> = [1, 2, 3, 4, 5, 512, 600].iter().map(|&count| of(count).bucket_bits).collect();
    assert_eq!(bucket_bits, [0, 1, 2, 2, 3, 9, 9]);
    assert_eq!(of(3).page_bits, 3);
    assert!(of(3).suits_one_more(7, 9), "three entries in four buckets");
    assert!(!of(4).suits_one_more(7, 9), "five entries want eight buckets");
    assert!(of(512).suits_one_more(7, 9), "no more buckets are allowed");
    assert!(!of(3).suits_one_more(8, 9), "the page is wider than the others");
    assert!(!of(512).with_count(128).is_sparse() && of(512).with_count(127).is_sparse());
}

#[test]
fn impossible_widths_are_told() {
    let shape = RegionShape { count: 1, bucket_bits: 3, page_bits: 64, remainder_bits: 10 };
    assert!(shape.is_possible(3));
    assert!(!shape.is_possible(2));
    assert!(!RegionShape { page_bits: 65, ..shape }.is_possible(3));
    assert!(!RegionShape { remainder_bits: 2, ..shape }.is_possible(3));
    assert!(!RegionShape { bucket_bits: 40, remainder_bits: 50, ..shape }.is_possible(50));
    assert!(!RegionShape { bucket_bits: 255, remainder_bits: 255, ..shape }.is_possible(255));
}

#[test]
fn each_kind_of_damage_is_told() {
    let entries = [(3, 9), (3, 10), (17, 2), (40, 4)].map(|(remainder, page)| RegionEntry { remainder, page });
    let shape = RegionShape::fitting(&entries, 6, 6);
    let sound = encoded(shape, &entries);
    let fault_of = |word: usize, bit: u32| {
        let mut words = sound.clone();
        words[word] ^= 1 << bit;
        Region::check(&words, shape, 11).unwrap_err()
    };
    // Four entries in four buckets: 00101011 from the lowest bit on.
    assert_eq!(sound[1], 0b1101_0100);
    assert_eq!(fault_of(1, 0), RegionFault::Bitmap, "a bucket too many");
    assert_eq!(fault_of(1, 63), RegionFault::Bitmap, "a bit past the end");
    // Tags and pages of four bits each.
    assert_eq!(sound[2], 0x48_21_a3_93);
    assert_eq!(fault_of(2, 3), RegionFault::Order, "the first tag above the second");
    assert_eq!(fault_of(2, 40), RegionFault::Unused);
    assert_eq!(Region::check(&sound, shape, 10), Err(RegionFault::Page(StorePageNo(10))));
}

#[test]
fn a_bucket_takes_no_more_than_its_share() {
    let same = RegionEntry { remainder: 5, page: 1 };
    let entries = vec![same; BUCKET_ENTRIES_MAX];
    let shape = RegionShape { count: entries.len(), bucket_bits: 3, page_bits: 1, remainder_bits: 4 };
    let mut words = encoded(shape, &entries);
    words.resize(words.len() + 8, 0);
    let before = words.clone();
    assert!(Region::new(&words, shape).is_bucket_full(5));
    assert!(!insert(&mut words, shape, same));
    assert_eq!(words, before);
    assert!(insert(&mut words, shape, RegionEntry { remainder: 6, page: 1 }));
}
