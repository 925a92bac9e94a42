//! Sparse pool files on full host file systems: the pool has free blocks, but no room for them.

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_pool::{CreateOptions, Durability, FileKind, Ino, NoProgress, Pool, PoolError, SetAttr};
use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice, ThinDevice};

use crate::common::observe::{check_clean, seen};
use crate::common::{environment, letter, new_file, open, quiet, regular};
use crate::trial::{BLOCK, new_pool, reopens_to};

/// Returns a pool of `blocks` on a host with room for `room` more than it takes when it is new.
fn thin_pool(blocks: u64, room: u64) -> (Arc<ThinDevice>, Pool) {
    let thin = Arc::new(ThinDevice::new(MemoryDevice::new(blocks), u64::MAX));
    let device: Arc<dyn BlockDevice> = thin.clone();
    Pool::create(&device, &CreateOptions::default(), &environment()).expect("a pool is made");
    thin.set_room(room);
    (thin, open(&device, &quiet()))
}

fn create(pool: &Pool, name: &str) -> Ino {
    let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("fits").ino;
    pool.release(ino, 1);
    ino
}

fn block(number: u64) -> [u8; 4096] {
    letter(1000 + number)
}

/// Writes distinct blocks one by one until no space is left; returns their number.
fn fill(pool: &Pool, ino: Ino, first: u64) -> u64 {
    let mut count = 0;
    loop {
        match pool.write(ino, count * BLOCK, &block(first + count), Durability::Later) {
            Ok(()) => count += 1,
            Err(PoolError::NoSpace) => return count,
            Err(error) => panic!("after {count} blocks: {error}"),
        }
    }
}

fn ends_clean(device: &ThinDevice, pool: Pool) {
    let tree = seen(&pool).expect("reads");
    pool.close().expect("closes");
    drop(pool);
    check_clean(device).expect("clean");
    reopens_to(device.inner().image(), &[tree]);
}

#[test]
fn a_full_host_never_stops_a_pool_and_space_comes_back() {
    for room in [100, 300, 900, 1500] {
        let (device, pool) = thin_pool(16_384, room);
        let (first, second) = (create(&pool, "first"), create(&pool, "second"));
        for number in 0..20 {
            pool.write(second, number * BLOCK, &block(number), Durability::Later).unwrap_or_default();
        }
        let count = fill(&pool, first, 10_000);
        pool.commit().expect("a full pool commits");
        pool.checkpoint().expect("what is committed has its place");
        pool.set_attr(first, &SetAttr { size_bytes: Some(count / 2 * BLOCK), ..SetAttr::default() })
            .expect("truncates");
        pool.unlink(Ino::ROOT, b"second").expect("unlinks");
        while pool.reclaim().expect("reclaims") {}
        pool.sync().expect("commits");
        pool.checkpoint().expect("has its place");
        let again = create(&pool, "again");
        let fits = fill(&pool, again, 50_000);
        assert!(fits >= count / 2, "{fits} of {} that were freed, of {count}", count / 2);
        ends_clean(&device, pool);
    }
}

/// A checkpoint was the first to write the places of map nodes and tree pages: the host had no room for them, long
/// after they were promised, and the pool stopped.
#[test]
fn names_that_were_made_have_their_place_on_a_full_host() {
    for room in [10, 260, 400] {
        let (device, pool) = thin_pool(16_384, room);
        let mut names = 0;
        let error = loop {
            match pool.create_file(Ino::ROOT, format!("{names:0200}").as_bytes(), &new_file(FileKind::Fifo)) {
                Ok(attr) => pool.release(attr.ino, 1),
                Err(error) => break error,
            }
            names += 1;
        };
        assert!(matches!(error, PoolError::NoSpace), "after {names} names: {error}");
        pool.sync().expect("commits");
        pool.checkpoint().expect("has its place");
        for number in 0..names {
            pool.unlink(Ino::ROOT, format!("{number:0200}").as_bytes()).expect("unlinks");
        }
        while pool.reclaim().expect("reclaims") {}
        pool.sync().expect("commits");
        pool.checkpoint().expect("has its place");
        ends_clean(&device, pool);
    }
}

/// What was wrong, found in a review: `trim` discarded the run of blocks that was written for metadata, and released
/// only the single ones. Names that were made later took blocks of that run. Once the host was full, the checkpoint
/// found no room for what had been promised long before.
#[test]
fn what_was_trimmed_is_written_again_before_metadata_takes_it() {
    let (device, pool) = thin_pool(16_384, 5000);
    let create_many = |from: u32, most: u32| {
        for number in from..from + most {
            match pool.create_file(Ino::ROOT, format!("{number:0200}").as_bytes(), &new_file(FileKind::Fifo)) {
                Ok(attr) => pool.release(attr.ino, 1),
                Err(PoolError::NoSpace) => return number - from,
                Err(error) => panic!("name {number}: {error}"),
            }
        }
        most
    };
    assert_eq!(create_many(0, 200), 200);
    pool.sync().expect("commits");
    pool.checkpoint().expect("has its place");
    assert!(pool.trim(&NoProgress).expect("trims") > 0);
    device.set_room(5);
    let more = create_many(200, 3000);
    assert!(more < 3000, "the host has room for five blocks");
    pool.sync().expect("commits");
    pool.checkpoint().expect("has its place");
    ends_clean(&device, pool);
}

/// The user got "no space" while small holes lay between the blocks in use: only long runs were searched as long as the
/// pool had more groups, and the host had no room for those.
#[test]
fn small_holes_are_used_before_a_full_host_is_reported() {
    let (device, pool) = thin_pool(70_000, 2000);
    let (kept, dropped) = (create(&pool, "kept"), create(&pool, "dropped"));
    for number in 0..600 {
        pool.write(kept, number * BLOCK, &block(number), Durability::Later).expect("fits");
        pool.write(dropped, number * BLOCK, &block(10_000 + number), Durability::Later).expect("fits");
    }
    let filler = create(&pool, "filler");
    fill(&pool, filler, 20_000);
    pool.unlink(Ino::ROOT, b"dropped").expect("unlinks");
    while pool.reclaim().expect("reclaims") {}
    pool.sync().expect("commits");
    let scattered = create(&pool, "scattered");
    let fits = fill(&pool, scattered, 50_000);
    assert!(fits >= 590, "{fits} blocks found a hole");
    ends_clean(&device, pool);
}

/// A host without any room, not even for blocks that were written before (possible on copy-on-write file systems):
/// nothing is acknowledged, nothing is lost, and the same commit succeeds once there is room.
#[test]
fn a_commit_without_room_is_not_believed_and_goes_through_later() {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::from(new_pool()), 1));
    let seam: Arc<dyn BlockDevice> = device.clone();
    let pool = open(&seam, &quiet());
    let before = seen(&pool).expect("reads");
    let file = create(&pool, "file");
    pool.write(file, 0, &[block(1), block(2)].concat(), Durability::Later).expect("fits");
    let written = seen(&pool).expect("reads");
    device.fail(Call::Write, FailingCalls::FromNth(0), Fault::StorageFull);
    for _ in 0..3 {
        assert!(matches!(pool.sync(), Err(PoolError::NoSpace)));
        assert!(matches!(pool.checkpoint(), Err(PoolError::NoSpace)));
        assert!(matches!(pool.write(file, 0, &block(3), Durability::Now), Err(PoolError::NoSpace)));
    }
    reopens_to(device.inner().image(), &[before]);
    let other = create(&pool, "in memory");
    pool.unlink(Ino::ROOT, b"in memory").expect("unlinks");
    pool.release(other, 0);
    device.heal();
    pool.sync().expect("commits");
    reopens_to(device.inner().image(), std::slice::from_ref(&written));
    device.fail(Call::Write, FailingCalls::FromNth(0), Fault::StorageFull);
    assert!(matches!(pool.checkpoint(), Err(PoolError::NoSpace)));
    reopens_to(device.inner().image(), std::slice::from_ref(&written));
    device.heal();
    pool.close().expect("closes");
    reopens_to(device.inner().image(), &[written]);
}
