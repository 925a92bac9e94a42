//! Dynamic disks of Windows (Logical Disk Manager), as Linux' `block/partitions/ldm.c` reads them.
//!
//! | structure | bytes | field |
//! |---|---|---|
//! | private header | 0..8, 12..14, 14..16 | `PRIVHEAD`; version, big-endian: major, minor |
//! | private header | 240..272 | name of the disk group |
//!
//! It lies in sector 6 of a disk with an MBR, and in the last sector of the metadata partition of a disk with a GPT.

use super::{NotRead, head, joined, text};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::volume::VolumeReader;

const NAME: &str = "Windows dynamic disk";
const MAGIC: &[u8] = b"PRIVHEAD";
const SECTOR_BYTES: usize = 512;
const HEADER_SECTOR: u64 = 6;

/// Recognises a volume by the private header in it.
pub(super) fn recognise(reader: &VolumeReader<'_>) -> Result<Option<NotRead>, GuestError> {
    let last = reader.size_bytes().saturating_sub(SECTOR_BYTES as u64);
    for at in [HEADER_SECTOR * SECTOR_BYTES as u64, last] {
        let header = head(reader, at, SECTOR_BYTES)?;
        if header.starts_with(MAGIC) {
            return Ok(Some(NotRead::new(NAME, detail(Bytes(&header)).unwrap_or_default())));
        }
    }
    Ok(None)
}

/// Returns the name of a volume whose partition says that it belongs to a dynamic disk.
pub(super) fn named(reader: &VolumeReader<'_>) -> Result<NotRead, GuestError> {
    Ok(recognise(reader)?.unwrap_or_else(|| NotRead::new(NAME, String::new())))
}

fn detail(header: Bytes<'_>) -> Option<String> {
    let group = text(header.part(240, 32)?.0);
    let group = if group.is_empty() { group } else { format!("group {group}") };
    Some(joined(&[format!("version {}.{}", header.be16(12)?, header.be16(14)?), group]))
}
