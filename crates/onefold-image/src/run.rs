//! Runs of sectors: places on a disk.

/// Bytes of a sector, the unit of all places in an archive.
pub const SECTOR_BYTES: u64 = 512;

/// A run of consecutive sectors of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectorRun {
    /// The first sector.
    pub start: u64,
    /// Number of sectors, not 0.
    pub count: u64,
}

/// All runs end at or below this sector, where the longest disk ends: its bytes can be counted in 64 bits.
pub(crate) const SECTORS_MAX: u64 = 1 << 53;

impl SectorRun {
    /// Returns whether the run is not empty and ends within the possible length of a disk.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.count > 0 && self.start.checked_add(self.count).is_some_and(|end| end <= SECTORS_MAX)
    }

    /// Returns the sector after the last. Runs of a decoded object end at 2^53 at most, so this cannot overflow.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start + self.count
    }

    /// Returns the first byte on the disk.
    #[must_use]
    pub fn start_bytes(self) -> u64 {
        self.start * SECTOR_BYTES
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn length_bytes(self) -> u64 {
        self.count * SECTOR_BYTES
    }
}
