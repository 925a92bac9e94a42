//! Archives on a store in memory, on a failing store, and through power cuts.

mod collect;
mod damage;
mod descriptors;
mod faults;
mod index;
mod ledger;
mod repair;
mod reuse;
mod signatures;
mod simulation;
mod snapshot;
mod tables;

use std::path::Path;
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
use crate::store::hooked::{Call, HookedStore};
use crate::store::{ByteRange, FolderStore, MemoryStore, ObjectName, StoreError};
use crate::{ImageName, ObjectId, SECTOR_BYTES, SectorRun};

/// An image, and the contents of its units.
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
    for plain in contents {
        try_add(archive, writer, plain)?;
    }
    let chunk = try_add(archive, writer, &chunk_of(&archive.descriptor().key, contents))?;
    let sectors: u64 = contents.iter().map(|plain| (plain.len() as u64).div_ceil(SECTOR_BYTES)).sum();
    let size_bytes = sectors * SECTOR_BYTES;
    let region = |number| match number {
        0 => RegionChunks { first: 0, others: Some(Vec::new()) },
        _ => RegionChunks { first: 1, others: Some(vec![0]) },
    };
    let regions = (0..size_bytes.div_ceil(REGION_BYTES)).map(region).collect();
    Ok(ManifestDraft {
        name: ImageName::new(name).unwrap(),
        captured: ManualClock::starting_at(3).now(),
        size_bytes,
        units: UNITS,
        region_bytes: REGION_BYTES,
        volumes: Vec::new(),
        totals: Totals { data_bytes: size_bytes, ..Totals::default() },
        chunks: vec![chunk],
        regions,
    })
}

/// Returns the header of a chunk that has these units, one behind the other.
fn chunk_of(key: &UnitKey, contents: &[Vec<u8>]) -> Vec<u8> {
    let mut header = ChunkHeader::default();
    let mut start = 0;
    for plain in contents {
        let run = SectorRun { start, count: (plain.len() as u64).div_ceil(SECTOR_BYTES) };
        start = run.end();
        let plain_bytes = u32::try_from(plain.len()).unwrap();
        header.units.push(PlacedUnit { name: key.name(plain), plain_bytes, runs: vec![run] });
    }
    header.encode().unwrap()
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

/// Images whose capture was acknowledged, with their expected contents.
type CapturedImages = Vec<Image>;

/// Checks that all acknowledged images read exactly, and that the archive has no damage.
fn verify(store: &Arc<dyn Store>, acknowledged: &CapturedImages, context: &str) {
    let archive = Archive::open(Arc::clone(store)).unwrap_or_else(|error| panic!("{context}: {error}"));
    for (image, expected) in acknowledged {
        assert!(archive.find(&image.name, Some(image.version)).is_some(), "{context}: {image} is lost");
        assert_eq!(&contents(&archive, image).unwrap(), expected, "{context}: {image}");
    }
    let report = archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap();
    assert_eq!(report.damages, [], "{context}");
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

#[test]
fn a_writer_makes_several_images_and_many_packs() {
    let random = SeededRandom::new(31);
    let store = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    let clock = ManualClock::starting_at(5);
    let mut writer = archive.writer(&clock, &random, "host").unwrap();
    // Random bytes do not compress: 70 units of 1 MiB fill two packs and part of a third.
    let noise = |_| {
        let mut plain = vec![0; 1 << 20];
        random.fill(&mut plain).unwrap();
        plain
    };
    let content: Vec<Vec<u8>> = (0..70).map(noise).collect();
    let draft = add_all(&archive, &mut writer, "big", &content);
    let (big, _) = writer.commit(draft).unwrap();
    let before = writer.stored_bytes();
    let draft = add_all(&archive, &mut writer, "small", &content[..1]);
    let (small, _) = writer.commit(draft).unwrap();
    assert!(writer.stored_bytes() - before < 200, "only a header of a chunk is new");
    let packs: Vec<usize> = store.objects().into_iter().filter_map(|(name, pack)| pack_bytes(&name, &pack)).collect();
    assert_eq!(packs.len(), 4);
    assert!(packs.iter().all(|bytes| *bytes < 34 << 20));
    assert_eq!(contents(&archive, &big).unwrap(), content);
    assert_eq!(contents(&archive, &small).unwrap(), content[..1]);
    assert_eq!(archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap().damages, []);
}

fn pack_bytes(name: &ObjectName, pack: &[u8]) -> Option<usize> {
    name.as_str().starts_with("packs/").then_some(pack.len())
}

#[test]
fn a_store_that_creates_what_exists_is_refused() {
    let memory = Arc::new(MemoryStore::default());
    // Like a server that ignores the condition: whatever exists makes way.
    let inside = Arc::clone(&memory);
    let store: Arc<dyn Store> = Arc::new(HookedStore::new(memory, move |call, name| match call {
        Call::Create => inside.delete(&ObjectName::new(name).unwrap()),
        _ => Ok(()),
    }));
    let random = SeededRandom::new(32);
    for _ in 0..2 {
        let created = Archive::create(Arc::clone(&store), UNITS, &random);
        assert!(matches!(created, Err(ArchiveError::Unfit { .. })), "{created:?}");
    }
}

/// An archive of version 1 of the format reads unchanged, and a check finds no damage.
#[test]
fn a_kept_archive_of_version_1_is_read() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/samples/archive-1"));
    let archive = Archive::open(Arc::new(FolderStore::open(folder).unwrap())).unwrap();
    let content = units(&SeededRandom::new(41), 6);
    let images: Vec<ImageVersion> = archive.images().into_iter().map(|record| record.image).collect();
    let shown: Vec<String> = images.iter().map(ImageVersion::to_string).collect();
    assert_eq!(shown, ["debian/12@1", "debian/12@2"]);
    assert_eq!(contents(&archive, &images[0]).unwrap(), content[..4]);
    assert_eq!(contents(&archive, &images[1]).unwrap(), content);
    let report = archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap();
    assert_eq!((report.damages, report.packs, report.leftovers), (Vec::new(), 3, 0));
}
