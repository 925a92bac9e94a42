//! Disks in pools, for the tests of volumes.

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_export::volume::{SECTOR_BYTES, Volume};
use onefold_pool::{FileKind, Ino, MEMORY_BYTES_MIN, NewFile, OpenOptions, Pool, SetAttr};

use super::environment;

/// Blocks of the pools' devices: 32 MiB.
pub const DEVICE_BLOCKS: u64 = 8192;
pub const BLOCK: u64 = 4096;
/// Length of the test's disks, with a tail that is shorter than a block.
pub const LENGTH: u64 = 40 * BLOCK + 3 * SECTOR_BYTES;

pub fn open_pool(device: Arc<dyn BlockDevice>, background: bool) -> Arc<Pool> {
    let options = OpenOptions {
        memory_bytes: MEMORY_BYTES_MIN,
        background,
        commit_interval_ms: u32::MAX,
        ..OpenOptions::default()
    };
    Arc::new(Pool::open(device, options, environment()).unwrap())
}

pub fn set_length(pool: &Pool, ino: Ino, size_bytes: u64) {
    pool.set_attr(ino, &SetAttr { size_bytes: Some(size_bytes), ..SetAttr::default() }).unwrap();
}

pub fn create(pool: &Pool, name: &str, size_bytes: u64) -> Ino {
    let new = NewFile { kind: FileKind::Regular, mode: 0o600, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &new).unwrap().ino;
    set_length(pool, ino, size_bytes);
    pool.release(ino, 1);
    ino
}

pub fn content(volume: &dyn Volume) -> Vec<u8> {
    let mut bytes = vec![1; usize::try_from(volume.length_bytes()).unwrap()];
    volume.read(0, &mut bytes).unwrap();
    bytes
}
