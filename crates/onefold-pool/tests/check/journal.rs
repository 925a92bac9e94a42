//! A damaged journal with changes that exist nowhere else, and a lost pool state: the intact parts are kept.

use std::io;
use std::sync::Arc;

use onefold_block::{BlockDevice, BlockNo};
use onefold_pool::check::{CheckReport, repair};
use onefold_pool::format::geometry::{STATE, SUPERBLOCK, SUPERBLOCK_COPY};
use onefold_pool::format::journal::Opening;
use onefold_pool::format::superblock::Superblock;
use onefold_pool::{Durability, FileKind, Ino, NoProgress};
use onefold_testing::device::{MemoryDevice, MemoryImage};
use parking_lot::Mutex;

use super::common::*;
use super::shared::observe::{self, Tree};
use super::shared::tries;
use super::structures::{JOURNAL, JOURNAL_BLOCKS, JOURNAL_SLOTS};

/// First block and number of blocks of the log.
const LOG: BlockNo = BlockNo(202);
const LOG_BLOCKS: u64 = JOURNAL_BLOCKS - 2;

fn seen(device: &Arc<MemoryDevice>) -> Tree {
    observe::seen(&open(device)).expect("can be looked at")
}

fn repaired(device: &Arc<MemoryDevice>) -> CheckReport {
    let seam: Arc<dyn BlockDevice> = device.clone();
    repair(&seam, &options(), &environment(), &NoProgress).expect("can be repaired")
}

/// A pool that was left with changes that only its journal has.
struct UncleanPool {
    image: MemoryImage,
    /// The visible tree after each commit since the last checkpoint; the first one is in place.
    states: Vec<Tree>,
    /// First block and number of blocks of each transaction since then.
    transactions: Vec<(BlockNo, u64)>,
    /// The newest header slot, and its previous content.
    slot: (BlockNo, [u8; 4096]),
}

fn left() -> UncleanPool {
    let device = new_pool(8192);
    let pool = open(&device);
    let directory = make(&pool, Ino::ROOT, b"d", FileKind::Directory);
    for number in 0..60_u64 {
        let ino = make(&pool, directory, format!("old {number}").as_bytes(), FileKind::Regular);
        pool.write(ino, 0, &noise(number, 9000), Durability::Later).unwrap();
    }
    pool.commit().unwrap();
    pool.checkpoint().unwrap();
    let older = device.image();
    for number in 0..20_u64 {
        pool.unlink(directory, format!("old {number}").as_bytes()).unwrap();
    }
    pool.commit().unwrap();
    pool.checkpoint().unwrap();
    let mut states = vec![seen(&Arc::new(MemoryDevice::from(device.image())))];
    for round in 0..5_u64 {
        for number in 0..12 {
            let name = format!("new {round} {number}");
            let ino = make(&pool, directory, name.as_bytes(), FileKind::Regular);
            pool.write(ino, 0, &noise(round * 100 + number, 60_000), Durability::Later).unwrap();
            pool.unlink(directory, format!("old {}", 20 + round * 8 + number % 8).as_bytes()).ok();
        }
        pool.commit().unwrap();
        states.push(seen(&Arc::new(MemoryDevice::from(device.image()))));
    }
    let image = device.image();
    let block = |image: &MemoryImage, at| image.get(at).map_or([0; 4096], |bytes| **bytes);
    let newest = JOURNAL_SLOTS.into_iter().max_by_key(|at| block(&image, *at)[16]).unwrap();
    let identity = Superblock::decode(&block(&image, SUPERBLOCK), SUPERBLOCK).unwrap().transaction_identity();
    let tail = u64::from_le_bytes(block(&image, newest)[24..32].try_into().unwrap());
    let mut transactions = Vec::new();
    for at in (0..LOG_BLOCKS).map(|offset| LOG.plus(offset)) {
        if let Some(opening) =
            Opening::decode(&block(&image, at), identity, LOG_BLOCKS).filter(|opening| opening.sequence >= tail)
        {
            transactions.push((at, opening.block_count()));
        }
    }
    assert_eq!(transactions.len(), 5);
    let slot = (newest, block(&older, newest));
    UncleanPool { image, states, transactions, slot }
}

#[test]
fn a_journal_that_lost_both_header_slots_is_read_from_its_transactions() {
    let left = left();
    for bytes in [[0; 4096], [0x5a; 4096]] {
        let device = Arc::new(MemoryDevice::from(left.image.clone()));
        JOURNAL_SLOTS.iter().for_each(|at| device.write(*at, &bytes).unwrap());
        let report = checked(&device);
        assert!(report.problems.iter().any(|problem| problem.what.contains("can still be used")), "{report:#?}");
        repaired(&device);
        assert_clean(&device);
        assert!(seen(&device) == *left.states.last().unwrap());
    }
}

#[test]
fn a_header_slot_that_was_put_back_to_an_older_version_loses_nothing() {
    let left = left();
    let (at, older) = left.slot;
    let device = Arc::new(MemoryDevice::from(left.image.clone()));
    device.write(at, &older).unwrap();
    let other = JOURNAL_SLOTS.into_iter().find(|slot| *slot != at).unwrap();
    for lost in [None, Some(other)] {
        if let Some(other) = lost {
            device.write(other, &[0; 4096]).unwrap();
        }
        let copy = Arc::new(MemoryDevice::from(device.image()));
        repaired(&copy);
        assert_clean(&copy);
        assert!(seen(&copy) == *left.states.last().unwrap(), "{lost:?}");
    }
}

#[test]
fn damage_in_the_midst_of_the_log_costs_what_came_after_it_and_nothing_else() {
    let left = left();
    let mut tried = 0;
    for (number, (first, count)) in left.transactions.iter().enumerate() {
        // Some blocks, and always the first one.
        for offset in (0..*count).step_by(6 / tries(1).min(6) as usize) {
            let at = first.plus(offset);
            for how in [0, 1, 2] {
                let device = Arc::new(MemoryDevice::from(left.image.clone()));
                match how {
                    0 => flip(&device, at, 20),
                    1 => device.write(at, &[0; 4096]).unwrap(),
                    _ => device.write(at, &[0xa7; 4096]).unwrap(),
                }
                let is_last = number + 1 == left.transactions.len();
                let report = checked(&device);
                // Damage of the last transaction looks like a power cut; the end of a last block is unused.
                let is_seen = !is_last && offset + 1 < *count;
                assert!(!report.is_clean() || !is_seen, "block {offset} of transaction {number}: {report:#?}");
                repaired(&device);
                assert_clean(&device);
                let kept =
                    if report.is_clean() && !is_last { left.states.last().unwrap() } else { &left.states[number] };
                let is_kept = seen(&device) == *kept || is_last && seen(&device) == *left.states.last().unwrap();
                assert!(is_kept, "block {offset} of transaction {number}");
                open(&device).close().unwrap();
                assert_clean(&device);
                tried += 1;
            }
        }
    }
    println!("{tried} damaged journals");
    assert!(tried > 40);
}

#[test]
fn a_lost_pool_state_is_taken_from_the_journal_or_made_anew() {
    let left = left();
    for is_log_forgotten in [false, true] {
        let device = Arc::new(MemoryDevice::from(left.image.clone()));
        if is_log_forgotten {
            open(&device).close().unwrap();
            forget_log(&device);
        }
        device.write(STATE, &[0; 4096]).unwrap();
        let report = checked(&device);
        // The journal has the newest copy as long as it has anything.
        assert_eq!(report.is_clean(), !is_log_forgotten, "{report:#?}");
        repaired(&device);
        assert_clean(&device);
        assert!(seen(&device) == *left.states.last().unwrap(), "{is_log_forgotten}");
        let pool = open(&device);
        let made = make(&pool, Ino::ROOT, b"made afterwards", FileKind::Regular);
        let highest = left.states.last().unwrap().values().map(|view| view.ino).max().unwrap();
        assert!(made.0 > highest, "numbers are never used again");
    }
}

/// A device on which some blocks are unreadable until they are written.
struct BadSectors {
    inner: Arc<MemoryDevice>,
    bad: Mutex<Vec<BlockNo>>,
}

impl BlockDevice for BadSectors {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        let end = first.plus(into.len() as u64 / 4096);
        if self.bad.lock().iter().any(|at| (first..end).contains(at)) {
            return Err(io::Error::other("bad sector"));
        }
        self.inner.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        let end = first.plus(from.len() as u64 / 4096);
        self.bad.lock().retain(|at| !(first..end).contains(at));
        self.inner.write(first, from)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.inner.discard(first, count)
    }
}

#[test]
fn blocks_that_cannot_be_read_are_mended_like_damaged_ones() {
    let left = left();
    let last = left.states.last().unwrap();
    let is_used = |at: u64| {
        left.transactions.iter().any(|(first, count)| (at + LOG_BLOCKS - (first.0 - LOG.0)) % LOG_BLOCKS < *count)
    };
    let unused = LOG.plus((0..LOG_BLOCKS).find(|at| !is_used(*at)).unwrap());
    for bad in [SUPERBLOCK, SUPERBLOCK_COPY, JOURNAL, JOURNAL.plus(1), unused, STATE, BlockNo(2), BlockNo(4)] {
        let inner = Arc::new(MemoryDevice::from(left.image.clone()));
        let device = Arc::new(BadSectors { inner: Arc::clone(&inner), bad: Mutex::new(vec![bad]) });
        let report = onefold_pool::check::check(&*device, &options(), &NoProgress).unwrap();
        // A structure in the journal is not read at its place.
        assert!(!report.is_clean() || [STATE, BlockNo(2), BlockNo(4)].contains(&bad), "{bad}");
        let seam: Arc<dyn BlockDevice> = device.clone();
        repair(&seam, &options(), &environment(), &NoProgress).unwrap();
        assert_clean(&inner);
        assert!(seen(&inner) == *last, "{bad}");
        assert!(device.bad.lock().is_empty() || report.is_clean(), "{bad}");
    }
}
