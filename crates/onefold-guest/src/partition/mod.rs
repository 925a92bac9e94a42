//! Partition tables: MBR with logical partitions, and GPT with its backup.
//!
//! [`partition_table`] returns the whole content of a table, including problems. [`partitions`] returns only places,
//! and none of a table that contradicts itself, because its callers move data according to them.
//!
//! Sectors have 512 or 4096 bytes. The disk of a virtual machine does not reveal its sector length, so the table must:
//! a GPT by the place of its header, an MBR by the content at the places that it names.

mod gpt;
mod kind;
mod mbr;

use std::fmt;

use onefold_disk::{Disk, DiskError};

pub use kind::{Guid, PartitionKind};

use crate::volume::{DiskRange, Volume, VolumeOrigin};

/// The possible lengths of a sector, in bytes.
const SECTOR_SIZES: [u64; 2] = [512, 4096];

/// The place of a partition, in bytes. Never empty, and within its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partition {
    /// Its first byte.
    pub start_bytes: u64,
    /// Its length.
    pub length_bytes: u64,
}

impl Partition {
    /// Returns the byte after the last one.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.start_bytes + self.length_bytes
    }
}

/// A partition table on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// The kind of the table.
    pub scheme: PartitionScheme,
    /// Sector length of the table, in bytes.
    pub sector_bytes: u64,
    /// The partitions in the order of the disk. If they overlap, `problems` lists that.
    pub entries: Vec<PartitionEntry>,
    /// Problems of the table.
    pub problems: Vec<PartitionProblem>,
}

/// The kinds of partition tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PartitionScheme {
    /// The table of the PC BIOS, with chains of logical partitions.
    Mbr,
    /// The table of UEFI.
    Gpt,
}

impl PartitionScheme {
    /// Returns the name in the output of tools.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PartitionScheme::Mbr => "MBR",
            PartitionScheme::Gpt => "GPT",
        }
    }
}

/// A partition according to its table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionEntry {
    /// Its place: the part of it that is on the disk.
    pub place: Partition,
    /// Its number in Linux: the slot from 1, and from 5 on for logical partitions.
    pub number: u32,
    /// Its purpose.
    pub kind: PartitionKind,
    /// Its name; empty if there is none. An MBR has no names.
    pub name: String,
    /// Its UUID in Linux (`PARTUUID`), in lower case. For a GPT, it is that of the entry; for an MBR, it consists of
    /// the numbers of the disk and of the partition.
    pub uuid: Option<String>,
}

/// Fields of a partition besides its place.
struct Description {
    kind: PartitionKind,
    name: String,
    uuid: Option<String>,
}

/// A problem of a partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PartitionProblem {
    /// Two partitions share bytes of the disk.
    Overlap {
        /// The number of the one that begins first.
        first: u32,
        /// The number of the other one.
        second: u32,
    },
    /// A partition reaches past the end of the disk. Only its part on the disk is listed.
    CutOff {
        /// Its number.
        number: u32,
    },
    /// A partition lies outside of the disk, on its own table, or is empty. It is not listed.
    Outside {
        /// Its number.
        number: u32,
    },
    /// The chain of logical partitions leads outside of the disk or does not end. The partitions before that point are
    /// listed.
    BrokenChain,
    /// The first GPT is damaged, so its backup at the end of the disk was read.
    FromBackup,
    /// Both copies of the GPT are damaged, so no partition is known.
    BothDamaged,
    /// Another table of the disk has other partitions, and some programs go by that one: the MBR beside a GPT, a GPT
    /// beside an MBR, or another copy of the GPT.
    OtherTable,
}

impl fmt::Display for PartitionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionProblem::Overlap { first, second } => write!(f, "partitions {first} and {second} overlap"),
            PartitionProblem::CutOff { number } => write!(f, "partition {number} reaches past the end of the disk"),
            PartitionProblem::Outside { number } => write!(f, "partition {number} does not lie on the disk"),
            PartitionProblem::BrokenChain => f.write_str("the chain of logical partitions is broken"),
            PartitionProblem::FromBackup => f.write_str("the first GPT is damaged; its backup is used"),
            PartitionProblem::OtherTable => {
                f.write_str("the disk has another partition table, which some programs go by")
            }
            PartitionProblem::BothDamaged => f.write_str("the GPT and its backup are damaged"),
        }
    }
}

impl PartitionTable {
    fn new(scheme: PartitionScheme, sector_bytes: u64) -> PartitionTable {
        PartitionTable { scheme, sector_bytes, entries: Vec::new(), problems: Vec::new() }
    }

    /// Returns whether the table contradicts itself or its disk, so that its places are unreliable.
    #[must_use]
    pub fn is_contradictory(&self) -> bool {
        self.problems.iter().any(|problem| match problem {
            PartitionProblem::Overlap { .. }
            | PartitionProblem::CutOff { .. }
            | PartitionProblem::Outside { .. }
            | PartitionProblem::BothDamaged => true,
            PartitionProblem::BrokenChain | PartitionProblem::FromBackup | PartitionProblem::OtherTable => false,
        })
    }

    /// Adds partition `number`, with `count` sectors from sector `first`. Only its part on a disk of `disk_bytes`
    /// counts.
    fn add(&mut self, number: u32, first: u64, count: u64, disk_bytes: u64, description: Description) {
        let start = first.checked_mul(self.sector_bytes).filter(|start| *start > 0 && *start < disk_bytes && count > 0);
        let Some(start_bytes) = start else {
            self.problems.push(PartitionProblem::Outside { number });
            return;
        };
        let room = disk_bytes - start_bytes;
        let length = count.checked_mul(self.sector_bytes).filter(|length| *length <= room);
        if length.is_none() {
            self.problems.push(PartitionProblem::CutOff { number });
        }
        let place = Partition { start_bytes, length_bytes: length.unwrap_or(room) };
        let Description { kind, name, uuid } = description;
        self.entries.push(PartitionEntry { place, number, kind, name, uuid });
    }

    /// Sorts the partitions in the order of the disk, and records overlaps.
    fn finish(mut self) -> PartitionTable {
        self.entries.sort_unstable();
        let mut furthest: Option<(u64, u32)> = None;
        for entry in &self.entries {
            let end = entry.place.end_bytes();
            if let Some((reached, first)) = furthest
                && entry.place.start_bytes < reached
            {
                self.problems.push(PartitionProblem::Overlap { first, second: entry.number });
            }
            if furthest.is_none_or(|(reached, _)| end > reached) {
                furthest = Some((end, entry.number));
            }
        }
        self
    }
}

/// Returns the partition table of a disk; `None` if there is none. Reads stay within the disk.
///
/// # Errors
/// Only those of reads of the disk.
pub fn partition_table(disk: &dyn Disk) -> Result<Option<PartitionTable>, DiskError> {
    let Some(sector) = mbr::BootSector::read(disk, 0)? else { return Ok(None) };
    let Some(table) = read(&sector, disk)?.map(PartitionTable::finish) else { return Ok(None) };
    // The boot code of a file system that fills the disk may look like a table by chance.
    Ok((!(sector.is_of_file_system() && table.is_contradictory())).then_some(table))
}

/// Returns the table of a disk with this first sector, as it is stored, and whether another table contradicts it.
fn read(sector: &mbr::BootSector, disk: &dyn Disk) -> Result<Option<PartitionTable>, DiskError> {
    if sector.is_protective() {
        let mut table = gpt::read(disk)?;
        if !table.entries.is_empty() && !sector.agrees_with(&table) {
            table.problems.push(PartitionProblem::OtherTable);
        }
        return Ok(Some(table));
    }
    let mut table = mbr::read(sector, disk)?;
    if let Some(table) = table.as_mut().filter(|_| sector.has_protective_type())
        && !gpt::read(disk)?.entries.is_empty()
    {
        table.problems.push(PartitionProblem::OtherTable);
    }
    Ok(table)
}

/// Returns the partitions of a disk, in order; none if there is no table, or one that contradicts itself. Reads stay
/// within the disk.
///
/// # Errors
/// Only those of reads of the disk.
pub fn partitions(disk: &dyn Disk) -> Result<Vec<Partition>, DiskError> {
    let table = partition_table(disk)?.filter(|table| !table.is_contradictory());
    Ok(table.map_or_else(Vec::new, |table| table.entries.iter().map(|entry| entry.place).collect()))
}

/// Returns the volumes of a disk of `disk_bytes` according to a table: its partitions, or the whole disk if there are
/// none. An empty disk has no volume.
#[must_use]
pub fn volumes_of(table: Option<&PartitionTable>, disk_bytes: u64) -> Vec<Volume> {
    let entries = table.map_or(&[][..], |table| &table.entries);
    if entries.is_empty() {
        return Volume::whole_disk(disk_bytes).into_iter().collect();
    }
    let volume = |entry: &PartitionEntry| Volume {
        origin: VolumeOrigin::Partition { number: entry.number },
        ranges: vec![DiskRange { start_bytes: entry.place.start_bytes, length_bytes: entry.place.length_bytes }],
    };
    entries.iter().map(volume).collect()
}

#[cfg(test)]
mod tests;
