//! Attributes in blocks: one leaf, or a tree whose leaves are linked.
//!
//! Blocks begin with the header in `hashed`. A leaf continues:
//!
//! | version 5 | version 4 | field                                                             |
//! |-----------|-----------|-------------------------------------------------------------------|
//! | 56..58    | 12..14    | attributes                                                        |
//! | 58..76    | 14..32    | bytes in use, their start, holes, largest free parts              |
//! | 80..      | 32..      | for each: hash (4), place of name and value (2), flags (1), zero  |
//!
//! At the place of an attribute: length of its value (2), of its name (1), name, value. If the value is in separate
//! blocks: first block of the value in the fork (4), length of the value (4), of the name (1), name.
//! of its own has: first block of the value in the fork (4), length of the value (4), of the name (1), name.
//!
//! Hostile leaves: the number of blocks that are followed is limited to those of the fork, and to 32,768.

use std::ops::ControlFlow;

use super::{Attributes, STRUCTURE, VALUE_BYTES_MAX, flag};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::xfs::Xfs;
use crate::xfs::hashed::{COUNT_AT, INNER_ENTRIES_AT, INNER_MAGIC, LEVELS_MAX, MAGIC_AT, SEAL};
use crate::xfs::inode::Fork;
use crate::xfs::seal::StructureBytes;

/// The magic numbers of leaves, and their first entries, in versions 4 and 5.
const LEAF_MAGIC: [u16; 2] = [0xfbee, 0x3bee];
const LEAF_ENTRIES_AT: [usize; 2] = [32, 80];
/// Maximum number of leaves of one file that are followed. Each has at least two attributes of 256 bytes, in the
/// smallest blocks.
const LEAVES_MAX: u64 = 1 << 15;

/// A block of the attribute fork.
struct AttributeBlock {
    bytes: Vec<u8>,
    place: u64,
    is_leaf: bool,
}

/// Place of an attribute's value.
enum Value<'b> {
    /// Next to its name.
    Here(&'b [u8]),
    /// In the fork, from this block on.
    Remote { block: u32, length: usize },
}

/// An attribute of a leaf.
struct LeafAttribute<'b> {
    flags: u8,
    name: &'b [u8],
    value: Value<'b>,
}

impl Xfs<'_> {
    /// Adds the attributes of a fork with blocks.
    pub(super) fn leaf_attributes(&self, fork: &Fork<'_>, attributes: &mut Attributes) -> Result<(), GuestError> {
        let mut blocks_left = 0_u64;
        self.each_mapping(fork, 0, &mut |mapping| {
            blocks_left = blocks_left.saturating_add(u64::from(mapping.count));
            Ok(ControlFlow::Continue(()))
        })?;
        let blocks_max = blocks_left.min(self.superblock.blocks).min(LEAVES_MAX);
        if blocks_max == 0 {
            return Ok(());
        }
        // Values in separate blocks cannot be longer than all blocks.
        let mut value_bytes_left = blocks_max << self.superblock.block_log;
        let mut leaf = self.first_leaf(fork)?;
        for _ in 0..blocks_max {
            self.attributes_of_leaf(fork, &leaf, &mut value_bytes_left, attributes)?;
            let next = Bytes(&leaf.bytes).be32(0).unwrap_or(0);
            if next == 0 {
                return Ok(());
            }
            leaf = self.attribute_block(fork, next)?;
            if !leaf.is_leaf {
                return Err(self.attribute_damage(leaf.place, "a leaf leads to an inner block").into());
            }
        }
        Err(self.attribute_damage(fork.inode_place, "its blocks are too many, or form a ring").into())
    }

    /// Returns the leaf with the lowest hashes.
    fn first_leaf(&self, fork: &Fork<'_>) -> Result<AttributeBlock, GuestError> {
        let version = usize::from(self.superblock.features.is_v5());
        let mut block = self.attribute_block(fork, 0)?;
        let mut above = None;
        while !block.is_leaf {
            let damage = |problem| GuestError::from(self.attribute_damage(block.place, problem));
            let level = Bytes(&block.bytes).be16(COUNT_AT[version] + 2).unwrap_or(0);
            if level == 0 || level > LEVELS_MAX || above.is_some_and(|above| level + 1 != above) {
                return Err(damage("a block has another level"));
            }
            above = Some(level);
            let child = Bytes(&block.bytes).be32(INNER_ENTRIES_AT[version] + 4);
            let child = child.filter(|_| Bytes(&block.bytes).be16(COUNT_AT[version]) != Some(0));
            block = self.attribute_block(fork, child.ok_or_else(|| damage("a block is empty"))?)?;
        }
        Ok(block)
    }

    fn attribute_block(&self, fork: &Fork<'_>, offset: u32) -> Result<AttributeBlock, GuestError> {
        let (place, bytes) = self.attribute_bytes(fork, u64::from(offset))?;
        let found = StructureBytes { bytes: Bytes(&bytes), place, structure: STRUCTURE };
        let version = usize::from(self.superblock.features.is_v5());
        let magic = found.bytes.be16(MAGIC_AT).unwrap_or(0);
        let is_leaf = magic == LEAF_MAGIC[version];
        if !is_leaf && magic != INNER_MAGIC[version] {
            return Err(self.damage_of(found, "a block is something else").into());
        }
        self.check_seal(found, &SEAL, fork.owner)?;
        Ok(AttributeBlock { bytes, place, is_leaf })
    }

    /// Reads block `offset` of the attribute fork. Also returns its place.
    pub(super) fn attribute_bytes(&self, fork: &Fork<'_>, offset: u64) -> Result<(u64, Vec<u8>), GuestError> {
        let mapping = self.mapping_of(fork, offset)?;
        let place =
            mapping.and_then(|mapping| self.superblock.place_of_run(mapping.block + (offset - mapping.offset), 1));
        let place = place.ok_or_else(|| self.attribute_damage(fork.inode_place, "a block is missing"))?;
        Ok((place, self.reader.bytes(place, self.superblock.block_bytes, STRUCTURE)?))
    }

    fn attributes_of_leaf(
        &self,
        fork: &Fork<'_>,
        leaf: &AttributeBlock,
        value_bytes_left: &mut u64,
        attributes: &mut Attributes,
    ) -> Result<(), GuestError> {
        let version = usize::from(self.superblock.features.is_v5());
        let damage = |problem| self.attribute_damage(leaf.place, problem);
        let bytes = Bytes(&leaf.bytes);
        for index in 0..usize::from(bytes.be16(COUNT_AT[version]).unwrap_or(0)) {
            let attribute = leaf_attribute(bytes, LEAF_ENTRIES_AT[version] + index * 8);
            let LeafAttribute { flags, name, value } =
                attribute.ok_or_else(|| damage("one of them passes the end of its block"))?;
            if !Attributes::shows(flags) {
                continue;
            }
            match value {
                Value::Here(value) => attributes.add(flags, name, value).map_err(damage)?,
                Value::Remote { block, length } => {
                    let left = value_bytes_left.checked_sub(length as u64);
                    *value_bytes_left = left.ok_or_else(|| damage("values share their blocks"))?;
                    if length > VALUE_BYTES_MAX {
                        return Err(damage("a value is too long").into());
                    }
                    let value = self.remote_value(fork, block, length)?;
                    attributes.add(flags, name, &value).map_err(damage)?;
                }
            }
        }
        Ok(())
    }
}

/// Decodes the attribute whose entry is at a byte of a leaf.
fn leaf_attribute(bytes: Bytes<'_>, entry: usize) -> Option<LeafAttribute<'_>> {
    let (at, flags) = (usize::from(bytes.be16(entry + 4)?), bytes.u8(entry + 6)?);
    if flags & flag::LOCAL != 0 {
        let (value_bytes, name_bytes) = (usize::from(bytes.be16(at)?), usize::from(bytes.u8(at + 2)?));
        let name = bytes.part(at + 3, name_bytes)?.0;
        let value = Value::Here(bytes.part(at + 3 + name_bytes, value_bytes)?.0);
        return Some(LeafAttribute { flags, name, value });
    }
    let value = Value::Remote { block: bytes.be32(at)?, length: bytes.be32(at + 4)? as usize };
    let name_bytes = usize::from(bytes.u8(at + 8)?);
    Some(LeafAttribute { flags, name: bytes.part(at + 9, name_bytes)?.0, value })
}
