//! Writes unique and then duplicate data into a pool without a door, to measure the cost of the core itself.
//!
//! `cargo run --release -p onefold-pool --example write_rate -- POOL_FILE MIB`. The file must exist and be large
//! enough; its content is lost.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use onefold_block::device::{FileDevice, OpenMode};
use onefold_block::{AlignedBuffer, BlockDevice};
use onefold_pool::{CreateOptions, Durability, Environment, FileKind, Ino, NewFile, OpenOptions, Pool};

const REQUEST_BLOCKS: usize = 256;

/// Fills a request with blocks that equal those of the same number, and no others.
fn stamp(request: &mut AlignedBuffer, number: u64) {
    for (index, block) in (0_u64..).zip(request.blocks_mut()) {
        block[..8].copy_from_slice(&(number * REQUEST_BLOCKS as u64 + index + 1).to_le_bytes());
    }
}

fn cpu_seconds() -> f64 {
    // Fields 14 and 15 are user and system time in hundredths of a second on Linux.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    after.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, mib] = &arguments[..] else { return Err("usage: write_rate POOL_FILE MIB".into()) };
    let mib: u64 = mib.parse()?;
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(Path::new(path), OpenMode::ReadWrite)?);
    Pool::create(&device, &CreateOptions::default(), &Environment::system())?;
    let pool = Pool::open(device, OpenOptions::default(), Environment::system())?;
    let mut request = AlignedBuffer::zeroed(REQUEST_BLOCKS);
    request.iter_mut().zip(0_u32..).for_each(|(byte, at)| *byte = at.wrapping_mul(2_654_435_761).to_be_bytes()[0]);
    let new = NewFile { kind: FileKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    for (name, what) in [("unique", "unique"), ("again", "duplicate")] {
        let file = pool.create_file(Ino::ROOT, name.as_bytes(), &new)?.ino;
        let (began, cpu) = (Instant::now(), cpu_seconds());
        for number in 0..mib {
            stamp(&mut request, number);
            pool.write(file, number << 20, &request, Durability::Later)?;
        }
        pool.fsync(file)?;
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let gib = mib as f64 / 1024.0;
        println!("{what}: {:.0} MiB/s, {:.2} CPU seconds a GiB", mib as f64 / seconds, cpu / gib);
    }
    pool.close()?;
    Ok(())
}
