//! Random images for tests: free, zero and data sectors of a disk, and an archive that holds the disk.

use std::sync::Arc;

use onefold_block::Clock;
use onefold_block::clock::ManualClock;
use onefold_block::random::{Random, SeededRandom};

use crate::archive::{Archive, ImageRecord, ManifestDraft, Writer};
use crate::compress::{Compressor, LEVEL};
use crate::format::chunk_header::{ChunkHeader, PlacedUnit};
use crate::format::descriptor::UnitKind;
use crate::format::manifest::{Manifest, RegionChunks, Totals};
use crate::store::MemoryStore;
use crate::{ImageName, SECTOR_BYTES, SectorRun, UnitName};

const UNITS: UnitKind = UnitKind::Fixed { unit_bytes: 32 << 10 };
/// Small regions, so that many units span several.
pub(crate) const REGION_BYTES: u64 = 64 << 10;
const SECTOR: usize = 512;

/// A captured disk, and its expected content.
pub(crate) struct TestImage {
    pub(crate) archive: Arc<Archive>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) manifest: Manifest,
    /// The bytes of each sector; `None` where it is free.
    pub(crate) sectors: Vec<Option<Vec<u8>>>,
}

/// Returns an image of a disk of `size_bytes`, generated from this seed.
pub(crate) fn image(seed: u64, size_bytes: u64) -> TestImage {
    let random = SeededRandom::new(seed);
    let store = Arc::new(MemoryStore::default());
    let archive = Archive::create(store.clone(), UNITS, &random).unwrap();
    let sectors = sectors(&random, size_bytes);
    let record = capture(&archive, &random, &sectors, size_bytes);
    let manifest = archive.manifest(&record).unwrap();
    TestImage { archive: Arc::new(archive), store, manifest, sectors }
}

/// Chooses the content of each sector, in runs.
fn sectors(random: &SeededRandom, size_bytes: u64) -> Vec<Option<Vec<u8>>> {
    let count = usize::try_from(size_bytes.div_ceil(SECTOR_BYTES)).unwrap();
    let mut sectors = Vec::new();
    while sectors.len() < count {
        let kind = random.below(3);
        for _ in 0..=random.below(40) {
            let mut bytes = vec![0; SECTOR];
            if kind == 2 {
                random.fill(&mut bytes[..8]).unwrap();
                bytes[8] = 1;
            }
            sectors.push((kind > 0).then_some(bytes));
        }
    }
    sectors.truncate(count);
    // The disk may end within its last sector.
    let last = usize::try_from(size_bytes % SECTOR_BYTES).unwrap();
    if let Some(Some(bytes)) = sectors.last_mut().filter(|_| last > 0) {
        bytes.truncate(last);
    }
    sectors
}

/// Captures the sectors: units of a few runs from nearby places, in any order, and headers of a few units.
fn capture(archive: &Archive, random: &SeededRandom, sectors: &[Option<Vec<u8>>], size_bytes: u64) -> ImageRecord {
    let is_zero = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
    let mut data: Vec<u64> = Vec::new();
    let mut zeros: Vec<u64> = Vec::new();
    for (number, sector) in (0..).zip(sectors) {
        match sector {
            Some(bytes) if is_zero(bytes) => zeros.push(number),
            Some(_) => data.push(number),
            None => {}
        }
    }
    let mut units: Vec<Vec<u64>> = Vec::new();
    while !data.is_empty() {
        let count = (1 + usize::try_from(random.below(60)).unwrap()).min(data.len());
        let mut unit: Vec<u64> = data.drain(..count).collect();
        // Files are fragmented: parts change places, and some lie far away.
        if random.below(3) == 0 && !data.is_empty() {
            let far = data.len() - 1 - usize::try_from(random.below(data.len().min(500) as u64)).unwrap();
            unit.push(data.remove(far));
        }
        let middle = usize::try_from(random.below(unit.len() as u64)).unwrap();
        unit.rotate_left(middle);
        units.push(unit);
    }
    units.sort_by_key(|unit| unit.iter().min().copied());

    let clock = ManualClock::starting_at(5);
    let mut writer = archive.writer(&clock, random, "host").unwrap();
    let mut headers: Vec<ChunkHeader> = Vec::new();
    for unit in units {
        let region = unit.iter().min().unwrap() * SECTOR_BYTES / REGION_BYTES;
        if headers.last().is_none_or(|header| header.region != region || random.below(8) == 0) {
            headers.push(ChunkHeader { region, ..ChunkHeader::default() });
        }
        let plain: Vec<u8> =
            unit.iter().flat_map(|sector| sectors[usize::try_from(*sector).unwrap()].clone().unwrap()).collect();
        let plain_bytes = u32::try_from(plain.len()).unwrap();
        let placed = PlacedUnit { name: add(archive, &mut writer, &plain), plain_bytes, runs: runs(&unit) };
        headers.last_mut().unwrap().units.push(placed);
    }
    if headers.is_empty() {
        headers.push(ChunkHeader::default());
    }
    headers.last_mut().unwrap().zeros = runs(&zeros);
    let bytes_of = |numbers: &mut dyn Iterator<Item = &Vec<u8>>| numbers.map(|bytes| bytes.len() as u64).sum::<u64>();
    let taken: Vec<&Vec<u8>> = sectors.iter().flatten().collect();
    let zero_bytes = bytes_of(&mut taken.iter().copied().filter(|bytes| is_zero(bytes)));
    let data_bytes = bytes_of(&mut taken.iter().copied()) - zero_bytes;
    let free_bytes = size_bytes - zero_bytes - data_bytes;
    let draft = ManifestDraft {
        name: ImageName::new("web").unwrap(),
        captured: clock.now(),
        size_bytes,
        units: UNITS,
        region_bytes: REGION_BYTES,
        volumes: Vec::new(),
        totals: Totals { free_bytes, zero_bytes, data_bytes, ..Totals::default() },
        regions: regions(&headers, size_bytes, random),
        chunks: headers.iter().map(|header| add(archive, &mut writer, &header.encode().unwrap())).collect(),
    };
    let (image, _) = writer.commit(draft).unwrap();
    archive.find(&image.name, Some(image.version)).unwrap()
}

/// Returns the chunks that have sectors in each region. One region in four is marked as crowded.
fn regions(headers: &[ChunkHeader], size_bytes: u64, random: &SeededRandom) -> Vec<RegionChunks> {
    let touches = |header: &ChunkHeader, region: u64| {
        let mut runs = header.units.iter().flat_map(|unit| &unit.runs);
        runs.any(|run| {
            (run.start_bytes() / REGION_BYTES..=(run.end() - 1) * SECTOR_BYTES / REGION_BYTES).contains(&region)
        })
    };
    let mut regions = Vec::new();
    for region in 0..size_bytes.div_ceil(REGION_BYTES) {
        let first = headers.iter().take_while(|header| header.region < region).count();
        let numbered = headers.iter().enumerate();
        let others = numbered.filter(|(_, header)| header.region != region && touches(header, region));
        let others: Vec<u32> = others.map(|(index, _)| u32::try_from(index).unwrap()).collect();
        let others = (random.below(4) > 0).then_some(others);
        regions.push(RegionChunks { first: u32::try_from(first).unwrap(), others });
    }
    regions
}

fn runs(sectors: &[u64]) -> Vec<SectorRun> {
    let mut runs: Vec<SectorRun> = Vec::new();
    for &start in sectors {
        match runs.last_mut() {
            Some(run) if run.end() == start => run.count += 1,
            _ => runs.push(SectorRun { start, count: 1 }),
        }
    }
    runs
}

fn add(archive: &Archive, writer: &mut Writer<'_>, plain: &[u8]) -> UnitName {
    let name = archive.descriptor().key.name(plain);
    if writer.rely(&name).unwrap().is_none() {
        let mut stored = Vec::new();
        let header = Compressor::new(LEVEL).unwrap().compress(plain, &mut stored).unwrap();
        writer.add(name, header, &stored).unwrap();
    }
    name
}
