//! Sharing of stored blocks: which blocks become one, which are left alone, and that readers notice nothing.

mod common;

use std::sync::Arc;

use common::observe::{check_sums, seen};
use common::{dedup_value, environment, kind_of, letter, new_file, open, quiet, regular};
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, BlockNo};
use onefold_pool::check::{CheckOptions, ScrubOptions, check};
use onefold_pool::{
    AllocateMode, Attr, CreateOptions, Dedup, Durability, FileKind, Ino, NoProgress, OpenOptions, Pool, PoolError,
    RangePair, SHARE_BYTES_MAX, ShareOutcome, TestLimits, XattrMode,
};
use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Number of places in a leaf of a file map.
const LEAF: u64 = 508;

/// Returns options of a pool whose writes find no stored block.
fn blind() -> OpenOptions {
    OpenOptions { test_limits: TestLimits { filter_bytes_max: 0, ..TestLimits::default() }, ..quiet() }
}

/// Returns options of a pool that stores blocks as private.
fn off() -> OpenOptions {
    OpenOptions { dedup: Dedup::Off, ..quiet() }
}

fn new_pool(options: &OpenOptions) -> (Arc<dyn BlockDevice>, Pool) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(16_384));
    let create = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
    Pool::create(&device, &create, &environment()).expect("a pool is made");
    let pool = open(&device, options);
    (device, pool)
}

fn create(pool: &Pool, parent: Ino, name: &str, letters: impl IntoIterator<Item = u64>) -> Ino {
    let ino = pool.create_file(parent, name.as_bytes(), &regular()).expect("is new").ino;
    pool.release(ino, 1);
    let bytes: Vec<u8> = letters.into_iter().flat_map(letter).collect();
    pool.write(ino, 0, &bytes, Durability::Later).expect("writes");
    ino
}

/// Shares blocks between two files, each given with its first block.
fn share(pool: &Pool, source: (Ino, u64), target: (Ino, u64), blocks: u64) -> Result<ShareOutcome, PoolError> {
    pool.share_range(RangePair {
        source: source.0,
        source_offset: source.1 * BLOCK,
        target: target.0,
        target_offset: target.1 * BLOCK,
        bytes: blocks * BLOCK,
    })
}

fn stored_blocks(pool: &Pool) -> u64 {
    pool.commit().expect("commits");
    let stat = pool.stat().expect("has numbers");
    (stat.unique_bytes + stat.shared_bytes) / BLOCK
}

fn place(pool: &Pool, ino: Ino, block: u64) -> u64 {
    let extents = pool.extents(ino, block * BLOCK).expect("has a map");
    let first = extents.first().expect("has data");
    first.place.expect("is stored") + (block * BLOCK - first.offset)
}

fn assert_reads(pool: &Pool, ino: Ino, letters: impl IntoIterator<Item = u64>) {
    let expected: Vec<u8> = letters.into_iter().flat_map(letter).collect();
    let mut bytes = vec![0xaa; expected.len()];
    assert_eq!(pool.read(ino, 0, &mut bytes).expect("reads"), bytes.len());
    assert!(bytes == expected, "inode {ino} does not read as it was written");
}

fn close(pool: Pool, device: &dyn BlockDevice) {
    check_sums(&pool).expect("adds up");
    pool.close().expect("closes");
    drop(pool);
    let options = CheckOptions { memory_bytes: 64 << 20, verify_data: true, ..CheckOptions::default() };
    let report = check(device, &options, &NoProgress).expect("can be checked");
    assert!(report.is_clean(), "{:?}", report.problems);
}

#[test]
fn what_writes_did_not_find_becomes_one_and_nothing_else_changes() {
    for options in [blind(), off()] {
        let (device, pool) = new_pool(&options);
        let blocks = LEAF + 100;
        let one = create(&pool, Ino::ROOT, "one", 1..=blocks);
        let other = create(&pool, Ino::ROOT, "other", 1..=blocks);
        assert_eq!(stored_blocks(&pool), 2 * blocks);
        pool.commit().expect("commits");
        drop(pool);
        let pool = open(&device, &OpenOptions { dedup: Dedup::On, ..options });
        let before: [Attr; 2] = [one, other].map(|ino| pool.attr(ino).expect("exists"));
        let tree = seen(&pool).expect("reads");
        assert_eq!(share(&pool, (one, 0), (other, 0), blocks).expect("shares"), ShareOutcome::Shared);
        assert_eq!(stored_blocks(&pool), blocks);
        assert_eq!([one, other].map(|ino| pool.attr(ino).expect("exists")), before, "no time, no length changes");
        assert_eq!(seen(&pool).expect("reads"), tree);
        for block in [0, LEAF - 1, LEAF, blocks - 1] {
            assert_eq!(place(&pool, one, block), place(&pool, other, block));
        }
        assert!(pool.extents(one, 0).expect("has a map").iter().all(|extent| extent.is_shared));
        // Once more, with nothing left to do.
        assert_eq!(share(&pool, (one, 0), (other, 0), blocks).expect("shares"), ShareOutcome::Shared);
        close(pool, &*device);
    }
}

/// A private block is no longer private once it is shared: the block that look-ups would have found instead is gone.
#[test]
fn blocks_that_were_private_are_found_by_later_writes() {
    let (device, pool) = new_pool(&off());
    let private = create(&pool, Ino::ROOT, "private", 1..=20);
    pool.close().expect("closes");
    drop(pool);
    let pool = open(&device, &quiet());
    let public = create(&pool, Ino::ROOT, "public", 1..=20);
    assert_eq!(stored_blocks(&pool), 40);
    assert_eq!(share(&pool, (private, 0), (public, 0), 20).expect("shares"), ShareOutcome::Shared);
    let later = create(&pool, Ino::ROOT, "later", 1..=20);
    assert_eq!(stored_blocks(&pool), 20);
    assert_eq!(place(&pool, later, 7), place(&pool, private, 7));
    close(pool, &*device);
}

#[test]
fn ranges_that_differ_anywhere_stay_as_they_are() {
    let (device, pool) = new_pool(&blind());
    let blocks = 700;
    let one = create(&pool, Ino::ROOT, "one", 1..=blocks);
    let changed = |block: u64| (1..=blocks).map(move |number| if number == block { 9999 } else { number });
    for block in [1, 300, blocks] {
        let other = create(&pool, Ino::ROOT, &format!("other {block}"), changed(block));
        let stored = stored_blocks(&pool);
        assert_eq!(share(&pool, (one, 0), (other, 0), blocks).expect("compares"), ShareOutcome::Differ);
        assert_eq!(stored_blocks(&pool), stored);
        assert_reads(&pool, other, changed(block));
    }
    // Zeros are not stored, and equal each other.
    let hole = create(&pool, Ino::ROOT, "hole", [0; 3]);
    let reserved = create(&pool, Ino::ROOT, "reserved", []);
    pool.allocate(reserved, 0, 3 * BLOCK, AllocateMode::Extend).expect("there is room");
    for (source, target) in [(hole, one), (one, hole), (reserved, one), (one, reserved)] {
        assert_eq!(share(&pool, (source, 0), (target, 0), 3).expect("compares"), ShareOutcome::Differ);
    }
    for (source, target) in [(hole, reserved), (reserved, hole)] {
        assert_eq!(share(&pool, (source, 0), (target, 0), 3).expect("compares"), ShareOutcome::Shared);
    }
    assert_eq!(pool.stat().expect("has numbers").reserved_bytes, 3 * BLOCK, "what was promised stays promised");
    // Beyond the end.
    assert_eq!(share(&pool, (one, blocks - 1), (hole, 0), 2).expect("compares"), ShareOutcome::Differ);
    close(pool, &*device);
}

#[test]
fn blocks_of_a_clone_are_shared_without_touching_the_original() {
    let (device, pool) = new_pool(&blind());
    let blocks = LEAF + 20;
    let source = create(&pool, Ino::ROOT, "source", 1..=blocks);
    let original = create(&pool, Ino::ROOT, "original", 1..=blocks);
    let clone = create(&pool, Ino::ROOT, "clone", []);
    pool.clone_file(original, clone).expect("clones");
    let place_before = place(&pool, original, 5);
    assert_eq!(share(&pool, (source, 0), (clone, 0), blocks).expect("shares"), ShareOutcome::Shared);
    assert_eq!(place(&pool, original, 5), place_before);
    assert_eq!(stored_blocks(&pool), 2 * blocks);
    assert_eq!(share(&pool, (source, 0), (original, 0), blocks).expect("shares"), ShareOutcome::Shared);
    assert_eq!(stored_blocks(&pool), blocks);
    for ino in [source, original, clone] {
        assert_reads(&pool, ino, 1..=blocks);
    }
    close(pool, &*device);
}

#[test]
fn places_of_one_file_share_with_each_other() {
    let (device, pool) = new_pool(&blind());
    let content = || (1..=30).chain(1..=30).chain([1, 1, 1]);
    let file = create(&pool, Ino::ROOT, "file", content());
    // The write itself finds equal contents of one write.
    pool.write(file, 30 * BLOCK, &(1..=30).flat_map(letter).collect::<Vec<u8>>(), Durability::Later).expect("writes");
    assert_eq!(share(&pool, (file, 0), (file, 30), 30).expect("shares"), ShareOutcome::Shared);
    assert_eq!(stored_blocks(&pool), 30);
    assert_eq!(share(&pool, (file, 60), (file, 61), 1).expect("shares"), ShareOutcome::Shared);
    let overlapping = share(&pool, (file, 60), (file, 61), 2).expect_err("no range is shared with itself");
    assert_eq!(kind_of(&overlapping), "Invalid");
    assert_reads(&pool, file, content());
    close(pool, &*device);
}

#[test]
fn files_and_pools_that_do_not_share_are_left_alone() {
    let (device, pool) = new_pool(&blind());
    let one = create(&pool, Ino::ROOT, "one", 1..=5);
    let other = create(&pool, Ino::ROOT, "other", 1..=5);
    let folder = pool.create_file(Ino::ROOT, b"tenant", &new_file(FileKind::Directory)).expect("is new").ino;
    pool.set_xattr(folder, b"user.onefold.domain", b"7", XattrMode::Either).expect("is empty");
    let tenants = create(&pool, folder, "tenants", 1..=5);
    for (source, target) in [(one, tenants), (tenants, one)] {
        assert_eq!(kind_of(&share(&pool, (source, 0), (target, 0), 5).expect_err("apart")), "CrossDomain");
    }
    pool.set_xattr(one, b"user.onefold.dedup", dedup_value(Dedup::Off), XattrMode::Either).expect("is allowed");
    for (source, target) in [(one, other), (other, one)] {
        assert_eq!(kind_of(&share(&pool, (source, 0), (target, 0), 5).expect_err("off")), "NotPermitted");
    }
    assert_eq!(kind_of(&share(&pool, (folder, 0), (other, 0), 1).expect_err("no data")), "IsADirectory");
    assert_eq!(stored_blocks(&pool), 15);
    pool.set_xattr(one, b"user.onefold.dedup", dedup_value(Dedup::On), XattrMode::Either).expect("is allowed");
    pool.close().expect("closes");
    drop(pool);
    let pool = open(&device, &off());
    assert_eq!(kind_of(&share(&pool, (one, 0), (other, 0), 5).expect_err("off")), "NotPermitted");
    drop(pool);
    let pool = open(&device, &OpenOptions { read_only: true, ..quiet() });
    assert!(matches!(share(&pool, (one, 0), (other, 0), 5), Err(PoolError::ReadOnly)));
}

#[test]
fn ranges_that_make_no_sense_are_refused() {
    let (device, pool) = new_pool(&blind());
    let one = create(&pool, Ino::ROOT, "one", 1..=5);
    let other = create(&pool, Ino::ROOT, "other", 1..=5);
    let far = u64::MAX / BLOCK * BLOCK;
    let refused = |from: u64, to: u64, bytes: u64| {
        let ranges = RangePair { source: one, source_offset: from, target: other, target_offset: to, bytes };
        kind_of(&pool.share_range(ranges).expect_err("no range"))
    };
    for (from, to, bytes) in [(1, 0, BLOCK), (0, 1, BLOCK), (0, 0, 1), (0, 0, 0), (0, 0, SHARE_BYTES_MAX + BLOCK)] {
        assert_eq!(refused(from, to, bytes), "Invalid");
    }
    for (from, to) in [(far, 0), (0, far)] {
        assert_eq!(refused(from, to, BLOCK), "FileTooLarge");
    }
    assert_eq!(kind_of(&share(&pool, (one, 0), (Ino(999), 0), 1).expect_err("no file")), "NotFound");
    close(pool, &*device);
}

#[test]
fn a_block_whose_count_is_full_is_left_alone() {
    let limits = TestLimits { references_max: 3, filter_bytes_max: 0, ..TestLimits::default() };
    let (device, pool) = new_pool(&OpenOptions { test_limits: limits, ..quiet() });
    let files: Vec<Ino> = (0..5).map(|number| create(&pool, Ino::ROOT, &number.to_string(), 1..=4)).collect();
    let outcomes = files[1..].iter().map(|file| share(&pool, (files[0], 0), (*file, 0), 4).expect("shares"));
    let expected = [ShareOutcome::Shared, ShareOutcome::Shared, ShareOutcome::InPart, ShareOutcome::InPart];
    assert_eq!(outcomes.collect::<Vec<_>>(), expected);
    assert_eq!(stored_blocks(&pool), 3 * 4);
    // If a reference has gone, another one is added, and the others stay.
    pool.write(files[1], BLOCK, &letter(77), Durability::Later).expect("writes");
    assert_eq!(share(&pool, (files[0], 0), (files[3], 0), 4).expect("shares"), ShareOutcome::InPart);
    assert_eq!(place(&pool, files[3], 1), place(&pool, files[0], 1));
    assert_ne!(place(&pool, files[3], 2), place(&pool, files[0], 2));
    for file in &files[2..] {
        assert_reads(&pool, *file, 1..=4);
    }
    close(pool, &*device);
}

/// Sharing must neither hand a damaged block to another file, nor hide that one is damaged.
#[test]
fn a_damaged_block_is_neither_given_nor_taken_away() {
    for options in [blind(), off()] {
        let (device, pool) = new_pool(&options);
        let one = create(&pool, Ino::ROOT, "one", 1..=3);
        let other = create(&pool, Ino::ROOT, "other", 1..=3);
        let damaged = BlockNo(place(&pool, one, 1) / BLOCK);
        let like_damaged = create(&pool, Ino::ROOT, "like", [1, 9, 3]);
        pool.close().expect("closes");
        drop(pool);
        device.write(damaged, &AlignedBuffer::copy_of(&letter(9))).expect("is written");
        let pool = open(&device, &OpenOptions { dedup: Dedup::On, ..options });
        for partner in [other, like_damaged] {
            for (source, target) in [(one, partner), (partner, one)] {
                assert_eq!(share(&pool, (source, 0), (target, 0), 3).expect("compares"), ShareOutcome::Differ);
            }
        }
        assert_reads(&pool, other, 1..=3);
        let report = pool.scrub(&ScrubOptions::default(), &NoProgress).expect("scrubs");
        assert_eq!(report.problems_total, 1);
        assert_eq!(report.problems[0].files, ["/one"]);
    }
}

/// Two private blocks of one content, both damaged alike: their fingerprints and their bytes are equal.
#[test]
fn a_private_block_is_shared_only_if_it_is_what_was_stored() {
    let (device, pool) = new_pool(&off());
    let files = ["one", "other"].map(|name| create(&pool, Ino::ROOT, name, [1, 2]));
    let places = files.map(|file| BlockNo(place(&pool, file, 1) / BLOCK));
    pool.close().expect("closes");
    drop(pool);
    places.iter().for_each(|block| device.write(*block, &AlignedBuffer::copy_of(&letter(9))).expect("is written"));
    let pool = open(&device, &quiet());
    assert_eq!(share(&pool, (files[0], 0), (files[1], 0), 2).expect("compares"), ShareOutcome::Differ);
    assert_eq!(share(&pool, (files[0], 0), (files[1], 0), 1).expect("shares"), ShareOutcome::Shared);
}

#[test]
fn a_device_that_fails_leaves_what_was_there() {
    for call in [Call::Read, Call::Write, Call::Sync] {
        let faulty = Arc::new(FaultyDevice::new(MemoryDevice::new(8192), 1));
        let device: Arc<dyn BlockDevice> = faulty.clone();
        Pool::create(&device, &CreateOptions::default(), &environment()).expect("a pool is made");
        let pool = open(&device, &blind());
        let one = create(&pool, Ino::ROOT, "one", 1..=200);
        let other = create(&pool, Ino::ROOT, "other", 1..=200);
        pool.commit().expect("commits");
        faulty.fail(call, FailingCalls::FromNth(1), Fault::Io);
        let shared = share(&pool, (one, 0), (other, 0), 200).and_then(|_| pool.commit());
        assert!(shared.is_err(), "{call:?}");
        faulty.heal();
        drop(pool);
        let pool = open(&device, &quiet());
        for ino in [one, other] {
            assert_reads(&pool, ino, 1..=200);
        }
        close(pool, &*device);
    }
}

#[test]
fn a_map_tells_where_data_lies() {
    let (device, pool) = new_pool(&quiet());
    let file = create(&pool, Ino::ROOT, "file", (1..=10).chain([0; 5]).chain(11..=12));
    let far = 3 * LEAF * LEAF;
    pool.write(file, far * BLOCK, &letter(13), Durability::Later).expect("writes");
    pool.allocate(file, 100 * BLOCK, 4 * BLOCK, AllocateMode::KeepSize).expect("there is room");
    let extents = pool.extents(file, 0).expect("has a map");
    let lengths: Vec<(u64, u64, bool)> =
        extents.iter().map(|extent| (extent.offset / BLOCK, extent.length / BLOCK, extent.is_unwritten)).collect();
    assert_eq!(lengths, [(0, 10, false), (15, 2, false), (100, 4, true), (far, 1, false)]);
    assert!(extents.iter().all(|extent| extent.place.is_none() == extent.is_unwritten && !extent.is_shared));
    // From the middle of a block, and from behind the last one.
    assert_eq!(pool.extents(file, 16 * BLOCK + 5).expect("has a map")[0].offset, 16 * BLOCK);
    assert_eq!(pool.extents(file, (far + 1) * BLOCK).expect("has a map"), []);
    let clone = create(&pool, Ino::ROOT, "clone", []);
    pool.clone_file(file, clone).expect("clones");
    let of_clone = pool.extents(clone, 0).expect("has a map");
    assert!(of_clone.iter().all(|extent| extent.is_shared), "{of_clone:?}");
    assert_eq!(of_clone[0].place, extents[0].place);
    close(pool, &*device);
}
