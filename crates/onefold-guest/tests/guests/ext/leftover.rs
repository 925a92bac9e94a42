//! A superblock that a former file system left under other content.

use std::fs::File;

use onefold_guest::filesystem::{AllocationClass, Doubt, FileSystem, State};

use super::with_ext;
use crate::fixtures::{Images, has};
use crate::noise;

#[test]
fn a_superblock_without_a_root_directory_frees_nothing() {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") {
        return;
    }
    let script = "mkdir -p d/folder; head -c 300000 /dev/urandom >d/file; rm -f image; truncate -s 24M image
        mke2fs -q -F -b 1024 -d d $1 image; dumpe2fs image 2>/dev/null | sed -n 's/^  Inode table at \\([0-9]*\\)-.*/\\1/p' |
        head -1; debugfs -R 'bmap / 0' image 2>/dev/null";
    let options = ["-t ext2", "-t ext4", "-t ext4 -O inline_data -I 256"];
    for options in options {
        let printed = images.script(script, [options]);
        let blocks: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
        // The inode of the root directory, its first block, and all but superblock and descriptors.
        let inode = blocks[0] * 1024 + 128;
        let block = blocks.get(1).copied().filter(|block| *block > 0).map(|block| (block * 1024, block * 1024 + 1024));
        let places = [Some((inode, inode + 384)), block, Some((3072, 24 << 20))];
        let state = || with_ext(&images.path("image"), |fs| (fs.state().clone(), fs.allocation().unwrap()));
        assert_eq!(state().0, State::Certain, "{options}");
        for place in places.into_iter().flatten() {
            images.script(script, [options]);
            let image = File::options().write(true).open(images.path("image")).unwrap();
            noise::overwrite(&image, [place]);
            let (found, runs) = state();
            let State::Unsure(doubts) = found else { panic!("{options}: {place:?}") };
            assert!(doubts.contains(&Doubt::MetadataDamaged), "{options}: {place:?}: {doubts:?}");
            assert!(runs.iter().all(|run| run.class != AllocationClass::Free), "{options}: {place:?}");
        }
    }
}
