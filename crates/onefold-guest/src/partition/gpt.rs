//! The partition table of UEFI (UEFI Specification 2.10, section 5.3).
//!
//! | structure | bytes | field |
//! |---|---|---|
//! | header | 0..8 | `EFI PART` |
//! | header | 12..16, 16..20 | its length; CRC-32 of that many bytes with this field zero |
//! | header | 24..32 | the sector that it lies in |
//! | header | 40..48, 48..56 | first and last sector that partitions may have |
//! | header | 72..80, 80..84, 84..88, 88..92 | first sector of the entries, their number, bytes of one, CRC-32 of all |
//! | entry | 0..16, 16..32 | type, zero where the entry is not used; UUID |
//! | entry | 32..40, 40..48 | first sector, last sector |
//! | entry | 56..128 | name in UTF-16, ended by a zero |
//!
//! The header is in sector 1, its backup in the last sector.

use onefold_disk::{Disk, DiskError};

use super::{
    Description, Guid, Partition, PartitionKind, PartitionProblem, PartitionScheme, PartitionTable, SECTOR_SIZES,
};
use crate::bytes::Bytes;

const SIGNATURE: &[u8] = b"EFI PART";
const HEADER_BYTES: usize = 512;
const HEADER_BYTES_MIN: usize = 92;
/// Maximum number of entries. A GPT usually has 128; larger numbers are not plausible.
const ENTRIES_MAX: u32 = 1024;
const ENTRY_BYTES: std::ops::RangeInclusive<usize> = 128..=4096;

/// Returns the table of a disk that has a GPT: the first intact copy. If another program may take another copy, with
/// other partitions, that is a problem.
pub(super) fn read(disk: &dyn Disk) -> Result<PartitionTable, DiskError> {
    let [small, large] = SECTOR_SIZES;
    let found = match (read_at(disk, 1, small)?, read_at(disk, 1, large)?) {
        (Some(found), Some(other)) => Some((found, Some(other))),
        (Some(found), None) | (None, Some(found)) => Some((found, None)),
        (None, None) => None,
    };
    if let Some((Copy { mut table, is_usual }, mut rival)) = found {
        if rival.is_none() && !is_usual {
            rival = backup(disk)?;
        }
        if rival.is_some_and(|rival| places(&rival.table) != places(&table)) {
            table.problems.push(PartitionProblem::OtherTable);
        }
        return Ok(table);
    }
    let (mut table, problem) = match backup(disk)? {
        Some(Copy { table, .. }) => (table, PartitionProblem::FromBackup),
        None => (PartitionTable::new(PartitionScheme::Gpt, small), PartitionProblem::BothDamaged),
    };
    table.problems.push(problem);
    Ok(table)
}

/// A copy of a table.
struct Copy {
    table: PartitionTable,
    /// Whether Linux takes it: entries have the usual length, and its usable sectors are on the disk.
    is_usual: bool,
}

/// Returns the intact copy at the end of a disk.
fn backup(disk: &dyn Disk) -> Result<Option<Copy>, DiskError> {
    for sector_bytes in SECTOR_SIZES {
        let Some(last) = (disk.size_bytes() / sector_bytes).checked_sub(1) else { continue };
        if let Some(copy) = read_at(disk, last, sector_bytes)? {
            return Ok(Some(copy));
        }
    }
    Ok(None)
}

/// Returns the places of all partitions, with their numbers.
fn places(table: &PartitionTable) -> Vec<(u32, Partition)> {
    table.entries.iter().map(|entry| (entry.number, entry.place)).collect()
}

/// Place of the entries according to a header.
struct Header {
    entries_at: u64,
    entries_count: u32,
    entry_bytes: usize,
    entries_checksum: u32,
    /// The first and the last sector that partitions may have.
    usable: [u64; 2],
}

impl Header {
    /// Returns the header in sector `at`, if it is intact.
    fn decode(bytes: &[u8], at: u64, sector_bytes: u64) -> Option<Header> {
        let view = Bytes(bytes);
        let length = usize::try_from(view.le32(12)?).ok().filter(|length| *length >= HEADER_BYTES_MIN)?;
        let mut covered = view.part(0, length)?.0.to_vec();
        covered.get_mut(16..20)?.fill(0);
        if !bytes.starts_with(SIGNATURE) || crc32fast::hash(&covered) != view.le32(16)? || view.le64(24)? != at {
            return None;
        }
        Some(Header {
            entries_at: view.le64(72)?.checked_mul(sector_bytes)?,
            entries_count: view.le32(80).filter(|count| *count <= ENTRIES_MAX)?,
            entry_bytes: usize::try_from(view.le32(84)?).ok().filter(|bytes| ENTRY_BYTES.contains(bytes))?,
            entries_checksum: view.le32(88)?,
            usable: [view.le64(40)?, view.le64(48)?],
        })
    }

    /// Returns the entries, if they are on the disk and intact.
    fn entries(&self, disk: &dyn Disk) -> Result<Option<Vec<u8>>, DiskError> {
        let length = u64::from(self.entries_count) * self.entry_bytes as u64;
        let end = self.entries_at.checked_add(length);
        let Some(length) = usize::try_from(length).ok().filter(|_| end.is_some_and(|end| end <= disk.size_bytes()))
        else {
            return Ok(None);
        };
        // At most 4 MiB, within the disk.
        let mut entries = vec![0; length];
        disk.read(self.entries_at, &mut entries)?;
        Ok((crc32fast::hash(&entries) == self.entries_checksum).then_some(entries))
    }
}

/// Returns the table whose header is in sector `at`; `None` if there is none, or its checksums do not match.
fn read_at(disk: &dyn Disk, at: u64, sector_bytes: u64) -> Result<Option<Copy>, DiskError> {
    let place = at.checked_mul(sector_bytes);
    let end = place.and_then(|place| place.checked_add(HEADER_BYTES as u64));
    let Some(place) = place.filter(|_| end.is_some_and(|end| end <= disk.size_bytes())) else { return Ok(None) };
    let mut header = [0; HEADER_BYTES];
    disk.read(place, &mut header)?;
    let Some(header) = Header::decode(&header, at, sector_bytes) else { return Ok(None) };
    let Some(entries) = header.entries(disk)? else { return Ok(None) };
    let mut table = PartitionTable::new(PartitionScheme::Gpt, sector_bytes);
    for (number, bytes) in (1..).zip(entries.chunks_exact(header.entry_bytes)) {
        add(&mut table, number, Bytes(bytes), disk.size_bytes());
    }
    let [first, last] = header.usable;
    let is_usual =
        header.entry_bytes == *ENTRY_BYTES.start() && first <= last && last < disk.size_bytes() / sector_bytes;
    Ok(Some(Copy { table, is_usual }))
}

/// Adds the partition of an entry, if it is used.
fn add(table: &mut PartitionTable, number: u32, entry: Bytes<'_>, disk_bytes: u64) {
    let (Some(kind), Some(first), Some(last)) = (entry.array(0), entry.le64(32), entry.le64(40)) else { return };
    if kind == [0; 16] {
        return;
    }
    // The range includes the last sector.
    let count = last.checked_sub(first).and_then(|count| count.checked_add(1)).unwrap_or(0);
    let uuid = entry.array(16).map(|uuid| Guid(uuid).to_string().to_ascii_lowercase());
    let description = Description { kind: PartitionKind::Gpt(Guid(kind)), name: name(entry), uuid };
    table.add(number, first, count, disk_bytes, description);
}

fn name(entry: Bytes<'_>) -> String {
    let (units, _) = entry.part(56, 72).map_or(&[][..], |name| name.0).as_chunks::<2>();
    let units = units.iter().map(|unit| u16::from_le_bytes(*unit)).take_while(|unit| *unit != 0);
    char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}
