//! The partition table of the PC BIOS. Its fields are those of Linux' `block/partitions/msdos.c`.
//!
//! | sector | bytes | field |
//! |---|---|---|
//! | MBR | 440..444 | number of the disk |
//! | MBR, EBR | 446.. | four entries of 16 bytes: at 0 the boot flag, at 4 the type, at 8 the first sector, at 12 the count |
//! | MBR, EBR | 510..512 | `55 AA` |
//! | FAT, NTFS | 0, 3..11, 11, 13, 21 | jump, maker, bytes of a sector, sectors of a cluster, medium |

use onefold_disk::{Disk, DiskError};

use super::{Description, PartitionKind, PartitionProblem, PartitionScheme, PartitionTable, SECTOR_SIZES};
use crate::bytes::Bytes;

const DISK_NUMBER: usize = 440;
const ENTRIES: usize = 446;
const ENTRY_BYTES: usize = 16;
const SIGNATURE: [u8; 2] = [0x55, 0xaa];
const SECTOR_LENGTH: usize = 512;
const TYPE_PROTECTIVE: u8 = 0xee;
const TYPES_EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// Maximum number of logical partitions. A longer chain is a loop, or not plausible.
const LOGICAL_MAX: usize = 128;
/// The number of the first logical partition.
const LOGICAL_FIRST: u32 = 5;

/// One entry of an MBR.
#[derive(Clone, Copy)]
struct MbrEntry {
    kind: u8,
    first: u64,
    count: u64,
}

impl MbrEntry {
    fn decode(bytes: Bytes<'_>) -> Option<MbrEntry> {
        // A boot sector of a file system has the same signature, but is unlikely to have four valid boot flags.
        (bytes.u8(0)? & 0x7f == 0).then_some(MbrEntry {
            kind: bytes.u8(4)?,
            first: bytes.le32(8)?.into(),
            count: bytes.le32(12)?.into(),
        })
    }

    fn description(self) -> Description {
        Description { kind: PartitionKind::Mbr(self.kind), name: String::new(), uuid: None }
    }

    fn is_extended(self) -> bool {
        TYPES_EXTENDED.contains(&self.kind)
    }

    fn end(self) -> u64 {
        self.first + self.count
    }
}

/// A sector that is an MBR or EBR.
pub(super) struct BootSector {
    bytes: [u8; SECTOR_LENGTH],
    entries: [MbrEntry; 4],
}

impl BootSector {
    /// Returns the sector at byte `at` of the disk; `None` if it does not exist, or has no table.
    pub(super) fn read(disk: &dyn Disk, at: u64) -> Result<Option<BootSector>, DiskError> {
        // A disk with a single sector has no room for a partition.
        let end = at.checked_add(SECTOR_LENGTH as u64);
        if disk.size_bytes() < 2 * SECTOR_LENGTH as u64 || end.is_none_or(|end| end > disk.size_bytes()) {
            return Ok(None);
        }
        let mut bytes = [0; SECTOR_LENGTH];
        disk.read(at, &mut bytes)?;
        Ok(BootSector::decode(bytes))
    }

    fn decode(bytes: [u8; SECTOR_LENGTH]) -> Option<BootSector> {
        let view = Bytes(&bytes);
        if view.array(510)? != SIGNATURE {
            return None;
        }
        let entry = |slot: usize| MbrEntry::decode(view.part(ENTRIES + slot * ENTRY_BYTES, ENTRY_BYTES)?);
        let entries = [entry(0)?, entry(1)?, entry(2)?, entry(3)?];
        Some(BootSector { bytes, entries })
    }

    /// Returns whether the sector indicates a GPT, as Linux decides it: an entry of its type begins at sector 1.
    pub(super) fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == TYPE_PROTECTIVE && entry.first == 1)
    }

    /// Returns whether the sector has an entry of a GPT's type. Some programs take any such entry for a sign of a GPT.
    pub(super) fn has_protective_type(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == TYPE_PROTECTIVE)
    }

    /// Returns whether the sector has only partitions of a GPT, besides entries of a GPT's type. A hybrid MBR repeats
    /// some of them for programs that know no GPT.
    pub(super) fn agrees_with(&self, gpt: &PartitionTable) -> bool {
        let mut own = self.used().filter(|(_, entry)| entry.kind != TYPE_PROTECTIVE && entry.count > 0);
        own.all(|(_, own)| {
            let (start, length) = (own.first * gpt.sector_bytes, own.count * gpt.sector_bytes);
            gpt.entries.iter().any(|entry| (entry.place.start_bytes, entry.place.length_bytes) == (start, length))
        })
    }

    /// Returns whether the sector may be the first one of a FAT, exFAT, NTFS or BitLocker volume.
    pub(super) fn is_of_file_system(&self) -> bool {
        let view = Bytes(&self.bytes);
        let maker = view.array::<8>(3).unwrap_or_default();
        if [b"NTFS    ", b"EXFAT   ", b"-FVE-FS-"].contains(&&maker) {
            return true;
        }
        let is_jump = matches!(view.u8(0), Some(0xe9 | 0xeb));
        let sector = view.le16(11).unwrap_or(0);
        let cluster = view.u8(13).unwrap_or(0);
        let is_medium = view.u8(21).is_some_and(|medium| medium == 0xf0 || medium >= 0xf8);
        is_jump && (512..=4096).contains(&sector) && sector.is_power_of_two() && cluster.is_power_of_two() && is_medium
    }

    /// Returns the number of the disk, if it has one.
    fn disk_number(&self) -> Option<u32> {
        Bytes(&self.bytes).le32(DISK_NUMBER).filter(|number| *number != 0)
    }

    fn used(&self) -> impl Iterator<Item = (u32, MbrEntry)> {
        (1..).zip(self.entries).filter(|(_, entry)| entry.kind != 0)
    }
}

/// Returns the table of a disk whose first sector is `sector`; `None` if it has no entry.
pub(super) fn read(sector: &BootSector, disk: &dyn Disk) -> Result<Option<PartitionTable>, DiskError> {
    if sector.used().next().is_none() {
        return Ok(None);
    }
    let mut table = PartitionTable::new(PartitionScheme::Mbr, sector_bytes(sector, disk)?);
    let mut next = LOGICAL_FIRST;
    for (number, entry) in sector.used() {
        if entry.is_extended() {
            next = add_logical(&mut table, entry, next, disk)?;
        } else {
            table.add(number, entry.first, entry.count, disk.size_bytes(), entry.description());
        }
    }
    if let Some(disk_number) = sector.disk_number() {
        for entry in &mut table.entries {
            entry.uuid = Some(format!("{disk_number:08x}-{:02x}", entry.number));
        }
    }
    Ok(Some(table))
}

/// Adds the logical partitions of the chain in `extended`, as far as it is valid; the first one has number `next`.
/// Returns the number of the next logical partition.
///
/// Like Linux, it accepts partitions and the link from any of the four entries that is not empty. The last two may be
/// garbage, and count only if they lie within their part of the chain.
fn add_logical(
    table: &mut PartitionTable,
    extended: MbrEntry,
    mut next: u32,
    disk: &dyn Disk,
) -> Result<u32, DiskError> {
    let (mut at, mut count) = (extended.first, extended.count);
    for _ in 0..LOGICAL_MAX {
        // The sum of two 32-bit numbers, times 4096, fits into 64 bits.
        let Some(sector) = BootSector::read(disk, at * table.sector_bytes)? else { break };
        for (slot, own) in sector.entries.into_iter().enumerate() {
            if own.count == 0 || own.is_extended() {
                continue;
            }
            if slot < 2 || (own.end() <= count && at + own.end() <= extended.end()) {
                table.add(next, at + own.first, own.count, disk.size_bytes(), own.description());
                next += 1;
            }
        }
        let link = sector.entries.into_iter().find(|entry| entry.is_extended() && entry.count > 0);
        let Some(link) = link.filter(|link| link.first != 0) else { return Ok(next) };
        (at, count) = (extended.first + link.first, link.count);
    }
    table.problems.push(PartitionProblem::BrokenChain);
    Ok(next)
}

/// Returns the sector length of a table, which the table itself does not contain. It is 512 bytes unless the table fits
/// the disk with 4096 bytes, and known content begins at a place that it names with 4096 bytes, but at no place that it
/// names with 512.
fn sector_bytes(sector: &BootSector, disk: &dyn Disk) -> Result<u64, DiskError> {
    let [small, large] = SECTOR_SIZES;
    let fits = sector.used().all(|(_, entry)| (entry.first + entry.count) * large <= disk.size_bytes());
    if fits && !anything_begins(sector, small, disk)? && anything_begins(sector, large, disk)? {
        return Ok(large);
    }
    Ok(small)
}

/// The bytes with which a volume or a chain of logical partitions may begin, and their offset.
const BEGINNINGS: [(usize, &[u8]); 6] = [
    (510, &SIGNATURE),
    (1024 + 56, &[0x53, 0xef]),
    (0, b"XFSB"),
    (0, b"LUKS"),
    (512, b"LABELONE"),
    (4096 - 10, b"SWAPSPACE2"),
];

/// Returns whether known content begins at a partition of the table, with sectors of `sector_bytes`.
fn anything_begins(sector: &BootSector, sector_bytes: u64, disk: &dyn Disk) -> Result<bool, DiskError> {
    for (_, entry) in sector.used() {
        let (at, mut bytes) = (entry.first * sector_bytes, [0; 4096]);
        if entry.first == 0 || at + bytes.len() as u64 > disk.size_bytes() {
            continue;
        }
        disk.read(at, &mut bytes)?;
        if BEGINNINGS.iter().any(|(offset, magic)| bytes.get(*offset..).is_some_and(|rest| rest.starts_with(magic))) {
            return Ok(true);
        }
    }
    Ok(false)
}
