//! Names: UTF-16 on the disk, UTF-8 here.
//!
//! NTFS accepts any 16-bit units. A surrogate without its other half, which UTF-8 cannot express, becomes the three
//! bytes that UTF-8 would have for it ("generalised UTF-8", as in WTF-8). So different names stay different.

use super::record::Reference;
use crate::bytes::Bytes;
use crate::filesystem::FileKind;

/// The name of one file in one directory, in the form of records and indexes.
///
/// | bytes | field |
/// |---|---|
/// | 0..8 | reference of the directory |
/// | 56..60 | flags of the file |
/// | 64, 65 | length of the name in units, name space |
/// | 66.. | the name |
#[derive(Clone, Copy, Debug)]
pub(super) struct FileName<'b> {
    /// The directory.
    pub(super) parent: Reference,
    /// The file's flags, as recorded in its directory.
    pub(super) flags: u32,
    /// Whether it is a second name that only DOS programs see.
    pub(super) is_dos: bool,
    /// The name in UTF-16.
    pub(super) units: Units<'b>,
}

const NAME_SPACE_DOS: u8 = 2;
const FLAG_REPARSE_POINT: u32 = 0x400;
/// A flag of directories that only names have.
const FLAG_DIRECTORY: u32 = 0x1000_0000;

impl<'b> FileName<'b> {
    /// Returns the name in `value`; `None` if it is truncated.
    pub(super) fn decode(value: Bytes<'b>) -> Option<FileName<'b>> {
        let length = usize::from(value.u8(64)?) * 2;
        Some(FileName {
            parent: Reference(value.le64(0)?),
            flags: value.le32(56)?,
            is_dos: value.u8(65)? == NAME_SPACE_DOS,
            units: Units(value.part(66, length)?.0),
        })
    }

    /// Returns the kind that the directory records; `None` for a reparse point, whose kind only the file contains.
    pub(super) fn kind(&self) -> Option<FileKind> {
        if self.flags & FLAG_REPARSE_POINT != 0 {
            None
        } else if self.flags & FLAG_DIRECTORY != 0 {
            Some(FileKind::Directory)
        } else {
            Some(FileKind::Regular)
        }
    }
}

/// A name in UTF-16: pairs of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units<'b>(pub(super) &'b [u8]);

impl<'b> Units<'b> {
    /// Returns its units.
    pub(super) fn iter(self) -> impl Iterator<Item = u16> + 'b {
        self.0.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair))
    }

    /// Returns it in UTF-8.
    pub(super) fn to_utf8(self) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.0.len());
        for decoded in char::decode_utf16(self.iter()) {
            match decoded {
                Ok(character) => name.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                Err(error) => name.extend_from_slice(&three_bytes(error.unpaired_surrogate())),
            }
        }
        name
    }
}

/// Returns the three bytes that UTF-8 would have for a surrogate.
fn three_bytes(unit: u16) -> [u8; 3] {
    let [low, middle, high] = [unit & 0x3f, unit >> 6 & 0x3f, unit >> 12].map(|bits| bits.to_le_bytes()[0]);
    [0xe0 | high, 0x80 | middle, 0x80 | low]
}

/// Returns a name in UTF-16; `None` if it is not in the form of [`Units::to_utf8`].
pub(super) fn from_utf8(name: &[u8]) -> Option<Vec<u16>> {
    let mut units = Vec::with_capacity(name.len());
    let mut rest = name;
    while !rest.is_empty() {
        let (valid, after) = match std::str::from_utf8(rest) {
            Ok(valid) => (valid, &[][..]),
            Err(error) => {
                let (valid, after) = rest.split_at_checked(error.valid_up_to())?;
                (std::str::from_utf8(valid).ok()?, after)
            }
        };
        units.extend(valid.encode_utf16());
        rest = after;
        if let Some((first, after)) = after.split_first_chunk::<3>() {
            units.push(surrogate(*first)?);
            rest = after;
        } else if !rest.is_empty() {
            return None;
        }
    }
    Some(units)
}

/// Returns the surrogate for three bytes.
fn surrogate([first, middle, last]: [u8; 3]) -> Option<u16> {
    let is_one = first == 0xed && (0xa0..=0xbf).contains(&middle) && (0x80..=0xbf).contains(&last);
    is_one.then(|| 0xd000 | u16::from(middle & 0x3f) << 6 | u16::from(last & 0x3f))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(units: &[u16]) -> Vec<u8> {
        units.iter().flat_map(|unit| unit.to_le_bytes()).collect()
    }

    #[test]
    fn every_name_comes_back_and_no_two_become_one() {
        let names: [&[u16]; 7] = [
            &[],
            &[0x61, 0xe4, 0x20ac, 0xfffd],
            &[0xd83d, 0xde00],
            &[0xd83d],
            &[0xde00, 0xd83d],
            &[0xd83d, 0x61, 0xdc00],
            &[0xd83d, 0xd83d, 0xde00],
        ];
        let mut all = std::collections::BTreeSet::new();
        for units in names {
            let name = Units(&bytes(units)).to_utf8();
            assert_eq!(from_utf8(&name).as_deref(), Some(units));
            assert!(all.insert(name));
        }
        assert_eq!(Units(&bytes(&[0x48, 0xd83d])).to_utf8(), [0x48, 0xed, 0xa0, 0xbd]);
    }

    #[test]
    fn other_bytes_are_no_name() {
        for name in [&b"\xff"[..], b"a\xe4", b"\xed\xa0", b"\xed\x80\xff", b"\xc0\x80\x80", b"a\xed\xa0\xbd\xff"] {
            assert_eq!(from_utf8(name), None, "{name:?}");
        }
    }
}
