//! Packs: compressed units, and a table of their places.
//!
//! | field  | type                                                                                              |
//! |--------|---------------------------------------------------------------------------------------------------|
//! | frame  | 64 bytes                                                                                          |
//! | units  | each a header of 16 bytes, and its stored bytes                                                   |
//! | table  | for each unit, name of 32 bytes, stored bytes u32, plain bytes u32                                |
//! | footer | bytes of the table u32, its offset u32, CRC-32C of all units with headers u32, needs              |
//! | digest | BLAKE3 of frame, table and footer                                                                 |
//!
//! Needs are version u16 and features u16 of the frame once more, as the table is read from the end of the pack. Its
//! digest vouches for the table without the units, in all versions. A unit's name vouches for the unit. The CRC finds
//! changed bytes that mean nothing to any unit.
//!
//! | header | field        | notes                                        |
//! |--------|--------------|----------------------------------------------|
//! | 0      | codec        | 0 plain, 1 Zstandard                         |
//! | 1      | seal         | 0                                            |
//! | 2..4   |              | 0                                            |
//! | 4..8   | dictionary   | 0                                            |
//! | 8..12  | stored bytes | at most plain bytes; equal if plain          |
//! | 12..16 | plain bytes  | 1 to 2^20                                    |
//!
//! A pack with another codec, seal or dictionary says so in its features: the header alone cannot tell a newer unit
//! from a damaged one.

use super::FormatError;
use super::bytes::{Decoder, Encoder};
use super::frame::{DIGEST_BYTES, FRAME_BYTES, Kind, Needs, VERSION, check_frame, frame};
use crate::{ArchiveId, ObjectId, UnitName};

/// Maximum length of the plain bytes of a unit.
pub const UNIT_BYTES_MAX: u32 = 1 << 20;
/// Length at which a pack is finished. A writer with little memory finishes it sooner.
pub const PACK_BYTES: u64 = 32 << 20;
/// Maximum length of a pack in bytes.
pub const PACK_BYTES_MAX: u64 = 64 << 20;

/// How the bytes of a unit are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Uncompressed.
    Plain,
    /// One frame of Zstandard.
    Zstd,
}

/// Header in front of a stored unit, 16 bytes: codec, seal (0), dictionary (0), stored and plain length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitHeader {
    /// How it is stored.
    pub codec: Codec,
    /// Bytes that are stored behind this header, at most `plain_bytes`.
    pub stored_bytes: u32,
    /// Length of its plain bytes, from 1 to 1 MiB.
    pub plain_bytes: u32,
}

/// Length of a [`UnitHeader`] in bytes.
pub const UNIT_HEADER_BYTES: u32 = 16;

/// Offset of the first unit of a pack, in bytes: units begin behind the frame.
pub const UNITS_OFFSET: u32 = 64;
const _: () = assert!(UNITS_OFFSET as usize == FRAME_BYTES);

/// An entry of a pack's table: a unit and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The unit.
    pub name: UnitName,
    /// Offset of its header in the pack, in bytes.
    pub offset: u32,
    /// Bytes that are stored behind the header.
    pub stored_bytes: u32,
    /// Length of its plain bytes.
    pub plain_bytes: u32,
}

/// Bytes of an entry of the table: name, stored and plain length.
const ENTRY_BYTES: usize = 32 + 4 + 4;
/// Bytes behind the table: its length, its offset, CRC-32C of all bytes between frame and table, version, features, and
/// the digest of frame, table and these.
const FOOTER_BYTES: usize = 16 + DIGEST_BYTES;
impl UnitHeader {
    /// Encodes the header.
    #[must_use]
    pub fn encode(self) -> [u8; UNIT_HEADER_BYTES as usize] {
        let mut encoder = Encoder::default();
        let codec = match self.codec {
            Codec::Plain => 0,
            Codec::Zstd => 1,
        };
        encoder.u8(codec).u8(0).u16(0).u32(0).u32(self.stored_bytes).u32(self.plain_bytes);
        encoder.0.try_into().expect("a header has 16 bytes")
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// When the bytes are not a valid header.
    pub fn decode(bytes: &[u8]) -> Result<UnitHeader, FormatError> {
        let mut decoder = Decoder::new("header of a unit", bytes);
        let codec = match decoder.u8()? {
            0 => Codec::Plain,
            1 => Codec::Zstd,
            _ => return Err(decoder.wrong("a unit that is stored in an unknown way")),
        };
        decoder.zeros::<7>()?;
        let header = UnitHeader { codec, stored_bytes: decoder.u32()?, plain_bytes: decoder.u32()? };
        decoder.end()?;
        if header.is_valid() { Ok(header) } else { Err(decoder.wrong("a unit of an impossible length")) }
    }

    /// Returns whether its lengths are possible: a unit that does not get shorter is stored plain.
    #[must_use]
    pub fn is_valid(self) -> bool {
        are_lengths(self.stored_bytes, self.plain_bytes)
            && (self.codec == Codec::Zstd || self.stored_bytes == self.plain_bytes)
    }
}

/// Returns whether a unit may have these lengths.
fn are_lengths(stored_bytes: u32, plain_bytes: u32) -> bool {
    plain_bytes <= UNIT_BYTES_MAX && (1..=plain_bytes).contains(&stored_bytes)
}

/// A pack that is being built in memory.
#[derive(Debug)]
pub struct PackBuilder {
    bytes: Vec<u8>,
    table: Vec<TableEntry>,
}

impl PackBuilder {
    /// Returns an empty pack.
    #[must_use]
    pub fn new(archive: ArchiveId, id: ObjectId) -> PackBuilder {
        PackBuilder::in_buffer(archive, id, Vec::new())
    }

    /// Returns an empty pack in a buffer, whose content is dropped. A buffer of an earlier pack costs neither copies
    /// while the pack grows nor new pages.
    #[must_use]
    pub fn in_buffer(archive: ArchiveId, id: ObjectId, mut buffer: Vec<u8>) -> PackBuilder {
        buffer.clear();
        buffer.extend_from_slice(&frame(Kind::Pack, Needs::KNOWN, archive, id, 0));
        PackBuilder { bytes: buffer, table: Vec::new() }
    }

    /// Returns whether another unit with this many stored bytes fits.
    #[must_use]
    pub fn fits(&self, stored_bytes: u32) -> bool {
        let unit = u64::from(UNIT_HEADER_BYTES) + u64::from(stored_bytes) + ENTRY_BYTES as u64;
        let bytes = self.bytes.len() + self.table.len() * ENTRY_BYTES + FOOTER_BYTES;
        bytes as u64 + unit <= PACK_BYTES_MAX
    }

    /// Returns its length so far, in bytes.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns whether it has no unit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Adds a unit that fits, and returns its place.
    ///
    /// # Panics
    /// When the unit does not fit, or the header states another length than that of `stored`.
    pub fn add(&mut self, name: UnitName, header: UnitHeader, stored: &[u8]) -> TableEntry {
        assert!(header.is_valid() && header.stored_bytes as usize == stored.len(), "a unit has the length it says");
        assert!(self.fits(header.stored_bytes), "a unit fits");
        let UnitHeader { stored_bytes, plain_bytes, .. } = header;
        let entry = TableEntry { name, offset: place(self.bytes.len()), stored_bytes, plain_bytes };
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(stored);
        self.table.push(entry);
        entry
    }

    /// Returns the complete pack, and its table.
    #[must_use]
    pub fn finish(self) -> (Vec<u8>, Vec<TableEntry>) {
        let PackBuilder { bytes, table } = self;
        let table_offset = bytes.len();
        let mut encoder = Encoder(bytes);
        for entry in &table {
            encoder.bytes(&entry.name.0).u32(entry.stored_bytes).u32(entry.plain_bytes);
        }
        let checksum = crc32c::crc32c(&encoder.0[FRAME_BYTES..table_offset]);
        encoder.u32(place(table.len() * ENTRY_BYTES)).u32(place(table_offset)).u32(checksum).u16(VERSION).u16(0);
        let mut bytes = encoder.0;
        let length = (bytes.len() + DIGEST_BYTES) as u64;
        bytes[FRAME_BYTES - 8..FRAME_BYTES].copy_from_slice(&length.to_le_bytes());
        let digest = table_digest(&bytes[..FRAME_BYTES], &bytes[table_offset..]);
        bytes.extend_from_slice(&digest);
        (bytes, table)
    }
}

/// Returns an offset in a pack as the type of its fields.
fn place(offset: usize) -> u32 {
    u32::try_from(offset).expect("a pack is shorter than 4 GiB")
}

/// Returns the digest of a frame and of a table with its footer.
fn table_digest(frame: &[u8], table: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(frame).update(table);
    *hasher.finalize().as_bytes()
}

/// Content of the last bytes of a pack.
#[derive(Debug, PartialEq, Eq)]
pub enum Tail {
    /// The complete table, in the order of offsets.
    Table(Vec<TableEntry>),
    /// The table is longer: it is within this many last bytes.
    Longer(u64),
}

/// Decodes the last bytes of a pack. Checks frame and table, but not the units.
///
/// # Errors
/// When the bytes are not the end of this pack.
pub fn decode_tail(archive: ArchiveId, id: ObjectId, tail: &[u8]) -> Result<Tail, FormatError> {
    let structure = Kind::Pack.structure();
    let content = tail.len().checked_sub(FOOTER_BYTES).ok_or(FormatError::Length { structure })?;
    let mut footer = Decoder::new(structure, &tail[content..]);
    let (table_bytes, table_offset, _) = (footer.u32()?, footer.u32()?, footer.u32()?);
    let needs = Needs { version: footer.u16()?, features: u32::from(footer.u16()?) };
    let wanted = u64::from(table_bytes) + FOOTER_BYTES as u64;
    let length = u64::from(table_offset) + wanted;
    if length > PACK_BYTES_MAX || (table_offset as usize) < FRAME_BYTES {
        return Err(footer.wrong("its table lies outside of it"));
    }
    if wanted > tail.len() as u64 {
        return Ok(Tail::Longer(wanted));
    }
    let start = tail.len() - usize::try_from(wanted).expect("no more than the tail has");
    let frame = frame(Kind::Pack, needs, archive, id, length);
    if table_digest(&frame, &tail[start..tail.len() - DIGEST_BYTES])[..] != tail[tail.len() - DIGEST_BYTES..] {
        return Err(FormatError::Digest { structure });
    }
    needs.check(structure)?;
    decode_table(Decoder::new(structure, &tail[start..content]), table_offset).map(Tail::Table)
}

/// Returns the entries of a table whose units end at `table_offset`.
fn decode_table(mut table: Decoder<'_>, table_offset: u32) -> Result<Vec<TableEntry>, FormatError> {
    let entries = table.left() / ENTRY_BYTES;
    let mut decoded = Vec::with_capacity(entries);
    let mut offset = FRAME_BYTES as u64;
    for _ in 0..entries {
        let (name, stored_bytes, plain_bytes) = (UnitName(table.array()?), table.u32()?, table.u32()?);
        if !are_lengths(stored_bytes, plain_bytes) || offset >= u64::from(table_offset) {
            return Err(table.wrong("a unit of an impossible length"));
        }
        let at = u32::try_from(offset).expect("below the offset of the table");
        decoded.push(TableEntry { name, offset: at, stored_bytes, plain_bytes });
        offset += u64::from(UNIT_HEADER_BYTES) + u64::from(stored_bytes);
    }
    if offset != u64::from(table_offset) {
        return Err(table.wrong("its units end elsewhere"));
    }
    table.end()?;
    Ok(decoded)
}

/// Returns the length of the pack that has this table, in bytes.
#[must_use]
pub fn length_of(table: &[TableEntry]) -> u64 {
    (FRAME_BYTES + FOOTER_BYTES) as u64 + table.iter().map(|entry| cost_of(entry.stored_bytes)).sum::<u64>()
}

/// Returns the length of the table of this many units and what follows it, in bytes.
#[must_use]
pub fn tail_bytes(units: usize) -> u64 {
    (units * ENTRY_BYTES + FOOTER_BYTES) as u64
}

/// Returns how many bytes of a pack a unit with this many stored bytes takes, with its header and its entry in the
/// table.
#[must_use]
pub fn cost_of(stored_bytes: u32) -> u64 {
    u64::from(UNIT_HEADER_BYTES) + u64::from(stored_bytes) + ENTRY_BYTES as u64
}

/// A whole pack that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Its table, in the order of offsets.
    pub table: Vec<TableEntry>,
    /// Whether all bytes of units are unchanged. If not, the names tell which unit is damaged. Possibly none is,
    /// because a frame of Zstandard has bits without meaning.
    pub is_unchanged: bool,
}

/// Decodes a whole pack. The caller must verify the units.
///
/// # Errors
/// When the object is not a valid pack, or is another one.
pub fn decode_pack(archive: ArchiveId, id: ObjectId, object: &[u8]) -> Result<Pack, FormatError> {
    let structure = Kind::Pack.structure();
    let (of, needs) = check_frame(Kind::Pack, id, object)?;
    if of != archive {
        return Err(FormatError::Other { structure, what: "its archive" });
    }
    let Tail::Table(table) = decode_tail(archive, id, object)? else {
        return Err(FormatError::Length { structure });
    };
    if length_of(&table) != object.len() as u64 {
        return Err(FormatError::Length { structure });
    }
    if needs != Needs::KNOWN {
        // The frame has something else than the footer.
        return Err(FormatError::Digest { structure });
    }
    let table_offset = object.len() - FOOTER_BYTES - table.len() * ENTRY_BYTES;
    let checksum = Decoder::new(structure, &object[object.len() - FOOTER_BYTES + 8..]).u32()?;
    let is_unchanged = crc32c::crc32c(&object[FRAME_BYTES..table_offset]) == checksum;
    Ok(Pack { table, is_unchanged })
}
