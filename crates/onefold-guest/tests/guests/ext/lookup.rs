//! Names looked up by the tree of hashes, of every kind.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use onefold_guest::filesystem::{FileNumber, FileSystem};

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
