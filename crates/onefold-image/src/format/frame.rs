//! The frame of every object: its kind, its owner, and a digest of the whole object.
//!
//! | bytes  | field    | notes                                                                                   |
//! |--------|----------|-----------------------------------------------------------------------------------------|
//! | 0..8   | magic    | `1foldarc`                                                                              |
//! | 8..10  | kind     | 1 descriptor, 2 pack, 3 manifest, 4 segment, 5 ledger entry, 6 snapshot                 |
//! | 10..12 | version  | 1; another one is refused. All versions have this frame and the digest at the end       |
//! | 12..16 | features | bits without which the object cannot be understood ([`Kind::features`])                 |
//! | 16..32 | archive  | identity of the archive                                                                 |
//! | 32..56 | name     | writer and random part; of a ledger entry 16 zeros and its number; of a descriptor zeros |
//! | 56..64 | length   | of the whole object, with frame and digest                                              |
//! | 64..   | body     | see the modules of the kinds                                                            |
//! | last 32 | digest  | BLAKE3 of all bytes before it; that of a pack leaves out the units ([`super::pack`])    |

use super::FormatError;
use super::bytes::{Decoder, Encoder};
use super::fields::{decode_id, encode_id};
use crate::{ArchiveId, ObjectId, WriterId};

/// The first bytes of every object.
const MAGIC: [u8; 8] = *b"1foldarc";
/// Current version of all structures.
pub(super) const VERSION: u16 = 1;
/// Length of a frame in bytes.
pub(super) const FRAME_BYTES: usize = 64;
/// Length of the digest at the end of an object.
pub(super) const DIGEST_BYTES: usize = 32;

/// Kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Descriptor = 1,
    Pack = 2,
    Manifest = 3,
    Segment = 4,
    Entry = 5,
    Snapshot = 6,
}

/// Feature of a manifest: a volume has bytes that nothing reads
/// ([`CapturedVolume::unread_bytes`](super::manifest::CapturedVolume::unread_bytes)).
pub(super) const MANIFEST_UNREAD: u32 = 1;

impl Kind {
    /// Returns the name of the structure for users.
    pub(super) fn structure(self) -> &'static str {
        match self {
            Kind::Descriptor => "descriptor",
            Kind::Pack => "pack",
            Kind::Manifest => "manifest",
            Kind::Segment => "segment of the index",
            Kind::Entry => "ledger entry",
            Kind::Snapshot => "snapshot of the state",
        }
    }

    /// Returns the features that this version of Onefold knows.
    fn features(self) -> u32 {
        match self {
            Kind::Manifest => MANIFEST_UNREAD,
            Kind::Descriptor | Kind::Pack | Kind::Segment | Kind::Entry | Kind::Snapshot => 0,
        }
    }
}

/// Returns the name of an object in its frame, if the object has a number instead of an [`ObjectId`].
pub(super) fn numbered(number: u64) -> ObjectId {
    ObjectId { writer: WriterId([0; 16]), random: number.to_le_bytes() }
}

/// Abilities that an object needs of its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) version: u16,
    pub(super) features: u32,
}

impl Needs {
    /// An object without features.
    pub(super) const KNOWN: Needs = Needs { version: VERSION, features: 0 };

    /// Fails if a newer version of Onefold is needed.
    pub(super) fn check(self, structure: &'static str) -> Result<(), FormatError> {
        let Needs { version, features } = self;
        if self == Needs::KNOWN { Ok(()) } else { Err(FormatError::Newer { structure, version, features }) }
    }
}

/// Returns the frame of an object of `length` bytes, frame and all.
pub(super) fn frame(kind: Kind, needs: Needs, archive: ArchiveId, id: ObjectId, length: u64) -> Vec<u8> {
    let mut encoder = Encoder(Vec::with_capacity(FRAME_BYTES));
    encoder.bytes(&MAGIC).u16(kind as u16).u16(needs.version).u32(needs.features);
    encode_id(encoder.bytes(&archive.0), id);
    encoder.u64(length);
    encoder.0
}

/// Returns an object: its frame, `body`, and the digest of both.
pub(super) fn enclose(kind: Kind, archive: ArchiveId, id: ObjectId, body: &[u8]) -> Vec<u8> {
    enclose_with(kind, Needs::KNOWN, archive, id, body)
}

/// As [`enclose`], with what the object needs of its readers.
pub(super) fn enclose_with(kind: Kind, needs: Needs, archive: ArchiveId, id: ObjectId, body: &[u8]) -> Vec<u8> {
    let length = FRAME_BYTES + body.len() + DIGEST_BYTES;
    let mut object = frame(kind, needs, archive, id, length as u64);
    object.reserve_exact(length - object.len());
    object.extend_from_slice(body);
    let digest = blake3::hash(&object);
    object.extend_from_slice(digest.as_bytes());
    object
}

/// Returns the body of an object with this kind and name, and the archive to which the object claims to belong. Checks
/// everything except the archive.
pub(super) fn disclose(kind: Kind, id: ObjectId, object: &[u8]) -> Result<(ArchiveId, &[u8]), FormatError> {
    disclose_with(kind, id, object).map(|(archive, _, body)| (archive, body))
}

/// As [`disclose`], with the features of the object.
pub(super) fn disclose_with(kind: Kind, id: ObjectId, object: &[u8]) -> Result<(ArchiveId, u32, &[u8]), FormatError> {
    let structure = kind.structure();
    let (archive, needs) = check_frame(kind, id, object)?;
    let body_end = object.len().checked_sub(DIGEST_BYTES).filter(|end| *end >= FRAME_BYTES);
    let (content, digest) = object.split_at(body_end.ok_or(FormatError::Length { structure })?);
    if blake3::hash(content).as_bytes() != digest {
        return Err(FormatError::Digest { structure });
    }
    // Not before: a changed bit is no newer version.
    let unknown = Needs { features: needs.features & !kind.features(), ..needs };
    unknown.check(structure)?;
    Ok((archive, needs.features, &content[FRAME_BYTES..]))
}

/// Returns the body of an object that must belong to `archive`.
pub(super) fn disclose_of(kind: Kind, archive: ArchiveId, id: ObjectId, object: &[u8]) -> Result<&[u8], FormatError> {
    disclose_of_with(kind, archive, id, object).map(|(_, body)| body)
}

/// As [`disclose_of`], with the features of the object.
pub(super) fn disclose_of_with(
    kind: Kind,
    archive: ArchiveId,
    id: ObjectId,
    object: &[u8],
) -> Result<(u32, &[u8]), FormatError> {
    let (of, features, body) = disclose_with(kind, id, object)?;
    if of == archive {
        Ok((features, body))
    } else {
        Err(FormatError::Other { structure: kind.structure(), what: "its archive" })
    }
}

/// Checks kind, name and length in the frame of an object, and returns its archive and what it needs.
pub(super) fn check_frame(kind: Kind, id: ObjectId, object: &[u8]) -> Result<(ArchiveId, Needs), FormatError> {
    let (archive, needs, length) = check_start(kind, id, object)?;
    if length == object.len() as u64 {
        Ok((archive, needs))
    } else {
        Err(FormatError::Length { structure: kind.structure() })
    }
}

/// Checks kind and name in the frame of an object of which only the beginning is there. Returns its archive, what it
/// needs, and the length that it claims.
pub(super) fn check_start(kind: Kind, id: ObjectId, start: &[u8]) -> Result<(ArchiveId, Needs, u64), FormatError> {
    let structure = kind.structure();
    let other = |what| FormatError::Other { structure, what };
    let mut decoder = Decoder::new(structure, start);
    if decoder.array()? != MAGIC || decoder.u16()? != kind as u16 {
        return Err(other("its kind"));
    }
    let needs = Needs { version: decoder.u16()?, features: decoder.u32()? };
    let archive = ArchiveId(decoder.array()?);
    if decode_id(&mut decoder)? != id {
        return Err(other("its name"));
    }
    Ok((archive, needs, decoder.u64()?))
}
