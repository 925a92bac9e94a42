//! Encodes and decodes every structure, and passes hostile bytes to every decoder.

mod hostile;
mod multicast;
mod samples;
mod vectors;

use super::chunk_header::ChunkHeader;
use super::descriptor::Descriptor;
use super::frame::{DIGEST_BYTES, FRAME_BYTES};
use super::ledger::LedgerEntry;
use super::manifest::Manifest;
use super::multicast::JoinReply;
use super::pack::{Tail, UNIT_HEADER_BYTES, UnitHeader, decode_pack, decode_tail};
use super::segment::Segment;
use super::snapshot::Snapshot;
use super::*;
use crate::{ArchiveId, ObjectId, WriterId};

pub(super) const ARCHIVE: ArchiveId = ArchiveId([0xa1; 16]);
pub(super) const ID: ObjectId = ObjectId { writer: WriterId([0xb2; 16]), random: [0xc3; 8] };
/// Position of the sample entry.
pub(super) const POSITION: u64 = 0x1_0000_0002;

/// Decodes bytes and encodes the result: decoders accept only the output of their encoder.
type Again = fn(&[u8]) -> Result<Vec<u8>, FormatError>;

/// Returns each independent structure, with its samples and its round trip.
pub(super) fn structures() -> Vec<(&'static str, Vec<Vec<u8>>, Again)> {
    vec![
        ("descriptor", samples::descriptors(), |bytes| Descriptor::decode(bytes)?.encode()),
        ("entry", samples::entries(), |bytes| LedgerEntry::decode(ARCHIVE, POSITION, bytes)?.encode()),
        ("manifest", samples::manifests(), |bytes| Manifest::decode(ARCHIVE, ID, bytes)?.encode()),
        ("snapshot", samples::snapshots(), |bytes| Snapshot::decode(ARCHIVE, POSITION, bytes)?.encode(ARCHIVE)),
        ("segment", samples::segments(), |bytes| Segment::decode(ARCHIVE, ID, bytes)?.encode(ARCHIVE, ID)),
        ("chunk header", samples::chunk_headers(), |bytes| ChunkHeader::decode(bytes)?.encode()),
        ("unit header", samples::unit_headers(), |bytes| Ok(UnitHeader::decode(bytes)?.encode().to_vec())),
        ("pack", vec![samples::pack()], pack_again),
        ("multicast header", multicast::headers(), multicast::header_again),
        ("multicast symbol", multicast::symbols(), multicast::symbol_again),
        ("multicast beacon", multicast::beacons(), multicast::beacon_again),
        ("multicast request", multicast::requests(), multicast::request_again),
        ("multicast join", multicast::joins(), |bytes| Ok(JoinReply::decode(bytes)?.encode())),
    ]
}

/// Returns a pack with the table that is decoded from `bytes`, and the units of these bytes.
fn pack_again(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    let pack = decode_pack(ARCHIVE, ID, bytes)?;
    if !pack.is_unchanged {
        return Err(FormatError::Digest { structure: "pack" });
    }
    let mut builder = pack::PackBuilder::new(ARCHIVE, ID);
    for entry in &pack.table {
        let body = (entry.offset + UNIT_HEADER_BYTES) as usize;
        let header = UnitHeader::decode(&bytes[entry.offset as usize..body])?;
        if (header.stored_bytes, header.plain_bytes) != (entry.stored_bytes, entry.plain_bytes) {
            return Err(FormatError::Value { structure: "pack", what: "a header differs from the table" });
        }
        builder.add(entry.name, header, &bytes[body..body + entry.stored_bytes as usize]);
    }
    Ok(builder.finish().0)
}

/// Puts the CRC and the digest of a pack right, as far as its footer leads to a table.
pub(super) fn seal_pack(pack: &mut [u8]) {
    let Some(content) = pack.len().checked_sub(16 + DIGEST_BYTES) else { return };
    let field = |at: usize| u32::from_le_bytes(pack[at..at + 4].try_into().unwrap()) as usize;
    let (table_bytes, table_offset) = (field(content), field(content + 4));
    let Some(start) = content.checked_sub(table_bytes).filter(|start| *start >= FRAME_BYTES) else { return };
    if (FRAME_BYTES..=start).contains(&table_offset) {
        let checksum = crc32c::crc32c(&pack[FRAME_BYTES..table_offset]);
        pack[content + 8..content + 12].copy_from_slice(&checksum.to_le_bytes());
    }
    let end = pack.len() - DIGEST_BYTES;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&pack[..FRAME_BYTES]).update(&pack[start..end]);
    pack[end..].copy_from_slice(hasher.finalize().as_bytes());
}

/// Puts the digest right that ends an object, so that its decoder sees the changed bytes behind it.
pub(super) fn seal(object: &mut [u8]) {
    if object.len() >= FRAME_BYTES + DIGEST_BYTES {
        let end = object.len() - DIGEST_BYTES;
        let digest = blake3::hash(&object[..end]);
        object[end..].copy_from_slice(digest.as_bytes());
    }
}

#[test]
fn every_structure_returns_as_it_was() {
    for (structure, samples, again) in structures() {
        for sample in samples {
            assert_eq!(again(&sample).as_ref(), Ok(&sample), "{structure}");
        }
    }
}

#[test]
fn the_table_of_a_pack_is_read_from_its_end() {
    let pack = samples::pack();
    let whole = decode_pack(ARCHIVE, ID, &pack).unwrap().table;
    assert_eq!(pack::length_of(&whole), pack.len() as u64);
    let needed = whole.len() * 40 + 48;
    for length in 48..=pack.len() {
        let tail = decode_tail(ARCHIVE, ID, &pack[pack.len() - length..]).unwrap();
        match tail {
            Tail::Table(table) => {
                assert!(length >= needed);
                assert_eq!(table, whole);
            }
            Tail::Longer(wanted) => {
                assert!(length < needed);
                assert_eq!(wanted, needed as u64);
            }
        }
    }
}

#[test]
fn objects_of_another_archive_or_name_are_refused() {
    let other_archive = ArchiveId([0xa2; 16]);
    let other_id = ObjectId { random: [0xc4; 8], ..ID };
    let manifest = &samples::manifests()[0];
    let segment = &samples::segments()[0];
    let entry = &samples::entries()[0];
    let is_other = |error: FormatError, expected: &str| match error {
        FormatError::Other { what, .. } => assert_eq!(what, expected),
        error => panic!("{error}"),
    };
    is_other(Manifest::decode(other_archive, ID, manifest).unwrap_err(), "its archive");
    is_other(Manifest::decode(ARCHIVE, other_id, manifest).unwrap_err(), "its name");
    is_other(Manifest::decode(ARCHIVE, ID, segment).unwrap_err(), "its kind");
    is_other(Segment::decode(other_archive, ID, segment).unwrap_err(), "its archive");
    is_other(Segment::decode(ARCHIVE, other_id, segment).unwrap_err(), "its name");
    is_other(LedgerEntry::decode(other_archive, POSITION, entry).unwrap_err(), "its archive");
    is_other(LedgerEntry::decode(ARCHIVE, POSITION + 1, entry).unwrap_err(), "its name");
    is_other(decode_pack(other_archive, ID, &samples::pack()).unwrap_err(), "its archive");
    is_other(decode_pack(ARCHIVE, other_id, &samples::pack()).unwrap_err(), "its name");
    assert!(decode_tail(other_archive, ID, &samples::pack()).is_err());
    assert!(decode_tail(ARCHIVE, other_id, &samples::pack()).is_err());
    is_other(Descriptor::decode(manifest).unwrap_err(), "its kind");
}

#[test]
fn a_newer_version_says_so() {
    for (at, expected) in [(10, (2, 0)), (12, (1, 4))] {
        for mut object in [samples::manifests().remove(0), samples::segments().remove(0)] {
            object[at] = if at == 10 { 2 } else { 4 };
            seal(&mut object);
            let errors = [Manifest::decode(ARCHIVE, ID, &object).err(), Segment::decode(ARCHIVE, ID, &object).err()];
            let newer = errors.into_iter().flatten().find_map(|error| match error {
                FormatError::Newer { version, features, .. } => Some((version, features)),
                _ => None,
            });
            assert_eq!(newer, Some(expected));
            object[at] = 3;
            assert!(matches!(
                Manifest::decode(ARCHIVE, ID, &object),
                Err(FormatError::Digest { .. } | FormatError::Other { .. })
            ));
            assert!(!matches!(Segment::decode(ARCHIVE, ID, &object), Err(FormatError::Newer { .. })));
        }
    }
}

#[test]
fn the_table_of_a_newer_pack_says_so_without_the_frame() {
    let pack = samples::pack();
    let footer = pack.len() - 36;
    for (in_frame, in_footer, expected) in [(10, footer, (2, 0)), (12, footer + 2, (1, 2))] {
        let mut newer = pack.clone();
        newer[in_frame] = 2;
        newer[in_footer] = 2;
        assert_eq!(decode_tail(ARCHIVE, ID, &newer), Err(FormatError::Digest { structure: "pack" }), "a changed bit");
        seal_pack(&mut newer);
        let (version, features) = expected;
        let error = FormatError::Newer { structure: "pack", version, features };
        assert_eq!(decode_tail(ARCHIVE, ID, &newer[200..]), Err(error.clone()));
        assert_eq!(decode_pack(ARCHIVE, ID, &newer), Err(error));
        let mut differs = pack.clone();
        differs[in_frame] = 2;
        assert_eq!(decode_pack(ARCHIVE, ID, &differs), Err(FormatError::Digest { structure: "pack" }));
    }
}
