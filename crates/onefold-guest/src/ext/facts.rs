//! Properties and usage of the file system, and whether its maps are certain.

use super::inode::{Inode, flags};
use super::superblock::features;
use super::tables::Tables;
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::{Doubt, FileSystemFacts, FileSystemKind};

/// The value of a cleanly unmounted file system in its block of multi-mount protection.
const MMP_CLEAN: u32 = 0xff4d_4d50;
/// Number of damaged groups after which the rest is skipped. A superblock may claim millions.
const DAMAGED_GROUPS_MAX: u32 = 1 << 16;
const MMP_MAGIC: u32 = 0x004d_4d50;

impl Tables<'_> {
    /// Returns the properties of the file system. Free blocks and files are summed over the groups, because the
    /// superblock's own sums are out of date while it is mounted. After too many damaged groups the rest is skipped,
    /// here and in all other requests.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn facts(&mut self) -> Result<FileSystemFacts, GuestError> {
        let (mut free_clusters, mut free_inodes, mut damaged) = (0, 0, 0);
        for number in 0..self.group_count() {
            if let Some(group) = self.damage.skip(self.group(number))? {
                free_clusters += u64::from(group.free_clusters);
                free_inodes += u64::from(group.free_inodes);
                continue;
            }
            damaged += 1;
            if damaged >= DAMAGED_GROUPS_MAX {
                self.leave_out_groups_from(number);
                break;
            }
        }
        let superblock = &self.superblock;
        let free_bytes = free_clusters.saturating_mul(superblock.blocks_per_cluster * superblock.block_bytes);
        let size_bytes = superblock.block_count.saturating_mul(superblock.block_bytes);
        let kind = match superblock.features {
            features if features.is_ext4() => FileSystemKind::Ext4,
            features if features.has(features::HAS_JOURNAL) => FileSystemKind::Ext3,
            _ => FileSystemKind::Ext2,
        };
        Ok(FileSystemFacts {
            kind,
            features: superblock.features.names(),
            label: superblock.label.clone(),
            uuid: uuid_text(&superblock.uuid),
            block_bytes: superblock.block_bytes,
            size_bytes,
            free_bytes: Some(free_bytes.min(size_bytes)),
            files_max: Some(u64::from(superblock.inode_count)),
            files_used: Some(u64::from(superblock.inode_count).saturating_sub(free_inodes)),
        })
    }

    /// Returns why maps may be out of date, apart from the content of the journal.
    pub(super) fn doubts(&self) -> Vec<Doubt> {
        let superblock = &self.superblock;
        let has_journal = superblock.features.has(features::HAS_JOURNAL);
        let is_in_use = superblock.features.has(features::MMP) && self.is_in_use();
        let end = superblock.block_count.saturating_mul(superblock.block_bytes);
        let doubts = [
            (is_in_use, Doubt::InUse),
            (!has_journal && !superblock.is_clean, Doubt::NotUnmounted),
            // With a journal, the kernel leaves the mark for a clean state. A checker that did not finish does not.
            (superblock.has_errors || has_journal && !superblock.is_clean, Doubt::HasErrors),
            (has_journal && superblock.journal_inode == 0, Doubt::ExternalJournal),
            (end > self.source.reader().size_bytes(), Doubt::LongerThanVolume),
            (superblock.features.has_unknown_maps(), Doubt::UnknownFeature),
        ];
        doubts.into_iter().filter(|(is_true, _)| *is_true).map(|(_, doubt)| doubt).collect()
    }

    /// Returns whether a machine or a checker has recorded that it uses the file system.
    fn is_in_use(&self) -> bool {
        let offset = self.superblock.mmp_block.saturating_mul(self.superblock.block_bytes);
        let block = self.source.bytes(offset, self.superblock.block_length, "multi-mount protection");
        block.map_or(true, |block| (Bytes(&block).le32(0), Bytes(&block).le32(4)) != (Some(MMP_MAGIC), Some(MMP_CLEAN)))
    }

    /// Returns whether an inode is an internal one of the file system, which no directory names.
    pub(super) fn is_internal(&self, inode: &Inode) -> bool {
        const ROOT: u32 = 2;
        let superblock = &self.superblock;
        let own = [superblock.project_quota_inode, superblock.orphan_file_inode];
        inode.has(flags::EA_INODE)
            || inode.number < superblock.first_inode && inode.number != ROOT
            || own.contains(&inode.number)
    }
}

/// Returns a UUID in its usual form.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let digits: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [0..4, 4..6, 6..8, 8..10, 10..16].map(|part| digits[part].concat()).join("-")
}
