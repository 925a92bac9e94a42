//! Partition tables: MBR with logical partitions, and GPT.
//!
//! Only where partitions begin and end is read. Tables in sectors of 4096 bytes are passed over: their partitions begin
//! at whole blocks by nature.
//!
//! | table | bytes | field |
//! |---|---|---|
//! | MBR, EBR | 446.. | four entries of 16 bytes: at 0 the boot flag, at 4 the type, at 8 the first sector, at 12 the count |
//! | MBR, EBR | 510..512 | `55 AA` |
//! | GPT header (sector 1) | 0..8, 72.., 80.., 84.. | `EFI PART`, first sector of the table, entries, bytes of an entry |
//! | GPT entry | 0..16, 32.., 40.. | type (zero: unused), first sector, last sector |

use onefold_disk::{Disk, DiskError};

const SECTOR_BYTES: u64 = 512;
const SECTOR_LENGTH: usize = 512;
const MBR_ENTRIES: usize = 446;
const MBR_ENTRY_BYTES: usize = 16;
const MBR_SIGNATURE: [u8; 2] = [0x55, 0xaa];
const TYPE_PROTECTIVE: u8 = 0xee;
const TYPES_EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
const GPT_SIGNATURE: &[u8] = b"EFI PART";
/// Entries that a GPT usually has are 128; more than these are made up.
const GPT_ENTRIES_MAX: u32 = 1024;
const GPT_ENTRY_BYTES: std::ops::RangeInclusive<u32> = 128..=4096;
/// A longer chain of logical partitions is a loop, or made up.
const LOGICAL_MAX: usize = 128;

/// Where a partition lies, in bytes. Never empty, and within its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partition {
    /// Its first byte.
    pub start_bytes: u64,
    /// Its length.
    pub length_bytes: u64,
}

impl Partition {
    /// Returns the byte after its last.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.start_bytes + self.length_bytes
    }

    /// Returns the partition from sector `first`, `count` long, if it lies on a disk of `disk_bytes`.
    fn of_sectors(first: u64, count: u64, disk_bytes: u64) -> Option<Partition> {
        let start_bytes = first.checked_mul(SECTOR_BYTES)?;
        let length_bytes = count.checked_mul(SECTOR_BYTES)?;
        let end = start_bytes.checked_add(length_bytes)?;
        (first > 0 && count > 0 && end <= disk_bytes).then_some(Partition { start_bytes, length_bytes })
    }
}

/// Returns the partitions of a disk, in order; none where there is no table, or one that makes no sense. Reads lie within
/// the disk.
///
/// # Errors
/// Only those of reading the disk.
pub fn partitions(disk: &dyn Disk) -> Result<Vec<Partition>, DiskError> {
    if disk.size_bytes() < 2 * SECTOR_BYTES {
        return Ok(Vec::new());
    }
    let mut sector = [0; SECTOR_LENGTH];
    disk.read(0, &mut sector)?;
    let Some(entries) = entries(&sector) else { return Ok(Vec::new()) };
    let found =
        if entries.iter().any(|entry| entry.kind == TYPE_PROTECTIVE) { gpt(disk)? } else { mbr(&entries, disk)? };
    let mut found = found.unwrap_or_default();
    found.sort_unstable();
    let overlap = found.windows(2).any(|pair| pair[0].end_bytes() > pair[1].start_bytes);
    Ok(if overlap { Vec::new() } else { found })
}

/// One entry of an MBR.
#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    first: u64,
    count: u64,
}

impl Entry {
    fn is_extended(self) -> bool {
        TYPES_EXTENDED.contains(&self.kind)
    }
}

/// Returns the entries of a sector that is an MBR or EBR. A boot sector of a file system bears the same signature, but
/// hardly four boot flags.
fn entries(sector: &[u8; SECTOR_LENGTH]) -> Option<[Entry; 4]> {
    if sector[510..] != MBR_SIGNATURE {
        return None;
    }
    let mut entries = [Entry { kind: 0, first: 0, count: 0 }; 4];
    let slots = sector[MBR_ENTRIES..].chunks_exact(MBR_ENTRY_BYTES);
    for (entry, bytes) in entries.iter_mut().zip(slots) {
        if bytes[0] & 0x7f != 0 {
            return None;
        }
        *entry = Entry { kind: bytes[4], first: u64::from(get_u32(bytes, 8)), count: u64::from(get_u32(bytes, 12)) };
    }
    Some(entries)
}

/// Returns the partitions of an MBR; `None` where one lies outside the disk.
fn mbr(entries: &[Entry; 4], disk: &dyn Disk) -> Result<Option<Vec<Partition>>, DiskError> {
    let mut found = Vec::new();
    for entry in entries.iter().filter(|entry| entry.kind != 0) {
        if entry.is_extended() {
            logical(entry.first, disk, &mut found)?;
        } else {
            match Partition::of_sectors(entry.first, entry.count, disk.size_bytes()) {
                Some(partition) => found.push(partition),
                None => return Ok(None),
            }
        }
    }
    Ok(Some(found))
}

/// Adds the logical partitions whose chain begins at sector `extended`, as far as it makes sense.
fn logical(extended: u64, disk: &dyn Disk, found: &mut Vec<Partition>) -> Result<(), DiskError> {
    let mut at = extended;
    for _ in 0..LOGICAL_MAX {
        // Sums of two 32-bit numbers, in 64 bits.
        let offset = at * SECTOR_BYTES;
        if offset.saturating_add(SECTOR_BYTES) > disk.size_bytes() {
            return Ok(());
        }
        let mut sector = [0; SECTOR_LENGTH];
        disk.read(offset, &mut sector)?;
        let Some([own, next, ..]) = entries(&sector) else { return Ok(()) };
        if own.kind != 0
            && let Some(partition) = Partition::of_sectors(at + own.first, own.count, disk.size_bytes())
        {
            found.push(partition);
        }
        if !next.is_extended() || next.first == 0 {
            return Ok(());
        }
        at = extended + next.first;
    }
    Ok(())
}

/// Returns the partitions of a GPT; `None` where the table makes no sense.
fn gpt(disk: &dyn Disk) -> Result<Option<Vec<Partition>>, DiskError> {
    let mut header = [0; SECTOR_LENGTH];
    disk.read(SECTOR_BYTES, &mut header)?;
    let (count, entry_bytes) = (get_u32(&header, 80), get_u32(&header, 84));
    if !header.starts_with(GPT_SIGNATURE) || count > GPT_ENTRIES_MAX || !GPT_ENTRY_BYTES.contains(&entry_bytes) {
        return Ok(None);
    }
    let table = get_u64(&header, 72).checked_mul(SECTOR_BYTES);
    let table_bytes = u64::from(count) * u64::from(entry_bytes);
    let Some(table) = table.filter(|table| table.checked_add(table_bytes).is_some_and(|end| end <= disk.size_bytes()))
    else {
        return Ok(None);
    };
    let mut found = Vec::new();
    for index in 0..u64::from(count) {
        let mut entry = [0; 48];
        disk.read(table + index * u64::from(entry_bytes), &mut entry)?;
        if entry[..16] == [0; 16] {
            continue;
        }
        let (first, last) = (get_u64(&entry, 32), get_u64(&entry, 40));
        let count = last.checked_sub(first).and_then(|count| count.checked_add(1));
        match count.and_then(|count| Partition::of_sectors(first, count, disk.size_bytes())) {
            Some(partition) => found.push(partition),
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// Returns the `u32` at `offset`, which the caller has bounded.
fn get_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

/// Returns the `u64` at `offset`, which the caller has bounded.
fn get_u64(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    const DISK_SECTORS: u64 = 4096;

    struct Memory(Vec<u8>);

    impl Disk for Memory {
        fn size_bytes(&self) -> u64 {
            self.0.len() as u64
        }

        fn next_data(&self, _: u64) -> Result<Option<Range<u64>>, DiskError> {
            panic!("a table is read where it must be, whatever is a hole");
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
            let offset = usize::try_from(offset).unwrap();
            into.copy_from_slice(&self.0[offset..offset + into.len()]);
            Ok(())
        }
    }

    impl Memory {
        fn new() -> Memory {
            Memory(vec![0; usize::try_from(DISK_SECTORS * SECTOR_BYTES).unwrap()])
        }

        fn put(&mut self, offset: usize, bytes: &[u8]) {
            self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        }

        /// Puts an entry into the table of `sector`.
        fn entry(&mut self, sector: u64, slot: usize, kind: u8, first: u32, count: u32) {
            let sector = usize::try_from(sector).unwrap() * 512;
            self.put(sector + 510, &MBR_SIGNATURE);
            let at = sector + MBR_ENTRIES + slot * MBR_ENTRY_BYTES;
            self.put(at + 4, &[kind]);
            self.put(at + 8, &first.to_le_bytes());
            self.put(at + 12, &count.to_le_bytes());
        }

        fn gpt(&mut self, entries: &[(u64, u64)]) {
            self.entry(0, 0, TYPE_PROTECTIVE, 1, u32::MAX);
            self.put(512, GPT_SIGNATURE);
            self.put(512 + 72, &2_u64.to_le_bytes());
            self.put(512 + 80, &128_u32.to_le_bytes());
            self.put(512 + 84, &128_u32.to_le_bytes());
            for (index, (first, last)) in entries.iter().enumerate() {
                let at = 1024 + index * 128;
                self.put(at, &[7; 16]);
                self.put(at + 32, &first.to_le_bytes());
                self.put(at + 40, &last.to_le_bytes());
            }
        }

        /// Returns the partitions as first sector and count.
        fn partitions(&self) -> Vec<(u64, u64)> {
            let found = partitions(self).unwrap();
            found.iter().map(|partition| (partition.start_bytes / 512, partition.length_bytes / 512)).collect()
        }
    }

    #[test]
    fn primary_and_logical_partitions_are_found_in_order() {
        let mut disk = Memory::new();
        disk.entry(0, 0, 0x83, 63, 100);
        disk.entry(0, 1, 0x05, 1000, 3000);
        disk.entry(0, 2, 0x07, 500, 400);
        disk.entry(1000, 0, 0x83, 63, 200);
        disk.entry(1000, 1, 0x05, 500, 500);
        disk.entry(1500, 0, 0x82, 8, 10);
        assert_eq!(disk.partitions(), [(63, 100), (500, 400), (1063, 200), (1508, 10)]);
    }

    #[test]
    fn a_gpt_goes_before_its_protective_mbr() {
        let mut disk = Memory::new();
        disk.gpt(&[(2048, 4000), (34, 99)]);
        assert_eq!(disk.partitions(), [(34, 66), (2048, 1953)]);
    }

    #[test]
    fn a_chain_that_comes_back_to_itself_ends() {
        let mut disk = Memory::new();
        disk.entry(0, 0, 0x0f, 1000, 3000);
        disk.entry(1000, 1, 0x05, 100, 500);
        disk.entry(1100, 1, 0x05, 100, 500);
        assert_eq!(disk.partitions(), []);
    }

    #[test]
    fn what_makes_no_sense_is_no_table() {
        assert_eq!(Memory::new().partitions(), []);
        assert_eq!(Memory(vec![0x55; 600]).partitions(), []);
        let mut outside = Memory::new();
        outside.entry(0, 0, 0x83, 63, 5000);
        assert_eq!(outside.partitions(), []);
        let mut overlapping = Memory::new();
        overlapping.entry(0, 0, 0x83, 63, 100);
        overlapping.entry(0, 1, 0x83, 100, 100);
        assert_eq!(overlapping.partitions(), []);
        let mut boot_sector = Memory::new();
        boot_sector.entry(0, 0, 0x83, 63, 100);
        boot_sector.put(MBR_ENTRIES + 16, b"Invalid system");
        assert_eq!(boot_sector.partitions(), []);
        for (at, value) in [(72, u64::MAX), (72, 1 << 54), (80, u64::MAX), (84, 1)] {
            let mut disk = Memory::new();
            disk.gpt(&[(34, 99)]);
            disk.put(512 + at, &value.to_le_bytes());
            assert_eq!(disk.partitions(), [], "{at}");
        }
        for entry in [(99, 34), (0, u64::MAX), (u64::MAX, u64::MAX), (34, 1 << 60)] {
            let mut disk = Memory::new();
            disk.gpt(&[entry]);
            assert_eq!(disk.partitions(), [], "{entry:?}");
        }
    }

    #[test]
    fn arbitrary_tables_never_lead_outside_the_disk() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        for round in 0..3000 {
            let mut disk = Memory::new();
            if round % 2 == 0 {
                disk.gpt(&[(34, 99), (200, 300)]);
            } else {
                disk.entry(0, 0, 0x83, 63, 100);
                disk.entry(0, 1, 0x05, 1000, 3000);
                disk.entry(1000, 0, 0x83, 63, 200);
                disk.entry(1000, 1, 0x05, 500, 500);
            }
            for _ in 0..1 + random(6) {
                let at = [random(1400), 512_000 + random(512)][random(2)];
                disk.0[at] = u8::try_from(random(256)).unwrap();
            }
            let partitions = disk.partitions();
            assert!(partitions.iter().all(|&(first, count)| count > 0 && first + count <= DISK_SECTORS));
        }
    }
}
