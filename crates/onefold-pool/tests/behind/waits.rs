//! Which calls wait for accepted writes, and which do not.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use onefold_block::BlockDevice;
use onefold_pool::{Durability, Ino, PoolError};
use onefold_testing::device::{GatedDevice, MemoryDevice};

use crate::common::{behind, letter, letters, open, quiet};
use crate::{BLOCK, accept, create, new_pool, read, with_workers};

#[test]
fn what_is_durable_includes_all_that_was_accepted_before() {
    let device = Arc::new(MemoryDevice::new(16_384));
    let pool = new_pool(&device, &behind());
    let (one, two) = (create(&pool, "one"), create(&pool, "two"));
    for block in 0..30 {
        accept(&pool, one, block, &letters([1 + block])).expect("accepted");
    }
    pool.fsync(two).expect("is durable");
    accept(&pool, one, 30, &letters([31])).expect("accepted, and lost");
    // Dropped with a write that no thread has begun, as after a power cut.
    drop(pool);
    let device: Arc<dyn BlockDevice> = device;
    let pool = open(&device, &quiet());
    assert!(read(&pool, one, 0, 40) == letters(1..31));
}

/// First bytes of a block that is held on its way to the device.
const MARK: &[u8] = b"held up";

/// Long enough for any operation that does not wait.
const LONG: Duration = Duration::from_secs(20);
/// Long enough to reveal most operations that should have waited and did not.
const SHORT: Duration = Duration::from_millis(100);

#[test]
fn looking_at_other_files_waits_for_no_write_and_changes_wait() {
    let gate = Arc::new(GatedDevice::new(MemoryDevice::new(16_384), MARK));
    let pool = new_pool(&gate, &with_workers());
    let (written, other) = (create(&pool, "written"), create(&pool, "other"));
    let mut marked = letter(1);
    marked[..MARK.len()].copy_from_slice(MARK);
    accept(&pool, written, 0, &marked).expect("accepted");
    std::thread::scope(|scope| {
        let (pool, (looked, looks)) = (&pool, mpsc::channel());
        scope.spawn(move || {
            let found = pool.lookup(Ino::ROOT, b"other").expect("is there").ino;
            pool.release(found, 1);
            let missing = matches!(pool.lookup(Ino::ROOT, b"none"), Err(PoolError::NotFound));
            looked.send((found, missing, pool.attr(other).expect("is there").size_bytes, pool.blocks_behind()))
        });
        let seen = looks.recv_timeout(LONG);
        let (changed, changes) = mpsc::channel();
        scope.spawn(move || changed.send(create(pool, "new")));
        let (told, tells) = mpsc::channel();
        scope.spawn(move || told.send(pool.lookup(Ino::ROOT, b"written").expect("is there").size_bytes));
        let (too_soon, told_too_soon) = (changes.recv_timeout(SHORT), tells.try_recv());
        gate.open();
        assert_eq!(seen, Ok((other, true, 0, 1)));
        assert!(too_soon.is_err(), "a change came before a write that was accepted earlier");
        assert!(told_too_soon.is_err(), "a file was shown without what was written to it");
        assert!(changes.recv_timeout(LONG).is_ok());
        assert_eq!(tells.recv_timeout(LONG), Ok(BLOCK));
    });
    assert_eq!(pool.blocks_behind(), 0);
}

/// Each read waited for all accepted writes of its file, although the lock on their ranges covers only their own
/// blocks.
#[test]
fn a_read_waits_for_writes_of_its_blocks_and_for_those_that_move_the_end() {
    for (held, waits) in [(7, [false, true, true]), (10, [true, true, true])] {
        let gate = Arc::new(GatedDevice::new(MemoryDevice::new(16_384), MARK));
        let pool = new_pool(&gate, &with_workers());
        let ino = create(&pool, "file");
        pool.write(ino, 0, &letters(1..11), Durability::Now).expect("writes");
        let mut marked = letter(100);
        marked[..MARK.len()].copy_from_slice(MARK);
        accept(&pool, ino, held, &marked).expect("accepted");
        std::thread::scope(|scope| {
            let pool = &pool;
            let reads = [(0, 7), (held, 1), (0, 20)].map(|(first, count)| {
                let (told, tells) = mpsc::channel();
                scope.spawn(move || told.send((read(pool, ino, first, count), pool.blocks_behind())));
                tells
            });
            let early: Vec<_> = (reads.iter().zip(waits))
                .map(|(tells, waits)| tells.recv_timeout(if waits { SHORT } else { LONG }))
                .collect();
            gate.open();
            for (seen, waits) in early.into_iter().zip(waits) {
                let whole = seen.map(|(bytes, behind)| (bytes == letters(1..8), behind));
                assert_eq!(whole.is_err(), waits, "a write of block {held}");
                assert!(waits || whole == Ok((true, 1)), "the write was in effect: {whole:?}");
            }
            let mut all = letters(1..11);
            all.resize(usize::try_from((held + 1).max(10) * BLOCK).expect("small"), 0);
            let at = usize::try_from(held * BLOCK).expect("small");
            all[at..at + marked.len()].copy_from_slice(&marked);
            for (tells, expected) in reads[1..].iter().zip([&marked[..], &all[..]]) {
                let (bytes, _) = tells.recv_timeout(LONG).expect("reads once the write is in effect");
                assert!(bytes == expected, "a write of block {held}");
            }
        });
        pool.close().expect("closes");
    }
}

#[test]
fn nothing_becomes_durable_before_what_was_accepted_earlier() {
    let inner = MemoryDevice::new(16_384);
    let gate = Arc::new(GatedDevice::new(inner, MARK));
    let pool = new_pool(&gate, &with_workers());
    let (first, later) = (create(&pool, "first"), create(&pool, "later"));
    pool.fsync(later).expect("is durable");
    let mut marked = letter(1);
    marked[..MARK.len()].copy_from_slice(MARK);
    accept(&pool, first, 0, &marked).expect("accepted");
    // Scattered, so that map leaves soon fill the small journal, and a worker has to commit by itself.
    for place in 0..400 {
        accept(&pool, later, place * 509, &letters([100 + place])).expect("accepted");
    }
    std::thread::scope(|scope| {
        // The callers help with the rest.
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(pool.attr(later).expect("is there").size_bytes, (399 * 509 + 1) * BLOCK));
        }
        // Time for all of it, if writes did not wait for their turn.
        std::thread::sleep(Duration::from_millis(300));
        let image: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(gate.inner().image()));
        let durable = open(&image, &quiet()).attr(later).expect("was promised").size_bytes;
        gate.open();
        assert_eq!(durable, 0);
    });
    pool.fsync(later).expect("is durable");
    assert!(read(&pool, first, 0, 1) == marked && read(&pool, later, 399 * 509, 1) == letters([499]));
    pool.close().expect("closes");
}
