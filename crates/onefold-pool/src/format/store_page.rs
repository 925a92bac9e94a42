//! Fingerprint store page: the entries of 170 neighbouring blocks (paper, section 2.2).
//!
//! After the header, [`ENTRY_BYTES`] for each block:
//!
//! | bytes  | field           | notes                                                        |
//! |--------|-----------------|--------------------------------------------------------------|
//! | 0..16  | fingerprint     | of a data block: first 128 bits of keyed BLAKE3; otherwise 0 |
//! | 16..20 | reference count | map leaves (data) or parents (map node) that name the block  |
//! | 20..22 | domain          | sharing domain of a data block; otherwise 0                  |
//! | 22     | use             | [`BlockUse`]                                                 |
//! | 23     | flags           | bit 0: private, never offered for sharing                    |
//!
//! A free block's entry is all zero.

use onefold_block::Fingerprint;

use super::header::HEADER_BYTES;
use super::{BlockBytes, get_u16, get_u32, put_u16, put_u32};

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 24;
/// Offset of the reference count in an entry.
const COUNT_OFFSET: usize = 16;
const FLAG_PRIVATE: u8 = 1;
const _: () = assert!(HEADER_BYTES + 170 * ENTRY_BYTES == onefold_block::BLOCK_BYTES);

/// Use of an allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockUse {
    /// Nothing: the block is free.
    Free,
    /// File data.
    Data,
    /// Node of a file map.
    MapNode,
    /// Page of the names tree.
    TreePage,
}

/// One block's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreEntry {
    /// Fingerprint of a data block.
    pub fingerprint: Fingerprint,
    /// Reference count; 0 exactly when the block is free.
    pub count: u32,
    /// Sharing domain.
    pub domain: u16,
    /// Use of the block.
    pub usage: BlockUse,
    /// Whether it is a data block that belongs to one file alone.
    pub private: bool,
}

impl StoreEntry {
    /// The entry of a free block.
    pub const FREE: StoreEntry =
        StoreEntry { fingerprint: Fingerprint([0; 16]), count: 0, domain: 0, usage: BlockUse::Free, private: false };

    /// Returns the entry of a metadata block with one reference.
    #[must_use]
    pub fn metadata(usage: BlockUse) -> StoreEntry {
        StoreEntry { count: 1, usage, ..StoreEntry::FREE }
    }

    /// Returns the bytes of the entry.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..16].copy_from_slice(&self.fingerprint.0);
        put_u32(&mut bytes, COUNT_OFFSET, self.count);
        put_u16(&mut bytes, 20, self.domain);
        bytes[22] = match self.usage {
            BlockUse::Free => 0,
            BlockUse::Data => 1,
            BlockUse::MapNode => 2,
            BlockUse::TreePage => 3,
        };
        bytes[23] = if self.private { FLAG_PRIVATE } else { 0 };
        bytes
    }

    /// Decodes an entry from `bytes`, exactly [`ENTRY_BYTES`] long. `None` if Onefold never writes it like this.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<StoreEntry> {
        let usage = match bytes[22] {
            0 => BlockUse::Free,
            1 => BlockUse::Data,
            2 => BlockUse::MapNode,
            3 => BlockUse::TreePage,
            _ => return None,
        };
        let entry = StoreEntry {
            fingerprint: Fingerprint(bytes[..16].try_into().expect("sixteen bytes")),
            count: get_u32(bytes, COUNT_OFFSET),
            domain: get_u16(bytes, 20),
            usage,
            private: bytes[23] == FLAG_PRIVATE,
        };
        let plain = bytes[23] & !FLAG_PRIVATE == 0;
        let counted = (usage == BlockUse::Free) == (entry.count == 0);
        let bare = usage == BlockUse::Data || (entry.fingerprint.0 == [0; 16] && entry.domain == 0 && !entry.private);
        (plain && counted && bare).then_some(entry)
    }
}

/// Returns the byte range of entry `index` in its page.
#[must_use]
pub fn entry_range(index: usize) -> std::ops::Range<usize> {
    let first = HEADER_BYTES + index * ENTRY_BYTES;
    first..first + ENTRY_BYTES
}

/// Returns the byte range of `count` entries from `index` on.
#[must_use]
pub fn entries_range(index: usize, count: usize) -> std::ops::Range<usize> {
    let first = entry_range(index).start;
    first..first + count * ENTRY_BYTES
}

/// Returns the byte range of the reference count of entry `index`.
#[must_use]
pub fn count_range(index: usize) -> std::ops::Range<usize> {
    let first = entry_range(index).start + COUNT_OFFSET;
    first..first + 4
}

/// Decodes entry `index` of a page. `None` if damaged.
#[must_use]
pub fn entry(page: &BlockBytes, index: usize) -> Option<StoreEntry> {
    StoreEntry::decode(&page[entry_range(index)])
}

/// Returns the indices of the entries with `fingerprint`, whatever their other fields.
pub fn find(page: &BlockBytes, fingerprint: Fingerprint) -> impl Iterator<Item = usize> + '_ {
    page[HEADER_BYTES..]
        .chunks_exact(ENTRY_BYTES)
        .enumerate()
        .filter(move |(_, entry)| entry[..16] == fingerprint.0)
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_encoding() {
        let data = StoreEntry {
            fingerprint: Fingerprint([7; 16]),
            count: u32::MAX,
            domain: 513,
            usage: BlockUse::Data,
            private: true,
        };
        for entry in
            [data, StoreEntry::FREE, StoreEntry::metadata(BlockUse::MapNode), StoreEntry::metadata(BlockUse::TreePage)]
        {
            assert_eq!(StoreEntry::decode(&entry.encode()), Some(entry));
        }
    }

    #[test]
    fn entries_that_onefold_never_writes_are_refused() {
        let mut bytes = StoreEntry::FREE.encode();
        bytes[16] = 1;
        assert_eq!(StoreEntry::decode(&bytes), None, "a free block with references");
        let mut bytes = StoreEntry::metadata(BlockUse::MapNode).encode();
        bytes[3] = 1;
        assert_eq!(StoreEntry::decode(&bytes), None, "a map node with a fingerprint");
        bytes[22] = 99;
        assert_eq!(StoreEntry::decode(&bytes), None, "an unknown use");
    }

    #[test]
    fn the_layout_of_an_entry_does_not_drift() {
        let entry = StoreEntry {
            fingerprint: Fingerprint([0xab; 16]),
            count: 0x0102_0304,
            domain: 0x0506,
            usage: BlockUse::Data,
            private: true,
        };
        let mut expected = [0xab; 24];
        expected[16..].copy_from_slice(&[4, 3, 2, 1, 6, 5, 1, 1]);
        assert_eq!(entry.encode(), expected);
    }
}
