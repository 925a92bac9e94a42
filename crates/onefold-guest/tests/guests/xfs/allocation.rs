//! What is free is what the kernel lists as free, and nothing needs it.

use std::path::Path;

use onefold_guest::filesystem::{Allocation, AllocationClass, FileSystem, State, TableKind};

use super::{make, with_xfs};
use crate::fixtures::{Images, has};
use crate::noise;

/// Returns the map, which covers the volume without gaps.
pub(super) fn map_of(xfs: &dyn FileSystem, size_bytes: u64) -> Vec<Allocation> {
    let map = xfs.allocation().unwrap();
    let mut at = 0;
    for run in &map {
        assert_eq!(run.start_bytes, at, "{run:?}");
        assert!(run.length_bytes > 0);
        at = run.end_bytes();
    }
    assert_eq!(at, size_bytes);
    assert!(map.windows(2).all(|pair| pair[0].class != pair[1].class), "neighbours of a class are one run");
    map
}

fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

/// Returns start and end of the free runs of an image.
pub(super) fn free_runs(path: &Path) -> Vec<(u64, u64)> {
    let map = with_xfs(path, |xfs| map_of(xfs, size_of(path)));
    let free = map.iter().filter(|run| run.class == AllocationClass::Free);
    free.map(|run| (run.start_bytes, run.end_bytes())).collect()
}

/// Compares the free runs with those of `fsmap`, whose lines are `0: 7:1 [80..127]: free space 0 (80..127) 48`.
pub(super) fn must_be_free_as_mounted(images: &Images) {
    let fsmap = std::fs::read_to_string(images.path("fsmap")).unwrap();
    let mut shown: Vec<(u64, u64)> = Vec::new();
    for line in fsmap.lines().filter(|line| line.contains("free space")) {
        let (_, range) = line.split_once('[').unwrap();
        let (start, end) = range.split_once(']').unwrap().0.split_once("..").unwrap();
        let (start, end): (u64, u64) = (start.parse().unwrap(), end.parse().unwrap());
        match shown.last_mut() {
            Some(last) if last.1 == start * 512 => last.1 = (end + 1) * 512,
            _ => shown.push((start * 512, (end + 1) * 512)),
        }
    }
    assert!(!shown.is_empty());
    assert_eq!(free_runs(&images.path("image")), shown);
}

/// Overwrites every free byte of an image.
pub(super) fn poison(path: &Path) {
    let free = free_runs(path);
    noise::overwrite(&std::fs::File::options().write(true).open(path).unwrap(), free);
}

/// Poisons the image, lets `xfs_repair` check it, and mounts it again: everything is as before.
fn must_withstand_poison(images: &Images) {
    poison(&images.path("image"));
    let script = "xfs_repair -n -f image >repair 2>&1 || { cat repair >&2; false; }
        mkdir mounted; mount -o loop,ro,noatime image mounted
        python3 \"$RECIPES/view.py\" mounted > view-poisoned; umount mounted; cmp view view-poisoned";
    images.script(&super::prepared(script), [""; 0]);
}

#[test]
fn noise_in_free_blocks_harms_nothing() {
    if !has("xfs_repair") {
        return;
    }
    for options in ["-m rmapbt=1", "-b size=1024 -d agcount=3 -m reflink=0", "-b size=16384 -i sparse=0"] {
        let Some(images) = make("100M", options, &["300", "300"]) else { return };
        must_be_free_as_mounted(&images);
        must_withstand_poison(&images);
    }
}

#[test]
fn blocks_of_every_kind_have_their_class() {
    let Some(images) = make("100M", "-m rmapbt=1", &["300", "300"]) else { return };
    let path = images.path("image");
    // A tail that belongs to no block.
    std::fs::File::options().write(true).open(&path).unwrap().set_len((100 << 20) + 1000).unwrap();
    let map = with_xfs(&path, |xfs| map_of(xfs, size_of(&path)));
    let bytes = |class| map.iter().filter(|run| run.class == class).map(|run| run.length_bytes).sum::<u64>();
    let table = |kind| bytes(AllocationClass::Table(kind));
    let printed = images
        .script("xfs_db -r -c 'sb 0' -c 'print agcount logblocks fdblocks icount' image | sed 's/.* = //'", [""; 0]);
    let numbers: Vec<u64> = printed.lines().map(|number| number.parse().unwrap()).collect();
    let [groups, log_blocks, free_blocks, inodes] = numbers[..] else { panic!("{printed}") };
    assert_eq!(table(TableKind::Superblock), groups * 4096);
    assert_eq!(table(TableKind::Journal), log_blocks * 4096);
    assert_eq!(table(TableKind::Inodes), inodes * 512);
    assert_eq!(bytes(AllocationClass::Outside), 1000);
    assert_eq!(bytes(AllocationClass::Doubtful), 0);
    assert!(table(TableKind::Directory) > 0 && table(TableKind::Tree) > 0 && bytes(AllocationClass::Data) > 5 << 20);
    // The superblock counts blocks kept for trees as free; here they are trees.
    let free = bytes(AllocationClass::Free);
    assert!(free <= free_blocks * 4096 && free_blocks * 4096 <= free + table(TableKind::Tree), "{free} {free_blocks}");
    with_xfs(&path, |xfs| assert_eq!(xfs.facts().free_bytes, Some(free_blocks * 4096)));
}

#[test]
fn a_block_that_a_file_has_or_one_of_both_trees_lacks_is_never_free() {
    let Some(images) = make("64M", "-d agcount=1 -m rmapbt=0,reflink=0", &["20", "20"]) else { return };
    let path = images.path("image");
    let before = free_runs(&path);
    // The first free run of one tree begins a block earlier. It is as long as before, so that all sums hold.
    let script = r#"at() { xfs_db -r -c 'agf 0' -c "addr $1root" -c "print $2" image | sed 's/.* = //'; }
        move() { xfs_db -x -c 'agf 0' -c "addr $1root" -c "write recs[$2].startblock $moved" image >/dev/null; }
        start=$(at bno 'recs[1].startblock'); moved=$((start - 1)); records=$(at cnt numrecs)
        for ((record = 1; record <= records; record++)); do
            [[ $(at cnt "recs[$record].startblock") != "$start" ]] || break
        done
        move bno 1; cp --sparse=always image one; move cnt $record
        echo "$start $(at bno 'recs[1].startblock') $(at cnt "recs[$record].startblock")""#;
    let printed = images.script(script, [""; 0]);
    let numbers: Vec<u64> = printed.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let [start, moved, moved_too] = numbers[..] else { panic!("{printed}") };
    assert_eq!((moved, moved_too), (start - 1, start - 1));
    with_xfs(&images.path("one"), |xfs| {
        let map = map_of(xfs, size_of(&path));
        assert!(map.iter().all(|run| run.class != AllocationClass::Free), "{map:?}");
        assert_eq!(xfs.damage().first()[0].problem, "its trees list other free runs");
    });
    // Both trees say it, and a file has the block.
    let (start_bytes, end_bytes) = (start * 4096, before[0].1 - 4096);
    with_xfs(&path, |xfs| {
        let map = map_of(xfs, size_of(&path));
        let free: Vec<_> = map.iter().filter(|run| run.class == AllocationClass::Free).collect();
        assert_eq!((free[0].start_bytes, free[0].end_bytes()), (start_bytes, end_bytes));
        let found = xfs.damage().first();
        assert_eq!((found[0].place, found[0].problem), (moved * 4096, "a block in use is free"), "{found:?}");
        assert_eq!(xfs.allocation_differences().unwrap().reached_bytes, 4096);
    });
}

/// Blocks that are set aside for writes to shared blocks belong to no file, and are in no list of free runs. Only
/// a mounted file system has them, and its log is never clean, so an empty one replaces it.
#[test]
fn blocks_set_aside_for_copy_on_write_are_not_free() {
    let Some(images) = super::empty() else { return };
    let script = r#"truncate -s 320M image; mkfs.xfs -q -m rmapbt=0 image
        mkdir mounted; mount -o loop image mounted
        head -c 300000 /dev/urandom >mounted/file; cp --reflink=always mounted/file mounted/clone; sync -f mounted
        dd if=/dev/urandom of=mounted/clone bs=4096 seek=3 count=1 conv=notrunc status=none
        xfs_io -x -c freeze mounted; cp --sparse=always image copy; xfs_io -x -c thaw mounted; umount mounted
        value() { xfs_db -r -c 'sb 0' -c "print $1" copy | sed 's/.* = //'; }
        start=$(value logstart); group=$((start >> $(value agblklog)))
        start=$((start - (group << $(value agblklog)) + group * $(value agblocks)))
        dd if=/dev/zero of=copy bs=4096 seek=$start count=$(value logblocks) conv=notrunc status=none
        xfs_db -x -c 'logformat -c 3' copy >&2; mv copy image
        xfs_db -r -c 'agf 0' -c 'addr refcntroot' -c print image | sed -n 's/^[0-9]*:\[\(.*\),1,1\] *$/\1/p'"#;
    let printed = images.script(&super::prepared(script), [""; 0]);
    let path = images.path("image");
    let staged: Vec<(u64, u64)> = printed
        .lines()
        .map(|line| line.split_once(',').unwrap())
        .map(|(start, count)| (start.parse().unwrap(), count.parse().unwrap()))
        .collect();
    assert!(staged.iter().map(|run| run.1).sum::<u64>() > 8, "{printed}");
    with_xfs(&path, |xfs| {
        assert_eq!(*xfs.state(), State::Certain);
        let map = map_of(xfs, size_of(&path));
        for (start, count) in staged {
            let (start, end) = (start * 4096, (start + count) * 4096);
            let run = map.iter().find(|run| start < run.end_bytes()).unwrap();
            assert!(run.class == AllocationClass::Data && end <= run.end_bytes(), "{start}..{end} in {run:?}");
        }
        assert!(map.iter().any(|run| run.class == AllocationClass::Free));
        assert_eq!(xfs.damage().first(), []);
    });
}
