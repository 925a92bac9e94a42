//! Whole disks with LVM2: labels, metadata areas and their text with correct checksums; and headers of all recognised
//! kinds.

use std::sync::LazyLock;

use onefold_disk::Disk;
use onefold_guest::content::{self, VolumeContent};
use onefold_guest::filesystem::AllocationClass;
use onefold_guest::lvm::{LogicalMapping, VolumeGroup, volume_groups};
use onefold_guest::volume::{DiskRange, VolumeReader};
use onefold_guest::{partition_table, volumes_of};

use super::disk::{CountedDisk, SECTOR_LENGTH, Sectors};
use crate::Choices;

static SEED: LazyLock<Sectors> =
    LazyLock::new(|| Sectors::decode(include_bytes!("../../../seeds/lvm.seed").as_slice()));

/// Start and length of the seed's physical volumes.
const VOLUMES: [(u64, u64); 2] = [(1 << 20, 5 << 20), (6 << 20, 4 << 20)];
/// The label of a physical volume, and its first metadata area.
const LABEL: u64 = 512;
const AREA: u64 = 4096;
const AREA_BYTES: u64 = 60 << 10;
/// Words of metadata texts.
const WORDS: [&str; 28] = [
    "pv0",
    "pv1",
    "linear",
    "striped",
    "other",
    "mirror",
    "snapshot",
    "thin",
    "VISIBLE",
    "segment1",
    "stripes",
    "stripe_count",
    "extent_count",
    "start_extent",
    "stripe_size",
    "pe_start",
    "pe_count",
    "extent_size",
    "seqno",
    "{",
    "}",
    "[",
    "]",
    "=",
    "\"",
    "\\",
    "#",
    "\0",
];
/// Places and magics of the recognised kinds.
const MAGICS: [(u64, &[u8]); 22] = [
    (0, b"LUKS\xba\xbe\0\x01"),
    (0, b"LUKS\xba\xbe\0\x02"),
    (3, b"-FVE-FS-"),
    (3, b"EXFAT   "),
    (3, b"ReFS\0\0\0\0"),
    (3, b"NTFS    "),
    (0, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    (4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    (3072, b"PRIVHEAD"),
    (65600, b"_BHRfS_M"),
    (4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    (1024, b"H+\0\x04"),
    (32, b"NXSB"),
    (1024, b"\x10\x20\xf5\xf2"),
    (1024, b"OCFSV2"),
    (0, b"hsqs"),
    (1024, b"\xe2\xe1\xf5\xe0"),
    (32768, b"\x01CD001\x01"),
    (4086, b"SWAPSPACE2"),
    (65526, b"SWAPSPACE2"),
    (4086, b"S1SUSPEND"),
    (131_072, b"\x0c\xb1\xba\0\0\0\0\0"),
];

pub(crate) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut image = SEED.clone();
    // If the other physical volume has no text, that of one stands for the whole group.
    let only = *choices.one_of(&[0, 1, 0, 1, 0, 1, 0, VOLUMES.len()]);
    for (at, volume) in VOLUMES.into_iter().enumerate() {
        if only < VOLUMES.len() && only != at {
            drop_texts(&mut image, volume);
            continue;
        }
        match choices.below(16) {
            0 => {}
            1 | 2 => damage_header(&mut choices, &mut image, volume),
            3 => put_magic(&mut choices, &mut image, volume),
            _ => damage_text(&mut choices, &mut image, volume),
        }
    }
    if choices.below(16) == 0 {
        image.size_bytes = choices.below(image.size_bytes);
    }
    let mut disk = CountedDisk::new(image);
    look(&disk);
    if disk.fail_after(choices.below(256)) {
        look(&disk);
    }
}

/// Returns LVM2's checksum: CRC-32 with another initial value, and not inverted.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!0xf597_a6cf);
    hasher.update(bytes);
    !hasher.finalize()
}

/// Changes a number in the label and header, or in the header of the metadata area, and corrects the checksums.
fn damage_header(choices: &mut Choices<'_>, image: &mut Sectors, (start, _): (u64, u64)) {
    let label = start + LABEL;
    for _ in 0..1 + choices.below(3) {
        let number = match choices.below(3) {
            0 => choices.number(),
            1 => *choices.one_of(&[0, 1, 512, 4096, 65536, 5 << 20, u64::MAX]),
            _ => choices.below(1 << 16),
        };
        let length = *choices.one_of(&[1, 4, 8]);
        if choices.below(2) == 0 {
            image.put(label + 20 + choices.below(180), &number.to_le_bytes()[..length]);
        } else {
            image.put(start + AREA + 20 + choices.below(80), &number.to_le_bytes()[..length]);
        }
    }
    let mut sector = [0; SECTOR_LENGTH];
    image.copy(label, &mut sector);
    image.put(label + 16, &checksum(&sector[20..]).to_le_bytes());
    seal_area(image, start + AREA);
}

/// Destroys the metadata areas of a volume: its first one, and the one at its end.
fn drop_texts(image: &mut Sectors, (start, length): (u64, u64)) {
    image.put(start + AREA, &[0; SECTOR_LENGTH]);
    let mut at = start + AREA + AREA_BYTES;
    let mut sector = [0; SECTOR_LENGTH];
    while at < start + length {
        image.copy(at, &mut sector);
        if sector[4..].starts_with(b" LVM2 x[5A%r0N*>") {
            image.put(at, &[0; SECTOR_LENGTH]);
        }
        at += SECTOR_LENGTH as u64;
    }
}

fn seal_area(image: &mut Sectors, area: u64) {
    let mut header = [0; SECTOR_LENGTH];
    image.copy(area, &mut header);
    image.put(area, &checksum(&header[4..]).to_le_bytes());
}

/// Changes the text in the first metadata area, and corrects the checksums.
fn damage_text(choices: &mut Choices<'_>, image: &mut Sectors, (start, _): (u64, u64)) {
    let area = start + AREA;
    let mut header = [0; SECTOR_LENGTH];
    image.copy(area, &mut header);
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let (offset, length) = (number(40), number(48));
    let mut text = vec![0; usize::try_from(length).expect("a small text")];
    image.copy(area + offset, &mut text);
    for _ in 0..1 + choices.below(5) {
        change_text(choices, &mut text);
    }
    // The text starts over at the front if it no longer fits behind its old place.
    let offset = if offset + text.len() as u64 > AREA_BYTES { SECTOR_LENGTH as u64 } else { offset };
    image.put(area + offset, &text);
    image.put(area + 40, &offset.to_le_bytes());
    image.put(area + 48, &(text.len() as u64).to_le_bytes());
    image.put(area + 56, &checksum(&text).to_le_bytes());
    seal_area(image, area);
}

fn change_text(choices: &mut Choices<'_>, text: &mut Vec<u8>) {
    if text.is_empty() {
        return;
    }
    let at = choices.index(text.len());
    match choices.below(16) {
        // Replaces a number.
        0..13 => {
            let is_number = |pair: &[u8]| pair[0] == b' ' && pair[1].is_ascii_digit();
            let Some(from) = text[at..].windows(2).position(is_number).map(|blank| at + blank + 1) else { return };
            let digits = text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = match choices.below(3) {
                0 => choices.number(),
                1 => choices.below(1 << 16),
                _ => choices.below(20),
            };
            text.splice(from..from + digits, number.to_string().into_bytes());
        }
        13 => {
            let word = choices.one_of(&WORDS).as_bytes();
            let end = (at + word.len()).min(text.len());
            text.splice(at..end, word.iter().copied());
        }
        14 => {
            let end = (at + choices.index(200)).min(text.len());
            text.drain(at..end);
        }
        _ => {
            let end = (at + choices.index(400)).min(text.len());
            let copy = text[at..end].to_vec();
            let to = choices.index(text.len());
            text.splice(to..to, copy);
        }
    }
}

/// Overwrites the beginning of a volume, or part of it, with the header of another kind.
fn put_magic(choices: &mut Choices<'_>, image: &mut Sectors, (start, length): (u64, u64)) {
    if choices.below(2) == 0 {
        image.put(start, &[0; 2048]);
    }
    let (at, magic) = *choices.one_of(&MAGICS);
    image.put(start + at, magic);
    for _ in 0..choices.below(6) {
        image.put(start + (at & !511) + choices.below(512), &choices.number().to_le_bytes());
    }
    if choices.below(8) == 0 {
        let place = (length & !0xffff) - (64 << 10);
        image.put(start + place, b"\xfc\x4e\x2b\xa9\0\0\0\0");
    }
}

/// Examines all volumes of a disk.
fn look(disk: &CountedDisk) {
    let Ok(table) = partition_table(disk) else { return };
    let mut physical = Vec::new();
    for volume in volumes_of(table.as_ref(), disk.size_bytes()) {
        let reader = VolumeReader::new(disk, &volume);
        let content = content::open(&reader, None);
        must_cover(&content, volume.size_bytes());
        if let VolumeContent::PhysicalVolume(found) = content {
            physical.push((reader, *found));
        }
    }
    for group in volume_groups(&physical) {
        group_must_hold(&group, disk);
    }
}

/// Checks that the map covers the volume.
fn must_cover(content: &VolumeContent<'_>, volume_bytes: u64) {
    let Ok(runs) = content.allocation(volume_bytes) else { return };
    let end = runs.iter().fold(0, |end, run| {
        assert!(run.start_bytes == end && run.length_bytes > 0, "{run:?} after {end}");
        run.end_bytes()
    });
    assert_eq!(end, volume_bytes);
    let is_exact = content.whole_because().is_none();
    assert!(is_exact || runs.iter().all(|run| run.class != AllocationClass::Free), "{content:?}");
}

/// Checks that logical volumes lie within the physical ones, and that no extent of theirs is free or in another one.
fn group_must_hold(group: &VolumeGroup, disk: &CountedDisk) {
    assert!(group.doubts.is_empty() || group.free.is_empty(), "{group:?}");
    let mut all: Vec<DiskRange> = group.free.clone();
    for logical in &group.logical {
        if let LogicalMapping::Read(volume) = &logical.mapping {
            assert_eq!(volume.size_bytes(), logical.size_bytes);
            all.extend(&volume.ranges);
            must_cover(&content::open(&VolumeReader::new(disk, volume), None), volume.size_bytes());
        }
    }
    all.sort_unstable();
    assert!(all.iter().all(|range| range.length_bytes > 0 && range.end_bytes() <= disk.size_bytes()));
    assert!(all.is_sorted_by(|one, next| one.end_bytes() <= next.start_bytes), "{group:?}");
}
