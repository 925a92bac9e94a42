//! The file that owns a run of the disk.

use onefold_guest::filesystem::ExtentKind;
use onefold_guest::guest::PlacedExtent;

use crate::{SECTOR_BYTES, SectorRun};

/// A file's last unit ends at a multiple of this length in the file, if the file's blocks reach that far. Nearly all
/// file systems have blocks of this size.
const END_BYTES: u64 = 4096;

/// A run of the disk that belongs to a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Place on the disk.
    pub(super) sectors: SectorRun,
    /// The volume.
    pub(super) volume: u64,
    /// The number of the file.
    pub(super) file: u64,
    /// Index of its first sector within the file.
    pub(super) offset: u64,
    /// End of the content on the disk. The sectors from there on lie behind the end of the file.
    pub(super) content_end: u64,
}

impl Claim {
    /// Returns the claim of an extent; `None` if its bytes do not belong to a file, are not aligned to sectors, or
    /// cover no whole sector.
    pub(super) fn of(extent: &PlacedExtent) -> Option<Claim> {
        let is_content = matches!(extent.kind, ExtentKind::Written | ExtentKind::Shared | ExtentKind::Encoded(_));
        let PlacedExtent { range, offset, used_bytes, .. } = *extent;
        let is_aligned = range.start_bytes % SECTOR_BYTES == 0 && offset % SECTOR_BYTES == 0;
        if !is_content || !is_aligned || used_bytes == 0 {
            return None;
        }
        let end = offset.checked_add(used_bytes)?.checked_next_multiple_of(END_BYTES)? - offset;
        let count = end.min(range.length_bytes) / SECTOR_BYTES;
        let start = range.start_bytes / SECTOR_BYTES;
        Some(Claim {
            sectors: SectorRun { start, count },
            volume: u64::try_from(extent.volume).ok()?,
            file: extent.file.0,
            offset: offset / SECTOR_BYTES,
            content_end: start + used_bytes.div_ceil(SECTOR_BYTES).min(count),
        })
        .filter(|claim| claim.sectors.count > 0)
    }
}
