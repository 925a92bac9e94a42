//! LVM2: logical volumes over the physical volumes of one disk.
//!
//! | part | does |
//! |---|---|
//! | `label` | finds a physical volume and the newest metadata in it |
//! | `text` | parses the form of the metadata |
//! | `description` | what the metadata says of a volume group |
//! | `extents` | where the extents of logical volumes lie on the disk, and which ones are free |
//!
//! Linear and striped logical volumes are read. All others are named, and so are all of a group that lacks a physical
//! volume: its newest metadata may be on the missing one. What is not read is counted whole.

mod description;
mod extents;
mod label;
mod text;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use description::{Description, Logical};
use extents::Extents;
pub use label::PhysicalVolume;

use crate::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};

/// A volume group, as far as it is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeGroup {
    /// Its name. Text of the guest, as all names here.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// The sequence number of its newest metadata.
    pub sequence: u64,
    /// Which of the physical volumes that were given belong to it.
    pub physical: Vec<usize>,
    /// Why nothing of the group is read, such as a missing disk; empty where its logical volumes are.
    pub doubts: Vec<String>,
    /// Its visible logical volumes, in the order of the metadata.
    pub logical: Vec<LogicalVolume>,
    /// Where its free extents lie on the disk, in order. Everything else in its physical volumes is in use.
    pub free: Vec<DiskRange>,
}

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalVolume {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Where its content lies.
    pub mapping: LogicalMapping,
}

/// Where the content of a logical volume lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogicalMapping {
    /// In ranges of the disk.
    Read(Volume),
    /// Somewhere that no reader here finds, for this reason.
    NotRead(String),
}

/// Returns the volume groups that the physical volumes of a disk make up, by name. A physical volume that no group takes
/// is in none of them.
#[must_use]
pub fn volume_groups(physical: &[(VolumeReader<'_>, PhysicalVolume)]) -> Vec<VolumeGroup> {
    let mut newest: BTreeMap<(&str, &str), &Description> = BTreeMap::new();
    for description in physical.iter().filter_map(|(_, volume)| volume.description.as_ref()) {
        let known = newest.entry((&description.name, &description.uuid)).or_insert(description);
        if known.sequence < description.sequence {
            *known = description;
        }
    }
    newest.into_values().map(|description| group(description, physical)).collect()
}

fn group(description: &Description, given: &[(VolumeReader<'_>, PhysicalVolume)]) -> VolumeGroup {
    let mut by_uuid: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, (_, volume)) in given.iter().enumerate() {
        by_uuid.entry(&volume.uuid).or_default().push(at);
    }
    let (mut doubts, mut members, mut readers) = (Vec::new(), Vec::new(), Vec::new());
    for wanted in &description.physical {
        let found = by_uuid.remove(wanted.uuid.as_str()).unwrap_or_default();
        match found[..] {
            [] => doubts.push(format!("its disk {} ({}) is missing", wanted.uuid, wanted.device)),
            [at] => readers.extend(given.get(at).map(|(reader, _)| reader)),
            _ => doubts.push(format!("its disk {} is there {} times", wanted.uuid, found.len())),
        }
        members.extend(found);
    }
    let extents = doubts.is_empty().then(|| Extents::new(description, &readers)).and_then(|extents| match extents {
        Ok(extents) => Some(extents),
        Err(problem) => {
            doubts.push(problem);
            None
        }
    });
    let needed: BTreeSet<&str> = description.logical.iter().flat_map(needs).collect();
    let logical = description.logical.iter().filter(|logical| logical.is_visible);
    VolumeGroup {
        name: description.name.clone(),
        uuid: description.uuid.clone(),
        sequence: description.sequence,
        physical: members,
        logical: logical.map(|logical| volume(logical, description, extents.as_ref(), &needed, &doubts)).collect(),
        free: extents.map(|extents| extents.free()).unwrap_or_default(),
        doubts,
    }
}

/// Returns the names of the logical volumes that one needs.
fn needs(logical: &Logical) -> impl Iterator<Item = &str> {
    logical.segments.iter().flat_map(|segment| &segment.needs).map(String::as_str)
}

fn volume(
    logical: &Logical,
    description: &Description,
    extents: Option<&Extents<'_, '_>>,
    needed: &BTreeSet<&str>,
    doubts: &[String],
) -> LogicalVolume {
    let count = logical.segments.iter().fold(0_u64, |sum, segment| sum.saturating_add(segment.extents));
    let mapping = match extents {
        None => LogicalMapping::NotRead(doubts.join("; ")),
        Some(extents) => mapping(logical, description, extents, needed),
    };
    LogicalVolume {
        name: logical.name.clone(),
        uuid: logical.uuid.clone(),
        size_bytes: count.saturating_mul(description.extent_bytes),
        mapping,
    }
}

fn mapping(
    logical: &Logical,
    description: &Description,
    extents: &Extents<'_, '_>,
    needed: &BTreeSet<&str>,
) -> LogicalMapping {
    if let Some(segment) = logical.segments.iter().find(|segment| !segment.is_striped()) {
        let missing = segment.needs.join(", ");
        let through = if missing.is_empty() { missing } else { format!(", through {missing}") };
        return LogicalMapping::NotRead(format!("it is of the type {}{through}", segment.kind));
    }
    if let Some(origin) = &logical.snapshot_of {
        return LogicalMapping::NotRead(format!("it is a snapshot of {origin}"));
    }
    // A snapshot reads old content from the blocks of its origin, those that are free in the origin too.
    if needed.contains(logical.name.as_str()) {
        return LogicalMapping::NotRead("another volume of its group is made of it".to_owned());
    }
    match extents.ranges(logical) {
        Ok(ranges) => {
            let origin = VolumeOrigin::Logical { group: description.name.clone(), name: logical.name.clone() };
            LogicalMapping::Read(Volume { origin, ranges })
        }
        Err(problem) => LogicalMapping::NotRead(problem.to_owned()),
    }
}
