//! Volume groups that LVM2's own tools make, without the kernel's driver, and what `lvs` and `pvs` say of them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_disk::{Disk, FileDisk};
use onefold_guest::content::{self, VolumeContent};
use onefold_guest::guest::Guest;
use onefold_guest::lvm::{LogicalMapping, PhysicalVolume, VolumeGroup, volume_groups};
use onefold_guest::volume::{DiskRange, VolumeReader};
use onefold_guest::{partition_table, volumes_of};

use super::{disk, words};
use crate::fixtures::{Images, has};

/// Makes `image` with two partitions, and has `lvm` run a tool that sees these two only, as `$one` and `$two`.
const PRELUDE: &str = r#"
if [[ ! -e image ]]; then
    truncate -s 128M image
    sfdisk -q image <<<$'label: gpt\nsize=50M, type=E6D6D379-F507-44C2-A23C-238F2A3DF928\nsize=40M'
fi
one=$(losetup --find --show --offset $((2048 * 512)) --sizelimit 50M image)
two=$(losetup --find --show --offset $((51 << 20)) --sizelimit 40M image)
trap 'losetup -d "$one" "$two"' EXIT
mkdir -p lock
filter="[\"a|^$one\$|\", \"a|^$two\$|\", \"r|.*|\"]"
config="devices { use_devicesfile=0 scan_lvs=0 external_device_info_source=\"none\" filter=$filter global_filter=$filter }
    activation { udev_sync=0 udev_rules=0 monitoring=0 } backup { backup=0 archive=0 }
    global { event_activation=0 locking_dir=\"$PWD/lock\" }"
lvm() { local tool=$1; shift; LVM_SUPPRESS_FD_WARNINGS=1 "$tool" --config "$config" "$@" 2>messages || { cat messages >&2; return 1; }; }
new() { lvm lvcreate -q -an -Zn -Wn --driverloaded n "$@" >/dev/null; }
"#;

/// A group of a linear volume in two parts and a striped one. Prints its physical volumes and segments.
const TWO_VOLUMES: &str = r#"
lvm pvcreate -q "$one" >/dev/null; lvm pvcreate -q --labelsector 3 --metadatacopies 2 "$two" >/dev/null
lvm vgcreate -q -s 1M vg "$one" "$two" >/dev/null
new -L 5M -n linear vg "$one"; new -L 6M -i 2 -I 64k -n striped vg
lvm lvextend -q --driverloaded n -L 17M vg/linear "$two" >/dev/null
lvm pvs --noheadings --units b --nosuffix -o pv_name,pe_start,pv_free | sed "s|$one|1|; s|$two|2|"
lvm lvs --noheadings --driverloaded n --segments -o lv_name,seg_pe_ranges | sed "s|$one|1|g; s|$two|2|g"
"#;

const MIB: u64 = 1 << 20;
/// Where the partitions begin.
const STARTS: [u64; 2] = [MIB, 51 * MIB];

fn make(script: &str) -> Option<(Images, String)> {
    let images = Images::new()?;
    if !has("pvcreate") || !has("sfdisk") {
        return None;
    }
    let printed = images.script(&format!("{PRELUDE}{script}"), [""; 0]);
    Some((images, printed))
}

/// Returns the physical volumes of a disk with their readers.
fn physical(disk: &FileDisk) -> Vec<(VolumeReader<'_>, PhysicalVolume)> {
    let table = partition_table(disk).unwrap();
    let readers = volumes_of(table.as_ref(), disk.size_bytes());
    let opened = readers.into_iter().map(|volume| VolumeReader::new(disk, &volume)).filter_map(|reader| {
        match content::open(&reader, None) {
            VolumeContent::PhysicalVolume(physical) => Some((reader, *physical)),
            _ => None,
        }
    });
    opened.collect()
}

fn group(path: &Path) -> VolumeGroup {
    let disk = disk(path);
    let mut groups = volume_groups(&physical(&disk));
    assert_eq!(groups.len(), 1);
    groups.remove(0)
}

/// Returns the ranges of a logical volume that is read.
fn ranges(group: &VolumeGroup, name: &str) -> Vec<(u64, u64)> {
    let logical = group.logical.iter().find(|logical| logical.name == name).unwrap();
    let LogicalMapping::Read(volume) = &logical.mapping else { panic!("{logical:?}") };
    assert_eq!(volume.size_bytes(), logical.size_bytes);
    volume.ranges.iter().map(|range| (range.start_bytes, range.length_bytes)).collect()
}

/// Returns why a logical volume is not read.
fn refused<'g>(group: &'g VolumeGroup, name: &str) -> &'g str {
    match &group.logical.iter().find(|logical| logical.name == name).unwrap().mapping {
        LogicalMapping::NotRead(reason) => reason,
        LogicalMapping::Read(volume) => panic!("{volume:?}"),
    }
}

/// Returns where extents lie that `lvs` prints as `disk:first-last`.
fn place(extents: &str, pe_starts: &[u64]) -> (u64, u64) {
    let (disk, extents) = extents.split_once(':').unwrap();
    let (first, last) = extents.split_once('-').unwrap();
    let (disk, first, last): (usize, u64, u64) = (disk.parse().unwrap(), first.parse().unwrap(), last.parse().unwrap());
    (STARTS[disk - 1] + pe_starts[disk - 1] + first * MIB, (last - first + 1) * MIB)
}

#[test]
fn linear_and_striped_volumes_lie_where_lvs_says_and_the_rest_is_free() {
    let Some((images, printed)) = make(TWO_VOLUMES) else { return };
    let lines = words(&printed);
    let number = |text: &str| text.parse::<u64>().unwrap();
    let pe_starts: Vec<u64> = lines[..2].iter().map(|line| number(line[1])).collect();
    let group = group(&images.path("image"));
    assert_eq!((group.name.as_str(), &group.doubts[..], &group.physical[..]), ("vg", &[][..], &[0, 1][..]));

    let segments = |name: &str| {
        lines[2..].iter().filter(|line| line[0] == name).map(|line| line[1..].to_vec()).collect::<Vec<_>>()
    };
    let linear: Vec<_> = segments("linear").iter().map(|segment| place(segment[0], &pe_starts)).collect();
    assert_eq!((ranges(&group, "linear"), linear.len()), (linear.clone(), 2));
    let [striped] = &segments("striped")[..] else { panic!("{printed}") };
    let sides: Vec<_> = striped.iter().map(|extents| place(extents, &pe_starts)).collect();
    let expected: Vec<_> =
        (0..3 * MIB / 65536).flat_map(|row| sides.iter().map(move |side| (side.0 + row * 65536, 65536))).collect();
    assert_eq!(ranges(&group, "striped"), expected);

    for (at, line) in lines[..2].iter().enumerate() {
        let side = STARTS[at]..STARTS[at] + 50 * MIB;
        let free: u64 =
            group.free.iter().filter(|range| side.contains(&range.start_bytes)).map(|range| range.length_bytes).sum();
        assert_eq!(free, number(line[2]), "free extents of disk {}", at + 1);
    }
    let used = linear.iter().chain(&sides).map(|(start, length)| (*start, *length));
    let mut all: Vec<(u64, u64)> =
        group.free.iter().map(|range| (range.start_bytes, range.length_bytes)).chain(used).collect();
    all.sort_unstable();
    assert!(all.is_sorted_by(|one, next| one.0 + one.1 <= next.0), "no extent is free and used: {all:?}");
}

#[test]
fn a_file_system_on_a_logical_volume_is_read_through_its_extents() {
    let Some((images, _)) = make(TWO_VOLUMES) else { return };
    if !has("mkfs.fat") || !has("mcopy") {
        return;
    }
    for name in ["linear", "striped"] {
        let pieces = ranges(&group(&images.path("image")), name);
        let size: u64 = pieces.iter().map(|piece| piece.1).sum();
        images.script(
            r#"rm -f fs; truncate -s "$1" fs; mkfs.fat -n LVM fs >/dev/null; head -c 1M /dev/urandom >file
            mcopy -i fs file ::"#,
            [size.to_string()],
        );
        let content = fs::read(images.path("fs")).unwrap();
        let image = File::options().write(true).open(images.path("image")).unwrap();
        let mut at = 0;
        for (place, length) in pieces {
            let length = usize::try_from(length).unwrap();
            image.write_all_at(&content[at..at + length], place).unwrap();
            at += length;
        }
        let disk = disk(&images.path("image"));
        let group = group(&images.path("image"));
        let logical = group.logical.iter().find(|logical| logical.name == name).unwrap();
        let LogicalMapping::Read(volume) = &logical.mapping else { panic!() };
        let reader = VolumeReader::new(&disk, volume);
        let VolumeContent::FileSystem(found) = content::open(&reader, None) else { panic!("{name}") };
        let file = found.look_up(found.root(), b"file").unwrap().unwrap();
        let mut into = vec![0; (1 << 20) + 1];
        assert_eq!(found.read(file, 0, &mut into).unwrap(), 1 << 20);
        assert!(into[..1 << 20] == fs::read(images.path("file")).unwrap(), "{name}");
    }
}

#[test]
fn the_newest_metadata_counts_after_its_ring_went_round() {
    let script = r#"
    lvm pvcreate -q --metadatasize 128k "$one" "$two" >/dev/null; lvm vgcreate -q -s 1M vg "$one" "$two" >/dev/null
    new -L 5M -n first vg
    for round in $(seq 40); do
        lvm vgchange -q $(for tag in $(seq 25); do echo --addtag tag-$round-$tag-abcdefghijklmnopqrstuvwxyz; done) vg >/dev/null
        lvm vgchange -q $(for tag in $(seq 25); do echo --deltag tag-$round-$tag-abcdefghijklmnopqrstuvwxyz; done) vg >/dev/null
    done
    new -L 3M -n last vg
    lvm vgs --noheadings -o seqno"#;
    let Some((images, printed)) = make(script) else { return };
    let group = group(&images.path("image"));
    assert_eq!(group.sequence.to_string(), printed.trim());
    assert!(group.sequence > 80);
    assert_eq!(group.logical.iter().map(|logical| logical.name.as_str()).collect::<Vec<_>>(), ["first", "last"]);
}

#[test]
fn a_label_is_found_in_each_of_the_first_four_sectors() {
    let script = r#"lvm pvcreate -q --labelsector $1 "$one" >/dev/null; lvm pvcreate -q --labelsector $2 "$two" >/dev/null
        lvm vgcreate -q -s 1M vg "$one" "$two" >/dev/null; new -L 5M -n linear vg"#;
    let Some(images) = Images::new() else { return };
    if !has("pvcreate") || !has("sfdisk") {
        return;
    }
    for sectors in [[0, 1], [2, 3]] {
        images.script(&format!("rm -f image\n{PRELUDE}{script}"), sectors.map(|sector: usize| sector.to_string()));
        let image = fs::read(images.path("image")).unwrap();
        for (start, sector) in STARTS.into_iter().zip(sectors) {
            let start = usize::try_from(start).unwrap();
            let labels = image[start..start + 2048].chunks(512).map(|bytes| bytes.starts_with(b"LABELONE"));
            assert!(labels.enumerate().all(|(at, is_label)| is_label == (at == sector)), "{sectors:?}");
        }
        let group = group(&images.path("image"));
        assert_eq!((&group.doubts[..], &group.physical[..]), (&[][..], &[0, 1][..]), "{sectors:?}");
        assert_eq!(ranges(&group, "linear").iter().map(|range| range.1).sum::<u64>(), 5 * MIB);
    }
}

#[test]
fn a_damaged_metadata_area_is_reported_and_another_one_is_used() {
    let Some((images, _)) = make(TWO_VOLUMES) else { return };
    let path = images.path("image");
    let before = group(&path);
    let image = File::options().write(true).open(&path).unwrap();
    // The first areas of both disks begin behind the first 4 KiB; the second one of disk 2 is at its end.
    for start in STARTS {
        image.write_all_at(&[0xee; 8192], start + 4096).unwrap();
    }
    let disk = disk(&path);
    let physical = physical(&disk);
    assert_eq!(physical.iter().map(|(_, physical)| physical.damage.len()).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(physical.iter().map(|(_, physical)| physical.group()).collect::<Vec<_>>(), [None, Some("vg")]);
    let mut groups = volume_groups(&physical);
    assert_eq!((groups.len(), groups[0].unsure.len(), groups[0].free.len()), (1, 2, 0), "{groups:?}");
    groups[0].unsure.clear();
    groups[0].free.clone_from(&before.free);
    assert_eq!(groups, [before], "the logical volumes are read all the same");
}

#[test]
fn a_group_that_misses_a_disk_is_named_and_has_no_free_extent() {
    let Some((images, _)) = make(TWO_VOLUMES) else { return };
    let path = images.path("image");
    let image = File::options().write(true).open(&path).unwrap();
    image.write_all_at(&[0; 2048], STARTS[1]).unwrap();
    let group = group(&path);
    assert!(matches!(&group.doubts[..], [doubt] if doubt.contains("is missing")), "{:?}", group.doubts);
    assert_eq!(group.free, Vec::<DiskRange>::new());
    assert_eq!((group.logical.len(), refused(&group, "linear")), (2, group.doubts[0].as_str()));
}

/// A description of more than 4 MiB, by 4300 long tags.
const LONG_METADATA: &str = r#"
lvm pvcreate -q --metadatasize 12m "$one" >/dev/null; lvm vgcreate -q -s 1M vg "$one" >/dev/null
new -L 5M -n linear vg; lvm vgcfgbackup -q -f text vg >/dev/null
python3 - <<'END'
text = open("text").read()
tags = ", ".join('"%s%04d"' % ("t" * 1000, number) for number in range(4300))
open("text", "w").write(text.replace("\tseqno = ", "\ttags = [%s]\n\tseqno = " % tags, 1))
END
lvm vgcfgrestore -q --force -f text vg >/dev/null; lvm lvs --noheadings --driverloaded n -o lv_name"#;

#[test]
fn a_group_with_too_long_a_description_is_not_read_and_has_no_free_extent() {
    let Some((images, printed)) = make(LONG_METADATA) else { return };
    assert_eq!(printed.trim(), "linear");
    let disk = disk(&images.path("image"));
    let physical = physical(&disk);
    let problems: Vec<_> = physical.iter().flat_map(|(_, physical)| &physical.damage).map(|one| one.problem).collect();
    assert_eq!(problems, ["its text lies outside of it"]);
    assert!(physical.iter().all(|(_, physical)| physical.group().is_none()));
    let guest = Guest::open(&disk).unwrap();
    assert!(guest.disk_map().unwrap().iter().all(|run| !run.use_.is_free()));
}

/// LVM1 has the magic `HM` and its version at the beginning of the disk. No program of today makes or reads it.
#[test]
fn a_disk_of_lvm1_is_unknown_and_has_no_free_byte() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(8 * MIB).unwrap();
    image.as_file().write_all_at(b"HM\x01\x00", 0).unwrap();
    let disk = disk(image.path());
    let guest = Guest::open(&disk).unwrap();
    assert!(matches!(guest.volumes()[0].content, VolumeContent::Unknown), "{:?}", guest.volumes()[0].content);
    assert!(guest.disk_map().unwrap().iter().all(|run| !run.use_.is_free()));
}

/// Logical volumes of other types, in the words of LVM2's own metadata. `vgcfgrestore` checks and writes them.
const OTHER_TYPES: &str = r#"
lvm pvcreate -q "$one" "$two" >/dev/null; lvm vgcreate -q -s 1M vg "$one" "$two" >/dev/null
for name in plain origin cow data meta image_0 image_1 cached cdata cmeta idle_0 idle_1 vdata \
    raid_0 raid_1 raid_2 raid_3; do new -L 2M -n $name vg; done
lvm vgcfgbackup -q -f text vg >/dev/null
python3 - <<'END'
import re
text = open("text").read()
def hide(name, hidden):
    global text
    before, after = text.split("\t\t%s {" % name)
    text = before + "\t\t%s {" % hidden + after.replace(', "VISIBLE"', '', 1)
number = 0
def add(name, segment, extents=2):
    global text, number
    number += 1
    uuid = "abcdef-0000-0000-0000-0000-0000-%06d" % number
    text = text.replace("\tlogical_volumes {\n", "\tlogical_volumes {\n\t\t%s {\n\t\t\tid = \"%s\"\n\t\t\tstatus = [\"READ\", \"WRITE\"%s]\n"
        "\t\t\tflags = []\n\t\t\tsegment_count = 1\n\t\t\tsegment1 {\n\t\t\t\tstart_extent = 0\n\t\t\t\textent_count = %d\n%s\n\t\t\t}\n\t\t}\n"
        % (name, uuid, "" if name in ("snapshot0", "fast_cpool") else ', "VISIBLE"', extents, segment), 1)
hide("data", "pool_tdata"), hide("meta", "pool_tmeta")
hide("image_0", "mirrored_mimage_0"), hide("image_1", "mirrored_mimage_1")
add("mirrored", 'type = "mirror"\nmirror_count = 2\nregion_size = 1024\nmirrors = ["mirrored_mimage_0", 0, "mirrored_mimage_1", 0]')
add("pool", 'type = "thin-pool"\nmetadata = "pool_tmeta"\npool = "pool_tdata"\ntransaction_id = 1\nchunk_size = 128\ndiscards = "passdown"\nzero_new_blocks = 1')
add("thin", 'type = "thin"\nthin_pool = "pool"\ntransaction_id = 0\ndevice_id = 1', 50)
add("snapshot0", 'type = "snapshot"\nchunk_size = 8\norigin = "origin"\ncow_store = "cow"')
hide("cached", "fast_corig"), hide("cdata", "fast_cpool_cdata"), hide("cmeta", "fast_cpool_cmeta")
hide("idle_0", "idle_cdata"), hide("idle_1", "idle_cmeta"), hide("vdata", "vpool_vdata")
hide("raid_0", "raid_rmeta_0"), hide("raid_1", "raid_rimage_0"), hide("raid_2", "raid_rmeta_1"), hide("raid_3", "raid_rimage_1")
cache_pool = ('type = "cache-pool"\ndata = "%s_cdata"\nmetadata = "%s_cmeta"\nchunk_size = 128\nmetadata_format = 2\n'
    'cache_mode = "writethrough"\npolicy = "smq"')
add("idle", cache_pool % ("idle", "idle")), add("fast_cpool", cache_pool % ("fast_cpool", "fast_cpool"))
add("fast", 'type = "cache"\ncache_pool = "fast_cpool"\norigin = "fast_corig"')
add("vpool", 'type = "vdo-pool"\ndata = "vpool_vdata"\nheader_size = 1024\nvirtual_extents = 4\nuse_compression = 1\n'
    'use_deduplication = 1\nuse_metadata_hints = 0\nminimum_io_size = 4096\nblock_map_cache_size_mb = 128\n'
    'block_map_era_length = 16380\nuse_sparse_index = 0\nindex_memory_size_mb = 256\nslab_size_mb = 128\n'
    'ack_threads = 1\nbio_threads = 4\nbio_rotation = 64\ncpu_threads = 2\nhash_zone_threads = 1\n'
    'logical_threads = 1\nphysical_threads = 1\nmax_discard = 1\nwrite_policy = "auto"')
add("deduplicated", 'type = "vdo"\nvdo_pool = "vpool"\nvdo_offset = 0', 4)
add("raid", 'type = "raid1"\ndevice_count = 2\nregion_size = 4096\n'
    'raids = ["raid_rmeta_0", "raid_rimage_0", "raid_rmeta_1", "raid_rimage_1"]')
add("broken", 'type = "error"')
open("text", "w").write(text)
END
lvm vgcfgrestore -q --force -f text vg >/dev/null
lvm lvs --noheadings --driverloaded n -o lv_name,segtype | sort
lvm pvs --noheadings --units b --nosuffix -o pv_free"#;

#[test]
fn other_types_are_named_and_all_their_extents_are_in_use() {
    let Some((images, printed)) = make(OTHER_TYPES) else { return };
    let lines = words(&printed);
    let group = group(&images.path("image"));
    assert_eq!(group.doubts, Vec::<String>::new());
    let mut visible: Vec<&str> = group.logical.iter().map(|logical| logical.name.as_str()).collect();
    visible.sort_unstable();
    let (named, free) = lines.split_at(lines.len() - 2);
    assert_eq!(visible, named.iter().map(|line| line[0]).collect::<Vec<_>>(), "{printed}");
    assert_eq!(ranges(&group, "plain").len(), 1);
    assert_eq!(refused(&group, "mirrored"), "it is of the type mirror, through mirrored_mimage_0, mirrored_mimage_1");
    assert_eq!(refused(&group, "thin"), "it is of the type thin, through pool");
    assert_eq!(refused(&group, "broken"), "it is of the type error");
    assert_eq!(refused(&group, "pool"), "it is of the type thin-pool, through pool_tmeta, pool_tdata");
    assert_eq!(refused(&group, "idle"), "it is of the type cache-pool, through idle_cdata, idle_cmeta");
    assert_eq!(refused(&group, "fast"), "it is of the type cache, through fast_cpool, fast_corig");
    assert_eq!(refused(&group, "vpool"), "it is of the type vdo-pool, through vpool_vdata");
    assert_eq!(refused(&group, "deduplicated"), "it is of the type vdo, through vpool");
    let images = "raid_rmeta_0, raid_rimage_0, raid_rmeta_1, raid_rimage_1";
    assert_eq!(refused(&group, "raid"), format!("it is of the type raid1, through {images}"));
    assert_eq!(refused(&group, "origin"), "another volume of its group is made of it");
    assert_eq!(refused(&group, "cow"), "it is a snapshot of origin");
    let free: u64 = free.iter().map(|line| line[0].parse::<u64>().unwrap()).sum();
    assert_eq!(group.free.iter().map(|range| range.length_bytes).sum::<u64>(), free);
}
