//! Builds a small archive of two images, and damages it where readers believe it: behind right digests, names of units
//! and chains of entries.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use onefold_block::random::SeededRandom;
use onefold_block::{Random, Timestamp};
use onefold_image::compress::{Compressor, LEVEL};
use onefold_image::format::chunk_header::{ChunkHeader, PlacedUnit};
use onefold_image::format::descriptor::{Descriptor, UnitKind};
use onefold_image::format::ledger::{Change, LedgerEntry};
use onefold_image::format::manifest::{Manifest, RegionChunks, Totals};
use onefold_image::format::pack::{Codec, PackBuilder, TableEntry, UnitHeader};
use onefold_image::format::segment::{IndexEntry, Segment};
use onefold_image::format::snapshot::{Snapshot, SnapshotImage, SnapshotPack, SnapshotPart, SnapshotWriter};
use onefold_image::store::ObjectName;
use onefold_image::{
    ArchiveId, ImageName, ImageVersion, ObjectId, SECTOR_BYTES, SectorRun, UnitKey, UnitName, WriterId,
};

use super::seal::{Ending, damage, seal};
use crate::Choices;

/// Length of the disks in bytes: more than the two ends that an installation writes last.
pub(super) const DISK_BYTES: u64 = (1 << 20) + (256 << 10) + 100;
const ARCHIVE: ArchiveId = ArchiveId([7; 16]);
const KEY: UnitKey = UnitKey([8; 32]);
const WRITER: WriterId = WriterId([3; 16]);
const REGION_BYTES: u64 = 512 << 10;
const UNITS: UnitKind = UnitKind::Fixed { unit_bytes: 32 << 10 };
/// When the entries were made.
const MADE: Timestamp = Timestamp { seconds: 7, nanoseconds: 0 };
/// Lengths of the units in sectors.
const UNIT_SECTORS: [u64; 7] = [1, 8, 64, 3, 40, 64, 2];

/// Number of sectors of zeros behind the units of a chunk.
const ZERO_SECTORS: u64 = 7;

/// Objects of an archive by name.
pub(super) type Objects = BTreeMap<ObjectName, Vec<u8>>;

/// A unit, compressed.
struct Unit {
    name: UnitName,
    header: UnitHeader,
    stored: Vec<u8>,
}

fn units() -> &'static Vec<Unit> {
    static MADE: OnceLock<Vec<Unit>> = OnceLock::new();
    MADE.get_or_init(|| {
        let random = SeededRandom::new(6);
        let mut compressor = Compressor::new(LEVEL).expect("a usual level");
        let unit = |sectors: u64| {
            let mut plain = vec![0; usize::try_from(sectors * SECTOR_BYTES).expect("small")];
            random.fill(&mut plain[..300]).expect("seeded");
            let mut stored = Vec::new();
            let header = compressor.compress(&plain, &mut stored).expect("there is memory");
            Unit { name: KEY.name(&plain), header, stored }
        };
        UNIT_SECTORS.into_iter().map(unit).collect()
    })
}

fn id(number: u8) -> ObjectId {
    ObjectId { writer: WRITER, random: [number; 8] }
}

fn version(number: u8) -> ImageVersion {
    ImageVersion { name: ImageName::new("web").expect("a name"), version: u32::from(number) }
}

fn named(folder: &str, id: ObjectId) -> ObjectName {
    ObjectName::new(&format!("{folder}/{id}")).expect("digits make a name")
}

/// An archive in the making.
pub(super) struct Builder<'c, 'b> {
    choices: &'c mut Choices<'b>,
    pub(super) objects: Objects,
    /// Whether anything was damaged.
    pub(super) is_damaged: bool,
    /// Digest of the last entry, and the number of entries.
    last: [u8; 32],
    position: u64,
}

/// Builds an archive. Without choices, it is sound.
pub(super) fn build<'c, 'b>(choices: &'c mut Choices<'b>) -> Builder<'c, 'b> {
    let mut builder = Builder { choices, objects: Objects::new(), is_damaged: false, last: [0; 32], position: 0 };
    let descriptor = Descriptor { archive: ARCHIVE, key: KEY, units: UNITS, region_bytes: REGION_BYTES };
    for name in ["descriptor", "descriptor.copy"] {
        let object = descriptor.encode().expect("a sound descriptor");
        let object = builder.maybe_damaged(object, Ending::Digest);
        builder.objects.insert(ObjectName::new(name).expect("a name"), object);
    }
    builder.entry(Change::WriterBegins { host: "host".to_owned() });
    builder.image(1, &[0, 1, 2, 3, 4], &[0, 1, 2, 3, 4]);
    // The second one relies on units of the first one's pack.
    builder.image(2, &[5, 6], &[5, 1, 4, 2, 6]);
    builder.snapshot();
    builder.more_entries();
    for _ in 0..builder.choices.below(4) {
        builder.damage_object();
    }
    builder
}

impl Builder<'_, '_> {
    /// Damages one object in eight, and mostly puts its digest right.
    fn maybe_damaged(&mut self, mut object: Vec<u8>, ending: Ending) -> Vec<u8> {
        if self.choices.below(8) == 1 {
            self.is_damaged = true;
            let start = if ending == Ending::Nothing { 0 } else { *self.choices.one_of(&[64, 64, 64, 8]) };
            for _ in 0..=self.choices.below(3) {
                damage(self.choices, &mut object, start);
            }
            if self.choices.below(8) < 7 {
                seal(ending, &mut object);
            }
        }
        object
    }

    /// Adds an image of these units, of which its capture added `new`.
    fn image(&mut self, number: u8, new: &[usize], of: &[usize]) {
        let mut pack = PackBuilder::new(ARCHIVE, id(number));
        let mut table: Vec<TableEntry> = new.iter().map(|unit| self.add(&mut pack, *unit)).collect();
        // A chunk that begins in each of two regions.
        let (first, second) = of.split_at(3);
        let headers = [self.chunk(0, 2, first), self.chunk(1, REGION_BYTES / SECTOR_BYTES * 2 + 9, second)];
        for header in &headers {
            let length = u32::try_from(header.len()).expect("small");
            let how = UnitHeader { codec: Codec::Plain, stored_bytes: length, plain_bytes: length };
            table.push(pack.add(KEY.name(header), how, header));
        }
        let object = self.maybe_damaged(pack.finish().0, Ending::Pack);
        self.objects.insert(named("packs", id(number)), object);
        self.segment(number, &table);
        let chunks = headers.map(|header| KEY.name(&header)).to_vec();
        let data_bytes = of.iter().map(|unit| UNIT_SECTORS[*unit] * SECTOR_BYTES).sum();
        self.manifest(number, chunks, data_bytes);
    }

    /// Adds a unit to a pack, perhaps with other bytes than its name says.
    fn add(&mut self, pack: &mut PackBuilder, unit: usize) -> TableEntry {
        let Unit { name, header, stored } = &units()[unit];
        let damaged = self.maybe_damaged(stored.clone(), Ending::Nothing);
        let length = u32::try_from(damaged.len()).expect("small");
        let plain_bytes = if self.choices.below(16) == 1 { length } else { header.plain_bytes };
        let changed = UnitHeader { stored_bytes: length, plain_bytes, ..*header };
        self.is_damaged |= changed != *header;
        match changed.is_valid() {
            true => pack.add(*name, changed, &damaged),
            false => pack.add(*name, *header, stored),
        }
    }

    /// Returns the header of a chunk with these units, in two runs each where possible, and with zeros behind them.
    fn chunk(&mut self, region: u64, first: u64, of: &[usize]) -> Vec<u8> {
        let mut start = first;
        let mut placed = Vec::new();
        for unit in of {
            let Unit { name, header, .. } = &units()[*unit];
            let sectors = UNIT_SECTORS[*unit];
            let run = |start, count| SectorRun { start, count };
            let runs = match sectors {
                1 => vec![run(start, 1)],
                _ => vec![run(start + 3, sectors - 1), run(start, 1)],
            };
            placed.push(PlacedUnit { name: *name, plain_bytes: header.plain_bytes, runs });
            start += sectors + 5;
        }
        let header = ChunkHeader { region, units: placed, zeros: vec![SectorRun { start, count: ZERO_SECTORS }] };
        let mut bytes = self.maybe_damaged(header.encode().expect("a sound header"), Ending::Nothing);
        if bytes.is_empty() {
            bytes.push(0);
        }
        bytes
    }

    fn segment(&mut self, number: u8, table: &[TableEntry]) {
        let entry = |entry: &TableEntry| IndexEntry {
            prefix: entry.name.prefix(),
            pack: 0,
            offset: entry.offset,
            stored_bytes: entry.stored_bytes,
        };
        let mut entries: Vec<IndexEntry> = table.iter().map(entry).collect();
        if self.choices.below(8) == 1 {
            // It leads somewhere else, in the right form.
            self.is_damaged = true;
            let entry = self.choices.index(entries.len());
            entries[entry].offset = 64 + u32::try_from(self.choices.below(5000)).expect("small");
            entries[entry].stored_bytes = 1 + u32::try_from(self.choices.below(1 << 20)).expect("small");
        }
        entries.sort_unstable_by_key(|entry| (entry.prefix, entry.pack, entry.offset));
        entries.dedup_by_key(|entry| (entry.prefix, entry.pack, entry.offset));
        let segment = Segment { packs: vec![id(number)], entries };
        let object = segment.encode(ARCHIVE, id(number)).expect("a sound segment");
        let object = self.maybe_damaged(object, Ending::Digest);
        self.objects.insert(named("segments", id(number)), object);
    }

    fn manifest(&mut self, number: u8, chunks: Vec<UnitName>, data_bytes: u64) {
        let zero_bytes = chunks.len() as u64 * ZERO_SECTORS * SECTOR_BYTES;
        let free_bytes = DISK_BYTES - data_bytes - zero_bytes;
        let region = |first, others| RegionChunks { first, others: Some(others) };
        let image = version(number);
        let manifest = Manifest {
            archive: ARCHIVE,
            id: id(number),
            image: image.clone(),
            captured: Timestamp { seconds: 5, nanoseconds: 0 },
            size_bytes: DISK_BYTES,
            units: UNITS,
            region_bytes: REGION_BYTES,
            volumes: Vec::new(),
            totals: Totals { free_bytes, zero_bytes, data_bytes, ..Totals::default() },
            chunks,
            regions: vec![region(0, vec![]), region(1, vec![]), region(2, vec![1])],
        };
        let object = self.maybe_damaged(manifest.encode().expect("a sound manifest"), Ending::Digest);
        let digest = *blake3::hash(&object).as_bytes();
        self.objects.insert(named("manifests", id(number)), object);
        let packs = vec![id(number)];
        self.entry(Change::ImageAdded { image, manifest: id(number), digest, packs, segment: Some(id(number)) });
    }

    /// Adds an entry that follows the last one, damaged or not.
    fn entry(&mut self, change: Change) {
        let entry = LedgerEntry {
            archive: ARCHIVE,
            position: self.position,
            previous: self.last,
            writer: WRITER,
            token: [self.position.to_le_bytes()[0]; 16],
            made: MADE,
            change,
        };
        let object = self.maybe_damaged(entry.encode().expect("a sound entry"), Ending::Digest);
        self.last = *blake3::hash(&object).as_bytes();
        self.objects.insert(LedgerEntry::object_name(self.position), object);
        self.position += 1;
    }

    /// Adds a snapshot of the state after both images. It states the digest of the last entry, so readers believe it.
    fn snapshot(&mut self) {
        // The entry of each image has the number of the image as its position.
        let numbers = [1, 2];
        let image = |number| SnapshotImage {
            image: version(number),
            manifest: id(number),
            digest: *blake3::hash(&self.objects[&named("manifests", id(number))]).as_bytes(),
            packs: 1,
            added: MADE,
        };
        let pack = |number: u8| SnapshotPack { pack: id(number), brought: number.into(), part: number.into() };
        let part = |number: u8| SnapshotPart { position: number.into(), segment: id(number), packs: vec![id(number)] };
        let snapshot = Snapshot {
            position: self.position,
            last: self.last,
            images: numbers.map(image).to_vec(),
            newest: vec![version(2)],
            live: numbers.map(pack).to_vec(),
            parts: numbers.map(part).to_vec(),
            writers: vec![SnapshotWriter { writer: WRITER, is_given_up: false, began: 0, last: MADE }],
            ..Snapshot::default()
        };
        let object = snapshot.encode(ARCHIVE).expect("a sound snapshot");
        let object = self.maybe_damaged(object, Ending::Digest);
        self.objects.insert(Snapshot::object_name(self.position), object);
    }

    /// Adds entries that are sound but that no careful host would make.
    fn more_entries(&mut self) {
        for _ in 0..self.choices.below(3) {
            self.is_damaged = true;
            let number = 1 + u8::try_from(self.choices.below(2)).expect("small");
            let change = match self.choices.below(6) {
                0 => Change::PacksRetired { packs: vec![id(number)] },
                1 => Change::PacksReplaced { old: vec![id(number)], new: vec![id(9)], segment: id(number) },
                2 => Change::SegmentsMerged { old: vec![id(number)], new: id(3 - number) },
                3 => Change::WriterGivenUp { writer: WRITER },
                4 => Change::UnitsLost { units: vec![units()[self.choices.index(units().len())].name] },
                _ => Change::ImageRemoved { image: version(number) },
            };
            self.entry(change);
        }
    }

    /// Damages an object as a disk, a copy tool or an attacker without the digests would.
    fn damage_object(&mut self) {
        self.is_damaged = true;
        let names: Vec<ObjectName> = self.objects.keys().cloned().collect();
        let (name, other) = (self.choices.one_of(&names).clone(), self.choices.one_of(&names).clone());
        match self.choices.below(4) {
            0 => _ = self.objects.remove(&name),
            1 => {
                let copy = self.objects[&other].clone();
                self.objects.insert(name, copy);
            }
            2 => {
                let object = self.objects.get_mut(&name).expect("it is there");
                let length = self.choices.index(object.len() + 1);
                object.truncate(length);
            }
            _ => {
                let mut object = self.objects[&name].clone();
                damage(self.choices, &mut object, 0);
                self.objects.insert(name, object);
            }
        }
    }
}
