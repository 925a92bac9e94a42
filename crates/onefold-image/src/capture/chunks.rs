//! Chunks: decides which units share a header, and which regions of the disk each chunk touches.

use crate::format::chunk_header::{CHUNK_STORED_BYTES_MAX, ChunkHeader, PlacedUnit};
use crate::format::manifest::{OTHERS_MAX, RegionChunks};
use crate::format::pack::UNIT_HEADER_BYTES;
use crate::{SECTOR_BYTES, SectorRun};

/// Length of a header at which a chunk ends. It bounds how many bytes one small read of an image has to fetch.
const HEADER_BYTES_MAX: usize = 128 << 10;
/// Maximum bytes of a unit in a header without its runs, and of a run.
const UNIT_BYTES: usize = 32 + 2 * 5;
const RUN_BYTES: usize = 2 * 9;
/// Maximum total number of chunks in the lists of all regions. Hostile files may touch every region from each chunk. A
/// region whose list would exceed this number is marked as crowded.
const OTHERS_SUM_MAX: usize = 1 << 22;

/// Cuts a stream of units and zeros into chunks.
#[derive(Debug)]
pub(super) struct ChunkCutter {
    region_sectors: u64,
    /// The region of the last chunk. No later chunk has an earlier one.
    region: u64,
    header: ChunkHeader,
    is_empty: bool,
    stored_bytes: u64,
    /// Upper bound of the header's length.
    header_bytes: usize,
}

impl ChunkCutter {
    /// Returns a cutter for regions of `region_bytes`.
    pub(super) fn new(region_bytes: u64) -> ChunkCutter {
        ChunkCutter {
            region_sectors: (region_bytes / SECTOR_BYTES).max(1),
            region: 0,
            header: ChunkHeader::default(),
            is_empty: true,
            stored_bytes: 0,
            header_bytes: 0,
        }
    }

    /// Adds a unit. Most begin behind the one before; what lies behind the end of a file may begin anywhere. Returns
    /// the chunk that ends before it, if one does.
    pub(super) fn add_unit(&mut self, unit: PlacedUnit, stored_bytes: u32) -> Option<ChunkHeader> {
        let stored_bytes = u64::from(stored_bytes) + u64::from(UNIT_HEADER_BYTES);
        let start = unit.runs.first().map_or(0, |run| run.start);
        let ended = self.make_room(start, stored_bytes, UNIT_BYTES + unit.runs.len() * RUN_BYTES);
        self.header.units.push(unit);
        ended
    }

    /// Adds sectors that must read as zero. Returns the chunk that ends before them, if one does.
    pub(super) fn add_zeros(&mut self, runs: &[SectorRun]) -> Option<ChunkHeader> {
        let start = runs.first()?.start;
        let region = self.region_of(start);
        // Zeros often follow one another.
        if let ([run], Some(last)) = (runs, self.header.zeros.last_mut())
            && last.end() == run.start
            && self.header.region == region
        {
            last.count += run.count;
            return None;
        }
        let ended = self.make_room(start, 0, runs.len() * RUN_BYTES);
        self.header.zeros.extend_from_slice(runs);
        ended
    }

    /// Returns the region of a chunk that has what begins at a sector: that of the chunk before at least. The regions
    /// of the disk find their own chunks by that order, and list those of other regions.
    fn region_of(&self, start: u64) -> u64 {
        (start / self.region_sectors).max(self.region)
    }

    /// Makes room for what begins at a sector; returns the chunk that ends for it, if one does.
    fn make_room(&mut self, start: u64, stored_bytes: u64, header_bytes: usize) -> Option<ChunkHeader> {
        let region = self.region_of(start);
        let fits = self.header.region == region
            && self.stored_bytes + stored_bytes <= CHUNK_STORED_BYTES_MAX
            && self.header_bytes + header_bytes <= HEADER_BYTES_MAX;
        let ended = if fits { None } else { self.finish() };
        (self.region, self.header.region) = (region, region);
        self.is_empty = false;
        self.stored_bytes += stored_bytes;
        self.header_bytes += header_bytes;
        ended
    }

    /// Returns the last chunk, if there is one.
    pub(super) fn finish(&mut self) -> Option<ChunkHeader> {
        let mut header = std::mem::take(&mut self.header);
        (self.stored_bytes, self.header_bytes) = (0, 0);
        header.zeros = joined(std::mem::take(&mut header.zeros));
        (!std::mem::replace(&mut self.is_empty, true)).then_some(header)
    }
}

/// Sorts runs and merges neighbours.
fn joined(mut runs: Vec<SectorRun>) -> Vec<SectorRun> {
    runs.sort_unstable();
    runs.dedup_by(|next, last| {
        let is_next = last.end() == next.start;
        if is_next {
            last.count += next.count;
        }
        is_next
    });
    runs
}

/// The chunks that begin in each region of a disk, and the other chunks that have sectors there.
#[derive(Debug)]
pub(super) struct RegionTable {
    region_sectors: u64,
    regions: Vec<RegionChunks>,
    /// Number of chunks so far.
    chunks: u32,
    /// The region of the last chunk. `first` is set for this region and all earlier ones.
    begun: usize,
    others: usize,
    others_max: usize,
}

impl RegionTable {
    /// Returns the table of a disk without chunks.
    pub(super) fn new(size_bytes: u64, region_bytes: u64) -> RegionTable {
        let count = usize::try_from(size_bytes.div_ceil(region_bytes.max(1))).unwrap_or(usize::MAX);
        let regions = vec![RegionChunks { first: 0, others: Some(Vec::new()) }; count];
        let region_sectors = (region_bytes / SECTOR_BYTES).max(1);
        RegionTable { region_sectors, regions, chunks: 0, begun: 0, others: 0, others_max: OTHERS_SUM_MAX }
    }

    /// Adds the next chunk, which begins in the region of the one before or in a later one.
    pub(super) fn add(&mut self, chunk: &ChunkHeader) {
        let own = usize::try_from(chunk.region).unwrap_or(usize::MAX);
        while self.begun < own {
            self.begun += 1;
            if let Some(region) = self.regions.get_mut(self.begun) {
                region.first = self.chunks;
            }
        }
        let runs = chunk.units.iter().flat_map(|unit| &unit.runs).chain(&chunk.zeros);
        let region_of = |sector: u64| usize::try_from(sector / self.region_sectors).unwrap_or(usize::MAX);
        let spans = runs.map(|run| (region_of(run.start), region_of(run.end() - 1)));
        let mut spans: Vec<(usize, usize)> = spans.filter(|span| *span != (own, own)).collect();
        spans.sort_unstable();
        let mut next = 0;
        for (first, last) in spans {
            for region in first.max(next)..=last {
                if region != own {
                    self.add_other(region);
                }
            }
            next = next.max(last + 1);
        }
        self.chunks += 1;
    }

    fn add_other(&mut self, region: usize) {
        let Some(RegionChunks { others, .. }) = self.regions.get_mut(region) else { return };
        match others {
            Some(list) if list.len() < OTHERS_MAX && self.others < self.others_max => {
                list.push(self.chunks);
                self.others += 1;
            }
            // The entries of a crowded region's list become free for other regions.
            crowded => self.others -= crowded.take().map_or(0, |list| list.len()),
        }
    }

    /// Returns the chunks of all regions.
    pub(super) fn finish(mut self) -> Vec<RegionChunks> {
        for region in self.regions.iter_mut().skip(self.begun + 1) {
            region.first = self.chunks;
        }
        self.regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UnitName;

    fn unit(start: u64, count: u64) -> PlacedUnit {
        let plain_bytes = u32::try_from(count * SECTOR_BYTES).unwrap();
        PlacedUnit { name: UnitName([1; 32]), plain_bytes, runs: vec![SectorRun { start, count }] }
    }

    fn zeros(start: u64, count: u64) -> [SectorRun; 1] {
        [SectorRun { start, count }]
    }

    #[test]
    fn a_chunk_ends_when_it_is_full_and_at_its_region() {
        // Regions of 1000 sectors.
        let mut cutter = ChunkCutter::new(1000 * SECTOR_BYTES);
        assert_eq!(cutter.add_unit(unit(0, 8), 500_000), None);
        assert_eq!(cutter.add_zeros(&zeros(8, 2)), None);
        assert_eq!(cutter.add_zeros(&zeros(10, 5)), None);
        assert_eq!(cutter.add_unit(unit(15, 8), 548_576 - 32), None, "it is full to the last byte");
        assert_eq!(cutter.add_zeros(&zeros(23, 7)), None);
        let first = cutter.add_unit(unit(30, 990), 1).unwrap();
        assert_eq!((first.region, first.units.len()), (0, 2));
        assert_eq!(first.zeros, [zeros(8, 7)[0], zeros(23, 7)[0]]);
        let second = cutter.add_zeros(&[zeros(1020, 4000)[0], zeros(7000, 1)[0], zeros(5020, 3)[0]]).unwrap();
        assert_eq!((second.region, second.units.len(), second.zeros.len()), (0, 1, 0));
        let third = cutter.add_unit(unit(5023, 1), 1).unwrap();
        assert_eq!((third.region, third.units.len()), (1, 0));
        assert_eq!(third.zeros, [zeros(1020, 4003)[0], zeros(7000, 1)[0]]);
        assert_eq!(cutter.finish().unwrap().region, 5);
        assert_eq!(cutter.finish(), None);
    }

    /// The rest of a file's last unit may lie far before the unit.
    #[test]
    fn what_begins_before_the_chunk_is_found_in_its_own_region() {
        let region_bytes = 1000 * SECTOR_BYTES;
        for behind_in_zeros in [false, true] {
            let mut cutter = ChunkCutter::new(region_bytes);
            let mut chunks: Vec<ChunkHeader> = Vec::new();
            chunks.extend(cutter.add_unit(unit(10, 1), 1));
            chunks.extend(cutter.add_unit(unit(5100, 1), 1_000_000));
            // It has no room in the chunk of the unit before.
            chunks.extend(if behind_in_zeros {
                cutter.add_zeros(&zeros(20, 1))
            } else {
                cutter.add_unit(unit(20, 1), 100_000)
            });
            chunks.extend(cutter.add_unit(unit(5200, 1), 1_000_000));
            chunks.extend(cutter.finish());
            let mut table = RegionTable::new(6 * region_bytes, region_bytes);
            chunks.iter().for_each(|chunk| table.add(chunk));
            let regions = table.finish();
            assert_eq!(chunks.iter().map(|chunk| chunk.region).collect::<Vec<_>>(), [0, 5, 5, 5][..chunks.len()]);
            let at = chunks.iter().position(|chunk| {
                chunk.zeros == zeros(20, 1) || chunk.units.iter().any(|unit| unit.runs == zeros(20, 1))
            });
            let at = u32::try_from(at.unwrap()).unwrap();
            assert!(at > 0);
            assert_eq!(regions[0].others.as_deref(), Some(&[at][..]));
            assert_eq!((regions[0].first, regions[1].first, regions[5].first), (0, 1, 1));
        }
    }

    #[test]
    fn no_header_is_longer_than_a_unit_may_be() {
        let mut cutter = ChunkCutter::new(1 << 40);
        let scattered: Vec<SectorRun> =
            (0..256).map(|at| SectorRun { start: (at * 7919 + 1) << 30, count: 1 }).collect();
        let mut headers = Vec::new();
        for at in 0..2000 {
            let runs = scattered.iter().map(|run| SectorRun { start: run.start + at, count: 1 }).collect();
            let unit = PlacedUnit { runs, ..unit(0, 256) };
            // Each unit begins in the same region.
            headers.extend(cutter.add_unit(unit, 10));
        }
        headers.extend(cutter.finish());
        assert_eq!(headers.iter().map(|header| header.units.len()).sum::<usize>(), 2000);
        assert!((50..200).contains(&headers.len()), "{}", headers.len());
    }

    #[test]
    fn regions_know_their_chunks_and_the_others_that_reach_them() {
        let mut table = RegionTable::new(7 * 1000 * SECTOR_BYTES - 3, 1000 * SECTOR_BYTES);
        let chunk = |region, units: &[PlacedUnit], zeros: &[SectorRun]| ChunkHeader {
            region,
            units: units.to_vec(),
            zeros: zeros.to_vec(),
        };
        table.add(&chunk(0, &[unit(0, 8), unit(990, 20)], &[]));
        table.add(&chunk(0, &[unit(20, 8)], &zeros(500, 1)));
        table.add(&chunk(2, &[unit(2000, 1)], &[zeros(2500, 1500)[0], zeros(4500, 1)[0]]));
        let scattered = PlacedUnit { runs: vec![zeros(5500, 1)[0], zeros(100, 1)[0], zeros(6999, 1)[0]], ..unit(0, 3) };
        table.add(&chunk(5, &[scattered], &[]));
        let found: Vec<(u32, Vec<u32>)> =
            table.finish().into_iter().map(|region| (region.first, region.others.unwrap())).collect();
        let expected = [(0, vec![3]), (2, vec![0]), (2, vec![]), (3, vec![2]), (3, vec![2]), (3, vec![]), (4, vec![3])];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_crowded_region_is_only_marked() {
        let mut table = RegionTable { others_max: 2500, ..RegionTable::new(4000 * SECTOR_BYTES, 1000 * SECTOR_BYTES) };
        let far =
            |regions: u64| ChunkHeader { region: 0, units: Vec::new(), zeros: zeros(999, regions * 1000).to_vec() };
        (0..OTHERS_MAX + 5).for_each(|_| table.add(&far(1)));
        (0..1500).for_each(|_| table.add(&far(3)));
        let counts: Vec<Option<usize>> =
            table.finish().into_iter().map(|region| region.others.map(|others| others.len())).collect();
        assert_eq!(counts, [Some(0), None, None, None]);
        let mut table = RegionTable { others_max: 1500, ..RegionTable::new(4000 * SECTOR_BYTES, 1000 * SECTOR_BYTES) };
        (0..800).for_each(|_| table.add(&far(2)));
        let is_marked: Vec<bool> = table.finish().into_iter().map(|region| region.others.is_none()).collect();
        assert_eq!(is_marked, [false, true, false, false], "one list made room for the other");
    }
}
