//! Disks for tests.

use std::ops::Range;

use onefold_block::random::{Random, SeededRandom};
use onefold_disk::{Disk, DiskError};

/// A disk in memory. All of it is data, save what `holes` says.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryDisk {
    pub(crate) bytes: Vec<u8>,
    /// Ranges that read as zeros and that the disk knows as holes; in order.
    pub(crate) holes: Vec<Range<usize>>,
}

impl MemoryDisk {
    pub(crate) fn new(bytes: Vec<u8>) -> MemoryDisk {
        MemoryDisk { bytes, holes: Vec::new() }
    }

    /// Returns a disk of noise.
    pub(crate) fn noise(bytes: usize, random: &SeededRandom) -> MemoryDisk {
        let mut noise = vec![0; bytes];
        random.fill(&mut noise).expect("seeded");
        MemoryDisk::new(noise)
    }

    /// Makes a range a hole.
    pub(crate) fn punch(&mut self, hole: Range<usize>) {
        self.bytes[hole.clone()].fill(0);
        self.holes.push(hole);
        self.holes.sort_by_key(|hole| hole.start);
    }
}

impl Disk for MemoryDisk {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let mut start = usize::try_from(offset).expect("fits");
        for hole in &self.holes {
            if hole.contains(&start) {
                start = hole.end;
            }
        }
        let next = self.holes.iter().map(|hole| hole.start).find(|next| *next > start);
        let end = next.unwrap_or(self.bytes.len()).min(self.bytes.len());
        Ok((start < end).then_some(start as u64..end as u64))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let start = usize::try_from(offset).expect("fits").min(self.bytes.len());
        let length = into.len().min(self.bytes.len() - start);
        into[..length].copy_from_slice(&self.bytes[start..start + length]);
        into[length..].fill(0);
        Ok(())
    }
}
