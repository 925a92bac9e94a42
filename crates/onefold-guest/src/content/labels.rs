//! Disk labels: tables of partitions that no reader here follows. Most of them leave the superblock of a file system in
//! place that filled the disk before, and their partitions may have any of its blocks.
//!
//! | label | from Linux' `block/partitions/` | magic |
//! |---|---|---|
//! | Sun | `sun.c` | big-endian `DABE` at byte 508; all 256 words of the sector are zero in exclusive or |
//! | SGI | `sgi.c` | big-endian `0BE5A941` at byte 0; the sum of the sector's 128 numbers is zero |
//! | BSD | `msdos.c` | `82564557` at byte 512 or 64, and again 132 bytes later |
//! | Solaris | `msdos.c` | `600DDEEE` at byte 524 |
//! | Apple | `mac.c` | `ER` at byte 0, and `PM` at the second block, whose length is at byte 2 |
//! | Amiga | `amiga.c` | `RDSK` at one of the first 16 sectors; the sum of as many numbers as it says at byte 4 is zero |
//! | Atari | `atari.c` | entries at byte 454: a flag, a known name, first sector and count |
//! | DASD | `ibm.c` | `VOL1`, `LNX1` or `CMS1` in EBCDIC, in the second or third block |

use super::{NotRead, head};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::volume::VolumeReader;

const SECTOR_BYTES: usize = 512;
/// Number of sectors in which the label of an Amiga may be.
const AMIGA_SECTORS: usize = 16;
const SUN_MAGIC: u16 = 0xdabe;
const SGI_MAGIC: u32 = 0x0be5_a941;
const BSD_MAGIC: u32 = 0x8256_4557;
const BSD_PLACES: [usize; 2] = [64, 512];
const BSD_SECOND_MAGIC: usize = 132;
const SOLARIS_MAGIC: u32 = 0x600d_deee;
const SOLARIS_AT: usize = 512 + 12;
const ATARI_ENTRIES: usize = 454;
const ATARI_NAMES: [&[u8]; 8] = [b"GEM", b"BGM", b"LNX", b"SWP", b"RAW", b"XGM", b"MIX", b"UNX"];
/// First bytes of the second or third block, for all lengths of a block.
const DASD_PLACES: [u64; 5] = [512, 1024, 2048, 4096, 8192];
const DASD_MAGICS: [&[u8]; 3] = [b"\xe5\xd6\xd3\xf1", b"\xd3\xd5\xe7\xf1", b"\xc3\xd4\xe2\xf1"];

/// Tells whether the first blocks of a disk have a label; `None` if they are too short for it.
type LabelProbe = fn(Bytes<'_>) -> Option<bool>;

/// Recognises a disk label.
pub(super) fn recognise(reader: &VolumeReader<'_>) -> Result<Option<NotRead>, GuestError> {
    let start = head(reader, 0, AMIGA_SECTORS * SECTOR_BYTES)?;
    let bytes = Bytes(&start);
    let labels: [(&str, LabelProbe); 6] = [
        ("Sun disk label", is_sun),
        ("SGI disk label", is_sgi),
        ("BSD disk label", is_bsd),
        ("Solaris disk label", |bytes| Some(bytes.le32(SOLARIS_AT)? == SOLARIS_MAGIC)),
        ("Apple partition map", is_apple),
        ("Amiga disk label", is_amiga),
    ];
    if let Some((name, _)) = labels.into_iter().find(|(_, is_label)| is_label(bytes) == Some(true)) {
        return Ok(Some(NotRead::new(name, String::new())));
    }
    if is_atari(bytes, reader.size_bytes()) == Some(true) {
        return Ok(Some(NotRead::new("Atari disk label", String::new())));
    }
    for place in DASD_PLACES {
        let magic = head(reader, place, 4)?;
        if DASD_MAGICS.contains(&magic.as_slice()) {
            return Ok(Some(NotRead::new("DASD disk label", String::new())));
        }
    }
    Ok(None)
}

fn is_sun(bytes: Bytes<'_>) -> Option<bool> {
    let (words, _) = bytes.part(0, SECTOR_BYTES)?.0.as_chunks::<2>();
    let sum = words.iter().fold(0, |sum, word| sum ^ u16::from_be_bytes(*word));
    Some(bytes.array(508)? == SUN_MAGIC.to_be_bytes() && sum == 0)
}

fn is_sgi(bytes: Bytes<'_>) -> Option<bool> {
    Some(bytes.be32(0)? == SGI_MAGIC && sum_of_numbers(bytes.part(0, SECTOR_BYTES)?) == 0)
}

fn is_bsd(bytes: Bytes<'_>) -> Option<bool> {
    let has_magic = |at: usize| bytes.le32(at) == Some(BSD_MAGIC) || bytes.be32(at) == Some(BSD_MAGIC);
    Some(BSD_PLACES.iter().any(|at| has_magic(*at) && has_magic(at + BSD_SECOND_MAGIC)))
}

fn is_apple(bytes: Bytes<'_>) -> Option<bool> {
    let block_bytes = usize::from(u16::from_be_bytes(bytes.array(2)?));
    Some(bytes.array(0)? == *b"ER" && block_bytes > 0 && bytes.array(block_bytes)? == *b"PM")
}

fn is_amiga(bytes: Bytes<'_>) -> Option<bool> {
    let is_label = |sector: &[u8; SECTOR_BYTES]| {
        let sector = Bytes(sector);
        let count = sector.be32(4).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let summed = count.checked_mul(4).and_then(|length| sector.part(0, length));
        sector.array(0) == Some(*b"RDSK") && count > 0 && summed.is_some_and(|summed| sum_of_numbers(summed) == 0)
    };
    Some(bytes.0.as_chunks::<SECTOR_BYTES>().0.iter().any(is_label))
}

/// Returns whether a sector has at least one entry of an Atari, on a disk of this size.
fn is_atari(bytes: Bytes<'_>, disk_bytes: u64) -> Option<bool> {
    let (entries, _) = bytes.part(ATARI_ENTRIES, 4 * 12)?.0.as_chunks::<12>();
    let is_entry = |entry: &[u8; 12]| {
        let entry = Bytes(entry);
        let name = entry.part(1, 3).is_some_and(|name| ATARI_NAMES.contains(&name.0));
        let end = entry.be32(4).zip(entry.be32(8)).map(|(first, count)| u64::from(first) + u64::from(count));
        let is_inside = end.is_some_and(|end| end > 0 && end.saturating_mul(SECTOR_BYTES as u64) <= disk_bytes);
        entry.u8(0).is_some_and(|flag| flag & 1 == 1) && name && is_inside
    };
    Some(entries.iter().any(is_entry))
}

/// Returns the sum of big-endian numbers of 32 bits.
fn sum_of_numbers(bytes: Bytes<'_>) -> u32 {
    let (numbers, _) = bytes.0.as_chunks::<4>();
    numbers.iter().fold(0, |sum: u32, number| sum.wrapping_add(u32::from_be_bytes(*number)))
}
