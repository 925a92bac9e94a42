//! The contract of a volume, on a file of a pool in memory. Needs no mount.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::volumes::{BLOCK, DEVICE_BLOCKS, LENGTH, content, create, open_pool, set_length};
use common::{assert_clean, environment, new_pool_of, noise};
use onefold_block::AlignedBuffer;
use onefold_block::random::SeededRandom;
use onefold_export::volume::{
    ExtentContent, PoolVolume, SECTOR_BYTES, Volume, VolumeAccess, VolumeError, VolumeExtent, VolumeRead, WriteData,
    ZeroSpace,
};
use onefold_pool::{Durability, Ino, MEMORY_BYTES_MIN, OpenOptions, Pool, PoolError};
use onefold_testing::device::MemoryDevice;

/// A disk of `LENGTH` bytes in a new pool with workers.
struct Disk {
    device: Arc<MemoryDevice>,
    pool: Arc<Pool>,
    ino: Ino,
    volume: PoolVolume,
}

impl Disk {
    fn new() -> Disk {
        let device = new_pool_of(DEVICE_BLOCKS);
        let pool = open_pool(device.clone(), true);
        let ino = create(&pool, "disk", LENGTH);
        let volume = PoolVolume::open(pool.clone(), ino, VolumeAccess::ReadWrite).unwrap();
        Disk { device, pool, ino, volume }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.volume.write(offset, WriteData::copy_of(bytes), Durability::Later).unwrap();
    }

    fn mapped_blocks(&self) -> u64 {
        self.pool.attr(self.ino).unwrap().mapped_blocks
    }

    fn close(self) {
        drop(self.volume);
        self.pool.close().unwrap();
        drop(self.pool);
        assert_clean(&self.device);
    }
}

fn extent(range: std::ops::Range<u64>, content: ExtentContent) -> VolumeExtent {
    VolumeExtent { range, content }
}

#[test]
fn a_new_volume_is_as_long_as_its_file_and_reads_as_zeros() {
    let disk = Disk::new();
    assert_eq!(disk.volume.length_bytes(), LENGTH);
    assert_eq!(disk.volume.atomic_bytes(), BLOCK);
    assert!(!disk.volume.is_read_only());
    assert!(content(&disk.volume).iter().all(|&byte| byte == 0));
    disk.close();
}

#[test]
fn sectors_are_written_within_blocks_and_their_neighbours_stay() {
    let disk = Disk::new();
    let mut expected = noise(1, usize::try_from(LENGTH).unwrap());
    disk.write(0, &expected);
    // Within a block, over a boundary, whole blocks at unaligned offsets, the short tail.
    for (seed, offset, bytes) in [
        (2, BLOCK + 512, 512),
        (3, 3 * BLOCK - 512, 1024),
        (4, 5 * BLOCK + 1536, 2 * BLOCK),
        (5, 40 * BLOCK, 3 * SECTOR_BYTES),
        (6, LENGTH - 512, 512),
    ] {
        let piece = noise(seed, usize::try_from(bytes).unwrap());
        disk.write(offset, &piece);
        let at = usize::try_from(offset).unwrap();
        expected[at..at + piece.len()].copy_from_slice(&piece);
        assert!(content(&disk.volume) == expected, "{bytes} bytes at {offset}");
    }
    disk.close();
}

#[test]
fn data_may_begin_anywhere_in_their_buffer() {
    let disk = Disk::new();
    let buffer = AlignedBuffer::copy_of(&noise(1, 16_384));
    let expected = buffer.to_vec();
    for (offset, range) in [(0, 0..8192), (8192, 4096..8192), (12_288, 512..8704), (24_576, 100..612)] {
        let data = WriteData::new(buffer.clone(), range.clone());
        disk.volume.write(offset, data, Durability::Later).unwrap();
        let mut found = vec![0; range.len()];
        disk.volume.read(offset, &mut found).unwrap();
        assert!(found == expected[range.clone()], "{range:?} at {offset}");
    }
    disk.close();
}

#[test]
fn several_reads_are_what_they_are_one_by_one() {
    let disk = Disk::new();
    let bytes = noise(1, usize::try_from(LENGTH).unwrap());
    disk.write(0, &bytes);
    let places = [(0, 512), (512, 8192), (LENGTH, 512), (8192, 4096), (100, 512), (8192, 4096), (LENGTH - 512, 512)];
    let mut buffers: Vec<Vec<u8>> = places.iter().map(|(_, length)| vec![0; *length]).collect();
    let mut reads: Vec<VolumeRead<'_>> =
        places.iter().zip(&mut buffers).map(|((offset, _), into)| VolumeRead { offset: *offset, into }).collect();
    let outcomes = disk.volume.read_each(&mut reads);
    for (((offset, length), into), outcome) in places.iter().zip(&buffers).zip(outcomes) {
        match outcome {
            Ok(()) => {
                let at = usize::try_from(*offset).unwrap();
                assert!(*into == bytes[at..at + length], "{length} bytes at {offset}");
            }
            Err(VolumeError::PastEnd { .. }) => assert_eq!(*offset, LENGTH),
            Err(VolumeError::Misaligned { .. }) => assert_eq!(*offset, 100),
            Err(error) => panic!("{error}"),
        }
    }
    disk.close();
}

#[test]
fn ranges_that_are_no_sectors_of_the_volume_are_refused_and_change_nothing() {
    let disk = Disk::new();
    disk.write(0, &noise(1, usize::try_from(LENGTH).unwrap()));
    let before = content(&disk.volume);
    let outcomes = |offset: u64, bytes: u64| {
        let (mut into, data) = (vec![0; usize::try_from(bytes).unwrap()], vec![7; usize::try_from(bytes).unwrap()]);
        let (volume, range) = (&disk.volume, offset..offset.saturating_add(bytes));
        [
            volume.read(offset, &mut into),
            volume.write(offset, WriteData::copy_of(&data), Durability::Later),
            volume.write(offset, WriteData::copy_of(&data), Durability::Now),
            volume.zero(range.clone(), ZeroSpace::MayBeFreed, Durability::Later),
            volume.zero(range.clone(), ZeroSpace::Kept, Durability::Now),
            volume.discard(range.clone()),
            volume.extents(range, 1).map(drop),
        ]
    };
    for (offset, bytes) in [(1, 512), (0, 511), (256, 256), (LENGTH - 511, 511)] {
        for outcome in outcomes(offset, bytes) {
            assert!(matches!(outcome, Err(VolumeError::Misaligned { .. })), "{bytes} at {offset}: {outcome:?}");
        }
    }
    for (offset, bytes) in [(LENGTH, 512), (LENGTH - 512, 1024), (1 << 44, 512), (LENGTH + 512, 0)] {
        for outcome in outcomes(offset, bytes) {
            let is_refused = matches!(outcome, Err(VolumeError::PastEnd { length_bytes: LENGTH, .. }));
            assert!(is_refused, "{bytes} at {offset}: {outcome:?}");
        }
    }
    for outcome in outcomes(LENGTH, 0) {
        outcome.expect("nothing at the end");
    }
    assert!(content(&disk.volume) == before);
    assert_eq!(disk.pool.attr(disk.ino).unwrap().size_bytes, LENGTH);
    disk.close();
}

#[test]
fn a_volume_that_is_read_only_refuses_each_change() {
    let disk = Disk::new();
    disk.write(0, &noise(1, 8192));
    let volume = PoolVolume::open(disk.pool.clone(), disk.ino, VolumeAccess::ReadOnly).unwrap();
    assert!(volume.is_read_only());
    let before = content(&volume);
    for outcome in [
        volume.write(0, WriteData::copy_of(&[1; 512]), Durability::Later),
        volume.write(0, WriteData::copy_of(&[1; 4096]), Durability::Now),
        volume.zero(0..4096, ZeroSpace::MayBeFreed, Durability::Later),
        volume.discard(0..4096),
    ] {
        assert!(matches!(outcome, Err(VolumeError::ReadOnly)), "{outcome:?}");
    }
    volume.flush().unwrap();
    assert!(content(&volume) == before);
    drop(volume);
    disk.close();
}

#[test]
fn a_pool_that_is_read_only_refuses_each_change_of_its_volumes() {
    let device = new_pool_of(DEVICE_BLOCKS);
    let pool = open_pool(device.clone(), false);
    let ino = create(&pool, "disk", LENGTH);
    pool.close().unwrap();
    let options = OpenOptions { memory_bytes: MEMORY_BYTES_MIN, read_only: true, ..OpenOptions::default() };
    let pool = Arc::new(Pool::open(device, options, environment()).unwrap());
    let volume = PoolVolume::open(pool, ino, VolumeAccess::ReadWrite).unwrap();
    assert!(volume.is_read_only());
    volume.flush().unwrap();
    for bytes in [512, 4096] {
        let written = volume.write(0, WriteData::copy_of(&vec![1; bytes]), Durability::Later);
        assert!(matches!(written, Err(VolumeError::ReadOnly)), "{written:?}");
    }
    let zeroed = volume.zero(0..4096, ZeroSpace::Kept, Durability::Later);
    assert!(matches!(zeroed, Err(VolumeError::ReadOnly)), "{zeroed:?}");
}

#[test]
fn zeros_keep_their_space_or_free_it() {
    let disk = Disk::new();
    let mut expected = noise(1, usize::try_from(LENGTH).unwrap());
    disk.write(0, &expected);
    assert_eq!(disk.mapped_blocks(), 41);
    // From the middle of block 2 to the middle of block 6: blocks 3 to 5 are whole.
    let range = 2 * BLOCK + 1024..6 * BLOCK + 512;
    disk.volume.zero(range.clone(), ZeroSpace::Kept, Durability::Later).unwrap();
    expected[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].fill(0);
    assert!(content(&disk.volume) == expected);
    assert_eq!(disk.mapped_blocks(), 41, "reserved");
    disk.volume.zero(range, ZeroSpace::MayBeFreed, Durability::Later).unwrap();
    assert!(content(&disk.volume) == expected);
    assert_eq!(disk.mapped_blocks(), 38);
    disk.close();
}

#[test]
fn a_discard_frees_whole_blocks_and_leaves_the_rest_as_it_is() {
    let disk = Disk::new();
    let mut expected = noise(1, usize::try_from(LENGTH).unwrap());
    disk.write(0, &expected);
    disk.volume.discard(2 * BLOCK + 1024..6 * BLOCK + 512).unwrap();
    expected[3 * 4096..6 * 4096].fill(0);
    assert!(content(&disk.volume) == expected);
    assert_eq!(disk.mapped_blocks(), 38);
    // Less than a block, and only the edges of two blocks.
    for range in [BLOCK..BLOCK + 512, BLOCK + 512..3 * BLOCK - 512] {
        disk.volume.discard(range).unwrap();
    }
    assert!(content(&disk.volume) == expected);
    disk.close();
}

#[test]
fn extents_cover_a_range_without_gaps_and_stop_where_they_are_enough() {
    use ExtentContent::{Data, Zeros};
    let disk = Disk::new();
    let all = |volume: &PoolVolume| volume.extents(0..LENGTH, 100).unwrap();
    assert_eq!(all(&disk.volume), [extent(0..LENGTH, Zeros)]);
    disk.write(4 * BLOCK + 512, &noise(1, 512));
    disk.write(40 * BLOCK, &noise(2, 512));
    disk.volume.zero(20 * BLOCK..24 * BLOCK, ZeroSpace::Kept, Durability::Later).unwrap();
    let expected = [
        extent(0..4 * BLOCK, Zeros),
        extent(4 * BLOCK..5 * BLOCK, Data),
        extent(5 * BLOCK..40 * BLOCK, Zeros),
        extent(40 * BLOCK..LENGTH, Data),
    ];
    assert_eq!(all(&disk.volume), expected);
    assert_eq!(disk.volume.extents(0..LENGTH, 3).unwrap(), expected[..3]);
    let within = disk.volume.extents(4 * BLOCK + 512..5 * BLOCK + 1024, 9).unwrap();
    assert_eq!(within, [extent(4 * BLOCK + 512..5 * BLOCK, Data), extent(5 * BLOCK..5 * BLOCK + 1024, Zeros)]);
    assert_eq!(disk.volume.extents(LENGTH - 512..LENGTH, 9).unwrap(), [extent(LENGTH - 512..LENGTH, Data)]);
    assert_eq!(disk.volume.extents(512..512, 9).unwrap(), []);
    disk.close();
}

#[test]
fn a_volume_becomes_longer_when_it_is_measured_and_counts_whole_sectors() {
    let disk = Disk::new();
    set_length(&disk.pool, disk.ino, LENGTH + 8192 + 100);
    assert_eq!(disk.volume.length_bytes(), LENGTH, "as it was last measured");
    assert!(matches!(disk.volume.read(LENGTH, &mut [0; 512]), Err(VolumeError::PastEnd { .. })));
    assert_eq!(disk.volume.measure().unwrap(), LENGTH + 8192);
    assert_eq!(disk.volume.length_bytes(), LENGTH + 8192);
    disk.write(LENGTH + 7680, &[7; 512]);
    assert!(disk.volume.write(LENGTH + 8192, WriteData::copy_of(&[7; 512]), Durability::Later).is_err());
    assert_eq!(disk.pool.attr(disk.ino).unwrap().size_bytes, LENGTH + 8192 + 100, "the tail stays");

    set_length(&disk.pool, disk.ino, 8192);
    let read = disk.volume.read(4096, &mut [0; 8192]);
    assert!(matches!(read, Err(VolumeError::PastEnd { length_bytes: 8192, .. })), "{read:?}");
    assert_eq!(disk.volume.measure().unwrap(), LENGTH + 8192, "a volume does not become shorter");
    disk.write(LENGTH + 7680, &[8; 512]);
    disk.volume.read(4096, &mut [0; 8192]).unwrap();
    disk.close();
}

#[test]
fn only_regular_files_are_volumes_and_a_volume_keeps_its_file() {
    let disk = Disk::new();
    let opened = PoolVolume::open(disk.pool.clone(), Ino::ROOT, VolumeAccess::ReadWrite);
    assert!(matches!(opened, Err(VolumeError::Failed { action: "open", .. })), "{opened:?}");
    let opened = PoolVolume::open(disk.pool.clone(), Ino(99), VolumeAccess::ReadWrite);
    assert!(matches!(opened, Err(VolumeError::Failed { action: "open", .. })), "{opened:?}");

    disk.write(0, &[7; 4096]);
    disk.pool.unlink(Ino::ROOT, b"disk").unwrap();
    disk.write(512, &[8; 512]);
    assert_eq!(content(&disk.volume)[512..1025], [&[8; 512][..], &[7]].concat());
    let Disk { pool, volume, ino, .. } = disk;
    assert_eq!(pool.attr(ino).unwrap().link_count, 0);
    drop(volume);
    // A background worker frees it.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !matches!(pool.attr(ino), Err(PoolError::NotFound)) {
        assert!(Instant::now() < deadline, "nobody has it open, and it stays");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Random calls, compared with bytes in memory.
#[test]
fn a_volume_agrees_with_bytes_in_memory() {
    let disk = Disk::new();
    let random = SeededRandom::new(11);
    let mut expected = vec![0; usize::try_from(LENGTH).unwrap()];
    let sectors = LENGTH / SECTOR_BYTES;
    for step in 0..3000 {
        let first = random.below(sectors);
        let count = 1 + random.below((sectors - first).min(1 + random.below(64)));
        let (offset, end) = (first * SECTOR_BYTES, (first + count) * SECTOR_BYTES);
        let (at, to) = (usize::try_from(offset).unwrap(), usize::try_from(end).unwrap());
        let durability = if random.below(20) == 0 { Durability::Now } else { Durability::Later };
        match random.below(10) {
            0..5 => {
                let bytes = noise(random.below(8), to - at);
                disk.volume.write(offset, WriteData::copy_of(&bytes), durability).unwrap();
                expected[at..to].copy_from_slice(&bytes);
            }
            5 | 6 => {
                let space = if random.below(2) == 0 { ZeroSpace::Kept } else { ZeroSpace::MayBeFreed };
                disk.volume.zero(offset..end, space, durability).unwrap();
                expected[at..to].fill(0);
            }
            7 => {
                disk.volume.discard(offset..end).unwrap();
                let mut left = vec![1; to - at];
                disk.volume.read(offset, &mut left).unwrap();
                for (sector, before) in left.chunks(512).zip(expected[at..to].chunks_mut(512)) {
                    assert!(sector == before || sector.iter().all(|&byte| byte == 0), "step {step}");
                    before.copy_from_slice(sector);
                }
            }
            8 => {
                let mut covered = offset;
                for VolumeExtent { range, content } in disk.volume.extents(offset..end, 1000).unwrap() {
                    assert!(range.start == covered && range.end > covered, "step {step}: {range:?}");
                    covered = range.end;
                    let bytes = &expected[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()];
                    assert!(content == ExtentContent::Data || bytes.iter().all(|&byte| byte == 0), "step {step}");
                }
                assert_eq!(covered, end, "step {step}");
            }
            _ => {
                let mut found = vec![1; to - at];
                disk.volume.read(offset, &mut found).unwrap();
                assert!(found == expected[at..to], "step {step}: {offset}..{end}");
            }
        }
    }
    assert!(content(&disk.volume) == expected);
    disk.close();
}
