//! Nodes of the index of a directory: a B+tree of names, whose root node is in the directory's record.
//!
//! After "NTFS Documentation" of the Linux-NTFS project (`$INDEX_ROOT`, `$INDEX_ALLOCATION`).
//!
//! | bytes of the root | field |
//! |---|---|
//! | 0..4 | type of the attribute that is indexed: `30`, a name |
//! | 8..12 | bytes of a block |
//! | 16.. | node |
//!
//! | bytes of a block | field |
//! |---|---|
//! | 0..4, 4..8 | `INDX`, fix-ups |
//! | 16..24 | its own number |
//! | 24.. | node |
//!
//! | bytes of a node | field |
//! |---|---|
//! | 0..4, 4..8 | offset of the first entry, bytes in use |
//!
//! | bytes of an entry | field |
//! |---|---|
//! | 0..8 | reference of the file |
//! | 8..10, 10..12 | bytes of the entry, bytes of the name structure |
//! | 12..14 | flags: 1 has a child, whose block is in the last 8 bytes; 2 ends the node, and has no name |
//! | 16.. | name structure |
//!
//! Blocks are numbered in clusters, or in units of 512 bytes if clusters are larger than blocks.

use std::ops::ControlFlow;

use super::fixups;
use super::names::FileName;
use super::record::{FILE_NAME, Reference};
use crate::bytes::Bytes;

const SIGNATURE: [u8; 4] = *b"INDX";
const ROOT_NODE: usize = 16;
const BLOCK_NODE: usize = 24;
const ENTRY_BYTES_MIN: u16 = 16;
const HAS_CHILD: u16 = 1;
const IS_LAST: u16 = 2;
/// Unit of block numbers if clusters are larger than blocks.
const SMALL_UNIT: u64 = 512;

/// An entry of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexEntry<'b> {
    /// The file, with its name; `None` for the last entry of a node, which comes after all names.
    pub(super) file: Option<(Reference, FileName<'b>)>,
    /// The number of the block with the names before this one.
    pub(super) child: Option<u64>,
}

/// The root of an index of names.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexRoot<'b> {
    /// Bytes of the other blocks: a power of two from 512 to 65536.
    pub(super) block_bytes: u32,
    /// Its node.
    pub(super) node: Node<'b>,
}

impl<'b> IndexRoot<'b> {
    /// Returns the root in the value of an attribute; `None` if it is invalid.
    pub(super) fn decode(value: Bytes<'b>) -> Option<IndexRoot<'b>> {
        let block_bytes = value.le32(8)?;
        let is_sound = value.le32(0)? == FILE_NAME && block_bytes.is_power_of_two();
        let node = Node(value.from(ROOT_NODE)?);
        (is_sound && (512..=65536).contains(&block_bytes)).then_some(IndexRoot { block_bytes, node })
    }

    /// Returns the unit of its block numbers, in bytes.
    pub(super) fn unit_bytes(&self, cluster_bytes: u64) -> u64 {
        if cluster_bytes <= u64::from(self.block_bytes) { cluster_bytes } else { SMALL_UNIT }
    }
}

/// Returns the node of block `number`. Fails with the reason.
pub(super) fn decode_block(block: &mut [u8], number: u64) -> Result<Node<'_>, &'static str> {
    if block.get(..4) != Some(&SIGNATURE) {
        return Err("it has no signature");
    }
    fixups::undo(block)?;
    let block = Bytes(block);
    if block.le64(16) != Some(number) {
        return Err("it belongs elsewhere");
    }
    block.from(BLOCK_NODE).map(Node).ok_or("it is cut off")
}

/// A node of an index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'b>(Bytes<'b>);

impl<'b> Node<'b> {
    /// Calls `visit` with each entry in order, until it breaks. Fails with the reason, after the entries before it.
    pub(super) fn each(&self, visit: &mut dyn FnMut(IndexEntry<'b>) -> ControlFlow<()>) -> Result<(), &'static str> {
        const SENSELESS: &str = "an entry makes no sense";
        let head = |at| self.0.le32(at).and_then(|number| usize::try_from(number).ok()).ok_or(SENSELESS);
        let (mut at, used) = (head(0)?, head(4)?);
        let entries = self.0.part(0, used).ok_or("its entries have no end")?;
        loop {
            let length = entries.le16(at + 8).filter(|length| *length >= ENTRY_BYTES_MIN).ok_or(SENSELESS)?;
            let entry = entries.part(at, usize::from(length)).ok_or(SENSELESS)?;
            let flags = entry.le16(12).ok_or(SENSELESS)?;
            let decoded = decode_entry(entry, flags).ok_or(SENSELESS)?;
            if visit(decoded).is_break() || flags & IS_LAST != 0 {
                return Ok(());
            }
            at += entry.len();
        }
    }
}

fn decode_entry(entry: Bytes<'_>, flags: u16) -> Option<IndexEntry<'_>> {
    let file = if flags & IS_LAST == 0 {
        let name = FileName::decode(entry.part(16, usize::from(entry.le16(10)?))?)?;
        Some((Reference(entry.le64(0)?), name))
    } else {
        None
    };
    let child = if flags & HAS_CHILD == 0 { None } else { Some(entry.le64(entry.len().checked_sub(8)?)?) };
    Some(IndexEntry { file, child })
}
