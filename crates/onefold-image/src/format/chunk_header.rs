//! Chunk headers: which units make a chunk, and where their bytes lie on the disk.

use crate::{SectorRun, UnitName};

/// Maximum of stored bytes of the units of a chunk, with their headers in the pack.
pub const CHUNK_STORED_BYTES_MAX: u64 = 1 << 20;

/// The header of one chunk. It is stored as a unit is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Number of the region of the disk in which the chunk begins.
    pub region: u64,
    /// Its units in the order of their first sectors.
    pub units: Vec<PlacedUnit>,
    /// Sectors that must read as zero; in order, without overlap.
    pub zeros: Vec<SectorRun>,
}

/// A unit, and where its bytes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedUnit {
    /// The unit.
    pub name: UnitName,
    /// Length of its plain bytes: that of all runs together, save that the last sector of a disk may be cut off.
    pub plain_bytes: u32,
    /// The runs that its bytes fill one after the other; not empty. They need not be in the order of the disk.
    pub runs: Vec<SectorRun>,
}
