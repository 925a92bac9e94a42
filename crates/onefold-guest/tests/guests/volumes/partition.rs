//! Partition tables that `sfdisk` makes, and what it says of them.

use onefold_guest::guest::Guest;
use onefold_guest::{PartitionKind, PartitionProblem, PartitionScheme, partition_table};

use super::{disk, words};
use crate::fixtures::{Images, has};

/// Makes a table, and prints `start size type name` of each partition, by number, in sectors.
const MAKE: &str = r#"truncate -s 64M "$1"; sfdisk -q --wipe never "$1" >/dev/null <<<"$2"
sfdisk -J "$1" | jq -r '.partitiontable.partitions[] | [.node, .start, .size, .type, .name // "-"] | @tsv' |
    sed "s|^$1||""#;

#[test]
fn tables_are_read_as_sfdisk_lists_them() {
    let Some(images) = Images::new() else { return };
    if !has("sfdisk") || !has("jq") {
        return;
    }
    let mbr = "label: dos\nsize=4M, type=83\nsize=30M, type=5\nsize=8M, type=7\nsize=3M, type=82\nsize=2M, type=83";
    let holes = "label: dos\n3: start=2048, size=4096, type=c\n1: start=20480, size=8192, type=8e";
    let gpt = "label: gpt\nsize=8M, type=U, name=boot\nsize=16M, type=L, name=\"root \u{e9}\"\n7: size=4M, type=S";
    for (name, table, scheme) in
        [("mbr", mbr, PartitionScheme::Mbr), ("holes", holes, PartitionScheme::Mbr), ("gpt", gpt, PartitionScheme::Gpt)]
    {
        let printed = images.script(MAKE, [name, table]);
        let found = partition_table(&disk(&images.path(name))).unwrap().unwrap();
        assert_eq!((found.scheme, found.sector_bytes, found.problems), (scheme, 512, Vec::new()));
        let mut listed = Vec::new();
        for entry in found.entries {
            let kind = match entry.kind {
                PartitionKind::Mbr(kind) => format!("{kind:x}"),
                PartitionKind::Gpt(kind) => kind.to_string(),
            };
            let name = if entry.name.is_empty() { "-" } else { &entry.name };
            let sectors = [entry.place.start_bytes / 512, entry.place.length_bytes / 512];
            listed.push(format!("{}\t{}\t{}\t{kind}\t{name}", entry.number, sectors[0], sectors[1]));
        }
        // The container of logical partitions is none, and sfdisk lists by number.
        let mut expected: Vec<&str> = printed.lines().filter(|line| line.split('\t').nth(3) != Some("5")).collect();
        expected.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, expected, "{name}");
    }
}

#[test]
fn partitions_have_the_uuids_by_which_linux_finds_them() {
    let Some(images) = Images::new() else { return };
    if !has("sfdisk") || !has("partx") {
        return;
    }
    let mbr = "label: dos\nlabel-id: 0x0badcafe\nsize=4M\nsize=30M, type=5\nsize=8M\nsize=3M\n";
    for (name, table) in [("mbr", mbr), ("gpt", "label: gpt\nsize=8M\n7: size=4M")] {
        let script = r#"truncate -s 64M "$1"; sfdisk -q "$1" <<<"$2"; partx --raw --noheadings -o NR,UUID "$1""#;
        let printed = images.script(script, [name, table]);
        let found = partition_table(&disk(&images.path(name))).unwrap().unwrap().entries;
        let found: Vec<String> =
            found.iter().map(|entry| format!("{} {}", entry.number, entry.uuid.as_deref().unwrap())).collect();
        // The container of logical partitions is the second.
        let expected: Vec<&str> = printed.lines().filter(|line| !line.ends_with("-02")).collect();
        assert_eq!(found, expected, "{name}");
        assert_eq!(found.len(), if name == "mbr" { 3 } else { 2 });
    }
}

#[test]
fn the_backup_of_a_gpt_is_the_table_when_the_first_is_overwritten() {
    let Some(images) = Images::new() else { return };
    if !has("sfdisk") {
        return;
    }
    images.script(
        "truncate -s 64M image; sfdisk -q image <<<$'label: gpt\\nsize=8M\\nsize=16M'
        cp --sparse=always image damaged; dd if=/dev/zero of=damaged bs=512 seek=1 count=33 conv=notrunc status=none
        cp --sparse=always image short; truncate -s 20M short",
        [""; 0],
    );
    let table = |name| partition_table(&disk(&images.path(name))).unwrap().unwrap();
    let (sound, damaged, short) = (table("image"), table("damaged"), table("short"));
    assert_eq!(sound.problems, []);
    assert_eq!((&damaged.entries, damaged.problems), (&sound.entries, vec![PartitionProblem::FromBackup]));
    // Half an image: what is there is listed.
    assert_eq!(short.problems, [PartitionProblem::CutOff { number: 2 }]);
    assert_eq!(short.entries.last().unwrap().place.end_bytes(), 20 << 20);
}

/// Linux does not take it for a table either.
#[test]
fn a_gpt_without_its_protective_mbr_is_no_table() {
    let Some(images) = Images::new() else { return };
    if !has("sfdisk") || !has("mke2fs") {
        return;
    }
    let script = "truncate -s 64M image; sfdisk -q image <<<$'label: gpt\\nsize=16M'
        mke2fs -q -F -t ext4 -E offset=$((2048 * 512)) image 16M; cp --sparse=always image without
        dd if=/dev/zero of=without bs=512 count=1 conv=notrunc status=none";
    images.script(script, [""; 0]);
    let has_free = |name: &str| {
        let disk = disk(&images.path(name));
        let guest = Guest::open(&disk).unwrap();
        let has_free = guest.disk_map().unwrap().iter().any(|run| run.use_.is_free());
        (guest.table().is_some(), guest.volumes().len(), has_free)
    };
    assert_eq!((has_free("image"), has_free("without")), ((true, 1, true), (false, 1, false)));
}

#[test]
fn sectors_of_4096_bytes_are_found_as_a_loop_device_has_them() {
    let Some(images) = Images::new() else { return };
    if !has("sfdisk") {
        return;
    }
    let printed = images.script(
        r#"for label in gpt dos; do
            truncate -s 64M $label; loop=$(losetup --find --show --sector-size 4096 $label)
            trap 'losetup -d $loop' EXIT
            sfdisk -q $loop <<<$'label: '$label$'\nsize=8M\nsize=16M'
            mke2fs -q -F -t ext4 -E offset=$((256 * 4096)) $label 8M
            echo $label $(sfdisk -l -o start,sectors $loop | tail -2)
            losetup -d $loop; trap - EXIT
        done"#,
        [""; 0],
    );
    for line in words(&printed) {
        let (name, numbers) = line.split_first().unwrap();
        let table = partition_table(&disk(&images.path(name))).unwrap().unwrap();
        assert_eq!(table.sector_bytes, 4096, "{name}");
        let places = table.entries.iter().map(|entry| entry.place);
        let found: Vec<u64> = places.flat_map(|place| [place.start_bytes / 4096, place.length_bytes / 4096]).collect();
        let expected: Vec<u64> = numbers.iter().map(|number| number.parse().unwrap()).collect();
        assert_eq!(found, expected, "{name}");
    }
}
