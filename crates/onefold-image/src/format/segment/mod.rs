//! Segments: sorted parts of the index from names of units to places in packs.
//!
//! | field   | type                                                                            |
//! |---------|---------------------------------------------------------------------------------|
//! | numbers | of packs, of entries: u32 each                                                  |
//! | packs   | names, 24 bytes each                                                            |
//! | entries | prefix u64, number of the pack u32, offset u32, stored bytes u32: 20 bytes each |

mod pieces;

use super::FormatError;
use super::bytes::{Decoder, Encoder};
use super::fields::{ID_BYTES, decode_id, encode_id};
use super::frame::{Kind, disclose_of, enclose};
use super::pack::{PACK_BYTES_MAX, UNIT_BYTES_MAX};
use crate::{ArchiveId, ObjectId};

pub use self::pieces::SegmentDecoder;

/// Where a unit is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The first eight bytes of the unit's name, as [`crate::UnitName::prefix`] returns them. Units with the same
    /// prefix have an entry each. The pack's table or the bytes themselves distinguish them.
    pub prefix: u64,
    /// Index of the pack in [`Segment::packs`].
    pub pack: u32,
    /// Offset of the unit's header in the pack, in bytes.
    pub offset: u32,
    /// Bytes that are stored behind the header.
    pub stored_bytes: u32,
}

/// A part of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The packs that its entries refer to.
    pub packs: Vec<ObjectId>,
    /// Its entries, in the order of prefix, pack and offset, none of them twice.
    pub entries: Vec<IndexEntry>,
}

/// Maximum length of a segment in bytes.
pub const SEGMENT_BYTES_MAX: u64 = 384 << 20;
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 20;
/// Maximum number of units that the segment of one capture may have.
pub(crate) const SEGMENT_UNITS_MAX: usize = 16 << 20;
const _: () = assert!((SEGMENT_UNITS_MAX * ENTRY_BYTES) as u64 <= SEGMENT_BYTES_MAX - (32 << 20));

impl IndexEntry {
    /// Returns the bytes of the entry.
    pub(crate) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.prefix.to_le_bytes());
        for (bytes, word) in
            bytes[8..].as_chunks_mut::<4>().0.iter_mut().zip([self.pack, self.offset, self.stored_bytes])
        {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// Returns the entry that has these bytes.
    pub(crate) fn of_bytes(bytes: &[u8; ENTRY_BYTES]) -> IndexEntry {
        let (prefix, words) = bytes.split_first_chunk::<8>().expect("an entry is longer");
        let [pack, offset, stored_bytes] = [0, 1, 2].map(|word| u32::from_le_bytes(words.as_chunks::<4>().0[word]));
        IndexEntry { prefix: u64::from_le_bytes(*prefix), pack, offset, stored_bytes }
    }

    /// Returns whether the entry leads to a place in one of this many packs.
    pub(crate) fn is_valid(&self, packs: usize) -> bool {
        (self.pack as usize) < packs
            && (1..=UNIT_BYTES_MAX).contains(&self.stored_bytes)
            && u64::from(self.offset) + u64::from(self.stored_bytes) < PACK_BYTES_MAX
    }

    /// Returns by what the entries of a segment are sorted.
    fn key(&self) -> (u64, u32, u32) {
        (self.prefix, self.pack, self.offset)
    }
}

impl Segment {
    /// Encodes the segment as an object.
    ///
    /// # Errors
    /// When entries are out of order, refer to no pack, or are too many.
    pub fn encode(&self, archive: ArchiveId, id: ObjectId) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        let mut body = Encoder::default();
        body.count(self.packs.len()).count(self.entries.len());
        for pack in &self.packs {
            encode_id(&mut body, *pack);
        }
        for entry in &self.entries {
            body.bytes(&entry.to_bytes());
        }
        Ok(enclose(Kind::Segment, archive, id, &body.0))
    }

    /// Decodes a segment from an object.
    ///
    /// # Errors
    /// When the object is not a valid segment, or is another one.
    pub fn decode(archive: ArchiveId, id: ObjectId, object: &[u8]) -> Result<Segment, FormatError> {
        let body = disclose_of(Kind::Segment, archive, id, object)?;
        let mut decoder = Decoder::new(Kind::Segment.structure(), body);
        let (packs, entries) = (decoder.u32()?, decoder.u32()?);
        let packs = decoder.there(u64::from(packs), ID_BYTES)?;
        let packs = (0..packs).map(|_| decode_id(&mut decoder)).collect::<Result<Vec<_>, _>>()?;
        let entries = decoder.there(u64::from(entries), ENTRY_BYTES)?;
        let mut entry = || Ok(IndexEntry::of_bytes(&decoder.array()?));
        let entries = (0..entries).map(|_| entry()).collect::<Result<Vec<_>, FormatError>>()?;
        decoder.end()?;
        let segment = Segment { packs, entries };
        segment.check()?;
        Ok(segment)
    }

    fn check(&self) -> Result<(), FormatError> {
        let structure = Kind::Segment.structure();
        let wrong = |what| FormatError::Value { structure, what };
        if (self.packs.len() * ID_BYTES + self.entries.len() * ENTRY_BYTES) as u64 > SEGMENT_BYTES_MAX - 1024 {
            return Err(FormatError::Length { structure });
        }
        if !self.entries.is_sorted_by(|one, next| one.key() < next.key()) {
            return Err(wrong(UNSORTED));
        }
        let is_valid = self.entries.iter().all(|entry| entry.is_valid(self.packs.len()));
        if is_valid { Ok(()) } else { Err(wrong(NOWHERE)) }
    }
}

/// Reason why entries are invalid.
const UNSORTED: &str = "its entries are out of order, or there twice";
const NOWHERE: &str = "an entry leads nowhere";
