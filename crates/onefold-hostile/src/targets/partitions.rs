//! Partition tables of a guest's disk, most of them made to be believed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use onefold_disk::{Disk, DiskError};
use onefold_guest::{Partition, PartitionTable, partition_table, partitions, volumes_of};

use crate::Choices;

const SECTOR_BYTES: u64 = 512;
const SECTOR_LENGTH: usize = 512;
/// Maximum number of reads: a protective MBR, a GPT header with all its entries, or all chains of logical partitions
/// that may be followed.
const READS_MAX: usize = 2048;
/// Maximum number of bytes of GPT entries to read.
const ENTRIES_BYTES_MAX: u64 = 4 << 20;
/// Sector numbers at limits.
const EDGES: [u64; 12] = [0, 1, 2, 3, 34, 63, 2048, 4095, 4096, u32::MAX as u64, 1 << 55, u64::MAX];
const KINDS: [u8; 8] = [0x83, 0x05, 0x0f, 0x85, 0xee, 0x00, 0x07, 0x82];

/// A disk with few sectors that are not zero.
struct SparseDisk {
    bytes: u64,
    sectors: BTreeMap<u64, [u8; SECTOR_LENGTH]>,
    reads: AtomicUsize,
    /// Number of the read that fails; `None` for no failure.
    fails: Option<usize>,
}

impl SparseDisk {
    fn put(&mut self, sector: u64, offset: usize, bytes: &[u8]) {
        let sector = self.sectors.entry(sector).or_insert([0; SECTOR_LENGTH]);
        sector[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Fills `into` from an offset of the disk.
    fn copy(&self, offset: u64, into: &mut [u8]) {
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let within = usize::try_from(at % SECTOR_BYTES).expect("less than a sector");
            let (part, after) = rest.split_at_mut(rest.len().min(SECTOR_LENGTH - within));
            match self.sectors.get(&(at / SECTOR_BYTES)) {
                Some(sector) => part.copy_from_slice(&sector[within..within + part.len()]),
                None => part.fill(0),
            }
            at += part.len() as u64;
            rest = after;
        }
    }

    /// Corrects the checksums of the GPT header at `sector`, as far as it is valid.
    fn seal(&mut self, sector: u64, sector_bytes: u64) {
        let at = sector.checked_mul(sector_bytes).filter(|at| *at < self.bytes).map(|at| at / SECTOR_BYTES);
        let Some(header) = at.and_then(|at| self.sectors.get(&at)).copied() else { return };
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let table = u64::from_le_bytes(header[72..80].try_into().expect("eight bytes")).checked_mul(sector_bytes);
        let length = u64::from(number(80)).saturating_mul(number(84).into());
        let place = at.expect("it was found");
        if let Some(table) = table.filter(|table| *table < self.bytes && length <= ENTRIES_BYTES_MAX) {
            let mut entries = vec![0; usize::try_from(length).expect("bounded above")];
            self.copy(table, &mut entries);
            self.put(place, 88, &crc32fast::hash(&entries).to_le_bytes());
        }
        self.put(place, 16, &[0; 4]);
        let length = usize::try_from(number(12)).unwrap_or(0).min(SECTOR_LENGTH);
        let checksum = crc32fast::hash(&self.sectors[&place][..length]);
        self.put(place, 16, &checksum.to_le_bytes());
    }
}

/// Message of the failing read.
const GONE: &str = "the disk is gone";

impl Disk for SparseDisk {
    fn size_bytes(&self) -> u64 {
        self.bytes
    }

    fn next_data(&self, _: u64) -> Result<Option<Range<u64>>, DiskError> {
        panic!("a table is read where it must be, whatever is a hole");
    }

    /// Fills `into` from an offset of the disk.
    ///
    /// # Panics
    /// When the range is not on the disk, or there were too many reads.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let end = offset.checked_add(into.len() as u64).expect("an offset that can be");
        assert!(end <= self.bytes, "{offset} to {end} of a disk of {} bytes", self.bytes);
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        assert!(number < READS_MAX, "reads without end");
        self.copy(offset, into);
        if self.fails == Some(number) { Err(DiskError::Other(GONE.into())) } else { Ok(()) }
    }
}

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let sectors = *choices.one_of(&[1 << 22, 4096, 3, 1, 1 << 33, 1 << 54]);
    let bytes = sectors * SECTOR_BYTES + choices.below(2);
    let mut disk = SparseDisk { bytes, sectors: BTreeMap::new(), reads: AtomicUsize::new(0), fails: None };
    let mut headers = Vec::new();
    match choices.below(4) {
        0 | 1 => put_mbrs(&mut choices, &mut disk),
        _ => {
            let sector_bytes = *choices.one_of(&[SECTOR_BYTES, SECTOR_BYTES, 4096]);
            for _ in 0..1 + choices.below(2) {
                let last = (bytes / sector_bytes).saturating_sub(1);
                let own = *choices.one_of(&[1, 1, last]);
                put_gpt(&mut choices, &mut disk, own, sector_bytes);
                headers.push((own, sector_bytes));
            }
        }
    }
    for _ in 0..choices.below(4) {
        let (sector, offset) = (choices.below(8), choices.index(SECTOR_LENGTH));
        disk.put(sector, offset, &[choices.byte()]);
    }
    for (own, sector_bytes) in headers {
        if choices.below(8) > 0 {
            disk.seal(own, sector_bytes);
        }
    }
    let table = partition_table(&disk).expect("reading never fails");
    *disk.reads.get_mut() = 0;
    let found = partitions(&disk).expect("reading never fails");
    must_hold(&found, disk.bytes);
    table_must_hold(table.as_ref(), &found, disk.bytes);
    a_failed_read_is_told(&mut choices, disk);
}

/// Checks that a table lists what lies on the disk, and marks what callers must not rely on.
fn table_must_hold(table: Option<&PartitionTable>, found: &[Partition], disk_bytes: u64) {
    let places: Vec<_> = table.into_iter().flat_map(|table| &table.entries).map(|entry| entry.place).collect();
    for place in &places {
        assert!(place.length_bytes > 0 && place.start_bytes > 0, "{place:?}");
        assert!(place.start_bytes.checked_add(place.length_bytes).is_some_and(|end| end <= disk_bytes));
    }
    let is_clean = table.is_some_and(|table| !table.is_contradictory());
    assert_eq!(found, if is_clean { &places[..] } else { &[] });
    let volumes = volumes_of(table, disk_bytes);
    assert_eq!(volumes.len(), places.len().max(usize::from(disk_bytes > 0)));
}

/// Checks what callers rely on: partitions lie on the disk, one after another.
fn must_hold(found: &[Partition], disk_bytes: u64) {
    for partition in found {
        assert!(partition.length_bytes > 0 && partition.start_bytes > 0, "{partition:?}");
        assert!(partition.start_bytes.checked_add(partition.length_bytes).is_some_and(|end| end <= disk_bytes));
    }
    assert!(found.is_sorted_by(|one, next| one.end_bytes() <= next.start_bytes), "{found:?}");
}

/// Checks that an error of the disk is passed on, whichever read fails, and ends the search.
fn a_failed_read_is_told(choices: &mut Choices<'_>, mut disk: SparseDisk) {
    let reads = disk.reads.swap(0, Ordering::Relaxed);
    if reads == 0 {
        return;
    }
    let fails = choices.index(reads);
    disk.fails = Some(fails);
    let error = partitions(&disk).expect_err("a read fails");
    assert_eq!((error.to_string().as_str(), disk.reads.into_inner()), (GONE, fails + 1));
}

fn put_mbrs(choices: &mut Choices<'_>, disk: &mut SparseDisk) {
    let mut table = 0;
    // A chain of logical partitions starts at the first table.
    for _ in 0..1 + choices.below(4) {
        disk.put(table, 510, &[0x55, 0xaa]);
        for slot in 0..choices.index(5) {
            let at = 446 + slot * 16;
            disk.put(table, at, &[*choices.one_of(&[0, 0x80, 1])]);
            disk.put(table, at + 4, &[*choices.one_of(&KINDS)]);
            disk.put(table, at + 8, &number(choices).to_le_bytes()[..4]);
            disk.put(table, at + 12, &number(choices).to_le_bytes()[..4]);
        }
        table = number(choices);
    }
}

/// Writes a GPT whose header lies in sector `own` of `sector_bytes`; its checksums are set later.
fn put_gpt(choices: &mut Choices<'_>, disk: &mut SparseDisk, own: u64, sector_bytes: u64) {
    disk.put(0, 510, &[0x55, 0xaa]);
    disk.put(0, 446 + 4, &[0xee]);
    let scale = sector_bytes / SECTOR_BYTES;
    let header = own * scale;
    disk.put(header, 0, b"EFI PART");
    let first = *choices.one_of(&[2, 2, 2, 2, 0, 1 << 55, u64::MAX]);
    let count = *choices.one_of(&[128_u32, 128, 128, 128, 1024, 0, 1025, u32::MAX]);
    let entry_bytes = *choices.one_of(&[128_u32, 128, 128, 256, 4096, 127, 0, u32::MAX]);
    let length = *choices.one_of(&[92_u32, 92, 92, 512, 91, 513, u32::MAX]);
    disk.put(header, 12, &length.to_le_bytes());
    disk.put(header, 24, &own.to_le_bytes());
    disk.put(header, 72, &first.to_le_bytes());
    disk.put(header, 80, &count.to_le_bytes());
    disk.put(header, 84, &entry_bytes.to_le_bytes());
    for index in 0..choices.below(6) {
        let at = index * u64::from(entry_bytes.clamp(128, 4096));
        let sector = 2 * scale + at / SECTOR_BYTES;
        let offset = usize::try_from(at % SECTOR_BYTES).expect("less than a sector");
        disk.put(sector, offset, &[*choices.one_of(&[7, 0])]);
        disk.put(sector, offset + 32, &number(choices).to_le_bytes());
        disk.put(sector, offset + 40, &number(choices).to_le_bytes());
        disk.put(sector, offset + 56, &choices.number().to_le_bytes());
    }
}

/// Returns a sector number: mostly near the beginning, sometimes any.
fn number(choices: &mut Choices<'_>) -> u64 {
    match choices.below(4) {
        0 => choices.below(8192),
        1 => *choices.one_of(&EDGES),
        2 => choices.below(1 << 33),
        _ => choices.number(),
    }
}
