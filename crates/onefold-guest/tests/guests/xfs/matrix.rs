//! The whole matrix of options of `mkfs.xfs`, for `make test-guest`.

use super::tree::must_be_as_mounted;
use super::version4::compare_with_protofile;
use super::{empty, make, make_after};
use crate::fixtures::{MADE, has, tell};
use crate::newer;

/// Features of version 5, tried with blocks of each size.
const FEATURES: &[&str] = &[
    "",
    "-m finobt=0",
    "-m reflink=0",
    "-m rmapbt=1",
    "-m rmapbt=1,reflink=0,finobt=0",
    "-m inobtcount=0",
    "-m bigtime=0",
    "-m bigtime=0,inobtcount=0,finobt=0,reflink=0",
    "-i sparse=0",
    "-i nrext64=1",
    "-i size=1024",
    "-d agcount=9",
    "-n size=65536 -i maxpct=0",
    "-l size=64m",
    "-m uuid=11111111-2222-3333-4444-555555555555,rmapbt=1",
];

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn the_whole_matrix_of_version_5_reads_as_mounted() {
    let mut made = 0;
    for block_bytes in [1024, 2048, 4096, 16_384, 65_536] {
        // Inodes are no longer than half a block.
        for features in FEATURES.iter().filter(|features| block_bytes > 1024 || !features.contains("-i size=1024")) {
            let options = format!("-b size={block_bytes} {features}");
            eprintln!("mkfs.xfs {options}");
            let Some(images) = make("1G", &options, &["700", "500"]) else { return };
            must_be_as_mounted(&images);
            made += 1;
        }
    }
    tell(made, MADE);
}

/// What the `mkfs.xfs` of Debian 13 makes: with its defaults, and with more or less than these.
const NEWER: &[&str] = &[
    "",
    "-b size=1024",
    "-b size=65536",
    "-m rmapbt=0",
    "-m reflink=0,finobt=0,bigtime=0,inobtcount=0 -i nrext64=0",
    "-i sparse=0,size=2048 -n size=16384",
    "-d agcount=9 -l size=64m",
    "-n parent=1",
    "-i exchange=1",
    "-n parent=1 -i exchange=1 -b size=2048",
];

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn what_the_newer_mkfs_makes_reads_as_mounted() {
    let Some(prelude) = newer::prelude() else { return };
    let is_newer = "mkfs.xfs -V | grep -q ' 6[.]13[.]'\n";
    for options in NEWER {
        eprintln!("mkfs.xfs {options}");
        let Some(images) = make_after(&format!("{prelude}{is_newer}"), "1G", options, &["700", "500"]) else { return };
        must_be_as_mounted(&images);
    }
    tell(NEWER.len(), MADE);
}

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn files_of_100000_extents_and_directories_of_50000_names_read_as_mounted() {
    let options = ["-m rmapbt=1 -b size=1024", "-i nrext64=1", "-m reflink=0 -n size=16384 -b size=2048"];
    for options in options {
        eprintln!("mkfs.xfs {options}");
        let Some(images) = make("2G", options, &["50000", "100000"]) else { return };
        must_be_as_mounted(&images);
    }
    tell(options.len(), MADE);
}

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn the_whole_matrix_of_version_4_reads_as_its_protofile_says() {
    if !has("xfs_repair") || empty().is_none() {
        return;
    }
    let mut made = 0;
    for block_bytes in [512, 1024, 2048, 4096, 16_384, 65_536] {
        // The log has at least 512 blocks and lies in one group.
        let length = if block_bytes <= 4096 { "100M" } else { "600M" };
        for further in ["", "-n ftype=1", "-n version=ci", "-i attr=1,projid32bit=0", "-l lazy-count=0", "-d agcount=6"]
        {
            let options = format!("-m crc=0 -b size={block_bytes} {further}");
            eprintln!("mkfs.xfs {options}");
            compare_with_protofile(length, &options);
            made += 1;
        }
    }
    tell(made, MADE);
}
