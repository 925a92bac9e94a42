//! The header at the start of every metadata block outside the journal's log.
//!
//! | bytes  | field    | notes                                                                     |
//! |--------|----------|---------------------------------------------------------------------------|
//! | 0..4   | checksum | CRC-32C over bytes 4..4096; brought up to date when the block leaves memory |
//! | 4..8   | pool tag | derives from the pool's key (see [`super::superblock`]): a block of another pool, or of file data, is seen as foreign |
//! | 8..14  | address  | the block's own number, 48 bits: a block in the wrong place is seen as wrong |
//! | 14     | kind     | [`BlockKind`]                                                              |
//! | 15     | level    | of a map node: 0 is a leaf; otherwise 0                                    |
//!
//! A crash may tear a home copy of any of these blocks, except the superblock's copies and the journal's header slots,
//! of which one always stays whole: after a checkpoint, the first change of a block logs the whole block in the
//! journal.

use onefold_block::{BLOCK_BYTES, BlockNo};

use super::{BlockBytes, get_u32, put_u32};

/// Bytes of the header; the rest of the block belongs to the structure.
pub const HEADER_BYTES: usize = 16;

/// Kind of a metadata block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Allocation bitmap of a block group.
    Bitmap,
    /// Page of a fingerprint store.
    StorePage,
    /// Node of a file map at a level; 0 is a leaf.
    MapNode(u8),
    /// Page of the names tree.
    TreePage,
    /// The pool's state: roots and counters.
    State,
    /// One of the journal's two header slots.
    JournalHeader,
    /// The heartbeat of the host that has the pool open.
    Heartbeat,
    /// Superblock or its copy.
    Superblock,
    /// Summaries of block groups, saved by a close.
    GroupSummaries,
}

impl BlockKind {
    /// Returns the kind's name for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            BlockKind::Bitmap => "bitmap",
            BlockKind::StorePage => "fingerprint store",
            BlockKind::MapNode(_) => "file map",
            BlockKind::TreePage => "names tree",
            BlockKind::State => "pool state",
            BlockKind::JournalHeader => "journal header",
            BlockKind::Heartbeat => "heartbeat",
            BlockKind::Superblock => "superblock",
            BlockKind::GroupSummaries => "group summaries",
        }
    }

    fn code(self) -> [u8; 2] {
        match self {
            BlockKind::Bitmap => [1, 0],
            BlockKind::StorePage => [2, 0],
            BlockKind::MapNode(level) => [3, level],
            BlockKind::TreePage => [4, 0],
            BlockKind::State => [5, 0],
            BlockKind::JournalHeader => [6, 0],
            BlockKind::Heartbeat => [7, 0],
            BlockKind::Superblock => [9, 0],
            BlockKind::GroupSummaries => [10, 0],
        }
    }

    /// Returns the kind that a header claims.
    fn from_code(code: [u8; 2]) -> Option<BlockKind> {
        Some(match code {
            [1, 0] => BlockKind::Bitmap,
            [2, 0] => BlockKind::StorePage,
            [3, level] => BlockKind::MapNode(level),
            [4, 0] => BlockKind::TreePage,
            [5, 0] => BlockKind::State,
            [6, 0] => BlockKind::JournalHeader,
            [7, 0] => BlockKind::Heartbeat,
            [9, 0] => BlockKind::Superblock,
            [10, 0] => BlockKind::GroupSummaries,
            _ => return None,
        })
    }
}

/// Why the header of a block is not the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The content does not match its checksum.
    #[error("checksum {found:08x}, expected {expected:08x}")]
    Checksum {
        /// Computed over the content.
        found: u32,
        /// Stored in the header.
        expected: u32,
    },
    /// The block belongs to another pool.
    #[error("belongs to another pool (tag {found:08x})")]
    PoolTag {
        /// Tag in the header.
        found: u32,
    },
    /// The block claims to live elsewhere.
    #[error("says it lives at block {found}")]
    Address {
        /// Address in the header.
        found: u64,
    },
    /// The block has another kind.
    #[error("is of another kind ({found:?})")]
    Kind {
        /// Kind and level bytes in the header.
        found: [u8; 2],
    },
}

/// Computes the checksum for the header of `bytes`.
#[must_use]
pub fn checksum(bytes: &BlockBytes) -> u32 {
    crc32c::crc32c(&bytes[4..])
}

/// Writes all of the header except the checksum.
pub fn stamp(bytes: &mut BlockBytes, pool_tag: u32, kind: BlockKind, address: BlockNo) {
    put_u32(bytes, 4, pool_tag);
    bytes[8..14].copy_from_slice(&address.0.to_le_bytes()[..6]);
    bytes[14..16].copy_from_slice(&kind.code());
}

/// Updates the checksum: the last step before a block leaves memory. Returns it.
pub fn seal(bytes: &mut BlockBytes) -> u32 {
    let sum = checksum(bytes);
    put_u32(bytes, 0, sum);
    sum
}

/// Returns a block with only its header, not sealed.
#[must_use]
pub fn blank(pool_tag: u32, kind: BlockKind, address: BlockNo) -> BlockBytes {
    let mut bytes = [0; BLOCK_BYTES];
    stamp(&mut bytes, pool_tag, kind, address);
    bytes
}

/// Returns the kind that the header claims, if it is a known one.
#[must_use]
pub fn kind(bytes: &BlockBytes) -> Option<BlockKind> {
    BlockKind::from_code([bytes[14], bytes[15]])
}

/// Returns the address that the header claims.
#[must_use]
pub fn address(bytes: &BlockBytes) -> BlockNo {
    let mut wide = [0; 8];
    wide[..6].copy_from_slice(&bytes[8..14]);
    BlockNo(u64::from_le_bytes(wide))
}

/// Checks the header of a block read from the device.
///
/// # Errors
/// The first field that is wrong; the checksum is checked first.
pub fn verify(bytes: &BlockBytes, pool_tag: u32, kind: BlockKind, at: BlockNo) -> Result<(), HeaderError> {
    let (found, expected) = (checksum(bytes), get_u32(bytes, 0));
    if found != expected {
        return Err(HeaderError::Checksum { found, expected });
    }
    if get_u32(bytes, 4) != pool_tag {
        return Err(HeaderError::PoolTag { found: get_u32(bytes, 4) });
    }
    if address(bytes) != at {
        return Err(HeaderError::Address { found: address(bytes).0 });
    }
    if [bytes[14], bytes[15]] != kind.code() {
        return Err(HeaderError::Kind { found: [bytes[14], bytes[15]] });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_block_verifies_and_any_flipped_bit_is_seen() {
        let mut bytes = blank(7, BlockKind::MapNode(2), BlockNo(0x1234_5678_9abc));
        bytes[100] = 3;
        seal(&mut bytes);
        let verify_it = |bytes: &BlockBytes| verify(bytes, 7, BlockKind::MapNode(2), BlockNo(0x1234_5678_9abc));
        assert_eq!(verify_it(&bytes), Ok(()));
        for bit in 0..BLOCK_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(verify_it(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_block_in_the_wrong_place_or_of_another_kind_or_pool_is_refused() {
        let mut bytes = blank(7, BlockKind::Bitmap, BlockNo(5));
        seal(&mut bytes);
        assert_eq!(verify(&bytes, 7, BlockKind::Bitmap, BlockNo(6)), Err(HeaderError::Address { found: 5 }));
        assert_eq!(verify(&bytes, 7, BlockKind::State, BlockNo(5)), Err(HeaderError::Kind { found: [1, 0] }));
        assert_eq!(verify(&bytes, 8, BlockKind::Bitmap, BlockNo(5)), Err(HeaderError::PoolTag { found: 7 }));
    }

    #[test]
    fn every_kind_survives_its_code() {
        for kind in [
            BlockKind::Bitmap,
            BlockKind::StorePage,
            BlockKind::MapNode(0),
            BlockKind::MapNode(3),
            BlockKind::TreePage,
            BlockKind::State,
            BlockKind::JournalHeader,
            BlockKind::Heartbeat,
            BlockKind::Superblock,
            BlockKind::GroupSummaries,
        ] {
            assert_eq!(BlockKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(BlockKind::from_code([0, 0]), None);
    }
}
