//! What hostile input has broken, each with its story. (A finding in a single structure has its test there.)
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo};
use onefold_hostile::guard::GuardedDevice;
use onefold_hostile::samples::{MEMORY_BYTES, Sample, environment, open_options, samples};
use onefold_pool::check::{CheckOptions, ScrubOptions, check, repair};
use onefold_pool::format::geometry::{HEARTBEAT, STATE, SUPERBLOCK_COPY};
use onefold_pool::format::header::{self, BlockKind};
use onefold_pool::format::journal::{HEADER_SLOTS, JournalHeader, TransactionBuilder};
use onefold_pool::format::state::Field;
use onefold_pool::{Durability, FileKind, Ino, NoProgress, Pool, PoolError, Progress};
use onefold_testing::device::MemoryImage;

const BITMAP: BlockNo = BlockNo(2);

fn check_options() -> CheckOptions {
    CheckOptions { memory_bytes: MEMORY_BYTES, verify_data: false, ..CheckOptions::default() }
}

/// Returns the sample with one more transaction in its journal, which claims that `block` holds a `kind`.
fn with_transaction(sample: &Sample, block: BlockNo, kind: BlockKind) -> MemoryImage {
    let mut image = sample.image.clone();
    let first = sample.geometry.journal_first;
    let log_blocks = sample.geometry.journal_blocks - HEADER_SLOTS;
    let header = (0..HEADER_SLOTS)
        .filter_map(|slot| {
            let at = first.plus(slot);
            JournalHeader::decode(image.get(at)?, sample.pool_tag, at, log_blocks).ok()
        })
        .max_by_key(|header| header.generation)
        .unwrap();
    let mut builder = TransactionBuilder::new(0);
    builder.whole(block, &header::blank(sample.pool_tag, kind, block));
    let (bytes, _) = builder.finish(sample.identity, header.tail_chain, header.tail_sequence, header.tail_position);
    for (number, bytes) in (0..).zip(bytes.as_chunks::<BLOCK_BYTES>().0) {
        let position = (header.tail_position + number) % log_blocks;
        image.set(first.plus(HEADER_SLOTS + position), Arc::new(*bytes));
    }
    image
}

/// Recovery believed every block that a transaction with a correct checksum named. A checkpoint or a repair then wrote
/// the block to that place: a map node over a bitmap, or anything over a superblock.
#[test]
fn a_journal_that_puts_blocks_where_they_do_not_belong_is_refused() {
    let sample = &samples()[0];
    let free = sample.geometry.total_blocks - 5;
    for (block, kind) in [
        (BITMAP, BlockKind::MapNode(0)),
        (SUPERBLOCK_COPY, BlockKind::Superblock),
        (HEARTBEAT, BlockKind::TreePage),
        (STATE, BlockKind::Bitmap),
        (BlockNo(free), BlockKind::State),
        (BlockNo(sample.geometry.total_blocks), BlockKind::MapNode(0)),
        (sample.geometry.journal_first, BlockKind::TreePage),
    ] {
        let device = Arc::new(GuardedDevice::from(with_transaction(sample, block, kind)));
        let opened = Pool::open(device.clone(), open_options(), environment());
        assert!(matches!(opened, Err(PoolError::Damaged { structure: "journal", .. })), "{block} {kind:?}");
        assert!(!check(&*device, &check_options(), &NoProgress).unwrap().is_clean(), "{block} {kind:?}");
        let seam: Arc<dyn BlockDevice> = device.clone();
        let _ = repair(&seam, &check_options(), &environment(), &NoProgress);
    }
    let sound = with_transaction(sample, BlockNo(free), BlockKind::MapNode(0));
    Pool::open(Arc::new(GuardedDevice::from(sound)), open_options(), environment()).unwrap();
}

/// The root of the names tree was the place of a bitmap, where a forged page lay. It was read and changed there.
#[test]
fn a_pointer_to_a_structure_with_a_fixed_place_is_not_followed() {
    let sample = &samples()[0];
    let mut image = sample.image.clone();
    let root = Field::TreeRoot.get(image.get(STATE).unwrap());
    let mut page = **image.get(BlockNo(root)).unwrap();
    header::stamp(&mut page, sample.pool_tag, BlockKind::TreePage, BITMAP);
    header::seal(&mut page);
    image.set(BITMAP, Arc::new(page));
    let mut state = **image.get(STATE).unwrap();
    state[Field::TreeRoot.range()].copy_from_slice(&BITMAP.0.to_le_bytes());
    header::seal(&mut state);
    image.set(STATE, Arc::new(state));
    let device = Arc::new(GuardedDevice::from(image));
    if let Ok(pool) = Pool::open(device, open_options(), environment()) {
        assert!(matches!(pool.lookup(Ino::ROOT, b"small"), Err(PoolError::Damaged { .. })));
        let _ = pool.close();
    }
}

/// Counts its calls.
#[derive(Default)]
struct CallCount(AtomicU64);

impl Progress for CallCount {
    fn update(&self, _done: u64, _total: u64) -> ControlFlow<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    }
}

/// The block numbers of a sparse file of terabytes were collected block by block, for seconds to minutes. The search
/// for the files that a damaged block affects took as long.
#[test]
fn a_file_of_terabytes_with_nothing_in_it_is_walked_in_a_moment() {
    let device = Arc::new(GuardedDevice::from(samples()[0].image.clone()));
    let pool = Pool::open(device.clone(), open_options(), environment()).unwrap();
    let new = onefold_hostile::samples::new_file(FileKind::Regular);
    let tall = pool.create_file(Ino::ROOT, b"tall", &new).unwrap().ino;
    pool.write(tall, onefold_pool::FILE_BYTES_MAX - 4096, &[7; 4096], Durability::Now).unwrap();
    let told = CallCount::default();
    let stat = pool.file_stat(tall, &told).unwrap();
    assert_eq!((stat.unique_bytes, stat.zero_bytes), (4096, onefold_pool::FILE_BYTES_MAX - 4096));
    assert!(told.0.load(Ordering::Relaxed) < 100, "told {} times", told.0.load(Ordering::Relaxed));

    // The written block holds something else now.
    let block = (0..sample_blocks(&device)).find(|&at| read(&device, at) == [7; BLOCK_BYTES]).unwrap();
    device.write(BlockNo(block), &[8; BLOCK_BYTES]).unwrap();
    let report = pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap();
    assert_eq!(report.problems_total, 1, "{report:#?}");
    assert_eq!(report.problems[0].files, ["/tall"]);
}

fn sample_blocks(device: &GuardedDevice) -> u64 {
    device.block_count().unwrap()
}

fn read(device: &GuardedDevice, at: u64) -> [u8; BLOCK_BYTES] {
    let mut bytes = [0; BLOCK_BYTES];
    device.read(BlockNo(at), &mut bytes).unwrap();
    bytes
}
