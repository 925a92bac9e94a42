//! The state of a volume after power cuts, lost writes and device failures, on a file of a pool in memory. Needs no
//! mount.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::sync::Arc;

use common::volumes::{DEVICE_BLOCKS, LENGTH, content, create, open_pool};
use common::{assert_clean_on, new_pool_of, noise};
use onefold_block::random::SeededRandom;
use onefold_export::volume::{PoolVolume, SECTOR_BYTES, Volume, VolumeAccess, VolumeError, WriteData, ZeroSpace};
use onefold_pool::{Durability, Ino, Pool, PoolError};
use onefold_testing::device::{
    Call, CrashPlan, Event, FailingCalls, Fault, FaultyDevice, MemoryDevice, RecordingDevice, Sample,
};

/// Changes, some of them promised to be durable. `states[count]` is the content after `count` changes.
struct Story {
    device: Arc<RecordingDevice>,
    states: Vec<Vec<u8>>,
}

impl Story {
    /// Makes changes of all kinds, and marks those after which everything before was promised.
    fn tell(seed: u64) -> Story {
        let start = new_pool_of(DEVICE_BLOCKS);
        let pool = open_pool(start.clone(), false);
        let ino = create(&pool, "disk", LENGTH);
        pool.close().unwrap();
        let device = Arc::new(RecordingDevice::new(start.image()));
        let pool = open_pool(device.clone(), false);
        let volume = PoolVolume::open(pool, ino, VolumeAccess::ReadWrite).unwrap();
        let random = SeededRandom::new(seed);
        let mut states = vec![vec![0; usize::try_from(LENGTH).unwrap()]];
        for number in 1..=40_u64 {
            let mut state = states.last().unwrap().clone();
            let durability = if random.below(3) == 0 { Durability::Now } else { Durability::Later };
            let (first, count) = (random.below(20 * 8), 1 + random.below(30));
            let (offset, end) = (first * SECTOR_BYTES, (first + count) * SECTOR_BYTES);
            let within = usize::try_from(offset).unwrap()..usize::try_from(end).unwrap();
            if number % 7 == 0 {
                let space = if number % 2 == 0 { ZeroSpace::Kept } else { ZeroSpace::MayBeFreed };
                volume.zero(offset..end, space, durability).unwrap();
                state[within].fill(0);
            } else {
                let bytes = noise(1000 + number, within.len());
                volume.write(offset, WriteData::copy_of(&bytes), durability).unwrap();
                state[within].copy_from_slice(&bytes);
            }
            states.push(state);
            if durability == Durability::Now {
                device.mark(number);
            } else if random.below(8) == 0 {
                volume.flush().unwrap();
                device.mark(number);
            }
        }
        Story { device, states }
    }
}

#[test]
fn what_was_flushed_or_written_durably_is_there_after_any_power_cut() {
    let story = Story::tell(5);
    let recording = story.device.recording();
    let marks = recording.events().iter().filter(|event| matches!(event, Event::Mark(_))).count();
    assert!(marks > 8, "{marks} promises");
    let plan = CrashPlan { sample: Sample::AtMost(600), ..CrashPlan::with_seed(9) };
    let mut left = std::collections::BTreeSet::new();
    for image in recording.crash_images(plan) {
        let promised = usize::try_from(image.last_mark().unwrap_or(0)).unwrap();
        let description = image.description();
        let pool = open_pool(Arc::new(image.device), false);
        let ino = pool.lookup(Ino::ROOT, b"disk").unwrap().ino;
        let volume = PoolVolume::open(pool, ino, VolumeAccess::ReadWrite).unwrap();
        let found = content(&volume);
        let state = (promised..story.states.len()).find(|&count| story.states[count] == found);
        assert!(state.is_some(), "{description}: not what {promised} changes or more had left");
        left.insert(state);
    }
    assert!(left.len() > 8, "the cuts left {} different contents", left.len());
}

#[test]
fn a_change_that_is_not_durable_is_made_so_by_a_flush_alone() {
    let start = new_pool_of(DEVICE_BLOCKS);
    let pool = open_pool(start.clone(), false);
    let ino = create(&pool, "disk", LENGTH);
    pool.close().unwrap();
    let device = Arc::new(RecordingDevice::new(start.image()));
    let volume = PoolVolume::open(open_pool(device.clone(), false), ino, VolumeAccess::ReadWrite).unwrap();
    let syncs = || {
        let recording = device.recording();
        recording.syncs_before(recording.events().len())
    };
    let before = syncs();
    volume.write(0, WriteData::copy_of(&[7; 4096]), Durability::Later).unwrap();
    volume.write(512, WriteData::copy_of(&[8; 512]), Durability::Later).unwrap();
    volume.discard(4096..8192).unwrap();
    assert_eq!(syncs(), before, "nothing was promised");
    volume.flush().unwrap();
    let flushed = syncs();
    assert!(flushed > before);
    volume.write(512, WriteData::copy_of(&[9; 512]), Durability::Now).unwrap();
    assert!(syncs() > flushed);
}

/// Returns a disk whose device can be made to fail.
fn on_a_faulty_device() -> (Arc<FaultyDevice<MemoryDevice>>, Arc<Pool>, PoolVolume) {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::from(new_pool_of(DEVICE_BLOCKS).image()), 1));
    let pool = open_pool(device.clone(), true);
    let ino = create(&pool, "disk", LENGTH);
    pool.sync().unwrap();
    let volume = PoolVolume::open(pool.clone(), ino, VolumeAccess::ReadWrite).unwrap();
    (device, pool, volume)
}

#[test]
fn a_volume_that_lost_an_accepted_write_never_flushes_again_and_others_do() {
    let (device, pool, volume) = on_a_faulty_device();
    let other = PoolVolume::open(pool.clone(), create(&pool, "other", LENGTH), VolumeAccess::ReadWrite).unwrap();
    volume.flush().unwrap();
    device.fail(Call::Write, FailingCalls::FromNth(device.count(Call::Write) + 1), Fault::StorageFull);
    volume.write(0, WriteData::copy_of(&noise(1, 4096)), Durability::Later).expect("accepted");
    assert!(pool.stat().is_ok(), "it has been tried by now");
    device.heal();
    let lost = |outcome: Result<(), VolumeError>| matches!(outcome, Err(VolumeError::Lost(_)));
    assert!(lost(volume.flush()) && lost(volume.flush()), "a later flush would hide it");
    assert!(lost(volume.write(8192, WriteData::copy_of(&[1; 512]), Durability::Now)));
    assert!(lost(volume.zero(8192..12_288, ZeroSpace::Kept, Durability::Now)));
    volume.write(8192, WriteData::copy_of(&[1; 512]), Durability::Later).expect("promises nothing");
    let ino = pool.lookup(Ino::ROOT, b"disk").unwrap().ino;
    let again = PoolVolume::open(pool.clone(), ino, VolumeAccess::ReadWrite).unwrap();
    assert!(lost(again.flush()), "a client that comes back is told as well");
    pool.release(ino, 1);

    other.write(0, WriteData::copy_of(&noise(2, 4096)), Durability::Now).expect("it lost nothing");
    other.flush().expect("it lost nothing");
    drop((volume, again, other));
    assert!(matches!(pool.close(), Err(PoolError::WritesLost { .. })), "the pool reports it all the same");
    drop(pool);
    assert_clean_on(&*device);
}

#[test]
fn a_full_pool_refuses_a_write_and_goes_on() {
    let (device, _pool, volume) = on_a_faulty_device();
    // A write of a part of a block is carried out before it is answered.
    device.fail(Call::Write, FailingCalls::FromNth(device.count(Call::Write) + 1), Fault::StorageFull);
    let written = volume.write(512, WriteData::copy_of(&noise(1, 512)), Durability::Later);
    assert!(matches!(written, Err(VolumeError::NoSpace)), "{written:?}");
    device.heal();
    volume.write(512, WriteData::copy_of(&noise(1, 512)), Durability::Now).unwrap();
}

#[test]
fn a_failing_device_fails_every_flush_and_what_is_stored_can_be_read() {
    let (device, _pool, volume) = on_a_faulty_device();
    let bytes = noise(1, 4096);
    volume.write(0, WriteData::copy_of(&bytes), Durability::Now).unwrap();
    device.fail(Call::Sync, FailingCalls::FromNth(device.count(Call::Sync) + 1), Fault::Io);
    volume.write(4096, WriteData::copy_of(&noise(2, 4096)), Durability::Later).unwrap();
    assert!(matches!(volume.flush(), Err(VolumeError::Failed { action: "flush", .. })));
    device.heal();
    assert!(matches!(volume.flush(), Err(VolumeError::Failed { action: "flush", .. })), "not tried again");
    let mut found = vec![0; 4096];
    volume.read(0, &mut found).unwrap();
    assert!(found == bytes);
}
