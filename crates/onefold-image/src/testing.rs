//! Disks in memory, and the simplest installer, for tests.

use std::ops::Range;

use onefold_block::random::{Random, SeededRandom};
use onefold_disk::{Disk, DiskError};

use crate::SECTOR_BYTES;
use crate::archive::{Archive, ArchiveError, WantedUnit};
use crate::format::chunk_header::ChunkHeader;
use crate::format::manifest::Manifest;

/// A disk in memory. All of it is data, except for `holes`.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryDisk {
    pub(crate) bytes: Vec<u8>,
    /// Ranges that read as zeros and that the disk reports as holes, in order.
    holes: Vec<Range<usize>>,
}

impl MemoryDisk {
    pub(crate) fn new(bytes: Vec<u8>) -> MemoryDisk {
        MemoryDisk { bytes, holes: Vec::new() }
    }

    /// Returns a disk of noise.
    pub(crate) fn noise(bytes: usize, random: &SeededRandom) -> MemoryDisk {
        let mut noise = vec![0; bytes];
        random.fill(&mut noise).expect("seeded");
        MemoryDisk::new(noise)
    }

    /// Makes a range a hole. It must not overlap another hole.
    pub(crate) fn punch(&mut self, hole: Range<usize>) {
        self.bytes[hole.clone()].fill(0);
        self.holes.push(hole);
        self.holes.sort_by_key(|hole| hole.start);
    }
}

impl Disk for MemoryDisk {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let mut start = usize::try_from(offset).expect("fits");
        for hole in &self.holes {
            if hole.contains(&start) {
                start = hole.end;
            }
        }
        let next = self.holes.iter().map(|hole| hole.start).find(|next| *next > start);
        let end = next.unwrap_or(self.bytes.len());
        Ok((start < end).then_some(start as u64..end as u64))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let start = usize::try_from(offset).expect("fits").min(self.bytes.len());
        let length = into.len().min(self.bytes.len() - start);
        into[..length].copy_from_slice(&self.bytes[start..start + length]);
        into[length..].fill(0);
        Ok(())
    }
}

/// Returns the headers of all chunks of an image.
pub(crate) fn headers(archive: &Archive, manifest: &Manifest) -> Vec<ChunkHeader> {
    manifest.chunks.iter().map(|chunk| archive.header(chunk).expect("a header")).collect()
}

/// Writes an image over `onto`, like an installation. Asserts that no byte is written twice.
pub(crate) fn install(archive: &Archive, manifest: &Manifest, onto: &mut [u8]) {
    let size = onto.len();
    let mut is_written = vec![false; size.div_ceil(512)];
    let mut claim = |start: u64, count: u64| -> Range<usize> {
        let [first, end] = [start, start + count].map(|sector| usize::try_from(sector).expect("small"));
        assert!(is_written[first..end].iter().all(|written| !written), "sectors {first} to {end} are written twice");
        is_written[first..end].fill(true);
        first * 512..(end * 512).min(size)
    };
    for header in headers(archive, manifest) {
        for run in &header.zeros {
            onto[claim(run.start, run.count)].fill(0);
        }
        let wanted = header.units.iter();
        let wanted = wanted.map(|unit| WantedUnit { name: unit.name, plain_bytes: Some(unit.plain_bytes) });
        let wanted: Vec<WantedUnit> = wanted.collect();
        let mut write = |index: usize, mut plain: &[u8]| {
            for run in &header.units[index].runs {
                let place = claim(run.start, run.count);
                let (part, rest) = plain.split_at(place.len());
                onto[place].copy_from_slice(part);
                plain = rest;
            }
            assert!(plain.is_empty());
            Ok(())
        };
        archive.read_units::<ArchiveError>(&wanted, &mut write).expect("all units are there");
    }
}

/// Asserts that each region of a manifest leads to all chunks that have sectors there, and to no others.
pub(crate) fn assert_regions(archive: &Archive, manifest: &Manifest) {
    let headers = headers(archive, manifest);
    let region_sectors = manifest.region_bytes / SECTOR_BYTES;
    for (at, region) in manifest.regions.iter().enumerate() {
        let sectors = at as u64 * region_sectors..(at as u64 + 1) * region_sectors;
        let chunks = headers.len();
        let next = manifest.regions.get(at + 1).map_or(chunks, |next| next.first as usize);
        let mut listed: Vec<usize> = (region.first as usize..next).collect();
        assert!(listed.iter().all(|chunk| headers[*chunk].region == at as u64));
        listed.extend(region.others.iter().flatten().map(|chunk| *chunk as usize));
        listed.sort_unstable();
        let reaches = |header: &ChunkHeader| {
            let mut runs = header.units.iter().flat_map(|unit| &unit.runs).chain(&header.zeros);
            runs.any(|run| run.start < sectors.end && sectors.start < run.end())
        };
        let reaching: Vec<usize> = (0..chunks).filter(|chunk| reaches(&headers[*chunk])).collect();
        assert_eq!(listed, reaching, "region {at}");
    }
}
