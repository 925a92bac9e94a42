//! Measures batches against plain loops on a real file.
//!
//! `cargo run --release -p onefold-block --example batch_rate -- FILE` (an existing file or disk; it is overwritten)

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use onefold_block::device::{FileDevice, OpenMode};
use onefold_block::random::{Random, SeededRandom};
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, BlockNo, ReadOp, WriteOp};

/// Bytes moved by each measurement.
const TOTAL_BYTES: usize = 128 << 20;
const REPETITIONS: usize = 3;

/// An access pattern.
struct Pattern {
    name: &'static str,
    ops: usize,
    blocks_per_op: usize,
    is_scattered: bool,
}

const PATTERNS: [Pattern; 6] = [
    Pattern { name: "8 x 4 KiB scattered", ops: 8, blocks_per_op: 1, is_scattered: true },
    Pattern { name: "32 x 4 KiB scattered", ops: 32, blocks_per_op: 1, is_scattered: true },
    Pattern { name: "256 x 4 KiB scattered", ops: 256, blocks_per_op: 1, is_scattered: true },
    Pattern { name: "256 x 4 KiB adjacent", ops: 256, blocks_per_op: 1, is_scattered: false },
    Pattern { name: "8 x 1 MiB adjacent", ops: 8, blocks_per_op: 256, is_scattered: false },
    Pattern { name: "8 x 1 MiB scattered", ops: 8, blocks_per_op: 256, is_scattered: true },
];

/// Returns the places of the next batch's operations.
fn places(pattern: &Pattern, block_count: u64, random: &SeededRandom) -> Vec<BlockNo> {
    let blocks = pattern.blocks_per_op as u64;
    let slots = block_count / blocks;
    let start = random.below(slots - pattern.ops as u64);
    let place = |index| if pattern.is_scattered { random.below(slots) } else { start + index };
    (0..pattern.ops as u64).map(|index| BlockNo(place(index) * blocks)).collect()
}

/// Prints the median rate of a repeated `batch`.
fn measure(what: &str, pattern: &Pattern, mut batch: impl FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
    let batch_bytes = pattern.ops * pattern.blocks_per_op * BLOCK_BYTES;
    let batches = (TOTAL_BYTES / batch_bytes).min(500);
    let mut rates = Vec::new();
    for _ in 0..REPETITIONS {
        let start = Instant::now();
        for _ in 0..batches {
            batch()?;
        }
        rates.push((batches * batch_bytes) as f64 / start.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    let median = rates[REPETITIONS / 2];
    let ops = median / (pattern.blocks_per_op * BLOCK_BYTES) as f64;
    println!("{:<24} {what:<12} {:8.0} MB/s {:9.0} op/s", pattern.name, median / 1e6, ops);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: batch_rate FILE")?;
    let device = FileDevice::open(Path::new(&path), OpenMode::ReadWrite)?;
    let block_count = device.block_count()?;
    let random = SeededRandom::new(1);
    for pattern in &PATTERNS {
        let mut data = AlignedBuffer::zeroed(pattern.ops * pattern.blocks_per_op);
        random.fill(&mut data)?;
        let op_bytes = pattern.blocks_per_op * BLOCK_BYTES;
        measure("write loop", pattern, || {
            let places = places(pattern, block_count, &random);
            places.iter().zip(data.chunks(op_bytes)).try_for_each(|(first, from)| device.write(*first, from))
        })?;
        measure("write batch", pattern, || {
            let places = places(pattern, block_count, &random);
            let ops = places.iter().zip(data.chunks(op_bytes)).map(|(&first, from)| WriteOp { first, from });
            device.write_batch(&ops.collect::<Vec<_>>())
        })?;
        measure("read loop", pattern, || {
            let places = places(pattern, block_count, &random);
            places.iter().zip(data.chunks_mut(op_bytes)).try_for_each(|(first, into)| device.read(*first, into))
        })?;
        measure("read batch", pattern, || {
            let places = places(pattern, block_count, &random);
            let ops = places.iter().zip(data.chunks_mut(op_bytes)).map(|(&first, into)| ReadOp { first, into });
            device.read_batch(&mut ops.collect::<Vec<_>>())
        })?;
    }
    Ok(())
}
