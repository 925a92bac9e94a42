//! What a whole disk is that has a partition table as well: a member of an array whose table it is, or something else
//! that was made before or after the table.

use super::{NTFS_MAGIC, NotRead, bitlocker, firmware_raid, head, joined, luks, named, raid, windows_dynamic, zfs};
use super::{Recognise, file_system};
use crate::error::GuestError;
use crate::partition::PartitionTable;
use crate::volume::VolumeReader;

/// What a disk with a partition table is besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverDisk {
    /// A member of an array, whose data begins with the disk. The table is that of the array: its partitions are not
    /// those of the disk.
    Member(NotRead),
    /// Something that nobody can tell from the table: one of the two is the former one. The text says what, and may
    /// have names of the guest. The partitions can be read, but none of their bytes may be called free.
    Doubt(String),
}

/// What may lie over a disk and leave room for an MBR in its first sector.
const BESIDE_A_TABLE: [Recognise; 6] = [
    raid::recognise_at_start,
    luks::recognise,
    bitlocker::recognise,
    windows_dynamic::recognise,
    named::recognise,
    zfs::recognise,
];

/// Returns what a disk is besides its partitions; `None` if it is nothing else. `reader` is that of the whole disk.
/// A disk that cannot be read leaves a doubt.
#[must_use]
pub fn over_disk(reader: &VolumeReader<'_>, table: &PartitionTable) -> Option<OverDisk> {
    found(reader, table).unwrap_or_else(|error| {
        Some(OverDisk::Doubt(format!("the disk may be more than its partitions: it cannot be read: {error}")))
    })
}

fn found(reader: &VolumeReader<'_>, table: &PartitionTable) -> Result<Option<OverDisk>, GuestError> {
    for placed in [raid::placed_at_end, firmware_raid::placed] {
        let Some((at, found)) = placed(reader)? else { continue };
        // An array keeps its superblock out of its data. In a partition of a sound table it is that of the partition,
        // or of a former array; or the array is striped, and the partition goes on elsewhere.
        let is_in = table.entries.iter().any(|entry| (entry.place.start_bytes..entry.place.end_bytes()).contains(&at));
        return Ok(Some(if is_in && !table.is_contradictory() { doubt(&found) } else { OverDisk::Member(found) }));
    }
    for recognise in BESIDE_A_TABLE {
        if let Some(found) = recognise(reader)? {
            return Ok(Some(doubt(&found)));
        }
    }
    if head(reader, 3, NTFS_MAGIC.len())? == NTFS_MAGIC {
        return Ok(Some(doubt(&NotRead::new("NTFS", String::new()))));
    }
    let known = file_system(reader)?.map(|system| NotRead::new(system.facts().kind.name(), String::new()));
    Ok(known.as_ref().map(doubt))
}

fn doubt(found: &NotRead) -> OverDisk {
    let what = joined(&[found.name.to_owned(), found.detail.clone()]);
    OverDisk::Doubt(format!("the whole disk is, or was, {what}"))
}
