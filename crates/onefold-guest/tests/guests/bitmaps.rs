//! Allocation maps by bitmaps alone, against the whole maps and the file systems' own tools.

use std::fs::File;
use std::path::Path;

use onefold_disk::FileDisk;
use onefold_guest::budget::Budget;
use onefold_guest::filesystem::{Allocation, AllocationClass};
use onefold_guest::guest::Guest;

use crate::fixtures::{Images, has};

/// Makes files of many lengths in `mounted` and removes some, so that the bitmaps have several runs.
const FILL: &str = r#"
fill() {
    mkdir mounted/folder
    for file in $(seq 60); do head -c $((file * 3000)) /dev/urandom >mounted/folder/$file; done
    for file in $(seq 1 3 60); do rm mounted/folder/$file; done
    umount mounted
}
mkdir mounted
"#;

/// Prints the free bytes. The bitmaps of the last groups were never written.
const EXT4: &str = r#"
truncate -s 1G image; mke2fs -q -t ext4 image; mount -o loop image mounted; fill
dumpe2fs image 2>/dev/null | grep BLOCK_UNINIT >/dev/null
dumpe2fs -h image 2>/dev/null |
    awk '/^Free blocks:/ { free = $3 } /^Block size:/ { size = $3 } END { print free * size }'
"#;

/// Prints the free bytes: those that the groups' trees list. Blocks that the groups reserve for trees are in no list.
const XFS: &str = r#"
truncate -s 320M image; mkfs.xfs -q -d agcount=4 image; mount -o loop image mounted; fill
for group in 0 1 2 3; do xfs_db -r -c "agf $group" -c 'print freeblks' image; done |
    awk '{ free += $3 } END { print free * 4096 }'
"#;

/// Prints the free bytes.
const NTFS: &str = r#"
truncate -s 64M image; mkntfs -q -F -Q image >log 2>&1; ntfs-3g image mounted; fill
ntfsinfo --force --mft image |
    awk '/Free Clusters:/ { free = $3 } /Cluster Size:/ { size = $3 } END { print free * size }'
"#;

/// Returns the maps of the only file system on a disk: by its bitmaps alone, and whole.
fn maps(path: &Path) -> [Vec<Allocation>; 2] {
    let disk = FileDisk::new(File::open(path).unwrap(), path).unwrap();
    let guest = Guest::open(&disk).unwrap();
    let system = guest.volumes()[0].file_system().unwrap();
    let maps = [system.bitmap_allocation(&Budget::default()).unwrap(), system.allocation().unwrap()];
    assert_eq!(system.damage().count(), 0, "{:?}", system.damage());
    maps
}

/// Returns the starts and ends of the free runs of a map, which covers a volume of this size.
fn free_runs(map: &[Allocation], size_bytes: u64) -> Vec<(u64, u64)> {
    let mut end = 0;
    for run in map {
        assert_eq!(run.start_bytes, end);
        end = run.end_bytes();
    }
    assert_eq!(end, size_bytes);
    let free = map.iter().filter(|run| run.class == AllocationClass::Free);
    free.map(|run| (run.start_bytes, run.end_bytes())).collect()
}

#[test]
fn bitmaps_alone_have_the_free_bytes_that_tools_print() {
    let kinds = [
        (EXT4, &["mke2fs", "dumpe2fs"][..]),
        (XFS, &["mkfs.xfs", "xfs_db"]),
        (NTFS, &["mkntfs", "ntfs-3g", "ntfsinfo"]),
    ];
    for (script, programs) in kinds {
        let Some(images) = Images::new() else { return };
        if !programs.iter().all(|program| has(program)) {
            continue;
        }
        let printed: u64 = images.script(&format!("{FILL}{script}"), [""; 0]).trim().parse().unwrap();
        let path = images.path("image");
        let size_bytes = std::fs::metadata(&path).unwrap().len();
        let [by_bitmaps, whole] = maps(&path).map(|map| free_runs(&map, size_bytes));
        assert!(by_bitmaps.len() > 3, "{by_bitmaps:?}");
        assert_eq!(by_bitmaps, whole, "{script}");
        assert_eq!(by_bitmaps.iter().map(|(start, end)| end - start).sum::<u64>(), printed, "{script}");
    }
}

/// The whole map looks at files, and this one does not.
#[test]
fn bitmaps_alone_say_that_a_block_of_a_file_is_free() {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") || !has("debugfs") {
        return;
    }
    let script = r#"
        mkdir tree; head -c 40960 /dev/urandom >tree/file
        truncate -s 16M image; mke2fs -q -t ext4 -b 4096 -O ^metadata_csum,^uninit_bg -d tree image
        block=$(debugfs -R 'bmap /file 3' image 2>/dev/null); debugfs -w -R "freeb $block" image 2>/dev/null
        free=$(dumpe2fs image 2>/dev/null | sed -n 's/^  \([0-9]*\) free blocks,.*/\1/p')
        debugfs -w -R "set_bg 0 free_blocks_count $((free + 1))" image 2>/dev/null
        echo "$block""#;
    let block: u64 = images.script(script, [""; 0]).trim().parse().unwrap();
    let path = images.path("image");
    let disk = FileDisk::new(File::open(&path).unwrap(), &path).unwrap();
    let guest = Guest::open(&disk).unwrap();
    let system = guest.volumes()[0].file_system().unwrap();
    let is_free = |map: Vec<Allocation>| {
        let run = map.into_iter().find(|run| run.end_bytes() > block * 4096).unwrap();
        run.class == AllocationClass::Free
    };
    assert!(is_free(system.bitmap_allocation(&Budget::default()).unwrap()));
    assert!(!is_free(system.allocation().unwrap()));
}
