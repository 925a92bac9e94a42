//! Samples of every structure.

use onefold_block::Timestamp;
use onefold_block::random::{Random, SeededRandom};

use super::{ARCHIVE, ID, POSITION};
use crate::format::chunk_header::{ChunkHeader, PlacedUnit};
use crate::format::descriptor::{Descriptor, REGION_BYTES, UnitKind};
use crate::format::ledger::{Change, LedgerEntry};
use crate::format::manifest::{CaptureWay, CapturedVolume, Manifest, RegionChunks, Totals};
use crate::format::pack::{Codec, PackBuilder, UnitHeader};
use crate::format::segment::{IndexEntry, Segment};
use crate::format::snapshot::{DroppedObject, Snapshot, SnapshotImage, SnapshotPack, SnapshotPart, SnapshotWriter};
use crate::{ImageName, ImageVersion, ObjectId, SectorRun, UnitKey, UnitName, WriterId};

const TIME: Timestamp = Timestamp { seconds: -2, nanoseconds: 999_999_999 };

fn id(byte: u8) -> ObjectId {
    ObjectId { writer: WriterId([byte; 16]), random: [byte + 1; 8] }
}

fn name(byte: u8) -> UnitName {
    UnitKey([byte; 32]).name(&[byte])
}

fn image() -> ImageVersion {
    ImageVersion { name: ImageName::new("debian/12.5").unwrap(), version: 3 }
}

pub(super) fn descriptors() -> Vec<Vec<u8>> {
    let kinds = [UnitKind::Files { unit_bytes: 128 << 10 }, UnitKind::Fixed { unit_bytes: 4096 }];
    let descriptor =
        |units| Descriptor { archive: ARCHIVE, key: UnitKey([0x1f; 32]), units, region_bytes: REGION_BYTES };
    kinds.map(|units| descriptor(units).encode().unwrap()).to_vec()
}

pub(super) fn entries() -> Vec<Vec<u8>> {
    let changes = [
        Change::WriterBegins { host: "host.example".to_owned() },
        Change::ImageAdded {
            image: image(),
            manifest: id(1),
            digest: [7; 32],
            packs: vec![id(2), id(3)],
            segment: Some(id(4)),
        },
        Change::ImageAdded { image: image(), manifest: id(1), digest: [7; 32], packs: Vec::new(), segment: None },
        Change::ImageRemoved { image: image() },
        Change::PacksRetired { packs: vec![id(2)] },
        Change::PacksReplaced { old: vec![id(2), id(3)], new: vec![id(5)], segment: id(6) },
        Change::SegmentsMerged { old: vec![id(4), id(6)], new: id(7) },
        Change::WriterGivenUp { writer: WriterId([9; 16]) },
        Change::UnitsLost { units: vec![name(1), name(2)] },
    ];
    let entry = |change| {
        let (writer, token) = (WriterId([0x77; 16]), [0x88; 16]);
        LedgerEntry { archive: ARCHIVE, position: POSITION, previous: [0x66; 32], writer, token, made: TIME, change }
    };
    changes.map(|change| entry(change).encode().unwrap()).to_vec()
}

pub(super) fn snapshots() -> Vec<Vec<u8>> {
    let writer = |byte, is_given_up| SnapshotWriter {
        writer: WriterId([byte; 16]),
        is_given_up,
        began: u64::from(byte),
        last: TIME,
    };
    let mut lost = vec![(name(1), 4), (name(2), 5)];
    lost.sort_unstable();
    let whole = Snapshot {
        position: POSITION,
        last: [0x66; 32],
        lost_until: 6,
        images: vec![SnapshotImage { image: image(), manifest: id(1), digest: [7; 32], packs: 2, added: TIME }],
        newest: vec![image()],
        live: vec![
            SnapshotPack { pack: id(2), brought: 3, part: 9 },
            SnapshotPack { pack: id(3), brought: 3, part: 9 },
        ],
        dropped: vec![
            DroppedObject { kind: 0, object: id(5), since: TIME },
            DroppedObject { kind: 2, object: id(4), since: TIME },
        ],
        parts: vec![SnapshotPart { position: 9, segment: id(6), packs: vec![id(2), id(3)] }],
        writers: vec![writer(1, false), writer(2, true)],
        open: vec![(1, WriterId([1; 16]), "7.5@host.example".to_owned())],
        lost,
    };
    let empty = Snapshot { position: POSITION, ..Snapshot::default() };
    [whole, empty].map(|snapshot| snapshot.encode(ARCHIVE).unwrap()).to_vec()
}

pub(super) fn manifests() -> Vec<Vec<u8>> {
    let size_bytes = 3 * REGION_BYTES - 100;
    let region = |first, others| RegionChunks { first, others };
    let volume = |start_bytes, content: &str, way| CapturedVolume {
        start_bytes,
        length_bytes: 1 << 20,
        content: content.to_owned(),
        way,
        taken_bytes: 5000,
        unread_bytes: 0,
    };
    let whole = Manifest {
        archive: ARCHIVE,
        id: ID,
        image: image(),
        captured: TIME,
        size_bytes,
        units: UnitKind::Files { unit_bytes: 128 << 10 },
        region_bytes: REGION_BYTES,
        volumes: vec![
            volume(1 << 20, "ext4", CaptureWay::Map),
            volume(9 << 20, "unknown", CaptureWay::Raw("the volume is encrypted".to_owned())),
        ],
        totals: Totals {
            free_bytes: size_bytes - 700,
            zero_bytes: 300,
            data_bytes: 400,
            units: 9,
            new_units: 8,
            new_bytes: 7,
            stored_bytes: 6,
        },
        chunks: (0..5).map(name).collect(),
        regions: vec![region(0, Some(vec![3, 4])), region(2, None), region(5, Some(Vec::new()))],
    };
    let empty = Manifest {
        size_bytes: 0,
        volumes: Vec::new(),
        totals: Totals::default(),
        chunks: Vec::new(),
        regions: Vec::new(),
        ..whole.clone()
    };
    let unread = CapturedVolume { unread_bytes: 64 << 10, ..volume(1 << 20, "ext4", CaptureWay::Map) };
    let unread = Manifest { volumes: vec![unread], ..whole.clone() };
    vec![whole.encode().unwrap(), empty.encode().unwrap(), unread.encode().unwrap()]
}

pub(super) fn segments() -> Vec<Vec<u8>> {
    let entry = |prefix, pack, offset| IndexEntry { prefix, pack, offset, stored_bytes: 1 << 20 };
    let entries = vec![entry(3, 1, 64), entry(3, 1, 5000), entry(u64::MAX, 0, 62 << 20)];
    let whole = Segment { packs: vec![id(1), id(2)], entries };
    [whole, Segment::default()].map(|segment| segment.encode(ARCHIVE, ID).unwrap()).to_vec()
}

pub(super) fn chunk_headers() -> Vec<Vec<u8>> {
    let run = |start, count| SectorRun { start, count };
    let unit = |byte, plain_bytes, runs| PlacedUnit { name: name(byte), plain_bytes, runs };
    let whole = ChunkHeader {
        region: 300,
        units: vec![
            unit(1, 128 << 10, vec![run(10_000_000, 200), run(5000, 56)]),
            unit(2, 700, vec![run(6000, 2)]),
            unit(3, 1, vec![run((1 << 53) - 1, 1)]),
        ],
        zeros: vec![run(0, 8), run(20_000_000, 1 << 30)],
    };
    [whole, ChunkHeader::default()].map(|header| header.encode().unwrap()).to_vec()
}

pub(super) fn unit_headers() -> Vec<Vec<u8>> {
    let header = |codec, stored_bytes, plain_bytes| UnitHeader { codec, stored_bytes, plain_bytes }.encode().to_vec();
    vec![header(Codec::Plain, 5, 5), header(Codec::Zstd, 9000, 128 << 10), header(Codec::Zstd, 1, 1 << 20)]
}

pub(super) fn pack() -> Vec<u8> {
    let random = SeededRandom::new(4);
    let mut pack = PackBuilder::new(ARCHIVE, ID);
    for (number, length) in (0u8..).zip([1u32, 30, 100]) {
        let mut stored = vec![0; length as usize];
        random.fill(&mut stored).unwrap();
        let (codec, plain_bytes) = if number == 0 { (Codec::Plain, length) } else { (Codec::Zstd, length * 3) };
        pack.add(name(number), UnitHeader { codec, stored_bytes: length, plain_bytes }, &stored);
    }
    pack.finish().0
}
