//! MFT records and the attributes in them.
//!
//! After "NTFS Documentation" of the Linux-NTFS project (`FILE record`, `Attributes`).
//!
//! | bytes of a record | field |
//! |---|---|
//! | 0..4, 4..8 | `FILE`, fix-ups |
//! | 16..18 | sequence number |
//! | 20..22, 24..28 | offset of the first attribute, bytes in use |
//! | 22..24 | flags: 1 in use, 2 directory |
//! | 32..40 | reference of the base record; 0 where this is one |
//!
//! | bytes of an attribute | field |
//! |---|---|
//! | 0..4, 4..8 | type (`FF FF FF FF` ends the list), length |
//! | 8 | 1 where it is not resident |
//! | 9, 10..12 | length of the name in UTF-16 units, offset |
//! | 12..14 | flags: `00FF` compressed, `4000` encrypted, `8000` sparse |
//! | resident: 16..20, 20..22 | length of the value, offset |
//! | else: 16..24, 24..32 | first and last cluster of the stream that this part maps |
//! | 32..34 | offset of the mapping pairs |
//! | 40..48, 48..56, 56..64 | allocated, real and initialised bytes of the stream (in its first part only) |
//! | 64..72 | bytes that are really allocated, where it is compressed or sparse |
//!
//! A reference is the number of a record in 48 bits, and its sequence number in 16.

use super::fixups;
use crate::bytes::Bytes;

/// Type of the standard information.
pub(super) const STANDARD_INFORMATION: u32 = 0x10;
/// Type of the list of attributes in other records.
pub(super) const ATTRIBUTE_LIST: u32 = 0x20;
/// Type of a name.
pub(super) const FILE_NAME: u32 = 0x30;
/// Type of the volume's label.
pub(super) const VOLUME_NAME: u32 = 0x60;
/// Type of the volume's version and flags.
pub(super) const VOLUME_INFORMATION: u32 = 0x70;
/// Type of a stream of data.
pub(super) const DATA: u32 = 0x80;
/// Type of the root node of an index.
pub(super) const INDEX_ROOT: u32 = 0x90;
/// Type of the other nodes of an index.
pub(super) const INDEX_ALLOCATION: u32 = 0xa0;
/// Type of a map of used nodes or records.
pub(super) const BITMAP: u32 = 0xb0;
/// Type of a reparse point.
pub(super) const REPARSE_POINT: u32 = 0xc0;
/// Type of the extended attributes of OS/2.
pub(super) const EXTENDED: u32 = 0xe0;

/// Last cluster of a part that maps none.
pub(super) const NO_CLUSTER: u64 = u64::MAX;

const TYPE_END: u32 = 0xffff_ffff;
const SIGNATURE: [u8; 4] = *b"FILE";
const FLAG_IN_USE: u16 = 1;
const FLAG_DIRECTORY: u16 = 2;
const COMPRESSED: u16 = 0x00ff;
const ENCRYPTED: u16 = 0x4000;
const SPARSE: u16 = 0x8000;

/// Bytes of a record up to the end of its sequence number.
pub(super) const SEQUENCE_END: usize = 18;

/// Returns the sequence number in the head of a record; `None` if it is not a record.
pub(super) fn sequence_of(head: &[u8]) -> Option<u16> {
    if head.get(..4) == Some(&SIGNATURE) { Bytes(head).le16(16) } else { None }
}

/// Returns whether bytes claim to be a record in use, even if it is invalid.
pub(super) fn claims_use(bytes: &[u8]) -> bool {
    sequence_of(bytes).is_some() && Bytes(bytes).le16(22).is_some_and(|flags| flags & FLAG_IN_USE != 0)
}

/// The number of a record with its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference(pub(super) u64);

impl Reference {
    /// Returns the number of the record.
    pub(super) fn record(self) -> u64 {
        self.0 & 0xffff_ffff_ffff
    }

    /// Returns the sequence number.
    pub(super) fn sequence(self) -> u16 {
        u16::try_from(self.0 >> 48).unwrap_or(0)
    }
}

/// An MFT record in use, without fix-ups. Its attributes are verified: each is within the record, and so are its name,
/// value and mapping pairs.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Its number.
    pub(super) number: u64,
    /// Its start in the volume.
    pub(super) place: u64,
    /// Its sequence number.
    pub(super) sequence: u16,
    /// Whether it belongs to a directory.
    pub(super) is_directory: bool,
    /// The reference of its base record; `None` if it is a base record.
    pub(super) base: Option<Reference>,
    bytes: Vec<u8>,
    first_attribute: usize,
    used: usize,
}

impl Record {
    /// Returns the record of `bytes`; `None` if it is not in use, as a record of zeros. Fails with the reason.
    pub(super) fn decode(number: u64, place: u64, mut bytes: Vec<u8>) -> Result<Option<Record>, &'static str> {
        if bytes.get(..4) != Some(&SIGNATURE) {
            return if bytes.iter().all(|byte| *byte == 0) { Ok(None) } else { Err("it has no signature") };
        }
        fixups::undo(&mut bytes)?;
        Record::decode_head(number, place, bytes).ok_or("its head is cut off")?
    }

    fn decode_head(number: u64, place: u64, bytes: Vec<u8>) -> Option<Result<Option<Record>, &'static str>> {
        let head = Bytes(&bytes);
        let flags = head.le16(22)?;
        if flags & FLAG_IN_USE == 0 {
            return Some(Ok(None));
        }
        let base = Some(Reference(head.le64(32)?)).filter(|base| base.0 != 0);
        let (sequence, first_attribute) = (head.le16(16)?, usize::from(head.le16(20)?));
        let used = usize::try_from(head.le32(24)?).ok()?;
        if used > bytes.len() {
            return Some(Err("it is longer than a record"));
        }
        let is_directory = flags & FLAG_DIRECTORY != 0;
        let record = Record { number, place, sequence, is_directory, base, bytes, first_attribute, used };
        Some(record.check_attributes().map(|()| Some(record)))
    }

    fn check_attributes(&self) -> Result<(), &'static str> {
        let mut at = self.first_attribute;
        while let Some((_, next)) = self.attribute_at(at)? {
            at = next;
        }
        Ok(())
    }

    /// Returns its length in bytes.
    pub(super) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Returns its attributes, in its order.
    pub(super) fn attributes(&self) -> impl Iterator<Item = Attribute<'_>> {
        let mut at = self.first_attribute;
        std::iter::from_fn(move || {
            let (attribute, next) = self.attribute_at(at).ok()??;
            at = next;
            Some(attribute)
        })
    }

    /// Returns the attribute at a byte of the record, and the start of the next one; `None` at the end.
    fn attribute_at(&self, at: usize) -> Result<Option<(Attribute<'_>, usize)>, &'static str> {
        let used = Bytes(&self.bytes).part(0, self.used).ok_or("it is longer than a record")?;
        let kind = used.le32(at).ok_or("its attributes have no end")?;
        if kind == TYPE_END {
            return Ok(None);
        }
        let length = used.le32(at + 4).and_then(|length| usize::try_from(length).ok());
        let attribute = length.filter(|length| *length >= 16).and_then(|length| used.part(at, length));
        let attribute = attribute.ok_or("an attribute has a wrong length")?;
        let decoded = Attribute::decode(kind, attribute, at).ok_or("an attribute makes no sense")?;
        Ok(Some((decoded, at + attribute.len())))
    }
}

/// An attribute of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribute<'r> {
    /// Its type.
    pub(super) kind: u32,
    /// Its name in UTF-16; usually empty.
    pub(super) name: &'r [u8],
    /// Encoding of its value.
    pub(super) coding: Coding,
    /// Its value, or the place of the value.
    pub(super) body: AttributeBody<'r>,
}

/// Place of the value of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) enum AttributeBody<'r> {
    /// In the record.
    Resident {
        /// Its offset in the record.
        offset: usize,
        /// The value.
        value: &'r [u8],
    },
    /// In separate clusters.
    Mapped(MappedPart<'r>),
}

/// A part of a stream in clusters.
#[derive(Clone, Copy, Debug)]
pub(super) struct MappedPart<'r> {
    /// The first cluster of the stream that it maps.
    pub(super) first: u64,
    /// The last one according to the attribute; [`NO_CLUSTER`] if it maps none.
    pub(super) last: u64,
    /// The mapping pairs.
    pub(super) pairs: &'r [u8],
    /// Bytes of the stream.
    pub(super) size_bytes: u64,
    /// Number of its bytes that were ever written; the others are zeros.
    pub(super) initialized_bytes: u64,
    /// Bytes of its clusters, with those of holes.
    pub(super) allocated_bytes: u64,
    /// Bytes that are really allocated.
    pub(super) stored_bytes: u64,
}

/// Encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coding(u16);

impl Coding {
    /// Returns whether it has compressed units.
    pub(super) fn is_compressed(self) -> bool {
        self.0 & COMPRESSED != 0
    }

    /// Returns whether it is encrypted.
    pub(super) fn is_encrypted(self) -> bool {
        self.0 & ENCRYPTED != 0
    }

    /// Returns whether it has holes.
    pub(super) fn is_sparse(self) -> bool {
        self.0 & SPARSE != 0
    }
}

impl<'r> Attribute<'r> {
    /// Returns whether it has this type and this name in UTF-16.
    pub(super) fn is(&self, kind: u32, name: &[u8]) -> bool {
        self.kind == kind && self.name == name
    }

    /// Returns its part of a stream, if it has this type and no name.
    pub(super) fn mapped(&self, kind: u32) -> Option<MappedPart<'r>> {
        match self.body {
            AttributeBody::Mapped(part) if self.is(kind, &[]) => Some(part),
            _ => None,
        }
    }

    /// Returns its value, if it is resident.
    pub(super) fn value(&self) -> Option<&'r [u8]> {
        match self.body {
            AttributeBody::Resident { value, .. } => Some(value),
            AttributeBody::Mapped(_) => None,
        }
    }

    fn decode(kind: u32, bytes: Bytes<'r>, at: usize) -> Option<Attribute<'r>> {
        let name_length = usize::from(bytes.u8(9)?) * 2;
        let name = if name_length == 0 { &[] } else { bytes.part(usize::from(bytes.le16(10)?), name_length)?.0 };
        let coding = Coding(bytes.le16(12)?);
        let body = if bytes.u8(8)? == 0 {
            let offset = usize::from(bytes.le16(20)?);
            let value = bytes.part(offset, usize::try_from(bytes.le32(16)?).ok()?)?.0;
            AttributeBody::Resident { offset: at + offset, value }
        } else {
            AttributeBody::Mapped(MappedPart::decode(bytes, coding)?)
        };
        Some(Attribute { kind, name, coding, body })
    }
}

impl<'r> MappedPart<'r> {
    fn decode(bytes: Bytes<'r>, coding: Coding) -> Option<MappedPart<'r>> {
        let has_stored = (coding.is_compressed() || coding.is_sparse()) && bytes.le64(16)? == 0;
        let allocated_bytes = bytes.le64(40)?;
        Some(MappedPart {
            first: bytes.le64(16)?,
            last: bytes.le64(24)?,
            pairs: bytes.from(usize::from(bytes.le16(32)?))?.0,
            size_bytes: bytes.le64(48)?,
            initialized_bytes: bytes.le64(56)?,
            allocated_bytes,
            stored_bytes: if has_stored { bytes.le64(64)? } else { allocated_bytes },
        })
    }
}
