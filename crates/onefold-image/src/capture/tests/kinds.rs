//! A disk with all kinds of file systems. Their own tools make them on noise without root, and check the installed
//! disk.

use std::collections::BTreeMap;
use std::fs;

use onefold_guest::filesystem::FileKind;

use super::ext::Images;
use super::*;
use crate::testing::MemoryDisk;

/// Makes a GPT disk of `$1` mebibytes from the file `noise`. Each file system is made on top of noise.
const MAKE: &str = "
mkdir sources; i=0
for bytes in 1 511 4095 4097 70000 300001; do head -c $bytes /dev/urandom >sources/f$bytes; done
cp noise disk
sfdisk -q disk >/dev/null 2>&1 <<END
label: gpt
unit: sectors
1: start=2048, size=32768, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B
2: start=34816, size=8191, type=0657FD6D-A4AB-43C4-84E5-0933C84B4F4F
3: start=43011, size=131072
4: start=174083, size=40960, type=EBD0A0A2-B9E5-4433-87C0-68B6B72699C7
5: start=215043, size=2048
END
cut() { dd if=disk of=$1 bs=512 skip=$2 count=$3 status=none; }
cut fat 2048 32768; cut swap 34816 8191; cut xfs 43011 131072; cut ntfs 174083 40960
mkfs.vfat -F 16 -s 8 fat >/dev/null; mcopy -i fat sources/* ::; mdel -i fat ::f4097; mcopy -i fat sources/f70000 ::again
chmod 600 swap; mkswap -q swap 2>/dev/null
(echo dummy; echo 0 0; echo d--755 0 0; for name in $(ls sources); do echo $name ---644 0 0 sources/$name; done
    echo '$') >proto
TEST_DIR=x TEST_DEV=x QA_CHECK_FS=x mkfs.xfs -q -f -K -p proto xfs
mkntfs -q -F -Q -p 174083 -H 255 -S 63 ntfs >/dev/null 2>&1
for name in $(ls sources); do ntfscp -q ntfs sources/$name /$name >/dev/null; done
for part in fat:2048 swap:34816 xfs:43011 ntfs:174083; do
    dd if=${part%:*} of=disk bs=512 seek=${part#*:} conv=notrunc status=none
done";

/// Asserts that the disk `$1` and its whole content are intact and have the files.
const CHECK: &str = "
sgdisk -v $1 >&2; sgdisk -v $1 | grep -q 'No problems found'
cut() { dd if=$disk of=$1 bs=512 skip=$2 count=$3 status=none; }
disk=$1; cut fat 2048 32768; cut swap 34816 8191; cut xfs 43011 131072; cut ntfs 174083 40960
fsck.vfat -n fat >&2; xfs_repair -n -f xfs >&2; ntfsfix -n ntfs >&2; swaplabel swap >&2
for name in f1 f511 f4095 f70000 f300001; do
    mtype -i fat ::$name | cmp - sources/$name; ntfscat ntfs /$name | cmp - sources/$name
done";

/// Returns the digests of all files of a disk.
fn digests(disk: &dyn Disk) -> BTreeMap<(usize, u64), blake3::Hash> {
    let guest = Guest::open(disk).unwrap();
    let mut digests = BTreeMap::new();
    for (at, volume) in guest.volumes().iter().enumerate() {
        let Some(system) = volume.file_system() else { continue };
        let mut visit = |file, stat: &onefold_guest::filesystem::FileStat| {
            if stat.kind == FileKind::Regular {
                let mut content = vec![0; usize::try_from(stat.size_bytes).unwrap()];
                system.read(file, 0, &mut content).unwrap();
                digests.insert((at, file.0), blake3::hash(&content));
            }
            ControlFlow::Continue(())
        };
        system.each_file(&mut visit).unwrap();
    }
    digests
}

#[test]
fn a_disk_of_all_kinds_outlives_a_target_full_of_noise() {
    let programs = ["sfdisk", "sgdisk", "mkfs.vfat", "mcopy", "mkswap", "mkfs.xfs", "xfs_repair", "mkntfs", "ntfscp"];
    let Some(images) = Images::with(&programs) else { return };
    let random = SeededRandom::new(9);
    let noise = MemoryDisk::noise(107 << 20, &random).bytes;
    // The sectors of the partition table have no noise.
    fs::write(images.path("noise"), [&[0; 34 * 512], &noise[34 * 512..]].concat()).unwrap();
    images.script(MAKE, &[]);
    let disk = MemoryDisk::new(images.read("disk"));
    let before = digests(&disk);
    assert!(before.len() > 3 * 5, "{before:?}");
    for units in [FILES, FIXED] {
        let bench = Bench::new(units);
        let manifest = bench.capture("kinds", &disk);
        let volumes: Vec<(&str, bool)> =
            manifest.volumes.iter().map(|volume| (&*volume.content, volume.way == CaptureWay::Map)).collect();
        let expected = [("fat16", true), ("swap", true), ("xfs", true), ("ntfs", true), ("unknown", false)];
        assert_eq!(volumes, expected);
        assert_eq!(manifest.volumes[4].taken_bytes, 1 << 20);
        // The rest is noise that the maps mark as free.
        assert!(manifest.totals.data_bytes < 10 << 20, "{:?}", manifest.totals);
        let installed = bench.assert_installed(&manifest, &disk.bytes);
        fs::write(images.path("installed"), &installed).unwrap();
        images.script(CHECK, &["installed"]);
        assert!(digests(&MemoryDisk::new(installed)) == before);
    }
}

/// All four file systems have the same files.
#[test]
fn file_systems_of_other_kinds_share_the_units_of_their_files() {
    let programs = ["mke2fs", "mkfs.xfs", "mkntfs", "ntfscp", "mkfs.vfat", "mcopy"];
    let Some(images) = Images::with(&programs) else { return };
    images.files("sources/inner", &SeededRandom::new(10), 40);
    let script =
        "mkdir flat; find sources -type f -exec cp {} flat \\;; truncate -s 64M xfs; truncate -s 32M ext ntfs fat
        (echo dummy; echo 0 0; echo d--755 0 0; for name in $(ls flat); do echo $name ---644 0 0 flat/$name; done
            echo '$') >proto
        TEST_DIR=x TEST_DEV=x QA_CHECK_FS=x mkfs.xfs -q -f -K -p proto xfs
        mke2fs -q -F -t ext4 -b 4096 -d flat ext 2>/dev/null
        mkntfs -q -F -Q ntfs >/dev/null 2>&1
        for name in $(ls flat); do ntfscp -q ntfs flat/$name /$name >/dev/null; done
        mkfs.vfat -F 16 -s 8 fat >/dev/null; mcopy -i fat flat/* ::
        du -sb flat | cut -f1";
    let bytes: u64 = images.script(script, &[]).trim().parse().unwrap();
    let bench = Bench::new(FILES);
    for (at, name) in ["ext", "xfs", "ntfs", "fat"].into_iter().enumerate() {
        let manifest = bench.capture(name, &MemoryDisk::new(images.read(name)));
        assert_eq!(manifest.volumes[0].way, CaptureWay::Map, "{name}");
        let totals = manifest.totals;
        assert!(totals.data_bytes > bytes * 9 / 10, "{name}: {totals:?}");
        let is_shared = totals.new_bytes < bytes / 4;
        assert_eq!(is_shared, at > 0, "{name}: {bytes} bytes of files, {totals:?}");
    }
}
