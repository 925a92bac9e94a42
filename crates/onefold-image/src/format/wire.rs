//! The wire format of served images: what a server sends beside the objects of the archive, which it sends as they are.
//!
//! | message          | content                                                                              |
//! |------------------|--------------------------------------------------------------------------------------|
//! | units            | stored units one after the other, each as in a pack: a header of 16 bytes, then its bytes |
//! | chunk            | units: the chunk's header, then each unit that it names, once, in the order of first mention |
//! | request of units | names of 32 bytes each, from 1 to 1024                                               |
//! | answer to it     | units in the order of the names. It may end early, but has at least one              |
//!
//! A name vouches for its unit, so nothing else is signed or counted here.

use super::FormatError;
use super::chunk_header::ChunkHeader;
use super::pack::{UNIT_HEADER_BYTES, UnitHeader};
use crate::UnitName;

/// Maximum length of a chunk in bytes. A capture cuts chunks at 1 MiB of stored units, which may be stored in a longer
/// form later.
pub const CHUNK_BYTES_MAX: usize = 4 << 20;
/// Maximum number of names in a request of units.
pub const NAMES_MAX: usize = 1024;
/// Maximum length of the answer to a request of units, in bytes.
pub const UNITS_BYTES_MAX: usize = 4 << 20;

/// Name of the structure in errors.
const STRUCTURE: &str = "message of units";
const NAME_BYTES: usize = 32;

/// Splits the bytes of a message into stored units. Ends after the first error.
#[derive(Clone, Debug)]
pub struct StoredUnits<'a> {
    rest: &'a [u8],
}

impl<'a> StoredUnits<'a> {
    /// Returns the units of a message.
    #[must_use]
    pub fn of(message: &'a [u8]) -> StoredUnits<'a> {
        StoredUnits { rest: message }
    }
}

impl<'a> Iterator for StoredUnits<'a> {
    type Item = Result<(UnitHeader, &'a [u8]), FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        let message = std::mem::take(&mut self.rest);
        if message.is_empty() {
            return None;
        }
        let truncated = || FormatError::Length { structure: STRUCTURE };
        let unit = || {
            let (header, behind) = message.split_at_checked(UNIT_HEADER_BYTES as usize).ok_or_else(truncated)?;
            let header = UnitHeader::decode(header)?;
            let (stored, rest) = behind.split_at_checked(header.stored_bytes as usize).ok_or_else(truncated)?;
            Ok((header, stored, rest))
        };
        Some(unit().map(|(header, stored, rest)| {
            self.rest = rest;
            (header, stored)
        }))
    }
}

/// Returns the names of the units of a chunk in the order in which the chunk has them.
#[must_use]
pub fn units_of(header: &ChunkHeader) -> Vec<(UnitName, u32)> {
    let mut known = std::collections::HashSet::with_capacity(header.units.len());
    let first = header.units.iter().filter(|unit| known.insert(unit.name));
    first.map(|unit| (unit.name, unit.plain_bytes)).collect()
}

/// Encodes a request of units.
///
/// # Panics
/// When there are no names, or too many.
#[must_use]
pub fn encode_names(names: &[UnitName]) -> Vec<u8> {
    assert!((1..=NAMES_MAX).contains(&names.len()), "a request has 1 to {NAMES_MAX} names");
    names.iter().flat_map(|name| name.0).collect()
}

/// Decodes a request of units.
///
/// # Errors
/// When it is none.
pub fn decode_names(request: &[u8]) -> Result<Vec<UnitName>, FormatError> {
    let (names, rest) = request.as_chunks::<NAME_BYTES>();
    if !rest.is_empty() || !(1..=NAMES_MAX).contains(&names.len()) {
        return Err(FormatError::Length { structure: "request of units" });
    }
    Ok(names.iter().map(|name| UnitName(*name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SectorRun;
    use crate::format::chunk_header::PlacedUnit;
    use crate::format::pack::Codec;

    fn stored(bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).unwrap();
        let header = UnitHeader { codec: Codec::Plain, stored_bytes: length, plain_bytes: length };
        [&header.encode()[..], bytes].concat()
    }

    #[test]
    fn a_message_is_split_into_its_units() {
        let message = [stored(b"one"), stored(b"another")].concat();
        let units: Vec<&[u8]> = StoredUnits::of(&message).map(|unit| unit.unwrap().1).collect();
        assert_eq!(units, [&b"one"[..], b"another"]);
        assert!(StoredUnits::of(b"").next().is_none());
    }

    #[test]
    fn a_message_that_is_cut_or_changed_ends_with_an_error() {
        let message = [stored(b"one"), stored(b"another")].concat();
        for end in 1..message.len() {
            let units: Vec<bool> = StoredUnits::of(&message[..end]).map(|unit| unit.is_ok()).collect();
            let expected = if end == 19 {
                vec![true]
            } else if end > 19 {
                vec![true, false]
            } else {
                vec![false]
            };
            assert_eq!(units, expected, "{end}");
        }
        for changed in [0, 1, 4, 8, 12, 15] {
            let mut message = message.clone();
            message[changed] ^= 0x80;
            assert!(StoredUnits::of(&message).any(|unit| unit.is_err()), "byte {changed}");
        }
    }

    #[test]
    fn a_chunk_has_each_unit_once() {
        let unit = |name: u8, start: u64| PlacedUnit {
            name: UnitName([name; 32]),
            plain_bytes: 512,
            runs: vec![SectorRun { start, count: 1 }],
        };
        let header = ChunkHeader { region: 0, units: vec![unit(2, 0), unit(1, 1), unit(2, 2)], zeros: Vec::new() };
        assert_eq!(units_of(&header), [(UnitName([2; 32]), 512), (UnitName([1; 32]), 512)]);
    }

    #[test]
    fn requests_have_whole_names_and_not_too_many() {
        let names: Vec<UnitName> = (0..200).map(|name| UnitName([name; 32])).collect();
        assert_eq!(decode_names(&encode_names(&names)).unwrap(), names);
        for length in [0, 1, 31, 33, 32 * NAMES_MAX + 32] {
            assert!(decode_names(&vec![1; length]).is_err(), "{length}");
        }
        assert_eq!(decode_names(&[1; 32 * NAMES_MAX]).unwrap().len(), NAMES_MAX);
    }
}
