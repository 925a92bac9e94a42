//! Snapshots of the state: what all entries of the ledger up to a position say together. They are hints that save the
//! reading of these entries, and may be deleted at any time.
//!
//! | field        | type                                                                              |
//! |--------------|-----------------------------------------------------------------------------------|
//! | rules        | u32, 1: the rules by which entries make a state; a snapshot by others is ignored  |
//! | last         | BLAKE3 of the whole object of the last entry                                      |
//! | lost until   | u64                                                                               |
//! | images       | image; manifest; its digest; number of packs u64; time added                      |
//! | newest       | highest version of each name, as an image                                         |
//! | live packs   | name; positions u64 of the entry that added it, and of its part of the index      |
//! | dropped      | kind u8 (0 pack, 1 manifest, 2 segment); name; time                               |
//! | parts        | position u64; segment; names of packs                                             |
//! | writers      | name; whether it was given up, u8; position u64 where it began; last time         |
//! | open writers | position u64 where it began; name; host as a text                                 |
//! | lost units   | name; position u64                                                                |
//!
//! Each list follows its number u32, and is sorted by its first field, in which no two are equal; that of dropped
//! objects by kind and name. The frame has the number of entries as the name. Other notations are those of
//! [`super::ledger`].

use onefold_block::Timestamp;

use super::FormatError;
use super::bytes::{Decoder, Encoder};
use super::fields::{ID_BYTES, decode_id, decode_image, decode_time, encode_id, encode_image, encode_time};
use super::frame::{Kind, disclose_of, enclose, numbered};
use super::ledger::HOST_BYTES_MAX;
use crate::store::ObjectName;
use crate::{ArchiveId, ImageVersion, ObjectId, UnitName, WriterId};

/// The rules by which this version of Onefold makes a state of entries. It changes when they do.
const RULES: u32 = 1;
/// Maximum length of a snapshot in bytes.
pub const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;
/// The beginning of the names of snapshots.
pub const SNAPSHOTS: &str = "snapshots/";
/// Minimum length of an element of a list in bytes.
const ELEMENT_BYTES_MIN: usize = 6;

/// An image, as the entry says that added it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotImage {
    /// Name and version.
    pub image: ImageVersion,
    /// Its manifest.
    pub manifest: ObjectId,
    /// BLAKE3 digest of the manifest's object.
    pub digest: [u8; 32],
    /// Number of packs that its capture added.
    pub packs: u64,
    /// When it was added.
    pub added: Timestamp,
}

/// A pack that holds units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotPack {
    /// The pack.
    pub pack: ObjectId,
    /// Position of the entry that added it.
    pub brought: u64,
    /// Position of its part of the index.
    pub part: u64,
}

/// An object that no image needs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DroppedObject {
    /// Its kind: 0 a pack, 1 a manifest, 2 a segment.
    pub kind: u8,
    /// Its name.
    pub object: ObjectId,
    /// The time of the entry that says so.
    pub since: Timestamp,
}

/// A part of the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotPart {
    /// Position of the entry that added it.
    pub position: u64,
    /// Its segment.
    pub segment: ObjectId,
    /// The packs in it.
    pub packs: Vec<ObjectId>,
}

/// A writer that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotWriter {
    /// Its name.
    pub writer: WriterId,
    /// Whether it was given up.
    pub is_given_up: bool,
    /// Position of the entry with which it began.
    pub began: u64,
    /// The latest time of its entries.
    pub last: Timestamp,
}

/// The state of an archive after a number of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Number of entries.
    pub position: u64,
    /// Digest of the last entry's object.
    pub last: [u8; 32],
    /// Number of entries up to and including the last one that reported lost units.
    pub lost_until: u64,
    /// The images.
    pub images: Vec<SnapshotImage>,
    /// The highest version that each name has ever had.
    pub newest: Vec<ImageVersion>,
    /// Packs that hold units.
    pub live: Vec<SnapshotPack>,
    /// Objects that no image needs any more.
    pub dropped: Vec<DroppedObject>,
    /// Parts of the index.
    pub parts: Vec<SnapshotPart>,
    /// Writers.
    pub writers: Vec<SnapshotWriter>,
    /// Writers that have added nothing yet, with their hosts.
    pub open: Vec<(u64, WriterId, String)>,
    /// Lost units, each with the position of the entry that said so last.
    pub lost: Vec<(UnitName, u64)>,
}

impl Snapshot {
    /// Encodes the snapshot as an object.
    ///
    /// # Errors
    /// When a list is out of order, or the snapshot is too long.
    pub fn encode(&self, archive: ArchiveId) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        let mut body = Encoder::default();
        body.u32(RULES).bytes(&self.last).u64(self.lost_until);
        list(&mut body, &self.images, |body, image| {
            encode_image(body, &image.image);
            encode_id(body, image.manifest);
            encode_time(body.bytes(&image.digest).u64(image.packs), image.added);
        });
        list(&mut body, &self.newest, encode_image);
        list(&mut body, &self.live, |body, live| {
            encode_id(body, live.pack);
            body.u64(live.brought).u64(live.part);
        });
        list(&mut body, &self.dropped, |body, dropped| {
            encode_id(body.u8(dropped.kind), dropped.object);
            encode_time(body, dropped.since);
        });
        list(&mut body, &self.parts, |body, part| {
            encode_id(body.u64(part.position), part.segment);
            list(body, &part.packs, |body, pack| encode_id(body, *pack));
        });
        list(&mut body, &self.writers, |body, writer| {
            body.bytes(&writer.writer.0).u8(writer.is_given_up.into()).u64(writer.began);
            encode_time(body, writer.last);
        });
        list(&mut body, &self.open, |body, (position, writer, host)| {
            body.u64(*position).bytes(&writer.0).text(host);
        });
        list(&mut body, &self.lost, |body, (unit, position)| {
            body.bytes(&unit.0).u64(*position);
        });
        if body.0.len() as u64 > SNAPSHOT_BYTES_MAX - 1024 {
            return Err(FormatError::Length { structure: Kind::Snapshot.structure() });
        }
        Ok(enclose(Kind::Snapshot, archive, numbered(self.position), &body.0))
    }

    /// Decodes a snapshot from an object.
    ///
    /// # Errors
    /// When the object is not a valid snapshot, or is another one.
    pub fn decode(archive: ArchiveId, position: u64, object: &[u8]) -> Result<Snapshot, FormatError> {
        let body = disclose_of(Kind::Snapshot, archive, numbered(position), object)?;
        let mut decoder = Decoder::new(Kind::Snapshot.structure(), body);
        if decoder.u32()? != RULES {
            return Err(decoder.wrong("other rules made it"));
        }
        let d = &mut decoder;
        let snapshot = Snapshot {
            position,
            last: d.array()?,
            lost_until: d.u64()?,
            images: listed(d, |d| {
                let (image, manifest, digest, packs) = (decode_image(d)?, decode_id(d)?, d.array()?, d.u64()?);
                Ok(SnapshotImage { image, manifest, digest, packs, added: decode_time(d)? })
            })?,
            newest: listed(d, decode_image)?,
            live: listed(d, |d| Ok(SnapshotPack { pack: decode_id(d)?, brought: d.u64()?, part: d.u64()? }))?,
            dropped: listed(d, |d| Ok(DroppedObject { kind: d.u8()?, object: decode_id(d)?, since: decode_time(d)? }))?,
            parts: listed(d, |d| {
                let (position, segment, count) = (d.u64()?, decode_id(d)?, d.count(ID_BYTES)?);
                let packs = (0..count).map(|_| decode_id(d)).collect::<Result<Vec<_>, _>>()?;
                Ok(SnapshotPart { position, segment, packs })
            })?,
            writers: listed(d, |d| {
                let (writer, flag, began) = (WriterId(d.array()?), d.u8()?, d.u64()?);
                if flag > 1 {
                    return Err(d.wrong("a flag that is neither 0 nor 1"));
                }
                Ok(SnapshotWriter { writer, is_given_up: flag == 1, began, last: decode_time(d)? })
            })?,
            open: listed(d, |d| Ok((d.u64()?, WriterId(d.array()?), d.text(HOST_BYTES_MAX)?.to_owned())))?,
            lost: listed(d, |d| Ok((UnitName(d.array()?), d.u64()?)))?,
        };
        decoder.end()?;
        snapshot.check()?;
        Ok(snapshot)
    }

    /// Returns the name of the snapshot of so many entries.
    #[must_use]
    pub fn object_name(position: u64) -> ObjectName {
        ObjectName::new(&format!("{SNAPSHOTS}{position:016x}")).expect("digits make a name")
    }

    /// Returns the number of entries by the name of a snapshot, if it is one.
    #[must_use]
    pub fn position_of(name: &ObjectName) -> Option<u64> {
        let position = u64::from_str_radix(name.as_str().strip_prefix(SNAPSHOTS)?, 16).ok()?;
        (Snapshot::object_name(position) == *name).then_some(position)
    }

    fn check(&self) -> Result<(), FormatError> {
        let wrong = |what| Err(FormatError::Value { structure: Kind::Snapshot.structure(), what });
        let is_sorted = self.images.is_sorted_by(|one, next| one.image < next.image)
            && self.newest.is_sorted_by(|one, next| one.name < next.name)
            && self.live.is_sorted_by(|one, next| one.pack < next.pack)
            && self.dropped.is_sorted_by(|one, next| (one.kind, one.object) < (next.kind, next.object))
            && self.parts.is_sorted_by(|one, next| one.position < next.position)
            && self.writers.is_sorted_by(|one, next| one.writer < next.writer)
            && self.open.is_sorted_by(|one, next| one.0 < next.0)
            && self.lost.is_sorted_by(|one, next| one.0 < next.0);
        if !is_sorted {
            return wrong("a list is out of order");
        }
        if self.dropped.iter().any(|dropped| dropped.kind > 2) {
            return wrong("an object of an unknown kind");
        }
        if self.open.iter().any(|(_, _, host)| host.len() > HOST_BYTES_MAX) {
            return wrong("a host with too long a name");
        }
        Ok(())
    }
}

fn list<T>(body: &mut Encoder, elements: &[T], mut encode: impl FnMut(&mut Encoder, &T)) {
    body.count(elements.len());
    elements.iter().for_each(|element| encode(body, element));
}

fn listed<'a, T>(
    decoder: &mut Decoder<'a>,
    mut decode: impl FnMut(&mut Decoder<'a>) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    let count = decoder.count(ELEMENT_BYTES_MIN)?;
    // An element takes more memory than its least bytes, so none is reserved.
    let mut elements = Vec::new();
    for _ in 0..count {
        elements.push(decode(decoder)?);
    }
    Ok(elements)
}
