//! Attribute lists: the records with the attributes of a file that does not fit into one record.
//!
//! | bytes of an entry | field |
//! |---|---|
//! | 0..4, 4..6 | type of the attribute, length of the entry |
//! | 8..16 | first cluster of the stream that this part maps |
//! | 16..24 | reference of the record |

use super::record::Reference;
use crate::bytes::Bytes;

/// Maximum length of a list in NTFS.
pub(super) const BYTES_MAX: u64 = 256 << 10;

const ENTRY_BYTES_MIN: u16 = 24;

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListEntry {
    /// Its length in bytes.
    length: usize,
    /// Type of the attribute.
    pub(super) kind: u32,
    /// The record that contains it.
    pub(super) record: Reference,
}

/// Returns the entries of a list up to its end, or up to an invalid one.
pub(super) fn entries(list: &[u8]) -> impl Iterator<Item = ListEntry> {
    let (list, mut at) = (Bytes(list), 0_usize);
    std::iter::from_fn(move || {
        let length = usize::from(list.le16(at + 4).filter(|length| *length >= ENTRY_BYTES_MIN)?);
        let entry = ListEntry { length, kind: list.le32(at)?, record: Reference(list.le64(at + 16)?) };
        at += length;
        Some(entry)
    })
}

/// Returns whether the entries of a list go up to its end.
pub(super) fn is_whole(list: &[u8]) -> bool {
    entries(list).map(|entry| entry.length).sum::<usize>() == list.len()
}

/// Returns the records with attributes of a type, in the order of the list, which for a stream is the order of its
/// parts.
pub(super) fn records_of(list: &[u8], kind: u32) -> Vec<Reference> {
    entries(list).filter(|entry| entry.kind == kind).map(|entry| entry.record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_where_it_makes_no_sense() {
        let entry = |kind: u8, length: u8, record: u8| {
            let mut entry = vec![0; 32];
            (entry[0], entry[4], entry[16], entry[22]) = (kind, length, record, 3);
            entry
        };
        let list = [entry(0x80, 32, 5), entry(0x30, 32, 6), entry(0x80, 32, 7)].concat();
        let found = records_of(&list, 0x80);
        assert_eq!(found, [Reference(5 | 3 << 48), Reference(7 | 3 << 48)]);
        assert_eq!((found[0].record(), found[0].sequence()), (5, 3));
        assert_eq!(entries(&[entry(0x80, 32, 5), entry(0x30, 0, 6)].concat()).count(), 1);
        assert!(is_whole(&list) && is_whole(&[]));
        for cut in [&list[..90], &list[..80], &[&list[..], &[0; 8]].concat()] {
            assert!(!is_whole(cut));
        }
        assert_eq!(entries(&list[..90]).count(), 3);
        assert_eq!(entries(&list[..80]).count(), 2);
    }
}
