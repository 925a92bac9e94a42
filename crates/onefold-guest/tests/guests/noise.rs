//! Noise over what nobody is to read.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::fixtures::seed;

/// Bytes that are written at once.
const PIECE_BYTES: usize = 1 << 20;

/// Numbers as good as random, drawn from a seed: SplitMix64.
struct Noise(u64);

impl Noise {
    fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word.copy_from_slice(&(mixed ^ mixed >> 31).to_le_bytes()[..word.len()]);
        }
    }
}

/// Overwrites all of some ranges, each a start and an end, with noise of `ONEFOLD_SEED`; returns how many bytes that
/// are. No structure is like noise, and no two pieces of it are alike.
pub(crate) fn overwrite(image: &File, ranges: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let (mut noise, mut piece, mut overwritten) = (Noise(seed().into()), vec![0; PIECE_BYTES], 0);
    for (start, end) in ranges {
        let mut at = start;
        while at < end {
            let length = usize::try_from(end - at).unwrap().min(PIECE_BYTES);
            noise.fill(&mut piece[..length]);
            image.write_all_at(&piece[..length], at).unwrap();
            at += length as u64;
        }
        overwritten += end - start;
    }
    overwritten
}

#[test]
fn all_of_the_ranges_is_noise_and_nothing_else_is() {
    let image = tempfile::tempfile().unwrap();
    let long = 3 * PIECE_BYTES as u64 + 1001;
    image.set_len(long + 400).unwrap();
    assert_eq!(overwrite(&image, [(10, 110), (200, 200 + long)]), 100 + long);
    let read = |start: u64, end: u64| {
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        image.read_exact_at(&mut bytes, start).unwrap();
        bytes
    };
    for (start, end) in [(0, 10), (110, 200), (200 + long, long + 400)] {
        assert!(read(start, end).iter().all(|byte| *byte == 0), "{start}");
    }
    // Each value of a byte comes about as often as each other one, and no piece comes again.
    let written = read(200, 200 + long);
    let mut counts = [0_usize; 256];
    written.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let mean = written.len() / 256;
    assert!(counts.iter().all(|count| (mean * 9 / 10..mean * 11 / 10).contains(count)), "{counts:?}");
    let mut sectors: Vec<&[u8]> = written.chunks_exact(512).collect();
    let count = sectors.len();
    sectors.sort_unstable();
    sectors.dedup();
    assert_eq!(sectors.len(), count);
}
