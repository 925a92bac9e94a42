//! Measures what a write costs before it reaches the disk: fingerprints, zero test, buffers.
//!
//! `cargo run --release -p onefold-block --example hash_rate`

use std::hint::black_box;
use std::time::Instant;

use onefold_block::random::{Random, SeededRandom};
use onefold_block::zero::is_zero;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BufferPool, Fingerprint, FingerprintKey};

const BLOCKS: usize = 4096;
const ROUNDS: usize = 40;

/// Runs `pass`, which processes `bytes` bytes, and prints the best rate.
fn measure(what: &str, bytes: usize, mut pass: impl FnMut()) {
    let best = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        pass();
        start.elapsed()
    });
    let seconds = best.min().expect("there are rounds").as_secs_f64();
    println!("{what:<40} {:6.2} GB/s", bytes as f64 / seconds / 1e9);
}

fn main() -> std::io::Result<()> {
    let mut data = AlignedBuffer::zeroed(BLOCKS);
    SeededRandom::new(1).fill(&mut data)?;
    let key = FingerprintKey::new([1; FingerprintKey::BYTES]);
    let mut out = vec![Fingerprint::default(); BLOCKS];
    let bytes = data.len();

    measure("fingerprints, one block at a time", bytes, || {
        for (block, out) in data.blocks().zip(&mut out) {
            *out = key.fingerprint(block);
        }
    });
    measure("fingerprints, consecutive blocks", bytes, || key.fingerprint_blocks(&data, &mut out));
    let scattered: Vec<&[u8]> = data.chunks(BLOCK_BYTES).rev().collect();
    measure("fingerprints, scattered blocks", bytes, || key.fingerprint_each(&scattered, &mut out));

    // Zero except for the last byte, so that every block is read to its end.
    let mut nearly_zero = AlignedBuffer::zeroed(BLOCKS);
    nearly_zero.blocks_mut().for_each(|block| block[BLOCK_BYTES - 1] = 1);
    measure("zero test of blocks that end in a one", bytes, || {
        assert!(!black_box(&nearly_zero).blocks().any(|block| is_zero(block)));
    });
    measure("zero test of random blocks", bytes, || assert!(!black_box(&data).blocks().any(|block| is_zero(block))));

    let pool = BufferPool::new(256, 4 << 20);
    measure("1 MiB buffers, fresh, written once", 16 << 20, || {
        for _ in 0..16 {
            AlignedBuffer::zeroed(256).copy_from_slice(black_box(&data[..1 << 20]));
        }
    });
    measure("1 MiB buffers, pooled, written once", 16 << 20, || {
        for _ in 0..16 {
            pool.take().copy_from_slice(black_box(&data[..1 << 20]));
        }
    });
    Ok(())
}
