//! The same files on file systems with many sets of features.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use onefold_guest::filesystem::{FileKind, FileSystem, State};

use super::listing::{
    ORACLE, assert_same, attributes, compare_content, extents, found_tree, kernel_attributes, kernel_extents, paths,
    tree,
};
use super::{RECIPE, with_ext};
use crate::fixtures::{Images, has};

/// What `mke2fs` makes of these, the kernel here mounts.
const MOUNTED: &[(&str, &str)] = &[
    ("ext2, blocks of 1 KiB, old inodes", "-t ext2 -b 1024 -I 128"),
    ("ext3, blocks of 2 KiB", "-t ext3 -b 2048"),
    ("ext4 as usual", "-t ext4"),
    ("ext4, blocks of 1 KiB", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg"),
    ("ext4, seed and orphan file", "-t ext4 -O metadata_csum_seed,orphan_file,large_dir"),
    ("ext4, inline data, long inodes", "-t ext4 -I 512 -O inline_data,ea_inode"),
    ("ext4, bigalloc", "-t ext4 -O bigalloc -C 16384"),
    ("ext4, meta_bg", "-t ext4 -b 1024 -O meta_bg,^resize_inode,sparse_super2,mmp"),
    ("ext4, neither 64bit nor flex_bg", "-t ext4 -O ^64bit,^flex_bg,^metadata_csum,^uninit_bg,^huge_file"),
];

#[test]
fn trees_content_extents_and_attributes_are_those_that_the_kernel_shows() {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") || !has("setfattr") || !has("setfacl") {
        return;
    }
    for (name, options) in MOUNTED {
        eprintln!("{name}: mke2fs {options}");
        let make = "truncate -s 96M image; mke2fs -q -F $1 -N 8000 image; mkdir -p mounted
            mount -o loop,nobarrier image mounted
            (cd mounted; set -- mounted; RECIPE); umount mounted; mount -o loop,ro,nobarrier image mounted
            ORACLE
            umount mounted";
        images.script(&make.replace("RECIPE", RECIPE).replace("ORACLE", ORACLE), [options]);
        with_ext(&images.path("image"), |fs| {
            assert_eq!(*fs.state(), State::Certain);
            assert_same("tree", &tree(fs), &found_tree(&images.path("tree")));
            assert_same("attributes", &attributes(fs), &kernel_attributes(&images.path("attributes")));
            let (ours, theirs) = (extents(fs), kernel_extents(&images.path("extents")));
            assert!(ours.contains_key("sparse") && ours.contains_key("pieces"));
            for (path, extents) in &theirs {
                assert_eq!(ours.get(path), Some(extents), "{path}");
            }
            assert_eq!(ours.len(), theirs.len());
            compare_content(fs, &images.path("copy"), 1 << 29);
            every_file_is_met_once(fs);
            assert_eq!(fs.damage().first(), []);
        });
    }
}

/// The pass over all files meets what the paths lead to, once each.
fn every_file_is_met_once(fs: &dyn FileSystem) {
    let mut met = BTreeSet::new();
    fs.each_file(&mut |file, stat| {
        assert!(met.insert(file), "{file:?} twice");
        assert_eq!(*stat, fs.stat(file).unwrap());
        ControlFlow::Continue(())
    })
    .unwrap();
    let named: BTreeSet<_> = paths(fs).into_values().collect();
    assert_eq!(met, named);
}

/// The kernel here refuses blocks that are longer than its pages, so `mke2fs` fills these.
#[test]
fn what_the_kernel_refuses_reads_as_the_folder_it_was_made_of() {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") {
        return;
    }
    for options in ["-t ext4 -b 65536", "-t ext4 -b 16384 -I 1024 -O quota,project", "-t ext2 -b 32768 -O ^filetype"] {
        let make = "rm -rf copy image; mkdir copy; (cd copy; set -- copied; RECIPE
            rm sparse)
            truncate -s 256M image; mke2fs -q -F $1 -N 8000 -d copy image 2>/dev/null
            (cd copy && find . -mindepth 1 -printf '%P|%y|%m|%U|%G|%l\\0') >tree";
        images.script(&make.replace("RECIPE", RECIPE), [options]);
        with_ext(&images.path("image"), |fs| {
            let ours =
                tree(fs).into_iter().map(|line| selected_fields(&line)).filter(|line| !line.starts_with("lost+found|"));
            let ours: BTreeSet<String> = ours.filter(|line| !line.starts_with("|d|")).collect();
            assert_same(options, &ours, &found_tree(&images.path("tree")));
            compare_content(fs, &images.path("copy"), 1 << 29);
            every_file_is_met_once(fs);
            assert_eq!(fs.damage().first(), [], "{options}");
        });
    }
}

/// Returns path, kind, mode, owners and target of a line.
fn selected_fields(line: &str) -> String {
    let fields: Vec<&str> = line.split('|').collect();
    [0, 1, 2, 4, 5, 10].map(|field| fields[field]).join("|")
}

/// A link and a device are no directories, and a directory is no link.
#[test]
fn a_file_of_another_kind_is_an_error() {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") {
        return;
    }
    images.script("mkdir d; ln -s d d/link; truncate -s 8M image; mke2fs -q -t ext4 -d d image", [""; 0]);
    with_ext(&images.path("image"), |fs| {
        let link = fs.look_up(fs.root(), b"link").unwrap().unwrap();
        assert_eq!(fs.stat(link).unwrap().kind, FileKind::SymbolicLink);
        assert!(fs.each_entry(link, &mut |_| ControlFlow::Continue(())).is_err());
        assert!(fs.read_link(fs.root()).is_err());
        assert_eq!(fs.look_up(fs.root(), b"missing").unwrap(), None);
        assert!(fs.stat(onefold_guest::filesystem::FileNumber(1 << 40)).is_err());
    });
}
