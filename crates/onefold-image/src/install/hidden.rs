//! Hidden sectors: FAT and NTFS volumes say in their boot sectors how many sectors of the disk lie before them. Boot
//! loaders and Windows rely on that number.
//!
//! | byte | field of the boot sector |
//! |------|--------------------------|
//! | 11   | bytes of a sector: u16   |
//! | 14   | FAT: reserved sectors, which come before everything else: u16 |
//! | 28   | hidden sectors: u32      |
//! | 40   | NTFS: sectors of the volume, u64; the copy of the boot sector follows them |
//! | 50   | FAT32: sector of the copy, u16 |
//! | 510  | 0x55, 0xaa               |
//!
//! A boot sector may be stale, so the place that it names for its copy is not believed alone: the copy of NTFS is the
//! volume's last sector, that of FAT32 is a reserved one other than the information sector, and a copy has the same
//! fields as the boot sector.

use crate::format::manifest::Manifest;

/// Length of the part of a boot sector that has the fields.
pub(super) const BOOT_BYTES: usize = 512;
const HIDDEN_AT: usize = 28;
/// The fields that a copy shares with the boot sector: the name of the maker, and the form of the volume.
const SHARED: std::ops::Range<usize> = 3..HIDDEN_AT;
/// Sector of FAT32 that counts free clusters, and has the same mark at its end as a boot sector.
const INFORMATION_SECTOR: u16 = 1;

/// The kind of a volume with hidden sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// FAT with 12 or 16 bits, which has one boot sector.
    Fat,
    Fat32,
    Ntfs,
}

/// The number that belongs into the boot sectors of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HiddenSectors {
    kind: Kind,
    /// Length of the volume.
    size_bytes: u64,
    start_bytes: u64,
}

impl HiddenSectors {
    /// Returns the number for an image whose disk is one such volume, and that begins at byte `start_bytes` of the
    /// target's disk; `None` for all other images.
    pub(super) fn of(manifest: &Manifest, start_bytes: u64) -> Option<HiddenSectors> {
        let [volume] = &manifest.volumes[..] else { return None };
        let kind = match volume.content.as_str() {
            "fat12" | "fat16" => Kind::Fat,
            "fat32" => Kind::Fat32,
            "ntfs" => Kind::Ntfs,
            _ => return None,
        };
        (volume.start_bytes == 0 && start_bytes > 0).then_some(HiddenSectors {
            kind,
            size_bytes: manifest.size_bytes,
            start_bytes,
        })
    }

    /// Returns the number, and the byte of the volume at which the copy of the boot sector begins if it has a possible
    /// place.
    /// `None` if `boot` is no boot sector, or the number does not fit into it.
    pub(super) fn places(self, boot: &[u8]) -> Option<(u32, Option<u64>)> {
        let sector_bytes = u64::from(u16::from_le_bytes(boot.get(11..13)?.try_into().ok()?));
        let is_boot_sector = is_signed(boot) && matches!(sector_bytes, 512 | 1024 | 2048 | 4096);
        if !is_boot_sector || !self.start_bytes.is_multiple_of(sector_bytes) {
            return None;
        }
        let hidden = u32::try_from(self.start_bytes / sector_bytes).ok()?;
        let field = |at: usize| Some(u16::from_le_bytes(boot.get(at..at + 2)?.try_into().ok()?));
        let sector = match self.kind {
            Kind::Fat => None,
            Kind::Fat32 => {
                let (copy, reserved) = (field(50)?, field(14)?);
                let is_possible = copy > INFORMATION_SECTOR && copy < reserved;
                is_possible.then_some(u64::from(copy))
            }
            Kind::Ntfs => {
                let copy = u64::from_le_bytes(boot.get(40..48)?.try_into().ok()?);
                let is_last = copy > 0 && copy.checked_add(1) == Some(self.size_bytes / sector_bytes);
                is_last.then_some(copy)
            }
        };
        Some((hidden, sector.and_then(|sector| sector.checked_mul(sector_bytes))))
    }
}

/// Puts the number into a boot sector, or its copy. Returns whether it is one: the copy of another boot sector, or
/// anything else, stays as it is.
pub(super) fn put(sector: &mut [u8], boot: &[u8], hidden: u32) -> bool {
    let is_copy = is_signed(sector) && sector.get(SHARED) == boot.get(SHARED);
    if is_copy {
        sector[HIDDEN_AT..HIDDEN_AT + 4].copy_from_slice(&hidden.to_le_bytes());
    }
    is_copy
}

fn is_signed(boot: &[u8]) -> bool {
    boot.get(510..512) == Some(&[0x55, 0xaa])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(sector_bytes: u16, at: usize, copy: &[u8]) -> [u8; BOOT_BYTES] {
        let mut boot = [1; BOOT_BYTES];
        boot[11..13].copy_from_slice(&sector_bytes.to_le_bytes());
        boot[at..at + copy.len()].copy_from_slice(copy);
        boot[510..].copy_from_slice(&[0x55, 0xaa]);
        boot
    }

    #[test]
    fn the_number_is_in_sectors_of_the_volume_and_the_copy_is_found() {
        let places =
            |kind, start_bytes, boot: &[u8]| HiddenSectors { kind, size_bytes: 1001 * 512, start_bytes }.places(boot);
        let fat = |sector_bytes, copy: u16, reserved: u16| {
            let mut boot = boot(sector_bytes, 50, &copy.to_le_bytes());
            boot[14..16].copy_from_slice(&reserved.to_le_bytes());
            boot
        };
        assert_eq!(places(Kind::Fat, 1 << 20, &boot(512, 0, &[])), Some((2048, None)));
        assert_eq!(places(Kind::Fat32, 1 << 20, &fat(512, 6, 32)), Some((2048, Some(6 * 512))));
        assert_eq!(places(Kind::Fat32, 1 << 20, &fat(4096, u16::MAX, 32)), Some((256, None)));
        assert_eq!(places(Kind::Fat32, 1 << 20, &fat(512, 32, 32)), Some((2048, None)), "a table or a file");
        assert_eq!(places(Kind::Fat32, 1 << 20, &fat(512, 1, 32)), Some((2048, None)), "the information sector");
        let sectors = 1000_u64.to_le_bytes();
        assert_eq!(places(Kind::Ntfs, 63 * 512, &boot(512, 40, &sectors)), Some((63, Some(512_000))));
        for stale in [0, 999, 1001, u64::MAX] {
            assert_eq!(places(Kind::Ntfs, 63 * 512, &boot(512, 40, &stale.to_le_bytes())), Some((63, None)));
        }
        assert_eq!(places(Kind::Ntfs, 63 * 512, &boot(4096, 40, &sectors)), None, "between sectors");
        assert_eq!(places(Kind::Ntfs, 1 << 60, &boot(512, 40, &sectors)), None, "too far");
        assert_eq!(places(Kind::Ntfs, 1 << 20, &boot(0, 40, &sectors)), None);
        assert_eq!(places(Kind::Ntfs, 1 << 20, &[0; 512]), None);
        assert_eq!(places(Kind::Ntfs, 1 << 20, &[]), None);
    }

    #[test]
    fn only_a_boot_sector_and_its_copy_get_the_number() {
        let boot_sector = boot(512, 0, &[]);
        let mut copy = boot_sector;
        copy[HIDDEN_AT] = 9;
        assert!(put(&mut copy, &boot_sector, 0x0102_0304));
        assert_eq!(copy[28..32], [4, 3, 2, 1]);
        // A file that holds another boot sector, and one that is none.
        for other in [boot(512, 3, b"OTHER"), boot(512, 20, &[5]), [7; BOOT_BYTES]] {
            let mut sector = other;
            assert!(!put(&mut sector, &boot_sector, 5));
            assert_eq!(sector, other);
        }
    }
}
