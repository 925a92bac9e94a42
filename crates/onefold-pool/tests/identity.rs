//! Data of users is never taken for the pool's own: planted transactions and metadata, and pools of version 1.

mod common;

use std::ops::Range;
use std::sync::Arc;

use common::observe::{check_clean, seen};
use common::{environment, letters, open, quiet, regular};
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, BlockNo, Timestamp};
use onefold_pool::check::{CheckOptions, UnprovenNames, repair};
use onefold_pool::format::BlockBytes;
use onefold_pool::format::geometry::{STATE, STORE_PAGES_PER_GROUP, SUPERBLOCK, SUPERBLOCK_COPY};
use onefold_pool::format::header::{self, BlockKind};
use onefold_pool::format::inode::{Inode, MapRoot};
use onefold_pool::format::items;
use onefold_pool::format::journal::{HEADER_SLOTS, OPENING_BYTES, Opening, TransactionBuilder, TransactionIdentity};
use onefold_pool::format::superblock::{Marking, Superblock};
use onefold_pool::tree::{self, Pages, TreeError};
use onefold_pool::{
    Attr, CreateOptions, Dedup, Durability, FileKind, Ino, NoProgress, Pool, PoolError, SpaceShown, XattrMode,
};
use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice, MemoryImage};

const BLOCKS: u64 = 65_536;
/// Number of files with an attribute of a given size each: enough pages of the names tree in one transaction for some
/// of their content to begin a block of the log.
const FILES: u64 = 8;
const VALUE_BYTES: u64 = 60_000;
/// Offset of the level in a page of the names tree.
const LEVEL_OFFSET: usize = 16;
/// Number of the planted inode.
const PLANTED: Ino = Ino(4000);

fn new_pool() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(BLOCKS));
    let seam: Arc<dyn BlockDevice> = device.clone();
    let create = CreateOptions { journal_bytes: Some(8 << 20), ..CreateOptions::default() };
    Pool::create(&seam, &create, &environment()).expect("a pool is made");
    device
}

fn superblock_at(image: &MemoryImage, at: BlockNo) -> Superblock {
    Superblock::decode(image.get(at).expect("was written"), at).expect("is sound")
}

fn reopened(image: MemoryImage) -> onefold_pool::Result<Pool> {
    Pool::open(Arc::new(MemoryDevice::from(image)), quiet(), environment())
}

/// Returns the same pool in version 1; its journal may hold something.
fn as_version_1(mut image: MemoryImage) -> MemoryImage {
    let new = superblock_at(&image, SUPERBLOCK);
    let old = Superblock { marking: Marking::Public, ..new.clone() };
    let log_blocks = new.geometry.journal_blocks - HEADER_SLOTS;
    let log = (0..log_blocks).map(|position| new.geometry.journal_first.plus(HEADER_SLOTS + position));
    let mut openings = Vec::new();
    for at in log {
        let bytes = image.get(at).map_or([0; BLOCK_BYTES], |bytes| **bytes);
        if let Some(opening) = Opening::decode(&bytes, new.transaction_identity(), log_blocks) {
            openings.push((at, opening));
        }
    }
    assert_eq!(new.marking, Marking::SecretTransactions, "its metadata has the tag of version 1");
    for (at, opening) in openings {
        let mut bytes = **image.get(at).expect("was read");
        let empty = TransactionBuilder::new(0);
        let identity = TransactionIdentity::public(old.pool_tag());
        let (like, _) = empty.finish(identity, opening.chain, opening.sequence, opening.position);
        bytes[..8].copy_from_slice(&like[..8]);
        image.set(at, Arc::new(bytes));
    }
    for at in [SUPERBLOCK, SUPERBLOCK_COPY] {
        image.set(at, Arc::from(old.encode(at)));
    }
    image
}

/// Returns the same pool as made by a program of version 1: its metadata has the public tag. The pool is closed.
fn created_by_version_1(mut image: MemoryImage) -> MemoryImage {
    let new = superblock_at(&image, SUPERBLOCK);
    let old = Superblock { marking: Marking::Public, ..new.clone() };
    let blocks: Vec<(BlockNo, BlockBytes)> = image.blocks().iter().map(|(at, bytes)| (*at, **bytes)).collect();
    for (at, mut bytes) in blocks {
        let Some(kind) = header::kind(&bytes) else { continue };
        if header::verify(&bytes, new.pool_tag(), kind, at).is_ok() {
            header::stamp(&mut bytes, old.pool_tag(), kind, at);
            header::seal(&mut bytes);
            image.set(at, Arc::new(bytes));
        }
    }
    for at in [SUPERBLOCK, SUPERBLOCK_COPY] {
        image.set(at, Arc::from(old.encode(at)));
    }
    image
}

/// Sets attributes on new files of the pool and leaves the pool as after a power cut.
fn cut_with_attributes(image: &MemoryImage, values: &[Vec<u8>]) -> MemoryImage {
    let device = Arc::new(MemoryDevice::from(image.clone()));
    let seam: Arc<dyn BlockDevice> = device.clone();
    let pool = open(&seam, &quiet());
    for (number, value) in values.iter().enumerate() {
        let name = format!("attacker's {number}");
        let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("there is room").ino;
        pool.release(ino, 1);
        pool.set_xattr(ino, b"user.planted", value, XattrMode::Either).expect("fits");
    }
    pool.commit().expect("commits");
    drop(pool);
    device.image()
}

/// Returns values whose words are numbered, so that each of them can be found on the device.
fn numbered() -> Vec<Vec<u8>> {
    let value =
        |file: u64| (0..VALUE_BYTES / 8).flat_map(|word| (0x5eed << 48 | file << 32 | word).to_le_bytes()).collect();
    (0..FILES).map(value).collect()
}

/// A place within a user's data at which a block of the log begins.
struct LogBlockStart {
    file: usize,
    byte: usize,
    position: u64,
}

/// Returns the places within the values at which blocks of the log begin.
fn block_starts_within(image: &MemoryImage, values: &[Vec<u8>]) -> Vec<LogBlockStart> {
    let geometry = superblock_at(image, SUPERBLOCK).geometry;
    let mut found = Vec::new();
    for position in 0..geometry.journal_blocks - HEADER_SLOTS {
        let Some(bytes) = image.get(geometry.journal_first.plus(HEADER_SLOTS + position)) else { continue };
        let start = &bytes[..OPENING_BYTES];
        if !start.windows(2).any(|pair| pair == [0xed, 0x5e]) {
            continue;
        }
        for (file, value) in values.iter().enumerate() {
            let byte = value.windows(OPENING_BYTES).position(|window| window == start);
            found.extend(byte.map(|byte| LogBlockStart { file, byte, position }));
        }
    }
    found
}

/// Returns a whole transaction without records, which anybody who knows the UUID can make.
fn planted(superblock: &Superblock, sequence: u64, position: u64) -> Vec<u8> {
    let public = TransactionIdentity::public(crc32c::crc32c(&superblock.uuid));
    let (mut bytes, _) = TransactionBuilder::new(0).finish(public, 0, sequence, position);
    bytes.truncate(OPENING_BYTES);
    bytes
}

/// Returns the pool after a power cut, with attributes that plant a transaction wherever a block of the log begins
/// within them.
fn cut_with_planted_transactions(image: &MemoryImage) -> MemoryImage {
    let mut values = numbered();
    let starts = block_starts_within(&cut_with_attributes(image, &values), &values);
    assert!(starts.len() > 3, "{} blocks of the log begin with a user's bytes", starts.len());
    let superblock = superblock_at(image, SUPERBLOCK);
    for LogBlockStart { file, byte, position } in starts {
        values[file][byte..byte + OPENING_BYTES].copy_from_slice(&planted(&superblock, 100, position));
    }
    cut_with_attributes(image, &values)
}

/// What was found in a review: recovery takes each block of the log that begins like a transaction for one. Users knew
/// the magic, the pool tag and the checksum, and attribute values reach the log unchanged. A planted later transaction
/// made the pool refuse to open.
#[test]
fn an_attribute_with_planted_transactions_does_not_keep_a_pool_from_opening() {
    let pool = new_pool();
    let image = cut_with_planted_transactions(&pool.image());
    let pool = reopened(image.clone()).expect("opens");
    assert!(pool.stat().expect("adds up").activity.replayed > 0, "it was cut");
    pool.close().expect("closes");
    check_clean(&MemoryDevice::from(image)).expect("is sound");
    // The planting works if users know the mark of a transaction.
    let old = cut_with_planted_transactions(&version_1().image());
    let old = as_version_1(old);
    let refused = reopened(old).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("but the later one 100 is whole"), "{refused}");
}

/// Returns a closed pool of version 1 with a few files.
fn version_1() -> Arc<MemoryDevice> {
    let device = new_pool();
    fill(&device);
    Arc::new(MemoryDevice::from(created_by_version_1(device.image())))
}

/// Writes a few files into a pool.
fn fill(device: &Arc<MemoryDevice>) {
    let seam: Arc<dyn BlockDevice> = device.clone();
    let pool = open(&seam, &quiet());
    for number in 0..5_u64 {
        let ino = pool.create_file(Ino::ROOT, &[b'a' + number.to_le_bytes()[0]], &regular()).expect("fits").ino;
        pool.write(ino, 0, &letters(number * 10..number * 10 + 7), Durability::Later).expect("fits");
        pool.release(ino, 1);
    }
    pool.close().expect("closes");
}

#[test]
fn a_pool_of_version_1_is_recovered_by_the_old_rule_and_upgraded_with_an_empty_journal() {
    let old = version_1();
    check_clean(&*old).expect("a pool of version 1 is sound");
    let before = seen(&open(&(old.clone() as Arc<dyn BlockDevice>), &read_only())).expect("reads");
    assert_eq!(superblock_at(&old.image(), SUPERBLOCK).marking, Marking::Public, "reading changes nothing");

    // With a journal that needs recovery.
    let cut = as_version_1(cut_with_attributes(&old.image(), &[b"an attribute".to_vec()]));
    let device = Arc::new(MemoryDevice::from(cut));
    check_clean(&*device).expect("is sound");
    let seam: Arc<dyn BlockDevice> = device.clone();
    let pool = open(&seam, &quiet());
    assert!(pool.stat().expect("adds up").activity.replayed > 0);
    let after = seen(&pool).expect("reads");
    assert_ne!(after, before, "the attacker's file has been recovered");
    for at in [SUPERBLOCK, SUPERBLOCK_COPY] {
        assert_eq!(superblock_at(&device.image(), at).marking, Marking::SecretTransactions);
    }
    check_clean(&*device).expect("is sound after the upgrade");
    let ino = pool.create_file(Ino::ROOT, b"later", &regular()).expect("there is room").ino;
    pool.release(ino, 1);
    pool.commit().expect("commits");
    let last = seen(&pool).expect("reads");
    let cut = device.image();
    drop(pool);
    let again = reopened(cut).expect("opens");
    assert!(again.stat().expect("adds up").activity.replayed > 0);
    assert!(seen(&again).expect("reads") == last);
    again.close().expect("closes");
}

#[test]
fn an_upgrade_that_is_cut_or_has_no_room_loses_nothing_and_is_finished_later() {
    let cut = as_version_1(cut_with_attributes(&version_1().image(), &[b"an attribute".to_vec()]));
    let expected =
        seen(&open(&(Arc::new(MemoryDevice::from(cut.clone())) as Arc<dyn BlockDevice>), &read_only())).expect("reads");
    let mut left_half_done = 0;
    for fault in [Fault::Io, Fault::StorageFull] {
        for nth in 1.. {
            let device = Arc::new(FaultyDevice::new(MemoryDevice::from(cut.clone()), 1));
            device.fail(Call::Write, FailingCalls::FromNth(nth), fault);
            drop(Pool::open(device.clone(), quiet(), environment()));
            let image = device.inner().image();
            let [first, copy] = [SUPERBLOCK, SUPERBLOCK_COPY].map(|at| superblock_at(&image, at).marking);
            assert!(first == Marking::Public || copy == Marking::SecretTransactions, "the copy comes first");
            left_half_done += u32::from(first != copy);
            check_clean(&MemoryDevice::from(image.clone())).expect("is sound");
            let seam: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(image));
            let pool = open(&seam, &quiet());
            assert!(seen(&pool).expect("reads") == expected, "write {nth}, {fault:?}");
            pool.close().expect("closes");
            for at in [SUPERBLOCK, SUPERBLOCK_COPY] {
                let mut bytes = AlignedBuffer::zeroed(1);
                seam.read(at, &mut bytes).expect("reads");
                let superblock = Superblock::decode(bytes.block(0).expect("one"), at).expect("is sound");
                assert_eq!(superblock.marking, Marking::SecretTransactions);
            }
            if device.count(Call::Write) < nth {
                assert!(nth > 3, "the upgrade writes more than that");
                break;
            }
        }
    }
    assert_eq!(left_half_done, 2, "cut between both copies, once by each fault");
}

fn read_only() -> onefold_pool::OpenOptions {
    onefold_pool::OpenOptions { read_only: true, ..quiet() }
}

/// Makes a file with this content in a pool, and closes the pool.
fn with_file(image: &MemoryImage, content: &[u8]) -> MemoryImage {
    let device = Arc::new(MemoryDevice::from(image.clone()));
    let seam: Arc<dyn BlockDevice> = device.clone();
    let pool = open(&seam, &quiet());
    let ino = pool.create_file(Ino::ROOT, b"forged", &regular()).expect("there is room").ino;
    pool.release(ino, 1);
    pool.write(ino, 0, content, Durability::Later).expect("there is room");
    pool.close().expect("closes");
    device.image()
}

/// One page of a names tree in memory.
struct Page {
    at: BlockNo,
    bytes: Box<BlockBytes>,
}

impl Pages for Page {
    type Error = TreeError;

    fn page(&mut self, _: BlockNo) -> Result<&BlockBytes, TreeError> {
        Ok(&self.bytes)
    }

    fn edit(&mut self, _: BlockNo, range: Range<usize>) -> Result<&mut [u8], TreeError> {
        Ok(&mut self.bytes[range])
    }

    fn allocate(&mut self) -> Result<BlockNo, TreeError> {
        Ok(self.at)
    }

    fn free(&mut self, _: BlockNo) -> Result<(), TreeError> {
        unreachable!("an item is added")
    }
}

/// Returns a leaf of the names tree with a set-user-id program of root, which anybody who knows the tag can make.
fn forged_leaf(tag: u32, at: BlockNo) -> Box<BlockBytes> {
    let mut page = Page { at, bytes: Box::new(header::blank(tag, BlockKind::TreePage, at)) };
    let mut root = tree::create(&mut page).expect("a page");
    let attr = Attr {
        ino: PLANTED,
        kind: FileKind::Regular,
        mode: 0o4755,
        link_count: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size_bytes: 0,
        mapped_blocks: 0,
        accessed: Timestamp::default(),
        modified: Timestamp::default(),
        changed: Timestamp::default(),
        created: Timestamp::default(),
        domain: 0,
        dedup: Dedup::On,
        space_shown: SpaceShown::ByDoor,
    };
    let inode = Inode { attr, parent: 0, reserved_blocks: 0, mapped: 0, map: MapRoot::EMPTY };
    tree::insert(&mut page, &mut root, &items::inode_key(PLANTED), &inode.encode()).expect("fits");
    header::seal(&mut page.bytes);
    page.bytes
}

/// Returns the pool with a file of two blocks that pass for the root and a leaf of the names tree, as far as users can
/// know.
fn with_forged_pages(image: &MemoryImage) -> MemoryImage {
    let markers = letters([777, 778]);
    let probe = with_file(image, &markers);
    let places: Vec<BlockNo> = markers
        .chunks(BLOCK_BYTES)
        .map(|marker| probe.blocks().iter().find(|(_, bytes)| bytes[..] == *marker).expect("is stored").0)
        .collect();
    let public = crc32c::crc32c(&superblock_at(image, SUPERBLOCK).uuid);
    let mut root = header::blank(public, BlockKind::TreePage, places[0]);
    root[LEVEL_OFFSET] = 11;
    header::seal(&mut root);
    let leaf = forged_leaf(public, places[1]);
    let image = with_file(image, &[&root[..], &leaf[..]].concat());
    for (at, forged) in places.iter().zip([&root, &*leaf]) {
        assert_eq!(image.get(*at).expect("is stored")[..], forged[..], "it lies where it says");
    }
    image
}

/// Destroys the pool state and all records of block use.
fn without_records(mut image: MemoryImage) -> Arc<dyn BlockDevice> {
    let geometry = superblock_at(&image, SUPERBLOCK).geometry;
    let stores = (0..STORE_PAGES_PER_GROUP).map(|index| geometry.store_page(0, index));
    // The log still has the state; here it is overwritten, as later changes would.
    let log = (HEADER_SLOTS..geometry.journal_blocks).map(|block| geometry.journal_first.plus(block));
    for at in stores.chain(log).chain([STATE]) {
        image.set(at, Arc::new([0x5a; BLOCK_BYTES]));
    }
    Arc::new(MemoryDevice::from(image))
}

/// Repairs a pool without records, and returns whether the planted inode is then one of its files.
fn has_planted_inode_after_a_repair(image: MemoryImage, unproven_names: UnprovenNames) -> bool {
    let device = without_records(image);
    let options = CheckOptions { memory_bytes: 64 << 20, unproven_names, ..CheckOptions::default() };
    repair(&device, &options, &environment(), &NoProgress).expect("can be repaired");
    let pool = open(&device, &quiet());
    for number in 0..5_u64 {
        let ino = pool.lookup(Ino::ROOT, &[b'a' + number.to_le_bytes()[0]]).expect("has its name").ino;
        pool.release(ino, 1);
        let mut bytes = vec![0; 7 * BLOCK_BYTES];
        pool.read(ino, 0, &mut bytes).expect("reads");
        assert!(bytes == letters(number * 10..number * 10 + 7), "file {number}");
    }
    pool.attr(PLANTED).is_ok_and(|attr| attr.mode == 0o4755)
}

/// What was found in a review: if the records of block use are lost, a repair takes each block with the header of a
/// page for one. Users knew all of that header except the place, which can be guessed. A block of a file became a
/// set-user-id program of root in `lost+found`.
#[test]
fn a_repair_does_not_take_user_data_for_lost_names() {
    let device = new_pool();
    fill(&device);
    assert!(!has_planted_inode_after_a_repair(with_forged_pages(&device.image()), UnprovenNames::Refuse));
}

/// Users know the tag of a pool that version 1 of the format created, so a repair does not decide by it alone.
#[test]
fn a_repair_of_a_pool_with_a_known_tag_asks_before_it_takes_or_leaves_what_users_may_have_written() {
    let forged = with_forged_pages(&version_1().image());
    let device = without_records(forged.clone());
    let repaired = |unproven_names| {
        let options = CheckOptions { memory_bytes: 64 << 20, unproven_names, ..CheckOptions::default() };
        repair(&device, &options, &environment(), &NoProgress)
    };
    for _ in 0..2 {
        let refused = repaired(UnprovenNames::Refuse);
        assert!(matches!(refused, Err(PoolError::UnprovenNames { count: 2.., .. })), "{refused:?}");
    }
    repaired(UnprovenNames::Leave).expect("can be repaired");
    let pool = open(&device, &quiet());
    assert!(matches!(pool.attr(PLANTED), Err(PoolError::NotFound)));
    assert!(matches!(pool.lookup(Ino::ROOT, b"a"), Err(PoolError::NotFound)), "it had no other proof either");
    assert!(has_planted_inode_after_a_repair(forged, UnprovenNames::Take), "all files are back, the planted one too");
}
