//! Common structure of the blocks of a directory's index and of attributes: both are trees over hashes of names.
//!
//! From "XFS Filesystem Structure", chapters "Directories" and "Extended Attributes". All of their blocks begin in the
//! same way:
//!
//! | version 5 | version 4 | field                                                                    |
//! |-----------|-----------|--------------------------------------------------------------------------|
//! | 0..8      | 0..8      | next and previous block of the level                                     |
//! | 8..10     | 8..10     | magic                                                                    |
//! | 12..16    |           | checksum                                                                 |
//! | 16..56    |           | place, log sequence number, UUID, owner                                  |
//! | 56..58    | 12..14    | number of entries                                                        |
//! | 58..60    | 14..16    | of an inner block: its level, from 1                                     |
//! | 64..      | 16..      | of an inner block: for each child its last hash (4), and its block (4)   |

use super::seal::{OwnerField, Seal};

/// Places of the self-describing fields of a block in version 5.
pub(super) const SEAL: Seal = Seal { checksum: 12, uuid: 32, place: Some(16), owner: OwnerField::Long(48) };
/// The magic numbers of inner blocks in versions 4 and 5.
pub(super) const INNER_MAGIC: [u16; 2] = [0xfebe, 0x3ebe];
/// Place of the magic number.
pub(super) const MAGIC_AT: usize = 8;
/// Place of the number of entries in versions 4 and 5; the level follows.
pub(super) const COUNT_AT: [usize; 2] = [12, 56];
/// The first entry of an inner block in versions 4 and 5.
pub(super) const INNER_ENTRIES_AT: [usize; 2] = [16, 64];
/// Limit for the number of levels of inner blocks. The deepest tree of an intact file system has fewer.
pub(super) const LEVELS_MAX: u16 = 5;
