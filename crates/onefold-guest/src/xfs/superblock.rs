//! The superblock: geometry, features and counters of the whole file system.
//!
//! From "XFS Filesystem Structure", chapter "Superblocks". Numbers are big-endian, checksums little-endian. Fields that
//! are used here:
//!
//! | bytes    | field                | notes                                                       |
//! |----------|----------------------|-------------------------------------------------------------|
//! | 0..4     | magic                | `XFSB`                                                      |
//! | 4..8     | block size           | bytes, a power of two                                       |
//! | 8..16    | blocks               | of the whole data device                                    |
//! | 16..24   | realtime blocks      | not 0: refused                                              |
//! | 32..48   | UUID                 | as users see it                                             |
//! | 48..56   | start of the log     | 0: the log is on another device, refused                    |
//! | 56..64   | root directory       | inode number                                                |
//! | 64..80   | bitmap and summary of realtime blocks | inode numbers; they exist without such blocks, too |
//! | 84..88   | blocks of a group    | the last group may be shorter                               |
//! | 88..92   | groups               |                                                             |
//! | 96..100  | blocks of the log    |                                                             |
//! | 100..102 | version              | the low four bits; features in the others                   |
//! | 102..108 | sector, inode bytes, inodes of a block | two bytes each                            |
//! | 108..120 | label                | ends at the first zero byte                                 |
//! | 120..128 | binary logarithms    | block, sector, inode, inodes of a block, group; then others |
//! | 126      | in progress          | not 0: `mkfs.xfs` did not end                               |
//! | 127      | share of inodes      | per cent of the space that they may take                    |
//! | 128..152 | inodes, free inodes, free blocks | counters                                        |
//! | 160..176 | quotas of users and groups | inode numbers                                         |
//! | 192      | directory block      | binary logarithm of its file system blocks                  |
//! | 200..204 | more features        |                                                             |
//! | 212..220 | features of version 5 | read-only compatible, incompatible                         |
//! | 224..228 | checksum             | CRC-32C of the sector, version 5                            |
//! | 232..240 | quotas of projects   | inode number                                                |
//! | 248..264 | UUID of metadata     | where it differs from the UUID                              |

use super::features::Features;
use super::seal::has_right_checksum;
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::FileNumber;
use crate::volume::VolumeReader;

/// `XFSB`
const MAGIC: u32 = 0x5846_5342;
/// Minimum sector length, which also contains the decoded part.
const SECTOR_BYTES_MIN: usize = 512;
const SECTOR_BYTES_MAX: usize = 32 << 10;
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Limit for the number of blocks of a group. The smallest group that `mkfs.xfs` has ever made has more.
const GROUP_BLOCKS_MIN: u32 = 5;
/// Minimum length of a group in `mkfs.xfs` if there are several.
const GROUP_BYTES_MIN: u64 = 16 << 20;
const CHECKSUM_AT: usize = 224;
/// Numbers of groups in `mkfs.xfs`, and lengths of blocks, the usual ones first.
const USUAL_GROUPS: [u64; 10] = [4, 2, 3, 8, 16, 32, 5, 6, 7, 64];
const USUAL_BLOCK_BYTES: [u64; 4] = [4096, 1024, 2048, 65536];
const STRUCTURE: &str = "superblock";

/// The superblock after a consistency check.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    /// Bytes of a block, 512 to 65,536.
    pub(super) block_bytes: usize,
    /// Its binary logarithm.
    pub(super) block_log: u32,
    /// Blocks of the file system.
    pub(super) blocks: u64,
    /// Bytes of a sector, at most those of a block.
    pub(super) sector_bytes: usize,
    /// Bytes of an inode, 256 to 2048.
    pub(super) inode_bytes: usize,
    /// Its binary logarithm.
    pub(super) inode_log: u32,
    /// Blocks of each group except the last.
    pub(super) group_blocks: u32,
    /// The number of groups.
    pub(super) groups: u32,
    /// Number of low bits of a block number that contain the block's place in its group.
    pub(super) group_log: u32,
    /// Binary logarithm of the blocks of a directory block.
    pub(super) directory_block_log: u32,
    /// Number of the first block of the log.
    pub(super) log_start: u64,
    /// Blocks of the log.
    pub(super) log_blocks: u32,
    /// The root directory.
    pub(super) root: FileNumber,
    /// Internal inodes of the file system: bitmap and summary of a realtime device, and quotas. They have no names.
    pub(super) internal: [FileNumber; 5],
    /// The UUID that users see.
    pub(super) uuid: [u8; 16],
    /// The UUID in metadata of version 5.
    pub(super) metadata_uuid: [u8; 16],
    /// The label.
    pub(super) label: Vec<u8>,
    /// The features.
    pub(super) features: Features,
    /// The counters.
    pub(super) counters: Counters,
    /// Whether `mkfs.xfs` did not finish.
    pub(super) is_in_progress: bool,
}

/// The counters of a superblock. They are right after a clean unmount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    /// Inodes with space on the disk.
    pub(super) inodes: u64,
    /// Number of free inodes among them.
    pub(super) inodes_free: u64,
    /// Free blocks, including the reserve of each group.
    pub(super) blocks_free: u64,
    /// The percentage of the blocks that inodes may take; 0 means no limit.
    pub(super) inodes_percent_max: u8,
}

impl Superblock {
    /// Reads the superblock at the start of a volume; `None` if there is none.
    pub(super) fn read(reader: &VolumeReader<'_>) -> Result<Option<Superblock>, GuestError> {
        if reader.size_bytes() < SECTOR_BYTES_MIN as u64 {
            return Ok(None);
        }
        let first = reader.bytes(0, SECTOR_BYTES_MIN, STRUCTURE)?;
        if Bytes(&first).be32(0) != Some(MAGIC) {
            return Ok(None);
        }
        Superblock::read_at(reader, 0).map(Some)
    }

    /// Reads the superblock at byte `at` of a volume. Its magic number must be there.
    fn read_at(reader: &VolumeReader<'_>, at: u64) -> Result<Superblock, GuestError> {
        let damage = |problem| GuestError::from(reader.damage(at, STRUCTURE, problem));
        let first = reader.bytes(at, SECTOR_BYTES_MIN, STRUCTURE)?;
        let superblock = Superblock::decode(Bytes(&first)).ok_or_else(|| damage("its sizes do not fit together"))?;
        superblock.features.check()?;
        if superblock.features.is_v5() {
            let sector = reader.bytes(at, superblock.sector_bytes, STRUCTURE)?;
            if !has_right_checksum(Bytes(&sector), CHECKSUM_AT) {
                return Err(damage("its checksum is wrong"));
            }
        }
        refuse_other_devices(Bytes(&first))?;
        Ok(superblock)
    }

    /// Returns the copy of the superblock at the start of another group; `None` if none is found. Copies have the
    /// counters of `mkfs.xfs`, and only those of the middle and the last group contain the root directory.
    ///
    /// The second group is searched where the damaged superblock places it, and where `mkfs.xfs` places it in a volume
    /// of this length.
    pub(super) fn read_copy(reader: &VolumeReader<'_>) -> Result<Option<Superblock>, GuestError> {
        let size_bytes = reader.size_bytes();
        if size_bytes < SECTOR_BYTES_MIN as u64 {
            return Ok(None);
        }
        let first = reader.bytes(0, SECTOR_BYTES_MIN, STRUCTURE)?;
        let stated = Bytes(&first).be32(84).zip(Bytes(&first).be32(4));
        let stated = stated.map(|(blocks, block_bytes)| u64::from(blocks) * u64::from(block_bytes));
        let usual = USUAL_BLOCK_BYTES.into_iter().flat_map(|block_bytes| {
            let blocks = size_bytes / block_bytes;
            USUAL_GROUPS.into_iter().map(move |groups| blocks.div_ceil(groups) * block_bytes)
        });
        for at in stated.into_iter().chain(usual) {
            if let Some(copy) = Superblock::copy_at(reader, at)?
                && u64::from(copy.group_blocks) << copy.block_log == at
            {
                let root_group = u64::from((copy.groups - 1) / 2).max(1);
                return Superblock::copy_at(reader, at * root_group);
            }
        }
        Ok(None)
    }

    /// Returns the copy of the superblock at byte `at` of a volume; `None` if there is no intact one.
    fn copy_at(reader: &VolumeReader<'_>, at: u64) -> Result<Option<Superblock>, GuestError> {
        let is_there = at > 0 && at.checked_add(SECTOR_BYTES_MAX as u64).is_some_and(|end| end <= reader.size_bytes());
        if !is_there || Bytes(&reader.bytes(at, SECTOR_BYTES_MIN, STRUCTURE)?).be32(0) != Some(MAGIC) {
            return Ok(None);
        }
        match Superblock::read_at(reader, at) {
            // `mkfs.xfs` marks copies as incomplete, and never changes that. They do not say that the inodes of a
            // realtime device are the two after the root directory.
            Ok(mut copy) => {
                copy.is_in_progress = false;
                let root = copy.root.0;
                for (internal, behind) in copy.internal.iter_mut().zip(1..=2) {
                    *internal = FileNumber(root.saturating_add(behind));
                }
                Ok(Some(copy))
            }
            Err(GuestError::Disk(error)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Decodes the first 512 bytes; `None` if the numbers contradict each other.
    fn decode(bytes: Bytes<'_>) -> Option<Superblock> {
        let features = Features {
            version: bytes.be16(100)?,
            more: bytes.be32(200)?,
            read_only: bytes.be32(212)?,
            incompatible: bytes.be32(216)?,
        };
        let uuid = bytes.array(32)?;
        let label: [u8; 12] = bytes.array(108)?;
        let superblock = Superblock {
            block_bytes: bytes.be32(4)? as usize,
            block_log: u32::from(bytes.u8(120)?),
            blocks: bytes.be64(8)?,
            sector_bytes: usize::from(bytes.be16(102)?),
            inode_bytes: usize::from(bytes.be16(104)?),
            inode_log: u32::from(bytes.u8(122)?),
            group_blocks: bytes.be32(84)?,
            groups: bytes.be32(88)?,
            group_log: u32::from(bytes.u8(124)?),
            directory_block_log: u32::from(bytes.u8(192)?),
            log_start: bytes.be64(48)?,
            log_blocks: bytes.be32(96)?,
            root: FileNumber(bytes.be64(56)?),
            internal: internal_inodes(bytes)?,
            uuid,
            metadata_uuid: if features.has_metadata_uuid() { bytes.array(248)? } else { uuid },
            label: label.iter().copied().take_while(|byte| *byte != 0).collect(),
            features,
            counters: Counters {
                inodes: bytes.be64(128)?,
                inodes_free: bytes.be64(136)?,
                blocks_free: bytes.be64(144)?,
                inodes_percent_max: bytes.u8(127)?,
            },
            is_in_progress: bytes.u8(126)? != 0,
        };
        (superblock.has_sound_sizes() && superblock.has_sound_groups()).then_some(superblock)
    }

    fn has_sound_sizes(&self) -> bool {
        let is_power = |bytes: usize, log: u32| bytes.is_power_of_two() && bytes.trailing_zeros() == log;
        is_power(self.block_bytes, self.block_log)
            && is_power(self.inode_bytes, self.inode_log)
            && self.sector_bytes.is_power_of_two()
            && (SECTOR_BYTES_MIN..=SECTOR_BYTES_MAX).contains(&self.sector_bytes)
            && (self.sector_bytes..=BLOCK_BYTES_MAX).contains(&self.block_bytes)
            && (256..=2048).contains(&self.inode_bytes)
            && self.inode_bytes <= self.block_bytes
            && self.block_log.checked_add(self.directory_block_log).is_some_and(|log| log <= 16)
    }

    fn has_sound_groups(&self) -> bool {
        let (groups, group_blocks) = (u64::from(self.groups), u64::from(self.group_blocks));
        let bits = u64::BITS - group_blocks.saturating_sub(1).leading_zeros();
        self.group_blocks >= GROUP_BLOCKS_MIN
            && self.group_log == bits
            && self.groups > 0
            && (self.groups == 1 || group_blocks * self.block_bytes as u64 >= GROUP_BYTES_MIN)
            && self.blocks > (groups - 1) * group_blocks
            && self.blocks <= groups * group_blocks
            // This ensures that every offset in bytes can be computed.
            && self.blocks.checked_mul(self.block_bytes as u64).is_some_and(|bytes| i64::try_from(bytes).is_ok())
            && self.log_blocks > 0
    }

    /// Returns the bytes of the file system.
    pub(super) fn size_bytes(&self) -> u64 {
        self.blocks << self.block_log
    }
}

/// Returns the internal inodes of the file system. Missing ones are 0 or all ones, which no inode has.
fn internal_inodes(bytes: Bytes<'_>) -> Option<[FileNumber; 5]> {
    let inode = |at| bytes.be64(at).map(FileNumber);
    Some([inode(64)?, inode(72)?, inode(160)?, inode(168)?, inode(232)?])
}

/// Refuses file systems with a part on another device.
fn refuse_other_devices(bytes: Bytes<'_>) -> Result<(), GuestError> {
    if bytes.be64(16) != Some(0) {
        return Err(GuestError::Unsupported("XFS with a realtime device"));
    }
    if bytes.be64(48) == Some(0) {
        return Err(GuestError::Unsupported("XFS with an external log"));
    }
    Ok(())
}
