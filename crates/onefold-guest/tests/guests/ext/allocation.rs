//! Allocation maps: exactly what `dumpe2fs` prints, and nothing that anybody reads is free.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use onefold_guest::filesystem::{Allocation, AllocationClass, AllocationDifferences, FileSystem, TableKind};

use super::dirty::{SYSTEMS, busy};
use super::listing::{compare_content, found_tree, tree};
use super::options::{REFUSED, has_large_blocks, whole_matrix};
use super::{RECIPE, with_ext};
use crate::fixtures::{BUSY_COPIES, Images, MADE, has, tell, times};
use crate::noise;

const OPTIONS: &[&str] = &[
    "-t ext2 -b 1024 -g 2048",
    "-t ext3 -b 2048 -O ^resize_inode",
    "-t ext4 -O bigalloc -C 16384",
    "-t ext4",
    "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg -E lazy_itable_init=1",
    "-t ext4 -b 1024 -O meta_bg,^resize_inode,sparse_super2,quota,mmp -g 1024",
    "-t ext4 -O orphan_file,inline_data,metadata_csum_seed -E packed_meta_blocks=1",
];

/// Asserts that runs are in order, merged, and cover everything.
fn assert_complete(runs: &[Allocation], volume_bytes: u64) {
    let mut end = 0;
    for run in runs {
        assert!(run.length_bytes > 0 && run.start_bytes == end, "{run:?} after {end}");
        end = run.end_bytes();
    }
    assert_eq!(end, volume_bytes);
    assert!(runs.windows(2).all(|two| two[0].class != two[1].class), "neighbours of one class");
}

fn free_runs(fs: &dyn FileSystem) -> Vec<(u64, u64)> {
    let runs = fs.allocation().unwrap();
    let free = runs.iter().filter(|run| run.class == AllocationClass::Free);
    free.map(|run| (run.start_bytes, run.end_bytes())).collect()
}

/// Returns the free blocks that `dumpe2fs` prints, as runs of bytes; neighbours are one. It prints the first block of
/// the last free cluster.
fn printed_free_runs(printed: &str, block_bytes: u64, cluster_bytes: u64) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for line in printed.lines().filter_map(|line| line.strip_prefix("  Free blocks: ")) {
        for range in line.split(", ").filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.trim().parse::<u64>().unwrap();
            let (start, end) = (number(first) * block_bytes, number(last) * block_bytes + cluster_bytes);
            match runs.last_mut() {
                Some(run) if run.1 == start => run.1 = end,
                _ => runs.push((start, end)),
            }
        }
    }
    runs
}

/// Overwrites all free runs of an image with noise.
fn poison(image: &Path) {
    let free = with_ext(image, |fs| free_runs(fs));
    let file = File::options().write(true).open(image).unwrap();
    noise::overwrite(&file, free);
}

#[test]
fn free_runs_are_exactly_those_that_dumpe2fs_prints_and_nobody_reads_them() {
    compare_free_runs(OPTIONS);
}

#[test]
fn free_runs_of_what_the_kernel_refuses_are_those_that_dumpe2fs_prints() {
    compare_free_runs(&[REFUSED[0], REFUSED[4], REFUSED[6]]);
}

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn free_runs_of_the_whole_matrix_are_those_that_dumpe2fs_prints() {
    let options = whole_matrix();
    let options = options.iter().map(String::as_str).chain(REFUSED.iter().copied());
    compare_free_runs(&options.collect::<Vec<_>>());
}

/// Makes a file system with each set of options, and compares its free runs with those that `dumpe2fs` prints. Nobody
/// misses what is free.
fn compare_free_runs(options: &[&str]) {
    let Some(images) = Images::new() else { return };
    if !has("dumpe2fs") || !has("e2fsck") {
        return;
    }
    let recipe = "rm -rf copy image; mkdir copy; (cd copy; set -- copied; RECIPE
        rm -rf sparse many/*[3-9] few)";
    images.script(&recipe.replace("RECIPE", RECIPE), [""; 0]);
    for options in options {
        eprintln!("mke2fs {options}");
        let make = "rm -f image; truncate -s $2 image; mke2fs -q -F $1 -N 4000 -d copy image 2>/dev/null
            printf 'rm one\\nrm bytes-65535\\nrm pieces\\nkill_file bytes-4096\\n' >commands
            debugfs -w -f commands image >/dev/null 2>&1; e2fsck -fy image >/dev/null || [ $? = 1 ]
            dumpe2fs image 2>/dev/null";
        // Journals have at least 1024 blocks.
        let size_bytes = if has_large_blocks(options) { 250_000_000 } else { 40_000_000 };
        let printed = images.script(make, [*options, &size_bytes.to_string()]);
        let image = images.path("image");
        let before = with_ext(&image, |fs| {
            let runs = fs.allocation().unwrap();
            assert_complete(&runs, size_bytes);
            let block_bytes = fs.facts().block_bytes;
            let cluster_bytes = cluster_bytes(options).unwrap_or(block_bytes);
            assert_eq!(free_runs(fs), printed_free_runs(&printed, block_bytes, cluster_bytes), "{options}");
            let bytes = |class| runs.iter().filter(|run| run.class == class).map(|run| run.length_bytes).sum::<u64>();
            assert_eq!(Some(bytes(AllocationClass::Free)), fs.facts().free_bytes, "{options}");
            assert_eq!(bytes(AllocationClass::Doubtful), 0, "{options}");
            let is_journaled = !options.contains("ext2") && !options.contains("^has_journal");
            assert_eq!(bytes(AllocationClass::Table(TableKind::Journal)) >= 1 << 20, is_journaled, "{options}");
            for kind in [TableKind::Superblock, TableKind::Bitmap, TableKind::Inodes, TableKind::Directory] {
                assert!(bytes(AllocationClass::Table(kind)) > 0, "{kind:?} of {options}");
            }
            fs.allocation().unwrap();
            assert_eq!(fs.allocation_differences(), Some(Default::default()));
            assert_eq!(fs.damage().first(), []);
            tree(fs)
        });
        poison(&image);
        images.script("e2fsck -fn image >&2; rm -f copy/one copy/bytes-65535 copy/pieces", [""; 0]);
        with_ext(&image, |fs| {
            assert_eq!(before, tree(fs));
            compare_content(fs, &images.path("copy"), 1 << 29);
        });
        images.script(&recipe.replace("RECIPE", RECIPE).replace("rm -rf copy image", "rm -rf copy"), [""; 0]);
    }
    tell(options.len(), MADE);
}

/// Returns the bytes of a cluster that options of `mke2fs` name.
fn cluster_bytes(options: &str) -> Option<u64> {
    let (_, bytes) = options.split_once("-C ")?;
    Some(bytes.split(' ').next()?.parse().unwrap())
}

/// The clone of a file system in use, as a power cut would leave it; all that is free is overwritten before it is
/// recovered.
#[test]
fn a_poisoned_image_of_a_running_system_recovers_and_checks_clean() {
    let Some(images) = Images::new() else { return };
    if !has("e2fsck") || !has("mkfs.xfs") {
        return;
    }
    let mut compared = 0;
    for (round, (make, mount)) in (0..times()).flat_map(|round| SYSTEMS.map(|system| (round, system))) {
        busy(&images, make, mount, 1, round + 10_000);
        poison(&images.path("copy-1"));
        let script = "e2fsck -fy copy-1 >&2 || [ $? = 1 ]; e2fsck -fn copy-1 >&2; mount -o loop,ro copy-1 mounted
            (cd mounted && find . -printf '%P|%y|%m|%n|%U|%G|%s|%b|%T@|%C@|%l\\0') >tree
            diff -r --no-dereference mounted seen/1";
        images.script(script, [""; 0]);
        assert_eq!(found_tree(&images.path("tree")), found_tree(&images.path("tree-1")));
        compared += 1;
    }
    tell(compared, BUSY_COPIES);
}

/// The journal has the removal of a file, which lost all its blocks. Recovery reads none of them, but they stay
/// allocated until it has run.
#[test]
fn blocks_that_only_the_bitmaps_before_recovery_allocate_are_counted_and_not_free() {
    let Some(images) = Images::new() else { return };
    if !has("debugfs") || !has("e2fsck") {
        return;
    }
    for (make, open, block_bytes, cluster_bytes) in [
        ("-b 4096", "jo -c", 4096, 4096),
        ("-b 1024 -O ^metadata_csum", "jo", 1024, 1024),
        ("-b 1024 -O bigalloc -C 16384", "jo -c -v 3", 1024, 16_384),
    ] {
        let script = "rm -rf d; mkdir d; head -c 400000 /dev/urandom >d/file; echo kept >d/kept
            rm -f image block-*; truncate -s 48M image; mke2fs -q -F -t ext4 $1 -d d image 2>/dev/null
            debugfs -R 'blocks /file' image 2>/dev/null
            cp image copy; debugfs -w -R 'rm /file' copy 2>/dev/null; echo \"$2\" >commands
            { cmp -l image copy || :; } | awk -v bytes=$3 '{ print int(($1 - 1) / bytes) }' | uniq >changed
            while read -r block; do
                dd if=copy of=block-$block bs=$3 skip=$block count=1 status=none
                echo \"jw -b $block block-$block\" >>commands
            done <changed
            echo jc >>commands; debugfs -w -f commands image >&2
            e2fsck -fy copy >&2 || [ $? = 1 ]; dumpe2fs copy 2>/dev/null";
        let printed = images.script(script, [make, open, &block_bytes.to_string()]);
        let (blocks, printed) = printed.split_once('\n').unwrap();
        let clusters: BTreeSet<u64> = blocks
            .split_whitespace()
            .map(|block| block.parse::<u64>().unwrap() * block_bytes / cluster_bytes * cluster_bytes)
            .collect();
        let length = clusters.len() as u64 * cluster_bytes;
        assert!(length >= 400_000, "{blocks}");
        // All that is free after recovery is free before it, too, except for the clusters of the file.
        let mut expected = Vec::new();
        for (mut start, end) in printed_free_runs(printed, block_bytes, cluster_bytes) {
            for cluster in clusters.range(start..end) {
                expected.extend((start < *cluster).then_some((start, *cluster)));
                start = cluster + cluster_bytes;
            }
            expected.extend((start < end).then_some((start, end)));
        }
        with_ext(&images.path("image"), |fs| {
            assert!(fs.look_up(fs.root(), b"file").unwrap().is_none(), "the journal is applied");
            assert!(fs.look_up(fs.root(), b"kept").unwrap().is_some());
            assert_eq!(free_runs(fs), expected, "{make}");
            let differences = AllocationDifferences { before_recovery_bytes: length, ..Default::default() };
            assert_eq!(fs.allocation_differences(), Some(differences), "{make}");
            assert_eq!(fs.damage().first(), []);
        });
    }
}

/// Without the bitmap's checksum a group cannot be trusted, and a block that a file reaches is never free.
#[test]
fn damaged_bitmaps_free_nothing() {
    let Some(images) = Images::new() else { return };
    if !has("debugfs") {
        return;
    }
    let script = "mkdir d; head -c 300000 /dev/urandom >d/file; truncate -s 48M summed plain
        mke2fs -q -F -t ext4 -b 1024 -d d summed; mke2fs -q -F -t ext2 -b 1024 -d d plain
        for image in summed plain; do
            block=$(dumpe2fs $image 2>/dev/null | sed -n 's/.*Block bitmap at \\([0-9]*\\).*/\\1/p' | head -1)
            dd if=/dev/zero of=$image bs=1024 seek=$block count=1 conv=notrunc status=none
        done
        debugfs -w -R 'set_bg 0 free_blocks_count 8192' plain 2>/dev/null; cp plain counted
        debugfs -w -R 'set_bg 0 free_blocks_count 8191' counted 2>/dev/null";
    images.script(script, [""; 0]);
    let first_group = 1024..1024 * 8193;
    with_ext(&images.path("summed"), |fs| {
        assert!(free_runs(fs).iter().all(|run| !first_group.contains(&run.0)), "a group without a bitmap is free");
        assert_eq!(fs.damage().first().len(), 1, "{:?}", fs.damage().first());
    });
    with_ext(&images.path("plain"), |fs| {
        let free = free_runs(fs);
        let file = fs.look_up(fs.root(), b"file").unwrap().unwrap();
        let mut reached = BTreeSet::new();
        fs.each_extent(file, &mut |extent| {
            reached.insert((extent.place, extent.place + extent.length_bytes));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert!(!reached.is_empty());
        for (start, end) in reached {
            assert!(free.iter().all(|run| run.1 <= start || end <= run.0), "{start}..{end} is free");
        }
        let differences = fs.allocation_differences().unwrap();
        assert!(differences.reached_bytes >= 300_000, "{differences:?}");
    });
    with_ext(&images.path("counted"), |fs| {
        assert!(free_runs(fs).iter().all(|run| !first_group.contains(&run.0)), "a group that counts others is free");
        assert!(!free_runs(fs).is_empty());
        let problems: Vec<_> = fs.damage().first().iter().map(|damage| damage.problem).collect();
        assert!(problems.contains(&"it counts other free clusters than its bitmap has"), "{problems:?}");
    });
    fs::remove_file(images.path("plain")).unwrap();
}

/// A bitmap without a checksum may call free what lies behind the damage of a map.
#[test]
fn a_damaged_map_frees_nothing_where_bitmaps_have_no_checksums() {
    let Some(images) = Images::new() else { return };
    if !has("debugfs") {
        return;
    }
    let script = "mkdir d; head -c 300000 /dev/urandom >d/file; truncate -s 48M summed plain
        mke2fs -q -F -t ext4 -b 1024 -d d summed; mke2fs -q -F -t ext2 -b 1024 -d d plain
        for image in summed plain; do
            cp $image whole; debugfs -w -R 'sif /file block[1] 0xfffffff0' $image
            ! cmp -s whole $image
        done";
    images.script(script, [""; 0]);
    for (image, is_free) in [("summed", true), ("plain", false)] {
        with_ext(&images.path(image), |fs| {
            assert_eq!(!free_runs(fs).is_empty(), is_free, "{image}");
            assert_eq!(fs.damage().first().len(), 1, "{image}: {:?}", fs.damage().first());
        });
    }
}
