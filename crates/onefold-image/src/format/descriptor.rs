//! The descriptor: identity, key and kind of units of an archive. A copy with the same bytes is stored beside it.
//!
//! | body   | field         | notes                                     |
//! |--------|---------------|-------------------------------------------|
//! | 0..32  | key           | of the names of units                     |
//! | 32..36 | kind of units | 1 along files, 2 at places of the disk    |
//! | 36..40 | unit          | maximum length in bytes                   |
//! | 40..48 | region        | length in bytes                           |

use super::FormatError;
use super::bytes::{Decoder, Encoder};
use super::frame::{Kind, disclose, enclose, numbered};
use super::pack::UNIT_BYTES_MAX;
use crate::{ArchiveId, SECTOR_BYTES, UnitKey};

/// Smallest value of a unit's maximum length, in bytes.
const UNIT_BYTES_MIN: u32 = 4 << 10;

/// Identity and parameters of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its identity.
    pub archive: ArchiveId,
    /// Key of the names of units.
    pub key: UnitKey,
    /// How disks are cut into units.
    pub units: UnitKind,
    /// Length of a region of the disk in bytes, a multiple of a sector. All units of a chunk begin in the same region.
    pub region_bytes: u64,
}

/// How an archive cuts disks into units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// Along the files of guests: a unit lies between two multiples of `unit_bytes` in its file. Blocks of no file are
    /// cut at multiples of 32 KiB of their volume.
    Files {
        /// Maximum length of a unit in bytes: a power of two from 4 KiB to 1 MiB.
        unit_bytes: u32,
    },
    /// At multiples of `unit_bytes` on the disk, as in the paper, section 2.2.
    Fixed {
        /// Length of a unit in bytes: a power of two from 4 KiB to 1 MiB.
        unit_bytes: u32,
    },
}

/// Default length of a region in bytes.
pub const REGION_BYTES: u64 = 64 << 20;

/// Maximum length of a region in bytes.
const REGION_BYTES_MAX: u64 = 1 << 40;

impl UnitKind {
    /// Returns the maximum length of its units in bytes.
    #[must_use]
    pub fn unit_bytes(self) -> u32 {
        match self {
            UnitKind::Files { unit_bytes } | UnitKind::Fixed { unit_bytes } => unit_bytes,
        }
    }

    /// Returns whether an archive may have this length of units.
    pub(crate) fn is_valid(self) -> bool {
        self.unit_bytes().is_power_of_two() && (UNIT_BYTES_MIN..=UNIT_BYTES_MAX).contains(&self.unit_bytes())
    }

    pub(super) fn encode(self, encoder: &mut Encoder) {
        let code = match self {
            UnitKind::Files { .. } => 1,
            UnitKind::Fixed { .. } => 2,
        };
        encoder.u32(code).u32(self.unit_bytes());
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<UnitKind, FormatError> {
        let (code, unit_bytes) = (decoder.u32()?, decoder.u32()?);
        let kind = match code {
            1 => UnitKind::Files { unit_bytes },
            2 => UnitKind::Fixed { unit_bytes },
            _ => return Err(decoder.wrong("units of an unknown kind")),
        };
        if kind.is_valid() { Ok(kind) } else { Err(decoder.wrong("units of an impossible length")) }
    }
}

/// Returns whether regions may have this length.
pub(super) fn is_region(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(SECTOR_BYTES) && bytes <= REGION_BYTES_MAX
}

impl Descriptor {
    /// Encodes the object that describes the archive. The copy has the same bytes.
    ///
    /// # Errors
    /// When a length is invalid.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let structure = Kind::Descriptor.structure();
        if !self.units.is_valid() || !is_region(self.region_bytes) {
            return Err(FormatError::Value { structure, what: "an impossible length" });
        }
        let mut body = Encoder::default();
        body.bytes(&self.key.0);
        self.units.encode(&mut body);
        body.u64(self.region_bytes);
        Ok(enclose(Kind::Descriptor, self.archive, numbered(0), &body.0))
    }

    /// Decodes a descriptor from an object.
    ///
    /// # Errors
    /// When the object is not a valid descriptor.
    pub fn decode(object: &[u8]) -> Result<Descriptor, FormatError> {
        let (archive, body) = disclose(Kind::Descriptor, numbered(0), object)?;
        let mut decoder = Decoder::new(Kind::Descriptor.structure(), body);
        let key = UnitKey(decoder.array()?);
        let units = UnitKind::decode(&mut decoder)?;
        let region_bytes = decoder.u64()?;
        if !is_region(region_bytes) {
            return Err(decoder.wrong("regions of an impossible length"));
        }
        decoder.end()?;
        Ok(Descriptor { archive, key, units, region_bytes })
    }
}
