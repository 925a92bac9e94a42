//! Entries of the ledger: the only thing of an archive that grows, and what decides which images exist.
//!
//! | body    | field    | notes                                                       |
//! |---------|----------|-------------------------------------------------------------|
//! | 0..32   | previous | BLAKE3 of the whole object of the entry before; zeros in the first |
//! | 32..48  | writer   |                                                             |
//! | 48..64  | token    | random                                                      |
//! | 64..76  | made     | seconds i64, nanoseconds u32                                |
//! | 76..80  | change   | number of its kind                                          |
//! | 80..    |          | fields of the change                                        |
//!
//! | change | kind             | fields                                                                           |
//! |--------|------------------|----------------------------------------------------------------------------------|
//! | 1      | writer begins    | host: text                                                                       |
//! | 2      | image added      | image; name and digest of the manifest; names of packs; no or one name of a segment |
//! | 3      | image removed    | image                                                                            |
//! | 4      | packs retired    | names                                                                            |
//! | 5      | packs replaced   | names of old packs, of new packs; name of the segment                            |
//! | 6      | segments merged  | names of old segments; name of the new one                                       |
//! | 7      | writer given up  | writer                                                                           |
//! | 8      | units lost       | number u32, names of 32 bytes                                                    |
//!
//! An image is version u32 and name as a text. A text has its length u16 in front, a list of names its number u32. A
//! name of an object is its writer and its random part, 24 bytes.

use onefold_block::Timestamp;

use super::FormatError;
use super::bytes::{Decoder, Encoder};
use super::fields::{ID_BYTES, decode_id, decode_image, decode_time, encode_id, encode_image, encode_time};
use super::frame::{Kind, disclose_of, enclose, numbered};
use crate::store::ObjectName;
use crate::{ArchiveId, ImageVersion, ObjectId, UnitName, WriterId};

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The archive.
    pub archive: ArchiveId,
    /// Its number; the first entry has 0.
    pub position: u64,
    /// BLAKE3 digest of the whole entry before it; zeros in the first one.
    pub previous: [u8; 32],
    /// Who made it.
    pub writer: WriterId,
    /// Random bytes by which the writer recognises its own entry after a lost answer.
    pub token: [u8; 16],
    /// When it was made, by the writer's clock. Nothing safe depends on it.
    pub made: Timestamp,
    /// What it changes.
    pub change: Change,
}

/// What an entry changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A writer begins. Objects with its name belong to it from now on.
    WriterBegins {
        /// The host that it runs on, at most 64 bytes.
        host: String,
    },
    /// An image was captured.
    ImageAdded {
        /// Name and version.
        image: ImageVersion,
        /// Its manifest.
        manifest: ObjectId,
        /// BLAKE3 digest of the manifest's object.
        digest: [u8; 32],
        /// Packs that it brings along, and that no entry names so far.
        packs: Vec<ObjectId>,
        /// The segment of the index with their units, if it brings any.
        segment: Option<ObjectId>,
    },
    /// An image was removed.
    ImageRemoved {
        /// Name and version.
        image: ImageVersion,
    },
    /// No image needs these packs here; they may be deleted any time later.
    PacksRetired {
        /// The packs.
        packs: Vec<ObjectId>,
    },
    /// What is needed of some packs stands in others.
    PacksReplaced {
        /// The packs that may be deleted any time later.
        old: Vec<ObjectId>,
        /// Those that hold the units now.
        new: Vec<ObjectId>,
        /// The segment of the index of the new ones.
        segment: ObjectId,
    },
    /// Segments became one.
    SegmentsMerged {
        /// The old ones.
        old: Vec<ObjectId>,
        /// The new one.
        new: ObjectId,
    },
    /// A writer was silent for so long that its objects may be collected.
    WriterGivenUp {
        /// The writer.
        writer: WriterId,
    },
    /// Units that no pack holds whole any more, so that no capture relies on them.
    UnitsLost {
        /// Their names.
        units: Vec<UnitName>,
    },
}

/// Maximum length of an entry in bytes.
pub const ENTRY_BYTES_MAX: u64 = 64 << 20;
/// Maximum length of the name of a host in bytes.
pub const HOST_BYTES_MAX: usize = 64;

impl Entry {
    /// Returns the object.
    ///
    /// # Errors
    /// When it is too long.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut body = Encoder::default();
        body.bytes(&self.previous).bytes(&self.writer.0).bytes(&self.token);
        encode_time(&mut body, self.made);
        self.change.encode(&mut body)?;
        if body.0.len() as u64 > ENTRY_BYTES_MAX - 1024 {
            return Err(FormatError::Length { structure: Kind::Entry.structure() });
        }
        Ok(enclose(Kind::Entry, self.archive, numbered(self.position), &body.0))
    }

    /// Returns the entry that an object is.
    ///
    /// # Errors
    /// When it is none, or another.
    pub fn decode(archive: ArchiveId, position: u64, object: &[u8]) -> Result<Entry, FormatError> {
        let body = disclose_of(Kind::Entry, archive, numbered(position), object)?;
        let mut decoder = Decoder::new(Kind::Entry.structure(), body);
        let previous = decoder.array()?;
        let (writer, token) = (WriterId(decoder.array()?), decoder.array()?);
        let made = decode_time(&mut decoder)?;
        let change = Change::decode(&mut decoder)?;
        decoder.end()?;
        Ok(Entry { archive, position, previous, writer, token, made, change })
    }

    /// Returns the name of the object at a position.
    #[must_use]
    pub fn object_name(position: u64) -> ObjectName {
        ObjectName::new(&format!("ledger/{position:016x}")).expect("digits make a name")
    }
}

impl Change {
    fn code(&self) -> u32 {
        match self {
            Change::WriterBegins { .. } => 1,
            Change::ImageAdded { .. } => 2,
            Change::ImageRemoved { .. } => 3,
            Change::PacksRetired { .. } => 4,
            Change::PacksReplaced { .. } => 5,
            Change::SegmentsMerged { .. } => 6,
            Change::WriterGivenUp { .. } => 7,
            Change::UnitsLost { .. } => 8,
        }
    }

    fn encode(&self, body: &mut Encoder) -> Result<(), FormatError> {
        body.u32(self.code());
        match self {
            Change::WriterBegins { host } => {
                if host.len() > HOST_BYTES_MAX {
                    return Err(FormatError::Length { structure: Kind::Entry.structure() });
                }
                body.text(host);
            }
            Change::ImageAdded { image, manifest, digest, packs, segment } => {
                encode_image(body, image);
                encode_id(body, *manifest);
                body.bytes(digest);
                encode_ids(body, packs);
                encode_ids(body, segment.as_slice());
            }
            Change::ImageRemoved { image } => encode_image(body, image),
            Change::PacksRetired { packs } => encode_ids(body, packs),
            Change::PacksReplaced { old, new, segment } => {
                encode_ids(body, old);
                encode_ids(body, new);
                encode_id(body, *segment);
            }
            Change::SegmentsMerged { old, new } => {
                encode_ids(body, old);
                encode_id(body, *new);
            }
            Change::WriterGivenUp { writer } => {
                body.bytes(&writer.0);
            }
            Change::UnitsLost { units } => {
                body.count(units.len());
                units.iter().for_each(|unit| {
                    body.bytes(&unit.0);
                });
            }
        }
        Ok(())
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Change, FormatError> {
        Ok(match decoder.u32()? {
            1 => Change::WriterBegins { host: decoder.text(HOST_BYTES_MAX)?.to_owned() },
            2 => Change::ImageAdded {
                image: decode_image(decoder)?,
                manifest: decode_id(decoder)?,
                digest: decoder.array()?,
                packs: decode_ids(decoder)?,
                segment: match decode_ids(decoder)?[..] {
                    [] => None,
                    [segment] => Some(segment),
                    _ => return Err(decoder.wrong("an image with several segments")),
                },
            },
            3 => Change::ImageRemoved { image: decode_image(decoder)? },
            4 => Change::PacksRetired { packs: decode_ids(decoder)? },
            5 => {
                let (old, new) = (decode_ids(decoder)?, decode_ids(decoder)?);
                Change::PacksReplaced { old, new, segment: decode_id(decoder)? }
            }
            6 => Change::SegmentsMerged { old: decode_ids(decoder)?, new: decode_id(decoder)? },
            7 => Change::WriterGivenUp { writer: WriterId(decoder.array()?) },
            8 => {
                let count = decoder.count(32)?;
                let units = (0..count).map(|_| decoder.array().map(UnitName)).collect::<Result<Vec<_>, _>>()?;
                Change::UnitsLost { units }
            }
            _ => return Err(decoder.wrong("a change of an unknown kind")),
        })
    }
}

fn encode_ids(body: &mut Encoder, ids: &[ObjectId]) {
    body.count(ids.len());
    ids.iter().for_each(|id| encode_id(body, *id));
}

fn decode_ids(decoder: &mut Decoder<'_>) -> Result<Vec<ObjectId>, FormatError> {
    let count = decoder.count(ID_BYTES)?;
    (0..count).map(|_| decode_id(decoder)).collect()
}
