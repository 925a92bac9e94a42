//! Names looked up by the tree of hashes, of every kind.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use onefold_disk::{CachedDisk, Disk};
use onefold_guest::ext;
use onefold_guest::filesystem::{FileNumber, FileSystem};
use onefold_guest::volume::{Volume, VolumeReader};

use super::named::CountingDisk;
use super::with_ext;
use crate::fixtures::{Images, has};

/// Names in the large directory of [`every_name_is_found_by_its_hash`].
const NAMES: usize = 6000;

fn names(fs: &dyn FileSystem, directory: FileNumber) -> BTreeMap<Vec<u8>, FileNumber> {
    let mut found = BTreeMap::new();
    fs.each_entry(directory, &mut |entry| {
        found.insert(entry.name, entry.file);
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

/// The kernel fills a directory of three levels for each kind of hash, with signs and without. A name that is there is
/// found in its leaf; a reader that hashed otherwise would look into another one.
#[test]
fn every_name_is_found_by_its_hash() {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") || !has("tune2fs") || !has("debugfs") {
        return;
    }
    for (hash, sign) in [("legacy", "1"), ("half_md4", "1"), ("half_md4", "2"), ("tea", "2"), ("tea", "1")] {
        let script = "rm -f image; truncate -s 32M image; mke2fs -q -F -t ext4 -b 1024 -N 8000 -O large_dir image
            tune2fs -E hash_alg=$1 image >/dev/null; debugfs -w -R \"ssv flags $2\" image >/dev/null 2>&1
            mkdir -p mounted; mount -o loop,nobarrier image mounted; mkdir mounted/many
            (cd mounted/many; seq -f 'näme %g of a directory with many names, so that its tree is high' $3 |
                xargs -d '\\n' touch)
            umount mounted; debugfs -R 'htree /many' image 2>/dev/null |
                sed -n 's/.*Indirect levels: //p; s/.*Hash Version: //p'";
        let printed = images.script(script, [hash, sign, &NAMES.to_string()]);
        assert_eq!(
            printed.lines().next(),
            Some(&*["legacy", "half_md4", "tea"].iter().position(|kind| *kind == hash).unwrap().to_string()),
            "{printed}"
        );
        assert!(printed.lines().nth(1).is_some_and(|levels| levels >= "1"), "{printed}");
        with_ext(&images.path("image"), |fs| {
            let many = fs.look_up(fs.root(), b"many").unwrap().unwrap();
            let all = names(fs, many);
            assert_eq!(all.len(), NAMES);
            for (name, file) in &all {
                let found = fs.look_up(many, name).unwrap();
                assert_eq!(found, Some(*file), "{hash} {sign}: {}", String::from_utf8_lossy(name));
            }
            assert_eq!(fs.look_up(many, b"missing").unwrap(), None);
            assert_eq!(fs.damage().first(), []);
        });
    }
}

/// Without `large_dir`, a tree of hashes has at most one level between its root and its leaves.
#[test]
fn names_are_found_in_a_tree_that_only_large_dir_allows() {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") || !has("debugfs") || !has("python3") {
        return;
    }
    let links = 64_000;
    let script = "mkdir memory; mount -t tmpfs none memory; cd memory
        truncate -s 32M image; mke2fs -q -F -t ext4 -b 1024 -N 64 -O large_dir,^has_journal image
        mkdir mounted; mount -o loop,nobarrier image mounted; mkdir mounted/many; touch mounted/many/first
        python3 -c 'import os, sys
os.chdir(\"mounted/many\")
for number in range(int(sys.argv[1]) - 1):
    os.link(\"first\", \"%0240d\" % number)' $1
        umount mounted; debugfs -R 'htree /many' image 2>/dev/null | sed -n 's/.*Indirect levels: //p'
        cp --sparse=always image ..";
    assert_eq!(images.script(script, [links.to_string()]), "2\n");
    let disk = CountingDisk::of(&images.path("image"));
    let cached = CachedDisk::new(&disk, 1 << 20);
    let volume = Volume::whole_disk(disk.size_bytes()).unwrap();
    let fs = ext::open(VolumeReader::new(&cached, &volume)).unwrap().expect("an ext file system");
    let many = fs.look_up(fs.root(), b"many").unwrap().unwrap();
    assert!(fs.look_up(many, format!("{:0240}", links / 2).as_bytes()).unwrap().is_some());
    assert!(disk.bytes() < 4 << 20, "{} bytes are read for a name", disk.bytes());
    with_ext(&images.path("image"), |fs| {
        let many = fs.look_up(fs.root(), b"many").unwrap().unwrap();
        let all = names(fs, many);
        assert_eq!(all.len(), links);
        for (name, file) in &all {
            assert_eq!(fs.look_up(many, name).unwrap(), Some(*file), "{}", String::from_utf8_lossy(name));
        }
        assert_eq!(fs.look_up(many, format!("{links:0240}").as_bytes()).unwrap(), None);
        assert_eq!(fs.damage().first(), []);
        assert!(fs.stat(many).unwrap().size_bytes > 16 << 20);
    });
}

/// The checker makes the tree. Its hashes are those of folded names, so the hash of the name itself leads elsewhere.
#[test]
fn names_in_other_cases_are_found_in_a_directory_with_a_tree_of_hashes() {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") || !has("debugfs") || !has("e2fsck") {
        return;
    }
    let script = "mkdir -p d/folder; (cd d/folder; seq -f 'näme Nr %g of a Folder' $1 | xargs -d '\n' touch)
        truncate -s 32M image; mke2fs -q -F -t ext4 -b 1024 -N 4000 -O casefold -E encoding=utf8 -d d image
        debugfs -w -R 'sif /folder flags 0x40080000' image >/dev/null 2>&1
        e2fsck -fyD image >&2 || [ $? = 1 ]; e2fsck -fn image >&2
        debugfs -R 'stat /folder' image 2>/dev/null | sed -n 's/.*Flags: //p'
        debugfs -R 'htree /folder' image 2>/dev/null | sed -n 's/^Number of entries (count): //p'";
    let printed = images.script(script, ["1500"]);
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("0x40081000"), "folded and hashed");
    assert!(lines.next().unwrap().parse::<u32>().unwrap() > 50, "{printed}");
    with_ext(&images.path("image"), |fs| {
        let folder = fs.look_up(fs.root(), b"folder").unwrap().unwrap();
        let all = names(fs, folder);
        assert_eq!(all.len(), 1500);
        // All blocks are searched for each name.
        for (name, file) in all.iter().step_by(10) {
            let text = std::str::from_utf8(name).unwrap();
            for text in [text.to_owned(), text.to_lowercase(), text.to_uppercase()] {
                assert_eq!(fs.look_up(folder, text.as_bytes()).unwrap(), Some(*file), "{text}");
            }
        }
        assert_eq!(fs.look_up(folder, "näme nr 1501 of a folder".as_bytes()).unwrap(), None);
        assert_eq!(fs.damage().first(), []);
    });
}
