//! Damaged volumes: damage is reported and skipped, and the rest goes on.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_disk::{Disk, FileDisk};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{Allocation, AllocationClass, Doubt, FileNumber, FileSystem, State};
use onefold_guest::ntfs;
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};

use super::{MOUNT, tools, tree, with_ntfs};
use crate::fixtures::Images;

const MFT: u64 = 4 * 4096;
const RECORD_BYTES: u64 = 1024;

/// Overwrites bytes of an image.
pub(super) fn write_at(image: &Path, offset: u64, bytes: &[u8]) {
    File::options().write(true).open(image).unwrap().write_all_at(bytes, offset).unwrap();
}

/// Changes the first attribute of a type in a record of an MFT in one piece.
pub(super) fn change_attribute(image: &Path, record: u64, kind: u32, change: impl FnOnce(&mut [u8])) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let (mut bytes, place) = (vec![0; 1024], MFT + record * RECORD_BYTES);
    file.read_exact_at(&mut bytes, place).unwrap();
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let mut at = usize::from(bytes[20]);
    while number(&bytes[at..at + 4]) != kind {
        at += usize::try_from(number(&bytes[at + 4..at + 8])).unwrap();
    }
    change(&mut bytes[at..]);
    file.write_all_at(&bytes, place).unwrap();
}

/// Makes an image with 300 files in a folder.
fn image() -> Option<Images> {
    if !tools() {
        return None;
    }
    let images = Images::new()?;
    let recipe = "mkdir many; for file in $(seq 300); do echo $file >many/\"a file with the number $file\"; done
        head -c 50000 /dev/urandom >large; cd ..; umount mounted";
    images.script(&format!("{MOUNT}{recipe}"), ["16M"]);
    Some(images)
}

/// Returns whether a volume can be opened, is an NTFS, or why not.
fn opened(image: &Path) -> Result<bool, GuestError> {
    let disk = FileDisk::new(File::open(image).unwrap(), image).unwrap();
    let ranges = vec![DiskRange { start_bytes: 0, length_bytes: disk.size_bytes() }];
    let reader = VolumeReader::new(&disk, &Volume { origin: VolumeOrigin::WholeDisk, ranges });
    ntfs::open(&reader).map(|found| found.is_some())
}

fn damaged() -> State {
    State::Unsure(vec![Doubt::MetadataDamaged])
}

#[test]
fn copies_stand_in_for_the_boot_sector_and_the_first_records() {
    let Some(images) = image() else { return };
    let image = images.path("image");
    let expected = with_ntfs(&image, tree);
    write_at(&image, MFT, &[0xee; 512]);
    with_ntfs(&image, |ntfs| assert_eq!((tree(ntfs), ntfs.state()), (expected.clone(), &damaged())));
    // The first clusters of the MFT and of its mirror, and then the whole boot sector.
    for (offset, bytes) in [(48, &[9; 3][..]), (48, &[99, 1, 0, 0, 0, 0, 0, 0, 99, 1]), (0, &[0; 512])] {
        write_at(&image, offset, bytes);
        with_ntfs(&image, |ntfs| {
            assert_eq!((tree(ntfs), ntfs.state()), (expected.clone(), &damaged()));
        });
    }
    let mirror = std::fs::metadata(&image).unwrap().len() / 2 / 4096 * 4096;
    write_at(&image, mirror, &[0xee; 4096]);
    write_at(&image, mirror - 4096, &[0xee; 4096]);
    assert!(matches!(opened(&image), Err(GuestError::Damaged(_))));
}

#[test]
fn other_content_is_no_ntfs() {
    let Some(images) = Images::new() else { return };
    for (name, content) in [("empty", &b""[..]), ("text", &b"text\n".repeat(5000)), ("zeros", &[0; 100_000])] {
        std::fs::write(images.path(name), content).unwrap();
        assert!(!opened(&images.path(name)).unwrap(), "{name}");
    }
}

#[test]
fn damaged_records_and_blocks_are_skipped() {
    let Some(images) = image() else { return };
    let image = images.path("image");
    let files = with_ntfs(&image, tree);
    let (one, many) = (files["many/a file with the number 100"].0, files["many"].0);
    write_at(&image, MFT + one.0 * RECORD_BYTES, &[0xee; 600]);
    with_ntfs(&image, |ntfs| {
        assert!(matches!(ntfs.stat(one), Err(GuestError::Damaged(_))));
        let mut found = 0;
        let outcome = ntfs.each_file(&mut |file, _| {
            found += u64::from((64..1 << 48).contains(&file.0));
            std::ops::ControlFlow::Continue(())
        });
        outcome.unwrap();
        assert_eq!((found, ntfs.damage().count()), (301, 1));
    });
    let mut block = 0;
    with_ntfs(&image, |ntfs| {
        ntfs.each_extent(many, &mut |extent| {
            block = extent.place;
            std::ops::ControlFlow::Break(())
        })
        .unwrap();
    });
    write_at(&image, block + 100, &[0xee; 600]);
    with_ntfs(&image, |ntfs| {
        let (mut listed, mut found) = (0, 0);
        ntfs.each_entry(many, &mut |entry| {
            found += u32::from(ntfs.look_up(many, &entry.name).unwrap() == Some(entry.file));
            listed += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert!(listed > 200 && listed < 300, "{listed}");
        assert_eq!(found, listed);
        assert!(ntfs.damage().count() > 0);
    });
}

#[test]
fn nothing_is_free_that_a_file_has_or_a_damaged_bitmap_says() {
    let Some(images) = image() else { return };
    let image = images.path("image");
    let extents = |number| {
        let mut extents = Vec::new();
        with_ntfs(&image, |ntfs| {
            let outcome = ntfs.each_extent(number, &mut |extent| {
                extents.push(extent);
                std::ops::ControlFlow::Continue(())
            });
            outcome.unwrap();
        });
        extents
    };
    let class_at = |place: u64| {
        let map = with_ntfs(&image, |ntfs| ntfs.allocation().unwrap());
        map.iter().find(|run| run.end_bytes() > place).unwrap().class
    };
    let large = extents(with_ntfs(&image, |ntfs| tree(ntfs)["large"].0))[0].place;
    let bitmap = extents(FileNumber(6))[0].place;
    let problems = || {
        with_ntfs(&image, |ntfs| {
            ntfs.allocation().unwrap();
            ntfs.damage().first().iter().map(|damage| damage.problem).collect::<Vec<_>>()
        })
    };
    assert_eq!(problems(), Vec::<&str>::new());
    let map = with_ntfs(&image, |ntfs| ntfs.allocation().unwrap());
    let is_free = |run: &&Allocation| run.class == AllocationClass::Free && run.length_bytes > 1 << 20;
    let byte = (map.iter().find(is_free).unwrap().start_bytes / 4096).div_ceil(8);
    write_at(&image, bitmap + byte, &[0xff]);
    assert_eq!(class_at(byte * 8 * 4096), AllocationClass::Data);
    assert_eq!(problems(), ["clusters are allocated that no file has"]);
    write_at(&image, bitmap, &vec![0; 512]);
    assert_eq!(class_at(large), AllocationClass::Data);
    assert!(problems().contains(&"a file has clusters that are free in the bitmap"));
    // All clusters of files among those of the bitmap's first bytes.
    let reached = with_ntfs(&image, |ntfs| {
        let map = ntfs.allocation().unwrap();
        let used = map.iter().take_while(|run| run.start_bytes < 512 * 8 * 4096);
        let used = used.filter(|run| run.class != AllocationClass::Free && run.class != AllocationClass::Outside);
        let used: u64 = used.map(|run| run.end_bytes().min(512 * 8 * 4096) - run.start_bytes).sum();
        (ntfs.allocation_differences().unwrap().reached_bytes, used)
    });
    assert_eq!(reached.0, reached.1);
    write_at(&image, MFT + 6 * RECORD_BYTES, &[0xee; 600]);
    let map = with_ntfs(&image, |ntfs| ntfs.allocation().unwrap());
    assert!(map.iter().all(|run| run.class != AllocationClass::Free));
    assert_eq!(map.last().unwrap().end_bytes(), std::fs::metadata(&image).unwrap().len());
}

/// The bitmap has no checksum, and may call clusters free that a file has behind the damage.
#[test]
fn a_file_that_is_lost_leaves_nothing_free() {
    if !tools() {
        return;
    }
    let Some(images) = Images::new() else { return };
    // So many links take more than one record.
    let recipe =
        "head -c 50000 /dev/urandom >large; for link in $(seq 60); do ln large \"a link with the number $link\"; done
        cd ..; umount mounted";
    images.script(&format!("{MOUNT}{recipe}"), ["16M"]);
    let image = images.path("image");
    let large = with_ntfs(&image, tree)["large"].0;
    let has_free = || {
        let map = with_ntfs(&image, |ntfs| ntfs.allocation().unwrap());
        map.iter().any(|run| run.class == AllocationClass::Free)
    };
    assert!(has_free());
    let bytes = std::fs::read(&image).unwrap();
    let record = |number: u64| {
        let place = usize::try_from(MFT + number * RECORD_BYTES).unwrap();
        &bytes[place..place + 1024]
    };
    // The record that has the map, and its number. The base record has it, or names the others in its list.
    let is_part = |number: &u64| record(*number)[32..38] == large.0.to_le_bytes()[..6];
    let other = (64..200).find(is_part).expect("a second record");
    let has_map = |number: &u64| {
        let (record, mut at) = (record(*number), usize::from(record(*number)[20]));
        while record[at] < 0x80 {
            at += usize::from(record[at + 4]) + (usize::from(record[at + 5]) << 8);
        }
        record[at] == 0x80
    };
    let mapping = [large.0, other].into_iter().find(has_map).expect("a map");
    let place = |number: u64| MFT + number * RECORD_BYTES;
    for number in [large.0, other] {
        // Its fix-ups, and the whole record: the list of attributes names one that is no more.
        write_at(&image, place(number) + 510, &[record(number)[510] ^ 1]);
        assert!(!has_free(), "{number}");
        write_at(&image, place(number), record(number));
    }
    write_at(&image, place(other), &[0; 1024]);
    assert!(!has_free(), "a record is lost without a trace");
    write_at(&image, place(other), record(other));
    // The mapping pairs end too early, or make no sense.
    for pair in [0, 0x11] {
        change_attribute(&image, mapping, 0x80, |attribute| {
            let pairs = usize::from(attribute[32]);
            attribute[pairs] = pair;
            attribute[pairs + 1] = 0;
        });
        assert!(!has_free(), "{pair}");
        write_at(&image, place(mapping), record(mapping));
    }
    assert!(has_free());
}

#[test]
fn half_a_volume_is_read_as_far_as_it_goes() {
    let Some(images) = image() else { return };
    let image = images.path("image");
    let expected = with_ntfs(&image, tree);
    File::options().write(true).open(&image).unwrap().set_len(7 << 20).unwrap();
    with_ntfs(&image, |ntfs| {
        let found = tree(ntfs);
        assert!(found.contains_key("large") && found.contains_key("many"));
        assert!(found.iter().all(|(path, file)| &expected[path] == file));
        let State::Unsure(doubts) = ntfs.state() else { panic!("it is certain") };
        assert!(doubts.contains(&Doubt::LongerThanVolume));
        let map = ntfs.allocation().unwrap();
        assert_eq!(map.last().unwrap().end_bytes(), 7 << 20);
    });
}

#[test]
fn a_file_that_is_longer_than_its_map_is_read_up_to_there() {
    let Some(images) = image() else { return };
    let image = images.path("image");
    let large = with_ntfs(&image, |ntfs| tree(ntfs)["large"].0);
    change_attribute(&image, large.0, 0x80, |attribute| {
        for at in [40, 48, 56] {
            attribute[at..at + 8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
        }
    });
    with_ntfs(&image, |ntfs| {
        assert_eq!(ntfs.stat(large).unwrap().size_bytes, 1 << 60);
        assert_eq!(ntfs.read(large, 0, &mut [0; 4096]).unwrap(), 4096);
        assert!(matches!(ntfs.read(large, 1 << 50, &mut [0; 4096]), Err(GuestError::Damaged(_))));
        let mut found = 0;
        let outcome = ntfs.each_extent(large, &mut |extent| {
            found += extent.length_bytes;
            std::ops::ControlFlow::Continue(())
        });
        assert!(matches!(outcome, Err(GuestError::Damaged(_))) && found == 13 * 4096, "{outcome:?}");
    });
}

#[test]
fn a_name_does_not_lead_to_the_next_file_of_its_record() {
    let Some(images) = image() else { return };
    let image = images.path("image");
    let files = with_ntfs(&image, tree);
    let one = files["many/a file with the number 100"].0;
    let place = MFT + one.0 * RECORD_BYTES + 16;
    let mut sequence = [0; 2];
    File::open(&image).unwrap().read_exact_at(&mut sequence, place).unwrap();
    write_at(&image, place, &(u16::from_le_bytes(sequence) + 1).to_le_bytes());
    with_ntfs(&image, |ntfs| {
        let many = files["many"].0;
        assert_eq!(ntfs.look_up(many, b"a file with the number 100").unwrap(), None);
        assert_eq!(ntfs.damage().first()[0].problem, "a name leads to a record that another file has now");
        let found = tree(ntfs);
        assert_eq!((found.len(), found.contains_key("many/a file with the number 100")), (files.len() - 1, false));
    });
}

/// A block without names has no sign of the directory that it belongs to.
#[test]
fn a_block_of_an_index_belongs_to_one_directory() {
    if !tools() {
        return;
    }
    let Some(images) = Images::new() else { return };
    let recipe = "mkdir many two; for file in $(seq 300); do echo >many/\"a file with the number $file\"; done
        cd ..; umount mounted";
    images.script(&format!("{MOUNT}{recipe}"), ["16M"]);
    let image = images.path("image");
    let (many, two, blocks) = with_ntfs(&image, |ntfs| {
        let files = tree(ntfs);
        let (many, two, mut blocks) = (files["many"].0, files["two"].0, Vec::new());
        ntfs.each_extent(many, &mut |extent| {
            blocks.extend((extent.place..extent.place + extent.length_bytes).step_by(4096));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        (many, two, blocks)
    });
    assert!(blocks.len() > 8, "{blocks:?}");
    let file = File::open(&image).unwrap();
    // The first entry of each further block becomes its last one, which has no name.
    for place in blocks.into_iter().skip(4) {
        let mut first = [0; 4];
        file.read_exact_at(&mut first, place + 24).unwrap();
        let first = u32::from_le_bytes(first);
        write_at(&image, place + 28, &(first + 16).to_le_bytes());
        write_at(&image, place + 24 + u64::from(first), &[0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0]);
    }
    // The record of one directory, with the sequence and the number of the other.
    let (from, to) = (MFT + many.0 * RECORD_BYTES, MFT + two.0 * RECORD_BYTES);
    let mut record = vec![0; 1024];
    file.read_exact_at(&mut record, from).unwrap();
    for field in [16..18, 44..48] {
        file.read_exact_at(&mut record[field.clone()], to + field.start as u64).unwrap();
    }
    write_at(&image, to, &record);
    with_ntfs(&image, |ntfs| {
        let listed = |directory| {
            let mut names = 0;
            ntfs.each_entry(directory, &mut |_| {
                names += 1;
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
            let problems: Vec<&str> = ntfs.damage().first().iter().map(|damage| damage.problem).collect();
            (names, problems)
        };
        let whole = listed(many);
        assert!(whole.0 > 0 && whole.1.is_empty(), "{whole:?}");
        let (names, mut problems) = listed(two);
        assert_eq!((names, problems.pop()), (0, Some("another directory has the same block")));
        assert!(problems.iter().all(|problem| *problem == "it has names of another directory"), "{problems:?}");
        assert_eq!(ntfs.look_up(two, b"a file with the number 100").unwrap(), None);
        assert_eq!(listed(many).0, whole.0, "it is listed again");
    });
}

#[test]
fn a_directory_that_contains_itself_is_listed_without_itself() {
    let Some(images) = image() else { return };
    let image = images.path("image");
    let many = with_ntfs(&image, |ntfs| tree(ntfs)["many"].0);
    // The root's index has one block, in which the folder's entry begins with its reference.
    let mut block = 0;
    with_ntfs(&image, |ntfs| {
        ntfs.each_extent(ntfs.root(), &mut |extent| {
            block = extent.place;
            std::ops::ControlFlow::Break(())
        })
        .unwrap();
    });
    let file = File::open(&image).unwrap();
    let mut bytes = vec![0; 4096];
    file.read_exact_at(&mut bytes, block).unwrap();
    let at = bytes.windows(6).position(|found| found == &many.0.to_le_bytes()[..6]).unwrap();
    write_at(&image, block + at as u64, &5_u64.to_le_bytes()[..6]);
    with_ntfs(&image, |ntfs| {
        let files = tree(ntfs);
        assert!(files.contains_key("large") && !files.contains_key("many"));
        assert_eq!(ntfs.damage().first()[0].problem, "it contains itself");
    });
}
