//! `onefold analyze --files` against a naive counter, which asks `debugfs` and `dumpe2fs` for the use of each block.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{DAMAGE, FAILED, Folder, USAGE, has, onefold, run, text};
use serde_json::Value;

const BLOCK: usize = 4096;
/// Where the partitions of the disks begin: ext4, then swap.
const EXT: usize = 1 << 20;
const EXT_BYTES: usize = 20 << 20;
const SWAP: usize = EXT + EXT_BYTES;
const SWAP_BYTES: usize = 2 << 20;
const DISK_BYTES: usize = SWAP + SWAP_BYTES + (1 << 20);

/// Bytes that are the same for the same number and differ otherwise.
fn noise(number: u64, blocks: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..blocks * BLOCK / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// The files of a machine; the last of them differs by `number`.
fn files(number: u64) -> Vec<(&'static str, Vec<u8>)> {
    let status = format!(
        "Package: tool\nStatus: install ok installed\nArchitecture: all\nVersion: {number}.0\nMaintainer: x\nDescription: x\n\n"
    );
    vec![
        ("/etc/os-release", b"ID=debian\nVERSION_ID=\"12\"\n".to_vec()),
        ("/var/lib/dpkg/status", status.into_bytes()),
        ("/var/lib/dpkg/info/tool.list", b"/.\n/usr\n/usr/bin\n/usr/bin/tool\n/usr/share\n/usr/share/tool\n".to_vec()),
        ("/usr/bin/tool", noise(1, 9)),
        ("/usr/share/tool", noise(2, 5)),
        ("/usr/share/other", [noise(3, 2), vec![0; 2 * BLOCK], noise(3, 2)].concat()),
        ("/srv/data/large", noise(10 + number, 30)),
        ("/swapfile", noise(4, 1).repeat(3)),
    ]
}

/// Writes a disk of a machine: an MBR, the file system at byte `start`, a swap area behind it, noise in a gap, in a
/// page of the swap area, and in a free block.
fn machine(folder: &Folder, name: &str, number: u64, start: usize) -> (PathBuf, PathBuf) {
    let tree = folder.path(&format!("{name}.tree"));
    for (path, content) in files(number) {
        let path = tree.join(&path[1..]);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let (ext, swap, disk) =
        (folder.path(&format!("{name}.ext")), folder.path(&format!("{name}.swap")), folder.path(name));
    fs::write(&ext, vec![0; EXT_BYTES]).unwrap();
    fs::write(&swap, vec![0; SWAP_BYTES]).unwrap();
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "4096", "-d", text(&tree), text(&ext)]);
    run("mkswap", &[text(&swap)]);
    let free = *free_blocks(&ext).last().unwrap();
    let file = OpenOptions::new().write(true).open(&ext).unwrap();
    file.write_all_at(&noise(20, 1), free * BLOCK as u64).unwrap();
    let mut bytes = vec![0; DISK_BYTES];
    let mut area = |at: usize, content: &[u8]| bytes[at..at + content.len()].copy_from_slice(content);
    area(64 << 10, &noise(21, 1));
    area(start, &fs::read(&ext).unwrap());
    area(SWAP, &fs::read(&swap).unwrap());
    area(SWAP + (1 << 20), &noise(22, 2));
    for (slot, (kind, first, length)) in [(0x83, start, EXT_BYTES), (0x82, SWAP, SWAP_BYTES)].into_iter().enumerate() {
        let at = 446 + 16 * slot;
        area(at + 4, &[kind]);
        area(at + 8, &u32::try_from(first / 512).unwrap().to_le_bytes());
        area(at + 12, &u32::try_from(length / 512).unwrap().to_le_bytes());
    }
    area(510, &[0x55, 0xaa]);
    fs::write(&disk, bytes).unwrap();
    (disk, ext)
}

/// The blocks that `dumpe2fs` calls free.
fn free_blocks(ext: &Path) -> BTreeSet<u64> {
    let told = run("dumpe2fs", &[text(ext)]);
    let lines = told.lines().filter_map(|line| line.trim().strip_prefix("Free blocks: "));
    let ranges = lines.flat_map(|line| line.split(", ").map(str::to_owned).collect::<Vec<_>>());
    let range = |range: String| -> Vec<u64> {
        let mut ends = range.split('-').map(str::parse::<u64>);
        // The count of the superblock has the same heading, and comes before all groups.
        let Some(Ok(first)) = ends.next() else { return Vec::new() };
        (first..=ends.next().map_or(first, Result::unwrap)).collect()
    };
    ranges.skip(1).flat_map(range).collect()
}

/// Group, part, and part of that.
type Use = [&'static str; 3];

/// The use of each block of a disk.
fn uses(ext: &Path, number: u64) -> Vec<Use> {
    let mut uses = vec![["gaps", "between volumes", ""]; DISK_BYTES / BLOCK];
    let (free, first) = (free_blocks(ext), EXT / BLOCK);
    for block in 0..EXT_BYTES / BLOCK {
        let is_free = free.contains(&(block as u64));
        uses[first + block] = if is_free { ["stale", "ext4", ""] } else { ["metadata", "", ""] };
    }
    for (path, _) in files(number) {
        let use_ = match path {
            "/usr/bin/tool" => ["packages", "tool", "/usr/bin"],
            "/usr/share/tool" => ["packages", "tool", "/usr/share"],
            "/usr/share/other" => ["files", "/usr", "/usr/share"],
            "/srv/data/large" => ["files", "/srv", "/srv/data"],
            "/etc/os-release" => ["files", "/etc", "/etc"],
            "/swapfile" => ["files", "/", "/"],
            _ => ["files", "/var", "/var/lib"],
        };
        let blocks = run("debugfs", &["-R", &format!("blocks {path}"), text(ext)]);
        blocks.split_whitespace().for_each(|block| uses[first + block.parse::<usize>().unwrap()] = use_);
    }
    uses[SWAP / BLOCK] = ["swap", "swap areas", ""];
    uses[SWAP / BLOCK + 1..(SWAP + SWAP_BYTES) / BLOCK].fill(["stale", "swap areas", ""]);
    uses
}

/// All, shared with others, only here, repeated within: in blocks.
type Share = [u64; 4];

/// Counts the blocks of each use of a disk among all disks. Metadata is one use.
fn naive(disks: &[Vec<u8>], at: usize, uses: &[Use]) -> (BTreeMap<Use, Share>, u64) {
    let others: BTreeSet<&[u8]> =
        disks.iter().enumerate().filter(|(other, _)| *other != at).flat_map(|(_, disk)| disk.chunks(BLOCK)).collect();
    let (mut counts, mut seen, mut zero) = (BTreeMap::new(), BTreeSet::new(), 0);
    for (block, use_) in disks[at].chunks(BLOCK).zip(uses) {
        if block.iter().all(|byte| *byte == 0) {
            zero += 1;
            continue;
        }
        let share: &mut Share = counts.entry(*use_).or_default();
        share[0] += 1;
        share[if !seen.insert(block) {
            3
        } else if others.contains(block) {
            1
        } else {
            2
        }] += 1;
    }
    (counts, zero)
}

fn share_of(value: &Value) -> Share {
    let names = ["bytes", "shared_with_others_bytes", "only_here_bytes", "repeated_within_bytes"];
    names.map(|name| value[name].as_u64().unwrap() / BLOCK as u64)
}

/// The shares of a document by their names.
fn told(image: &Value) -> BTreeMap<[String; 3], Share> {
    let mut found = BTreeMap::new();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let parts_of = |value: &Value| value["parts"].as_array().unwrap().clone();
    for group in image["groups"].as_array().unwrap() {
        if group["name"] == "metadata" {
            found.insert([name(group), String::new(), String::new()], share_of(group));
            continue;
        }
        for part in parts_of(group) {
            if parts_of(&part).is_empty() {
                found.insert([name(group), name(&part), String::new()], share_of(&part));
            }
            for sub in parts_of(&part) {
                found.insert([name(group), name(&part), name(&sub)], share_of(&sub));
            }
        }
    }
    found
}

fn class_sum(bytes: &Value) -> u64 {
    bytes["classes"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum()
}

fn has_tools() -> bool {
    ["mke2fs", "debugfs", "dumpe2fs", "mkswap"].iter().all(|tool| has(tool, "and its package"))
}

#[test]
fn every_block_is_counted_as_a_naive_counter_counts_it() {
    if !has_tools() {
        return;
    }
    let folder = Folder::new();
    let machines = [("one.raw", 1), ("two.raw", 2), ("three.raw", 2)];
    let made: Vec<(PathBuf, PathBuf)> =
        machines.iter().map(|(name, number)| machine(&folder, name, *number, EXT)).collect();
    let images: Vec<&Path> = made.iter().map(|(disk, _)| disk.as_path()).collect();
    let found = onefold("analyze --files --json", &images).done().json();
    let disks: Vec<Vec<u8>> = images.iter().map(|image| fs::read(image).unwrap()).collect();
    for (at, ((_, number), (_, ext))) in machines.iter().zip(&made).enumerate() {
        let (expected, zero) = naive(&disks, at, &uses(ext, *number));
        let expected: BTreeMap<[String; 3], Share> =
            expected.into_iter().map(|(use_, share)| (use_.map(str::to_owned), share)).collect();
        let image = &found["files"]["images"][at];
        assert_eq!(told(image), expected, "{}", machines[at].0);
        assert_eq!(image["classes"]["zero_bytes"], zero * BLOCK as u64);
        assert_eq!(image["classes"]["stale_bytes"], 3 * BLOCK as u64, "a block of ext4, and two pages of swap");
        assert_eq!(class_sum(image), DISK_BYTES as u64);
        assert_eq!((&image["is_in_use"], image["doubts"].as_array().unwrap().len()), (&Value::Bool(false), 0));
    }
    assert_eq!(class_sum(&found["files"]["total"]), 3 * DISK_BYTES as u64);
    let package = &found["files"]["versions"][0];
    assert_eq!((&package["name"], &package["versions"][0]["version"]), (&"tool".into(), &"2.0".into()));
    assert_eq!(package["versions"][0]["images"].as_array().unwrap().len(), 2);

    let first = &found["files"]["top_blocks"][0];
    assert_eq!((&first["times"], &first["places"][0]["path"]), (&9.into(), &"/swapfile".into()));
    assert_eq!(first["places"].as_array().unwrap().len(), 3, "one in each image");

    let without = onefold("analyze --json", &images).done().json();
    assert_eq!((&without["files"], &without["total"]), (&Value::Null, &found["total"]));
    let text = onefold("analyze --files", &images).done().out;
    assert!(text.contains("stale: 36.00 KiB are free and not zero"), "{text}");
    assert!(text.contains("tool: 2.0 in 2, 1.0 in 1"), "{text}");
}

#[test]
fn misaligned_unknown_and_damaged_disks_add_up_and_say_what_they_are() {
    if !has_tools() {
        return;
    }
    let folder = Folder::new();
    let (misaligned, _) = machine(&folder, "misaligned.raw", 1, 63 * 512);
    let unknown = folder.path("unknown.raw");
    fs::write(&unknown, noise(7, 500)).unwrap();
    let (damaged, _) = machine(&folder, "damaged.raw", 1, EXT);
    // The table of groups and what follows: no superblock is left, and no root can be found.
    let file = OpenOptions::new().write(true).open(&damaged).unwrap();
    file.write_all_at(&noise(8, 64), EXT as u64).unwrap();
    let found = onefold("analyze --files --json", &[&misaligned, &unknown, &damaged]).done().json();
    let [first, second, third] = [0, 1, 2].map(|at| &found["files"]["images"][at]);
    let causes = |image: &Value| image["misaligned"].as_array().unwrap().clone();
    assert_eq!(causes(first)[0]["cause"], "volume_start");
    assert!(causes(first)[0]["bytes"].as_u64().unwrap() >= 50 * BLOCK as u64);
    let gain = |value: &Value| value["gained_bytes"].as_u64();
    assert_eq!(gain(&found["files"]["misaligned"][0]), gain(&found["realignment"]));
    assert!(gain(&found["realignment"]).is_some());
    assert!(told(first).contains_key(&["packages", "tool", "/usr/bin"].map(str::to_owned)));
    assert_eq!(second["classes"]["not_read_bytes"], 500 * BLOCK as u64);
    assert_eq!(third["classes"]["file_data_bytes"], 0);
    assert!(third["classes"]["not_read_bytes"].as_u64().unwrap() > 64 * BLOCK as u64);
    for (at, image) in [first, second, third].into_iter().enumerate() {
        assert_eq!(class_sum(image), found["images"][at]["apparent_bytes"].as_u64().unwrap(), "image {at}");
    }
}

/// Regression: damage ended with code 0, and nothing named a file system whose superblock was damaged.
#[test]
fn skipped_damage_is_named_with_its_image_and_volume_and_has_its_own_exit_code() {
    if !has_tools() {
        return;
    }
    let folder = Folder::new();
    let (sound, ext) = machine(&folder, "sound.raw", 1, EXT);
    let copy = |name: &str, at: u64, bytes: &[u8]| {
        let image = folder.path(name);
        fs::copy(&sound, &image).unwrap();
        OpenOptions::new().write(true).open(&image).unwrap().write_all_at(bytes, at).unwrap();
        image
    };
    let block: u64 = run("debugfs", &["-R", "blocks /srv", text(&ext)]).trim().parse().unwrap();
    let directory = copy("directory.raw", EXT as u64 + block * BLOCK as u64, &noise(30, 1));
    let superblock = copy("super.raw", EXT as u64 + 1024 + 32, &[0x77]);
    // A third partition, past the end of the disk.
    let entry = [0, 0, 0, 0, 0x83, 0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0];
    let table = copy("table.raw", 446 + 32, &entry);
    let gone = folder.path("gone.raw");
    assert_eq!(onefold("analyze --files", &[&sound]).done().err, "");
    for (image, warning) in [
        (&directory, "directory.raw: partition 1: 1 damaged parts were skipped"),
        (&superblock, "super.raw: partition 1 cannot be read: damaged superblock"),
        (&table, "table.raw: partition 3 does not lie on the disk"),
    ] {
        let told = onefold("analyze --files", &[&sound, image]);
        let line = told.out.lines().find(|line| line.starts_with("warning: ") && line.contains(warning));
        assert!(told.code == DAMAGE && line.is_some(), "{warning}: {told:?}");
        let found = onefold("analyze --files --json", &[&sound, image]).json();
        let has_damage = [0, 1].map(|at| found["files"]["images"][at]["has_damage"].clone());
        assert_eq!(has_damage, [Value::Bool(false), Value::Bool(true)], "{warning}");
        assert_eq!(onefold("analyze --files", &[&sound, image, &gone]).code, FAILED, "{warning}");
        onefold("analyze", &[&sound, image]).done();
    }
}

#[test]
fn a_fat_whose_data_lies_across_blocks_is_told() {
    if !["mkfs.fat", "mcopy"].iter().all(|tool| has(tool, "and its package")) {
        return;
    }
    let folder = Folder::new();
    let (image, file) = (folder.path("fat.raw"), folder.path("file"));
    fs::write(&file, noise(1, 40)).unwrap();
    // Clusters of 4 KiB, behind one reserved sector and tables of any length.
    for (extra, is_misaligned) in [("-a", true), ("-v", false)] {
        fs::write(&image, vec![0; 24 << 20]).unwrap();
        let reserved = if is_misaligned { "1" } else { "8" };
        run("mkfs.fat", &[extra, "-F", "16", "-s", "8", "-R", reserved, text(&image)]);
        run("mcopy", &["-i", text(&image), text(&file), "::/file"]);
        let found = onefold("analyze --files --json", &[&image]).done().json();
        let image = &found["files"]["images"][0];
        assert_eq!(class_sum(image), 24 << 20);
        let causes = image["misaligned"].as_array().unwrap();
        assert_eq!(causes.iter().any(|cause| cause["cause"] == "data_area"), is_misaligned, "{image}");
        let whole_file = [40, 41].map(|blocks: u64| blocks * BLOCK as u64);
        assert!(whole_file.contains(&image["classes"]["file_data_bytes"].as_u64().unwrap()), "{image}");
    }
}

/// Returns a disk that is one FAT16 with clusters of 4 KiB, whose first table lies behind `reserved` sectors, with one
/// file; and the byte at which its data area begins.
fn fat(folder: &Folder, reserved: u16) -> (PathBuf, usize) {
    let (image, file) = (folder.path(&format!("fat-{reserved}.raw")), folder.path("file"));
    fs::write(&file, noise(1, 40)).unwrap();
    fs::write(&image, vec![0; 24 << 20]).unwrap();
    run("mkfs.fat", &["-a", "-F", "16", "-s", "8", "-i", "12345678", "-R", &reserved.to_string(), text(&image)]);
    run("mcopy", &["-i", text(&image), text(&file), "::/file"]);
    let disk = fs::read(&image).unwrap();
    let number = |at: usize| usize::from(u16::from_le_bytes([disk[at], disk[at + 1]]));
    (image, (number(14) + usize::from(disk[16]) * number(22)) * 512 + number(17) * 32)
}

#[test]
fn moving_the_data_area_of_a_fat_saves_what_a_naive_counter_finds() {
    if !["mkfs.fat", "mcopy"].iter().all(|tool| has(tool, "and its package")) {
        return;
    }
    let folder = Folder::new();
    let starts = |from: u16| (from..from + 8).map(|reserved| fat(&folder, reserved));
    let (across, area) = starts(1).find(|(_, area)| area % BLOCK == 512).unwrap();
    let (whole, _) = starts(1).find(|(_, area)| area % BLOCK == 0).unwrap();
    let [first, second] = [&across, &whole].map(|path| fs::read(path).unwrap());
    let mut moved = first.clone();
    moved.splice(area..area, vec![0; BLOCK - 512]);
    let distinct = |disks: [&[u8]; 2]| {
        let blocks = disks.into_iter().flat_map(|disk| disk.chunks(BLOCK));
        blocks.filter(|block| block.iter().any(|byte| *byte != 0)).collect::<BTreeSet<_>>().len()
    };
    let gain = (distinct([&first, &second]) - distinct([&moved, &second])) * BLOCK;
    assert!(gain >= 39 * BLOCK, "{gain}");
    let found = onefold("analyze --files --json", &[&across, &whole]).done().json();
    let misaligned = &found["files"]["misaligned"];
    assert_eq!((&misaligned[0]["cause"], &misaligned[1]), (&"data_area".into(), &Value::Null));
    assert_eq!(misaligned[0]["gained_bytes"], gain, "{misaligned}");
    assert_eq!(found["realignment"]["gained_bytes"], 0, "no partition moves");
    let info = onefold("guest info --json", &[&across, &whole]).done().json();
    let because = |image: usize| &info["images"][image]["volumes"][0]["misaligned_because"];
    assert_eq!(*because(0), "the data area of the FAT begins within a block of 4 KiB");
    assert_eq!(*because(1), Value::Null);
}

#[test]
fn overlapping_volumes_add_up_and_names_of_a_guest_do_no_harm() {
    if !has_tools() {
        return;
    }
    let folder = Folder::new();
    let odd = folder.path("overlapping.raw.tree/srv/\u{1b}[31mred");
    fs::create_dir_all(&odd).unwrap();
    fs::write(odd.join("file"), noise(5, 60)).unwrap();
    let (disk, _) = machine(&folder, "overlapping.raw", 1, EXT);
    let file = OpenOptions::new().write(true).open(&disk).unwrap();
    // The second partition begins within the first.
    file.write_all_at(&u32::try_from((EXT + (2 << 20)) / 512).unwrap().to_le_bytes(), 446 + 16 + 8).unwrap();
    let run = onefold("analyze --files --json", &[&disk]);
    assert_eq!(run.code, DAMAGE, "{run:?}");
    let image = &run.json()["files"]["images"][0];
    assert_eq!(class_sum(image), DISK_BYTES as u64);
    assert_eq!(image["classes"]["stale_bytes"], 0, "nothing is free with certainty");
    assert!(image["doubts"].to_string().contains("overlaps another volume"), "{image}");
    assert!(told(image).keys().any(|[_, _, sub]| sub == "/srv/\u{1b}[31mred"));
    let text = onefold("analyze --files", &[&disk]).out;
    assert!(!text.contains('\u{1b}') && text.contains("in doubt"), "{text}");
}

/// Makes an ext4 whose bitmaps call every second block free: 458,752 runs.
const FRAGMENTED: &str = include_str!("common/make_fragmented.py");

/// Maps took up to 256 MiB whatever `--memory` was.
#[test]
fn maps_take_a_part_of_the_memory_and_say_so_where_that_is_too_little() {
    if !has_tools() || !has("python3", "python3") {
        return;
    }
    let folder = Folder::new();
    let image = folder.path("image");
    run("python3", &["-c", FRAGMENTED, text(&image)]);
    let doubts = |memory: &str| {
        let found = onefold(&format!("analyze --files --json --memory {memory}"), &[&image]).done().json();
        found["files"]["images"][0]["doubts"].clone()
    };
    let short = "its maps need more memory than there is for them: what did not fit counts as in doubt";
    assert_eq!(doubts("64M"), serde_json::json!([short]));
    assert_eq!(doubts("512M"), serde_json::json!([]));
}

#[test]
fn a_sample_does_not_tell_files() {
    assert_eq!(onefold("analyze --sample --files", &[Path::new("x")]).code, USAGE);
}
