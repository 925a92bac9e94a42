//! Damages each kind of structure: the problem is found and names the affected files.

use onefold_block::{BlockDevice, BlockNo};
use onefold_pool::check::CheckReport;
use onefold_pool::format::geometry::{STATE, SUPERBLOCK, SUPERBLOCK_COPY};
use onefold_pool::format::header::BlockKind;
use onefold_pool::format::map_node::entries_range;
use onefold_pool::format::state::Field;
use onefold_pool::format::store_page;
use onefold_pool::{Durability, FileKind, Ino};
use onefold_testing::device::MemoryDevice;

use super::common::*;

/// Panics unless a problem of `structure` contains `what` and names `files`.
fn expect(report: &CheckReport, structure: &str, what: &str, files: &[&str]) {
    let fits = report.problems.iter().any(|problem| {
        let mut found: Vec<&str> = problem.files.iter().map(String::as_str).collect();
        found.sort_unstable();
        problem.structure == structure && problem.what.contains(what) && found == files
    });
    assert!(fits, "no {structure:?} that says {what:?} of {files:?}: {report:#?}");
}

/// Returns the entry of a block in the fingerprint store of group 0.
fn entry_of(block: BlockNo) -> (BlockNo, std::ops::Range<usize>) {
    let index = usize::try_from(block.0 % 170).unwrap();
    (BlockNo(4 + block.0 / 170), store_page::entry_range(index))
}

const MAP_LEAF: BlockKind = BlockKind::MapNode(0);

/// Returns a leaf that only `/images/golden.raw` and its clone share, and the first data block that it names.
fn shared_leaf(device: &MemoryDevice) -> (BlockNo, BlockNo) {
    let leaves = blocks_of_kind(&device.image(), MAP_LEAF);
    let (at, bytes) = leaves
        .iter()
        .find(|(at, _)| {
            let (page, range) = entry_of(*at);
            let mut store = [0; 4096];
            device.read(page, &mut store).unwrap();
            store[range.start + 16] == 2
        })
        .expect("the second leaf is shared");
    let first = u64::from_le_bytes(bytes[entries_range(0, 1)].try_into().unwrap());
    (*at, BlockNo(first))
}

#[test]
fn a_superblock_that_is_lost_is_told_though_its_copy_is_good() {
    for at in [SUPERBLOCK, SUPERBLOCK_COPY] {
        let device = sample();
        flip(&device, at, 150);
        let report = checked(&device);
        assert_eq!(report.problems_total, 1, "{report:#?}");
        expect(&report, "superblock", "unusable", &[]);
        device.write(at, &[0; 4096]).unwrap();
        expect(&checked(&device), "superblock", "overwritten", &[]);
    }
}

#[test]
fn a_journal_header_slot_that_is_lost_is_told() {
    for slot in [200, 201] {
        let device = sample();
        flip(&device, BlockNo(slot), 20);
        expect(&checked(&device), "journal", "header slot", &[]);
    }
}

#[test]
fn damage_of_the_pool_state_is_told() {
    let device = sample();
    flip(&device, STATE, 90);
    expect(&checked(&device), "pool state", "unusable", &[]);
    for (field, what) in [
        (Field::Inodes, "number of files"),
        (Field::ApparentBlocks, "spanned"),
        (Field::LogicalBlocks, "mapped"),
        (Field::References, "references"),
        (Field::DataBlocks, "data blocks"),
        (Field::SharedBlocks, "shared"),
        (Field::MetadataBlocks, "metadata blocks"),
        (Field::ReservedBlocks, "reserved"),
        (Field::ReclaimPending, "reclaim"),
    ] {
        let device = sample();
        reseal(&device, STATE, |bytes| bytes[field.range().start] ^= 1);
        let report = checked(&device);
        assert_eq!(report.problems_total, 1, "{report:#?}");
        expect(&report, "pool state", what, &[]);
    }
}

#[test]
fn an_unusable_bitmap_or_store_page_is_told() {
    for (block, structure) in [(2, "bitmap"), (3, "bitmap"), (4, "fingerprint store"), (196, "fingerprint store")] {
        let device = sample();
        flip(&device, BlockNo(block), 1000);
        expect(&checked(&device), structure, if structure == "bitmap" { "unusable" } else { "lost" }, &[]);
    }
}

#[test]
fn a_used_block_marked_as_free_is_told_with_its_files() {
    let device = sample();
    let (_, data) = shared_leaf(&device);
    reseal(&device, BlockNo(2), |bytes| bytes[16 + data.0 as usize / 8] ^= 1 << (data.0 % 8));
    let report = checked(&device);
    expect(&report, "bitmap", "marked as free", &["/images/clone.raw", "/images/golden.raw"]);
}

#[test]
fn a_free_block_marked_as_used_and_marks_past_the_end_are_told() {
    let device = sample();
    reseal(&device, BlockNo(2), |bytes| bytes[16 + 16_000 / 8] ^= 1);
    expect(&checked(&device), "bitmap", "its entry says that it is free", &[]);
    // The first bit past the end, some in between, and the last one of each bitmap block.
    let end = usize::try_from(sample().block_count().expect("a size")).expect("small");
    for bit in [end, end + 1, 4080 * 8 - 1, 4080 * 8, 4080 * 8 + 160, 2 * 4080 * 8 - 1] {
        let (device, within) = (sample(), bit % (4080 * 8));
        let block = if bit < 4080 * 8 { BlockNo(2) } else { BlockNo(3) };
        reseal(&device, block, |bytes| bytes[16 + within / 8] ^= 1 << (within % 8));
        expect(&checked(&device), "bitmap", "past the end", &[]);
    }
}

#[test]
fn entries_past_the_end_are_told() {
    let end = usize::try_from(sample().block_count().expect("a size")).expect("small");
    for entry in [end, end + 1, end / 170 * 170 + 169, 192 * 170, 193 * 170 - 1] {
        let device = sample();
        let page = BlockNo(4 + u64::try_from(entry / 170).expect("below 193"));
        reseal(&device, page, |bytes| bytes[store_page::entry_range(entry % 170).end - 1] = 1);
        expect(&checked(&device), "fingerprint store", "past the end of block group 0", &[]);
    }
}

#[test]
fn wrong_reference_counts_are_told_with_their_files() {
    let device = sample();
    let (leaf, data) = shared_leaf(&device);
    let files = ["/images/clone.raw", "/images/golden.raw"];
    // Two files share the leaf; only the leaf refers to its data.
    for (block, count, what) in [
        (leaf, 3, "1 more references to the block are recorded"),
        (leaf, 1, "there are 1 more references"),
        (data, 5, "4 more references to the block are recorded"),
    ] {
        let device = MemoryDevice::from(device.image());
        let (page, range) = entry_of(block);
        reseal(&device, page, |bytes| bytes[range.start + 16] = count);
        expect(&checked(&device), "reference count", what, &files);
    }
}

#[test]
fn a_block_that_nothing_refers_to_is_told_as_lost_space() {
    let device = sample();
    let (page, range) = entry_of(BlockNo(16_000));
    reseal(&device, page, |bytes| {
        bytes[range.start + 16] = 1;
        bytes[range.start + 22] = 1;
    });
    reseal(&device, BlockNo(2), |bytes| bytes[16 + 16_000 / 8] ^= 1);
    expect(&checked(&device), "reference count", "nothing refers to them", &[]);
}

#[test]
fn a_block_used_for_something_else_than_recorded_is_told() {
    let device = sample();
    let (_, data) = shared_leaf(&device);
    let (page, range) = entry_of(data);
    reseal(&device, page, |bytes| {
        bytes[range.clone()].fill(0);
        bytes[range.start + 16] = 1;
        bytes[range.start + 22] = 3;
    });
    let report = checked(&device);
    expect(
        &report,
        "reference count",
        "recorded as a page of the names tree",
        &["/images/clone.raw", "/images/golden.raw"],
    );
    let (page, range) = entry_of(data);
    reseal(&device, page, |bytes| bytes[range.start + 23] = 0x80);
    expect(&checked(&device), "fingerprint store", "makes no sense", &[]);
}

#[test]
fn a_block_of_another_sharing_domain_is_told() {
    let device = sample();
    let (_, data) = shared_leaf(&device);
    let (page, range) = entry_of(data);
    reseal(&device, page, |bytes| bytes[range.start + 20] = 9);
    expect(&checked(&device), "reference count", "sharing domain 9", &["/images/clone.raw", "/images/golden.raw"]);
}

#[test]
fn a_lost_map_node_is_told_with_all_files_that_share_it() {
    let device = sample();
    let (leaf, _) = shared_leaf(&device);
    flip(&device, leaf, 2000);
    expect(
        &checked(&device),
        "file map",
        "508 blocks of the file are lost",
        &["/images/clone.raw", "/images/golden.raw"],
    );
}

#[test]
fn a_map_that_points_where_no_data_can_be_is_told() {
    let device = sample();
    let (leaf, _) = shared_leaf(&device);
    for target in [0x0000_ffff_ffff_ffff_u64, 197, 5] {
        let device = MemoryDevice::from(device.image());
        reseal(&device, leaf, |bytes| bytes[entries_range(0, 1)].copy_from_slice(&target.to_le_bytes()));
        expect(&checked(&device), "file map", "an impossible place", &["/images/clone.raw", "/images/golden.raw"]);
    }
    reseal(&device, leaf, |bytes| bytes[entries_range(3, 1)].fill(0x55));
    expect(&checked(&device), "file map", "entry 3 makes no sense", &["/images/clone.raw", "/images/golden.raw"]);
}

#[test]
fn wrong_totals_and_data_past_the_end_are_told() {
    let device = sample();
    let (leaf, data) = shared_leaf(&device);
    reseal(&device, leaf, |bytes| bytes[16] ^= 1);
    expect(&checked(&device), "file map", "do not match the subtree", &["/images/clone.raw", "/images/golden.raw"]);
    reseal(&device, leaf, |bytes| {
        bytes[16] ^= 1;
        bytes[entries_range(500, 1)].copy_from_slice(&data.0.to_le_bytes());
    });
    expect(&checked(&device), "file map", "past its end", &["/images/golden.raw"]);
}

#[test]
fn changed_data_is_told_with_its_files_and_only_when_data_is_read() {
    let device = sample();
    let (_, data) = shared_leaf(&device);
    flip(&device, data, 77);
    let report = checked(&device);
    assert_eq!(report.problems_total, 1, "{report:#?}");
    expect(&report, "data", "fingerprint", &["/images/clone.raw", "/images/golden.raw"]);
    assert_eq!(report.problems[0].block, Some(data));
    let quick = onefold_pool::check::CheckOptions { verify_data: false, ..options() };
    assert!(onefold_pool::check::check(&*device, &quick, &onefold_pool::NoProgress).unwrap().is_clean());
}

#[test]
fn a_lost_names_tree_page_is_told() {
    let device = sample();
    let pages = blocks_of_kind(&device.image(), BlockKind::TreePage);
    for (page, _) in &pages {
        let device = MemoryDevice::from(device.image());
        flip(&device, *page, 3000);
        expect(&checked(&device), "names tree", "lost", &[]);
    }
}

#[test]
fn a_check_names_a_hundred_places_of_lost_data_and_says_whether_there_are_more() {
    for (places, has_more) in [(100, false), (101, true)] {
        let device = new_pool(16_384);
        let pool = open(&device);
        let file = make(&pool, Ino::ROOT, b"equal", FileKind::Regular);
        pool.write(file, 0, &noise(1, 4096).repeat(places), Durability::Later).unwrap();
        pool.close().unwrap();
        let (_, leaf) = blocks_of_kind(&device.image(), MAP_LEAF).remove(0);
        flip(&device, BlockNo(u64::from_le_bytes(leaf[entries_range(0, 1)].try_into().unwrap())), 7);
        let report = checked(&device);
        let [problem] = report.problems.as_slice() else { panic!("{report:#?}") };
        assert_eq!((problem.structure, problem.places.len(), problem.has_more_places), ("data", 100, has_more));
    }
}
