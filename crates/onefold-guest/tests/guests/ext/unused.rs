//! Inodes that their group counts as never used, but that a directory names. A mount and a checker read them.

use std::fs::{self, File};
use std::path::Path;

use onefold_guest::filesystem::{AllocationClass, FileSystem};

use super::with_ext;
use crate::fixtures::{Images, has};
use crate::noise;

/// Makes `image` by the options `$1`, with files in several groups, and prints the number of a group in which files
/// with inodes of the group have hundreds of blocks. The kernel chooses groups at random. Groups of even number have no
/// copy of the superblock. `image` has no holes if `$2` is `full`.
const MAKE: &str = r#"rm -rf tree image; mkdir tree
for folder in $(seq 12); do mkdir tree/$folder; for file in $(seq 12); do
    head -c 20000 /dev/urandom >tree/$folder/$file; done; done
for try in $(seq 20); do
    truncate -s 0 image; truncate -s 24M image; mke2fs -q -F -b 1024 -g 2048 -N 768 -d tree $1 image
    mkdir -p mounted; mount -o loop image mounted; cp -a tree mounted/more; sync; umount mounted
    for group in 2 4 6 8 10; do
        for inode in $(seq $((64 * group + 1)) $((64 * group + 64))); do echo "blocks <$inode>"; done >asked
        own=$(debugfs -f asked image 2>/dev/null | tr ' ' '\n' |
            awk -v first=$((2048 * group + 1)) '$1 >= first && $1 < first + 2048 {n++} END {print n + 0}')
        if [ $own -gt 300 ]; then
            if [ $2 = full ]; then cp --sparse=never image copy; mv copy image; fi
            echo $group; exit
        fi
    done
done; exit 1"#;

/// Changes `image` with the lines `$1` of `debugfs`, in which `|` separates commands.
const CHANGE: &str = r#"tr '|' '\n' <<<"$1" >commands; cp image sound
debugfs -w -f commands image >said 2>&1; cat said >&2; ! cmp -s sound image"#;

/// Prints the digests of all files in a mount of `image`.
pub(super) const DIGESTS: &str = r#"mount -o loop,ro image mounted
(cd mounted; find . -type f -print0 | sort -z | xargs -0 sha256sum); umount mounted"#;

/// Has the checker repair a copy of `image`, and prints the digests of all files that it keeps.
const REPAIRED: &str = r#"cp image copy; e2fsck -fy copy >&2 || [ $? -le 2 ]; e2fsck -fn copy >&2
mount -o loop,ro copy mounted
(cd mounted; find . -type f -print0 | sort -z | xargs -0 sha256sum); umount mounted; rm copy"#;

/// Overwrites all free runs of an image with noise; returns their bytes.
pub(super) fn poison(image: &Path) -> u64 {
    let runs = with_ext(image, |fs| fs.allocation().unwrap());
    let free = runs.iter().filter(|run| run.class == AllocationClass::Free);
    let file = File::options().write(true).open(image).unwrap();
    noise::overwrite(&file, free.map(|run| (run.start_bytes, run.end_bytes())))
}

/// Options of a file system without `flex_bg`: the blocks of files lie in the group of their inodes.
pub(super) const SUMMED: &str = "-t ext4 -O ^flex_bg";
pub(super) const WITHOUT_SUMS: &str = "-t ext4 -O ^flex_bg,^metadata_csum,uninit_bg";
const INLINE: &str = "-t ext4 -I 512 -O ^flex_bg,inline_data";
/// Commands of `debugfs` for group `G`: its counts fit to a group without files. It has 64 inodes, and 2048 blocks
/// without those of bitmaps and table.
pub(super) const ALL_FREE: &str =
    "set_bg G free_inodes_count 64|set_bg G used_dirs_count 0|set_bg G free_blocks_count ";
pub(super) const UNUSED: &str = "set_bg G flags 0x7";

pub(super) fn images() -> Option<Images> {
    let images = Images::new()?;
    ["mke2fs", "debugfs", "e2fsck"].into_iter().all(has).then_some(images)
}

/// Changes the descriptor of a group.
pub(super) fn change(images: &Images, group: &str, commands: &str) {
    images.script(CHANGE, [format!("{commands}|set_bg G checksum calc").replace('G', group.trim())]);
}

#[test]
fn files_of_inodes_that_were_never_used_keep_their_blocks() {
    let Some(images) = images() else { return };
    let counts = |free: u32| format!("{ALL_FREE}{free}|{UNUSED}");
    let itable_unused = |count: u32| format!("set_bg G itable_unused {count}|set_bg G flags 0x6");
    let (sparse, full) = ("sparse", "full");
    for (what, options, holes, commands, keeps_free) in [
        ("nothing was ever used", SUMMED, sparse, UNUSED.to_owned(), true),
        ("nothing was ever used, and the counts agree", SUMMED, sparse, counts(2030), true),
        ("nothing was ever used, the counts agree, and nothing is a hole", SUMMED, full, counts(2030), true),
        ("inline directories", INLINE, full, counts(2014), true),
        ("no inode was used", SUMMED, full, itable_unused(64), true),
        ("inodes have no checksums", WITHOUT_SUMS, sparse, UNUSED.to_owned(), false),
        ("inodes have no checksums, and the counts agree", WITHOUT_SUMS, full, counts(2030), false),
        ("the bitmap has the inodes", WITHOUT_SUMS, sparse, itable_unused(40), true),
    ] {
        eprintln!("{what}");
        let group = images.script(MAKE, [options, holes]);
        let sound = images.script(DIGESTS, [""; 0]);
        assert!(sound.lines().count() > 200, "{sound}");
        change(&images, &group, &commands);
        assert!(images.script(DIGESTS, [""; 0]) == sound, "{what}: a mount reads the inodes");
        let repaired = images.script(REPAIRED, [""; 0]);
        let free = poison(&images.path("image"));
        assert!(!keeps_free || free > 1 << 20, "{what}: {free} bytes are free");
        assert!(images.script(DIGESTS, [""; 0]) == sound, "{what}: a mount reads what is free");
        assert!(images.script(REPAIRED, [""; 0]) == repaired, "{what}: the checker reads what is free");
        fs::remove_file(images.path("image")).unwrap();
    }
}
