//! Members of Linux' software RAID (`include/uapi/linux/raid/md_p.h`).
//!
//! | version | place of the superblock |
//! |---|---|
//! | 1.1, 1.2 | byte 0, byte 4096 |
//! | 1.0 | at least 8 KiB before the end, at a multiple of 4 KiB |
//! | 0.90 | the last whole 64 KiB, at a multiple of 64 KiB |
//!
//! | version | bytes | field |
//! |---|---|---|
//! | all | 0..4, 4..8 | magic, major version |
//! | 1 | 32..64, 72..76, 92..96, 144..152 | name, level, disks, own sector |
//! | 0.90 | 28..32, 40..44 | level, disks; in the byte order of the machine |
//!
//! A member of a mirror with its superblock at the end begins like the file system on it, so this check comes first.

use super::{NotRead, head, head_once, joined, text};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::volume::VolumeReader;

const NAME: &str = "Linux RAID";
const MAGIC: u32 = 0xa92b_4efc;
const SUPERBLOCK_BYTES: usize = 256;
const SECTOR_BYTES: u64 = 512;

pub(super) fn recognise(reader: &VolumeReader<'_>) -> Result<Option<NotRead>, GuestError> {
    match recognise_at_start(reader)? {
        Some(found) => Ok(Some(found)),
        None => Ok(placed_at_end(reader)?.map(|(_, found)| found)),
    }
}

/// Recognises a member whose data begins behind its superblock.
pub(super) fn recognise_at_start(reader: &VolumeReader<'_>) -> Result<Option<NotRead>, GuestError> {
    for (version, at) in [("1.1", 0), ("1.2", 4096)] {
        if let Some(found) = version_one_at(reader, version, at)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Recognises a member whose data begins at its start, and returns the place of its superblock.
pub(super) fn placed_at_end(reader: &VolumeReader<'_>) -> Result<Option<(u64, NotRead)>, GuestError> {
    let size = reader.size_bytes();
    if let Some(at) = size.checked_sub(8 << 10).map(|at| at - at % (4 << 10))
        && let Some(found) = version_one_at(reader, "1.0", at)?
    {
        return Ok(Some((at, found)));
    }
    let Some(at) = (size - size % (64 << 10)).checked_sub(64 << 10) else { return Ok(None) };
    let block = head_once(reader, at, SUPERBLOCK_BYTES)?;
    Ok(version_zero(Bytes(&block)).map(|detail| (at, NotRead::new(NAME, format!("version 0.90, {detail}")))))
}

fn version_one_at(reader: &VolumeReader<'_>, version: &str, at: u64) -> Result<Option<NotRead>, GuestError> {
    let block = head(reader, at, SUPERBLOCK_BYTES)?;
    let detail = version_one(Bytes(&block), at / SECTOR_BYTES);
    Ok(detail.map(|detail| NotRead::new(NAME, format!("version {version}, {detail}"))))
}

/// Describes a superblock of version 1 in `sector`; `None` if it is not one.
fn version_one(block: Bytes<'_>, sector: u64) -> Option<String> {
    let is_one = block.le32(0)? == MAGIC && block.le32(4)? == 1 && block.le64(144)? == sector;
    let name = text(block.part(32, 32)?.0);
    let name = if name.is_empty() { name } else { format!("name {name}") };
    let (level, disks) = (block.le32(72)?, block.le32(92)?);
    is_one.then(|| joined(&[level_and_disks(level, disks), name]))
}

fn version_zero(block: Bytes<'_>) -> Option<String> {
    if (block.le32(0)?, block.le32(4)?) == (MAGIC, 0) {
        return Some(level_and_disks(block.le32(28)?, block.le32(40)?));
    }
    let is_big_endian = (block.be32(0)?, block.be32(4)?) == (MAGIC, 0);
    is_big_endian.then_some(level_and_disks(block.be32(28)?, block.be32(40)?))
}

/// Levels are signed. Negative ones have names.
fn level_and_disks(level: u32, disks: u32) -> String {
    let level = match level.cast_signed() {
        -1 => "linear".to_owned(),
        -4 => "multipath".to_owned(),
        level => format!("level {level}"),
    };
    format!("{level}, {disks} disks")
}
