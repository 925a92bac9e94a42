//! LVM2: logical volumes over the physical volumes of one disk.
//!
//! | part | does |
//! |---|---|
//! | `label` | finds a physical volume and the newest metadata in it |
//! | `text` | parses the form of the metadata |
//! | `description` | what the metadata says of a volume group |
//! | `extents` | where the extents of logical volumes lie on the disk, and which ones are free |
//!
//! Linear and striped logical volumes are read. All others are named. If a group lacks a physical volume, its logical
//! volumes are only named, too, because its newest metadata may be on the missing one. Volumes that are not read count
//! as allocated.

mod description;
mod extents;
mod label;
mod text;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use description::{Description, Logical};
use extents::{Extents, PIECES_OF_DISK_MAX};
pub use label::PhysicalVolume;
pub(crate) use label::TEXT_BYTES_OF_DISK_MAX;

use crate::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};

/// Maximum number of reasons that are reported for one group.
const REASONS_MAX: usize = 4;
/// Maximum length of a reason in bytes.
const REASON_BYTES_MAX: usize = 250;

/// The part of a volume group that is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeGroup {
    /// Its name. Text of the guest, as all names here.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// The sequence number of its newest metadata.
    pub sequence: u64,
    /// Which of the given physical volumes belong to it.
    pub physical: Vec<usize>,
    /// Reasons why nothing of the group is read, such as a missing disk; empty if its logical volumes are read.
    pub doubts: Vec<String>,
    /// Reasons why its metadata may be out of date, such as a damaged copy. Its logical volumes are still read, but
    /// none of their maps proves that a block is free.
    pub unsure: Vec<String>,
    /// Its visible logical volumes, in the order of the metadata.
    pub logical: Vec<LogicalVolume>,
    /// Places of its free extents on the disk, in order; empty if anything is unsure. Everything else in its physical
    /// volumes is in use.
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
    /// Places of its content.
    pub mapping: LogicalMapping,
}

/// Places of the content of a logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogicalMapping {
    /// In ranges of the disk.
    Read(Volume),
    /// No reader here finds the content, for this reason.
    NotRead(String),
}

/// Returns the volume groups that the physical volumes of a disk form, by name. A physical volume without a group is in
/// none of them.
#[must_use]
pub fn volume_groups(physical: &[(VolumeReader<'_>, PhysicalVolume)]) -> Vec<VolumeGroup> {
    let mut newest: BTreeMap<(&str, &str), &Description> = BTreeMap::new();
    for description in physical.iter().filter_map(|(_, volume)| volume.description.as_deref()) {
        let known = newest.entry((&description.name, &description.uuid)).or_insert(description);
        if known.sequence < description.sequence {
            *known = description;
        }
    }
    let mut claims: HashMap<&str, usize> = HashMap::new();
    for wanted in newest.values().flat_map(|description| &description.physical) {
        *claims.entry(&wanted.uuid).or_default() += 1;
    }
    let mut pieces_left = PIECES_OF_DISK_MAX;
    newest.into_values().map(|description| group(description, physical, &claims, &mut pieces_left)).collect()
}

/// Returns a group. `given` are all physical volumes of the disk; `claims` contains how many groups name each UUID;
/// `pieces_left` is the rest of the limit for pieces of all volumes of the disk.
fn group(
    description: &Description,
    given: &[(VolumeReader<'_>, PhysicalVolume)],
    claims: &HashMap<&str, usize>,
    pieces_left: &mut u64,
) -> VolumeGroup {
    let Members { mut doubts, mut unsure, places, found } = members(description, given, claims);
    let extents = doubts.is_empty().then(|| Extents::new(description, &found)).and_then(|extents| match extents {
        Ok(extents) => Some(extents),
        Err(problem) => {
            doubts.push(problem);
            None
        }
    });
    shorten(&mut doubts);
    shorten(&mut unsure);
    let reason = cut(doubts.join("; "));
    let needed: BTreeSet<&str> = description.logical.iter().flat_map(needs).collect();
    let logical = description.logical.iter().filter(|logical| logical.is_visible);
    VolumeGroup {
        name: description.name.clone(),
        uuid: description.uuid.clone(),
        sequence: description.sequence,
        physical: places,
        logical: logical
            .map(|logical| volume(logical, description, extents.as_ref(), &needed, &reason, pieces_left))
            .collect(),
        free: extents.filter(|_| unsure.is_empty()).map(|extents| extents.free()).unwrap_or_default(),
        doubts,
        unsure,
    }
}

/// The physical volumes of a group.
struct Members<'p, 'd> {
    doubts: Vec<String>,
    unsure: Vec<String>,
    /// Their indices among those of the disk.
    places: Vec<usize>,
    /// All of them, in the order of the description, if there is no doubt.
    found: Vec<&'p (VolumeReader<'d>, PhysicalVolume)>,
}

fn members<'p, 'd>(
    description: &Description,
    given: &'p [(VolumeReader<'d>, PhysicalVolume)],
    claims: &HashMap<&str, usize>,
) -> Members<'p, 'd> {
    let mut by_uuid: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, (_, volume)) in given.iter().enumerate() {
        by_uuid.entry(&volume.uuid).or_default().push(at);
    }
    let mut members = Members { doubts: Vec::new(), unsure: Vec::new(), places: Vec::new(), found: Vec::new() };
    for wanted in &description.physical {
        let uuid = wanted.uuid.as_str();
        let places = by_uuid.remove(uuid).unwrap_or_default();
        match places[..] {
            [] => members.doubts.push(format!("its disk {uuid} ({}) is missing", wanted.device)),
            [at] => members.found.extend(given.get(at)),
            _ => members.doubts.push(format!("its disk {uuid} is there {} times", places.len())),
        }
        members.places.extend(places);
    }
    for (_, volume) in &members.found {
        let uuid = &volume.uuid;
        let own = volume.description.as_ref();
        let is_shared = claims.get(uuid.as_str()).is_some_and(|claims| *claims > 1);
        match own.map(|own| own.name == description.name && own.uuid == description.uuid) {
            Some(false) => members.doubts.push(format!("its disk {uuid} belongs to another group")),
            None if is_shared => members.doubts.push(format!("another group has its disk {uuid}, too")),
            Some(true) if is_shared => members.unsure.push(format!("another group has its disk {uuid}, too")),
            _ => {}
        }
        if !volume.damage.is_empty() {
            members.unsure.push(format!("a copy of its metadata on its disk {uuid} is damaged"));
        }
    }
    members
}

/// Keeps the first few reasons, limits their length, and adds the number of further ones.
fn shorten(reasons: &mut Vec<String>) {
    let more = reasons.len().saturating_sub(REASONS_MAX);
    reasons.truncate(REASONS_MAX);
    for reason in &mut *reasons {
        *reason = cut(std::mem::take(reason));
    }
    if more > 0 {
        reasons.push(format!("{more} more of this kind"));
    }
}

/// Returns a text, truncated if it is long. Each logical volume has its own copy.
fn cut(mut text: String) -> String {
    if text.len() > REASON_BYTES_MAX {
        text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
        text.push('…');
    }
    text
}

/// Returns the names of the logical volumes that `logical` needs.
fn needs(logical: &Logical) -> impl Iterator<Item = &str> {
    logical.segments.iter().flat_map(|segment| &segment.needs).map(String::as_str)
}

fn volume(
    logical: &Logical,
    description: &Description,
    extents: Option<&Extents<'_, '_>>,
    needed: &BTreeSet<&str>,
    reason: &str,
    pieces_left: &mut u64,
) -> LogicalVolume {
    let count = logical.segments.iter().fold(0_u64, |sum, segment| sum.saturating_add(segment.extents));
    let mapping = match extents {
        None => LogicalMapping::NotRead(reason.to_owned()),
        Some(extents) => mapping(logical, description, extents, needed, pieces_left),
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
    pieces_left: &mut u64,
) -> LogicalMapping {
    if let Some(segment) = logical.segments.iter().find(|segment| !segment.is_striped()) {
        let missing = segment.needs.join(", ");
        let through = if missing.is_empty() { missing } else { format!(", through {missing}") };
        return LogicalMapping::NotRead(format!("it is of the type {}{through}", segment.kind));
    }
    if let Some(origin) = &logical.snapshot_of {
        return LogicalMapping::NotRead(format!("it is a snapshot of {origin}"));
    }
    // A snapshot reads old content from the blocks of its origin, including those that are free in the origin.
    if needed.contains(logical.name.as_str()) {
        return LogicalMapping::NotRead("another volume of its group is made of it".to_owned());
    }
    match extents.ranges(logical, pieces_left) {
        Ok(ranges) => {
            let origin = VolumeOrigin::Logical { group: description.name.clone(), name: logical.name.clone() };
            LogicalMapping::Read(Volume { origin, ranges })
        }
        Err(problem) => LogicalMapping::NotRead(problem.to_owned()),
    }
}

#[cfg(test)]
mod tests;
