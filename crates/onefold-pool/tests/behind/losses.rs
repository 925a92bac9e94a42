//! Hosts that fill up under accepted writes: which writes the pool accepts on credit, and which callers it tells of a
//! loss.

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_block::clock::ManualClock;
use onefold_pool::{CreateOptions, Environment, Ino, OpenOptions, Pool, PoolError, Provisioning, SetAttr};
use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice, ThinDevice};

use crate::common::observe::check_clean;
use crate::common::{behind, environment, letter, letters};
use crate::{accept, create, new_pool, read};

#[test]
fn a_host_that_fills_up_under_an_accepted_write_is_told_by_the_next_fsync_once() {
    let device = Arc::new(ThinDevice::new(MemoryDevice::new(65_536), 60_000));
    let pool = new_pool(&device, &behind());
    let ino = create(&pool, "a");
    accept(&pool, ino, 0, &letters(1..4)).expect("accepted");
    pool.fsync(ino).expect("is durable");
    // More than the blocks that were written for metadata, which have room on the host.
    for piece in 0..4 {
        accept(&pool, ino, piece * 250, &letters(100 + piece * 250..100 + piece * 250 + 250))
            .expect("accepted while there was room");
    }
    device.set_room(0);
    let lost = pool.fsync(ino);
    assert!(
        matches!(&lost, Err(PoolError::WritesLost { cause, .. }) if matches!(**cause, PoolError::NoSpace)),
        "{lost:?}"
    );
    pool.fsync(ino).expect("told once, and the pool lives");
    let new: Vec<bool> = (0..4)
        .map(|piece| read(&pool, ino, piece * 250, 250) == letters(100 + piece * 250..100 + piece * 250 + 250))
        .collect();
    assert!(new.contains(&false), "{new:?}");
    if !new[0] {
        assert!(read(&pool, ino, 0, 3) == letters(1..4), "as if it had never been");
    }
    device.set_room(60_000);
    accept(&pool, ino, 1, &letters(100..102)).expect("accepted");
    pool.fsync(ino).expect("is durable");
    assert_eq!(read(&pool, ino, 1, 2), letters(100..102));
    assert!(matches!(pool.close(), Err(PoolError::WritesLost { .. })), "the close tells of it all the same");
    drop(pool);
    check_clean(&*device).expect("it was closed in good order");
}

#[test]
fn a_sparse_pool_on_a_host_with_little_room_answers_when_it_knows() {
    let device = Arc::new(ThinDevice::new(MemoryDevice::new(65_536), 60_000));
    let pool = new_pool(&device, &behind());
    let ino = create(&pool, "a");
    device.set_room(700);
    let mut accepted = 0;
    while let Ok(()) = accept(&pool, ino, accepted, &letters(1000 + accepted..1000 + accepted + 20)) {
        accepted += 20;
    }
    assert!((500..1000).contains(&accepted), "{accepted}");
    pool.fsync(ino).expect("all that was accepted has its place");
    for block in 0..accepted {
        assert!(read(&pool, ino, block, 1) == letter(1000 + block), "block {block}");
    }
}

/// Returns a pool on a host with room for `room` blocks, and the pool's clock.
fn pool_with_room(room: u64) -> (Arc<ThinDevice>, Pool, Arc<ManualClock>) {
    pool_on(ThinDevice::new(MemoryDevice::new(600_000), room))
}

fn pool_on<D: BlockDevice + 'static>(device: D) -> (Arc<D>, Pool, Arc<ManualClock>) {
    let device = Arc::new(device);
    let seam: Arc<dyn BlockDevice> = device.clone();
    let clock = Arc::new(ManualClock::starting_at(1000));
    let environment = Environment { clock: clock.clone(), ..environment() };
    Pool::create(&seam, &CreateOptions::default(), &environment).expect("a pool is made");
    // More than one write of a mebibyte waits.
    let options = OpenOptions { memory_bytes: 256 << 20, ..behind() };
    let pool = Pool::open(seam, options, environment).expect("opens");
    (device, pool, clock)
}

/// Writes unique blocks until no space is left; returns the number of accepted ones.
fn accept_until_refused(pool: &Pool, ino: Ino) -> u64 {
    let mut accepted = 0;
    loop {
        let first = 10_000 + accepted;
        match accept(pool, ino, accepted, &letters(first..first + 50)) {
            Ok(()) => accepted += 50,
            Err(PoolError::NoSpace) => return accepted,
            Err(error) => panic!("after {accepted} blocks: {error}"),
        }
    }
}

/// What was seen: a sparse pool on a host with 0 free bytes accepted 15 MiB, none of which could be stored. The host's
/// earlier answer was trusted for another 16 MiB, however old it was.
#[test]
fn a_host_that_others_fill_up_is_known_to_be_full_before_a_write_is_accepted() {
    // The host is asked for each write.
    let (device, pool, _) = pool_with_room(60_000);
    let ino = create(&pool, "little room");
    accept(&pool, ino, 0, &letters([1])).expect("accepted");
    pool.fsync(ino).expect("is durable");
    device.set_room(0);
    // Blocks written for metadata have room on the host.
    assert!(accept_until_refused(&pool, ino) <= 1024);
    pool.fsync(ino).expect("nothing that was accepted is lost");
    pool.close().expect("closes");

    // The host is asked once per second.
    let (device, pool, clock) = pool_with_room(500_000);
    let ino = create(&pool, "ample room");
    accept(&pool, ino, 0, &letters([1])).expect("accepted");
    pool.fsync(ino).expect("is durable");
    device.set_room(0);
    clock.advance_seconds(1);
    assert!(accept_until_refused(&pool, ino) <= 1024);
    pool.fsync(ino).expect("nothing that was accepted is lost");
    pool.close().expect("closes");
}

/// Makes a pool lose accepted writes to a file, on a host that fills up during them and then has room again.
fn lose(device: &ThinDevice, pool: &Pool, ino: Ino) {
    // More than the blocks that were written for metadata, which have room on the host.
    for piece in 0..4 {
        let first = 2000 + ino.0 * 10_000 + piece * 250;
        accept(pool, ino, piece * 250, &letters(first..first + 250)).expect("accepted");
    }
    device.set_room(0);
    pool.attr(ino).expect("is there");
    assert_eq!(pool.blocks_behind(), 0);
    device.set_room(500_000);
}

/// What was seen: `fsync` of the file failed, while `fsync` of a folder or of another file, and the close of the pool,
/// succeeded, although each of them covers everything.
#[test]
fn a_loss_is_reported_once_by_all_that_is_open_and_by_each_later_opening_of_its_file() {
    let (device, pool, _) = pool_with_room(500_000);
    let (victim, other) = (create(&pool, "victim"), create(&pool, "other"));
    let opened = [victim, other, Ino::ROOT].map(|ino| pool.losses_seen_by_opening(ino));
    for seen in &opened {
        pool.fsync_opened(seen).expect("nothing is lost yet");
    }
    lose(&device, &pool, victim);
    assert!(!pool.is_without_losses());
    for (seen, name) in opened.iter().zip(["victim", "other", "folder"]) {
        let told = pool.fsync_opened(seen);
        assert!(matches!(told, Err(PoolError::WritesLost { ino, .. }) if ino == victim), "{name}: {told:?}");
        pool.fsync_opened(seen).expect("told once");
    }
    for _ in 0..2 {
        let seen = pool.losses_seen_by_opening(victim);
        assert!(pool.fsync_opened(&seen).is_err(), "a process that opens it later");
        pool.fsync_opened(&seen).expect("told once");
    }
    pool.fsync_opened(&pool.losses_seen_by_opening(other)).expect("others know");
    pool.set_attr(victim, &SetAttr { size_bytes: Some(0), ..SetAttr::default() }).expect("truncates");
    pool.fsync_opened(&pool.losses_seen_by_opening(victim)).expect("nothing of it is left");
    assert!(matches!(pool.close(), Err(PoolError::WritesLost { .. })), "an earlier report does not clear the loss");
    drop(pool);
    check_clean(&*device).expect("it was closed in good order");
}

/// What was wrong: failures of 1,024 files were kept, and those of further files were forgotten immediately.
#[test]
fn losses_of_any_number_of_files_are_reported() {
    let host = ThinDevice::new(MemoryDevice::new(600_000), 500_000);
    let (device, pool, clock) = pool_on(FaultyDevice::new(host, 1));
    let files: Vec<Ino> = (0..1500).map(|number| create(&pool, &format!("f{number}"))).collect();
    pool.sync().expect("is durable");
    for files in files.chunks(250) {
        for ino in files {
            accept(&pool, *ino, 0, &letters([1000 + ino.0])).expect("accepted");
        }
        device.fail(Call::Write, FailingCalls::FromNth(0), Fault::StorageFull);
        assert!(pool.attr(files[249]).is_ok_and(|attr| attr.size_bytes == 0));
        device.heal();
        // No write is accepted for a second.
        clock.advance_seconds(1);
    }
    let silent = files.iter().filter(|ino| pool.fsync_opened(&pool.losses_seen_by_opening(**ino)).is_ok()).count();
    assert_eq!(silent, 0);
}

#[test]
fn nothing_is_accepted_on_credit_after_a_write_has_found_no_room() {
    let (device, pool, _) = pool_with_room(500_000);
    let (lost, other) = (create(&pool, "lost"), create(&pool, "other"));
    accept(&pool, lost, 0, &letters([1])).expect("accepted");
    pool.fsync(lost).expect("is durable");
    device.set_room(0);
    for piece in 0..4 {
        accept(&pool, lost, piece * 250, &letters(2000 + piece * 250..2250 + piece * 250)).expect("there is credit");
    }
    assert!(pool.fsync(lost).is_err(), "they are lost");
    // Most of the credit is left.
    assert!(accept_until_refused(&pool, other) <= 1024);
    assert!(read(&pool, other, 0, 1).is_empty() || read(&pool, other, 0, 1) == letters([10_000]));
    pool.fsync(other).expect("nothing more is lost");
}

#[test]
fn a_thin_volume_is_written_before_a_write_is_answered() {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new(16_384), 1));
    let pool = new_pool(&device, &OpenOptions { provisioning: Provisioning::Thin, ..behind() });
    let ino = create(&pool, "a");
    pool.fsync(ino).expect("is durable");
    device.fail(Call::Write, FailingCalls::FromNth(0), Fault::StorageFull);
    assert!(matches!(accept(&pool, ino, 0, &letters(1..4)), Err(PoolError::NoSpace)));
    device.heal();
    accept(&pool, ino, 0, &letters(1..4)).expect("there is room");
    assert_eq!(pool.blocks_behind(), 0, "nothing is left to do");

    // A device that was not declared thin counts as thin once it has run out of room.
    let pool = new_pool(&device, &behind());
    let ino = create(&pool, "a");
    device.fail(Call::Write, FailingCalls::FromNth(0), Fault::StorageFull);
    accept(&pool, ino, 0, &letters(1..4)).expect("accepted");
    assert!(pool.fsync(ino).is_err(), "it is lost");
    assert!(matches!(accept(&pool, ino, 0, &letters(1..4)), Err(PoolError::NoSpace)));
}
