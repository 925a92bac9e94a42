//! A file of 100,000 extents, and a directory of 50,000 names.

use onefold_guest::filesystem::{FileSystem, State};

use super::listing::{ORACLE, assert_same, compare_content, extents, found_tree, kernel_extents, tree};
use super::with_ext;
use crate::fixtures::{Images, MADE, has, tell};

/// Every second block of a file is written, and a name of each third file is gone again.
const RECIPE: &str = r#"
import os
with open("mounted/pieces", "wb") as file:
    block_bytes = os.statvfs("mounted").f_bsize
    for piece in range(100_000):
        os.pwrite(file.fileno(), b"%d" % piece, piece * 2 * block_bytes)
os.mkdir("mounted/names")
for number in range(75_000):
    os.mknod(f"mounted/names/a name {number}")
for number in range(0, 75_000, 3):
    os.unlink(f"mounted/names/a name {number}")
"#;

fn compare(options: &[&str]) {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") || !has("python3") {
        return;
    }
    for options in options {
        eprintln!("mke2fs {options}");
        let script = "mkdir -p memory; mount -t tmpfs none memory; cd memory
            truncate -s 700M image; mke2fs -q -F $1 -N 80000 image; mkdir -p mounted
            mount -o loop,nobarrier image mounted; python3 -c \"$2\"; umount mounted
            mount -o loop,ro,nobarrier image mounted
            ORACLE
            umount mounted; rm -rf ../copy; cp -r --sparse=always image tree extents copy ..";
        images.script(&script.replace("ORACLE", ORACLE), [options, RECIPE]);
        with_ext(&images.path("image"), |fs| {
            assert_eq!(*fs.state(), State::Certain);
            let tree = tree(fs);
            assert!(tree.len() > 50_000);
            assert_same("tree", &tree, &found_tree(&images.path("tree")));
            let ours = extents(fs);
            assert_eq!(ours["pieces"].len(), 100_000);
            assert_eq!(ours, kernel_extents(&images.path("extents")));
            compare_content(fs, &images.path("copy"), 1 << 29);
            let names = fs.look_up(fs.root(), b"names").unwrap().unwrap();
            for number in [1, 2, 40_000, 74_999] {
                let name = format!("a name {number}");
                assert_eq!(fs.look_up(names, name.as_bytes()).unwrap().is_some(), number % 3 != 0, "{name}");
            }
            assert_eq!(fs.damage().first(), []);
        });
    }
    tell(options.len(), MADE);
}

#[test]
fn a_file_of_100000_extents_and_a_directory_of_50000_names_are_whole() {
    compare(&["-t ext4 -b 1024"]);
}

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn files_of_100000_extents_and_directories_of_50000_names_are_whole() {
    compare(&["-t ext2 -b 1024", "-t ext4 -b 4096 -O large_dir", "-t ext4 -b 2048 -O inline_data"]);
}
