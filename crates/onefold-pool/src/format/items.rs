//! Items of the names tree besides inodes: their keys and values.
//!
//! | inode | kind | sub                                  | value                                              |
//! |-------|------|--------------------------------------|----------------------------------------------------|
//! | ino   | 1    | 0                                    | inode ([`super::inode`])                           |
//! | ino   | 2    | name hash, 55 bits; number, 8 bits   | directory entry: inode u64, kind u8, name          |
//! | ino   | 3    | name hash, 48 bits; number, chunk    | chunk of an extended attribute; chunk 0 opens with name length u8, value length u32, name |
//! | ino   | 4    | chunk                                | chunk of a symbolic link's target                  |
//! | 0     | 5    | ino                                  | orphan: unlinked but perhaps still open; no value  |
//! | 0     | 6    | number                               | reclaim: subtree u64, level u8                     |
//! | 0     | 7    | number                               | run of *free* blocks with the filter saved at a clean close: generation u64, first u64, count u64 |
//!
//! The hash of a name is keyed with the pool's key, so outsiders cannot prepare collisions. The number distinguishes
//! names with the same hash. `sub` of a directory entry is also its read cookie.

use onefold_block::BlockNo;

use super::get_u64;
use super::inode::{kind_code, kind_of_code};
use crate::attr::{FileKind, Ino};
use crate::tree::Key;

const KIND_INODE: u8 = 1;
const KIND_DIR_ENTRY: u8 = 2;
const KIND_XATTR: u8 = 3;
const KIND_SYMLINK: u8 = 4;
const KIND_ORPHAN: u8 = 5;
const KIND_RECLAIM: u8 = 6;
const KIND_FILTER_RUN: u8 = 7;
/// Bytes of a chunk of an attribute's value or of a link's target.
pub const CHUNK_BYTES: usize = 1000;
const _: () = assert!(CHUNK_BYTES <= crate::tree::VALUE_BYTES_MAX);

/// Returns the key of an inode.
#[must_use]
pub fn inode_key(ino: Ino) -> Key {
    Key { ino: ino.0, kind: KIND_INODE, sub: 0 }
}

/// Returns the key of a directory entry by its cookie.
#[must_use]
pub fn dir_entry_key(directory: Ino, cookie: u64) -> Key {
    Key { ino: directory.0, kind: KIND_DIR_ENTRY, sub: cookie }
}

/// Returns the first and last cookie for names with this hash. Cookies 0..=255 are never used for names.
#[must_use]
pub fn dir_cookies(hash: u64) -> (u64, u64) {
    let first = ((hash >> 9) | 1 << 20) << 8;
    (first, first | 0xff)
}

/// The highest cookie.
pub const DIR_COOKIE_MAX: u64 = u64::MAX >> 1;

/// A directory entry's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirItem {
    /// The inode that it names.
    pub ino: Ino,
    /// Kind of that inode.
    pub kind: FileKind,
    /// The name.
    pub name: Vec<u8>,
}

impl DirItem {
    /// Returns the value's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.ino.0.to_le_bytes().to_vec();
        bytes.push(kind_code(self.kind));
        bytes.extend_from_slice(&self.name);
        bytes
    }

    /// Decodes a value; `None` if Onefold never writes it like this.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<DirItem> {
        if bytes.len() < 10 || bytes.len() > 9 + crate::NAME_BYTES_MAX {
            return None;
        }
        Some(DirItem { ino: Ino(get_u64(bytes, 0)), kind: kind_of_code(bytes[8])?, name: bytes[9..].to_vec() })
    }
}

/// Returns the key of chunk `chunk` of the attribute with this hash and number.
#[must_use]
pub fn xattr_key(ino: Ino, hash: u64, number: u8, chunk: u8) -> Key {
    Key { ino: ino.0, kind: KIND_XATTR, sub: hash >> 16 << 16 | u64::from(number) << 8 | u64::from(chunk) }
}

/// Returns the range of keys of all attributes of a file.
#[must_use]
pub fn xattr_bounds(ino: Ino) -> (Key, Key) {
    (Key { ino: ino.0, kind: KIND_XATTR, sub: 0 }, Key { ino: ino.0, kind: KIND_XATTR, sub: u64::MAX })
}

/// Returns the first key behind all chunks of the attribute to which this chunk belongs.
#[must_use]
pub fn after_xattr(chunk: &Key) -> Key {
    match (chunk.sub | 0xff).checked_add(1) {
        Some(sub) => Key { sub, ..*chunk },
        None => symlink_key(Ino(chunk.ino), 0),
    }
}

/// Returns the opening bytes of chunk 0 for an attribute.
#[must_use]
pub fn xattr_opening(name: &[u8], value_bytes: u32) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(name.len()).expect("names have at most 255 bytes")];
    bytes.extend_from_slice(&value_bytes.to_le_bytes());
    bytes.extend_from_slice(name);
    bytes
}

/// Splits chunk 0 into name, length of the whole value, and the value's first bytes.
#[must_use]
pub fn xattr_split(chunk: &[u8]) -> Option<(&[u8], usize, &[u8])> {
    let (&name_bytes, rest) = chunk.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (name, value) = rest.split_at_checked(usize::from(name_bytes))?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let fits = length <= crate::XATTR_BYTES_MAX && value.len() <= length;
    (fits && !name.is_empty()).then_some((name, length, value))
}

/// Returns the key of chunk `chunk` of a symbolic link's target.
#[must_use]
pub fn symlink_key(ino: Ino, chunk: u64) -> Key {
    Key { ino: ino.0, kind: KIND_SYMLINK, sub: chunk }
}

/// Returns the key that marks `ino` as unlinked.
#[must_use]
pub fn orphan_key(ino: Ino) -> Key {
    Key { ino: 0, kind: KIND_ORPHAN, sub: ino.0 }
}

/// Returns the range of keys of all orphans.
#[must_use]
pub fn orphan_bounds() -> (Key, Key) {
    (orphan_key(Ino(0)), orphan_key(Ino(u64::MAX)))
}

/// Returns the key of an entry of the reclaim list.
#[must_use]
pub fn reclaim_key(number: u64) -> Key {
    Key { ino: 0, kind: KIND_RECLAIM, sub: number }
}

/// Returns the range of keys of the reclaim list.
#[must_use]
pub fn reclaim_bounds() -> (Key, Key) {
    (reclaim_key(0), reclaim_key(u64::MAX))
}

/// A subtree of a file map whose reference will be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimItem {
    /// Its root node.
    pub node: BlockNo,
    /// The node's level; 0 is a leaf.
    pub level: u8,
}

impl ReclaimItem {
    /// Returns the value's bytes.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = self.node.0.to_le_bytes().to_vec();
        bytes.push(self.level);
        bytes
    }

    /// Decodes a value; `None` if Onefold never writes it like this.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<ReclaimItem> {
        let item = ReclaimItem { node: BlockNo(get_u64(bytes.get(..8)?, 0)), level: *bytes.get(8)? };
        (bytes.len() == 9 && item.node <= BlockNo::MAX && item.level < super::map_node::LEVELS_MAX).then_some(item)
    }
}

/// Returns the range of keys of the saved filter's runs.
#[must_use]
pub fn filter_run_bounds() -> (Key, Key) {
    (filter_run_key(0), filter_run_key(u64::MAX))
}

/// Returns the key of a run of the saved filter.
#[must_use]
pub fn filter_run_key(number: u64) -> Key {
    Key { ino: 0, kind: KIND_FILTER_RUN, sub: number }
}

/// Generation of the runs that hold summaries of the groups. Saves of the filter have higher ones.
pub const SUMMARIES_GENERATION: u64 = 0;

/// A run of blocks with a part of what was saved when the pool was closed: the filter, and then the summaries of the
/// groups ([`super::group_summaries`]). The blocks are free: an opening reads them first of all. It then removes the
/// items of the filter. Those of the summaries may stay: the opening then keeps their blocks from being handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterRun {
    /// Generation of the save to which it belongs, or [`SUMMARIES_GENERATION`].
    pub generation: u64,
    /// Its first block.
    pub first: BlockNo,
    /// Number of blocks.
    pub count: u64,
}

impl FilterRun {
    /// Returns the value's bytes.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        [self.generation, self.first.0, self.count].iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Decodes a value; `None` if Onefold never writes it like this.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<FilterRun> {
        if bytes.len() != 24 {
            return None;
        }
        let run =
            FilterRun { generation: get_u64(bytes, 0), first: BlockNo(get_u64(bytes, 8)), count: get_u64(bytes, 16) };
        (run.first <= BlockNo::MAX && run.count <= super::geometry::GROUP_BLOCKS).then_some(run)
    }
}

/// Kind of an item, for walks over all items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// An inode.
    Inode,
    /// A directory entry.
    DirEntry,
    /// A chunk of an extended attribute.
    Xattr,
    /// A chunk of a symbolic link's target.
    Symlink,
    /// An orphan.
    Orphan,
    /// An entry of the reclaim list.
    Reclaim,
    /// A run of the saved filter.
    FilterRun,
}

/// Returns the kind of the item with this key; `None` if Onefold has no such items.
#[must_use]
pub fn item_kind(key: &Key) -> Option<ItemKind> {
    match (key.ino, key.kind) {
        (0, KIND_ORPHAN) => Some(ItemKind::Orphan),
        (0, KIND_RECLAIM) => Some(ItemKind::Reclaim),
        (0, KIND_FILTER_RUN) => Some(ItemKind::FilterRun),
        (0, _) => None,
        (_, KIND_INODE) if key.sub == 0 => Some(ItemKind::Inode),
        (_, KIND_DIR_ENTRY) => Some(ItemKind::DirEntry),
        (_, KIND_XATTR) => Some(ItemKind::Xattr),
        (_, KIND_SYMLINK) => Some(ItemKind::Symlink),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_positive_above_the_dots_and_keep_the_hash_apart() {
        for hash in [0, 1 << 9, u64::MAX, 0x1234_5678_9abc_def0] {
            let (first, last) = dir_cookies(hash);
            assert!(first > 2 && last <= DIR_COOKIE_MAX && last - first == 255);
        }
        assert_ne!(dir_cookies(1 << 40).0, dir_cookies(1 << 41).0);
    }

    #[test]
    fn values_survive_their_encoding_and_nonsense_is_refused() {
        let item = DirItem { ino: Ino(5), kind: FileKind::Symlink, name: b"disk.raw".to_vec() };
        assert_eq!(DirItem::decode(&item.encode()), Some(item));
        assert_eq!(DirItem::decode(&[0; 9]), None);
        let reclaim = ReclaimItem { node: BlockNo(77), level: 3 };
        assert_eq!(ReclaimItem::decode(&reclaim.encode()), Some(reclaim));
        assert_eq!(ReclaimItem::decode(&ReclaimItem { level: 4, ..reclaim }.encode()), None);
        let mut chunk = xattr_opening(b"user.a", 3);
        chunk.extend_from_slice(b"xyz");
        assert_eq!(xattr_split(&chunk), Some((&b"user.a"[..], 3, &b"xyz"[..])));
        assert_eq!(xattr_split(&[200, 0, 0, 0, 0, 1]), None);
        // Found by a fuzzer: more bytes in the first chunk than in the whole value.
        assert_eq!(xattr_split(&[1, 0, 0, 0, 0, b'n', b'x']), None);
    }
}
