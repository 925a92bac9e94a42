//! Extended attributes: in the inode behind its fields, in a separate block, or with values in inodes.
//!
//! Kernel documentation, "ext4 Data Structures and Algorithms", section "Extended Attributes". Numbers are
//! little-endian. The area in an inode begins with the magic 0xea020000; a block has a header of 32 bytes that begins
//! with it (checksum at 16). Entries follow, up to four zero bytes:
//!
//! | byte | entry |
//! |------|-------|
//! | 0    | length of the name |
//! | 1    | prefix of the name, by number |
//! | 2    | place of the value: from the first entry in an inode, from the beginning of a block |
//! | 4    | inode with the value (`ea_inode`); 0 where it lies here |
//! | 8    | length of the value |
//! | 16   | name, padded to four bytes |

mod acl;

use super::checksum::crc32c;
use super::inode::{BASE_BYTES, Inode, MAP_AT, flags};
use super::superblock::features;
use super::tables::Tables;
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::ExtendedAttribute;

const STRUCTURE: &str = "extended attributes";
const MAGIC: u32 = 0xea02_0000;
const BLOCK_HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;
/// Maximum length of a value that a program can set.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Maximum total length of the values of a file.
const VALUES_BYTES_MAX: usize = 16 << 20;
/// The prefix of the attribute for the rest of inline data, and its name.
const SYSTEM: u8 = 7;
const INLINE: &[u8] = b"data";

/// An entry in an area of attributes.
struct AttributeEntry<'b> {
    prefix: u8,
    name: &'b [u8],
    value_at: usize,
    value_inode: u32,
    value_bytes: usize,
}

/// A place with attributes.
struct Area<'b> {
    entries: Bytes<'b>,
    /// The base for the places of values.
    values: Bytes<'b>,
    /// First byte of `values` in the volume.
    offset: u64,
}

impl Tables<'_> {
    /// Returns the extended attributes of a file as its guest lists them.
    ///
    /// # Errors
    /// When they are damaged.
    pub(super) fn extended_attributes(&self, inode: &Inode) -> Result<Vec<ExtendedAttribute>, GuestError> {
        let mut found = Vec::new();
        if let Some(area) = inode_area(inode) {
            self.collect(&area, &mut found)?;
        }
        if inode.attribute_block != 0 {
            let (offset, block) = self.attribute_block(inode.attribute_block)?;
            let values = Bytes(&block);
            let entries = values.from(BLOCK_HEADER_BYTES).unwrap_or(Bytes(&[]));
            self.collect(&Area { entries, values, offset }, &mut found)?;
        }
        Ok(found)
    }

    fn attribute_block(&self, block: u64) -> Result<(u64, Vec<u8>), GuestError> {
        let superblock = &self.superblock;
        let offset = block.saturating_mul(superblock.block_bytes);
        let damage = |problem| self.source.damage(offset, STRUCTURE, problem);
        if !superblock.has_blocks(block, 1) {
            return Err(damage("they lie outside of the file system").into());
        }
        let bytes = self.source.bytes(offset, superblock.block_length, STRUCTURE)?;
        if Bytes(&bytes).le32(0) != Some(MAGIC) {
            return Err(damage("their magic is missing").into());
        }
        if superblock.features.has(features::METADATA_CSUM) {
            let parts = [&block.to_le_bytes(), &bytes[..16], &[0; 4], &bytes[20..]];
            let sum = parts.iter().fold(superblock.checksum_seed, |sum, part| crc32c(sum, part));
            if Bytes(&bytes).le32(16) != Some(sum) {
                return Err(damage("their checksum is wrong").into());
            }
        }
        Ok((offset, bytes))
    }

    fn collect(&self, area: &Area<'_>, found: &mut Vec<ExtendedAttribute>) -> Result<(), GuestError> {
        let damage = |problem| GuestError::from(self.source.damage(area.offset, STRUCTURE, problem));
        for entry in entries(area.entries).map_err(damage)? {
            // The kernel also hides attributes without a known prefix, and internal ones of the file system.
            let Some(name) = full_name(&entry) else { continue };
            let mut value = self.value(area, &entry)?;
            if let Some(shown) = acl::shown(entry.prefix, &value) {
                value = shown.map_err(damage)?;
            }
            let length: usize = found.iter().map(|attribute| attribute.value.len()).sum();
            if length + value.len() > VALUES_BYTES_MAX {
                return Err(damage("their values are too long"));
            }
            found.push(ExtendedAttribute { name, value });
        }
        Ok(())
    }

    fn value(&self, area: &Area<'_>, entry: &AttributeEntry<'_>) -> Result<Vec<u8>, GuestError> {
        let damage = |problem| GuestError::from(self.source.damage(area.offset, STRUCTURE, problem));
        if entry.value_bytes > VALUE_BYTES_MAX {
            return Err(damage("a value is too long"));
        }
        if entry.value_inode == 0 {
            let value = if entry.value_bytes == 0 { Some(Bytes(&[])) } else { area.value(entry) };
            return value.map(|value| value.0.to_vec()).ok_or_else(|| damage("a value is out of place"));
        }
        let inode = self.inode(entry.value_inode)?;
        if !inode.has(flags::EA_INODE) || inode.size_bytes != entry.value_bytes as u64 {
            return Err(damage("an inode with a value is not what it should be"));
        }
        let mut value = vec![0; entry.value_bytes];
        self.read_content(&inode, 0, &mut value)?;
        Ok(value)
    }

    /// Returns the parts of inline data: the first byte of each in the volume, and its bytes.
    ///
    /// # Errors
    /// When its second part is damaged.
    pub(super) fn inline_parts(&self, inode: &Inode) -> Result<Vec<(u64, Vec<u8>)>, GuestError> {
        let mut parts = vec![(inode.offset + MAP_AT as u64, inode.map_bytes().0.to_vec())];
        let damage = |problem| GuestError::from(self.source.damage(inode.offset, "inline data", problem));
        if let Some(area) = inode_area(inode)
            && let Some(entry) = entries(area.entries).map_err(damage)?.iter().find(|entry| entry.is_inline_data())
            && entry.value_bytes > 0
        {
            let value = area.value(entry).ok_or_else(|| damage("its second part is out of place"))?;
            parts.push((area.offset + entry.value_at as u64, value.0.to_vec()));
        }
        let length: u64 = parts.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        if inode.size_bytes > length {
            return Err(damage("it is shorter than the file"));
        }
        Ok(parts)
    }
}

impl AttributeEntry<'_> {
    fn is_inline_data(&self) -> bool {
        (self.prefix, self.name) == (SYSTEM, INLINE)
    }
}

impl<'b> Area<'b> {
    fn value(&self, entry: &AttributeEntry<'_>) -> Option<Bytes<'b>> {
        self.values.part(entry.value_at, entry.value_bytes)
    }
}

/// Returns whether an inode has the attribute of inline data. The kernel refuses an inode with damaged attributes, so
/// nothing can be reached by its map.
pub(super) fn has_inline_data(inode: &Inode) -> bool {
    // Without fields behind byte 0x80 the kernel looks for no attributes.
    let has_fields = inode.own_bytes().is_some_and(|own| own > BASE_BYTES);
    inode_area(inode).filter(|_| has_fields).is_some_and(|area| {
        entries(area.entries).map_or(true, |found| found.iter().any(AttributeEntry::is_inline_data))
    })
}

/// Returns the attributes behind the fields of an inode.
fn inode_area(inode: &Inode) -> Option<Area<'_>> {
    let start = inode.own_bytes()?;
    if inode.bytes().le32(start)? != MAGIC {
        return None;
    }
    let entries = inode.bytes().from(start + 4)?;
    Some(Area { entries, values: entries, offset: inode.offset + start as u64 + 4 })
}

/// Returns all entries of an area.
fn entries(area: Bytes<'_>) -> Result<Vec<AttributeEntry<'_>>, &'static str> {
    let mut found = Vec::new();
    let mut at = 0;
    while area.le32(at).is_some_and(|word| word != 0) {
        let entry = entry(area, at).ok_or("an entry is out of place")?;
        at += (ENTRY_BYTES + entry.name.len()).next_multiple_of(4);
        found.push(entry);
    }
    Ok(found)
}

fn entry(area: Bytes<'_>, at: usize) -> Option<AttributeEntry<'_>> {
    let name_bytes = usize::from(area.u8(at)?);
    Some(AttributeEntry {
        prefix: area.u8(at + 1)?,
        value_at: usize::from(area.le16(at + 2)?),
        value_inode: area.le32(at + 4)?,
        value_bytes: usize::try_from(area.le32(at + 8)?).ok()?,
        name: area.part(at + ENTRY_BYTES, name_bytes)?.0,
    })
}

/// Returns the name in the form for programs.
fn full_name(entry: &AttributeEntry<'_>) -> Option<Vec<u8>> {
    let prefix: &[u8] = match entry.prefix {
        1 => b"user.",
        2 => return Some(b"system.posix_acl_access".to_vec()),
        3 => return Some(b"system.posix_acl_default".to_vec()),
        4 => b"trusted.",
        6 => b"security.",
        SYSTEM if entry.name != INLINE => b"system.",
        8 => b"system.richacl",
        10 => b"gnu.",
        _ => return None,
    };
    Some([prefix, entry.name].concat())
}
