//! Entries of the ledger. The ledger is the only part of an archive that grows, and it decides which images exist.
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
//! An image is a version u32 and a name as a text. A text follows its length u16, and a list of names follows its
//! number u32. The name of an object is its writer and its random part, 24 bytes.

use onefold_block::Timestamp;

use super::FormatError;
use super::bytes::{Decoder, Encoder};
use super::fields::{ID_BYTES, decode_id, decode_image, decode_time, encode_id, encode_image, encode_time};
use super::frame::{Kind, disclose, disclose_of, enclose, numbered};
use crate::store::ObjectName;
use crate::{ArchiveId, ImageVersion, ObjectId, UnitName, WriterId};

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The archive.
    pub archive: ArchiveId,
    /// Its number; the first entry has 0.
    pub position: u64,
    /// BLAKE3 digest of the whole entry before it; zeros in the first one.
    pub previous: [u8; 32],
    /// The writer that made it.
    pub writer: WriterId,
    /// Random bytes by which the writer recognises its own entry after a lost answer.
    pub token: [u8; 16],
    /// Time of creation by the writer's clock. Safety does not depend on it.
    pub made: Timestamp,
    /// The change that it makes.
    pub change: Change,
}

/// A change of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A writer begins. Objects with its name belong to it from now on.
    WriterBegins {
        /// The process and the host that it runs on, at most 64 bytes. The caller decides the form.
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
        /// Packs that it adds, and that no earlier entry names.
        packs: Vec<ObjectId>,
        /// The segment of the index with their units, if it adds any.
        segment: Option<ObjectId>,
    },
    /// An image was removed.
    ImageRemoved {
        /// Name and version.
        image: ImageVersion,
    },
    /// Packs that no image needs any more. They may be deleted at any later time.
    PacksRetired {
        /// The packs.
        packs: Vec<ObjectId>,
    },
    /// The needed units of some packs are now in other packs.
    PacksReplaced {
        /// The packs that may be deleted at any later time.
        old: Vec<ObjectId>,
        /// The packs that hold the units now.
        new: Vec<ObjectId>,
        /// The segment of the index for the new packs.
        segment: ObjectId,
    },
    /// Several segments were merged into one.
    SegmentsMerged {
        /// The old segments.
        old: Vec<ObjectId>,
        /// The new segment.
        new: ObjectId,
    },
    /// A writer was silent for so long that its objects may be deleted.
    WriterGivenUp {
        /// The writer.
        writer: WriterId,
    },
    /// Units of which no pack has an intact copy any more. No capture may rely on them.
    UnitsLost {
        /// Their names.
        units: Vec<UnitName>,
    },
}

/// Maximum length of an entry in bytes.
pub const ENTRY_BYTES_MAX: u64 = 64 << 20;
/// Maximum length of the name of a host in bytes.
pub const HOST_BYTES_MAX: usize = 64;

impl LedgerEntry {
    /// Encodes the entry as an object.
    ///
    /// # Errors
    /// When the entry is too long.
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

    /// Decodes an entry from an object.
    ///
    /// # Errors
    /// When the object is not a valid entry, or is another one.
    pub fn decode(archive: ArchiveId, position: u64, object: &[u8]) -> Result<LedgerEntry, FormatError> {
        let body = disclose_of(Kind::Entry, archive, numbered(position), object)?;
        let mut decoder = Decoder::new(Kind::Entry.structure(), body);
        let previous = decoder.array()?;
        let (writer, token) = (WriterId(decoder.array()?), decoder.array()?);
        let made = decode_time(&mut decoder)?;
        let change = Change::decode(&mut decoder)?;
        decoder.end()?;
        Ok(LedgerEntry { archive, position, previous, writer, token, made, change })
    }

    /// Returns the archive of a whole entry.
    ///
    /// # Errors
    /// When the bytes are damaged, of a newer version, or no entry for this position.
    pub fn archive_of(position: u64, object: &[u8]) -> Result<ArchiveId, FormatError> {
        disclose(Kind::Entry, numbered(position), object).map(|(archive, _)| archive)
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
