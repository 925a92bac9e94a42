//! Members of firmware arrays, recognised by a signature near the end of the disk.
//!
//! | kind | sectors from the end | signature | from |
//! |---|---|---|---|
//! | Intel (IMSM) | 2 | `Intel Raid ISM Cfg Sig. ` | mdadm, `super-intel.c` |
//! | DDF | 1, 257 | `DE 11 DE 11` in either byte order | SNIA, "Common RAID Disk Data Format", anchor header |
//! | NVIDIA | 2 | `NVIDIA` | libblkid, `nvidia_raid.c` |
//! | LSI | 1 | `$XIDE$` | libblkid, `lsi_raid.c` |
//! | Promise | several | `Promise Technology, Inc.` | libblkid, `promise_raid.c` |
//!
//! The sectors of Intel and DDF have the sector size of the disk, 512 or 4096 bytes. The sectors of the others have
//! 512.

use super::{NotRead, head_once, text};
use crate::error::GuestError;
use crate::volume::VolumeReader;

/// Signature of a kind.
struct Signature {
    name: &'static str,
    /// One of them is at the beginning of its sector.
    magics: &'static [&'static [u8]],
    /// Distances of its sector from the end, in sectors.
    sectors: &'static [u64],
    sector_sizes: &'static [u64],
    /// Place and length of its version in the sector.
    version: Option<(usize, usize)>,
}

const SMALL: &[u64] = &[512];
const BOTH: &[u64] = &[512, 4096];
const DDF_SECTORS: &[u64] = &[1, 257];
const PROMISE_SECTORS: &[u64] = &[63, 255, 256, 16, 399, 591, 675, 735, 911, 951, 974, 991, 3087];

const SIGNATURES: [Signature; 5] = [
    Signature {
        name: "Intel RAID",
        magics: &[b"Intel Raid ISM Cfg Sig. "],
        sectors: &[2],
        sector_sizes: BOTH,
        version: Some((24, 6)),
    },
    Signature {
        name: "DDF RAID",
        magics: &[b"\xde\x11\xde\x11", b"\x11\xde\x11\xde"],
        sectors: DDF_SECTORS,
        sector_sizes: BOTH,
        version: Some((32, 8)),
    },
    Signature { name: "NVIDIA RAID", magics: &[b"NVIDIA"], sectors: &[2], sector_sizes: SMALL, version: None },
    Signature { name: "LSI RAID", magics: &[b"$XIDE$"], sectors: &[1], sector_sizes: SMALL, version: None },
    Signature {
        name: "Promise RAID",
        magics: &[b"Promise Technology, Inc."],
        sectors: PROMISE_SECTORS,
        sector_sizes: SMALL,
        version: None,
    },
];

/// Number of bytes of a sector that are read.
const HEADER_BYTES: usize = 64;

pub(super) fn recognise(reader: &VolumeReader<'_>) -> Result<Option<NotRead>, GuestError> {
    Ok(placed(reader)?.map(|(_, found)| found))
}

/// Recognises a member, and returns the place of its signature.
pub(super) fn placed(reader: &VolumeReader<'_>) -> Result<Option<(u64, NotRead)>, GuestError> {
    let size = reader.size_bytes();
    for signature in &SIGNATURES {
        for sector_bytes in signature.sector_sizes {
            for distance in signature.sectors {
                let Some(sector) = (size / sector_bytes).checked_sub(*distance) else { continue };
                let at = sector * sector_bytes;
                let header = head_once(reader, at, HEADER_BYTES)?;
                if signature.magics.iter().any(|magic| header.starts_with(magic)) {
                    let version = signature.version.and_then(|(at, length)| header.get(at..at + length));
                    let version = version.map(text).filter(|version| !version.is_empty());
                    let detail = version.map_or_else(String::new, |version| format!("version {version}"));
                    return Ok(Some((at, NotRead::new(signature.name, detail))));
                }
            }
        }
    }
    Ok(None)
}
