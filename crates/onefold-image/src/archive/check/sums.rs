//! Properties of all chunks of an image together: no sector belongs to two of them, and their bytes add up to the
//! totals of the manifest.

use crate::claims::Claims;
use crate::format::chunk_header::ChunkHeader;
use crate::format::manifest::Manifest;
use crate::placed::bytes_of;

/// Memory for the claimed sectors of one image. A longer disk than 256 GiB is claimed in parts.
const CLAIMS_BYTES: u64 = 64 << 20;

/// The chunks of an image that have been added.
pub(super) struct Sums {
    claims: Claims,
    size_bytes: u64,
    data_bytes: u64,
    zero_bytes: u64,
    has_all: bool,
    has_overlap: bool,
}

impl Sums {
    pub(super) fn of(manifest: &Manifest) -> Sums {
        let (size_bytes, claims) = (manifest.size_bytes, Claims::new(manifest.size_bytes, CLAIMS_BYTES));
        Sums { claims, size_bytes, data_bytes: 0, zero_bytes: 0, has_all: true, has_overlap: false }
    }

    /// Adds a chunk, all of whose runs lie on the disk.
    pub(super) fn add(&mut self, number: usize, header: &ChunkHeader) {
        for unit in &header.units {
            self.data_bytes = self.data_bytes.saturating_add(unit.plain_bytes.into());
        }
        for run in &header.zeros {
            let range = bytes_of(*run, self.size_bytes);
            self.zero_bytes = self.zero_bytes.saturating_add(range.end - range.start);
        }
        self.claim(number, header);
    }

    /// Notes that a chunk cannot be added, so that the totals prove nothing.
    pub(super) fn lacks_a_chunk(&mut self) {
        self.has_all = false;
    }

    /// Returns whether two chunks have the same sectors.
    pub(super) fn has_overlap(&self) -> bool {
        self.has_overlap
    }

    /// Returns chunks that reach beyond the sectors that were claimed so far, and must be claimed again.
    pub(super) fn next(&mut self) -> Option<Vec<usize>> {
        if self.has_overlap { None } else { self.claims.next() }
    }

    /// Claims further sectors of a chunk that was added.
    pub(super) fn claim(&mut self, number: usize, header: &ChunkHeader) {
        self.has_overlap |= !self.claims.claim(number, header);
    }

    /// Returns what is wrong with the chunks of the manifest together.
    pub(super) fn damage(&self, manifest: &Manifest) -> Option<&'static str> {
        let totals = &manifest.totals;
        if self.has_overlap {
            Some("two of its chunks have the same sectors")
        } else if self.has_all && (self.data_bytes, self.zero_bytes) != (totals.data_bytes, totals.zero_bytes) {
            Some("its totals differ from those of its chunks")
        } else {
            None
        }
    }
}
