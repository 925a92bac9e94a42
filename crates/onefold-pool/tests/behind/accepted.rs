//! What was accepted is seen by every verb, counts with its memory, and is there whatever happens.

use std::sync::Arc;
use std::time::Duration;

use onefold_block::{AlignedBuffer, BlockDevice};
use onefold_pool::{Durability, Ino, OwnedWrite, Pool, PoolError, ReadRequest, SetAttr, WriteStart};
use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice};

use crate::common::observe::{check_clean, check_sums, seen};
use crate::common::{Dice, behind, letter, letters, open, quiet};
use crate::{BLOCK, accept, create, new_pool, read, with_workers};

/// What was seen: writers of random blocks waited for the one whose transaction reached a quarter of the log, as it had
/// to write the transaction and empty the log. Two processors and the disk were idle for a third of the time.
#[test]
fn a_transaction_that_has_grown_is_committed_before_anybody_has_to_wait() {
    let pool = new_pool(&Arc::new(MemoryDevice::new(65_536)), &with_workers());
    let ino = create(&pool, "a");
    let commits = || pool.stat().expect("adds up").activity.commits;
    let before = commits();
    // Each block has its own leaf of the map, which is logged whole: more than an eighth of the log, less than a
    // quarter.
    for place in 0..80 {
        accept(&pool, ino, place * 509, &letters([1 + place])).expect("accepted");
    }
    assert_eq!(pool.attr(ino).expect("is there").size_bytes, (79 * 509 + 1) * BLOCK, "all are in effect");
    let patience = std::time::Instant::now() + Duration::from_secs(30);
    while commits() == before {
        assert!(std::time::Instant::now() < patience, "nobody commits");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_was_accepted_is_seen_by_every_verb() {
    let pool = new_pool(&Arc::new(MemoryDevice::new(16_384)), &behind());
    let ino = create(&pool, "a");
    accept(&pool, ino, 3, &letters(1..3)).expect("accepted");
    assert_eq!(pool.stat().expect("adds up").activity.blocks_written, 2, "a number of the pool");
    accept(&pool, ino, 5, &letters([3])).expect("accepted");
    assert_eq!(pool.attr(ino).expect("is there").size_bytes, 6 * BLOCK);
    accept(&pool, ino, 6, &letters([4])).expect("accepted");
    assert_eq!(pool.lookup(Ino::ROOT, b"a").expect("is there").size_bytes, 7 * BLOCK);
    pool.release(ino, 1);
    accept(&pool, ino, 7, &letters([5])).expect("accepted");
    assert_eq!(read(&pool, ino, 0, 20)[3 * 4096..], letters(1..6)[..]);
    accept(&pool, ino, 8, &letters([6])).expect("accepted");
    assert_eq!(pool.seek(ino, 8 * BLOCK, onefold_pool::SeekTarget::Data).expect("data"), 8 * BLOCK);
    accept(&pool, ino, 9, &letters([7])).expect("accepted");
    let copy = create(&pool, "copy");
    pool.clone_file(ino, copy).expect("clones");
    assert_eq!(read(&pool, copy, 9, 1), letters([7]));
    accept(&pool, ino, 10, &letters([8])).expect("accepted");
    pool.set_attr(ino, &SetAttr { size_bytes: Some(11 * BLOCK - 1), ..SetAttr::default() }).expect("truncates");
    assert_eq!(read(&pool, ino, 10, 1), letters([8])[..4095]);
    accept(&pool, ino, 20, &letters([9])).expect("accepted");
    pool.unlink(Ino::ROOT, b"a").expect("unlinks");
    pool.close().expect("closes");
}

/// What was wrong: the memory of accepted writes was counted by their data, although each keeps the whole buffer in
/// which it arrived. Writes of 68 KiB in buffers of 1 MiB took fifteen times the counted memory.
#[test]
fn accepted_writes_are_counted_with_the_memory_of_their_buffers() {
    let pool = new_pool(&Arc::new(MemoryDevice::new(65_536)), &behind());
    let ino = create(&pool, "a");
    let (buffer_blocks, blocks) = (258, 17);
    let mut most = 0;
    for number in 0..40 {
        let mut buffer = AlignedBuffer::zeroed(buffer_blocks);
        let range = 4096..4096 * (blocks + 1);
        buffer[range.clone()].fill(u8::try_from(number + 1).expect("small"));
        let write = OwnedWrite { ino, offset: number * 300 * BLOCK, buffer, range };
        pool.write_behind(write, WriteStart::ByWorker).expect("accepted");
        most = most.max(pool.blocks_behind() / blocks);
    }
    let memory_bytes = most * buffer_blocks * 4096;
    assert!(most > 1, "something waits");
    assert!(memory_bytes <= (64 << 20) / 16, "{most} buffers wait, {memory_bytes} bytes");
    assert_eq!(pool.blocks_behind() % blocks, 0);
    assert_eq!(read(&pool, ino, 39 * 300, 1), [40; 4096]);
}

#[test]
fn reads_together_are_what_they_are_one_by_one() {
    let pool = new_pool(&Arc::new(MemoryDevice::new(16_384)), &behind());
    let (one, two) = (create(&pool, "one"), create(&pool, "two"));
    accept(&pool, one, 0, &letters(1..41)).expect("accepted");
    accept(&pool, one, 600, &letters(50..53)).expect("accepted");
    pool.write(two, 5, b"not much", Durability::Later).expect("writes");
    let places = [(one, 0, 4096), (one, 4096, 8192), (one, 590 * BLOCK, 20 * 4096), (one, 39 * BLOCK, 65_536)];
    let odd = [(two, 0, 4096), (two, 3, 7), (one, 602 * BLOCK, 8192), (one, 700 * BLOCK, 4096), (two, 4096, 0)];
    let missing = Ino(one.0 + 1_000_000);
    let directory = [(Ino::ROOT, 0, 4096), (missing, 0, 4096)];
    let all: Vec<(Ino, u64, usize)> = places.into_iter().chain(odd).chain(directory).collect();
    for _ in 0..2 {
        let mut buffers: Vec<AlignedBuffer> = all.iter().map(|_| AlignedBuffer::zeroed(20)).collect();
        let into = |(&(ino, offset, bytes), buffer)| {
            let buffer: &mut AlignedBuffer = buffer;
            ReadRequest { ino, offset, into: &mut buffer[..bytes] }
        };
        let mut readings: Vec<ReadRequest<'_>> = all.iter().zip(&mut buffers).map(into).collect();
        let outcomes = pool.read_each(&mut readings);
        for ((&(ino, offset, bytes), outcome), reading) in all.iter().zip(outcomes).zip(&readings) {
            let mut alone = vec![0; bytes];
            match (pool.read(ino, offset, &mut alone), outcome) {
                (Ok(expected), Ok(got)) => {
                    assert_eq!((expected, &alone[..got]), (got, &reading.into[..got]), "{bytes} at {offset} of {ino}");
                }
                (Err(expected), Err(got)) => assert_eq!(expected.to_string(), got.to_string()),
                (expected, got) => panic!("{bytes} at {offset} of {ino}: {got:?} for {expected:?}"),
            }
        }
        pool.commit().expect("commits");
    }
}

/// Works on the files of one thread and checks their content. Each thread works on its own files, all with the same
/// contents.
fn work(pool: &Pool, thread: u64, rounds: u64) {
    let dice = Dice::new(thread);
    let own = create(pool, &format!("own{thread}"));
    let mut holds: Vec<u64> = vec![0; 900];
    let mut end = 0;
    for _ in 0..rounds {
        let (first, count) = (dice.below(640), if dice.one_in(8) { 1 + dice.below(256) } else { 1 + dice.below(4) });
        match dice.below(10) {
            0..7 => {
                let numbers: Vec<u64> = (0..count).map(|_| dice.below(50)).collect();
                let bytes = letters(numbers.iter().copied());
                accept(pool, own, first, &bytes).expect("accepted");
                for (place, number) in (usize::try_from(first).expect("small")..).zip(numbers) {
                    holds[place] = number;
                }
                end = end.max(first + count);
            }
            7 => {
                end = dice.below(600);
                pool.set_attr(own, &SetAttr { size_bytes: Some(end * BLOCK), ..SetAttr::default() })
                    .expect("truncates");
                holds[usize::try_from(end).expect("small")..].fill(0);
            }
            8 => pool.fsync(own).expect("is durable"),
            _ => {
                let expected: Vec<u8> = (first..(first + count).min(end))
                    .flat_map(|block| letter(holds[usize::try_from(block).expect("small")]))
                    .collect();
                assert!(read(pool, own, first, count) == expected, "{count} blocks at {first} of thread {thread}");
            }
        }
        if dice.one_in(20) {
            assert_eq!(pool.attr(own).expect("is there").size_bytes, end * BLOCK);
        }
    }
}

#[test]
fn threads_read_what_they_wrote_while_workers_carry_it_out() {
    for options in [with_workers(), quiet()] {
        let device = Arc::new(MemoryDevice::new(32_768));
        let pool = new_pool(&device, &options);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let pool = &pool;
                scope.spawn(move || work(pool, thread, 400));
            }
        });
        let before = seen(&pool).expect("reads");
        check_sums(&pool).expect("adds up");
        pool.close().expect("closes");
        drop(pool);
        check_clean(&*device).expect("is sound");
        let device: Arc<dyn BlockDevice> = device;
        assert!(seen(&open(&device, &quiet())).expect("reads") == before, "all is there after the close");
    }
}

#[test]
fn whatever_was_accepted_by_a_pool_that_fills_up_is_there() {
    for options in [with_workers(), quiet()] {
        let device = Arc::new(MemoryDevice::new(8192));
        let pool = new_pool(&device, &options);
        let accepted: Vec<u64> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|thread: u64| {
                    let pool = &pool;
                    scope.spawn(move || {
                        let ino = create(pool, &format!("f{thread}"));
                        let mine = (thread + 1) * 100_000;
                        let mut accepted = 0;
                        for piece in [200, 16, 1] {
                            loop {
                                let first = mine + accepted;
                                match accept(pool, ino, accepted, &letters(first..first + piece)) {
                                    Ok(()) => accepted += piece,
                                    Err(PoolError::NoSpace) => break,
                                    Err(error) => panic!("after {accepted} blocks: {error}"),
                                }
                            }
                        }
                        pool.fsync(ino).expect("nothing that was accepted has failed");
                        accepted
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
        });
        assert!(accepted.iter().sum::<u64>() > 7000, "{accepted:?} blocks of 8192");
        for (thread, count) in (0..).zip(accepted) {
            let ino = pool.lookup(Ino::ROOT, format!("f{thread}").as_bytes()).expect("is there").ino;
            pool.release(ino, 1);
            for block in 0..count {
                let expected = letter((thread + 1) * 100_000 + block);
                assert!(read(&pool, ino, block, 1) == expected, "block {block} of file {thread}");
            }
        }
        pool.close().expect("closes");
        check_clean(&*device).expect("is sound");
    }
}

#[test]
fn a_device_that_fails_under_an_accepted_write_stops_the_pool() {
    for options in [with_workers(), behind()] {
        let device = Arc::new(FaultyDevice::new(MemoryDevice::new(16_384), 1));
        let pool = new_pool(&device, &options);
        let ino = create(&pool, "a");
        pool.fsync(ino).expect("is durable");
        device.fail(Call::Write, FailingCalls::FromNth(device.count(Call::Write) + 1), Fault::Io);
        accept(&pool, ino, 0, &letters(1..4)).expect("accepted");
        assert!(matches!(pool.fsync(ino), Err(PoolError::Stopped { .. })));
        assert!(matches!(accept(&pool, ino, 9, &letters([1])), Err(PoolError::Stopped { .. })));
        assert!(read(&pool, ino, 0, 3).is_empty(), "nothing of it has happened");
        device.heal();
        drop(pool);
        let device: Arc<dyn BlockDevice> = device;
        assert_eq!(open(&device, &quiet()).attr(ino).expect("was promised").size_bytes, 0);
    }
}
