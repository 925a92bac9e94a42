//! Decoders of the objects of an archive: descriptor, ledger entry, manifest, segment, chunk header, header of a unit,
//! pack, and snapshot of the state.

use std::sync::OnceLock;

use onefold_block::Timestamp;
use onefold_image::format::FormatError;
use onefold_image::format::chunk_header::{ChunkHeader, PlacedUnit};
use onefold_image::format::descriptor::{Descriptor, UnitKind};
use onefold_image::format::ledger::{Change, LedgerEntry};
use onefold_image::format::manifest::{CaptureWay, CapturedVolume, Manifest, RegionChunks, Totals};
use onefold_image::format::pack::{
    Codec, PackBuilder, Tail, UNIT_HEADER_BYTES, UnitHeader, decode_pack, decode_tail, length_of,
};
use onefold_image::format::segment::{IndexEntry, Segment, SegmentDecoder};
use onefold_image::format::snapshot::{
    DroppedObject, Snapshot, SnapshotImage, SnapshotPack, SnapshotPart, SnapshotWriter,
};
use onefold_image::{ArchiveId, ImageName, ImageVersion, ObjectId, SectorRun, UnitKey, UnitName, WriterId};

use super::seal::{Ending, damage, seal};
use crate::Choices;

const ARCHIVE: ArchiveId = ArchiveId([7; 16]);
const ID: ObjectId = id(9);
const POSITION: u64 = 5;

/// Decodes bytes, and encodes what they say.
type Again = fn(&[u8]) -> Result<Vec<u8>, FormatError>;

/// A structure with its sound samples.
struct Structure {
    samples: Vec<Vec<u8>>,
    ending: Ending,
    again: Again,
}

const fn id(number: u8) -> ObjectId {
    ObjectId { writer: WriterId([3; 16]), random: [number; 8] }
}

fn unit(number: u8) -> UnitName {
    UnitName([number; 32])
}

fn structures() -> &'static [Structure; 8] {
    static MADE: OnceLock<[Structure; 8]> = OnceLock::new();
    MADE.get_or_init(|| {
        let structure = |samples, ending, again| Structure { samples, ending, again };
        [
            structure(descriptors(), Ending::Digest, |bytes| Descriptor::decode(bytes)?.encode()),
            structure(entries(), Ending::Digest, |bytes| LedgerEntry::decode(ARCHIVE, POSITION, bytes)?.encode()),
            structure(manifests(), Ending::Digest, |bytes| Manifest::decode(ARCHIVE, ID, bytes)?.encode()),
            structure(segments(), Ending::Digest, segment_again),
            structure(chunk_headers(), Ending::Nothing, |bytes| ChunkHeader::decode(bytes)?.encode()),
            structure(unit_headers(), Ending::Nothing, |bytes| Ok(UnitHeader::decode(bytes)?.encode().to_vec())),
            structure(vec![pack()], Ending::Pack, pack_again),
            structure(snapshots(), Ending::Digest, |bytes| Snapshot::decode(ARCHIVE, POSITION, bytes)?.encode(ARCHIVE)),
        ]
    })
}

/// Whatever the bytes are, a decoder refuses them, or its encoder writes exactly them.
pub(in crate::targets) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let Structure { samples, ending, again } = choices.one_of(structures());
    let mut object = choices.one_of(samples).clone();
    if choices.below(16) == 15 {
        object = choices.take_rest().to_vec();
    }
    let start = if *ending == Ending::Nothing { 0 } else { *choices.one_of(&[64, 64, 64, 0]) };
    while !choices.is_used_up() {
        damage(&mut choices, &mut object, start);
        if choices.below(8) < 7 {
            seal(*ending, &mut object);
        }
    }
    if let Ok(encoded) = again(&object) {
        assert!(encoded == object, "bytes are accepted that no encoder writes: {object:02x?}");
    }
    // A table is read from the end of a pack.
    for length in [80, 300, object.len()] {
        let tail = &object[object.len().saturating_sub(length)..];
        if let Ok(Tail::Table(table)) = decode_tail(ARCHIVE, ID, tail) {
            assert!(table.is_sorted_by(|one, next| one.offset + one.stored_bytes < next.offset), "units overlap");
        }
    }
}

/// Returns the segment of `bytes`. A decoder that gets it in pieces says the same.
fn segment_again(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    let whole = Segment::decode(ARCHIVE, ID, bytes);
    for piece_bytes in [1, 100, bytes.len().max(1)] {
        let mut decoder = SegmentDecoder::new(ARCHIVE, ID, bytes.len());
        let mut entries = Vec::new();
        let pieces = bytes.chunks(piece_bytes);
        let read = pieces.map(|piece| decoder.push(piece)).try_for_each(|read| read.map(|read| entries.extend(read)));
        let pieced = read.and_then(|()| decoder.finish()).map(|packs| Segment { packs, entries });
        assert_eq!(pieced.ok().as_ref(), whole.as_ref().ok(), "in pieces of {piece_bytes} bytes");
    }
    whole?.encode(ARCHIVE, ID)
}

/// Returns a pack with the table and the units of `bytes`, if they agree.
fn pack_again(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    let pack = decode_pack(ARCHIVE, ID, bytes)?;
    assert_eq!(length_of(&pack.table), bytes.len() as u64, "the table covers the pack");
    let mut builder = PackBuilder::new(ARCHIVE, ID);
    for entry in &pack.table {
        let start = usize::try_from(entry.offset).expect("small");
        let body = start + usize::try_from(UNIT_HEADER_BYTES).expect("small");
        let header = UnitHeader::decode(&bytes[start..body])?;
        if (header.stored_bytes, header.plain_bytes) != (entry.stored_bytes, entry.plain_bytes) || !pack.is_unchanged {
            return Err(FormatError::Digest { structure: "pack" });
        }
        builder.add(entry.name, header, &bytes[body..body + usize::try_from(entry.stored_bytes).expect("small")]);
    }
    if pack.is_unchanged { Ok(builder.finish().0) } else { Err(FormatError::Digest { structure: "pack" }) }
}

fn descriptors() -> Vec<Vec<u8>> {
    let of = |units| Descriptor { archive: ARCHIVE, key: UnitKey([1; 32]), units, region_bytes: 64 << 20 };
    [UnitKind::Files { unit_bytes: 128 << 10 }, UnitKind::Fixed { unit_bytes: 32 << 10 }]
        .map(|units| of(units).encode().expect("a sound descriptor"))
        .into()
}

fn image() -> ImageVersion {
    ImageVersion { name: ImageName::new("debian/12").expect("a name"), version: 3 }
}

fn entries() -> Vec<Vec<u8>> {
    let changes = [
        Change::WriterBegins { host: "host".to_owned() },
        Change::ImageAdded {
            image: image(),
            manifest: id(1),
            digest: [2; 32],
            packs: vec![id(3), id(4)],
            segment: Some(id(5)),
        },
        Change::ImageRemoved { image: image() },
        Change::PacksRetired { packs: vec![id(3), id(4)] },
        Change::PacksReplaced { old: vec![id(3)], new: vec![id(6), id(7)], segment: id(8) },
        Change::SegmentsMerged { old: vec![id(5), id(8)], new: id(1) },
        Change::WriterGivenUp { writer: WriterId([3; 16]) },
        Change::UnitsLost { units: vec![unit(1), unit(2)] },
    ];
    let entry = |change| LedgerEntry {
        archive: ARCHIVE,
        position: POSITION,
        previous: [4; 32],
        writer: WriterId([3; 16]),
        token: [5; 16],
        made: Timestamp { seconds: 1_700_000_000, nanoseconds: 999 },
        change,
    };
    changes.map(|change| entry(change).encode().expect("a sound entry")).into()
}

fn snapshots() -> Vec<Vec<u8>> {
    let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 999 };
    let dropped = |kind, number| DroppedObject { kind, object: id(number), since: time };
    let live = |number| SnapshotPack { pack: id(number), brought: 1, part: 2 };
    let writer = |number: u8, is_given_up| SnapshotWriter {
        writer: WriterId([number; 16]),
        is_given_up,
        began: u64::from(number),
        last: time,
    };
    let older = ImageVersion { version: 2, ..image() };
    let of_image =
        |image, number| SnapshotImage { image, manifest: id(number), digest: [2; 32], packs: 1, added: time };
    let full = Snapshot {
        position: POSITION,
        last: [4; 32],
        lost_until: 5,
        images: vec![of_image(older, 1), of_image(image(), 2)],
        newest: vec![image()],
        live: vec![live(3), live(4)],
        dropped: vec![dropped(0, 5), dropped(1, 6), dropped(2, 7)],
        parts: vec![SnapshotPart { position: 2, segment: id(8), packs: vec![id(3), id(5), id(4)] }],
        writers: vec![writer(0, false), writer(1, true), writer(3, false)],
        open: vec![(3, WriterId([3; 16]), "host".to_owned())],
        lost: vec![(unit(1), 3), (unit(2), 4)],
    };
    let empty = Snapshot { position: POSITION, ..Snapshot::default() };
    [full, empty].map(|snapshot| snapshot.encode(ARCHIVE).expect("a sound snapshot")).into()
}

fn manifests() -> Vec<Vec<u8>> {
    let volume = |start_bytes, way, unread_bytes| CapturedVolume {
        start_bytes,
        length_bytes: 1000,
        content: "ext4".to_owned(),
        way,
        taken_bytes: 500,
        unread_bytes,
    };
    let region = |first, others| RegionChunks { first, others };
    let manifest = Manifest {
        archive: ARCHIVE,
        id: ID,
        image: image(),
        captured: Timestamp { seconds: 1_700_000_000, nanoseconds: 0 },
        size_bytes: (128 << 20) + 5,
        units: UnitKind::Files { unit_bytes: 128 << 10 },
        region_bytes: 64 << 20,
        volumes: vec![volume(0, CaptureWay::Map, 20), volume(5000, CaptureWay::Raw("it is encrypted".to_owned()), 0)],
        totals: Totals { free_bytes: 128 << 20, data_bytes: 5, units: 1, ..Totals::default() },
        chunks: (0..5).map(unit).collect(),
        regions: vec![region(0, Some(vec![3, 4])), region(2, None), region(5, Some(Vec::new()))],
    };
    vec![manifest.encode().expect("a sound manifest")]
}

fn segments() -> Vec<Vec<u8>> {
    let entry = |prefix, pack, offset| IndexEntry { prefix, pack, offset, stored_bytes: 1 << 20 };
    let entries = vec![entry(3, 1, 64), entry(3, 1, 5000), entry(u64::MAX, 0, 62 << 20)];
    let segment = Segment { packs: vec![id(1), id(2)], entries };
    vec![segment.encode(ARCHIVE, ID).expect("a sound segment")]
}

fn chunk_headers() -> Vec<Vec<u8>> {
    let run = |start, count| SectorRun { start, count };
    let placed = |number, plain_bytes, runs| PlacedUnit { name: unit(number), plain_bytes, runs };
    let header = ChunkHeader {
        region: 300,
        units: vec![
            placed(1, 128 << 10, vec![run(10_000_000, 200), run(5000, 56)]),
            placed(2, 700, vec![run(6000, 2)]),
            placed(3, 1, vec![run((1 << 53) - 1, 1)]),
        ],
        zeros: vec![run(0, 8), run(20_000_000, 1 << 30)],
    };
    vec![header.encode().expect("a sound header")]
}

fn unit_headers() -> Vec<Vec<u8>> {
    let header = |codec, stored_bytes, plain_bytes| UnitHeader { codec, stored_bytes, plain_bytes }.encode().to_vec();
    vec![header(Codec::Plain, 5, 5), header(Codec::Zstd, 9000, 128 << 10)]
}

fn pack() -> Vec<u8> {
    let mut pack = PackBuilder::new(ARCHIVE, ID);
    for (number, length) in (1u8..).zip([1u32, 30, 100]) {
        let stored = vec![number; usize::try_from(length).expect("small")];
        let codec = if number == 1 { Codec::Plain } else { Codec::Zstd };
        let plain_bytes = if number == 1 { length } else { 3 * length };
        pack.add(unit(number), UnitHeader { codec, stored_bytes: length, plain_bytes }, &stored);
    }
    pack.finish().0
}
