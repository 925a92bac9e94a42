//! Other roles of a disk with a partition table: a member of an array that owns the table, or something that was made
//! before or after the table.

use super::{
    NTFS_MAGIC, NotRead, bitlocker, firmware_raid, head, joined, labels, luks, named, raid, windows_dynamic, zfs,
};
use super::{Probes, Recogniser, file_system};
use crate::error::GuestError;
use crate::partition::{PartitionProblem, PartitionTable};
use crate::volume::VolumeReader;

/// Role of a disk in addition to its partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskRole {
    /// A member of an array whose data begins at the start of the disk. The table belongs to the array: its partitions
    /// are not those of the disk.
    Member(NotRead),
    /// Something that cannot be ranked against the table: one of the two is out of date. The text describes it, and may
    /// contain names of the guest. The partitions can be read, but none of their bytes may count as free.
    Doubt(String),
}

/// Kinds that may occupy the whole disk and leave room for an MBR in its first sector.
const BESIDE_A_TABLE: [Recogniser; 7] = [
    raid::recognise_at_start,
    luks::recognise,
    bitlocker::recognise,
    windows_dynamic::recognise,
    named::recognise,
    zfs::recognise,
    labels::recognise,
];

/// Returns the role of a disk in addition to its partitions; `None` if it has no other. `reader` reads the whole disk.
/// A disk that cannot be read gives a doubt.
#[must_use]
pub fn over_disk(reader: &VolumeReader<'_>, table: &PartitionTable) -> Option<DiskRole> {
    found(reader, table).unwrap_or_else(|error| {
        Some(DiskRole::Doubt(format!("the disk may be more than its partitions: it cannot be read: {error}")))
    })
}

fn found(reader: &VolumeReader<'_>, table: &PartitionTable) -> Result<Option<DiskRole>, GuestError> {
    for placed in [raid::placed_at_end, firmware_raid::placed] {
        let Some((at, found)) = placed(reader)? else { continue };
        // An array keeps its superblock outside of its data. In a partition of an intact table, the superblock belongs
        // to that partition, or to a former array; or the array is striped, and the partition continues elsewhere.
        let is_in = table.entries.iter().any(|entry| (entry.place.start_bytes..entry.place.end_bytes()).contains(&at));
        return Ok(Some(if is_in && !table.is_contradictory() { doubt(&found) } else { DiskRole::Member(found) }));
    }
    if table.problems.contains(&PartitionProblem::OtherTable) {
        return Ok(Some(DiskRole::Doubt(PartitionProblem::OtherTable.to_string())));
    }
    for recognise in BESIDE_A_TABLE {
        if let Some(found) = recognise(reader)? {
            return Ok(Some(doubt(&found)));
        }
    }
    if head(reader, 3, NTFS_MAGIC.len())? == NTFS_MAGIC {
        return Ok(Some(doubt(&NotRead::new("NTFS", String::new()))));
    }
    let mut probes = Probes::default();
    let known = file_system(reader, &mut probes)?.map(|system| NotRead::new(system.facts().kind.name(), String::new()));
    match (known, probes.failure) {
        (Some(known), _) => Ok(Some(doubt(&known))),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(None),
    }
}

fn doubt(found: &NotRead) -> DiskRole {
    let what = joined(&[found.name.to_owned(), found.detail.clone()]);
    DiskRole::Doubt(format!("the whole disk is, or was, {what}"))
}
