//! Archives over a store in memory, over one that fails, and through power cuts.

mod damage;
mod faults;
mod ledger;

use std::sync::Arc;

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_block::{Clock, Random};

use super::*;
use crate::compress::{Compressor, LEVEL};
use crate::format::chunk_header::PlacedUnit;
use crate::format::manifest::{RegionChunks, Totals};
use crate::format::pack::{PackBuilder, UnitHeader};
use crate::format::segment::{IndexEntry, Segment};
use crate::store::MemoryStore;
use crate::{ImageName, SECTOR_BYTES, SectorRun};

/// An image, and what the units of it hold.
type Image = (ImageVersion, Vec<Vec<u8>>);

const UNITS: UnitKind = UnitKind::Fixed { unit_bytes: 32 << 10 };

/// Captures an image whose units are `contents`, all in one chunk.
fn capture(archive: &Archive, random: &dyn Random, name: &str, contents: &[Vec<u8>]) -> (ImageVersion, u64) {
    let clock = ManualClock::starting_at(5);
    let mut writer = archive.writer(&clock, random, "host").unwrap();
    let draft = add_all(archive, &mut writer, name, contents);
    let (image, _) = writer.commit(draft).unwrap();
    (image, writer.stored_bytes())
}

fn add_all(archive: &Archive, writer: &mut Writer<'_>, name: &str, contents: &[Vec<u8>]) -> ManifestDraft {
    try_add_all(archive, writer, name, contents).unwrap()
}

fn try_add_all(
    archive: &Archive,
    writer: &mut Writer<'_>,
    name: &str,
    contents: &[Vec<u8>],
) -> Result<ManifestDraft, ArchiveError> {
    let mut header = ChunkHeader::default();
    let mut start = 0;
    for plain in contents {
        let run = SectorRun { start, count: (plain.len() as u64).div_ceil(SECTOR_BYTES) };
        start = run.end();
        let plain_bytes = u32::try_from(plain.len()).unwrap();
        header.units.push(PlacedUnit { name: try_add(archive, writer, plain)?, plain_bytes, runs: vec![run] });
    }
    let chunk = try_add(archive, writer, &header.encode().unwrap())?;
    let size_bytes = start * SECTOR_BYTES;
    Ok(ManifestDraft {
        name: ImageName::new(name).unwrap(),
        captured: ManualClock::starting_at(3).now(),
        size_bytes,
        units: UNITS,
        region_bytes: REGION_BYTES,
        volumes: Vec::new(),
        totals: Totals { data_bytes: size_bytes, ..Totals::default() },
        chunks: vec![chunk],
        regions: vec![RegionChunks { first: 0, others: Some(Vec::new()) }],
    })
}

fn add(archive: &Archive, writer: &mut Writer<'_>, plain: &[u8]) -> UnitName {
    try_add(archive, writer, plain).unwrap()
}

fn try_add(archive: &Archive, writer: &mut Writer<'_>, plain: &[u8]) -> Result<UnitName, ArchiveError> {
    let name = archive.descriptor().key.name(plain);
    if writer.rely(&name)?.is_none() {
        let mut stored = Vec::new();
        let header = Compressor::new(LEVEL).unwrap().compress(plain, &mut stored).unwrap();
        writer.add(name, header, &stored)?;
    }
    Ok(name)
}

/// Returns the contents of the units of an image.
fn contents(archive: &Archive, image: &ImageVersion) -> Result<Vec<Vec<u8>>, ArchiveError> {
    let record = archive.find(&image.name, Some(image.version)).unwrap();
    let mut contents = Vec::new();
    for chunk in archive.manifest(&record)?.chunks {
        let header = archive.header(&chunk)?;
        let wanted = header.units.iter();
        let wanted = wanted.map(|unit| WantedUnit { name: unit.name, plain_bytes: Some(unit.plain_bytes) });
        let wanted: Vec<WantedUnit> = wanted.collect();
        let mut units = vec![Vec::new(); wanted.len()];
        archive.read_units::<ArchiveError>(&wanted, &mut |index, plain| {
            units[index] = plain.to_vec();
            Ok(())
        })?;
        contents.extend(units);
    }
    Ok(contents)
}

fn units(random: &SeededRandom, count: usize) -> Vec<Vec<u8>> {
    let mut unit = |_| {
        let mut plain = vec![0; 512 * usize::try_from(1 + random.below(60)).unwrap()];
        random.fill(&mut plain[..256]).unwrap();
        plain
    };
    (0..count).map(&mut unit).collect()
}

#[test]
fn an_image_returns_as_it_was_captured() {
    let random = SeededRandom::new(1);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store), UNITS, &random).unwrap();
    let first = units(&random, 20);
    let (web, stored) = capture(&archive, &random, "web", &first);
    assert_eq!(web.to_string(), "web@1");
    assert!(stored > 20 * 256);
    let mut second = first.clone();
    second.extend(units(&random, 1));
    let (web2, added) = capture(&archive, &random, "web", &second);
    assert_eq!(web2.to_string(), "web@2");
    assert!(added < 3000, "{added}: known units are not stored again");

    let other = Archive::open(store).unwrap();
    assert_eq!(other.images(), archive.images());
    for archive in [archive, other] {
        assert_eq!(contents(&archive, &web).unwrap(), first);
        assert_eq!(contents(&archive, &web2).unwrap(), second);
        assert_eq!(archive.find(&web.name, None).unwrap().image, web2);
    }
}
