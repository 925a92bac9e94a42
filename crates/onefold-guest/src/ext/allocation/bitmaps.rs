//! Block bitmaps: the allocated clusters of each group, before and after recovery.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::GuestError;
use crate::ext::group::Group;
use crate::ext::superblock::{Superblock, features};
use crate::ext::tables::Tables;

const STRUCTURE: &str = "block bitmap";
/// Maximum bytes of bitmaps that are cached.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// The allocated clusters of a group.
#[derive(Debug)]
pub(super) struct GroupBits {
    /// A bit for each cluster; empty if no cluster is allocated.
    bits: Vec<u8>,
    /// Whether the bitmap is damaged, so that every cluster counts as allocated.
    pub(super) is_doubtful: bool,
    /// Whether the group's descriptor counts other free clusters than the bitmap has, so that none of them is free.
    pub(super) is_miscounted: bool,
    /// Number of clusters that are allocated only in the bitmap before recovery.
    pub(super) only_before: u64,
}

impl GroupBits {
    fn doubtful() -> GroupBits {
        GroupBits { bits: Vec::new(), is_doubtful: true, is_miscounted: false, only_before: 0 }
    }

    /// Calls `visit` with each part of a range of clusters that has one state: the part, and whether it is allocated.
    pub(super) fn each_part(&self, range: Range<u64>, visit: &mut dyn FnMut(Range<u64>, bool)) {
        let mut start = range.start;
        while start < range.end {
            let is_set = self.is_set(start);
            let mut end = start + 1;
            while end < range.end {
                // Compares eight clusters at a time.
                if end.is_multiple_of(8) && end + 8 <= range.end && self.byte(end) == if is_set { 0xff } else { 0 } {
                    end += 8;
                } else if self.is_set(end) == is_set {
                    end += 1;
                } else {
                    break;
                }
            }
            visit(start..end, is_set);
            start = end;
        }
    }

    fn is_set(&self, cluster: u64) -> bool {
        self.is_doubtful || self.byte(cluster) >> (cluster % 8) & 1 == 1
    }

    fn byte(&self, cluster: u64) -> u8 {
        if self.is_doubtful {
            return 0xff;
        }
        usize::try_from(cluster / 8).ok().and_then(|at| self.bits.get(at)).copied().unwrap_or(0)
    }
}

/// The bitmaps of all groups. The most recently used ones are cached.
pub(super) struct Bitmaps<'t, 'a> {
    tables: &'t Tables<'a>,
    kept: HashMap<u32, Arc<GroupBits>>,
    /// The most recently used group: most blocks of a file are in the same group.
    last: Option<(u32, Arc<GroupBits>)>,
}

impl<'t, 'a> Bitmaps<'t, 'a> {
    /// Returns the bitmaps of a file system.
    pub(super) fn new(tables: &'t Tables<'a>) -> Bitmaps<'t, 'a> {
        Bitmaps { tables, kept: HashMap::new(), last: None }
    }

    /// Returns the clusters of a group that are allocated before or after recovery.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn group(&mut self, number: u32) -> Result<Arc<GroupBits>, GuestError> {
        if let Some((_, bits)) = self.last.as_ref().filter(|(last, _)| *last == number) {
            return Ok(Arc::clone(bits));
        }
        if let Some(bits) = self.kept.get(&number) {
            self.last = Some((number, Arc::clone(bits)));
            return Ok(Arc::clone(bits));
        }
        let bits = self.tables.damage.skip(self.read(number))?.unwrap_or_else(GroupBits::doubtful);
        let bits = Arc::new(bits);
        if self.kept.len() >= KEPT_BYTES_MAX / self.tables.superblock.block_length {
            self.kept.clear();
        }
        self.kept.insert(number, Arc::clone(&bits));
        Ok(bits)
    }

    fn read(&self, number: u32) -> Result<GroupBits, GuestError> {
        let tables = self.tables;
        let group = tables.group(number)?;
        let mut bits = if group.is_bitmap_unwritten { Vec::new() } else { self.bitmap(&group)? };
        let is_miscounted = self.tables.damage.skip(self.check_count(&group, &bits))?.is_none();
        let mut only_before = 0;
        if let Some(before) = self.before(&group)? {
            bits.resize(bits.len().max(before.len()), 0);
            for (bits, before) in bits.iter_mut().zip(&before) {
                only_before += u64::from((before & !*bits).count_ones());
                *bits |= before;
            }
        }
        Ok(GroupBits { bits, is_doubtful: false, is_miscounted, only_before })
    }

    fn bitmap(&self, group: &Group) -> Result<Vec<u8>, GuestError> {
        let (tables, superblock) = (self.tables, &self.tables.superblock);
        let offset = group.block_bitmap * superblock.block_bytes;
        let mut bitmap = tables.source.bytes(offset, superblock.block_length, STRUCTURE)?;
        bitmap.truncate(self.length());
        if superblock.features.has(features::METADATA_CSUM) && !tables.is_bitmap_sum(&bitmap, group.block_bitmap_sum) {
            return Err(tables.source.damage(offset, STRUCTURE, "its checksum is wrong").into());
        }
        Ok(bitmap)
    }

    /// Checks that a bitmap after recovery has as many free clusters as the group's descriptor counts. The kernel takes
    /// nothing from a group where they differ, and the checker corrects one of them.
    fn check_count(&self, group: &Group, bits: &[u8]) -> Result<(), GuestError> {
        let superblock = &self.tables.superblock;
        let blocks = superblock.group_start(group.number)..superblock.group_end(group.number);
        let count = (blocks.end - blocks.start).div_ceil(superblock.blocks_per_cluster);
        let used = if group.is_bitmap_unwritten { own_clusters(superblock, group) } else { count_ones(bits, count) };
        if count.checked_sub(used) == Some(group.free_clusters.into()) {
            return Ok(());
        }
        let offset = superblock.descriptor_offset(group.number);
        let problem = "it counts other free clusters than its bitmap has";
        Err(self.tables.source.damage(offset, "group descriptor", problem).into())
    }

    fn length(&self) -> usize {
        usize::try_from(self.tables.superblock.clusters_per_group() / 8).unwrap_or(usize::MAX)
    }

    /// Returns the bitmap on the disk, if the journal has a newer one or a newer descriptor. Its checksum may be of
    /// another time, so it is not compared.
    fn before(&self, group: &Group) -> Result<Option<Vec<u8>>, GuestError> {
        let (tables, superblock) = (self.tables, &self.tables.superblock);
        let descriptor = superblock.descriptor_offset(group.number);
        let (bitmap, block_bytes) = (group.block_bitmap * superblock.block_bytes, superblock.block_bytes);
        let is_changed = |offset, length| !tables.source.overlay().overlapping(offset, length).is_empty();
        if !is_changed(descriptor, superblock.descriptor_bytes as u64) && !is_changed(bitmap, block_bytes) {
            return Ok(None);
        }
        let reader = tables.source.reader();
        let bytes = reader.bytes(descriptor, superblock.descriptor_bytes, STRUCTURE)?;
        let before = Group::decode(superblock, group.number, &bytes)
            .map_err(|problem| reader.damage(descriptor, "group descriptor before recovery", problem))?;
        if before.is_bitmap_unwritten {
            return Ok(None);
        }
        let mut bitmap =
            reader.bytes(before.block_bitmap * superblock.block_bytes, superblock.block_length, STRUCTURE)?;
        bitmap.truncate(self.length());
        Ok(Some(bitmap))
    }
}

/// Returns the number of set bits among the first `count` ones.
fn count_ones(bits: &[u8], count: u64) -> u64 {
    let whole = usize::try_from(count / 8).unwrap_or(usize::MAX).min(bits.len());
    let (whole, rest) = bits.split_at(whole);
    let last = rest.first().map_or(0, |byte| byte & ((1 << (count % 8)) - 1));
    whole.iter().chain([&last]).map(|byte| u64::from(byte.count_ones())).sum()
}

/// Returns the number of clusters of a group that its own tables have. All others are free if its bitmap was never
/// written.
fn own_clusters(superblock: &Superblock, group: &Group) -> u64 {
    let (start, end) = (superblock.group_start(group.number), superblock.group_end(group.number));
    let table_blocks =
        (superblock.inodes_per_group as usize * superblock.inode_bytes).div_ceil(superblock.block_length) as u64;
    let mut tables = [
        (start, superblock.header_blocks(group.number)),
        (group.block_bitmap, 1),
        (group.inode_bitmap, 1),
        (group.inode_table, table_blocks),
    ];
    tables.sort_unstable();
    let (mut used, mut counted) = (0, 0);
    for (first, count) in tables {
        let (first, last) = (first.max(start), first.saturating_add(count).min(end));
        if first < last {
            let ratio = superblock.blocks_per_cluster;
            let clusters = ((first - start) / ratio).max(counted)..(last - start).div_ceil(ratio);
            counted = counted.max(clusters.end);
            used += clusters.end.saturating_sub(clusters.start);
        }
    }
    used
}
