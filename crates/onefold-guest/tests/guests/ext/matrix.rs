//! The same files on file systems with many sets of features.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use onefold_guest::filesystem::{FileKind, FileSystem, State};

use super::listing::{
    ORACLE, assert_same, attributes, compare_content, debugfs_extents, extents, found_tree, kernel_attributes,
    kernel_extents, paths, tree,
};
use super::options::{MOUNTED, NEWER, REFUSED, has_quotas, whole_matrix};
use super::{RECIPE, with_ext};
use crate::fixtures::{Images, MADE, has, tell};
use crate::newer;
use crate::second::compare_ext;

#[test]
fn trees_content_extents_and_attributes_are_those_that_the_kernel_shows() {
    compare_with_mounts("", MOUNTED);
}

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn the_whole_matrix_is_as_the_kernel_shows_it() {
    let options = whole_matrix();
    let mounted: Vec<_> = options.iter().map(String::as_str).filter(|options| !has_quotas(options)).collect();
    compare_with_mounts("", &mounted);
}

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn what_the_newer_mke2fs_makes_is_as_the_kernel_shows_it() {
    let Some(prelude) = newer::prelude() else { return };
    compare_with_mounts(&format!("{prelude}{IS_NEWER}"), NEWER);
}

/// Fails where `mke2fs` is not the newer one.
const IS_NEWER: &str = "mke2fs -V 2>&1 | grep -q '^mke2fs 1[.]47[.]'\n";

/// Makes a file system with each set of options, has the kernel fill it by the recipe, and compares all of it. The
/// prelude comes before what makes it.
fn compare_with_mounts(prelude: &str, options: &[&str]) {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") || !has("setfattr") || !has("setfacl") {
        return;
    }
    let mut second_opinions = 0;
    for options in options {
        eprintln!("mke2fs {options}");
        let make = "truncate -s 96M image; mke2fs -q -F $1 -N 8000 image; mkdir -p mounted
            mount -o loop,nobarrier image mounted
            (cd mounted; set -- mounted; RECIPE); umount mounted; mount -o loop,ro,nobarrier image mounted
            ORACLE
            umount mounted";
        let make = make.replace("RECIPE", RECIPE).replace("ORACLE", ORACLE);
        images.script(&format!("rm -f image\n{prelude}{make}"), [options]);
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
            second_opinions += usize::from(compare_ext(&images.path("image"), fs).is_some());
        });
    }
    // Some features are refused there.
    assert!(second_opinions * 2 > options.len(), "{second_opinions} of {}", options.len());
    tell(options.len(), MADE);
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

#[test]
fn what_the_kernel_refuses_reads_as_the_folder_it_was_made_of() {
    compare_with_folders(&REFUSED[..3]);
}

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn all_that_the_kernel_refuses_reads_as_the_folder_it_was_made_of() {
    let options = whole_matrix();
    let with_quotas = options.iter().map(String::as_str).filter(|options| has_quotas(options));
    compare_with_folders(&REFUSED.iter().copied().chain(with_quotas).collect::<Vec<_>>());
}

/// Has `mke2fs` fill a file system with each set of options, and compares it with the folder that it was filled from.
fn compare_with_folders(options: &[&str]) {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") || !has("debugfs") {
        return;
    }
    for options in options {
        eprintln!("mke2fs {options}");
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
            compare_with_debugfs(&images, fs);
            every_file_is_met_once(fs);
            assert_eq!(fs.damage().first(), [], "{options}");
        });
    }
    tell(options.len(), MADE);
}

/// Compares the extents of all regular files of `image` with those that `debugfs` prints.
fn compare_with_debugfs(images: &Images, fs: &dyn FileSystem) {
    let regular: Vec<_> =
        paths(fs).into_iter().filter(|(_, file)| fs.stat(*file).unwrap().kind == FileKind::Regular).collect();
    let commands: String = regular.iter().map(|(_, file)| format!("stat <{}>\n", file.0)).collect();
    std::fs::write(images.path("commands"), commands).unwrap();
    let printed = images.script("debugfs -f commands image 2>/dev/null", [""; 0]);
    let theirs = debugfs_extents(&printed, fs.facts().block_bytes);
    let mut ours = extents(fs);
    assert!(ours.len() > 6 && ours.contains_key("pieces"), "{:?}", ours.keys());
    for (path, file) in regular {
        let path = String::from_utf8_lossy(&path).into_owned();
        assert_eq!(ours.remove(&path).as_ref(), theirs.get(&file), "{path}");
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
