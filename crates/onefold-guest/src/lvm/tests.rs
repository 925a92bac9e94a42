//! Groups with artificial descriptions on one disk of zeros.

use std::ops::Range;
use std::sync::Arc;

use onefold_disk::{Disk, DiskError};

use super::*;
use crate::error::Damage;

const MIB: u64 = 1 << 20;

struct Zeros;

impl Disk for Zeros {
    fn size_bytes(&self) -> u64 {
        64 * MIB
    }

    fn next_data(&self, _: u64) -> Result<Option<Range<u64>>, DiskError> {
        Ok(None)
    }

    fn read(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
        into.fill(0);
        Ok(())
    }
}

type MemberVolume = (VolumeReader<'static>, PhysicalVolume);

/// Returns a physical volume of 16 MiB from MiB `start` on, with one metadata area in its first MiB.
fn physical(uuid: &str, start: u64, text: Option<&str>) -> MemberVolume {
    let ranges = vec![DiskRange { start_bytes: start * MIB, length_bytes: 16 * MIB }];
    let reader = VolumeReader::new(&Zeros, &Volume { origin: VolumeOrigin::WholeDisk, ranges });
    let description = text.map(|text| Arc::new(Description::parse(text.as_bytes()).unwrap()));
    let text_bytes = text.map_or(0, |text| text.len() as u64);
    let areas = vec![(4096, MIB - 4096)];
    let volume = PhysicalVolume { uuid: uuid.into(), damage: Vec::new(), description, text_bytes, areas };
    (reader, volume)
}

/// Returns the text of a group with extents of 1 MiB. Its only volume takes the first 4 of the first disk.
fn text(name: &str, disks: &[&str], start_sectors: u64) -> String {
    let disk = |(at, uuid): (usize, &&str)| {
        format!("pv{at} {{ id = \"{uuid}\" device = \"/dev/{uuid}\" pe_start = {start_sectors} pe_count = 8 }}\n")
    };
    let disks: String = disks.iter().enumerate().map(disk).collect();
    format!(
        "{name} {{ id = \"id-{name}\" seqno = 3 extent_size = 2048 physical_volumes {{ {disks} }}
        logical_volumes {{ root {{ status = [\"VISIBLE\"] segment1 {{ start_extent = 0 extent_count = 4
        type = \"striped\" stripe_count = 1 stripes = [\"pv0\", 0] }} }} }} }}"
    )
}

fn is_read(group: &VolumeGroup) -> bool {
    matches!(group.logical[0].mapping, LogicalMapping::Read(_))
}

#[test]
fn stale_metadata_frees_nothing_of_another_group() {
    let stale = text("old", &["u", "v"], 2048);
    let own = text("new", &["u"], 2048);
    let groups = volume_groups(&[physical("u", 1, Some(&own)), physical("v", 20, Some(&stale))]);
    let [new, old] = &groups[..] else { panic!("{groups:?}") };
    assert_eq!((new.name.as_str(), is_read(new), new.unsure.len(), new.free.len()), ("new", true, 1, 0), "{new:?}");
    assert_eq!((old.doubts.len(), is_read(old), old.free.len()), (1, false, 0), "{old:?}");
}

#[test]
fn a_disk_without_metadata_belongs_to_one_group_at_most() {
    let (one, two) = (text("one", &["u", "v"], 2048), text("two", &["u", "w"], 2048));
    let disks = [physical("u", 1, None), physical("v", 20, Some(&one)), physical("w", 40, Some(&two))];
    let groups = volume_groups(&disks);
    assert!(groups.iter().all(|group| group.doubts.len() == 1 && !is_read(group) && group.free.is_empty()));
    let [group] = &volume_groups(&disks[..2])[..] else { panic!() };
    let free: Vec<(u64, u64)> = group.free.iter().map(|range| (range.start_bytes, range.length_bytes)).collect();
    assert_eq!((is_read(group), free), (true, vec![(6 * MIB, 4 * MIB), (21 * MIB, 8 * MIB)]));
}

#[test]
fn extents_on_metadata_and_damaged_copies_free_nothing() {
    for (start_sectors, is_sound) in [(0, false), (3, false), (100, false), (2047, false), (2048, true)] {
        let text = text("vg", &["u"], start_sectors);
        let mut disks = [physical("u", 1, Some(&text))];
        let group = volume_groups(&disks).remove(0);
        assert_eq!((group.doubts.is_empty(), group.free.is_empty()), (is_sound, !is_sound), "sector {start_sectors}");
        disks[0].1.damage.push(Damage { place: 0, structure: "LVM2 metadata area", problem: "it is made up" });
        let group = volume_groups(&disks).remove(0);
        assert_eq!((is_read(&group), group.unsure.len(), group.free.len()), (is_sound, 1, 0), "sector {start_sectors}");
    }
}

#[test]
fn all_volumes_of_a_disk_share_one_limit_of_pieces() {
    let text = text("vg", &["u"], 2048);
    let disks = [physical("u", 1, Some(&text))];
    let description = disks[0].1.description.as_ref().unwrap();
    let members: Vec<&MemberVolume> = disks.iter().collect();
    let Ok(extents) = Extents::new(description, &members) else { panic!("the group is sound") };
    let mut pieces_left = 1;
    assert_eq!(extents.ranges(&description.logical[0], &mut pieces_left).map(|ranges| ranges.len()), Ok(1));
    assert!(extents.ranges(&description.logical[0], &mut pieces_left).is_err());
}

#[test]
fn reasons_stay_short_whatever_is_missing() {
    let device = "d".repeat(10_000);
    let disks: Vec<&str> = std::iter::repeat_n(device.as_str(), 100).collect();
    let group = volume_groups(&[physical("u", 1, Some(&text("vg", &disks, 2048)))]).remove(0);
    assert_eq!((group.doubts.len(), group.doubts[4].as_str()), (5, "96 more of this kind"));
    let LogicalMapping::NotRead(reason) = &group.logical[0].mapping else { panic!() };
    assert!(reason.len() < 300 && group.doubts.iter().all(|doubt| doubt.len() < 300));
    assert_eq!(Description::parse(text(&"n".repeat(256), &[], 2048).as_bytes()), None);
}

#[test]
fn descriptions_past_the_limit_of_a_disk_are_dropped() {
    let text = text("vg", &["u", "v"], 2048);
    let mut disks = [physical("u", 1, Some(&text)), physical("v", 20, Some(&text))];
    let mut bytes_left = text.len() as u64 + 10;
    for (reader, volume) in &mut disks {
        volume.charge(reader, &mut bytes_left);
    }
    assert_eq!((bytes_left, disks[0].1.group(), disks[1].1.group()), (0, Some("vg"), None));
    let [group] = &volume_groups(&disks)[..] else { panic!() };
    assert_eq!((is_read(group), group.unsure.len(), group.free.len()), (true, 1, 0));
}
