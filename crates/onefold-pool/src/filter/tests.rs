//! Tests of the whole filter against a plain multiset.

use std::collections::BTreeMap;

use super::*;
use onefold_block::random::SeededRandom;

const PAGES: u64 = 5000;

pub(super) fn options(blocks_max: u64) -> FilterOptions {
    FilterOptions { blocks_max, pages: PAGES, memory_bytes_max: u64::MAX, index_bits: None, tag_bits: None }
}

/// Returns fingerprint `number` of a family: as uniform as those of a keyed hash, and reproducible.
pub(super) fn fingerprint(family: u64, number: u64) -> Fingerprint {
    let random = SeededRandom::new(number.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ family << 56);
    let mut bytes = [0; 16];
    onefold_block::Random::fill(&random, &mut bytes).unwrap();
    Fingerprint(bytes)
}

/// The filter's uncompressed model: how often each prefix and page were inserted.
struct Model {
    prefix_bits: u32,
    entries: BTreeMap<(u64, StorePageNo), u64>,
    entry_count: u64,
}

impl Model {
    fn of(filter: &Filter) -> Model {
        Model { prefix_bits: filter.geometry.prefix_bits, entries: BTreeMap::new(), entry_count: 0 }
    }

    fn key(&self, fingerprint: Fingerprint) -> u64 {
        fingerprint.prefix_u64() >> (64 - self.prefix_bits)
    }

    fn insert(&mut self, fingerprint: Fingerprint, page: StorePageNo) {
        *self.entries.entry((self.key(fingerprint), page)).or_default() += 1;
        self.entry_count += 1;
    }

    fn remove(&mut self, fingerprint: Fingerprint, page: StorePageNo) -> bool {
        let key = (self.key(fingerprint), page);
        let Some(count) = self.entries.get_mut(&key) else { return false };
        *count -= 1;
        self.entry_count -= 1;
        if *count == 0 {
            self.entries.remove(&key);
        }
        true
    }

    fn candidates(&self, fingerprint: Fingerprint) -> Vec<StorePageNo> {
        let key = self.key(fingerprint);
        self.entries.range((key, StorePageNo(0))..=(key, StorePageNo(u64::MAX))).map(|(&(_, page), _)| page).collect()
    }
}

/// Runs random inserts, removes and look-ups on a filter and on the model, and compares after each.
fn compare_with_model(options: &FilterOptions, seed: u64, rounds: u64, family_size: u64) {
    let random = SeededRandom::new(seed);
    let mut filter = Filter::new(options);
    let mut model = Model::of(&filter);
    let mut pages = options.pages;
    for round in 0..rounds {
        // The mix alternates between filling and emptying.
        let inserts_of_ten = [7, 3, 7, 3][usize::try_from(4 * round / rounds).unwrap()];
        let fingerprint = fingerprint(seed, random.below(family_size));
        let page = StorePageNo(random.below(pages) >> random.below(13));
        if random.below(10) < inserts_of_ten {
            match filter.insert(fingerprint, page) {
                Coverage::Indexed => model.insert(fingerprint, page),
                Coverage::Refused => assert!(options.memory_bytes_max < u64::MAX, "seed {seed} round {round}"),
            }
        } else {
            // Now and then a page that does not hold the fingerprint.
            let known = model.candidates(fingerprint);
            let any = usize::try_from(random.below(known.len() as u64 + 1)).unwrap();
            let page = known.get(any).copied().unwrap_or(page);
            assert_eq!(filter.remove(fingerprint, page), model.remove(fingerprint, page), "seed {seed} round {round}");
        }
        let found: Vec<StorePageNo> = filter.candidates(fingerprint).into_iter().collect();
        assert_eq!(found, model.candidates(fingerprint), "seed {seed} round {round}");
        assert_eq!(filter.entry_count(), model.entry_count, "seed {seed} round {round}");
        if random.below(rounds) < 20 {
            filter.check().unwrap_or_else(|fault| panic!("seed {seed} round {round}: {fault}"));
            pages += pages / 3;
            filter.grow(pages);
        }
    }
    for number in 0..family_size {
        let fingerprint = fingerprint(seed, number);
        let found: Vec<StorePageNo> = filter.candidates(fingerprint).into_iter().collect();
        assert_eq!(found, model.candidates(fingerprint), "seed {seed} at the end");
    }
    let all: Vec<Fingerprint> = (0..family_size).map(|number| fingerprint(seed, number)).collect();
    for (found, &sought) in filter.candidates_each(&all).iter().zip(&all) {
        assert!(found.iter().eq(model.candidates(sought)), "seed {seed}: many at a time");
    }
    assert_eq!(filter.candidates_each(&all).len(), all.len());
    let left = model.entries.iter().flat_map(|(&(key, page), &count)| {
        let bytes = u128::from(key << (64 - model.prefix_bits)) << 64;
        (0..count).map(move |_| (Fingerprint(bytes.to_be_bytes()), page))
    });
    let left: Vec<(Fingerprint, StorePageNo)> = left.collect();
    let (many, single) = left.split_at(left.len() / 2);
    filter.remove_each(many);
    assert_eq!(filter.entry_count(), single.len() as u64, "seed {seed}: many at a time");
    for &(fingerprint, page) in single {
        assert!(filter.remove(fingerprint, page), "seed {seed}: an entry was lost");
    }
    assert_eq!(filter.entry_count(), 0);
    filter.check().unwrap();
}

#[test]
fn random_work_leaves_what_a_multiset_would_hold() {
    for seed in 0..4 {
        compare_with_model(&options(20_000), seed, 60_000, 15_000);
    }
}

#[test]
fn overfull_buckets_and_equal_fingerprints_lose_nothing() {
    for (seed, index_bits, tag_bits) in [(10, 0, 14), (11, 2, 12), (12, 6, 1), (13, 0, 0), (14, 19, 24), (15, 40, 16)] {
        let few = FilterOptions { index_bits: Some(index_bits), tag_bits: Some(tag_bits), ..options(1 << 13) };
        compare_with_model(&few, seed, 20_000, 4000);
        compare_with_model(&few, seed + 100, 20_000, 3);
    }
    // Prefixes of very few bits: regions cannot be split any more and grow instead.
    compare_with_model(&options(1), 16, 20_000, 4000);
}

#[test]
fn at_the_limit_of_memory_entries_are_refused_and_none_is_lost() {
    for (seed, limit) in [(20, 100_000), (21, 150_000), (22, 47_000), (23, 1000), (24, 0)] {
        let limited = FilterOptions { memory_bytes_max: limit, ..options(100_000) };
        compare_with_model(&limited, seed, 60_000, 50_000);
    }
    let limited = FilterOptions { memory_bytes_max: 400_000, ..options(1 << 20) };
    let mut filter = Filter::new(&limited);
    for number in 0..300_000 {
        let _ = filter.insert(fingerprint(1, number), StorePageNo(number % PAGES));
        assert!(filter.memory_bytes() <= limited.memory_bytes_max);
    }
    filter.check().unwrap();
    assert_eq!(filter.entry_count() + filter.refused_count(), 300_000);
    assert!(filter.entry_count() > 80_000, "{} entries in 400 kB", filter.entry_count());
    for number in 0..300_000 {
        filter.remove(fingerprint(1, number), StorePageNo(number % PAGES));
    }
    assert_eq!((filter.entry_count(), filter.refused_count()), (0, 0));
}

#[test]
fn a_fingerprint_that_very_many_blocks_bear_is_refused_in_the_end_and_harms_no_other() {
    let mut filter = Filter::new(&options(1 << 20));
    let common = fingerprint(1, 0);
    for number in 0..70_000 {
        let _ = filter.insert(common, StorePageNo(number % PAGES));
    }
    for number in 1..20_000 {
        assert_eq!(filter.insert(fingerprint(1, number), StorePageNo(number % PAGES)), Coverage::Indexed);
    }
    filter.check().unwrap();
    assert_eq!(filter.refused_count(), 70_000 - 4096);
    assert_eq!(filter.candidates(common).len(), 4096);
    for number in 1..20_000 {
        assert!(filter.remove(fingerprint(1, number), StorePageNo(number % PAGES)));
    }
    for number in 0..4096 {
        assert!(filter.remove(common, StorePageNo(number % PAGES)));
    }
    filter.check().unwrap();
    assert_eq!(filter.entry_count(), 0);
}

#[test]
fn a_cleared_filter_is_as_a_new_one() {
    let mut filter = Filter::new(&options(10_000));
    let empty_bytes = filter.memory_bytes();
    for number in 0..10_000 {
        assert_eq!(filter.insert(fingerprint(1, number), StorePageNo(number % PAGES)), Coverage::Indexed);
    }
    assert!(filter.memory_bytes() > empty_bytes + 20_000);
    filter.clear();
    assert_eq!((filter.entry_count(), filter.memory_bytes()), (0, empty_bytes));
    assert!(filter.candidates(fingerprint(1, 1)).is_empty());
    assert_eq!(filter.insert(fingerprint(1, 1), StorePageNo(1)), Coverage::Indexed);
    filter.check().unwrap();
}

#[test]
#[should_panic(expected = "store page 5000 is past the end of the pool's 5000")]
fn a_page_that_the_pool_does_not_have_is_a_fault_of_the_caller() {
    let _ = Filter::new(&options(10)).insert(fingerprint(1, 1), StorePageNo(PAGES));
}

/// Fills a filter in the order of allocation and measures two numbers: bytes per entry, and the share of look-ups of
/// new blocks that name a page.
fn fill_and_measure(blocks_max: u64, stored: u64) -> (f64, f64) {
    let pages = blocks_max.div_ceil(170);
    let mut filter = Filter::new(&FilterOptions { pages, ..options(blocks_max) });
    let empty_bytes = filter.memory_bytes();
    for number in 0..stored {
        assert_eq!(filter.insert(fingerprint(1, number), StorePageNo(number / 170)), Coverage::Indexed);
    }
    for number in (0..stored).step_by(97) {
        assert!(filter.candidates(fingerprint(1, number)).iter().any(|page| page.0 == number / 170));
    }
    let lookups = 400_000;
    let errors: usize = (0..lookups).map(|number| filter.candidates(fingerprint(2, number)).len()).sum();
    let bytes = (filter.memory_bytes() - empty_bytes) as f64;
    (bytes / stored as f64, errors as f64 / lookups as f64)
}

#[test]
fn a_full_filter_of_a_million_blocks_is_small_and_rarely_errs() {
    let (bytes, errors) = fill_and_measure(1_000_000, 1_000_000);
    assert!(errors <= 0.01 && errors > 0.004, "{errors} false pages per look-up");
    assert!(bytes < 3.3, "{bytes} bytes an entry");
}

#[test]
fn a_large_pool_costs_no_more_than_its_blocks_at_any_time() {
    // Two pools of 1 TiB and of 16 TiB, hardly filled.
    for (blocks_max, bytes_max) in [(1 << 28, 4.6), (1_u64 << 32, 5.2)] {
        for stored in [20_000, 400_000] {
            let (bytes, errors) = fill_and_measure(blocks_max, stored);
            assert!(errors < 0.001, "{errors} false pages per look-up");
            let allowed = bytes_max + 200_000.0 / stored as f64;
            assert!(
                bytes < allowed,
                "{bytes} bytes an entry for {stored} in a pool of {blocks_max}, {allowed} allowed"
            );
        }
    }
}

/// Inserts the same entries by batches and one by one; returns both filters.
fn both_ways(options: &FilterOptions, count: u64, batches: u64) -> (Filter, Filter) {
    let (mut one_by_one, mut at_once) = (Filter::new(options), Filter::new(options));
    let of = |number: u64| (fingerprint(1, number - number % 7 / 6), StorePageNo(number * options.pages / count));
    for number in 0..count {
        let (fingerprint, page) = of(number);
        let _ = one_by_one.insert(fingerprint, page);
    }
    for batch in 0..batches {
        let (first, end) = (count * batch / batches, count * (batch + 1) / batches);
        let mut gathered = Batch::new(&at_once, of(first).1, (end - first) * if batch % 2 == 0 { 1 } else { 40 });
        for number in first..end {
            let (fingerprint, page) = of(number);
            gathered.add(fingerprint, page);
        }
        assert_eq!(gathered.entry_count(), end - first);
        while at_once.make_regions(end, 3) {}
        absorb_all(&mut at_once, gathered);
        at_once.check().unwrap();
    }
    (one_by_one, at_once)
}

fn absorb_all(filter: &mut Filter, mut batch: Batch) {
    while let Some(mut part) = batch.take_part(|_| false) {
        while !part.is_done() {
            let (level, before) = (filter.level(), part.entries_left());
            part.sort(level);
            filter.absorb(&mut part, 5);
            assert!(part.entries_left() < before);
        }
    }
}

#[test]
fn a_batch_makes_the_filter_that_single_inserts_make() {
    for (count, batches) in [(1, 1), (300, 1), (5000, 3), (60_000, 1), (60_000, 4)] {
        let (one_by_one, at_once) = both_ways(&options(100_000), count, batches);
        assert_eq!(at_once.entry_count(), one_by_one.entry_count());
        for number in 0..count {
            let sought = fingerprint(1, number);
            assert!(at_once.candidates(sought).iter().eq(one_by_one.candidates(sought).iter()), "{number} of {count}");
        }
        assert!(at_once.memory_bytes() <= one_by_one.memory_bytes() * 11 / 10);
        let (mut left, mut right) = (at_once.into_entries(), one_by_one.into_entries());
        left.sort_unstable();
        right.sort_unstable();
        assert!(left == right);
    }
}

#[test]
fn a_batch_keeps_to_the_limit_of_memory_and_counts_what_it_refuses() {
    let limited = FilterOptions { memory_bytes_max: 150_000, ..options(100_000) };
    let (one_by_one, at_once) = both_ways(&limited, 60_000, 4);
    assert_eq!(at_once.entry_count() + at_once.refused_count(), 60_000);
    assert!(at_once.memory_bytes() <= 150_000 && at_once.refused_count() > 0);
    // Both hold as many entries as fit.
    let (single, batched) = (one_by_one.entry_count(), at_once.entry_count());
    assert!(batched * 10 >= single * 9, "{batched} entries instead of {single}");
}

#[test]
fn a_batch_with_thousands_of_equal_fingerprints_refuses_what_a_bucket_does_not_take() {
    let options = options(100_000);
    let mut filter = Filter::new(&options);
    let mut batch = Batch::new(&filter, StorePageNo(0), 9000);
    for number in 0..9000 {
        batch.add(fingerprint(1, 0), StorePageNo(number % PAGES));
    }
    absorb_all(&mut filter, batch);
    filter.check().unwrap();
    assert_eq!(filter.entry_count() + filter.refused_count(), 9000);
    assert!(filter.entry_count() >= 4096 && filter.refused_count() > 0);
}

#[test]
fn regions_that_come_between_two_parts_do_not_confuse_a_batch() {
    let options = options(100_000);
    let mut filter = Filter::new(&options);
    let mut batch = Batch::new(&filter, StorePageNo(3), 1 << 20);
    for number in 0..30_000 {
        batch.add(fingerprint(1, number), StorePageNo(3 + number % 100));
    }
    let mut others = 0;
    while let Some(mut part) = batch.take_part(|page| page == StorePageNo(5)) {
        while !part.is_done() {
            part.sort(filter.level());
            filter.absorb(&mut part, 2);
            // Other inserts meanwhile split regions.
            for _ in 0..150 {
                let _ = filter.insert(fingerprint(2, others), StorePageNo(7));
                others += 1;
            }
        }
    }
    filter.check().unwrap();
    assert_eq!(filter.entry_count(), 30_000 - 300 + others);
    for number in (0..30_000).filter(|number| number % 100 != 2) {
        assert!(filter.candidates(fingerprint(1, number)).iter().any(|page| page.0 == 3 + number % 100), "{number}");
    }
}
