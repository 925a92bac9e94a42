//! The last stage of a capture. In the order of the disk, it passes new units to the writer, builds the headers of
//! chunks, and counts every byte.

use super::batch::{Item, KnownUnit, Outcome, Units};
use super::chunks::{ChunkCutter, RegionTable};
use super::policy::{MapSurvey, bytes_of};
use crate::format::FormatError;
use crate::format::chunk_header::{ChunkHeader, PlacedUnit};
use crate::format::manifest::{RegionChunks, Totals};
use crate::format::pack::{UNIT_HEADER_BYTES, UnitHeader};
use crate::{SectorRun, UnitKey, UnitName};

/// New headers are added together, so that one read of a pack returns those of many chunks: a reader needs them before
/// the units. Once they have this length, or there are so many, they are added.
const HEADERS_BYTES: usize = 192 << 10;
const HEADERS_MAX: usize = 64;

/// The archive's operations that the last stage needs.
pub(super) trait Keep: Units<Error: From<FormatError>> {
    /// Returns the stored length of a unit that the archive has. The image relies on the unit from now on.
    ///
    /// # Errors
    /// When the archive no longer has the unit.
    fn rely(&mut self, name: &UnitName) -> Result<u32, Self::Error>;

    /// As [`Keep::rely`], for a unit that a thread has found. Asks no table again, which may be unreadable by now.
    fn rely_on(&mut self, name: &UnitName, seen: KnownUnit) -> Result<u32, Self::Error>;

    /// Adds a unit that the archive does not have.
    fn add(&mut self, name: UnitName, header: UnitHeader, stored: &[u8]) -> Result<(), Self::Error>;
}

/// Result of a capture, without the findings about the volumes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CollectorResult {
    /// Where the bytes went.
    pub(super) totals: Totals,
    /// Names of the headers of all chunks.
    pub(super) chunks: Vec<UnitName>,
    /// The chunks of each region.
    pub(super) regions: Vec<RegionChunks>,
    /// For each volume, the captured bytes that are not zero.
    pub(super) volume_bytes: Vec<u64>,
}

/// What a capture has added to the archive in all its passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AddedUnits {
    /// Number of units, without headers of chunks.
    units: u64,
    /// Their plain bytes.
    bytes: u64,
    /// Bytes that all new units take in packs, including headers of chunks.
    stored_bytes: u64,
}

/// Takes outcomes in the order of the disk.
pub(super) struct Collector<'c, K> {
    keep: &'c mut K,
    added: &'c mut AddedUnits,
    key: &'c UnitKey,
    found: &'c MapSurvey,
    size_bytes: u64,
    cutter: ChunkCutter,
    regions: RegionTable,
    chunks: Vec<UnitName>,
    totals: Totals,
    volume_bytes: Vec<u64>,
    /// The last of all first sectors so far.
    reached: u64,
    /// Headers that the archive does not have yet.
    headers: Vec<NewHeader>,
}

/// A chunk's header that is not added yet.
struct NewHeader {
    name: UnitName,
    header: UnitHeader,
    stored: Vec<u8>,
}

impl<'c, K: Keep> Collector<'c, K> {
    /// Returns the collector of a disk.
    pub(super) fn new(
        keep: &'c mut K,
        added: &'c mut AddedUnits,
        key: &'c UnitKey,
        found: &'c MapSurvey,
        size_bytes: u64,
        region_bytes: u64,
    ) -> Self {
        Collector {
            keep,
            added,
            key,
            found,
            size_bytes,
            cutter: ChunkCutter::new(region_bytes),
            regions: RegionTable::new(size_bytes, region_bytes),
            chunks: Vec::new(),
            totals: Totals { free_bytes: found.free_bytes, ..Totals::default() },
            volume_bytes: vec![0; found.volume_count()],
            reached: 0,
            headers: Vec::new(),
        }
    }

    /// Returns the byte of the disk at which the last unit begins.
    pub(super) fn reached_bytes(&self) -> u64 {
        bytes_of(SectorRun { start: 0, count: self.reached }, self.size_bytes)
    }

    /// Takes the next outcome.
    pub(super) fn collect(&mut self, outcome: Outcome) -> Result<(), K::Error> {
        let Outcome { items, stored } = outcome;
        for item in items {
            match item {
                Item::Zeros(runs) => {
                    self.totals.zero_bytes += self.bytes(&runs);
                    self.note_reached(&runs);
                    let ended = self.cutter.add_zeros(&runs);
                    self.end_chunk(ended)?;
                }
                Item::Known { unit, seen } => {
                    let stored_bytes = self.keep.rely_on(&unit.name, seen)?;
                    self.place(unit, stored_bytes)?;
                }
                Item::New { unit, header, stored: range } => {
                    let stored_bytes = self.add(unit.name, header, stored.get(range).unwrap_or_default())?;
                    self.place(unit, stored_bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a unit unless the archive has it by now: two concurrent batches may contain the same unit. Returns the
    /// length of its stored bytes.
    fn add(&mut self, name: UnitName, header: UnitHeader, stored: &[u8]) -> Result<u32, K::Error> {
        if self.keep.find(&name)?.is_some() {
            return self.keep.rely(&name);
        }
        self.keep.add(name, header, stored)?;
        self.added.units += 1;
        self.added.bytes += u64::from(header.plain_bytes);
        self.added.stored_bytes += u64::from(header.stored_bytes) + u64::from(UNIT_HEADER_BYTES);
        Ok(header.stored_bytes)
    }

    /// Adds a unit to a chunk.
    fn place(&mut self, unit: PlacedUnit, stored_bytes: u32) -> Result<(), K::Error> {
        self.totals.units += 1;
        self.totals.data_bytes += u64::from(unit.plain_bytes);
        for run in &unit.runs {
            self.found.each_share(*run, &mut |share, volume| {
                if let Some(bytes) = self.volume_bytes.get_mut(volume) {
                    *bytes += bytes_of(share, self.size_bytes);
                }
            });
        }
        self.note_reached(&unit.runs);
        let ended = self.cutter.add_unit(unit, stored_bytes);
        self.end_chunk(ended)
    }

    /// Stores the header of a chunk as a unit, some time.
    fn end_chunk(&mut self, chunk: Option<ChunkHeader>) -> Result<(), K::Error> {
        let Some(chunk) = chunk else { return Ok(()) };
        self.regions.add(&chunk);
        let plain = chunk.encode()?;
        let name = self.key.name(&plain);
        self.chunks.push(name);
        if self.keep.find(&name)?.is_some() {
            self.keep.rely(&name)?;
            return Ok(());
        }
        let mut stored = Vec::new();
        let header = self.keep.compress(&plain, &mut stored)?;
        self.headers.push(NewHeader { name, header, stored });
        let waiting: usize = self.headers.iter().map(|header| header.stored.len()).sum();
        if waiting >= HEADERS_BYTES || self.headers.len() == HEADERS_MAX {
            self.add_headers()?;
        }
        Ok(())
    }

    /// Adds the headers that wait.
    fn add_headers(&mut self) -> Result<(), K::Error> {
        for NewHeader { name, header, stored } in std::mem::take(&mut self.headers) {
            self.keep.add(name, header, &stored)?;
            self.added.stored_bytes += u64::from(header.stored_bytes) + u64::from(UNIT_HEADER_BYTES);
        }
        Ok(())
    }

    fn note_reached(&mut self, runs: &[SectorRun]) {
        self.reached = runs.first().map_or(self.reached, |run| self.reached.max(run.start));
    }

    fn bytes(&self, runs: &[SectorRun]) -> u64 {
        runs.iter().map(|run| bytes_of(*run, self.size_bytes)).sum()
    }

    /// Returns the result.
    pub(super) fn finish(mut self) -> Result<CollectorResult, K::Error> {
        let last = self.cutter.finish();
        self.end_chunk(last)?;
        self.add_headers()?;
        let Collector { totals, added, chunks, volume_bytes, regions, .. } = self;
        let AddedUnits { units: new_units, bytes: new_bytes, stored_bytes } = *added;
        let totals = Totals { new_units, new_bytes, stored_bytes, ..totals };
        Ok(CollectorResult { totals, chunks, regions: regions.finish(), volume_bytes })
    }
}
