//! Writes that are answered before they take effect: callers cannot notice, and no accepted write is lost.

#[path = "../common/mod.rs"]
mod common;

mod accepted;
mod late;
mod losses;
mod polling;
mod waits;

use std::sync::Arc;

use common::{environment, open, quiet, read_as_doors_do, regular, write_as_doors_do};
use onefold_block::BlockDevice;
use onefold_pool::{CreateOptions, Durability, Ino, OpenOptions, Pool, PoolError};

const BLOCK: u64 = 4096;

fn new_pool(device: &Arc<impl BlockDevice + 'static>, options: &OpenOptions) -> Pool {
    let device: Arc<dyn BlockDevice> = device.clone();
    let create = CreateOptions { journal_bytes: Some(2 << 20), ..CreateOptions::default() };
    Pool::create(&device, &create, &environment()).expect("a pool is made");
    open(&device, options)
}

fn create(pool: &Pool, name: &str) -> Ino {
    let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("there is room").ino;
    pool.release(ino, 1);
    ino
}

fn accept(pool: &Pool, ino: Ino, block: u64, bytes: &[u8]) -> Result<(), PoolError> {
    write_as_doors_do(pool, ino, block * BLOCK, bytes, Durability::Later)
}

fn read(pool: &Pool, ino: Ino, block: u64, count: u64) -> Vec<u8> {
    let mut bytes = vec![0xaa; usize::try_from(count * BLOCK).expect("small")];
    let got = read_as_doors_do(pool, ino, block * BLOCK, &mut bytes).expect("reads");
    bytes.truncate(got);
    bytes
}

/// Returns options with threads that carry writes out, but without interference by the commit timer.
fn with_workers() -> OpenOptions {
    OpenOptions { background: true, commit_interval_ms: 3_600_000, ..quiet() }
}
