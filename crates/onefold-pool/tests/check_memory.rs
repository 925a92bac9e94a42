//! Memory use of check and repair on a pool that is large compared with their `memory` setting: half a million names
//! and files, and block groups for several passes. An allocator counts the memory of each test's own thread; nothing
//! here uses several. So this test is a program of its own.

mod common;

use std::io;
use std::sync::Arc;

use common::{environment, new_file, quiet, regular};
use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo};
use onefold_pool::check::{CheckOptions, CheckReport, check, repair};
use onefold_pool::format::BlockBytes;
use onefold_pool::format::geometry::{GROUP_BLOCKS, Geometry, STATE};
use onefold_pool::format::header::{self, BlockKind, HEADER_BYTES};
use onefold_pool::format::journal::HEADER_SLOTS;
use onefold_pool::format::state::Field;
use onefold_pool::{
    CreateOptions, Durability, FileKind, Ino, MEMORY_BYTES_MIN, NoProgress, Pool, SetAttr, StorePlacement,
};
use onefold_testing::allocator::{CountingAllocator, uncounted, watched};
use onefold_testing::device::MemoryDevice;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The minimum memory: a pass counts 128 groups with it.
const OPTIONS: CheckOptions = CheckOptions {
    memory_bytes: MEMORY_BYTES_MIN,
    verify_data: false,
    host: None,
    unproven_names: onefold_pool::check::UnprovenNames::Refuse,
};
/// Additional memory that a repair may take.
const REPAIR_BYTES: u64 = 64 << 20;
/// Groups in use: enough for three passes.
const GROUPS: u64 = 300;

/// A device larger than the memory: it keeps only metadata, and generates the structures of used block groups in which
/// nothing was written.
struct MetadataDevice {
    inner: MemoryDevice,
    geometry: Geometry,
    pool_tag: u32,
}

impl MetadataDevice {
    /// Returns the content of a structure of a group without used blocks.
    fn blank(&self, at: BlockNo) -> Option<BlockBytes> {
        let group = at.0 / GROUP_BLOCKS;
        let kind =
            [BlockKind::Bitmap, BlockKind::StorePage].into_iter().find(|kind| self.geometry.is_place_of(*kind, at))?;
        let mut bytes = header::blank(self.pool_tag, kind, at);
        if at == self.geometry.bitmap_block(group, 0) {
            let fixed =
                (0..GROUP_BLOCKS).take_while(|within| self.geometry.is_fixed(BlockNo(group * GROUP_BLOCKS + within)));
            for within in fixed {
                bytes[HEADER_BYTES + usize::try_from(within / 8).expect("small")] |= 1 << (within % 8);
            }
        }
        header::seal(&mut bytes);
        Some(bytes)
    }

    fn is_metadata(&self, at: BlockNo, bytes: &BlockBytes) -> bool {
        !self.geometry.is_allocatable(at)
            || header::kind(bytes).is_some_and(|kind| header::verify(bytes, self.pool_tag, kind, at).is_ok())
    }
}

impl BlockDevice for MetadataDevice {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.inner.read(first, into)?;
        for (at, block) in (first.0..).map(BlockNo).zip(into.chunks_exact_mut(BLOCK_BYTES)) {
            // No sealed block is zero there.
            if at.0 >= GROUP_BLOCKS
                && block[..HEADER_BYTES] == [0; HEADER_BYTES]
                && let Some(bytes) = self.blank(at)
            {
                block.copy_from_slice(&bytes);
            }
        }
        Ok(())
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        uncounted(|| {
            for (at, block) in (first.0..).map(BlockNo).zip(from.as_chunks().0) {
                if self.is_metadata(at, block) {
                    self.inner.write(at, block)?;
                } else {
                    self.inner.discard(at, 1)?;
                }
            }
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        uncounted(|| self.inner.discard(first, count))
    }
}

/// Returns a pool with all groups in use and many small files, as a crash leaves it.
fn large_pool(journal_bytes: u64, files: u64) -> Arc<MetadataDevice> {
    let blocks = GROUPS * GROUP_BLOCKS;
    let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(blocks));
    let create = CreateOptions { journal_bytes: Some(journal_bytes), ..CreateOptions::default() };
    Pool::create(&memory, &create, &environment()).expect("a pool is made");
    let geometry =
        Geometry::plan(blocks, Some(journal_bytes / 4096), StorePlacement::InGroups).expect("a sound layout");
    let mut state = [0; BLOCK_BYTES];
    memory.read(STATE, &mut state).expect("reads");
    let pool_tag = u32::from_le_bytes(state[4..8].try_into().expect("four bytes"));
    let device = Arc::new(MetadataDevice { inner: MemoryDevice::new(blocks), geometry, pool_tag });
    let mut block = [0; BLOCK_BYTES];
    for at in (0..GROUP_BLOCKS).map(BlockNo) {
        memory.read(at, &mut block).expect("reads");
        if block != [0; BLOCK_BYTES] {
            device.write(at, &block).expect("writes");
        }
    }
    state[Field::GroupsReady.range()].copy_from_slice(&GROUPS.to_le_bytes());
    header::seal(&mut state);
    device.write(STATE, &state).expect("writes");

    let pool = Pool::open(device.clone(), quiet(), environment()).expect("opens");
    let mut directory = Ino::ROOT;
    for number in 0..files {
        if number % 10_000 == 0 {
            let name = format!("directory {number}");
            directory = pool.create_file(Ino::ROOT, name.as_bytes(), &new_file(FileKind::Directory)).expect("fits").ino;
        }
        let ino = pool.create_file(directory, format!("{number}").as_bytes(), &regular()).expect("fits").ino;
        if number % 64 == 0 {
            pool.write(ino, (number % 7) << 32, &number.to_le_bytes().repeat(4096), Durability::Later).expect("fits");
        }
        pool.release(ino, 1);
    }
    pool.commit().expect("commits");
    device
}

/// Fills the journal from end to end with old transactions, and closes the pool.
///
/// What was seen here: with the minimum memory and the largest journal, changing the modes of many files failed with
/// "the metadata cache is too small". Changed blocks stay in the cache until a checkpoint, and a transaction was
/// committed only when it was large compared with the journal. By then it filled the cache, and each block that an
/// operation read evicted the one it had read before, forever.
fn fill_journal(device: &Arc<MetadataDevice>) {
    let pool = Pool::open(device.clone(), quiet(), environment()).expect("opens");
    let inodes = pool.stat().expect("has numbers").inode_count;
    for mode in [0o600, 0o640, 0o644] {
        for ino in (2..inodes).map(Ino) {
            pool.set_attr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() }).expect("exists");
        }
        pool.commit().expect("commits");
        // The next changes are logged whole.
        pool.checkpoint().expect("has its place");
    }
    pool.close().expect("closes");
}

/// Panics if the peak memory exceeds what the guide promises.
fn assert_within(what: &str, peak_bytes: usize, journal_bytes: u64, besides_bytes: u64) {
    let allowed = OPTIONS.memory_bytes + journal_bytes * 3 / 2 + besides_bytes;
    eprintln!("{what}: {} of {} MiB", peak_bytes >> 20, allowed >> 20);
    assert!(peak_bytes as u64 <= allowed, "{what} took {peak_bytes} bytes, {allowed} are allowed");
}

fn checked(what: &str, device: &MetadataDevice, journal_bytes: u64) -> CheckReport {
    let (report, peak) = watched(|| check(device, &OPTIONS, &NoProgress).expect("can be checked"));
    assert_within(what, peak, journal_bytes, 0);
    report
}

fn repaired(what: &str, device: &Arc<MetadataDevice>, journal_bytes: u64) -> CheckReport {
    let seam: Arc<dyn BlockDevice> = device.clone();
    let (report, peak) = watched(|| repair(&seam, &OPTIONS, &environment(), &NoProgress).expect("can be repaired"));
    assert_within(what, peak, journal_bytes, REPAIR_BYTES);
    report
}

/// Inodes, names, block groups: everything that grows with the pool.
#[test]
fn check_and_repair_of_a_large_pool_keep_to_their_memory() {
    let journal_bytes = 8 << 20;
    // One more than a round number of entries: a list then has room for twice as many.
    let device = large_pool(journal_bytes, 262_200);
    assert!(checked("check", &device, journal_bytes).is_clean());

    let pool = Pool::open(device.clone(), quiet(), environment()).expect("opens");
    pool.close().expect("closes");
    drop(pool);
    for block in HEADER_SLOTS..device.geometry.journal_blocks {
        device.write(device.geometry.journal_first.plus(block), &[0; BLOCK_BYTES]).expect("writes");
    }
    let mut state = [0; BLOCK_BYTES];
    device.read(STATE, &mut state).expect("reads");
    for lost in [BlockNo(Field::TreeRoot.get(&state)), device.geometry.store_page(0, 100)] {
        device.write(lost, &[0; BLOCK_BYTES]).expect("writes");
    }
    let report = repaired("repair", &device, journal_bytes);
    assert!(report.problems_total > 1 && report.problems_left == 0, "{report:#?}");
}

/// What was wrong: if a journal could be read in several ways, all readings and the journal itself were held at once:
/// more than twice its size, which is 64 MiB at most, in addition to the allowed memory.
#[test]
fn readings_of_a_large_journal_are_not_held_side_by_side() {
    let journal_bytes = 64 << 20;
    let device = large_pool(journal_bytes, 280_000);
    fill_journal(&device);
    device.write(STATE, &[7; BLOCK_BYTES]).expect("writes");
    assert!(!checked("check, pool state lost", &device, journal_bytes).is_clean());
    let report = repaired("repair, pool state lost", &device, journal_bytes);
    assert_eq!(report.problems_left, 0, "{report:#?}");
}
