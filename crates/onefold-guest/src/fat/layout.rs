//! The boot sector of a FAT volume ("FAT: General Overview of On-Disk Format", version 1.03, Microsoft).
//!
//! | bytes | field |
//! |---|---|
//! | 11..13, 13 | bytes of a sector, sectors of a cluster |
//! | 14..16, 16 | sectors before the first table, number of tables |
//! | 17..19 | entries of the root directory; 0 with FAT32 |
//! | 19..21, 32..36 | sectors of the volume: the first of these that is not 0 |
//! | 21 | medium, which entry 0 of the table repeats |
//! | 22..24, 36..40 | sectors of a table; the second with FAT32 |
//! | 37, 38, 39..43, 43..54 | FAT12, FAT16: state, signature of the next two, serial number, label |
//! | 40..42 | FAT32: bit 7: only one table is current; bits 0 to 3: which one |
//! | 44..48, 48..50 | FAT32: first cluster of the root directory, sector of the counts |
//! | 65, 66, 67..71, 71..82 | FAT32: as 37 to 54 |
//! | 510..512 | `55 AA` |
//!
//! A FAT32 has a copy of its boot sector, in sector 6.
//!
//! Bit 0 of the state says that the volume is mounted, bit 1 that its medium has errors (Linux' `fs/fat/inode.c`).
//!
//! | counts | field |
//! |---|---|
//! | 0..4, 484..488 | `RRaA`, `rrAa` |
//! | 488..492 | free clusters, or all ones |

use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::FileSystemKind;
use crate::volume::VolumeReader;

const SECTOR_BYTES_MIN: usize = 512;
/// Volumes with fewer clusters are FAT12; below the second limit, FAT16.
const CLUSTERS_FAT12: u64 = 4085;
const CLUSTERS_FAT16: u64 = 65525;
/// Maximum number of clusters of FAT32: numbers have 28 bits, and the last ones are special.
const CLUSTERS_MAX: u64 = 0x0fff_fff5;
const ROOT_ENTRY_BYTES: u64 = 32;
/// Place of the copy of the boot sector in `mkfs.fat` and Windows, and the possible sector lengths.
const COPY_SECTOR: u64 = 6;
const COPY_SECTOR_BYTES: [u64; 4] = [512, 1024, 2048, 4096];

/// The places of the parts of a volume, in bytes of the volume.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) kind: FileSystemKind,
    sector_bytes: u64,
    pub(super) cluster_bytes: u64,
    pub(super) table_start: u64,
    pub(super) table_bytes: u64,
    pub(super) tables: u32,
    /// The only current table, if the others are not current.
    pub(super) only_table: Option<u32>,
    /// Whether the boot sector says that its tables are not copies of each other.
    pub(super) is_unmirrored: bool,
    pub(super) root: Root,
    /// First byte of cluster 2.
    pub(super) data_start: u64,
    /// Number of clusters.
    pub(super) clusters: u32,
    /// Length of the file system.
    pub(super) size_bytes: u64,
    pub(super) serial: Option<u32>,
    pub(super) label: Vec<u8>,
    pub(super) state: u8,
    pub(super) medium: u8,
    /// Number of free clusters, if the volume records it.
    pub(super) free_clusters: Option<u32>,
}

/// Place of the root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// At a separate place.
    Fixed { start: u64, length_bytes: u64 },
    /// In clusters, starting with this one.
    Clusters(u32),
}

impl Layout {
    /// Returns the layout of a volume; `None` if it has no boot sector of FAT.
    pub(super) fn read(reader: &VolumeReader<'_>) -> Result<Option<Layout>, GuestError> {
        Layout::read_at(reader, 0)
    }

    /// Returns the layout that the copy of the boot sector of a FAT32 describes; `None` if there is none.
    pub(super) fn read_copy(reader: &VolumeReader<'_>) -> Result<Option<Layout>, GuestError> {
        for sector_bytes in COPY_SECTOR_BYTES {
            let copy = Layout::read_at(reader, COPY_SECTOR * sector_bytes)?;
            // The place of the copy is not stored anywhere else: it must match the copy's own sector length.
            let copy = copy.filter(|copy| copy.kind == FileSystemKind::Fat32 && copy.sector_bytes == sector_bytes);
            if copy.is_some() {
                return Ok(copy);
            }
        }
        Ok(None)
    }

    /// Returns the layout according to the boot sector at byte `at`.
    fn read_at(reader: &VolumeReader<'_>, at: u64) -> Result<Option<Layout>, GuestError> {
        if reader.size_bytes() < at + SECTOR_BYTES_MIN as u64 {
            return Ok(None);
        }
        let sector = reader.bytes(at, SECTOR_BYTES_MIN, "boot sector")?;
        let Some(mut layout) = Layout::decode(Bytes(&sector)) else { return Ok(None) };
        if layout.kind == FileSystemKind::Fat32 {
            let at = Bytes(&sector)
                .le16(48)
                .zip(Bytes(&sector).le16(11))
                .map(|(at, bytes)| u64::from(at) * u64::from(bytes));
            layout.free_clusters = at.filter(|at| *at > 0).map(|at| free_clusters(reader, at)).transpose()?.flatten();
        }
        layout.free_clusters = layout.free_clusters.filter(|free| *free <= layout.clusters);
        Ok(Some(layout))
    }

    fn decode(sector: Bytes<'_>) -> Option<Layout> {
        let sector_bytes = u64::from(sector.le16(11)?);
        let cluster_sectors = u64::from(sector.u8(13)?);
        let (reserved, tables, medium) = (u64::from(sector.le16(14)?), u32::from(sector.u8(16)?), sector.u8(21)?);
        let is_boot_sector = sector.array(510)? == [0x55, 0xaa] || matches!(sector.u8(0)?, 0xeb | 0xe9);
        let is_sound = (512..=4096).contains(&sector_bytes)
            && sector_bytes.is_power_of_two()
            && cluster_sectors.is_power_of_two()
            && reserved > 0
            && (1..=2).contains(&tables)
            && (medium == 0xf0 || medium >= 0xf8);
        if !is_boot_sector || !is_sound {
            return None;
        }
        let either = |short: u16, long: u32| if short == 0 { u64::from(long) } else { u64::from(short) };
        let is_fat32 = sector.le16(22)? == 0;
        let table_sectors = either(sector.le16(22)?, sector.le32(36)?);
        let sectors = either(sector.le16(19)?, sector.le32(32)?);
        let root_bytes = u64::from(sector.le16(17)?) * ROOT_ENTRY_BYTES;
        // These are products and sums of numbers of 32 and 8 bits.
        let root_start = reserved + u64::from(tables) * table_sectors;
        let data_start = root_start + root_bytes.div_ceil(sector_bytes);
        let table_bytes = table_sectors * sector_bytes;
        let clusters = sectors.checked_sub(data_start)? / cluster_sectors;
        let kind = match clusters {
            _ if is_fat32 => FileSystemKind::Fat32,
            ..CLUSTERS_FAT12 => FileSystemKind::Fat12,
            _ => FileSystemKind::Fat16,
        };
        let clusters = clusters.min(entries_in(kind, table_bytes)?.checked_sub(2)?).min(CLUSTERS_MAX);
        let tail = if is_fat32 { 65 } else { 37 };
        let is_signed = matches!(sector.u8(tail + 1)?, 0x28 | 0x29);
        let flags = if is_fat32 { sector.le16(40)? } else { 0 };
        let is_root_known = if is_fat32 { root_bytes == 0 } else { root_bytes > 0 };
        let is_limited = is_fat32 || clusters < CLUSTERS_FAT16;
        (clusters > 0 && table_sectors > 0 && is_root_known && is_limited).then_some(Layout {
            kind,
            sector_bytes,
            cluster_bytes: cluster_sectors * sector_bytes,
            table_start: reserved * sector_bytes,
            table_bytes,
            tables,
            is_unmirrored: flags & 0x80 != 0 && tables > 1,
            only_table: (flags & 0x80 != 0).then_some(u32::from(flags & 0xf)).filter(|table| *table < tables),
            root: if is_fat32 {
                Root::Clusters(sector.le32(44)?)
            } else {
                Root::Fixed { start: root_start * sector_bytes, length_bytes: root_bytes }
            },
            data_start: data_start * sector_bytes,
            clusters: u32::try_from(clusters).ok()?,
            size_bytes: sectors * sector_bytes,
            serial: if is_signed { Some(sector.le32(tail + 2)?) } else { None },
            label: if is_signed { sector.part(tail + 6, 11)?.0.to_vec() } else { Vec::new() },
            state: sector.u8(tail)?,
            medium,
            free_clusters: None,
        })
    }

    /// Returns the number after that of the last cluster.
    pub(super) fn end(&self) -> u32 {
        self.clusters + 2
    }

    /// Returns whether a cluster with this number exists.
    pub(super) fn has(&self, cluster: u32) -> bool {
        (2..self.end()).contains(&cluster)
    }

    /// Returns the first byte of a cluster.
    pub(super) fn place(&self, cluster: u32) -> u64 {
        self.data_start + u64::from(cluster.saturating_sub(2)) * self.cluster_bytes
    }
}

/// Returns the number of entries of a table.
fn entries_in(kind: FileSystemKind, table_bytes: u64) -> Option<u64> {
    match kind {
        FileSystemKind::Fat12 => Some(table_bytes * 2 / 3),
        FileSystemKind::Fat16 => Some(table_bytes / 2),
        FileSystemKind::Fat32 => Some(table_bytes / 4),
        _ => None,
    }
}

/// Returns the number of free clusters that the sector at byte `at` records.
fn free_clusters(reader: &VolumeReader<'_>, at: u64) -> Result<Option<u32>, GuestError> {
    if at.checked_add(SECTOR_BYTES_MIN as u64).is_none_or(|end| end > reader.size_bytes()) {
        return Ok(None);
    }
    let sector = reader.bytes(at, SECTOR_BYTES_MIN, "sector of counts")?;
    let view = Bytes(&sector);
    let is_sound = view.array(0) == Some(*b"RRaA") && view.array(484) == Some(*b"rrAa");
    Ok(view.le32(488).filter(|_| is_sound))
}
