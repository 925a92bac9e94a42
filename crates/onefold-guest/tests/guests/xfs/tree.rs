//! Paths, metadata, attributes, content and extents are those that the kernel shows.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use onefold_guest::filesystem::{FileSystem, State};

use super::allocation::must_be_free_as_mounted;
use super::dump::dump;
use super::{SHOW, empty, make, prepared, with_xfs};
use crate::fixtures::Images;
use crate::second::compare_xfs;

/// Compares everything with what the kernel shows.
pub(super) fn must_be_as_mounted(images: &Images) {
    let view = std::fs::read_to_string(images.path("view")).unwrap();
    with_xfs(&images.path("image"), |xfs| {
        assert_eq!(*xfs.state(), State::Certain);
        let found = dump(xfs);
        let shown: Vec<&str> = view.lines().collect();
        for (found, shown) in found.iter().zip(&shown) {
            let differ = || format!("found  {:.500}\nkernel {:.500}", found, shown);
            assert!(found == shown, "{}", differ());
        }
        assert_eq!(found.len(), shown.len());
        must_list_all(xfs, &found);
        must_count_as_mounted(xfs, &std::fs::read_to_string(images.path("inodes")).unwrap());
        assert_eq!(xfs.damage().first(), []);
        assert!(compare_xfs(&images.path("image"), xfs).is_some_and(|files| files > 0), "nobody else has read it");
    });
    must_be_free_as_mounted(images);
}

/// The numbers of inodes are those of `statfs`.
fn must_count_as_mounted(xfs: &dyn FileSystem, inodes: &str) {
    let (all, free) = inodes.trim().split_once(' ').unwrap();
    let (all, free): (u64, u64) = (all.parse().unwrap(), free.parse().unwrap());
    // The kernel keeps some free blocks back, so that it counts fewer inodes in them where there is no other limit.
    let facts = xfs.facts();
    assert!(facts.files_max.unwrap() >= all, "{facts:?} {all}");
    assert_eq!(facts.files_used, Some(all - free));
}

/// The pass over all inodes meets exactly the files that have paths, in the order of their numbers.
fn must_list_all(xfs: &dyn FileSystem, lines: &[String]) {
    let by_path: BTreeSet<u64> = lines.iter().map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect();
    let mut listed = Vec::new();
    xfs.each_file(&mut |file, stat| {
        assert_eq!(*stat, xfs.stat(file).unwrap());
        listed.push(file.0);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(listed, by_path.into_iter().collect::<Vec<_>>());
}

#[test]
fn an_xfs_of_today_reads_as_mounted() {
    let Some(images) = make("600M", "-m rmapbt=1 -i nrext64=1", &["2000", "4000"]) else { return };
    must_be_as_mounted(&images);
}

#[test]
fn an_xfs_without_new_features_reads_as_mounted() {
    let options = "-m reflink=0,finobt=0,bigtime=0,inobtcount=0 -i sparse=0,size=2048";
    let Some(images) = make("300M", options, &[]) else { return };
    must_be_as_mounted(&images);
}

#[test]
fn an_xfs_with_small_blocks_and_large_directory_blocks_reads_as_mounted() {
    let options = "-b size=1024 -n size=16384 -d agcount=7 -m uuid=11111111-2222-3333-4444-555555555555";
    let Some(images) = make("300M", options, &["3000", "3000"]) else { return };
    must_be_as_mounted(&images);
}

#[test]
fn an_xfs_with_blocks_of_64_kib_reads_as_mounted() {
    let Some(images) = make("1G", "-b size=65536 -s size=4096", &["2000", "100"]) else { return };
    must_be_as_mounted(&images);
}

#[test]
fn sparse_chunks_of_inodes_and_a_changed_uuid_read_as_mounted() {
    let Some(images) = empty() else { return };
    let script = r#"export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1
        truncate -s 24M image
        mkfs.xfs -q -d agcount=1 -i maxpct=0 -m reflink=0 image
        mkdir mounted; mount -o loop image mounted
        xfs_io -x -c 'resblks 0' mounted >/dev/null
        python3 "$RECIPES/sparse.py" mounted
        umount mounted
        xfs_admin -U 12345678-1234-1234-1234-123456789abc image >/dev/null 2>&1
        xfs_db -r -c 'agi 0' -c 'addr root' -c 'addr ptrs[2]' -c 'print recs' image"#;
    let chunks = images.script(&prepared(&format!("{script}{SHOW}")), [""; 0]);
    assert!(chunks.contains(",0xff00,32,"), "no chunk has holes: {chunks:.300}");
    must_be_as_mounted(&images);
    with_xfs(&images.path("image"), |xfs| {
        assert_eq!(xfs.facts().uuid, "12345678-1234-1234-1234-123456789abc");
        assert!(xfs.facts().features.contains(&"metauuid".to_owned()));
    });
}
