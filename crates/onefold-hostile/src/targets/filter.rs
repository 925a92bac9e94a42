//! A saved filter whose chunks hold anything, with correct checksums.

use std::sync::OnceLock;

use onefold_block::Fingerprint;
use onefold_pool::filter::{CHUNK_BYTES, Loader};
use onefold_pool::filter::{Filter, FilterOptions, StorePageNo};

use crate::Choices;
use crate::samples::noise;

const OPTIONS: FilterOptions =
    FilterOptions { blocks_max: 1 << 16, pages: 400, memory_bytes_max: 1 << 20, index_bits: None, tag_bits: None };
const GENERATION: u64 = 77;
const HEADER_BYTES: usize = 32;
const CHECKSUM_AT: usize = 24;

fn fingerprint(number: u64) -> Fingerprint {
    Fingerprint(noise(number, 16).try_into().expect("sixteen bytes"))
}

/// Returns the chunks of a sound filter.
fn sound() -> &'static Vec<Vec<u8>> {
    static SOUND: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let mut filter = Filter::new(&OPTIONS);
        for number in 0..30_000 {
            let _ = filter.insert(fingerprint(number % 20_000), StorePageNo(number % 400));
        }
        filter.save(GENERATION).collect()
    })
}

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut chunks = sound().clone();
    for _ in 0..=choices.below(4) {
        let at = choices.index(chunks.len());
        damage(&mut choices, &mut chunks[at]);
    }
    let mut loader = Loader::new(&OPTIONS, GENERATION);
    for chunk in &chunks {
        if loader.load(chunk).is_err() {
            return;
        }
    }
    if let Ok(mut filter) = loader.finish() {
        filter.check().expect("a filter that was taken is sound");
        for number in 0..200 {
            let found = filter.candidates(fingerprint(number));
            assert!(found.iter().all(|page| page.0 < OPTIONS.pages), "a page that the pool does not have");
            filter.remove(fingerprint(number), StorePageNo(number % 400));
            let _ = filter.insert(fingerprint(100_000 + number), StorePageNo(number));
        }
        filter.check().expect("a filter stays sound");
    }
}

fn damage(choices: &mut Choices<'_>, chunk: &mut [u8]) {
    let (first, reach) = match choices.below(4) {
        0 => (0, HEADER_BYTES),
        1 => (HEADER_BYTES, 5 * 8),
        2 => (HEADER_BYTES + 5 * 8, 200),
        _ => (HEADER_BYTES, CHUNK_BYTES - HEADER_BYTES),
    };
    for _ in 0..=choices.below(8) {
        let at = first + choices.index(reach);
        chunk[at] = choices.byte();
    }
    chunk[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    let sum = crc32c::crc32c(chunk);
    chunk[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
}
