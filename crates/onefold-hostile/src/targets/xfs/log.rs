//! Logs of XFS: the end of a log that the kernel left dirty, moved to any place of the ring, with changed headers,
//! cycle words and operations. Checksums are computed anew, so that readers believe them.

use std::sync::OnceLock;

use onefold_guest::filesystem::{AllocationClass, FileSystem, State};
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};
use onefold_guest::xfs;

use super::image::{ChangedDisk, Image, SECTOR_BYTES};
use super::{must_be_of_the_guest, number, samples};
use crate::Choices;

/// Whole records of the log of a busy file system, up to its head.
const SEED: &[u8] = include_bytes!("../../../samples/xfs-log.sample");
const MAGIC: [u8; 4] = [0xfe, 0xed, 0xba, 0xbe];
const FLAG_UNMOUNT: u8 = 0x20;
/// Sectors of the ring: a short one, since every sector has a cycle word.
const RING_SECTORS: u64 = 256;
const CHECKSUM_AT: usize = 32;
/// The part of a header that its checksum covers, with the padding of 64-bit machines and without.
const COVERED: [usize; 2] = [328, 324];

/// The ring of a disk that is being changed.
struct Ring<'d, 'i> {
    disk: &'d mut ChangedDisk<'i>,
    place: u64,
    uuid: Vec<u8>,
}

impl Ring<'_, '_> {
    fn at(&self, sector: u64) -> u64 {
        self.place + sector % RING_SECTORS * SECTOR_BYTES as u64
    }

    fn sector(&self, sector: u64) -> Vec<u8> {
        self.disk.bytes(self.at(sector), SECTOR_BYTES)
    }

    fn put(&mut self, sector: u64, within: usize, bytes: &[u8]) {
        self.disk.put(self.at(sector) + within as u64, bytes);
    }

    fn is_header(&self, sector: u64) -> bool {
        self.sector(sector).starts_with(&MAGIC)
    }

    /// Returns the cycle in which a sector was written.
    fn cycle(&self, sector: u64) -> u32 {
        let bytes = self.sector(sector);
        be32(&bytes, if bytes.starts_with(&MAGIC) { 4 } else { 0 })
    }

    /// Returns the content of a record, if the ring is long enough for it.
    fn content(&self, start: u64) -> Option<Vec<u8>> {
        let length = be32(&self.sector(start), 12) as usize;
        let sectors = length.div_ceil(SECTOR_BYTES) as u64;
        let all = (sectors < RING_SECTORS).then(|| (1..=sectors).flat_map(|at| self.sector(start + at)));
        all.map(|all| all.take(length).collect())
    }

    /// Returns the checksum of a record with a header of one sector.
    fn checksum(&self, start: u64, covered: usize) -> Option<u32> {
        let mut header = self.sector(start);
        header[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        Some(crc32c::crc32c_append(crc32c::crc32c(&header[..covered]), &self.content(start)?))
    }

    fn seal(&mut self, start: u64) {
        if let Some(sum) = self.checksum(start, COVERED[0]) {
            self.put(start, CHECKSUM_AT, &sum.to_le_bytes());
        }
    }

    /// Gives all sectors their cycle: those before `head` the newer one.
    fn put_cycles(&mut self, head: u64, cycle: u32) {
        for sector in 0..RING_SECTORS {
            let cycle = if sector < head { cycle } else { cycle - 1 };
            self.put(sector, 0, &cycle.to_be_bytes());
        }
    }

    /// Puts the records of the seed, so that they end at `head`.
    fn put_seed(&mut self, seed: &Image, head: u64, cycle: u32) {
        let sectors = seed.size_bytes / SECTOR_BYTES as u64;
        let first = head - sectors;
        for sector in 0..sectors {
            let mut bytes = seed.bytes(sector * SECTOR_BYTES as u64, SECTOR_BYTES);
            let at = if bytes.starts_with(&MAGIC) { 4 } else { 0 };
            bytes[at..at + 4].copy_from_slice(&cycle.to_be_bytes());
            self.put(first + sector, 0, &bytes);
        }
        for start in (first..head).filter(|sector| self.is_header(*sector)).collect::<Vec<_>>() {
            self.put_header(start, cycle);
        }
    }

    /// Makes the header of a record one of this place and this file system.
    fn put_header(&mut self, start: u64, cycle: u32) {
        let sequence = (u64::from(cycle) << 32) | (start % RING_SECTORS);
        self.put(start, 16, &sequence.to_be_bytes());
        let uuid = self.uuid.clone();
        self.put(start, 304, &uuid);
        self.seal(start);
    }

    /// Writes a record of an unmount, as the kernel does.
    fn put_unmount(&mut self, start: u64, cycle: u32) {
        let mut header = [0; SECTOR_BYTES];
        header[..4].copy_from_slice(&MAGIC);
        for (at, number) in [(4, cycle), (8, 2), (12, 512), (40, 1), (300, 1), (320, 32 << 10)] {
            header[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        let mut operation = [0; SECTOR_BYTES];
        operation[..4].copy_from_slice(&cycle.to_be_bytes());
        operation[7] = 8;
        operation[8..10].copy_from_slice(&[0xaa, FLAG_UNMOUNT]);
        operation[12..14].copy_from_slice(b"nU");
        self.put(start, 0, &header);
        self.put(start + 1, 0, &operation);
        self.put_header(start, cycle);
    }

    /// Changes one place near the head.
    fn change(&mut self, choices: &mut Choices<'_>, head: u64) {
        let near = (head + RING_SECTORS - choices.below(48)) % RING_SECTORS;
        let header = (0..RING_SECTORS).map(|back| near + RING_SECTORS - back).find(|sector| self.is_header(*sector));
        let header = header.unwrap_or(near);
        match choices.below(6) {
            0 => {
                let at = *choices.one_of(&[4, 8, 12, 16, 20, 24, 32, 36, 40, 44, 300, 304, 320]);
                let new = number(choices, u64::from(be32(&self.sector(header), at)));
                self.put(header, at, &new.to_be_bytes()[4..]);
            }
            1 => {
                let sector = *choices.one_of(&[near, 0, 1, RING_SECTORS - 1, head % RING_SECTORS]);
                let at = if self.is_header(sector) { 4 } else { 0 };
                let new = number(choices, u64::from(self.cycle(sector)));
                self.put(sector, at, &new.to_be_bytes()[4..]);
            }
            2 => {
                let at = choices.index(16);
                let old = self.sector(header + 1)[at];
                self.put(header + 1, at, &[old ^ 1 << choices.below(8)]);
            }
            3 => {
                let bytes = self.sector(near);
                self.put(head + choices.below(4), 0, &bytes);
            }
            4 => {
                let bytes = self.sector(header);
                self.put(near, 0, &bytes);
            }
            _ => self.put(near, 0, &[0; SECTOR_BYTES]),
        }
        if choices.below(4) != 1 {
            self.seal(header);
        }
    }

    /// Returns whether an intact record of an unmount ends where an older cycle begins, or a record that may be torn:
    /// nothing less may be certain.
    fn has_unmount_at_a_head(&self) -> bool {
        (0..RING_SECTORS).any(|start| {
            let header = self.sector(start);
            let (cycle, length) = (be32(&header, 4), be32(&header, 12));
            let sequence = u64::from(cycle) << 32 | start;
            let is_ours = header.starts_with(&MAGIC) && header[304..320] == self.uuid && be32(&header, 40) == 1;
            let is_here = header[16..24] == sequence.to_be_bytes() && length <= 256 << 10;
            // A header of several sectors describes longer buffers.
            let has_more = be32(&header, 8) & 2 != 0 && be32(&header, 320) > 32 << 10;
            let headers = if has_more { u64::from(be32(&header, 320).div_ceil(32 << 10)) } else { 1 };
            let end = start + headers + u64::from(length).div_ceil(SECTOR_BYTES as u64);
            let sum = u32::from_le_bytes(header[CHECKSUM_AT..CHECKSUM_AT + 4].try_into().expect("four bytes"));
            let is_sealed = || sum == 0 || COVERED.iter().any(|covered| self.checksum(start, *covered) == Some(sum));
            is_ours
                && is_here
                && self.sector(start + headers)[9] & FLAG_UNMOUNT != 0
                && (end % RING_SECTORS == 0 || self.cycle(end) != self.cycle(0) || self.is_header(end))
                && (has_more || is_sealed())
        })
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn seed() -> &'static Image {
    static DECODED: OnceLock<Image> = OnceLock::new();
    DECODED.get_or_init(|| Image::decode(SEED))
}

/// Returns a disk with a short log, and the place and the UUID of that log.
fn with_short_log(sample: &Image) -> (ChangedDisk<'_>, u64, Vec<u8>) {
    let superblock = sample.bytes(0, SECTOR_BYTES);
    let block_bytes = be32(&superblock, 4);
    let start = u64::from_be_bytes(superblock[48..56].try_into().expect("eight bytes"));
    let (group_log, group_blocks) = (superblock[124], u64::from(be32(&superblock, 84)));
    let block = (start >> group_log) * group_blocks + (start & ((1 << group_log) - 1));
    let mut disk = ChangedDisk::new(sample, sample.size_bytes);
    let blocks = u32::try_from(RING_SECTORS * SECTOR_BYTES as u64).expect("a short log") / block_bytes;
    disk.put(96, &blocks.to_be_bytes());
    disk.put(224, &[0; 4]);
    let sum = crc32c::crc32c(&disk.bytes(0, SECTOR_BYTES));
    disk.put(224, &sum.to_le_bytes());
    (disk, block * u64::from(block_bytes), superblock[32..48].to_vec())
}

/// Returns whether the log of a disk needs no recovery, according to the reader.
fn is_certain(disk: &ChangedDisk<'_>, size_bytes: u64) -> bool {
    let ranges = vec![DiskRange { start_bytes: 0, length_bytes: size_bytes }];
    let reader = VolumeReader::new(disk, &Volume { origin: VolumeOrigin::WholeDisk, ranges });
    let found = xfs::open(reader).inspect_err(must_be_of_the_guest).expect("only the log was changed");
    let found = found.expect("a sample of XFS");
    if *found.state() == State::Certain {
        return true;
    }
    let map = found.allocation().expect("the disk does not fail");
    assert!(map.iter().all(|run| run.class == AllocationClass::Doubtful), "{map:?}");
    false
}

pub(in crate::targets) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let (sample, seed) = (&samples()[0].image, seed());
    let (mut disk, place, uuid) = with_short_log(sample);
    let sectors = seed.size_bytes / SECTOR_BYTES as u64;
    let cycle = *choices.one_of(&[3, 2, 1, 1000, u32::MAX]);
    // The last record may also reach up to the end of the ring, or leave no room for another one.
    let spread = RING_SECTORS - sectors;
    let mut head = sectors + *choices.one_of(&[spread / 2, 0, 1, spread, spread - 1, spread - 2, spread - 3]);
    let mut ring = Ring { disk: &mut disk, place, uuid };
    let is_unmounted = head + 2 <= RING_SECTORS && choices.below(4) != 1;
    ring.put_cycles(if is_unmounted { head + 2 } else { head }, cycle);
    ring.put_seed(seed, head, cycle);
    if is_unmounted {
        ring.put_unmount(head, cycle);
        head += 2;
    }
    let changes = choices.below(5);
    (0..changes).for_each(|_| ring.change(&mut choices, head));
    let may_be_certain = ring.has_unmount_at_a_head() || ring.cycle(0) == 0;
    let is_certain = is_certain(&disk, sample.size_bytes);
    assert!(may_be_certain || !is_certain, "a log without the record of an unmount needs recovery");
    assert!(changes > 0 || is_certain == is_unmounted, "{is_certain} at {head} of cycle {cycle}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a log that the reader must look at, one after the other.
    #[test]
    fn only_an_intact_record_of_an_unmount_at_the_head_is_certain() {
        let (sample, seed) = (&samples()[0].image, seed());
        let head = 100;
        let with = |change: &dyn Fn(&mut Ring<'_, '_>)| {
            let (mut disk, place, uuid) = with_short_log(sample);
            let mut ring = Ring { disk: &mut disk, place, uuid };
            ring.put_cycles(head + 2, 7);
            ring.put_seed(seed, head, 7);
            ring.put_unmount(head, 7);
            change(&mut ring);
            let may_be = ring.has_unmount_at_a_head();
            let is = is_certain(&disk, sample.size_bytes);
            assert!(may_be || !is);
            is
        };
        assert!(with(&|_| {}), "a clean log");
        assert!(with(&|ring| ring.put(head, CHECKSUM_AT, &[0; 4])), "a record without a checksum");
        assert!(!with(&|ring| ring.put(head, CHECKSUM_AT, &[1; 4])), "a wrong checksum");
        assert!(!with(&|ring| ring.put(head + 1, 9, &[0])), "no unmount");
        assert!(!with(&|ring| ring.put(head + 2, 0, &7_u32.to_be_bytes())), "a sector of the same cycle behind it");
        let sealed = |at: usize, number: u32| {
            with(&|ring| {
                ring.put(head, at, &number.to_be_bytes());
                ring.seal(head);
            })
        };
        assert!(sealed(24, 9), "the tail is of no interest");
        for (at, number) in [(16, 6), (20, 99), (40, 2), (304, 1), (12, 4096)] {
            assert!(!sealed(at, number), "{at}");
        }
    }
}
