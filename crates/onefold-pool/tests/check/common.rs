//! Pools to check: made, filled with a fixed set of files or by random operations, and damaged.

use std::sync::Arc;

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_block::{BlockDevice, BlockNo, Random};
use onefold_pool::check::{CheckOptions, CheckReport, check};
use onefold_pool::format::BlockBytes;
use onefold_pool::format::header;
use onefold_pool::{
    AllocateMode, CreateOptions, Durability, Environment, FileKind, Ino, NewFile, NoProgress, OpenOptions, Pool,
    RangePair, RenameMode, SetAttr, XattrMode,
};
use onefold_testing::device::{MemoryDevice, MemoryImage};

use super::structures::{JOURNAL, JOURNAL_BLOCKS};

pub(crate) const MEMORY: u64 = 64 << 20;

pub(crate) fn environment() -> Environment {
    Environment { clock: Arc::new(ManualClock::starting_at(1000)), random: Arc::new(SeededRandom::new(1)) }
}

pub(crate) fn new_pool(blocks: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(blocks));
    let seam: Arc<dyn BlockDevice> = device.clone();
    Pool::create(&seam, &CreateOptions::default(), &environment()).unwrap();
    device
}

pub(crate) fn open(device: &Arc<MemoryDevice>) -> Pool {
    let options = OpenOptions { background: false, memory_bytes: MEMORY, ..OpenOptions::default() };
    Pool::open(device.clone(), options, environment()).expect("opens")
}

pub(crate) fn options() -> CheckOptions {
    CheckOptions { memory_bytes: MEMORY, verify_data: true, ..CheckOptions::default() }
}

pub(crate) fn checked(device: &MemoryDevice) -> CheckReport {
    check(device, &options(), &NoProgress).expect("can be checked")
}

pub(crate) fn assert_clean(device: &MemoryDevice) {
    let report = checked(device);
    assert!(report.is_clean() && !report.stopped, "{report:#?}");
}

pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    SeededRandom::new(seed).fill(&mut data).unwrap();
    data
}

pub(crate) fn new_file(kind: FileKind) -> NewFile {
    NewFile { kind, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 }
}

/// Makes a file, returns its hold, and returns its number.
pub(crate) fn make(pool: &Pool, parent: Ino, name: &[u8], kind: FileKind) -> Ino {
    let made = pool.create_file(parent, name, &new_file(kind)).unwrap();
    pool.release(made.ino, 1);
    made.ino
}

/// Returns a closed pool with `/images/golden.raw` (2.1 MB), its clone `/images/clone.raw`, `/small` (inline), `/link`,
/// and attributes on `/small`. Its journal is empty.
pub(crate) fn sample() -> Arc<MemoryDevice> {
    let device = new_pool(16_384);
    let pool = open(&device);
    let images = make(&pool, Ino::ROOT, b"images", FileKind::Directory);
    let golden = make(&pool, images, b"golden.raw", FileKind::Regular);
    pool.write(golden, 0, &noise(1, 2_100_000), Durability::Later).unwrap();
    let clone = make(&pool, images, b"clone.raw", FileKind::Regular);
    pool.clone_file(golden, clone).unwrap();
    pool.write(clone, 0, b"changed", Durability::Later).unwrap();
    let small = make(&pool, Ino::ROOT, b"small", FileKind::Regular);
    pool.write(small, 0, &noise(2, 9000), Durability::Later).unwrap();
    pool.set_xattr(small, b"user.note", &noise(3, 5000), XattrMode::Either).unwrap();
    let link = pool.create_symlink(Ino::ROOT, b"link", &[b'x'; 2500], 0, 0).unwrap();
    pool.release(link.ino, 1);
    pool.close().unwrap();
    forget_log(&device);
    device
}

/// Makes the journal of a pool, in which all blocks are in place, lose its old transactions, as later ones would.
pub(crate) fn forget_log(device: &MemoryDevice) {
    for at in 2..JOURNAL_BLOCKS {
        device.write(JOURNAL.plus(at), &[0; 4096]).unwrap();
    }
}

/// Returns all metadata blocks on a device outside the journal, found by their headers.
pub(crate) fn blocks_of_kind(image: &MemoryImage, kind: header::BlockKind) -> Vec<(BlockNo, BlockBytes)> {
    let tag = header_tag(image);
    image
        .blocks()
        .into_iter()
        .filter(|(at, bytes)| header::verify(bytes, tag, kind, *at).is_ok())
        .map(|(at, bytes)| (at, *bytes))
        .collect()
}

fn header_tag(image: &MemoryImage) -> u32 {
    let superblock = image.get(BlockNo(0)).expect("a pool");
    u32::from_le_bytes(superblock[4..8].try_into().unwrap())
}

/// Changes a block in place and seals it again.
pub(crate) fn reseal(device: &MemoryDevice, at: BlockNo, change: impl FnOnce(&mut BlockBytes)) {
    let mut bytes = [0; 4096];
    device.read(at, &mut bytes).unwrap();
    change(&mut bytes);
    header::seal(&mut bytes);
    device.write(at, &bytes).unwrap();
}

/// Flips a bit of a block.
pub(crate) fn flip(device: &MemoryDevice, at: BlockNo, byte: usize) {
    let mut bytes = [0; 4096];
    device.read(at, &mut bytes).unwrap();
    bytes[byte] ^= 4;
    device.write(at, &bytes).unwrap();
}

/// Does `count` random operations of all kinds that change metadata.
pub(crate) fn churn(pool: &Pool, random: &SeededRandom, count: u64) {
    for _ in 0..count {
        let [one, two] = [0, 1].map(|_| format!("f{}", random.below(14)).into_bytes());
        let parent = Ino::ROOT;
        let of = |name: &[u8]| {
            let attr = pool.lookup(parent, name).ok()?;
            pool.release(attr.ino, 1);
            Some(attr)
        };
        let (first, second) = (of(&one), of(&two));
        let offset = random.below(1200) * 4096 + if random.below(3) == 0 { random.below(4096) } else { 0 };
        let length = 1 + random.below(300_000);
        // Refusals (no space, wrong kind, name taken) are as useful as successes.
        match (random.below(14), first.map(|attr| attr.ino), second.map(|attr| attr.ino)) {
            (0, None, _) => drop(
                pool.create_file(parent, &one, &new_file(FileKind::Directory)).map(|made| pool.release(made.ino, 1)),
            ),
            (1, None, _) => {
                drop(pool.create_symlink(parent, &one, &one.repeat(900), 0, 0).map(|made| pool.release(made.ino, 1)))
            }
            (_, None, _) => {
                drop(pool.create_file(parent, &one, &new_file(FileKind::Regular)).map(|made| pool.release(made.ino, 1)))
            }
            (0 | 1, Some(ino), _) => {
                drop(pool.write(ino, offset, &noise(random.below(5), length as usize), Durability::Later))
            }
            (2, Some(ino), _) => drop(pool.write(ino, offset, &noise(random.below(5), 60_000), Durability::Now)),
            (3, Some(_), _) => drop(pool.unlink(parent, &one).or_else(|_| pool.remove_directory(parent, &one))),
            (4, Some(from), Some(to)) => drop(pool.clone_file(from, to)),
            (5, Some(from), Some(to)) => drop(pool.clone_range(RangePair {
                source: from,
                source_offset: 0,
                target: to,
                target_offset: random.below(3) * 508 * 4096,
                bytes: length * 16,
            })),
            (6, Some(ino), _) => drop(pool.allocate(ino, offset, length, AllocateMode::PunchHole)),
            (7, Some(ino), _) => drop(pool.allocate(ino, offset, length * 10, AllocateMode::KeepSize)),
            (8, Some(ino), _) => drop(pool.allocate(ino, offset, length, AllocateMode::ZeroRange)),
            (9, Some(ino), _) => {
                let size_bytes = Some(random.below(6_000_000));
                drop(pool.set_attr(ino, &SetAttr { size_bytes, ..SetAttr::default() }));
            }
            (10, Some(_), _) => {
                let mode = if random.below(2) == 0 { RenameMode::Replace } else { RenameMode::Exchange };
                drop(pool.rename(parent, &one, parent, &two, mode));
            }
            (11, Some(ino), None) => drop(pool.link(ino, parent, &two).map(|linked| pool.release(linked.ino, 1))),
            (12, Some(ino), _) => {
                let value = noise(7, random.below(9000) as usize);
                drop(pool.set_xattr(ino, b"user.churn", &value, XattrMode::Either));
            }
            (13, Some(directory), Some(_)) => drop(pool.rename(parent, &two, directory, b"inner", RenameMode::Replace)),
            _ => drop(pool.reclaim()),
        }
    }
}
