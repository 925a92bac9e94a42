//! Allocation maps.

use std::ops::Range;

/// A run of a volume whose bytes have the same use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// First byte in the volume.
    pub start_bytes: u64,
    /// Length in bytes, not 0.
    pub length_bytes: u64,
    /// The use of these bytes.
    pub class: AllocationClass,
}

impl Allocation {
    /// Returns the byte of the volume after the last one.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.start_bytes + self.length_bytes
    }
}

/// Differences between the sources of an allocation map, in bytes. All of these bytes count as allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationDifferences {
    /// Allocated only by the bitmaps before recovery.
    pub before_recovery_bytes: u64,
    /// Reached by files or by the file system's own structures, but free in the bitmaps.
    pub reached_bytes: u64,
    /// Allocated in one copy of the map, and free in another one. Only FAT has copies.
    pub between_copies_bytes: u64,
}

/// Returns the free runs of a map as ranges.
pub(crate) fn free_ranges(map: &[Allocation]) -> Vec<Range<u64>> {
    let free = map.iter().filter(|run| run.class == AllocationClass::Free);
    free.map(|run| run.start_bytes..run.end_bytes()).collect()
}

/// Returns the length of what two lists have in common. Both are sorted by their starts. The ranges of `one` do not
/// overlap each other; those of `other` may, and count once.
pub(crate) fn common_length(one: impl Iterator<Item = Range<u64>>, other: impl Iterator<Item = Range<u64>>) -> u64 {
    let (mut one, mut counted_to, mut length) = (one.peekable(), 0, 0);
    for range in other {
        let mut start = range.start.max(counted_to);
        while start < range.end {
            while one.next_if(|first| first.end <= start).is_some() {}
            let Some(first) = one.peek().filter(|first| first.start < range.end) else { break };
            let end = first.end.min(range.end);
            length += end - first.start.max(start);
            start = end;
        }
        counted_to = counted_to.max(range.end);
    }
    length
}

/// The use of a run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AllocationClass {
    /// Certainly free: neither a mount, nor recovery, nor the file system's own checker reads it, provided that the
    /// checker recovers first.
    Free,
    /// Content of files, and blocks that are allocated with no known use.
    Data,
    /// Metadata of a kind.
    Table(TableKind),
    /// Counted as allocated because its map is damaged or in doubt.
    Doubtful,
    /// Bytes of the volume outside of the file system's blocks: behind its end, or before its first block.
    Outside,
}

/// Kinds of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableKind {
    /// Superblocks and headers of groups.
    Superblock,
    /// Maps of free and used blocks and files.
    Bitmap,
    /// Inodes, MFT records.
    Inodes,
    /// Trees and lists that map files, attributes and free space.
    Tree,
    /// Directories.
    Directory,
    /// The journal.
    Journal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_lists_have_in_common_counts_once() {
        let length = |one: &[(u64, u64)], other: &[(u64, u64)]| {
            common_length(one.iter().map(|range| range.0..range.1), other.iter().map(|range| range.0..range.1))
        };
        assert_eq!(length(&[(10, 20), (30, 40)], &[(0, 100)]), 20);
        assert_eq!(length(&[(10, 20), (30, 40)], &[(15, 35), (16, 18), (33, 50)]), 15);
        assert_eq!(length(&[(10, 20)], &[(0, 10), (20, 30)]), 0);
        assert_eq!(length(&[(0, 5), (5, 10)], &[(1, 2), (4, 6), (9, 10)]), 4);
        assert_eq!((length(&[], &[(0, 10)]), length(&[(0, 10)], &[])), (0, 0));
    }
}
