//! Entries of the index, as stored in a shard: in order of their digests, at most one for each.
//!
//! | bytes  | field  | notes                                                                          |
//! |--------|--------|--------------------------------------------------------------------------------|
//! | 0..12  | digest |                                                                                |
//! | 12..17 | place  | big-endian; the top bit tells whether the rest is a slot, or a block of a file |
//! | 17..21 | file   | only if the place is a block: the file's number, little-endian                |
//!
//! So an entry has 17 or 21 bytes; DeDe's have 22 and 30 (section 4.1).

use super::{FileBlock, FileNo, FingerprintPrefix, FormatError, Slot};

/// Maximum length of an entry, in bytes.
pub(crate) const ENTRY_BYTES_MAX: usize = UNIQUE_BYTES;
const SHARED_BYTES: usize = 17;
const UNIQUE_BYTES: usize = 21;
const SHARED: u8 = 1 << 7;

/// The index's entry for a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContentEntry {
    /// Its digest.
    pub digest: FingerprintPrefix,
    /// The place where it can be found.
    pub place: ContentPlace,
}

/// Where a content can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentPlace {
    /// At one place of an image, as last seen. It may have been overwritten since.
    Unique(FileNo, FileBlock),
    /// In an arena slot, where nobody overwrites it.
    Shared(Slot),
}

impl ContentEntry {
    /// Appends the entry's bytes.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.digest.0);
        let (number, flag) = match self.place {
            ContentPlace::Unique(_, FileBlock(block)) => (block, 0),
            ContentPlace::Shared(slot) => (slot.number(), SHARED),
        };
        let mut place = number.to_be_bytes();
        place[3] |= flag;
        into.extend_from_slice(&place[3..]);
        if let ContentPlace::Unique(FileNo(file), _) = self.place {
            into.extend_from_slice(&file.to_le_bytes());
        }
    }

    /// Returns the first entry in these bytes, and its length; `None` at their end.
    ///
    /// # Errors
    /// `Damaged` if they end within an entry.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Option<(ContentEntry, usize)>, FormatError> {
        const CUT: FormatError = FormatError::Damaged("an entry of the index ends too early");
        if bytes.is_empty() {
            return Ok(None);
        }
        let (digest, rest) = bytes.split_first_chunk().ok_or(CUT)?;
        let (place, rest) = rest.split_first_chunk::<5>().ok_or(CUT)?;
        let mut number = [0; 8];
        number[3..].copy_from_slice(place);
        number[3] &= !SHARED;
        let number = u64::from_be_bytes(number);
        if place[0] & SHARED != 0 {
            let slot = Slot::from_number(number).ok_or(CUT)?;
            return Ok(Some((
                ContentEntry { digest: FingerprintPrefix(*digest), place: ContentPlace::Shared(slot) },
                SHARED_BYTES,
            )));
        }
        let (file, _) = rest.split_first_chunk().ok_or(CUT)?;
        let place = ContentPlace::Unique(FileNo(u32::from_le_bytes(*file)), FileBlock(number));
        Ok(Some((ContentEntry { digest: FingerprintPrefix(*digest), place }, UNIQUE_BYTES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> [ContentEntry; 4] {
        let digest = |byte| FingerprintPrefix([byte; 12]);
        [
            ContentEntry {
                digest: digest(1),
                place: ContentPlace::Unique(FileNo(0x0102_0304), FileBlock(0x05_0607_0809)),
            },
            ContentEntry { digest: digest(2), place: ContentPlace::Shared(Slot::from_number(0x0a_0b0c_0d0e).unwrap()) },
            ContentEntry {
                digest: digest(3),
                place: ContentPlace::Unique(FileNo(u32::MAX), FileBlock(FileBlock::LIMIT - 1)),
            },
            ContentEntry {
                digest: digest(255),
                place: ContentPlace::Shared(Slot::from_number(Slot::LIMIT - 1).unwrap()),
            },
        ]
    }

    #[test]
    fn entries_have_the_bytes_that_the_table_says() {
        let mut bytes = Vec::new();
        entries()[..2].iter().for_each(|entry| entry.encode(&mut bytes));
        let mut expected = vec![1; 12];
        expected.extend([5, 6, 7, 8, 9, 4, 3, 2, 1]);
        expected.extend([2; 12]);
        expected.extend([0x8a, 0x0b, 0x0c, 0x0d, 0x0e]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn entries_survive_their_encoding() {
        let mut bytes = Vec::new();
        entries().iter().for_each(|entry| entry.encode(&mut bytes));
        let mut rest = &bytes[..];
        for expected in entries() {
            let (entry, length) = ContentEntry::decode(rest).unwrap().unwrap();
            assert_eq!(entry, expected);
            rest = &rest[length..];
        }
        assert!(ContentEntry::decode(rest).unwrap().is_none());
    }

    #[test]
    fn cut_entries_are_refused() {
        for entry in entries() {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            for length in 1..bytes.len() {
                assert!(ContentEntry::decode(&bytes[..length]).is_err(), "{length} bytes of {entry:?}");
            }
        }
    }
}
