//! Whole disks: the use of all their bytes, and the files on them in the order of the disk.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::ops::{ControlFlow, Range};
use std::path::Path;

use onefold_disk::{CachedDisk, Disk, DiskError, FileDisk};
use onefold_guest::filesystem::{AllocationClass, ExtentKind, FileKind, FileSystem};
use onefold_guest::guest::{DiskUse, Guest};
use onefold_guest::volume::VolumeOrigin;

use crate::fixtures::{Images, has};
use crate::noise;

/// An MBR with a small ext4, a gap, and a physical volume of LVM2 with ext4 on a logical volume. Prints where the
/// logical volume begins, its length, and the free bytes of the group.
const DISK: &str = r#"
mkdir -p tree/sub; cp /bin/sh tree/sub/; seq 200000 >tree/numbers; : >tree/empty; truncate -s 3M tree/holes
echo end >>tree/holes; ln tree/numbers tree/sub/second
truncate -s 128M image
sfdisk -q image <<<$'label: dos\nstart=2048, size=20M, type=83\nstart=26M, size=96M, type=8e'
mke2fs -q -F -t ext4 -b 1024 -E offset=$((1 << 20)) -d tree image 20M
pv=$(losetup --find --show --offset $((26 << 20)) --sizelimit $((96 << 20)) image)
trap 'losetup -d "$pv"' EXIT
mkdir -p lock
filter="[\"a|^$pv\$|\", \"r|.*|\"]"
config="devices { use_devicesfile=0 scan_lvs=0 external_device_info_source=\"none\" filter=$filter global_filter=$filter }
    activation { udev_sync=0 udev_rules=0 monitoring=0 } backup { backup=0 archive=0 }
    global { event_activation=0 locking_dir=\"$PWD/lock\" }"
lvm() { local tool=$1; shift; LVM_SUPPRESS_FD_WARNINGS=1 "$tool" --config "$config" "$@" 2>messages || { cat messages >&2; return 1; }; }
lvm pvcreate -q "$pv" >/dev/null; lvm vgcreate -q -s 1M vg "$pv" >/dev/null
lvm lvcreate -q -an -Zn -Wn --driverloaded n -L 40M -n root vg >/dev/null
start=$(lvm pvs --noheadings --units b --nosuffix -o pe_start | tr -d ' ')
place=$(((26 << 20) + start))
mke2fs -q -F -t ext4 -b 4096 -E offset=$place -d tree image 40M
sync image
echo "$place $((40 << 20)) $(lvm pvs --noheadings --units b --nosuffix -o pv_free | tr -d ' ')"
"#;

/// Checks both file systems, and that the group is sound. Prints the free bytes of both.
const CHECK: &str = r#"
for part in "$((1 << 20)) $((20 << 20))" "$1 $2"; do
    read -r offset length <<<"$part"
    e2fsck -fn "image?offset=$offset" >checked 2>&1 || { cat checked >&2; exit 1; }
    dumpe2fs -h "image?offset=$offset" 2>/dev/null |
        awk '/^Free blocks:/ { free = $3 } /^Block size:/ { size = $3 } END { print free * size }'
done
pv=$(losetup --find --show --offset $((26 << 20)) --sizelimit $((96 << 20)) image)
trap 'losetup -d "$pv"' EXIT
pvck --config "devices { use_devicesfile=0 filter=[\"a|^$pv\$|\", \"r|.*|\"] }" "$pv" >checked 2>&1 || { cat checked >&2; exit 1; }
"#;

struct TestImages {
    images: Images,
    /// Where the logical volume begins, its length, and the free bytes of its group.
    numbers: Vec<u64>,
}

impl TestImages {
    fn new() -> Option<TestImages> {
        let images = Images::new()?;
        if !has("pvcreate") || !has("sfdisk") || !has("mke2fs") {
            return None;
        }
        let printed = images.script(DISK, [""; 0]);
        let numbers = printed.split_whitespace().map(|number| number.parse().unwrap()).collect();
        Some(TestImages { images, numbers })
    }

    fn disk(&self) -> FileDisk {
        let path = self.images.path("image");
        FileDisk::new(File::open(&path).unwrap(), &path).unwrap()
    }

    /// Returns the free bytes that the tools tell of both file systems, which they find sound.
    fn checked(&self) -> Vec<u64> {
        let printed = self.images.script(CHECK, self.numbers.iter().map(u64::to_string));
        printed.lines().map(|line| line.parse().unwrap()).collect()
    }
}

/// Returns every name of a file system with its content.
fn contents(system: &dyn FileSystem) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut directories = vec![system.root()];
    let mut contents = Vec::new();
    while let Some(directory) = directories.pop() {
        let read = system.each_entry(directory, &mut |entry| {
            let stat = system.stat(entry.file).unwrap();
            let mut content = vec![0; usize::try_from(stat.size_bytes).unwrap()];
            match stat.kind {
                FileKind::Directory => directories.push(entry.file),
                _ => assert_eq!(system.read(entry.file, 0, &mut content).unwrap(), content.len()),
            }
            contents.push((entry.name, content));
            ControlFlow::Continue(())
        });
        read.unwrap();
    }
    contents
}

fn poison(path: &Path, guest: &Guest<'_>) {
    let image = OpenOptions::new().write(true).open(path).unwrap();
    let map = guest.disk_map().unwrap();
    let free = map.iter().filter(|run| run.use_.is_free()).map(|run| (run.range.start_bytes, run.range.end_bytes()));
    noise::overwrite(&image, free);
}

#[test]
fn free_bytes_of_a_whole_disk_are_those_of_its_tools_and_nobody_misses_them() {
    let Some(made) = TestImages::new() else { return };
    let free = made.checked();
    let disk = made.disk();
    let guest = Guest::open(&disk).unwrap();
    let origins: Vec<&VolumeOrigin> = guest.volumes().iter().map(|volume| &volume.volume.origin).collect();
    let root = VolumeOrigin::Logical { group: "vg".to_owned(), name: "root".to_owned() };
    assert_eq!(origins, [&VolumeOrigin::Partition { number: 1 }, &VolumeOrigin::Partition { number: 2 }, &root]);
    assert_eq!(guest.volumes()[2].offset_of(made.numbers[0] + 5), Some(5));

    let map = guest.disk_map().unwrap();
    assert!(map.is_sorted_by(|one, next| one.range.end_bytes() == next.range.start_bytes));
    assert_eq!(map.iter().map(|run| run.range.length_bytes).sum::<u64>(), disk.size_bytes());
    let bytes = |use_: &dyn Fn(DiskUse) -> bool| -> u64 {
        map.iter().filter(|run| use_(run.use_)).map(|run| run.range.length_bytes).sum()
    };
    let free_in = |volume: usize| bytes(&|use_| use_ == DiskUse::Volume(volume, AllocationClass::Free));
    assert_eq!([free_in(0), free_in(2), free_in(1)], [free[0], free[1], made.numbers[2]]);
    assert_eq!(bytes(&|use_| use_ == DiskUse::Gap), (1 + 5 + 6) << 20, "before, between and behind the partitions");

    let before: Vec<_> = [0, 2].map(|at| contents(guest.volumes()[at].file_system().unwrap())).into();
    poison(&made.images.path("image"), &guest);
    assert_eq!(made.checked(), free);
    let guest = Guest::open(&disk).unwrap();
    let after: Vec<_> = [0, 2].map(|at| contents(guest.volumes()[at].file_system().unwrap())).into();
    assert!(before == after);
}

#[test]
fn files_in_the_order_of_the_disk_are_the_bytes_that_lie_there() {
    let Some(made) = TestImages::new() else { return };
    let disk = made.disk();
    let cached = CachedDisk::new(&disk, 8 << 20);
    let guest = Guest::open(&cached).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let parts: Vec<_> = guest.files_in_order(folder.path(), 1000).unwrap().map(Result::unwrap).collect();
    assert!(parts.is_sorted_by_key(|part| part.range.start_bytes));
    let mut written = [0; 3];
    for part in &parts {
        let system = guest.volumes()[part.volume].file_system().unwrap();
        let used = usize::try_from(part.used_bytes).unwrap();
        let stat = system.stat(part.file).unwrap();
        if stat.kind != FileKind::Regular || used == 0 || part.kind != ExtentKind::Written {
            continue;
        }
        let (mut there, mut content) = (vec![0; used], vec![0; used]);
        disk.read(part.range.start_bytes, &mut there).unwrap();
        assert_eq!(system.read(part.file, part.offset, &mut content).unwrap(), used);
        assert!(there == content, "{part:?}");
        written[part.volume] += part.used_bytes;
        // The reverse.
        let owner = &guest.owners(&[part.range.start_bytes + part.used_bytes - 1]).unwrap()[0];
        assert_eq!(owner.volume.map(|(volume, _)| volume), Some(part.volume));
        let files: Vec<_> = owner.files.iter().map(|file| (file.file, file.offset)).collect();
        assert_eq!(files, [(part.file, part.offset + part.used_bytes - 1)]);
    }
    // Two copies of one tree: a shell, the numbers, and the end of the file that has holes.
    assert!(written[0] > 1_000_000 && written[2] > 1_000_000, "{written:?}");
    let physical = guest.owners(&[120 << 20]).unwrap();
    assert_eq!(physical[0].volume, Some((1, 94 << 20)), "free extents are the group's");
    assert_eq!(guest.owners(&[600]).unwrap()[0].volume, None);
}

/// A disk with some bytes changed, of which no read may be long.
struct PatchedDisk<'d> {
    disk: &'d FileDisk,
    bytes: BTreeMap<u64, u8>,
}

impl Disk for PatchedDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.disk.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        assert!(into.len() <= 64 << 20, "a read of {} bytes", into.len());
        self.disk.read(offset, into)?;
        for (at, byte) in self.bytes.range(offset..offset + into.len() as u64) {
            into[usize::try_from(at - offset).unwrap()] = *byte;
        }
        Ok(())
    }
}

/// Returns places where metadata lies: both partitions' beginnings, the tables and directories of both file systems.
fn metadata(guest: &Guest<'_>) -> Vec<Range<u64>> {
    let table = |use_: DiskUse| matches!(use_, DiskUse::Volume(_, AllocationClass::Table(_)));
    let runs = guest.disk_map().unwrap().into_iter().filter(|run| table(run.use_));
    let ranges = runs.map(|run| run.range.start_bytes..run.range.end_bytes());
    ranges.chain([0..512, 26 << 20..27 << 20]).collect()
}

/// Whatever a guest writes over its own metadata, a disk is mapped whole, in bounded reads, and no byte of a file that
/// can still be reached is called free.
#[test]
fn no_damage_makes_a_byte_free_that_a_file_reaches() {
    let Some(made) = TestImages::new() else { return };
    let disk = made.disk();
    let metadata = metadata(&Guest::open(&disk).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut opened, mut certain) = (0, 0);
    for _ in 0..150 {
        let mut bytes = BTreeMap::new();
        for _ in 0..1 + random(8) {
            let range = &metadata[usize::try_from(random(metadata.len() as u64)).unwrap()];
            let at = range.start + random((range.end - range.start).min(20_000));
            bytes.insert(at, u8::try_from(random(256)).unwrap());
        }
        let patched = PatchedDisk { disk: &disk, bytes };
        let cached = CachedDisk::new(&patched, 16 << 20);
        let Ok(guest) = Guest::open(&cached) else { continue };
        let map = guest.disk_map().unwrap();
        assert!(map.is_sorted_by(|one, next| one.range.end_bytes() == next.range.start_bytes));
        assert_eq!(map.iter().map(|run| run.range.length_bytes).sum::<u64>(), disk.size_bytes());
        let free: Vec<_> = map.iter().filter(|run| run.use_.is_free()).map(|run| run.range).collect();
        certain += usize::from(!free.is_empty());
        for part in guest.files_in_order(folder.path(), 1 << 20).unwrap().map(Result::unwrap) {
            opened += 1;
            let after = free.partition_point(|range| range.end_bytes() <= part.range.start_bytes);
            let met = free.get(after).filter(|range| range.start_bytes < part.range.end_bytes());
            assert_eq!(met, None, "{part:?} with {:?}", patched.bytes);
        }
        guest.owners(&[0, 1 << 20, 30 << 20, 127 << 20]).unwrap();
    }
    assert!(opened > 1000 && certain > 50, "{opened} extents, {certain} disks with free bytes");
}
