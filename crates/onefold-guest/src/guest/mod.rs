//! A whole disk: its volumes and their content, the use of all its bytes, and files in the order of the disk.
//!
//! All results are in bytes of the disk. Callers need not know about partitions and logical volumes.

mod disk_map;
mod order;
mod overlap;
mod unread;
mod who;
mod whole;

#[cfg(test)]
mod tests;

use onefold_disk::Disk;

pub use disk_map::{DiskRun, DiskUse};
pub use order::{FilesInOrder, OrderError, PlacedExtent};
pub use who::{Owner, OwnerFile};

use crate::budget::Budget;
use crate::content::{self, DiskRole, NotRead, VolumeContent};
use crate::error::GuestError;
use crate::filesystem::{Allocation, AllocationClass, FileSystem};
use crate::lvm::{LogicalMapping, TEXT_BYTES_OF_DISK_MAX, VolumeGroup, volume_groups};
use crate::partition::{PartitionEntry, PartitionProblem, PartitionTable, partition_table, volumes_of};
use crate::volume::{Volume, VolumeOrigin, VolumeReader};

/// Name of an overlapping partition that is not read, and why it is not.
const LEFT_OUT: &str = "an overlapping partition";
const LEFT_OUT_BECAUSE: &str = "the disk has too many descriptions of LVM2";

const MAP: &str = "allocation map";

/// A disk whose volumes are open for reading.
pub struct Guest<'a> {
    disk: &'a dyn Disk,
    table: Option<PartitionTable>,
    volumes: Vec<GuestVolume<'a>>,
    groups: Vec<Group>,
    /// For each volume, whether it shares bytes with another one.
    overlapping: Vec<bool>,
    /// For each volume, whether it is a logical one of a group that is not sure of it.
    unsure: Vec<bool>,
    /// Why no volume of the disk is certain.
    doubt: Option<String>,
    /// Memory for the maps of its volumes.
    budget: Budget,
}

/// A group of logical volumes, and its volumes on the disk.
#[derive(Debug)]
pub struct Group {
    /// The group.
    pub group: VolumeGroup,
    /// Its physical volumes, as indices into [`Guest::volumes`].
    pub physical: Vec<usize>,
    /// Its readable logical volumes, as indices into the same list.
    pub logical: Vec<usize>,
}

/// A volume of a disk, and its content.
pub struct GuestVolume<'a> {
    /// Its place.
    pub volume: Volume,
    /// Its entry in the partition table, if it is a partition.
    pub partition: Option<PartitionEntry>,
    /// Its bytes.
    pub reader: VolumeReader<'a>,
    /// Its content.
    pub content: VolumeContent<'a>,
}

impl<'a> Guest<'a> {
    /// Opens all volumes of a disk. If a volume cannot be opened, its content gives the reason. A disk that is a member
    /// of an array is a single volume, which is not read, whatever its partition table says.
    ///
    /// The disk should cache recently read data ([`onefold_disk::CachedDisk`]).
    ///
    /// # Errors
    /// Those of reading the partition table.
    pub fn open(disk: &'a dyn Disk) -> Result<Guest<'a>, GuestError> {
        let table = partition_table(disk)?;
        let (member, doubt) = match over_disk(disk, table.as_ref()) {
            Some(DiskRole::Member(member)) => (Some(VolumeContent::NotRead(member)), None),
            Some(DiskRole::Doubt(doubt)) => (None, Some(doubt)),
            None => (None, None),
        };
        if let (Some(member), Some(volume)) = (member, Volume::whole_disk(disk.size_bytes())) {
            let volume = GuestVolume::open(disk, volume, None, Some(member), &mut 0);
            return Ok(Guest::new(disk, table, vec![volume], Vec::new()));
        }
        let mut text_bytes_left = TEXT_BYTES_OF_DISK_MAX;
        let mut volumes = Vec::new();
        for volume in volumes_of(table.as_ref(), disk.size_bytes()) {
            // Any number of partitions may name the same place, and the texts of LVM2 there may be long.
            let is_left_out = text_bytes_left == 0 && overlaps_one_before(table.as_ref(), &volume.origin);
            let content = is_left_out.then(|| {
                let detail = LEFT_OUT_BECAUSE.to_owned();
                VolumeContent::NotRead(NotRead { detail, ..NotRead::refused(LEFT_OUT) })
            });
            volumes.push(GuestVolume::open(disk, volume, table.as_ref(), content, &mut text_bytes_left));
        }
        let mut groups = groups(&volumes);
        for group in &mut groups {
            for logical in &group.group.logical {
                if let LogicalMapping::Read(volume) = &logical.mapping {
                    group.logical.push(volumes.len());
                    volumes.push(GuestVolume::open(disk, volume.clone(), None, None, &mut text_bytes_left));
                }
            }
        }
        Ok(Guest { doubt, ..Guest::new(disk, table, volumes, groups) })
    }

    fn new(
        disk: &'a dyn Disk,
        table: Option<PartitionTable>,
        volumes: Vec<GuestVolume<'a>>,
        groups: Vec<Group>,
    ) -> Guest<'a> {
        let overlapping = overlap::overlapping(&volumes, &groups);
        let mut unsure = vec![false; volumes.len()];
        for at in groups.iter().filter(|group| !group.group.unsure.is_empty()).flat_map(|group| &group.logical) {
            if let Some(unsure) = unsure.get_mut(*at) {
                *unsure = true;
            }
        }
        Guest { disk, table, volumes, groups, overlapping, unsure, doubt: None, budget: Budget::default() }
    }

    /// Returns the guest with another budget for the memory of its allocation maps. The default is 256 MiB.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Guest<'a> {
        Guest { budget, ..self }
    }

    /// Returns the budget from which its allocation maps draw memory.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the disk.
    #[must_use]
    pub fn disk(&self) -> &'a dyn Disk {
        self.disk
    }

    /// Returns its partition table; `None` if there is none.
    #[must_use]
    pub fn table(&self) -> Option<&PartitionTable> {
        self.table.as_ref()
    }

    /// Returns why no volume of the disk is certain, as a text that may contain names of the guest; `None` if each
    /// volume has its own certainty.
    #[must_use]
    pub fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }

    /// Returns its groups of logical volumes. Readable logical volumes are also volumes of the disk.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns its volumes: partitions in the order of the disk, then logical volumes.
    #[must_use]
    pub fn volumes(&self) -> &[GuestVolume<'a>] {
        &self.volumes
    }

    /// Returns whether a volume shares bytes of the disk with another one. Logical volumes and the physical volumes of
    /// their own group do not count. But if such a physical volume overlaps another volume, all logical volumes of the
    /// group overlap, too.
    #[must_use]
    pub fn overlaps(&self, at: usize) -> bool {
        self.overlapping.get(at).copied().unwrap_or(false)
    }
}

/// Returns what a disk with partitions is in addition.
fn over_disk(disk: &dyn Disk, table: Option<&PartitionTable>) -> Option<DiskRole> {
    let table = table.filter(|table| !table.entries.is_empty())?;
    let volume = Volume::whole_disk(disk.size_bytes())?;
    content::over_disk(&VolumeReader::new(disk, &volume), table)
}

/// Returns whether a partition overlaps one that begins before it.
fn overlaps_one_before(table: Option<&PartitionTable>, origin: &VolumeOrigin) -> bool {
    let VolumeOrigin::Partition { number } = origin else { return false };
    let is_it =
        |problem: &PartitionProblem| matches!(problem, PartitionProblem::Overlap { second, .. } if second == number);
    table.is_some_and(|table| table.problems.iter().any(is_it))
}

/// Returns the groups that the physical volumes among some volumes form.
fn groups(volumes: &[GuestVolume<'_>]) -> Vec<Group> {
    let mut physical = Vec::new();
    let mut places = Vec::new();
    for (at, volume) in volumes.iter().enumerate() {
        if let VolumeContent::PhysicalVolume(found) = &volume.content {
            physical.push((volume.reader.clone(), found.as_ref().clone()));
            places.push(at);
        }
    }
    let group = |group: VolumeGroup| {
        let physical = group.physical.iter().filter_map(|at| places.get(*at).copied()).collect();
        Group { group, physical, logical: Vec::new() }
    };
    volume_groups(&physical).into_iter().map(group).collect()
}

impl<'a> GuestVolume<'a> {
    /// Opens a volume, or uses `content` as its content. Subtracts the length of LVM2 texts from `text_bytes_left`.
    fn open(
        disk: &'a dyn Disk,
        volume: Volume,
        table: Option<&PartitionTable>,
        content: Option<VolumeContent<'a>>,
        text_bytes_left: &mut u64,
    ) -> GuestVolume<'a> {
        let partition = match volume.origin {
            VolumeOrigin::Partition { number } => {
                table.and_then(|table| table.entries.iter().find(|entry| entry.number == number)).cloned()
            }
            _ => None,
        };
        let reader = VolumeReader::new(disk, &volume);
        let kind = partition.as_ref().map(|partition| partition.kind);
        let mut content = content.unwrap_or_else(|| content::open(&reader, kind));
        if let VolumeContent::PhysicalVolume(physical) = &mut content {
            physical.charge(&reader, text_bytes_left);
        }
        GuestVolume { volume, partition, reader, content }
    }

    /// Returns its allocation map, like [`VolumeContent::allocation_within`]. If the map cannot be made, the whole
    /// volume is doubtful, and the damage is recorded.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn allocation(&self, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        let length_bytes = self.reader.size_bytes();
        let damage = match self.content.allocation_within(length_bytes, budget) {
            Err(GuestError::Damaged(damage)) => damage,
            Err(GuestError::Unsupported(_)) => self.reader.damage(0, MAP, "it needs something that is not known here"),
            Err(error @ GuestError::Disk(_)) => return Err(error),
            Err(_) => self.reader.damage(0, MAP, "it cannot be made"),
            Ok(map) => return Ok(map),
        };
        if let Some(system) = self.file_system() {
            system.damage().note(damage);
        }
        Ok(vec![Allocation { start_bytes: 0, length_bytes, class: AllocationClass::Doubtful }])
    }

    /// Returns whether it is a physical volume of a group, which contains logical volumes.
    #[must_use]
    pub fn is_physical(&self) -> bool {
        matches!(self.content, VolumeContent::PhysicalVolume(_))
    }

    /// Returns whether it is a logical volume.
    #[must_use]
    pub fn is_logical(&self) -> bool {
        matches!(self.volume.origin, VolumeOrigin::Logical { .. })
    }

    /// Returns its file system, if a reader supports it.
    #[must_use]
    pub fn file_system(&self) -> Option<&dyn FileSystem> {
        match &self.content {
            VolumeContent::FileSystem(system) => Some(system.as_ref()),
            _ => None,
        }
    }

    /// Returns the byte of the volume at byte `place` of the disk; `None` if the volume does not contain that place.
    #[must_use]
    pub fn offset_of(&self, place: u64) -> Option<u64> {
        let mut offset = 0;
        for range in &self.volume.ranges {
            if (range.start_bytes..range.end_bytes()).contains(&place) {
                return Some(offset + (place - range.start_bytes));
            }
            offset += range.length_bytes;
        }
        None
    }
}

impl std::fmt::Debug for Guest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("table", &self.table).field("volumes", &self.volumes).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for GuestVolume<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestVolume")
            .field("volume", &self.volume)
            .field("content", &self.content)
            .finish_non_exhaustive()
    }
}
