//! Partition tables of a guest's disk, most of them made to be believed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use onefold_disk::{Disk, DiskError};
use onefold_guest::{Partition, partitions};

use crate::Choices;

const SECTOR_BYTES: u64 = 512;
const SECTOR_LENGTH: usize = 512;
/// A protective MBR, a GPT header with all its entries, or all chains of logical partitions that may be followed.
const READS_MAX: usize = 2048;
/// Numbers of sectors at which something begins or ends.
const EDGES: [u64; 12] = [0, 1, 2, 3, 34, 63, 2048, 4095, 4096, u32::MAX as u64, 1 << 55, u64::MAX];
const KINDS: [u8; 8] = [0x83, 0x05, 0x0f, 0x85, 0xee, 0x00, 0x07, 0x82];

/// A disk of which only some sectors hold something.
struct Sparse {
    bytes: u64,
    sectors: BTreeMap<u64, [u8; SECTOR_LENGTH]>,
    reads: AtomicUsize,
    /// The number of the read that fails; none without a number.
    fails: Option<usize>,
}

impl Sparse {
    fn put(&mut self, sector: u64, offset: usize, bytes: &[u8]) {
        let sector = self.sectors.entry(sector).or_insert([0; SECTOR_LENGTH]);
        sector[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// What the read that fails says.
const GONE: &str = "the disk is gone";

impl Disk for Sparse {
    fn size_bytes(&self) -> u64 {
        self.bytes
    }

    fn next_data(&self, _: u64) -> Result<Option<Range<u64>>, DiskError> {
        panic!("a table is read where it must be, whatever is a hole");
    }

    /// Fills `into` from a byte of the disk.
    ///
    /// # Panics
    /// When that is not on the disk, or was asked for too often.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let end = offset.checked_add(into.len() as u64).expect("an offset that can be");
        assert!(end <= self.bytes, "{offset} to {end} of a disk of {} bytes", self.bytes);
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        assert!(number < READS_MAX, "reads without end");
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
        if self.fails == Some(number) { Err(DiskError::Other(GONE.into())) } else { Ok(()) }
    }
}

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let sectors = *choices.one_of(&[1 << 22, 4096, 3, 1, 1 << 33, 1 << 54]);
    let bytes = sectors * SECTOR_BYTES + choices.below(2);
    let mut disk = Sparse { bytes, sectors: BTreeMap::new(), reads: AtomicUsize::new(0), fails: None };
    if choices.below(2) == 0 {
        put_mbrs(&mut choices, &mut disk);
    } else {
        put_gpt(&mut choices, &mut disk);
    }
    for _ in 0..choices.below(4) {
        let (sector, offset) = (choices.below(8), choices.index(SECTOR_LENGTH));
        disk.put(sector, offset, &[choices.byte()]);
    }
    let found = partitions(&disk).expect("reading never fails");
    must_hold(&found, disk.bytes);
    a_failed_read_is_told(&mut choices, disk);
}

/// What callers rely on: partitions lie on the disk, one after the other.
fn must_hold(found: &[Partition], disk_bytes: u64) {
    for partition in found {
        assert!(partition.length_bytes > 0 && partition.start_bytes > 0, "{partition:?}");
        assert!(partition.start_bytes.checked_add(partition.length_bytes).is_some_and(|end| end <= disk_bytes));
    }
    assert!(found.is_sorted_by(|one, next| one.end_bytes() <= next.start_bytes), "{found:?}");
}

/// An error of the disk is passed on whichever read has it, and ends the search.
fn a_failed_read_is_told(choices: &mut Choices<'_>, mut disk: Sparse) {
    let reads = disk.reads.swap(0, Ordering::Relaxed);
    if reads == 0 {
        return;
    }
    let fails = choices.index(reads);
    disk.fails = Some(fails);
    let error = partitions(&disk).expect_err("a read fails");
    assert_eq!((error.to_string().as_str(), disk.reads.into_inner()), (GONE, fails + 1));
}

fn put_mbrs(choices: &mut Choices<'_>, disk: &mut Sparse) {
    let mut table = 0;
    // A chain of logical partitions hangs on the first table.
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

fn put_gpt(choices: &mut Choices<'_>, disk: &mut Sparse) {
    disk.put(0, 510, &[0x55, 0xaa]);
    disk.put(0, 446 + 4, &[0xee]);
    disk.put(1, 0, b"EFI PART");
    let first = *choices.one_of(&[2, 2, 2, 0, 1 << 55, u64::MAX]);
    let count = *choices.one_of(&[128_u32, 128, 1024, 0, 1025, u32::MAX]);
    let entry_bytes = *choices.one_of(&[128_u32, 128, 256, 4096, 127, 0, u32::MAX]);
    disk.put(1, 72, &first.to_le_bytes());
    disk.put(1, 80, &count.to_le_bytes());
    disk.put(1, 84, &entry_bytes.to_le_bytes());
    for index in 0..choices.below(6) {
        let at = index * u64::from(entry_bytes.clamp(128, 4096));
        let (sector, offset) = (2 + at / SECTOR_BYTES, usize::try_from(at % SECTOR_BYTES).expect("less than a sector"));
        disk.put(sector, offset, &[*choices.one_of(&[7, 0])]);
        disk.put(sector, offset + 32, &number(choices).to_le_bytes());
        disk.put(sector, offset + 40, &number(choices).to_le_bytes());
    }
}

/// Returns where something begins or ends: mostly near the beginning, sometimes anywhere.
fn number(choices: &mut Choices<'_>) -> u64 {
    match choices.below(4) {
        0 => choices.below(8192),
        1 => *choices.one_of(&EDGES),
        2 => choices.below(1 << 33),
        _ => choices.number(),
    }
}
