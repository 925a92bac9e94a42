//! The flag of inline data without the attribute that the kernel wants with it.

use onefold_guest::filesystem::{AllocationClass, FileSystem};

use super::with_ext;
use crate::fixtures::{Images, has};

/// Makes an image whose file `f` has extents. Sets flags `$1` of it, marks its blocks as free, and has the counts
/// agree. Prints these blocks.
const MAKE: &str = r#"rm -rf d image; mkdir d; head -c 300000 /dev/urandom >d/f; truncate -s 24M image
mke2fs -q -F -t ext4 -b 1024 -I 256 -O inline_data -d d image
blocks=$(debugfs -R 'blocks /f' image 2>/dev/null)
free=$(dumpe2fs image 2>/dev/null | sed -n 's/^ *\([0-9]*\) free blocks.*/\1/p' | head -1)
all=$(dumpe2fs -h image 2>/dev/null | sed -n 's/^Free blocks: *//p')
(echo "sif /f flags $1"; for block in $blocks; do echo "freeb $block"; done) >commands
debugfs -w -f commands image >said 2>&1
set -- $blocks
printf 'set_bg 0 free_blocks_count %d\nset_bg 0 checksum calc\n' $((free + $#)) >commands
printf 'ssv free_blocks_count %d\n' $((all + $#)) >>commands
debugfs -w -f commands image >>said 2>&1; echo $blocks"#;

/// The kernel takes content to be inline only if the inode has the attribute `system.data`, too. Otherwise it follows
/// the map, and a mount reads the file.
#[test]
fn blocks_of_a_file_with_the_flag_of_inline_data_alone_are_not_free() {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") || !has("debugfs") {
        return;
    }
    for flags in ["0x80000", "0x10080000"] {
        let printed = images.script(MAKE, [flags]);
        let blocks: Vec<u64> = printed.split_whitespace().map(|block| block.parse().unwrap()).collect();
        assert!(blocks.len() >= 293, "{flags}: {} blocks", blocks.len());
        let runs = with_ext(&images.path("image"), |fs| fs.allocation().unwrap());
        let place_of = |block: u64| block * 1024;
        for block in blocks {
            let run = runs.iter().find(|run| (run.start_bytes..run.end_bytes()).contains(&place_of(block)));
            assert!(run.is_some_and(|run| run.class != AllocationClass::Free), "{flags}: block {block} is free");
        }
    }
}
