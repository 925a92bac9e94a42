//! Images of file systems that are in use: the journal has what the tables lack.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use onefold_guest::filesystem::{Doubt, FileSystem, State};

use super::listing::{assert_same, compare_content, found_tree, tree};
use super::with_ext;
use crate::fixtures::{BUSY_COPIES, Images, has, seed, tell, times};
use crate::second::compare_ext;

/// A busy file system on one that can clone files, cloned several times while it is used: each clone is what a power
/// cut would leave. The kernel mounts each, and applies the journal. One file at a time is deleted while it is open.
const BUSY: &str = r#"
RANDOM=$4; truncate -s 4G outer; mkfs.xfs -q outer; mkdir cloning mounted seen; mount -o loop outer cloning
truncate -s 64M cloning/image; mke2fs -q -F $1 cloning/image
mount -o loop,nobarrier,commit=1,$2 cloning/image mounted
work() {
    set +e; cd mounted; n=0
    while [ ! -e ../stop ]; do
        n=$((n + 1)); d=d$((n % 9))
        mkdir -p $d; exec 8>$d/held; head -c 30000 /dev/urandom >&8; rm $d/held; echo "$n" >$d/f$((n % 50)); head -c $((n * 37 % 90000)) /dev/urandom >$d/g$((n % 13))
        rm -f d$(((n + 4) % 9))/f$((n % 29)); ln -sf "target $n" $d/link; mv -f $d/g$((n % 13)) d0/moved 2>/dev/null
        [ $((n % 40)) != 0 ] || rm -rf d$((n % 7 + 1)); [ $((n % 25)) != 0 ] || sync -f .
    done
}
work &
for copy in $(seq "$3"); do
    sleep 0.$((RANDOM % 6 + 2))
    cp --reflink=always cloning/image cloning/copy-$copy
done
touch stop; wait; umount mounted
for copy in $(seq "$3"); do cp --sparse=always cloning/copy-$copy .; done
umount cloning
for copy in $(seq "$3"); do
    cp --sparse=always copy-$copy played; mount -o loop,nobarrier played mounted
    (cd mounted && find . -printf '%P|%y|%m|%n|%U|%G|%s|%b|%T@|%C@|%l\0') >tree-$copy
    mkdir seen/$copy; cp -r mounted/. seen/$copy; umount mounted
done
"#;

/// What `mke2fs` makes of it, and how it is mounted while it is busy.
pub(super) const SYSTEMS: [(&str, &str); 4] = [
    ("-t ext4", "data=journal"),
    ("-t ext4 -b 1024 -O ^metadata_csum", "journal_checksum"),
    ("-t ext4 -O orphan_file", "data=ordered"),
    ("-t ext3", "data=writeback"),
];

/// Copies of a busy file system of the first two kinds. The second opinion refuses most of them. Others have one copy.
const COPIES: u32 = 4;

/// Leaves the copies of a file system that was busy, `copy-1` and so on, and what the kernel shows of each.
pub(super) fn busy(images: &Images, make: &str, mount: &str, copies: u32, round: u32) {
    images.script("rm -rf stop outer cloning mounted seen copy-* tree-* played", [""; 0]);
    let moments = seed().wrapping_add(round) % 32_768;
    images.script(BUSY, [make, mount, &copies.to_string(), &moments.to_string()]);
}

#[test]
fn an_image_in_use_reads_as_after_a_mount() {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") || !has("mkfs.xfs") {
        return;
    }
    let (mut recovered, mut compared, mut second_opinions) = (0, 0, 0);
    for (round, (make, mount)) in (0..times()).flat_map(|round| SYSTEMS.map(|system| (round, system))) {
        let copies = if SYSTEMS[..2].contains(&(make, mount)) { COPIES } else { 1 };
        busy(&images, make, mount, copies, round);
        for copy in 1..=copies {
            let image = images.path(&format!("copy-{copy}"));
            recovered += usize::from(is_dirty(&image));
            with_ext(&image, |fs| {
                assert_eq!(*fs.state(), State::Certain, "{make} {copy}");
                let what = format!("tree of copy {copy} of {make}");
                assert_same(&what, &tree(fs), &found_tree(&images.path(&format!("tree-{copy}"))));
                compare_content(fs, &images.path(&format!("seen/{copy}")), 1 << 29);
                assert_eq!(fs.damage().first(), []);
                second_opinions += usize::from(compare_ext(&image, fs).is_some());
            });
            compared += 1;
        }
    }
    assert!(recovered > 0, "no copy had a journal to apply");
    assert!(second_opinions > 0, "nobody else has read a copy");
    tell(compared, BUSY_COPIES);
}

/// Returns whether the superblock says that the journal is to be applied.
fn is_dirty(image: &Path) -> bool {
    fs::read(image).unwrap()[1024 + 0x60] & 4 != 0
}

/// Journals as `debugfs` writes them: checksums of versions 2 and 3 (the kernel wrote version 1 above), revocations,
/// and blocks that look like the journal's own.
#[test]
fn every_kind_of_journal_is_applied_as_the_checker_does() {
    let Some(images) = Images::new() else { return };
    if !has("debugfs") || !has("e2fsck") {
        return;
    }
    for (make, open, last) in [
        ("-b 1024 -O ^metadata_csum,^64bit", "jo", "jw -r BLOCK"),
        // The program sums revocations, which the kernel does not.
        ("-b 1024 -O ^metadata_csum,64bit", "jo -c -v 1", "jw -b BLOCK magic"),
        ("-b 1024 -O metadata_csum,64bit", "jo -c -v 2", "jw -r BLOCK"),
        ("-b 4096 -O metadata_csum,64bit", "jo -c -v 3", "jw -r BLOCK"),
    ] {
        // One block is written twice and one is revoked; one begins with the magic of the journal.
        let script = "rm -f image played; mkdir -p d; head -c 30000 /dev/urandom >d/file; truncate -s 48M image
            mke2fs -q -F -t ext4 $1 -d d image 2>/dev/null
            last=$3; set -- \"$2\" $(debugfs -R 'blocks /file' image 2>/dev/null)
            for block in 1 2 3 4 5 6 7 8; do printf '\\xc0\\x3b\\x39\\x98'; head -c 1020 /dev/urandom; done >magic
            head -c 8192 /dev/urandom >noise
            printf '%s\\n' \"$1\" \"jw -b $2,$3 magic\" \"jw -b $4 noise\" \"jw -b $3 noise\" \\
                \"${last/BLOCK/$4}\" jc >commands
            debugfs -w -f commands image >log 2>&1; cat log >&2
            cp image played; e2fsck -fy played >&2 || [ $? = 1 ]
            debugfs -R 'dump /file out' played 2>/dev/null; rm -rf copy; mkdir copy; mv out copy/file";
        images.script(script, [make, open, last]);
        assert!(is_dirty(&images.path("image")));
        with_ext(&images.path("image"), |fs| {
            assert_eq!(*fs.state(), State::Certain, "{make} {open}: {:?}", fs.damage().first());
            compare_content(fs, &images.path("copy"), 1 << 29);
        });
        assert!(fs::read(images.path("copy/file")).unwrap().starts_with(&[0xc0, 0x3b, 0x39, 0x98]), "{make} {open}");
    }
}

/// A transaction whose blocks are not what was written makes the volume unsure, and so does a journal that is
/// elsewhere.
#[test]
fn a_journal_that_cannot_be_applied_is_a_doubt() {
    let Some(images) = Images::new() else { return };
    if !has("debugfs") {
        return;
    }
    let script = "mkdir d; head -c 30000 /dev/urandom >d/file; truncate -s 48M image
        mke2fs -q -F -t ext4 -b 4096 -d d image
        block=$(debugfs -R 'blocks /file' image 2>/dev/null | cut -d' ' -f1); head -c 4096 /dev/urandom >noise
        printf '%s\\n' 'jo -c -v 3' \"jw -b $block noise\" jc >commands; debugfs -w -f commands image >&2
        journal=$(debugfs -R 'blocks <8>' image 2>/dev/null | cut -d' ' -f3)
        dd if=/dev/urandom of=image bs=4096 seek=$journal count=1 conv=notrunc status=none
        truncate -s 16M journal; mke2fs -q -F -O journal_dev -b 4096 journal
        loop=$(losetup -f --show journal); truncate -s 48M outside
        mke2fs -q -F -b 4096 -J device=$loop outside; losetup -d $loop";
    images.script(script, [""; 0]);
    let doubts = |name: &str| with_ext(&images.path(name), |fs| fs.state().clone());
    assert_eq!(doubts("image"), State::Unsure(vec![Doubt::JournalDamaged]));
    assert_eq!(doubts("outside"), State::Unsure(vec![Doubt::ExternalJournal]));
    let names = with_ext(&images.path("image"), |fs| tree(fs).len());
    assert_eq!(names, BTreeSet::from(["", "file", "lost+found"]).len());
}

/// The journal has a superblock without the error that the disk notes. A mount keeps the error.
#[test]
fn an_error_on_the_disk_outlives_the_journal() {
    let Some(images) = Images::new() else { return };
    if !has("debugfs") {
        return;
    }
    let script = "truncate -s 48M image; mke2fs -q -F -t ext4 -b 4096 image
        head -c 4096 image >superblock
        printf '%s\\n' 'jo -c -v 3' 'jw -b 0 superblock' jc >commands; debugfs -w -f commands image >&2
        debugfs -R 'ssv state 3' -w image";
    images.script(script, [""; 0]);
    assert!(is_dirty(&images.path("image")));
    let state = with_ext(&images.path("image"), |fs| fs.state().clone());
    assert_eq!(state, State::Unsure(vec![Doubt::HasErrors]));
}
