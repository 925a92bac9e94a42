//! A pool with a history: everything that a pool can hold, and the content of its device at an earlier time.

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_block::{BlockDevice, BlockNo};
use onefold_pool::{AllocateMode, Durability, FileKind, Ino, Pool, RenameMode, XattrMode};
use onefold_testing::device::{MemoryDevice, MemoryImage};

use super::common::*;
use super::shared::observe::{self, Tree, View};

/// Blocks of the pool.
const BLOCKS: u64 = 12_288;

/// A pool at two times.
pub(crate) struct History {
    /// An older state, with everything in place.
    pub(crate) older: MemoryImage,
    /// The present state, with everything in place: the journal needs no recovery, but still holds the last
    /// transactions.
    pub(crate) now: MemoryImage,
    /// The visible tree now.
    pub(crate) seen: Tree,
}

impl History {
    /// Returns the same with an emptied journal.
    pub(crate) fn without_log(&self) -> History {
        let device = MemoryDevice::from(self.now.clone());
        forget_log(&device);
        History { older: self.older.clone(), now: device.image(), seen: self.seen.clone() }
    }
}

fn write(pool: &Pool, ino: Ino, offset: u64, seed: u64, bytes: usize) {
    pool.write(ino, offset, &noise(seed, bytes), Durability::Later).unwrap();
}

/// Makes the pool: directories, files small and large, clones, hard links, symbolic links, special files, attributes,
/// holes, reserved space, an open file without a name, and a deleted one that is not yet reclaimed.
pub(crate) fn make_history() -> History {
    let device = new_pool(BLOCKS);
    let pool = open(&device);
    let images = make(&pool, Ino::ROOT, b"images", FileKind::Directory);
    let deep = make(&pool, images, b"deep", FileKind::Directory);
    let golden = make(&pool, images, b"golden.raw", FileKind::Regular);
    write(&pool, golden, 0, 1, 2_300_000);
    let clone = make(&pool, deep, b"clone.raw", FileKind::Regular);
    pool.clone_file(golden, clone).unwrap();
    let docs = make(&pool, Ino::ROOT, b"docs", FileKind::Directory);
    for number in 0..90_u64 {
        let ino = make(&pool, docs, format!("document {number}").as_bytes(), FileKind::Regular);
        write(&pool, ino, 0, 1000 + number % 60, 3000 + number as usize * 90);
        if number % 7 == 0 {
            pool.set_xattr(ino, b"user.note", &noise(number, 50 + number as usize * 30), XattrMode::Either).unwrap();
        }
    }
    let doomed = make(&pool, images, b"doomed.raw", FileKind::Regular);
    write(&pool, doomed, 0, 2, 2_200_000);
    let rewritten = make(&pool, images, b"rewritten.raw", FileKind::Regular);
    write(&pool, rewritten, 0, 3, 2_100_000);
    pool.commit().unwrap();
    pool.checkpoint().unwrap();
    let older = device.image();
    pool.unlink(images, b"doomed.raw").unwrap();
    while pool.reclaim().unwrap() {}
    pool.commit().unwrap();
    write(&pool, clone, 40 * 4096, 4, 30 * 4096);
    write(&pool, rewritten, 0, 5, 2_150_000);
    let sparse = make(&pool, deep, b"sparse", FileKind::Regular);
    write(&pool, sparse, 5_000_000, 6, 60_000);
    pool.allocate(sparse, 0, 400_000, AllocateMode::KeepSize).unwrap();
    pool.allocate(golden, 100 * 4096, 20 * 4096, AllocateMode::PunchHole).unwrap();
    let attr = pool.link(golden, Ino::ROOT, b"second name").unwrap();
    pool.release(attr.ino, 1);
    let link = pool.create_symlink(docs, b"link", &[b'x'; 2500], 0, 0).unwrap();
    pool.release(link.ino, 1);
    make(&pool, docs, b"pipe", FileKind::Fifo);
    for number in 60..110_u64 {
        let name = format!("document {number}");
        if number < 75 {
            pool.unlink(docs, name.as_bytes()).unwrap();
        } else if number < 90 {
            let other = format!("renamed {number}");
            pool.rename(docs, name.as_bytes(), deep, other.as_bytes(), RenameMode::Replace).unwrap();
        } else {
            let ino = make(&pool, docs, name.as_bytes(), FileKind::Regular);
            write(&pool, ino, 0, number, 5000);
        }
    }
    while pool.reclaim().unwrap() {}
    let gone = make(&pool, images, b"gone.raw", FileKind::Regular);
    write(&pool, gone, 0, 7, 2_200_000);
    pool.unlink(images, b"gone.raw").unwrap();
    let unnamed = pool.create_unnamed(images, &new_file(FileKind::Regular)).unwrap();
    write(&pool, unnamed.ino, 0, 8, 100_000);
    pool.commit().unwrap();
    pool.checkpoint().unwrap();
    let now = device.image();
    let seen = observe::seen(&open(&Arc::new(MemoryDevice::from(now.clone())))).unwrap();
    History { older, now, seen }
}

/// Returns the visible tree of a pool by inode, without names.
pub(crate) fn by_inode(seen: &Tree) -> BTreeMap<u64, &View> {
    seen.values().map(|view| (view.ino, view)).collect()
}

/// Returns the device of an image with one block changed.
pub(crate) fn changed(image: &MemoryImage, at: BlockNo, bytes: &[u8; 4096]) -> Arc<MemoryDevice> {
    let device = MemoryDevice::from(image.clone());
    device.write(at, bytes).unwrap();
    Arc::new(device)
}
