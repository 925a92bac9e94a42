//! The pool from outside: created, written, read, cloned, closed, reopened.

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_pool::{CreateOptions, Durability, Environment, FileKind, Ino, NewFile, OpenOptions, Pool};
use onefold_testing::device::MemoryDevice;

fn environment() -> Environment {
    Environment { clock: Arc::new(ManualClock::starting_at(1000)), random: Arc::new(SeededRandom::new(1)) }
}

fn file() -> NewFile {
    NewFile { kind: FileKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 }
}

fn open(device: &Arc<dyn BlockDevice>) -> Pool {
    let options = OpenOptions { background: false, memory_bytes: 64 << 20, ..OpenOptions::default() };
    Pool::open(Arc::clone(device), options, environment()).expect("opens")
}

fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    use onefold_block::Random;
    let mut bytes = vec![0; length];
    SeededRandom::new(seed).fill(&mut bytes).expect("a seeded generator does not fail");
    bytes
}

#[test]
fn equal_files_are_stored_once_and_survive_a_reopening() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(16_384));
    Pool::create(&device, &CreateOptions::default(), &environment()).unwrap();
    let content = random_bytes(7, 3_000_000);
    {
        let pool = open(&device);
        for name in [b"one", b"two"] {
            let made = pool.create_file(Ino::ROOT, name, &file()).unwrap();
            pool.write(made.ino, 0, &content, Durability::Later).unwrap();
            pool.release(made.ino, 1);
        }
        let stat = pool.stat().unwrap();
        assert_eq!(stat.unique_bytes + stat.shared_bytes, 733 * 4096, "{stat:?}");
        pool.close().unwrap();
    }
    let pool = open(&device);
    for name in [b"one", b"two"] {
        let found = pool.lookup(Ino::ROOT, name).unwrap();
        let mut read = vec![0; content.len() + 10];
        assert_eq!(pool.read(found.ino, 0, &mut read).unwrap(), content.len());
        assert!(read[..content.len()] == content[..]);
    }
    let source = pool.lookup(Ino::ROOT, b"one").unwrap();
    let clone = pool.create_file(Ino::ROOT, b"clone", &file()).unwrap();
    pool.clone_file(source.ino, clone.ino).unwrap();
    pool.write(clone.ino, 5000, b"changed", Durability::Now).unwrap();
    let mut read = vec![0; content.len()];
    pool.read(source.ino, 0, &mut read).unwrap();
    assert!(read == content, "a clone's change stays its own");
    for name in [&b"one"[..], b"two", b"clone"] {
        let ino = pool.lookup(Ino::ROOT, name).unwrap().ino;
        pool.unlink(Ino::ROOT, name).unwrap();
        pool.release(ino, 3);
    }
    while pool.reclaim().unwrap() {}
    pool.commit().unwrap();
    pool.checkpoint().unwrap();
    let stat = pool.stat().unwrap();
    assert_eq!((stat.unique_bytes, stat.shared_bytes, stat.inode_count, stat.freeing_bytes), (0, 0, 1, 0), "{stat:?}");
}

/// For some milliseconds after a removal, `stat` reported that nothing was waiting, but still counted the file's
/// blocks. A benchmark that waited for reclaim continued too early, and attributed the later frees to its own work.
#[test]
fn a_removed_file_counts_as_waiting_for_reclaim_as_soon_as_nobody_holds_it() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(16_384));
    Pool::create(&device, &CreateOptions::default(), &environment()).unwrap();
    let pool = open(&device);
    let pending = || pool.stat().unwrap().reclaim_pending;
    for name in [b"one", b"two"] {
        let made = pool.create_file(Ino::ROOT, name, &file()).unwrap();
        pool.write(made.ino, 0, &random_bytes(u64::from(name[0]), 300_000), Durability::Later).unwrap();
        pool.unlink(Ino::ROOT, name).unwrap();
        let before = pending();
        pool.release(made.ino, 1);
        assert_eq!(pending(), before + 1, "held, it waited for its user and not for reclaim");
    }
    while pool.reclaim().unwrap() {}
    pool.commit().unwrap();
    let stat = pool.stat().unwrap();
    assert_eq!((stat.reclaim_pending, stat.unique_bytes), (0, 0), "{stat:?}");
}
