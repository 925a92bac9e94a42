//! A disk as if each partition, and each gap between partitions, began at a whole block. The data area of each FAT may
//! be moved in the same way.

use std::ops::Range;

use onefold_block::BLOCK_BYTES_U64;
use onefold_disk::{Disk, DiskError};
use onefold_guest::Partition;

/// Returns whether a partition begins inside a block.
pub(crate) fn is_misaligned(partition: &Partition) -> bool {
    !partition.start_bytes.is_multiple_of(BLOCK_BYTES_U64)
}

/// A disk with its parts moved to whole blocks, in their order.
pub(crate) struct RealignedDisk<'a> {
    disk: &'a dyn Disk,
    parts: Vec<MovedPart>,
    size_bytes: u64,
}

/// A part of the disk that moves as a whole.
struct MovedPart {
    /// Its place in this view; a multiple of a block.
    start: u64,
    /// Its place on the disk.
    on_disk: Range<u64>,
}

impl MovedPart {
    fn end(&self) -> u64 {
        self.start + (self.on_disk.end - self.on_disk.start)
    }
}

impl<'a> RealignedDisk<'a> {
    /// Moves the parts of `disk`. These are its partitions, which lie within it and do not overlap, and the parts that
    /// begin at the bytes `areas` within partitions.
    pub(crate) fn new(disk: &'a dyn Disk, partitions: &[Partition], areas: &[u64]) -> RealignedDisk<'a> {
        let mut ends: Vec<u64> =
            partitions.iter().flat_map(|partition| [partition.start_bytes, partition.end_bytes()]).collect();
        ends.extend(areas.iter().filter(|area| **area < disk.size_bytes()));
        ends.push(disk.size_bytes());
        ends.sort_unstable();
        let (mut parts, mut start, mut on_disk) = (Vec::new(), 0_u64, 0);
        for end in ends {
            if end > on_disk {
                parts.push(MovedPart { start, on_disk: on_disk..end });
                start = (start + end - on_disk).next_multiple_of(BLOCK_BYTES_U64);
                on_disk = end;
            }
        }
        let size_bytes = parts.last().map_or(0, MovedPart::end);
        RealignedDisk { disk, parts, size_bytes }
    }
}

impl Disk for RealignedDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        for part in self.parts.iter().filter(|part| part.end() > offset) {
            let from = part.on_disk.start + offset.saturating_sub(part.start);
            let Some(data) = self.disk.next_data(from)? else { return Ok(None) };
            let end = data.end.min(part.on_disk.end);
            if data.start < end {
                let here = |on_disk: u64| on_disk - part.on_disk.start + part.start;
                return Ok(Some(here(data.start)..here(end)));
            }
        }
        Ok(None)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        into.fill(0);
        let end = offset.saturating_add(into.len() as u64);
        for part in self.parts.iter().filter(|part| part.end() > offset && part.start < end) {
            let (first, last) = (part.start.max(offset), part.end().min(end));
            let place = |at: u64| usize::try_from(at - offset).expect("within a buffer");
            let on_disk = part.on_disk.start + (first - part.start);
            self.disk.read(on_disk, &mut into[place(first)..place(last)])?;
        }
        Ok(())
    }
}
