use std::ops::Range;

use super::*;

const DISK_SECTORS: u64 = 4096;
const SECTOR_BYTES: u64 = 512;
const MBR_ENTRIES: usize = 446;
/// Length of a usual table of GPT entries.
const TABLE_BYTES: usize = 128 * 128;

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
        self.put(sector + 510, &[0x55, 0xaa]);
        let at = sector + MBR_ENTRIES + slot * 16;
        self.put(at + 4, &[kind]);
        self.put(at + 8, &first.to_le_bytes());
        self.put(at + 12, &count.to_le_bytes());
    }

    fn gpt(&mut self, entries: &[(u64, u64)]) {
        self.entry(0, 0, 0xee, 1, u32::MAX);
        self.gpt_copy(512, 1, 2, entries);
    }

    /// Writes a GPT whose header is in sector `own` of `sector_bytes`, and whose entries begin at sector `table`.
    fn gpt_copy(&mut self, sector_bytes: usize, own: u64, table: u64, entries: &[(u64, u64)]) {
        let at = |sector: u64| usize::try_from(sector).unwrap() * sector_bytes;
        self.put(at(own), b"EFI PART\0\0\x01\0");
        for (offset, value) in [(12, 92_u32), (80, 128), (84, 128)] {
            self.put(at(own) + offset, &value.to_le_bytes());
        }
        self.put(at(own) + 24, &own.to_le_bytes());
        self.put(at(own) + 72, &table.to_le_bytes());
        for (index, (first, last)) in entries.iter().enumerate() {
            let at = at(table) + index * 128;
            self.put(at, &[7; 16]);
            self.put(at + 32, &first.to_le_bytes());
            self.put(at + 40, &last.to_le_bytes());
            self.put(at + 56, &[b'n', 0, 0xe9, 0, b'0' + u8::try_from(index).unwrap(), 0]);
        }
        let checksum = crc32fast::hash(&self.0[at(table)..at(table) + TABLE_BYTES]);
        self.put(at(own) + 88, &checksum.to_le_bytes());
        self.seal(at(own));
    }

    /// Writes the right checksum into the GPT header at a byte of the disk.
    fn seal(&mut self, at: usize) {
        self.put(at + 16, &[0; 4]);
        let checksum = crc32fast::hash(&self.0[at..at + 92]);
        self.put(at + 16, &checksum.to_le_bytes());
    }

    fn table(&self) -> PartitionTable {
        partition_table(self).unwrap().unwrap()
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
fn all_entries_of_a_link_count_as_linux_counts_them() {
    let mut disk = Memory::new();
    disk.entry(0, 0, 0x05, 1000, 3000);
    // The link comes first, and three partitions follow.
    disk.entry(1000, 0, 0x05, 1000, 1000);
    disk.entry(1000, 1, 0x83, 63, 100);
    disk.entry(1000, 2, 0x07, 200, 100);
    disk.entry(1000, 3, 0x83, 400, 100);
    // Garbage in the last two entries: behind the end of the link, and behind that of the chain.
    disk.entry(2000, 0, 0x82, 8, 10);
    disk.entry(2000, 1, 0x07, 63, 0);
    disk.entry(2000, 2, 0x83, 900, 101);
    disk.entry(2000, 3, 0x83, 3000, 10);
    let table = disk.table();
    let found: Vec<_> = table.entries.iter().map(|entry| (entry.number, entry.place.start_bytes / 512)).collect();
    assert_eq!((found, table.problems), (vec![(5, 1063), (6, 1200), (7, 1400), (8, 2008)], vec![]));
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
        disk.seal(512);
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
        if round % 4 == 0 {
            disk.seal(512);
        }
        let partitions = disk.partitions();
        assert!(partitions.iter().all(|&(first, count)| count > 0 && first + count <= DISK_SECTORS));
    }
}

#[test]
fn numbers_kinds_and_names_are_those_of_the_table() {
    let mut disk = Memory::new();
    disk.entry(0, 1, 0x05, 1000, 3000);
    disk.entry(0, 2, 0x07, 500, 400);
    disk.entry(1000, 0, 0x83, 63, 200);
    disk.entry(1000, 1, 0x05, 500, 500);
    disk.entry(1500, 0, 0x82, 8, 10);
    let table = disk.table();
    let found: Vec<_> = table.entries.iter().map(|entry| (entry.number, entry.kind)).collect();
    assert_eq!(found, [(3, 0x07), (5, 0x83), (6, 0x82)].map(|(number, kind)| (number, PartitionKind::Mbr(kind))));
    assert_eq!((table.scheme, table.sector_bytes, table.problems), (PartitionScheme::Mbr, 512, Vec::new()));

    let mut disk = Memory::new();
    disk.gpt(&[(2048, 4000), (34, 99)]);
    let table = disk.table();
    let found: Vec<_> = table.entries.iter().map(|entry| (entry.number, entry.name.as_str())).collect();
    assert_eq!(found, [(2, "n\u{e9}1"), (1, "n\u{e9}0")]);
    assert_eq!(table.entries[0].kind.to_string(), "type 07070707-0707-0707-0707-070707070707");
    assert_eq!(PartitionKind::Mbr(0x83).to_string(), "Linux");
}

#[test]
fn a_backup_stands_in_for_a_damaged_gpt() {
    let last = DISK_SECTORS - 1;
    for damaged in [512, 512 + 60, 1024 + 33] {
        let mut disk = Memory::new();
        disk.gpt(&[(34, 99)]);
        disk.gpt_copy(512, last, last - 32, &[(34, 99), (200, 300)]);
        assert_eq!(disk.table().entries.len(), 1);
        disk.0[damaged] ^= 1;
        let table = disk.table();
        assert_eq!((table.entries.len(), table.problems), (2, vec![PartitionProblem::FromBackup]), "{damaged}");
        assert_eq!(disk.partitions(), [(34, 66), (200, 101)]);
        disk.0[512 * 4095 + 8] ^= 1;
        let table = disk.table();
        assert_eq!((table.entries, table.problems), (Vec::new(), vec![PartitionProblem::BothDamaged]));
        let whole = volumes_of(partition_table(&disk).unwrap().as_ref(), 100);
        assert_eq!(whole.iter().map(Volume::size_bytes).collect::<Vec<_>>(), [100]);
    }
}

/// Linux takes an MBR for that of a GPT only if the entry begins at sector 1.
#[test]
fn tables_that_contradict_each_other_are_a_problem() {
    let other = PartitionProblem::OtherTable;
    let mut stray = Memory::new();
    stray.entry(0, 0, 0x83, 1000, 100);
    stray.entry(0, 1, 0xee, 3000, 100);
    assert_eq!((stray.partitions(), stray.table().problems), (vec![(1000, 100), (3000, 100)], vec![]));
    stray.gpt_copy(512, 1, 2, &[(34, 99)]);
    assert_eq!((stray.partitions(), stray.table().problems), (vec![(1000, 100), (3000, 100)], vec![other]));

    let mut hybrid = Memory::new();
    hybrid.gpt(&[(34, 99), (200, 299)]);
    hybrid.entry(0, 1, 0x83, 200, 100);
    hybrid.entry(0, 2, 0xee, 300, 100);
    assert_eq!((hybrid.partitions(), hybrid.table().problems), (vec![(34, 66), (200, 100)], vec![]));
    hybrid.entry(0, 1, 0x83, 200, 101);
    assert_eq!((hybrid.partitions(), hybrid.table().problems), (vec![(34, 66), (200, 100)], vec![other]));
}

#[test]
fn copies_of_a_gpt_that_differ_are_a_problem_if_programs_may_take_either() {
    let (last, other) = (DISK_SECTORS - 1, PartitionProblem::OtherTable);
    let mut disk = Memory::new();
    disk.gpt(&[(34, 99)]);
    disk.gpt_copy(512, last, last - 32, &[(200, 300)]);
    assert_eq!(disk.table().problems, [], "all programs take the first one");
    // Linux takes no GPT whose usable sectors are not on the disk, and no entries of another length.
    for (at, value) in [(48, u64::MAX), (48, DISK_SECTORS), (40, 1)] {
        let mut disk = Memory(disk.0.clone());
        disk.put(512 + at, &value.to_le_bytes());
        disk.seal(512);
        assert_eq!((disk.partitions(), disk.table().problems), (vec![(34, 66)], vec![other]), "{at}: {value}");
        disk.gpt_copy(512, last, last - 32, &[(34, 99)]);
        assert_eq!((disk.partitions(), disk.table().problems), (vec![(34, 66)], vec![]), "{at}: {value}");
    }
    // The length of a sector is unknown.
    let mut disk = Memory::new();
    disk.gpt(&[]);
    disk.gpt_copy(4096, 1, 2, &[(10, 19)]);
    disk.gpt_copy(512, 1, 100, &[(34, 99)]);
    assert_eq!((disk.partitions(), disk.table().problems), (vec![(34, 66)], vec![other]));
}

#[test]
fn sectors_of_4096_bytes_are_found_out() {
    let mut disk = Memory::new();
    disk.entry(0, 0, 0xee, 1, u32::MAX);
    disk.gpt_copy(4096, 1, 2, &[(10, 19)]);
    assert_eq!((disk.table().sector_bytes, disk.partitions()), (4096, vec![(80, 80)]));
    let backup = disk.0.len() as u64 / 4096 - 1;
    disk.gpt_copy(4096, backup, backup - 4, &[(10, 29)]);
    disk.0[4096] = 0;
    assert_eq!((disk.table().sector_bytes, disk.partitions()), (4096, vec![(80, 160)]));

    let mut disk = Memory::new();
    disk.entry(0, 0, 0x83, 16, 100);
    disk.put(16 * 4096, b"XFSB");
    assert_eq!((disk.table().sector_bytes, disk.partitions()), (4096, vec![(128, 800)]));
    disk.put(16 * 512, b"LUKS");
    assert_eq!((disk.table().sector_bytes, disk.partitions()), (512, vec![(16, 100)]));
}

#[test]
fn overlaps_and_places_outside_are_reported_and_the_rest_is_listed() {
    let mut disk = Memory::new();
    disk.entry(0, 0, 0x83, 63, 500);
    disk.entry(0, 1, 0x83, 100, 100);
    disk.entry(0, 2, 0x83, 300, 5000);
    disk.entry(0, 3, 0x83, 5000, 10);
    let table = disk.table();
    let places: Vec<_> = table.entries.iter().map(|entry| (entry.number, entry.place.length_bytes / 512)).collect();
    assert_eq!(places, [(1, 500), (2, 100), (3, DISK_SECTORS - 300)]);
    let overlap = |first, second| PartitionProblem::Overlap { first, second };
    let outside = [PartitionProblem::CutOff { number: 3 }, PartitionProblem::Outside { number: 4 }];
    assert_eq!(table.problems, [&outside[..], &[overlap(1, 2), overlap(1, 3)]].concat());
    assert_eq!(volumes_of(Some(&table), 1).len(), 3);

    let mut disk = Memory::new();
    disk.entry(0, 0, 0x05, 1000, 3000);
    disk.entry(1000, 0, 0x83, 63, 200);
    disk.entry(1000, 1, 0x05, 9000, 500);
    assert_eq!(disk.table().problems, [PartitionProblem::BrokenChain]);
    assert_eq!(disk.partitions(), [(1063, 200)]);
}

#[test]
fn a_file_system_that_fills_the_disk_is_no_table() {
    let mut disk = Memory::new();
    disk.put(0, &[0xeb, 0x3c, 0x90]);
    disk.put(11, &[0, 2, 4]);
    disk.put(21, &[0xf8]);
    disk.put(510, &[0x55, 0xaa]);
    assert_eq!(partition_table(&disk).unwrap(), None);
    // The entry that newer versions of `mkfs.fat` create: the whole disk.
    disk.entry(0, 0, 0x0c, 0, 4096);
    assert_eq!(partition_table(&disk).unwrap(), None);
    disk.entry(0, 0, 0x0c, 63, 100);
    assert_eq!(disk.partitions(), [(63, 100)]);
}
