//! Small real images with overlaid changes, and the checksums that make a reader believe them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_disk::{Disk, DiskError};

pub(super) const BLOCK_BYTES: u64 = 1024;
const BLOCK_LENGTH: usize = 1024;
/// Maximum number of bytes that all reads for one input may have. A sound seed takes a hundredth of it.
const READ_BYTES_MAX: u64 = 1 << 28;
const JOURNAL_MAGIC: u32 = 0xc03b_3998;
/// Features of a superblock: the offset of their word, and their bit.
const METADATA_CSUM: (u64, u32) = (0x64, 0x400);
const UNINIT_BG: (u64, u32) = (0x64, 0x10);

/// The images, made by `seeds/make-ext.sh`: ext4 with many of its features, groups without checksums of blocks, ext2;
/// then journals to replay, without checksums and with them.
pub(super) static SEEDS: LazyLock<[Seed; 5]> = LazyLock::new(|| {
    [
        include_bytes!("../../../seeds/ext-4.seed").as_slice(),
        include_bytes!("../../../seeds/ext-groups.seed"),
        include_bytes!("../../../seeds/ext-2.seed"),
        include_bytes!("../../../seeds/ext-journal.seed"),
        include_bytes!("../../../seeds/ext-sums.seed"),
    ]
    .map(Seed::decode)
});

/// A sound image.
pub(super) struct Seed {
    image: Vec<u8>,
    /// Offsets of all stretches of 16 bytes that are not zero.
    pub(super) used: Vec<u64>,
}

impl Seed {
    fn decode(mut packed: &[u8]) -> Seed {
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize;
        let mut image = vec![0; number(&packed[..4])];
        let mut at = 0;
        packed = &packed[4..];
        while !packed.is_empty() {
            let length = number(&packed[4..8]);
            at += number(&packed[..4]);
            image[at..at + length].copy_from_slice(&packed[8..8 + length]);
            at += length;
            packed = &packed[8 + length..];
        }
        let used = image.chunks(16).enumerate().filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
        let used = used.map(|(index, _)| index as u64 * 16).collect();
        Seed { image, used }
    }
}

/// An image with changes.
pub(super) struct Image {
    seed: &'static Seed,
    pub(super) size_bytes: u64,
    changes: BTreeMap<u64, u8>,
    read_bytes: AtomicU64,
    reads: AtomicU64,
    /// Number of the read from which on all reads fail.
    pub(super) fails_from: u64,
}

impl Image {
    pub(super) fn new(seed: &'static Seed) -> Image {
        let size_bytes = seed.image.len() as u64;
        let (read_bytes, reads) = (AtomicU64::new(0), AtomicU64::new(0));
        Image { seed, size_bytes, changes: BTreeMap::new(), read_bytes, reads, fails_from: u64::MAX }
    }

    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) {
        self.changes.extend((at..self.seed.image.len() as u64).zip(bytes.iter().copied()));
    }

    fn copy(&self, at: u64, into: &mut [u8]) {
        let end = at + into.len() as u64;
        let start = usize::try_from(at).expect("a small image");
        let found = self.seed.image.get(start..).unwrap_or_default();
        let length = found.len().min(into.len());
        into[..length].copy_from_slice(&found[..length]);
        into[length..].fill(0);
        for (place, byte) in self.changes.range(at..end) {
            into[usize::try_from(place - at).expect("within a read")] = *byte;
        }
    }

    fn bytes(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.copy(at, &mut bytes);
        bytes
    }

    fn le(&self, at: u64, length: usize) -> u64 {
        self.bytes(at, length).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn be(&self, at: u64) -> u32 {
        u32::from_be_bytes(self.bytes(at, 4).try_into().expect("four bytes"))
    }

    /// Returns a number of the seed's superblock, so that the places of structures do not change.
    fn seeded(&self, at: usize, length: usize) -> u64 {
        let at = at + 1024;
        self.seed.image[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn has(&self, (word, bit): (u64, u32)) -> bool {
        self.le(1024 + word, 4) & u64::from(bit) != 0
    }

    fn groups(&self) -> u64 {
        (self.seeded(0x4, 4) - 1).div_ceil(self.seeded(0x20, 4))
    }

    pub(super) fn inodes_per_group(&self) -> u64 {
        self.seeded(0x28, 4)
    }

    fn inode_bytes(&self) -> u64 {
        self.seeded(0x58, 2)
    }

    /// Returns the offset of a group's descriptor.
    pub(super) fn descriptor(&self, group: u64) -> u64 {
        2 * BLOCK_BYTES + group % self.groups() * self.descriptor_bytes()
    }

    fn descriptor_bytes(&self) -> u64 {
        if self.seeded(0x60, 4) & 0x80 == 0 { 32 } else { 64 }
    }

    /// Returns the offset of an inode, counted from 0 over all groups.
    pub(super) fn inode(&self, index: u64) -> u64 {
        let at = usize::try_from(self.descriptor(index / self.inodes_per_group())).expect("a small image") + 8;
        let table = self.seed.image[at..at + 4].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        table * BLOCK_BYTES + index % self.inodes_per_group() * self.inode_bytes()
    }

    fn seed_of_sums(&self) -> u32 {
        sum(u32::MAX, &self.bytes(1024 + 0x68, 16))
    }

    /// Corrects the checksums of superblock, bitmaps, descriptors and inodes.
    pub(super) fn make_believed(&mut self) {
        if self.has(METADATA_CSUM) {
            for index in 0..self.groups() * self.inodes_per_group() {
                self.sum_inode(index);
            }
            for group in 0..self.groups() {
                self.sum_bitmaps(group);
            }
        }
        for group in 0..self.groups() {
            self.sum_descriptor(group);
        }
        if self.has(METADATA_CSUM) {
            let sum = sum(u32::MAX, &self.bytes(1024, 0x3fc));
            self.put(1024 + 0x3fc, &sum.to_le_bytes());
        }
    }

    fn sum_inode(&mut self, index: u64) {
        let at = self.inode(index);
        let mut inode = self.bytes(at, usize::try_from(self.inode_bytes()).expect("a short inode"));
        let number = u32::try_from(index + 1).expect("few inodes").to_le_bytes();
        inode[0x7c..0x7e].fill(0);
        let has_high = inode.len() > 128 && u16::from_le_bytes([inode[0x80], inode[0x81]]) >= 4;
        if has_high {
            inode[0x82..0x84].fill(0);
        }
        let sum =
            [&number[..], &inode[0x64..0x68], &inode].iter().fold(self.seed_of_sums(), |crc, part| sum(crc, part));
        self.put(at + 0x7c, &sum.to_le_bytes()[..2]);
        if has_high {
            self.put(at + 0x82, &sum.to_le_bytes()[2..]);
        }
    }

    fn sum_bitmaps(&mut self, group: u64) {
        let descriptor = self.descriptor(group);
        let lengths = [self.seeded(0x24, 4) / 8, self.inodes_per_group() / 8];
        for (index, length) in (0..).zip(lengths) {
            let block = self.le(descriptor + index * 4, 4) * BLOCK_BYTES;
            let bitmap = self.bytes(block, usize::try_from(length).expect("a short bitmap"));
            let sum = sum(self.seed_of_sums(), &bitmap).to_le_bytes();
            self.put(descriptor + 0x18 + index * 2, &sum[..2]);
            if self.descriptor_bytes() == 64 {
                self.put(descriptor + 0x38 + index * 2, &sum[2..]);
            }
        }
    }

    fn sum_descriptor(&mut self, group: u64) {
        let at = self.descriptor(group);
        let mut descriptor = self.bytes(at, usize::try_from(self.descriptor_bytes()).expect("a short descriptor"));
        let number = u32::try_from(group).expect("few groups").to_le_bytes();
        let found = if self.has(METADATA_CSUM) {
            descriptor[0x1e..0x20].fill(0);
            sum(sum(self.seed_of_sums(), &number), &descriptor).to_le_bytes()
        } else if self.has(UNINIT_BG) {
            let parts = [&self.bytes(1024 + 0x68, 16)[..], &number, &descriptor[..0x1e], &descriptor[0x20..]];
            u32::from(parts.iter().fold(u16::MAX, |crc, part| short_sum(crc, part))).to_le_bytes()
        } else {
            return;
        };
        self.put(at + 0x1e, &found[..2]);
    }

    /// Returns the offset of a block of the journal, whose extents are in its inode.
    pub(super) fn journal(&self, block: u64) -> u64 {
        let map = usize::try_from(self.inode(7) + 0x28).expect("a small image");
        let number = |at: usize, length: usize| {
            self.seed.image[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let extents = (1..5).map(|index| map + index * 12);
        let extents = extents.map(|at| (number(at, 4), number(at + 4, 2), number(at + 8, 4)));
        let mut found = extents.filter(|(first, count, _)| (*first..first + count).contains(&block));
        found.next().map_or(0, |(first, _, start)| (start + block - first) * BLOCK_BYTES)
    }

    /// Corrects the checksums of a version 3 journal, as far as its blocks look valid.
    pub(super) fn make_journal_believed(&mut self, blocks: u64) {
        let head = self.journal(0);
        self.put(head + 0xfc, &[0; 4]);
        let sum_of_head = sum(u32::MAX, &self.bytes(head, BLOCK_LENGTH));
        self.put(head + 0xfc, &sum_of_head.to_be_bytes());
        let seed = sum(u32::MAX, &self.bytes(head + 0x30, 16));
        for block in 1..blocks {
            let at = self.journal(block);
            if self.be(at) != JOURNAL_MAGIC {
                continue;
            }
            let kind = self.be(at + 4);
            if kind == 1 {
                self.sum_tags(block, seed);
            }
            let place = if kind == 2 { at + 16 } else { at + BLOCK_BYTES - 4 };
            self.put(place, &[0; 4]);
            let found = sum(seed, &self.bytes(at, BLOCK_LENGTH));
            self.put(place, &found.to_be_bytes());
        }
    }

    fn sum_tags(&mut self, block: u64, seed: u32) {
        let descriptor = self.journal(block);
        let sequence = self.bytes(descriptor + 8, 4);
        let mut at = 12;
        for copy in block + 1.. {
            if at + 20 > BLOCK_BYTES {
                break;
            }
            let flags = self.be(descriptor + at + 4);
            let found = sum(sum(seed, &sequence), &self.bytes(self.journal(copy), BLOCK_LENGTH));
            self.put(descriptor + at + 12, &found.to_be_bytes());
            at += if flags & 2 == 0 { 32 } else { 16 };
            if flags & 8 != 0 {
                break;
            }
        }
    }
}

impl Disk for Image {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        Ok((offset < self.size_bytes).then_some(offset..self.size_bytes))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let end = offset.checked_add(into.len() as u64).expect("an offset that can be");
        assert!(end <= self.size_bytes, "{offset} to {end} of {} bytes", self.size_bytes);
        let before = self.read_bytes.fetch_add(into.len() as u64 + 64, Ordering::Relaxed);
        assert!(before < READ_BYTES_MAX, "reads without end");
        if self.reads.fetch_add(1, Ordering::Relaxed) >= self.fails_from {
            return Err(DiskError::Other("the disk is gone".into()));
        }
        self.copy(offset, into);
        Ok(())
    }
}

/// Continues CRC-32C without inversions.
fn sum(crc: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!crc, bytes)
}

/// Continues CRC-16.
fn short_sum(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xa001 } else { crc >> 1 })
    })
}
