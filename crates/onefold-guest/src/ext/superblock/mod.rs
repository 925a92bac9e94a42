//! The superblock: properties and geometry of an ext file system.
//!
//! It is at byte 1024 of the volume, with copies at the start of some groups. Kernel documentation, "ext4 Data
//! Structures and Algorithms", section "The Super Block". All numbers are little-endian.
//!
//! | byte  | field | byte  | field |
//! |-------|-------|-------|-------|
//! | 0x0   | inodes | 0xe0 | inode of the journal |
//! | 0x4   | blocks, low; high at 0x150 | 0xe4 | device of the journal; first orphan at 0xe8 |
//! | 0x14  | first data block | 0xec | seed of directory hashes, 16 bytes |
//! | 0x18  | block size: 1024 << n | 0xfe | bytes of a group descriptor, with `64bit` |
//! | 0x1c  | cluster size: 1024 << n | 0x104 | first descriptor block of `meta_bg` |
//! | 0x20  | blocks in a group | 0x160 | flags: 1 signed, 2 unsigned directory hashes |
//! | 0x24  | clusters in a group | 0x168 | block of multi-mount protection, 8 bytes |
//! | 0x28  | inodes in a group | 0x175 | kind of checksum: 1 is CRC-32C |
//! | 0x38  | magic 0xef53 | 0x24c | the two groups with copies of `sparse_super2` |
//! | 0x3a  | state: 1 clean, 2 errors | 0x240 | inodes of user and group quota; project quota at 0x26c |
//! | 0x4c  | revision; 0 has fixed sizes | 0x270 | seed of checksums |
//! | 0x54  | first inode of users | 0x280 | inode of the orphan file |
//! | 0x58  | bytes of an inode | 0x3fc | checksum of bytes 0 to 0x3fc |
//! | 0x5a  | the group of this copy | 0xce  | reserved descriptor blocks |
//! | 0x5c  | features: three words | 0x68, 0x78 | UUID, label, of 16 bytes |

pub(super) mod features;

use features::Features;

use super::checksum::crc32c;
use crate::bytes::Bytes;

/// Bytes of the superblock.
pub(super) const SUPERBLOCK_BYTES: usize = 1024;
/// Place of the first superblock.
pub(super) const SUPERBLOCK_OFFSET: u64 = 1024;
const MAGIC: u16 = 0xef53;
const CHECKSUM_AT: usize = 0x3fc;
/// `mke2fs` makes no smaller groups. With fewer blocks, a reader would visit more groups than a disk can hold.
const BLOCKS_PER_GROUP_MIN: u32 = 256;

/// The superblock after a consistency check.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) features: Features,
    pub(super) inode_count: u32,
    pub(super) inodes_per_group: u32,
    pub(super) inode_bytes: usize,
    /// The first inode that is not reserved.
    pub(super) first_inode: u32,
    pub(super) block_count: u64,
    pub(super) first_data_block: u64,
    pub(super) block_bytes: u64,
    /// [`Superblock::block_bytes`], for lengths of slices.
    pub(super) block_length: usize,
    pub(super) blocks_per_cluster: u64,
    pub(super) blocks_per_group: u64,
    pub(super) group_count: u32,
    pub(super) descriptor_bytes: usize,
    pub(super) reserved_descriptor_blocks: u64,
    pub(super) first_meta_group: u32,
    /// The groups that have a copy of the superblock, with `sparse_super2`.
    pub(super) backup_groups: [u32; 2],
    /// The group of this copy.
    pub(super) copy_group: u16,
    pub(super) is_clean: bool,
    pub(super) has_errors: bool,
    pub(super) journal_inode: u32,
    /// The first inode of the list of orphans.
    pub(super) first_orphan: u32,
    pub(super) hash_seed: [u32; 4],
    /// Whether directory hashes treat bytes as unsigned numbers.
    pub(super) is_hash_unsigned: bool,
    pub(super) mmp_block: u64,
    /// The inodes of user and group quota.
    pub(super) quota_inodes: [u32; 2],
    pub(super) project_quota_inode: u32,
    pub(super) orphan_file_inode: u32,
    /// The seed of all checksums of metadata.
    pub(super) checksum_seed: u32,
    pub(super) uuid: [u8; 16],
    /// The label, up to its first zero byte.
    pub(super) label: Vec<u8>,
}

impl Superblock {
    /// Returns whether these bytes claim to be a superblock.
    pub(super) fn is_claimed(bytes: &[u8]) -> bool {
        Bytes(bytes).le16(0x38) == Some(MAGIC)
    }

    /// Decodes a superblock.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub(super) fn decode(bytes: &[u8]) -> Result<Superblock, &'static str> {
        let superblock = Superblock::fields(Bytes(bytes)).ok_or("its sizes are impossible")?;
        if superblock.features.has(features::METADATA_CSUM) {
            superblock.check_sum(bytes)?;
        }
        superblock.check()?;
        Ok(superblock)
    }

    fn check_sum(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let bytes = Bytes(bytes);
        let summed = bytes.part(0, CHECKSUM_AT).map(|summed| crc32c(u32::MAX, summed.0));
        if bytes.u8(0x175) != Some(1) {
            return Err("its kind of checksum is unknown");
        }
        if summed != bytes.le32(CHECKSUM_AT) { Err("its checksum is wrong") } else { Ok(()) }
    }

    fn fields(bytes: Bytes<'_>) -> Option<Superblock> {
        let is_dynamic = bytes.le32(0x4c)? > 0;
        let feature_word = |at| if is_dynamic { bytes.le32(at) } else { Some(0) };
        let features = Features {
            compatible: feature_word(0x5c)?,
            incompatible: feature_word(0x60)?,
            read_only: feature_word(0x64)?,
        };
        let wide = |low: u32, high: usize| {
            let high = if features.has(features::BITS_64) { bytes.le32(high)? } else { 0 };
            Some(u64::from(high) << 32 | u64::from(low))
        };
        let block_bytes = power(bytes.le32(0x18)?)?;
        let cluster_bytes =
            if features.has(features::BIGALLOC) { power_large(bytes.le32(0x1c)?)? } else { block_bytes };
        let block_count = wide(bytes.le32(0x4)?, 0x150)?;
        let first_data_block = u64::from(bytes.le32(0x14)?);
        let blocks_per_group = bytes.le32(0x20)?;
        let groups = block_count.checked_sub(first_data_block)?.div_ceil(u64::from(blocks_per_group).max(1));
        let uuid: [u8; 16] = bytes.array(0x68)?;
        let seed =
            if features.has(features::METADATA_CSUM_SEED) { bytes.le32(0x270)? } else { crc32c(u32::MAX, &uuid) };
        let state = bytes.le16(0x3a)?;
        let label: [u8; 16] = bytes.array(0x78)?;
        Some(Superblock {
            features,
            inode_count: bytes.le32(0)?,
            inodes_per_group: bytes.le32(0x28)?,
            inode_bytes: if is_dynamic { usize::from(bytes.le16(0x58)?) } else { 128 },
            first_inode: if is_dynamic { bytes.le32(0x54)? } else { 11 },
            block_count,
            first_data_block,
            block_bytes,
            block_length: usize::try_from(block_bytes).ok()?,
            blocks_per_cluster: (cluster_bytes / block_bytes).max(1),
            blocks_per_group: u64::from(blocks_per_group),
            group_count: u32::try_from(groups).ok()?,
            descriptor_bytes: if features.has(features::BITS_64) { usize::from(bytes.le16(0xfe)?) } else { 32 },
            reserved_descriptor_blocks: u64::from(bytes.le16(0xce)?),
            first_meta_group: bytes.le32(0x104)?,
            backup_groups: [bytes.le32(0x24c)?, bytes.le32(0x250)?],
            copy_group: bytes.le16(0x5a)?,
            is_clean: state & 1 != 0,
            has_errors: state & 2 != 0,
            journal_inode: bytes.le32(0xe0)?,
            first_orphan: bytes.le32(0xe8)?,
            hash_seed: [bytes.le32(0xec)?, bytes.le32(0xf0)?, bytes.le32(0xf4)?, bytes.le32(0xf8)?],
            is_hash_unsigned: bytes.le32(0x160)? & 2 != 0,
            mmp_block: bytes.le64(0x168)?,
            quota_inodes: [bytes.le32(0x240)?, bytes.le32(0x244)?],
            project_quota_inode: bytes.le32(0x26c)?,
            orphan_file_inode: bytes.le32(0x280)?,
            checksum_seed: seed,
            uuid,
            label: label.iter().copied().take_while(|byte| *byte != 0).collect(),
        })
    }

    /// Checks the fields against each other, as the kernel does before a mount.
    fn check(&self) -> Result<(), &'static str> {
        let bits = 8 * self.block_bytes;
        let inodes_per_block = self.block_length / self.inode_bytes.max(1);
        let is_size =
            |bytes: usize, range: std::ops::RangeInclusive<usize>| bytes.is_power_of_two() && range.contains(&bytes);
        let clusters_per_group = self.blocks_per_group / self.blocks_per_cluster;
        if !is_size(self.inode_bytes, 128..=self.block_length) {
            return Err("its size of inodes is impossible");
        }
        if self.features.has(features::BITS_64) && !is_size(self.descriptor_bytes, 64..=1024) {
            return Err("its size of group descriptors is impossible");
        }
        if self.blocks_per_group < u64::from(BLOCKS_PER_GROUP_MIN)
            || !self.blocks_per_group.is_multiple_of(8 * self.blocks_per_cluster)
            || clusters_per_group > bits
        {
            return Err("its size of groups is impossible");
        }
        let inodes = u64::from(self.inodes_per_group);
        if inodes == 0 || inodes > bits || inodes < inodes_per_block as u64 {
            return Err("its number of inodes in a group is impossible");
        }
        let is_long = self.block_count > 1 << 48 || self.block_count > (1 << 63) / self.block_bytes;
        if self.first_data_block > 1 || self.first_data_block >= self.block_count || is_long {
            return Err("its number of blocks is impossible");
        }
        if u64::from(self.group_count) * inodes != u64::from(self.inode_count) {
            return Err("its number of inodes is not that of its groups");
        }
        // Otherwise tables of inodes would overlap.
        let inode_bytes = u64::from(self.inode_count) * self.inode_bytes as u64;
        if inode_bytes > self.block_count.saturating_mul(self.block_bytes) {
            return Err("its inodes are longer than it");
        }
        Ok(())
    }

    /// Returns the number of clusters in a group.
    pub(super) fn clusters_per_group(&self) -> u64 {
        self.blocks_per_group / self.blocks_per_cluster
    }

    /// Returns the first block of a group.
    pub(super) fn group_start(&self, group: u32) -> u64 {
        self.first_data_block + u64::from(group) * self.blocks_per_group
    }

    /// Returns the block after the last one of a group.
    pub(super) fn group_end(&self, group: u32) -> u64 {
        (self.group_start(group) + self.blocks_per_group).min(self.block_count)
    }

    /// Returns whether a run of blocks lies in the file system, past the superblock's own place.
    pub(super) fn has_blocks(&self, start: u64, count: u64) -> bool {
        start > self.first_data_block && start.checked_add(count).is_some_and(|end| end <= self.block_count)
    }

    /// Returns the number of group descriptors per block.
    pub(super) fn descriptors_per_block(&self) -> u32 {
        u32::try_from(self.block_length / self.descriptor_bytes).unwrap_or(1)
    }

    /// Returns the number of blocks for all group descriptors.
    pub(super) fn descriptor_blocks(&self) -> u64 {
        u64::from(self.group_count.div_ceil(self.descriptors_per_block()))
    }

    /// Returns whether a group begins with a copy of the superblock.
    pub(super) fn has_copy(&self, group: u32) -> bool {
        if self.features.has(features::SPARSE_SUPER2) {
            return group == 0 || self.backup_groups.contains(&group);
        }
        group <= 1 || !self.features.has(features::SPARSE_SUPER) || [3, 5, 7].iter().any(|root| is_power(group, *root))
    }

    /// Returns the number of blocks at the start of a group for superblock, group descriptors and reserved descriptors.
    pub(super) fn header_blocks(&self, group: u32) -> u64 {
        let copy = u64::from(self.has_copy(group));
        let per_block = self.descriptors_per_block();
        let is_meta = self.features.has(features::META_BG);
        if is_meta && group / per_block >= self.first_meta_group {
            let within = group % per_block;
            return copy + u64::from(within <= 1 || within == per_block - 1);
        }
        let table = if is_meta { u64::from(self.first_meta_group) } else { self.descriptor_blocks() };
        copy * (1 + table + self.reserved_descriptor_blocks)
    }

    /// Returns the byte of the volume at which the descriptor of a group begins.
    pub(super) fn descriptor_offset(&self, group: u32) -> u64 {
        let (table_block, within) = (group / self.descriptors_per_block(), group % self.descriptors_per_block());
        let block = if self.features.has(features::META_BG) && table_block >= self.first_meta_group {
            let first = table_block * self.descriptors_per_block();
            // If blocks of 1 KiB are numbered from 0, the superblock is in block 1.
            let boot = u64::from(table_block == 0 && self.block_bytes == 1024 && self.first_data_block == 0);
            self.group_start(first) + u64::from(self.has_copy(first)) + boot
        } else {
            SUPERBLOCK_OFFSET / self.block_bytes + 1 + u64::from(table_block)
        };
        block * self.block_bytes + u64::from(within) * self.descriptor_bytes as u64
    }
}

/// Returns 1024 << `log`, up to the maximum block length.
fn power(log: u32) -> Option<u64> {
    (log <= 6).then(|| 1024 << log)
}

/// Returns 1024 << `log`, up to the maximum cluster length.
fn power_large(log: u32) -> Option<u64> {
    (log <= 19).then(|| 1024 << log)
}

/// Returns whether `number` is a power of `root`.
fn is_power(number: u32, root: u32) -> bool {
    let mut power = root;
    while power < number {
        match power.checked_mul(root) {
            Some(next) => power = next,
            None => return false,
        }
    }
    power == number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a superblock with one group and blocks of 1 KiB.
    fn superblock(blocks: u32, inodes: u32, inode_bytes: u16) -> Vec<u8> {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        let fields = [(0x0, inodes), (0x4, blocks), (0x14, 1), (0x20, 8192), (0x24, 8192), (0x28, inodes), (0x4c, 1)];
        for (at, value) in fields {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes[0x38..0x3a].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[0x58..0x5a].copy_from_slice(&inode_bytes.to_le_bytes());
        bytes
    }

    #[test]
    fn inodes_that_do_not_fit_are_damage() {
        let problem = |inodes, inode_bytes| Superblock::decode(&superblock(2048, inodes, inode_bytes)).err();
        assert_eq!(problem(2048, 1024), None);
        assert_eq!(problem(8192, 128), None);
        assert_eq!(problem(8192, 512), Some("its inodes are longer than it"));
    }
}
