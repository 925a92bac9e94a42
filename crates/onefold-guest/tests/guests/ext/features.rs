//! Features that no mount here shows, states, and damage.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_guest::error::{Encoding, GuestError};
use onefold_guest::ext::Ext;
use onefold_guest::filesystem::{AllocationDifferences, Doubt, Extent, ExtentKind, FileNumber, FileSystem, State};

use super::{try_with_ext, with_ext};
use crate::fixtures::{Images, has};

pub(super) fn images() -> Option<Images> {
    let images = Images::new()?;
    (has("mke2fs") && has("debugfs")).then_some(images)
}

pub(super) fn found(fs: &Ext<'_>, path: &[&str]) -> FileNumber {
    path.iter().fold(fs.root(), |folder, name| fs.look_up(folder, name.as_bytes()).unwrap().expect(name))
}

pub(super) fn content(fs: &Ext<'_>, file: FileNumber) -> Vec<u8> {
    let mut content = vec![0xaa; 1_000_000];
    let length = fs.read(file, 0, &mut content).unwrap();
    content.truncate(length);
    content
}

pub(super) fn extents(fs: &Ext<'_>, file: FileNumber) -> Vec<Extent> {
    let mut extents = Vec::new();
    fs.each_extent(file, &mut |extent| {
        extents.push(extent);
        ControlFlow::Continue(())
    })
    .unwrap();
    extents
}

fn state(image: &Path) -> State {
    with_ext(image, |fs| fs.state().clone())
}

#[test]
fn a_long_attribute_has_its_value_in_an_inode() {
    let Some(images) = images() else { return };
    let script =
        "truncate -s 16M image; mke2fs -q -F -t ext4 -O ea_inode image; mkdir mounted; mount -o loop image mounted
        touch mounted/file; setfattr -n user.long -v $(printf 'v%.0s' $(seq 40000)) mounted/file; umount mounted";
    images.script(script, [""; 0]);
    with_ext(&images.path("image"), |fs| {
        let attributes = fs.attributes(found(fs, &["file"])).unwrap();
        assert_eq!(attributes.len(), 1);
        assert_eq!((&attributes[0].name[..], &attributes[0].value), (&b"user.long"[..], &vec![b'v'; 40_000]));
        let mut files = 0;
        fs.each_file(&mut |_, _| {
            files += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(files, 3, "the root, lost+found and the file");
    });
}

/// The blocks of a long attribute count as those of the link, which was taken for one with a map: it led into the file
/// system, or outside of it.
#[test]
fn a_short_link_with_a_long_attribute_has_its_target_in_the_inode() {
    let Some(images) = images() else { return };
    let script =
        "truncate -s 16M image; mke2fs -q -F -t ext4 -O ea_inode image; mkdir mounted; mount -o loop image mounted
        cd mounted; ln -s a short; ln -s target longer; ln -s $(printf 'p%.0s' $(seq 70)) long
        for link in short longer long; do
            setfattr -h -n trusted.long -v $(printf 'v%.0s' $(seq 9000)) $link
        done
        cd ..; umount mounted";
    images.script(script, [""; 0]);
    with_ext(&images.path("image"), |fs| {
        let inline = [ExtentKind::Inline].as_slice();
        let long = "p".repeat(70);
        let links = [("short", "a", inline), ("longer", "target", inline), ("long", &long, &[ExtentKind::Written])];
        for (name, target, kinds) in links {
            let link = found(fs, &[name]);
            assert_eq!(fs.read_link(link).unwrap(), target.as_bytes());
            let found: Vec<ExtentKind> = extents(fs, link).iter().map(|extent| extent.kind).collect();
            assert_eq!(found, kinds, "{name}");
            assert!(fs.stat(link).unwrap().allocated_bytes > 8192, "the blocks of the attribute count");
            assert_eq!(fs.attributes(link).unwrap()[0].value, vec![b'v'; 9000]);
        }
        fs.allocation().unwrap();
        assert_eq!(fs.allocation_differences(), Some(AllocationDifferences::default()));
        assert_eq!(fs.damage().first(), []);
    });
}

/// The kernel counts so for files of 2 TiB and more.
#[test]
fn a_huge_file_counts_its_blocks_in_blocks_of_the_file_system() {
    let Some(images) = images() else { return };
    let script = "mkdir d; head -c 100000 /dev/urandom >d/file; truncate -s 16M image
        mke2fs -q -F -t ext4 -b 4096 -O huge_file -d d image
        printf 'sif /file flags 0xc0000\\nsif /file blocks 25\\n' >commands
        debugfs -w -f commands image >/dev/null 2>&1; e2fsck -fn image >&2
        mkdir mounted; mount -o loop,ro image mounted; stat -c %b mounted/file; umount mounted";
    let printed = images.script(script, [""; 0]);
    assert_eq!(printed, "200\n");
    with_ext(&images.path("image"), |fs| {
        assert_eq!(fs.stat(found(fs, &["file"])).unwrap().allocated_bytes, 200 * 512);
        fs.allocation().unwrap();
        assert_eq!(fs.damage().first(), []);
    });
}

#[test]
fn encrypted_files_are_listed_and_their_content_is_refused() {
    let Some(images) = images() else { return };
    let script = "mkdir -p d/folder; head -c 9000 /dev/urandom >d/folder/name; truncate -s 16M image
        mke2fs -q -F -t ext4 -O encrypt -d d image
        printf 'sif /folder/name flags 0x80800\\nsif /folder flags 0x80800\\n' >commands
        debugfs -w -f commands image >/dev/null 2>&1";
    images.script(script, [""; 0]);
    with_ext(&images.path("image"), |fs| {
        let mut names = Vec::new();
        fs.each_entry(found(fs, &["folder"]), &mut |entry| {
            names.push((entry.name, entry.file));
            ControlFlow::Continue(())
        })
        .unwrap();
        let [(name, file)] = &names[..] else { panic!("{names:?}") };
        assert_eq!(name, b"bmFtZQ");
        assert_eq!(fs.stat(*file).unwrap().encoding, Some(Encoding::Encrypted));
        assert!(matches!(fs.read(*file, 0, &mut [0; 10]), Err(GuestError::Encoded(Encoding::Encrypted))));
        let kinds: Vec<ExtentKind> = extents(fs, *file).iter().map(|extent| extent.kind).collect();
        assert_eq!(kinds, [ExtentKind::Encoded(Encoding::Encrypted)]);
    });
}

#[test]
fn casefold_finds_names_in_other_cases() {
    let Some(images) = images() else { return };
    let script = "mkdir -p d/folder; echo two >d/folder/Straße; truncate -s 16M image
        mke2fs -q -F -t ext4 -O casefold -E encoding=utf8 -d d image
        debugfs -w -R 'sif /folder flags 0x40080000' image >/dev/null 2>&1";
    images.script(script, [""; 0]);
    with_ext(&images.path("image"), |fs| {
        let folder = found(fs, &["folder"]);
        let exact = fs.look_up(folder, "Straße".as_bytes()).unwrap();
        assert!(exact.is_some());
        assert_eq!(fs.look_up(folder, "sTRAßE".as_bytes()).unwrap(), exact);
        assert_eq!(fs.look_up(folder, b"Strasse").unwrap(), None);
        assert_eq!(fs.look_up(fs.root(), b"FOLDER").unwrap(), None);
    });
}

#[test]
fn every_reason_for_doubt_is_named() {
    let Some(images) = images() else { return };
    let script = "for image in open errors checked mmp half; do truncate -s 16M $image; done
        mke2fs -q -F -t ext2 open; debugfs -w -R 'ssv state 0' open
        mke2fs -q -F -t ext4 errors; debugfs -w -R 'ssv state 3' errors
        mke2fs -q -F -t ext4 checked; debugfs -w -R 'ssv state 0' checked
        mke2fs -q -F -t ext4 -O mmp mmp; mkdir mounted; mount -o loop mmp mounted; cp mmp used; umount mounted
        mke2fs -q -F -t ext4 half; truncate -s 6M half
        truncate -s 64M fast; mke2fs -q -F -t ext4 -O fast_commit fast; mount -o loop fast mounted
        for file in 1 2 3; do echo $file >mounted/$file; sync mounted/$file; done
        echo more >mounted/4; sync mounted/4; cp fast fast-copy; umount mounted";
    images.script(script, [""; 0]);
    let doubt = |doubt| State::Unsure(vec![doubt]);
    assert_eq!(state(&images.path("open")), doubt(Doubt::NotUnmounted));
    assert_eq!(state(&images.path("errors")), doubt(Doubt::HasErrors));
    assert_eq!(state(&images.path("checked")), doubt(Doubt::HasErrors));
    assert_eq!(state(&images.path("mmp")), State::Certain);
    assert_eq!(state(&images.path("used")), doubt(Doubt::InUse));
    assert_eq!(state(&images.path("fast")), State::Certain);
    assert_eq!(state(&images.path("fast-copy")), doubt(Doubt::FastCommits));
    assert!(matches!(state(&images.path("half")), State::Unsure(doubts) if doubts.contains(&Doubt::LongerThanVolume)));
    with_ext(&images.path("half"), |fs| assert!(fs.look_up(fs.root(), b"lost+found").unwrap().is_some()));
}

/// Writes bytes into an image.
fn write(image: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(image).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let Some(images) = images() else { return };
    images.script(
        "truncate -s 6M image; mke2fs -q -F -t ext4 -O ^metadata_csum image; echo text >text; touch empty",
        [""; 0],
    );
    let image = images.path("image");
    let incompatible = |bits: u32| {
        write(&image, 1024 + 0x60, &bits.to_le_bytes());
        try_with_ext(&image, |_| ()).unwrap_err().to_string()
    };
    assert_eq!(incompatible(0x2c3), "ext2 with compression cannot be read");
    assert_eq!(incompatible(0x12c2), "ext4 with data in directory entries (dirdata) cannot be read");
    assert_eq!(incompatible(0x8000_02c2), "ext4 with a feature that is unknown here cannot be read");
    assert_eq!(incompatible(0x8), "a journal device of ext4 cannot be read");
    write(&image, 1024 + 0x60, &0x2c2_u32.to_le_bytes());
    assert!(try_with_ext(&image, |_| ()).unwrap().is_some());
    let read_only = |bits: u32| {
        write(&image, 1024 + 0x64, &bits.to_le_bytes());
        state(&image)
    };
    assert_eq!(read_only(0x6b), State::Certain);
    for bit in [0x80, 0x800, 0x4000, 0x8000_0000] {
        assert_eq!(read_only(0x6b | bit), State::Unsure(vec![Doubt::UnknownFeature]), "{bit:#x}");
    }
    write(&image, 1024 + 0x64, &0x6b_u32.to_le_bytes());
    write(&image, 1024 + 0x58, &[0; 2]);
    let error = try_with_ext(&image, |_| ()).unwrap_err().to_string();
    assert_eq!(error, "damaged superblock at byte 1024 of the disk: its size of inodes is impossible");
    // With more than one group there is a copy, and what it leads to is in doubt.
    let script = "truncate -s 64M large; mke2fs -q -F -t ext4 -b 1024 large
        dd if=/dev/zero of=large bs=1 seek=1112 count=2 conv=notrunc status=none";
    images.script(script, [""; 0]);
    assert_eq!(state(&images.path("large")), State::Unsure(vec![Doubt::JournalDamaged, Doubt::MetadataDamaged]));
    with_ext(&images.path("large"), |fs| assert!(fs.look_up(fs.root(), b"lost+found").unwrap().is_some()));
    for none in ["text", "empty"] {
        assert!(try_with_ext(&images.path(none), |_| ()).unwrap().is_none());
    }
}

/// A fuzzer made a link of no bytes, which had an extent of no bytes.
#[test]
fn a_link_without_a_target_is_damaged_and_has_no_extent() {
    let Some(images) = images() else { return };
    let script = "mkdir d; ln -s target d/link; truncate -s 6M image; mke2fs -q -F -t ext4 -d d image
        debugfs -w -R 'sif /link size 0' image >/dev/null 2>&1";
    images.script(script, [""; 0]);
    with_ext(&images.path("image"), |fs| {
        let link = found(fs, &["link"]);
        assert_eq!(extents(fs, link), []);
        assert!(matches!(fs.read_link(link), Err(GuestError::Damaged(_))));
    });
}

/// The map of a directory leads to one block more often than the volume has blocks.
#[test]
fn a_directory_that_repeats_itself_ends() {
    let Some(images) = images() else { return };
    // The blocks of the map repeat, too, but in other directories only: one level of a block map has 256 entries.
    let script = "mkdir -p d/folder; echo text >d/folder/file; head -c 700000 /dev/zero | tr '\\0' x >d/map
        truncate -s 4M image; mke2fs -q -F -t ext2 -b 1024 -d d image
        block() { debugfs -R \"bmap $1 $2\" image 2>/dev/null; }
        names=$(block /folder 0)
        repeat() { python3 -c 'import sys, struct
number = [int(word) for word in sys.argv[1:]]
open(\"image\", \"r+b\").close()
with open(\"image\", \"r+b\") as image:
    image.seek(number[0] * 1024)
    image.write(b\"\".join(struct.pack(\"<I\", word) for word in (number[1:] + [number[-1]] * 256)[:256]))' \"$@\"; }
        nodes=$(for n in $(seq 40 60); do block /map $n; done)
        for node in $nodes; do repeat $node $names; done
        top=$(block /map 100); repeat $top $nodes 0
        debugfs -w -R \"sif /folder block[IND] 0\" image; debugfs -w -R \"sif /folder block[DIND] $top\" image
        debugfs -w -R 'sif /folder size 16000000' image";
    images.script(script, [""; 0]);
    with_ext(&images.path("image"), |fs| {
        let mut names = 0;
        fs.each_entry(found(fs, &["folder"]), &mut |_| {
            names += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(names, 1, "the block is read once");
        let problems: Vec<_> = fs.damage().first().iter().map(|damage| damage.problem).collect();
        assert_eq!(problems, ["two parts of its map have the same block"]);
    });
}

/// One damaged inode, one damaged map and one damaged directory: each is noted with its place, and the rest is read.
#[test]
fn damage_is_noted_and_the_rest_is_read() {
    let Some(images) = images() else { return };
    let script = "mkdir -p d/bad d/good; echo bad >d/bad/file; echo good >d/good/file
        python3 -c 'import os; f = open(\"d/holes\", \"wb\")
[os.pwrite(f.fileno(), b\"x\" * 4096, n * 8192) for n in range(9)]'
        echo inode >d/inode; truncate -s 16M image; mke2fs -q -F -t ext4 -b 4096 -d d image
        debugfs -R 'imap /inode' image 2>/dev/null |
            sed -n 's/.*located at block \\([0-9]*\\), offset 0x\\(.*\\)/\\1 0x\\2/p'
        debugfs -R 'blocks /bad' image 2>/dev/null; debugfs -R 'ex /holes' image 2>/dev/null >&2
        debugfs -R 'blocks /holes' image 2>/dev/null";
    let printed = images.script(script, [""; 0]);
    let mut lines = printed.lines();
    let (block, offset) = lines.next().unwrap().split_once(' ').unwrap();
    let offset = u64::from_str_radix(offset.trim_start_matches("0x"), 16).unwrap();
    let inode = block.parse::<u64>().unwrap() * 4096 + offset;
    let directory = lines.next().unwrap().trim().parse::<u64>().unwrap() * 4096;
    // Nine extents need a block of their own, which is printed before the blocks of content.
    let map = lines.next().unwrap().split(' ').next().unwrap().parse::<u64>().unwrap() * 4096;
    let image = images.path("image");
    write(&image, inode + 4, &[0xff; 3]);
    write(&image, directory + 60, &[0xff; 3]);
    write(&image, map + 20, &[0xff; 3]);
    with_ext(&image, |fs| {
        let names = |path: &[&str]| {
            let mut names = 0;
            fs.each_entry(found(fs, path), &mut |_| {
                names += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
            names
        };
        assert_eq!((names(&[]), names(&["bad"]), names(&["good"])), (5, 0, 1));
        assert_eq!(content(fs, found(fs, &["good", "file"])), b"good\n");
        assert!(matches!(fs.stat(found(fs, &["inode"])), Err(GuestError::Damaged(damage)) if damage.place == inode));
        let read = fs.read(found(fs, &["holes"]), 0, &mut [0; 10]);
        assert!(matches!(read, Err(GuestError::Damaged(damage)) if damage.place == map), "place {map}");
        let mut files = 0;
        fs.each_file(&mut |_, _| {
            files += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(files, 7, "all but the damaged inode");
        let places: Vec<u64> = fs.damage().first().iter().map(|damage| damage.place).collect();
        assert!(places.contains(&inode) && places.contains(&directory), "{places:?}");
        fs.allocation().unwrap();
        assert!(fs.damage().first().iter().any(|damage| damage.place == map));
    });
}
