//! Allocation maps by bitmaps alone, against the whole maps and the file systems' own tools.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use onefold_disk::{Disk, FileDisk};
use onefold_guest::budget::Budget;
use onefold_guest::filesystem::AllocationClass;
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

/// Returns the free ranges of the only file system on a disk: by its bitmaps alone, and by its map, which covers the
/// volume. Also returns the number of damaged parts.
fn free_ranges(path: &Path) -> ([Vec<Range<u64>>; 2], u64) {
    let disk = FileDisk::new(File::open(path).unwrap(), path).unwrap();
    let guest = Guest::open(&disk).unwrap();
    let system = guest.volumes()[0].file_system().unwrap();
    let (by_bitmaps, map) = (system.free_by_bitmaps(&Budget::default()).unwrap(), system.allocation().unwrap());
    let end = map.iter().fold(0, |end, run| {
        assert_eq!(run.start_bytes, end);
        run.end_bytes()
    });
    assert_eq!(end, disk.size_bytes());
    let free = map.iter().filter(|run| run.class == AllocationClass::Free);
    ([by_bitmaps, free.map(|run| run.start_bytes..run.end_bytes()).collect()], system.damage().count())
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
        let ([by_bitmaps, whole], damaged) = free_ranges(&images.path("image"));
        assert_eq!(damaged, 0, "{script}");
        assert!(by_bitmaps.len() > 3, "{by_bitmaps:?}");
        assert_eq!(by_bitmaps, whole, "{script}");
        assert_eq!(by_bitmaps.iter().map(|range| range.end - range.start).sum::<u64>(), printed, "{script}");
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
    let ([by_bitmaps, whole], _) = free_ranges(&path);
    let is_free = |ranges: &[Range<u64>]| ranges.iter().any(|range| range.contains(&(block * 4096)));
    assert!(is_free(&by_bitmaps) && !is_free(&whole));
}
