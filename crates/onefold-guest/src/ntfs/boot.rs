//! The boot sector: the sizes of an NTFS, and the start of its MFT.
//!
//! After "NTFS Documentation" of the Linux-NTFS project (`$Boot`). All numbers are little-endian.
//!
//! | bytes | field | notes |
//! |---|---|---|
//! | 3..11 | maker | `NTFS` and four blanks |
//! | 11..13 | bytes of a sector | 256 to 4096 |
//! | 13 | sectors of a cluster | above 128: 2 to the power of 256 less this |
//! | 40..48 | sectors | without the last one of the partition, which has a copy of this one |
//! | 48..56 | first cluster of the MFT | |
//! | 56..64 | first cluster of its mirror | |
//! | 64 | clusters of an MFT record | above 127: bytes, 2 to the power of 256 less this |
//! | 72..80 | serial number | |
//! | 510..512 | `55 AA` | |

use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::volume::VolumeReader;

const SECTOR_LENGTH: usize = 512;
/// Possible sector lengths, which determine the place of the copy behind the last cluster.
const BACKUP_SECTORS: [u64; 4] = [512, 1024, 2048, 4096];
const SIGNATURE: [u8; 2] = [0x55, 0xaa];
const MAKER: [u8; 8] = *b"NTFS    ";
const CLUSTER_BYTES_MAX: u64 = 2 << 20;
const STRUCTURE: &str = "boot sector";

/// The sizes of an NTFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Bytes of a cluster: a power of two up to 2 MiB.
    pub(super) cluster_bytes: u64,
    /// Number of clusters; their bytes are a number of 63 bits.
    pub(super) clusters: u64,
    /// Bytes of an MFT record: a power of two from 512 to 65536.
    pub(super) record_bytes: u32,
    /// First cluster of the MFT.
    pub(super) mft_cluster: u64,
    /// First cluster of the copy of its first records.
    pub(super) mirror_cluster: u64,
    /// The serial number.
    pub(super) serial: u64,
}

impl Geometry {
    /// Returns the bytes of all clusters.
    pub(super) fn size_bytes(&self) -> u64 {
        self.clusters * self.cluster_bytes
    }

    /// Returns the length of an MFT record.
    pub(super) fn record_length(&self) -> usize {
        self.record_bytes as usize
    }
}

/// A boot sector that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Boot {
    /// Its content.
    pub(super) geometry: Geometry,
    /// Whether it is the copy, because the first one is damaged.
    pub(super) is_backup: bool,
}

/// Returns the boot sector of a volume; `None` if the volume is not NTFS. The copy is used if the first sector is a
/// damaged one of NTFS, or is not recognised.
pub(super) fn read(volume: &VolumeReader<'_>) -> Result<Option<Boot>, GuestError> {
    if volume.size_bytes() < SECTOR_LENGTH as u64 {
        return Ok(None);
    }
    let first = sector(volume, 0)?;
    if let Some(geometry) = decode(Bytes(&first)) {
        return Ok(Some(Boot { geometry, is_backup: false }));
    }
    let is_ours = first[3..11] == MAKER;
    if !is_ours && first[510..] == SIGNATURE {
        return Ok(None);
    }
    let backup = backup(volume)?;
    if is_ours && backup.is_none() {
        return Err(volume.damage(0, STRUCTURE, "neither it nor its copy makes sense").into());
    }
    Ok(backup)
}

fn sector(volume: &VolumeReader<'_>, offset: u64) -> Result<[u8; SECTOR_LENGTH], GuestError> {
    let mut sector = [0; SECTOR_LENGTH];
    volume.read(offset, &mut sector, STRUCTURE)?;
    Ok(sector)
}

/// Returns the copy in the last sector of the volume, if there is one. It must be at the end of the clusters that it
/// claims.
pub(super) fn backup(volume: &VolumeReader<'_>) -> Result<Option<Boot>, GuestError> {
    for sector_bytes in BACKUP_SECTORS {
        let Some(offset) = volume.size_bytes().checked_sub(sector_bytes) else { continue };
        let copy = sector(volume, offset)?;
        if let Some(geometry) = decode(Bytes(&copy))
            && geometry.size_bytes() <= offset
            && offset - geometry.size_bytes() < geometry.cluster_bytes
        {
            return Ok(Some(Boot { geometry, is_backup: true }));
        }
    }
    Ok(None)
}

/// Decodes a boot sector; `None` if it is not one or is invalid.
fn decode(bytes: Bytes<'_>) -> Option<Geometry> {
    if bytes.array(3)? != MAKER || bytes.array(510)? != SIGNATURE {
        return None;
    }
    let sector_bytes = u64::from(bytes.le16(11)?);
    if !sector_bytes.is_power_of_two() || !(256..=4096).contains(&sector_bytes) {
        return None;
    }
    let sectors_per_cluster = match bytes.u8(13)? {
        count @ ..=128 => u64::from(count),
        power => 1_u64.checked_shl(256 - u32::from(power))?,
    };
    let cluster_bytes = sector_bytes.checked_mul(sectors_per_cluster)?;
    if !cluster_bytes.is_power_of_two() || !(SECTOR_LENGTH as u64..=CLUSTER_BYTES_MAX).contains(&cluster_bytes) {
        return None;
    }
    let clusters = bytes.le64(40)? / sectors_per_cluster;
    let geometry = Geometry {
        cluster_bytes,
        clusters,
        record_bytes: record_bytes(bytes.u8(64)?, cluster_bytes)?,
        mft_cluster: bytes.le64(48)?,
        mirror_cluster: bytes.le64(56)?,
        serial: bytes.le64(72)?,
    };
    let size_fits = clusters.checked_mul(cluster_bytes).is_some_and(|bytes| bytes <= i64::MAX.unsigned_abs());
    (size_fits && geometry.mft_cluster < clusters).then_some(geometry)
}

/// Returns the length of an MFT record from its value in the boot sector.
fn record_bytes(stated: u8, cluster_bytes: u64) -> Option<u32> {
    let bytes = match stated {
        count @ ..=127 => u64::from(count).checked_mul(cluster_bytes)?,
        power => 1_u64.checked_shl(256 - u32::from(power))?,
    };
    let bytes = u32::try_from(bytes).ok()?;
    (bytes.is_power_of_two() && (512..=65536).contains(&bytes)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot_sector() -> [u8; SECTOR_LENGTH] {
        let mut bytes = [0; SECTOR_LENGTH];
        bytes[3..11].copy_from_slice(&MAKER);
        bytes[11..13].copy_from_slice(&512_u16.to_le_bytes());
        bytes[13] = 8;
        bytes[40..48].copy_from_slice(&8191_u64.to_le_bytes());
        bytes[48..56].copy_from_slice(&4_u64.to_le_bytes());
        bytes[64] = 0xf6;
        bytes[510..].copy_from_slice(&SIGNATURE);
        bytes
    }

    #[test]
    fn sizes_are_counts_or_powers() {
        let decode_with = |changes: &[(usize, u8)]| {
            let mut bytes = boot_sector();
            changes.iter().for_each(|&(at, value)| bytes[at] = value);
            decode(Bytes(&bytes)).map(|found| (found.cluster_bytes, found.clusters, found.record_bytes))
        };
        assert_eq!(decode_with(&[]), Some((4096, 1023, 1024)));
        assert_eq!(decode_with(&[(64, 1)]), Some((4096, 1023, 4096)));
        assert_eq!(decode_with(&[(13, 1)]), Some((512, 8191, 1024)));
        // Clusters of 2 MiB: 2 to the power of 12 sectors.
        assert_eq!(decode_with(&[(13, 0xf4), (43, 1)]), Some((2 << 20, 4097, 1024)));
        for wrong in [[(12, 3), (13, 8)], [(13, 0), (13, 0)], [(13, 3), (13, 3)], [(13, 0x81), (64, 1)]] {
            assert_eq!(decode_with(&wrong), None, "{wrong:?}");
        }
        for wrong in [(64, 0), (64, 3), (64, 0x80), (64, 0xff), (3, 0), (511, 0), (55, 1), (47, 0x80)] {
            assert_eq!(decode_with(&[wrong]), None, "{wrong:?}");
        }
    }
}
