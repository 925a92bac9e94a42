//! A disk of two volumes with file systems in memory, whose extents the test chooses.

use std::ops::Range;

use onefold_disk::DiskError;

use super::*;
use crate::error::Damage;
use crate::filesystem::{Allocation, AllocationClass, Extent, ExtentKind, TableKind};
use crate::memory::MemoryFileSystem;
use crate::volume::DiskRange;

/// Length of the artificial disk.
const DISK_BYTES: u64 = 1 << 20;

struct Zeros;

impl Disk for Zeros {
    fn size_bytes(&self) -> u64 {
        DISK_BYTES
    }

    fn next_data(&self, _: u64) -> Result<Option<Range<u64>>, DiskError> {
        Ok(None)
    }

    fn read(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
        into.fill(0);
        Ok(())
    }
}

fn extent(offset: u64, length_bytes: u64, place: u64, kind: ExtentKind) -> Extent {
    Extent { offset, length_bytes, place, kind }
}

/// Returns a volume with files of these lengths and extents, numbered from 1. A file without extents is damaged.
fn volume(number: u32, ranges: &[(u64, u64)], files: Vec<(u64, Vec<Extent>)>) -> GuestVolume<'static> {
    with_maps(number, ranges, |maps| {
        for (name, (size_bytes, extents)) in files.into_iter().enumerate() {
            let file = maps.write(&format!("/{name}"), "");
            maps.stat_mut(file).unwrap().size_bytes = size_bytes;
            if extents.is_empty() {
                maps.fail_extents(file, || made_up("extent tree"));
            } else {
                maps.set_extents(file, extents);
            }
        }
    })
}

fn made_up(structure: &'static str) -> GuestError {
    Damage { place: 7, structure, problem: "it is made up" }.into()
}

/// Returns a volume whose file system `change` changes.
fn with_maps(number: u32, ranges: &[(u64, u64)], change: impl FnOnce(&mut MemoryFileSystem)) -> GuestVolume<'static> {
    let ranges: Vec<DiskRange> =
        ranges.iter().map(|&(start_bytes, length_bytes)| DiskRange { start_bytes, length_bytes }).collect();
    let volume = Volume { origin: VolumeOrigin::Partition { number }, ranges };
    let run = |start_bytes, end: u64, class| Allocation { start_bytes, length_bytes: end - start_bytes, class };
    let allocation = vec![
        run(0, 4096, AllocationClass::Table(TableKind::Inodes)),
        run(4096, 65536, AllocationClass::Data),
        run(65536, volume.size_bytes(), AllocationClass::Free),
    ];
    let mut maps = MemoryFileSystem::default();
    maps.facts_mut().size_bytes = volume.size_bytes();
    maps.set_allocation(allocation);
    change(&mut maps);
    let reader = VolumeReader::new(&Zeros, &volume);
    GuestVolume { volume, partition: None, reader, content: VolumeContent::FileSystem(Box::new(maps)) }
}

/// A partition, and another one in two pieces before and behind it.
fn guest() -> Guest<'static> {
    let written = ExtentKind::Written;
    let plain = volume(
        1,
        &[(262_144, 131_072)],
        vec![
            (5000, vec![extent(0, 8192, 8192, written)]),
            (0, Vec::new()),
            (60, vec![extent(0, 60, 100, ExtentKind::Inline)]),
            (4096, vec![extent(0, 4096, 4096, ExtentKind::Shared), extent(4096, 4096, 32768, ExtentKind::Unwritten)]),
            (4096, vec![extent(0, 4096, 4096, ExtentKind::Shared)]),
        ],
    );
    let split =
        volume(2, &[(524_288, 65_536), (65_536, 131_072)], vec![(81_920, vec![extent(0, 81_920, 61_440, written)])]);
    Guest::new(&Zeros, None, vec![plain, split], Vec::new())
}

#[test]
fn files_come_in_the_order_of_the_disk_whatever_fits_into_memory() {
    let guest = guest();
    let folder = tempfile::tempdir().unwrap();
    let expected = [
        // (place, length, volume, file, offset, used)
        (65_536, 77_824, 1, 1, 4096, 77_824),
        (262_244, 60, 0, 3, 0, 60),
        (266_240, 4096, 0, 4, 0, 4096),
        (266_240, 4096, 0, 5, 0, 4096),
        (270_336, 8192, 0, 1, 0, 5000),
        (294_912, 4096, 0, 4, 4096, 0),
        (585_728, 4096, 1, 1, 0, 4096),
    ];
    for memory_bytes in [1, 100, 1 << 20] {
        let files = guest.files_in_order(folder.path(), memory_bytes).unwrap();
        let found: Vec<PlacedExtent> = files.map(Result::unwrap).collect();
        let numbers = found.iter().map(|part| {
            let DiskRange { start_bytes, length_bytes } = part.range;
            (start_bytes, length_bytes, part.volume, part.file.0, part.offset, part.used_bytes)
        });
        assert_eq!(numbers.collect::<Vec<_>>(), expected, "{memory_bytes} bytes of memory");
        assert_eq!(found[1].kind, ExtentKind::Inline);
        assert_eq!(found[5].kind, ExtentKind::Unwritten);
    }
    assert_eq!(guest.volumes()[0].file_system().unwrap().damage().count(), 1, "the damaged file is noted and left out");
}

/// Regression: files that shared one map made the temporary files grow with the product of their numbers.
#[test]
fn a_volume_with_more_extents_than_it_has_room_for_is_cut_and_the_others_are_whole() {
    let map: Vec<Extent> = (0..100).map(|at| extent(at * 4096, 4096, 4096, ExtentKind::Written)).collect();
    let hostile = volume(1, &[(262_144, 131_072)], vec![(409_600, map.clone()); 1000]);
    let sound = volume(2, &[(524_288, 131_072)], vec![(409_600, map); 40]);
    let guest = Guest::new(&Zeros, None, vec![hostile, sound], Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let files = guest.files_in_order(folder.path(), 1 << 20).unwrap();
    let found: Vec<usize> = files.map(|part| part.unwrap().volume).collect();
    let of = |volume: usize| found.iter().filter(|found| **found == volume).count();
    assert_eq!((of(0), of(1)), (4096, 4000));
    let noted = |volume: usize| guest.volumes()[volume].file_system().unwrap().damage().count();
    assert_eq!((noted(0), noted(1)), (1, 0));
}

/// Regression: one such volume ended the map of all volumes.
#[test]
fn a_map_that_cannot_be_made_is_damage_and_its_volume_counts_as_allocated() {
    let damaged = with_maps(1, &[(262_144, 131_072)], |maps| {
        maps.fail_allocation(|| made_up("bitmap"));
    });
    let sound = volume(2, &[(524_288, 131_072)], Vec::new());
    let guest = Guest::new(&Zeros, None, vec![damaged, sound], Vec::new());
    let map = guest.disk_map().unwrap();
    let whole = DiskUse::Volume(0, AllocationClass::Doubtful);
    let of_first = |run: &&DiskRun| matches!(run.use_, DiskUse::Volume(0, _));
    let range = DiskRange { start_bytes: 262_144, length_bytes: 131_072 };
    assert_eq!(map.iter().filter(of_first).copied().collect::<Vec<_>>(), [DiskRun { range, use_: whole }]);
    assert!(map.iter().any(|run| run.use_.is_free()), "the other volume has its own map");
    let noted = |at: usize| guest.volumes()[at].file_system().unwrap().damage().first();
    assert_eq!((noted(0).len(), noted(0)[0].place, noted(1).len()), (1, 7, 0));
    assert_eq!(guest.owners(&[262_144]).unwrap()[0].class, Some(AllocationClass::Doubtful));
}

#[test]
fn every_byte_has_its_owners() {
    let guest = guest();
    let places = [270_336 + 4999, 65_536 + 10, 266_240, 0, 262_144 + 120, 393_215, 1 << 30];
    let owners = guest.owners(&places).unwrap();
    let files =
        |at: usize| -> Vec<(u64, u64)> { owners[at].files.iter().map(|file| (file.file.0, file.offset)).collect() };
    assert_eq!(files(0), [(1, 4999)]);
    assert_eq!((owners[1].volume, files(1)), (Some((1, 65_546)), vec![(1, 4106)]));
    assert_eq!(files(2), [(4, 0), (5, 0)]);
    assert_eq!((owners[3].volume, owners[3].class), (None, None));
    assert_eq!((owners[4].class, files(4)), (Some(AllocationClass::Table(TableKind::Inodes)), vec![(3, 20)]));
    assert_eq!((owners[5].class, files(5)), (Some(AllocationClass::Free), Vec::new()));
    assert_eq!(owners[6].volume, None);
}

#[test]
fn files_behind_the_last_wanted_one_are_not_read() {
    let guest = guest();
    let numbers = |owners: Result<Vec<Owner>, GuestError>| -> Vec<Vec<u64>> {
        let of = |owner: &Owner| owner.files.iter().map(|file| file.file.0).collect();
        owners.unwrap().iter().map(of).collect()
    };
    let places = [266_240, 65_536 + 10];
    assert_eq!(numbers(guest.owning_files(&places)), [vec![4, 5], vec![1]]);
    assert_eq!(numbers(guest.owning_regular_files(&places)), [vec![4], vec![1]]);
    // No file has the second byte, which may only be known after all files.
    let places = [266_240, 393_215];
    assert_eq!(numbers(guest.owning_regular_files(&places)), [vec![4, 5], vec![]]);
}

#[test]
fn the_map_of_a_disk_covers_it_and_overlapping_volumes_count_whole() {
    let guest = guest();
    let covered = |guest: &Guest<'_>| {
        let map = guest.disk_map().unwrap();
        assert!(map.is_sorted_by(|one, next| one.range.end_bytes() == next.range.start_bytes));
        assert_eq!(map.iter().map(|run| run.range.length_bytes).sum::<u64>(), DISK_BYTES);
        map
    };
    let free =
        |map: &[DiskRun]| map.iter().filter(|run| run.use_.is_free()).map(|run| run.range.length_bytes).sum::<u64>();
    let map = covered(&guest);
    assert_eq!(map[0].use_, DiskUse::Gap);
    assert_eq!(free(&map), 131_072 - 65_536 + 196_608 - 65_536);
    let mut volumes = guest.volumes;
    volumes.push(volume(3, &[(393_215, 100_000)], Vec::new()));
    let guest = Guest::new(&Zeros, None, volumes, Vec::new());
    assert_eq!(free(&covered(&guest)), 131_072, "only the volume that nobody overlaps has free bytes");
    let owners = guest.owners(&[393_214, 196_607]).unwrap();
    let classes: Vec<_> = owners.iter().map(|owner| owner.class).collect();
    let (doubtful, free) = (Some(AllocationClass::Doubtful), Some(AllocationClass::Free));
    assert_eq!(classes, [doubtful, free], "no byte of a volume that counts whole is free");
}

/// A group whose physical and logical volumes are these.
fn group(physical: &[usize], logical: &[usize], free: &[(u64, u64)]) -> Group {
    let free = free.iter().map(|&(start_bytes, length_bytes)| DiskRange { start_bytes, length_bytes }).collect();
    let group = VolumeGroup {
        name: "vg".to_owned(),
        uuid: String::new(),
        sequence: 1,
        physical: Vec::new(),
        doubts: Vec::new(),
        unsure: Vec::new(),
        logical: Vec::new(),
        free,
    };
    Group { group, physical: physical.to_vec(), logical: logical.to_vec() }
}

#[test]
fn a_logical_volume_overlaps_no_physical_volume_of_its_own_group() {
    let volumes = |ranges: &[(u64, u64)]| -> Vec<GuestVolume<'static>> {
        (1..).zip(ranges).map(|(number, range)| volume(number, &[*range], Vec::new())).collect()
    };
    let overlapping = |ranges: &[(u64, u64)], groups: &[Group]| overlap::overlapping(&volumes(ranges), groups);
    let apart = [(0, 100_000), (100_000, 100_000), (20_000, 70_000), (120_000, 70_000)];
    let (one, two) = (group(&[0], &[2], &[]), group(&[1], &[3], &[]));
    assert_eq!(overlapping(&apart, &[one, two]), [false; 4]);
    let (one, two) = (group(&[0], &[3], &[]), group(&[1], &[2], &[]));
    assert_eq!(overlapping(&apart, &[one, two]), [true; 4], "each lies in a disk of the other group");
    assert_eq!(overlapping(&apart, &[group(&[0], &[2], &[])]), [false, true, false, true]);
    let nested = [(0, 400_000), (200_000, 80_000), (20_000, 70_000), (205_000, 66_000), (500_000, 70_000)];
    let (one, two) = (group(&[0], &[2], &[]), group(&[1], &[3], &[]));
    assert_eq!(
        overlapping(&nested, &[one, two]),
        [true, true, true, true, false],
        "and so does what lies elsewhere in them"
    );
}

#[test]
fn volumes_of_a_group_that_is_unsure_count_whole() {
    let mut groups = [group(&[], &[1], &[])];
    groups[0].group.unsure.push("it is made up".to_owned());
    let Guest { volumes, .. } = guest();
    let guest = Guest::new(&Zeros, None, volumes, groups.into());
    assert_eq!([guest.counts_whole(0), guest.counts_whole(1)], [false, true]);
    let why = guest.whole_because(1).unwrap();
    assert!(guest.whole_because(0).is_none() && why.contains(": it is made up"), "{why}");
    let owner = guest.owners(&[196_607]).unwrap().remove(0);
    assert_eq!(owner.class, Some(AllocationClass::Doubtful));
}

/// The map of the first volume is split at its pieces, between which the second volume is.
#[test]
fn the_map_of_a_volume_in_pieces_is_in_the_order_of_the_disk() {
    let volumes = vec![
        volume(1, &[(524_288, 65_536), (65_536, 131_072)], Vec::new()),
        volume(2, &[(196_608, 131_072)], Vec::new()),
    ];
    let guest = Guest::new(&Zeros, None, volumes, Vec::new());
    let inodes = AllocationClass::Table(TableKind::Inodes);
    let (data, free) = (AllocationClass::Data, AllocationClass::Free);
    let expected = [
        (0, 65_536, DiskUse::Gap),
        (65_536, 131_072, DiskUse::Volume(0, free)),
        (196_608, 4096, DiskUse::Volume(1, inodes)),
        (200_704, 61_440, DiskUse::Volume(1, data)),
        (262_144, 65_536, DiskUse::Volume(1, free)),
        (327_680, 196_608, DiskUse::Gap),
        (524_288, 4096, DiskUse::Volume(0, inodes)),
        (528_384, 61_440, DiskUse::Volume(0, data)),
        (589_824, DISK_BYTES - 589_824, DiskUse::Gap),
    ];
    let map = guest.disk_map().unwrap();
    let found: Vec<(u64, u64, DiskUse)> =
        map.iter().map(|run| (run.range.start_bytes, run.range.length_bytes, run.use_)).collect();
    assert_eq!(found, expected);
    let mut visited = 0;
    let stopped = guest.each_run(&mut |_| {
        visited += 1;
        if visited < 3 { Ok(()) } else { Err(GuestError::NotFound) }
    });
    assert!(matches!(stopped, Err(GuestError::NotFound)) && visited == 3);
}
