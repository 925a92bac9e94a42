//! Names of FAT: the eight plus three bytes of the DOS name, and the long name in the records before it.
//!
//! | record of a long name | field |
//! |---|---|
//! | 0 | number of the part, from 1; bit 6 in the last part, which comes first |
//! | 1..11, 14..26, 28..32 | 13 units of UTF-16; a zero ends the name |
//! | 11, 13 | attributes: 0x0f; checksum of the DOS name |

use crate::bytes::Bytes;

const PARTS_MAX: usize = 20;
const PART_UNITS: usize = 13;
const LAST_PART: u8 = 0x40;
const PART_NUMBER: u8 = 0x1f;
/// Bits of byte 12 of a record: base and extension are displayed in lower case.
const LOWER_BASE: u8 = 0x08;
const LOWER_EXTENSION: u8 = 0x10;
/// Replaces a first byte of 0xe5 in a name, because 0xe5 marks a deleted record.
const ESCAPED_E5: u8 = 0x05;

/// The characters for bytes from 0x80 on in DOS names: code page 437, the default of Linux.
const CODE_PAGE: [char; 128] = [
    'Ç', 'ü', 'é', 'â', 'ä', 'à', 'å', 'ç', 'ê', 'ë', 'è', 'ï', 'î', 'ì', 'Ä', 'Å', 'É', 'æ', 'Æ', 'ô', 'ö', 'ò', 'û',
    'ù', 'ÿ', 'Ö', 'Ü', '¢', '£', '¥', '₧', 'ƒ', 'á', 'í', 'ó', 'ú', 'ñ', 'Ñ', 'ª', 'º', '¿', '⌐', '¬', '½', '¼', '¡',
    '«', '»', '░', '▒', '▓', '│', '┤', '╡', '╢', '╖', '╕', '╣', '║', '╗', '╝', '╜', '╛', '┐', '└', '┴', '┬', '├', '─',
    '┼', '╞', '╟', '╚', '╔', '╩', '╦', '╠', '═', '╬', '╧', '╨', '╤', '╥', '╙', '╘', '╒', '╓', '╫', '╪', '┘', '┌', '█',
    '▄', '▌', '▐', '▀', 'α', 'ß', 'Γ', 'π', 'Σ', 'σ', 'µ', 'τ', 'Φ', 'Θ', 'Ω', 'δ', '∞', 'φ', 'ε', '∩', '≡', '±', '≥',
    '≤', '⌠', '⌡', '÷', '≈', '°', '∙', '·', '√', 'ⁿ', '²', '■', '\u{a0}',
];

/// A DOS name in its stored form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortName {
    bytes: [u8; 11],
    case: u8,
}

impl ShortName {
    /// Returns the name in a record.
    pub(super) fn decode(record: Bytes<'_>) -> Option<ShortName> {
        Some(ShortName { bytes: record.array(0)?, case: record.u8(12)? })
    }

    /// Returns the name as Linux and Windows display it, in UTF-8.
    pub(super) fn shown(&self) -> Vec<u8> {
        let (base, extension) = self.bytes.split_at(8);
        let mut name = part(base, self.case & LOWER_BASE != 0);
        let extension = part(extension, self.case & LOWER_EXTENSION != 0);
        if !extension.is_empty() {
            name.push('.');
            name.push_str(&extension);
        }
        name.into_bytes()
    }

    /// Returns the checksum, which the records of the long name repeat.
    fn checksum(&self) -> u8 {
        self.bytes.iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte))
    }
}

/// Returns a part of a DOS name without its trailing blanks.
fn part(bytes: &[u8], is_lower: bool) -> String {
    let length = bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    let characters = bytes.iter().take(length).enumerate().map(|(at, byte)| match *byte {
        ESCAPED_E5 if at == 0 => character(0xe5),
        byte => character(byte),
    });
    if is_lower { characters.flat_map(char::to_lowercase).collect() } else { characters.collect() }
}

fn character(byte: u8) -> char {
    byte.checked_sub(0x80).and_then(|above| CODE_PAGE.get(usize::from(above)).copied()).unwrap_or(char::from(byte))
}

/// A long name of which some parts were read, the last one first.
#[derive(Debug, Default)]
pub(super) struct LongName {
    /// In the order of the name. Units of parts that were not read yet are missing at the start.
    units: Vec<u16>,
    /// The number of the last part that was read; 0 if there is none.
    part: u8,
    checksum: u8,
}

impl LongName {
    /// Takes the next record of a long name. A record that does not follow the last one begins a new name, or ends the
    /// name.
    pub(super) fn add(&mut self, record: Bytes<'_>) {
        if self.add_part(record).is_none() {
            *self = LongName::default();
        }
    }

    fn add_part(&mut self, record: Bytes<'_>) -> Option<()> {
        let (number, checksum) = (record.u8(0)?, record.u8(13)?);
        let part = number & PART_NUMBER;
        if number & LAST_PART != 0 {
            *self = LongName { units: Vec::new(), part: part.checked_add(1)?, checksum };
        }
        let follows = part > 0 && part + 1 == self.part && checksum == self.checksum;
        if !follows || usize::from(part) > PARTS_MAX {
            return None;
        }
        let mut units = Vec::with_capacity(PART_UNITS + self.units.len());
        for (at, length) in [(1, 10), (14, 12), (28, 4)] {
            units.extend(record.part(at, length)?.0.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit)));
        }
        units.append(&mut self.units);
        (self.units, self.part) = (units, part);
        Some(())
    }

    /// Returns the long name for the record that follows, in UTF-8, and clears it; `None` if there is none, or it
    /// belongs to another record. Half of a surrogate pair is encoded like a character.
    pub(super) fn take_for(&mut self, short: &ShortName) -> Option<Vec<u8>> {
        let name = std::mem::take(self);
        let is_its_own = name.part == 1 && name.checksum == short.checksum();
        let units = name.units.split(|unit| *unit == 0).next().filter(|units| is_its_own && !units.is_empty())?;
        Some(utf8(units))
    }
}

fn utf8(units: &[u16]) -> Vec<u8> {
    let mut name = Vec::with_capacity(units.len());
    for character in char::decode_utf16(units.iter().copied()) {
        match character {
            Ok(character) => name.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(half) => {
                let [high, low] = half.unpaired_surrogate().to_be_bytes();
                // Three bytes of UTF-8 for 16 bits: 1110xxxx 10xxxxxx 10xxxxxx.
                name.extend([0xe0 | (high >> 4), 0x80 | ((high & 0xf) << 2) | (low >> 6), 0x80 | (low & 0x3f)]);
            }
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u8, checksum: u8, text: &str) -> [u8; 32] {
        let mut record = [0xff; 32];
        (record[0], record[11], record[13]) = (number, 0x0f, checksum);
        let mut units: Vec<u16> = text.encode_utf16().collect();
        if units.len() < 13 {
            units.push(0);
        }
        let places = (1..11).chain(14..26).chain(28..32).step_by(2);
        for (at, unit) in places.zip(units) {
            record[at..at + 2].copy_from_slice(&unit.to_le_bytes());
        }
        record
    }

    fn short(bytes: &[u8; 11], case: u8) -> ShortName {
        ShortName { bytes: *bytes, case }
    }

    #[test]
    fn dos_names_are_shown_with_their_case_and_characters() {
        for (bytes, case, shown) in [
            (b"README  TXT", 0, "README.TXT"),
            (b"README  TXT", 0x18, "readme.txt"),
            (b"README  TXT", 0x08, "readme.TXT"),
            (b"A B        ", 0, "A B"),
            (b"\x05\x82\x9a     \x80  ", 0x10, "\u{3c3}\u{e9}\u{dc}.\u{e7}"),
        ] {
            assert_eq!(String::from_utf8(short(bytes, case).shown()).unwrap(), shown);
        }
    }

    #[test]
    fn a_long_name_needs_all_its_parts_in_order_and_the_checksum() {
        let dos = short(b"ALONGN~1TXT", 0);
        let sum = dos.checksum();
        let (last, first) = (record(0x42, sum, "e.txt"), record(1, sum, "a long name o"));
        let take = |records: &[[u8; 32]]| {
            let mut name = LongName::default();
            records.iter().for_each(|record| name.add(Bytes(record)));
            name.take_for(&dos)
        };
        assert_eq!(take(&[last, first]).unwrap(), b"a long name oe.txt");
        assert_eq!(take(&[first, last, first]).unwrap(), b"a long name oe.txt");
        assert_eq!(take(&[last, last, first]).unwrap(), b"a long name oe.txt");
        for records in [&[last][..], &[first], &[last, first, first], &[], &[record(0x42, sum ^ 1, "e"), first]] {
            assert_eq!(take(records), None);
        }
        assert_eq!(take(&[record(0x5f, sum, "x")]), None);
        assert_eq!(take(&[record(0x40, sum, "x")]), None);
    }

    #[test]
    fn half_a_surrogate_pair_stays_apart_from_other_names() {
        assert_eq!(utf8(&[0x61, 0xd83d, 0xde00]), "a\u{1f600}".as_bytes());
        assert_eq!(utf8(&[0xd83d, 0x62]), b"\xed\xa0\xbdb");
    }
}
