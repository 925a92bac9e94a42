//! Allocation groups: their headers, and the trees with roots in these.
//!
//! From "XFS Filesystem Structure", chapter "Allocation Groups". A group begins with four sectors: a copy of the
//! superblock, the header of free space (AGF), the header of inodes (AGI), and blocks reserved for trees (AGFL).
//!
//! | bytes of the AGF | field                                              |
//! |------------------|----------------------------------------------------|
//! | 0..16            | magic `XAGF`, version 1, number, blocks            |
//! | 16..28           | root blocks of free space by place, by length, and of owners |
//! | 28..40           | levels of these                                    |
//! | 40..52           | first, last, number of the blocks kept for trees   |
//! | 52..60           | free blocks, longest free run                      |
//! | 60..80           | blocks of trees; UUID                              |
//! | 88..96           | root block and levels of reference counts          |
//! | 216..220         | checksum                                           |
//!
//! | bytes of the AGI | field                                              |
//! |------------------|----------------------------------------------------|
//! | 0..16            | magic `XAGI`, version 1, number, blocks            |
//! | 16..32           | inodes, root block of their tree, its levels, free inodes |
//! | 296..316         | UUID, checksum                                     |
//! | 328..336         | root block and levels of the tree of free inodes   |

use super::Xfs;
use super::btree::{LinkWidth, Step, StepVisit, Tree, TreeForm, Walk};
use super::seal::{OwnerField, Seal, StructureBytes};
use crate::bytes::Bytes;
use crate::error::{Damage, GuestError};

/// `XAGF`
const FREE_SPACE_MAGIC: u32 = 0x5841_4746;
/// `XAGI`
const INODES_MAGIC: u32 = 0x5841_4749;
/// `XAFL`
const RESERVE_MAGIC: u32 = 0x5841_464c;
/// The sectors of a group's headers.
const FREE_SPACE_SECTOR: u64 = 1;
const INODES_SECTOR: u64 = 2;
const RESERVE_SECTOR: u64 = 3;
/// Number of sectors for all headers of a group.
pub(super) const HEADER_SECTORS: usize = 4;

const FREE_SPACE_SEAL: Seal = Seal { checksum: 216, uuid: 64, place: None, owner: OwnerField::None };
const INODES_SEAL: Seal = Seal { checksum: 312, uuid: 296, place: None, owner: OwnerField::None };
const RESERVE_SEAL: Seal = Seal { checksum: 32, uuid: 8, place: None, owner: OwnerField::None };

/// A tree of a group: its root block and number of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// The block in the group.
    pub(super) block: u32,
    /// The number of levels.
    pub(super) levels: u32,
}

/// The header of a group's free space.
#[derive(Clone, Debug)]
pub(super) struct FreeSpace {
    /// Free runs by their place.
    pub(super) by_place: Root,
    /// Free runs by their length.
    pub(super) by_length: Root,
    /// The owners of blocks, if the file system records them.
    pub(super) owners: Option<Root>,
    /// Blocks with a reference count, if files may share blocks.
    pub(super) reference_counts: Option<Root>,
    /// The sum of all free runs, in blocks.
    pub(super) blocks_free: u32,
    /// The first and last index of the ring of blocks reserved for trees, and their number.
    pub(super) reserve: [u32; 3],
}

/// The header of a group's inodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct InodeTrees {
    /// All chunks of inodes.
    pub(super) all: Root,
    /// Chunks with free inodes, if the file system has this tree.
    pub(super) free: Option<Root>,
}

fn first_word(bytes: Bytes<'_>) -> Option<u64> {
    bytes.be32(0).map(u64::from)
}

/// Length, then place.
fn length_then_place(bytes: Bytes<'_>) -> Option<u64> {
    Some(u64::from(bytes.be32(4)?) << 32 | u64::from(bytes.be32(0)?))
}

/// Free runs by place. A record is the first block and the number of blocks, four bytes each.
pub(super) const FREE_BY_PLACE: TreeForm = TreeForm {
    name: "tree of free space by place",
    magic: [0x4142_5442, 0x4142_3342],
    links: LinkWidth::Group,
    key_bytes: 8,
    record_bytes: 8,
    key_order: first_word,
    record_order: first_word,
    has_equals: false,
};

/// The same runs by length.
pub(super) const FREE_BY_LENGTH: TreeForm = TreeForm {
    name: "tree of free space by length",
    magic: [0x4142_5443, 0x4142_3343],
    key_order: length_then_place,
    record_order: length_then_place,
    ..FREE_BY_PLACE
};

/// Chunks of 64 inodes: see `chunks`.
pub(super) const INODES: TreeForm = TreeForm {
    name: "tree of inodes",
    magic: [0x4941_4254, 0x4941_4233],
    key_bytes: 4,
    record_bytes: 16,
    ..FREE_BY_PLACE
};

/// Chunks with free inodes.
pub(super) const FREE_INODES: TreeForm =
    TreeForm { name: "tree of free inodes", magic: [0x4649_4254, 0x4649_4233], ..INODES };

/// Shared blocks, and those set aside for copy-on-write (the top bit of the first block is set). A record is the first
/// block, the number of blocks, and the number of references, four bytes each.
pub(super) const REFERENCE_COUNTS: TreeForm = TreeForm {
    name: "tree of reference counts",
    magic: [0x5233_4643, 0x5233_4643],
    key_bytes: 4,
    record_bytes: 12,
    ..FREE_BY_PLACE
};

/// The owners of blocks. Only its blocks are used here. An inner block has the lowest and the highest key of each
/// child, and several owners may share a block.
pub(super) const OWNERS: TreeForm = TreeForm {
    name: "tree of owners",
    magic: [0x524d_4233, 0x524d_4233],
    key_bytes: 40,
    record_bytes: 24,
    has_equals: true,
    ..FREE_BY_PLACE
};

impl Xfs<'_> {
    /// Reads a header of a group and checks it.
    fn group_header(
        &self,
        group: u32,
        sector: u64,
        magic: u32,
        seal: &Seal,
        structure: &'static str,
    ) -> Result<Vec<u8>, GuestError> {
        let place = self.superblock.group_place(group) + sector * self.superblock.sector_bytes as u64;
        let sector = self.reader.bytes(place, self.superblock.sector_bytes, structure)?;
        let (bytes, damage) = (Bytes(&sector), |problem| self.reader.damage(place, structure, problem));
        if bytes.be32(0) != Some(magic) {
            return Err(damage("it is something else").into());
        }
        self.check_seal(StructureBytes { bytes, place, structure }, seal, 0)?;
        // The reserve of blocks has its number at a different place, and no length.
        if magic != RESERVE_MAGIC
            && (bytes.be32(4), bytes.be32(8), bytes.be32(12))
                != (Some(1), Some(group), Some(self.superblock.blocks_of(group)))
        {
            return Err(damage("it belongs to another group").into());
        }
        Ok(sector)
    }

    /// Reads the header of a group's free space.
    pub(super) fn free_space(&self, group: u32) -> Result<FreeSpace, GuestError> {
        let structure = "header of free space";
        let sector = self.group_header(group, FREE_SPACE_SECTOR, FREE_SPACE_MAGIC, &FREE_SPACE_SEAL, structure)?;
        let (bytes, features) = (Bytes(&sector), self.superblock.features);
        let root = |block, levels| Some(Root { block: bytes.be32(block)?, levels: bytes.be32(levels)? });
        let decode = || {
            Some(FreeSpace {
                by_place: root(16, 28)?,
                by_length: root(20, 32)?,
                owners: root(24, 36).filter(|_| features.has_owner_tree()),
                reference_counts: root(88, 92).filter(|_| features.has_reference_counts()),
                blocks_free: bytes.be32(52)?,
                reserve: [bytes.be32(40)?, bytes.be32(44)?, bytes.be32(48)?],
            })
        };
        decode().ok_or_else(|| self.reader.damage(self.superblock.group_place(group), structure, "it is short").into())
    }

    /// Reads the header of a group's inodes.
    pub(super) fn inode_trees(&self, group: u32) -> Result<InodeTrees, GuestError> {
        let structure = "header of inodes";
        let sector = self.group_header(group, INODES_SECTOR, INODES_MAGIC, &INODES_SEAL, structure)?;
        let (bytes, features) = (Bytes(&sector), self.superblock.features);
        let root = |block, levels| Some(Root { block: bytes.be32(block)?, levels: bytes.be32(levels)? });
        let decode = || {
            let free = root(328, 332).filter(|_| features.has_free_inode_tree());
            Some(InodeTrees { all: root(20, 24)?, free })
        };
        decode().ok_or_else(|| self.reader.damage(self.superblock.group_place(group), structure, "it is short").into())
    }

    /// Returns the blocks of a group that are reserved for trees, as places in the group.
    pub(super) fn reserve(&self, group: u32, free_space: &FreeSpace) -> Result<Vec<u32>, GuestError> {
        let structure = "list of reserved blocks";
        let superblock = &self.superblock;
        let place = superblock.group_place(group) + RESERVE_SECTOR * superblock.sector_bytes as u64;
        let (sector, header) = if superblock.features.is_v5() {
            (self.group_header(group, RESERVE_SECTOR, RESERVE_MAGIC, &RESERVE_SEAL, structure)?, 36)
        } else {
            (self.reader.bytes(place, superblock.sector_bytes, structure)?, 0)
        };
        let slots = (superblock.sector_bytes - header) / 4;
        let [first, _, count] = free_space.reserve.map(|number| number as usize);
        if count > slots || (count > 0 && first >= slots) {
            return Err(self.reader.damage(place, structure, "its ring is too short").into());
        }
        let block = |index: usize| Bytes(&sector).be32(header + (first + index) % slots * 4);
        Ok((0..count).filter_map(block).collect())
    }

    /// Walks a tree of a group from the last record whose key is at most `from`.
    pub(super) fn walk_group(
        &self,
        form: &'static TreeForm,
        group: u32,
        root: Root,
        from: u64,
        visit: &mut StepVisit<'_>,
    ) -> Result<(), GuestError> {
        let blocks_max = u64::from(self.superblock.blocks_of(group));
        let tree = Tree { form, group, owner: u64::from(group), blocks_max };
        Walk::new(self, tree, from).run(root.block, root.levels, visit)
    }
}

/// Converts the damage of a step to an error, for walks that need the whole tree.
pub(super) fn must_be_whole(step: Step<'_>) -> Result<Step<'_>, Damage> {
    match step {
        Step::Damage(damage) => Err(damage),
        sound => Ok(sound),
    }
}
