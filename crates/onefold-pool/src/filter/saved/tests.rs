//! Tests of round trips, and of damaged and forged chunks.

use super::*;
use crate::filter::tests::{fingerprint, options};
use crate::filter::{Coverage, StorePageNo};
use onefold_block::random::SeededRandom;

fn filled(options: &FilterOptions, count: u64) -> Filter {
    let mut filter = Filter::new(options);
    for number in 0..count {
        // Several blocks share some fingerprints.
        let page = StorePageNo(number % options.pages);
        let _ = filter.insert(fingerprint(1, number - number % 5 / 4), page);
    }
    filter
}

fn load(options: &FilterOptions, generation: u64, chunks: &[Vec<u8>]) -> Result<Filter, LoadError> {
    let mut loader = Loader::new(options, generation);
    for chunk in chunks {
        loader.load(chunk)?;
    }
    loader.finish()
}

/// Gives a changed chunk a correct checksum.
fn seal(chunk: &mut [u8]) {
    let checksum = checksum_of(chunk).to_le_bytes();
    chunk[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum);
}

#[test]
fn a_saved_filter_loads_as_it_was() {
    for count in [0, 1, 400, 5000, 90_000] {
        let options = options(50_000);
        let filter = filled(&options, count);
        let chunks: Vec<Vec<u8>> = filter.save(7).collect();
        assert!(chunks.iter().all(|chunk| chunk.len() == CHUNK_BYTES));
        assert_eq!(filter.saved_bytes(), (chunks.len() * CHUNK_BYTES) as u64, "{count} entries");

        let mut loaded = load(&options, 7, &chunks).unwrap();
        loaded.check().unwrap();
        assert_eq!(loaded.entry_count(), count);
        for number in 0..count {
            let sought = fingerprint(1, number);
            assert!(loaded.candidates(sought).iter().eq(filter.candidates(sought).iter()));
        }
        assert!(loaded.save(7).eq(chunks), "a loaded filter saves as the same bytes");
        assert_eq!(loaded.insert(fingerprint(2, 1), StorePageNo(1)), Coverage::Indexed);
        loaded.check().unwrap();
    }
}

/// Saved filters outlive the program that wrote them: another checksum means another version of the format.
#[test]
fn the_saved_form_is_the_stored_sample() {
    let chunks: Vec<Vec<u8>> = filled(&options(5000), 5000).save(7).collect();
    let checksums: Vec<u32> = chunks.iter().map(|chunk| crc32c::crc32c(chunk)).collect();
    assert_eq!(checksums, [1_635_353_033]);
}

#[test]
fn how_many_were_refused_is_kept() {
    let limited = FilterOptions { memory_bytes_max: 100_000, ..options(50_000) };
    let filter = filled(&limited, 40_000);
    assert!(filter.refused_count() > 1000);
    let loaded = load(&limited, 1, &filter.save(1).collect::<Vec<_>>()).unwrap();
    assert_eq!(loaded.refused_count(), filter.refused_count());
    loaded.check().unwrap();
}

#[test]
fn another_generation_other_parameters_and_less_memory_are_refused() {
    let options = options(50_000);
    let chunks: Vec<Vec<u8>> = filled(&options, 50_000).save(7).collect();
    let error = |options: &FilterOptions, generation| load(options, generation, &chunks).unwrap_err();
    assert_eq!(error(&options, 8), LoadError::Generation { expected: 8, found: 7 });
    let larger = FilterOptions { blocks_max: 200_000, ..options.clone() };
    assert!(matches!(error(&larger, 7), LoadError::Parameters { .. }));
    let less_memory = FilterOptions { memory_bytes_max: 151_000, ..options.clone() };
    assert_eq!(error(&less_memory, 7), LoadError::Memory);
    let fewer_pages = FilterOptions { pages: options.pages - 1, ..options };
    assert!(matches!(error(&fewer_pages, 7), LoadError::Region { fault: RegionFault::Page(_), .. }));
}

#[test]
fn missing_repeated_and_exchanged_chunks_are_refused() {
    let options = options(50_000);
    let chunks: Vec<Vec<u8>> = filled(&options, 50_000).save(7).collect();
    let error = |order: &[usize]| {
        load(&options, 7, &order.iter().map(|&index| chunks[index].clone()).collect::<Vec<_>>()).unwrap_err()
    };
    assert_eq!(chunks.len(), 3);
    assert_eq!(error(&[]), LoadError::Incomplete);
    assert_eq!(error(&[0, 1]), LoadError::Incomplete);
    assert_eq!(error(&[1]), LoadError::Sequence { expected: 0, found: 1 });
    assert_eq!(error(&[0, 2]), LoadError::Sequence { expected: 1, found: 2 });
    assert_eq!(error(&[0, 0]), LoadError::Sequence { expected: 1, found: 0 });
    assert_eq!(error(&[0, 1, 2, 2]), LoadError::Sequence { expected: 3, found: 2 });
    assert_eq!(load(&options, 7, &[Vec::new()]).unwrap_err(), LoadError::Length { found: 0 });
    assert_eq!(load(&options, 7, &[vec![0; CHUNK_BYTES]]).unwrap_err(), LoadError::Magic);
}

#[test]
fn every_changed_byte_of_the_headers_and_random_ones_elsewhere_are_noticed() {
    let options = options(1000);
    let chunks: Vec<Vec<u8>> = filled(&options, 1000).save(7).collect();
    let random = SeededRandom::new(1);
    let anywhere = |_| usize::try_from(random.below(CHUNK_BYTES as u64)).unwrap();
    for at in (0..HEADER_BYTES + STREAM_HEADER_WORDS * 8).chain((0..500).map(anywhere)) {
        let mut changed = chunks.clone();
        changed[0][at] ^= 1 << random.below(8);
        assert!(load(&options, 7, &changed).is_err(), "byte {at}");
    }
}

/// A forged chunk has a correct checksum: its content must cause an error or give a sound filter.
#[test]
fn forged_content_is_refused_or_harmless() {
    let options = options(1000);
    let chunks: Vec<Vec<u8>> = filled(&options, 1000).save(7).collect();
    let used = usize::try_from(u32::from_le_bytes(chunks[0][20..24].try_into().unwrap())).unwrap() * 8;
    let random = SeededRandom::new(2);
    let (mut refused, mut sound) = (0, 0);
    for round in 0..4000 {
        let mut forged = chunks.clone();
        for _ in 0..=random.below(3) {
            let near = if round % 2 == 0 { 80 } else { used as u64 };
            let at = HEADER_BYTES - 12 + usize::try_from(random.below(near)).unwrap();
            forged[0][at] = u8::try_from(random.below(256)).unwrap();
        }
        seal(&mut forged[0]);
        match load(&options, 7, &forged) {
            Err(_) => refused += 1,
            Ok(mut filter) => {
                filter.check().unwrap_or_else(|fault| panic!("round {round}: {fault}"));
                for number in 0..50 {
                    let _ = filter.insert(fingerprint(3, number), StorePageNo(0));
                    filter.remove(fingerprint(1, number), StorePageNo(number));
                }
                filter.check().unwrap_or_else(|fault| panic!("round {round}: {fault}"));
                sound += 1;
            }
        }
    }
    assert!(refused > 1000 && sound > 10, "{refused} refused, {sound} sound");
}

#[test]
fn random_words_are_refused_without_panic() {
    let options = options(1 << 20);
    let random = SeededRandom::new(3);
    for _ in 0..300 {
        let mut chunk = Filter::new(&options).save(7).next().unwrap();
        chunk[20..24].copy_from_slice(&u32::try_from(CHUNK_WORDS).unwrap().to_le_bytes());
        chunk[HEADER_BYTES + 16..HEADER_BYTES + 20].copy_from_slice(&1000_u32.to_le_bytes());
        for word in chunk[HEADER_BYTES + STREAM_HEADER_WORDS * 8..].chunks_mut(8) {
            let shift = random.below(64);
            word.copy_from_slice(&(random.next_u64() >> shift).to_le_bytes());
        }
        // The first region's number is right, so that its widths are checked.
        chunk[HEADER_BYTES + STREAM_HEADER_WORDS * 8..][..4].fill(0);
        seal(&mut chunk);
        let mut loader = Loader::new(&options, 7);
        assert!(loader.load(&chunk).is_err() || !loader.is_complete());
    }
}
