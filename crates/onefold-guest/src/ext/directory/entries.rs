//! Entries of directories.
//!
//! | byte | field |
//! |------|-------|
//! | 0    | inode; 0 where the entry is unused |
//! | 4    | length of the entry: a multiple of 4, up to the next one |
//! | 6    | length of the name; two bytes without `filetype` |
//! | 7    | kind of the file, with `filetype` |
//! | 8    | name |

use crate::bytes::Bytes;
use crate::filesystem::{DirectoryEntry, FileKind, FileNumber};

const HEADER_BYTES: usize = 8;
/// Place of the entries of a tree of hashes in its root, and in its other blocks.
const ROOT_INDEX_AT: usize = 32;
const NODE_INDEX_AT: usize = 8;

/// Form of the names of a directory.
pub(super) struct NameForm {
    pub(super) inode_count: u32,
    pub(super) has_kinds: bool,
    pub(super) is_encrypted: bool,
}

/// An entry that names a file, or the reason why it is invalid.
type EntryResult = Result<DirectoryEntry, &'static str>;

impl NameForm {
    /// Returns the entry at `at`, if it names a file other than `.` and `..`, and the place of the next one.
    ///
    /// # Errors
    /// The reason why the entry is invalid, if the place of the next entry is unknown, too.
    pub(super) fn at(&self, bytes: Bytes<'_>, at: usize) -> Result<(Option<EntryResult>, usize), &'static str> {
        let cut = "an entry is out of place";
        let (Some(inode), Some(stored)) = (bytes.le32(at), bytes.le16(at + 4)) else { return Err(cut) };
        let length = entry_bytes(stored, bytes.len());
        let next = at.checked_add(length).filter(|next| *next <= bytes.len()).ok_or(cut)?;
        if length < HEADER_BYTES + 4 && next != bytes.len() || length < HEADER_BYTES || !length.is_multiple_of(4) {
            return Err(cut);
        }
        if inode == 0 {
            return Ok((None, next));
        }
        let name_bytes = if self.has_kinds { bytes.u8(at + 6).map(u16::from) } else { bytes.le16(at + 6) };
        let name = name_bytes
            .map(usize::from)
            .filter(|name| HEADER_BYTES + name <= length)
            .and_then(|name| bytes.part(at + HEADER_BYTES, name));
        let Some(name) = name else { return Err("a name is longer than its entry") };
        let kind = if self.has_kinds { bytes.u8(at + 7).and_then(kind) } else { None };
        Ok((self.found(inode, name.0, kind), next))
    }

    fn found(&self, inode: u32, name: &[u8], kind: Option<FileKind>) -> Option<EntryResult> {
        if name == b"." || name == b".." {
            return None;
        }
        if name.is_empty() || name.len() > 255 {
            return Some(Err("the length of a name is impossible"));
        }
        if inode > self.inode_count {
            return Some(Err("an entry names an inode that does not exist"));
        }
        let name = if self.is_encrypted { encoded(name) } else { name.to_vec() };
        if name.contains(&b'/') || name.contains(&0) {
            return Some(Err("a name has bytes that no name can have"));
        }
        Some(Ok(DirectoryEntry { name, file: FileNumber(u64::from(inode)), kind }))
    }
}

/// Calls `visit` with the inode of each entry of a block, or of a part of an inline directory, that names one: also of
/// `.` and `..`, and whatever the name. Returns whether entries can be followed to the end.
pub(super) fn each_number(bytes: Bytes<'_>, visit: &mut dyn FnMut(u32)) -> bool {
    let mut at = 0;
    while at < bytes.len() {
        let (Some(inode), Some(stored)) = (bytes.le32(at), bytes.le16(at + 4)) else { return false };
        let length = entry_bytes(stored, bytes.len());
        if length < HEADER_BYTES || !length.is_multiple_of(4) || length > bytes.len() - at {
            return false;
        }
        if inode != 0 {
            visit(inode);
        }
        at += length;
    }
    true
}

/// Returns the length of an entry from its stored value. Lengths for blocks of 64 KiB need more than 16 bits, so the
/// two lowest bits hold the highest ones.
fn entry_bytes(stored: u16, block_length: usize) -> usize {
    let stored = usize::from(stored);
    if block_length < 1 << 16 {
        return stored;
    }
    if stored == 0xffff || stored == 0 { block_length } else { (stored & 0xfffc) | (stored & 3) << 16 }
}

fn kind(stored: u8) -> Option<FileKind> {
    match stored {
        1 => Some(FileKind::Regular),
        2 => Some(FileKind::Directory),
        3 => Some(FileKind::CharacterDevice),
        4 => Some(FileKind::BlockDevice),
        5 => Some(FileKind::Fifo),
        6 => Some(FileKind::Socket),
        7 => Some(FileKind::SymbolicLink),
        _ => None,
    }
}

/// Returns the place of the entries of a tree of hashes in a block, if the block looks like a part of a tree.
pub(super) fn index_at(bytes: Bytes<'_>) -> Option<usize> {
    let first = entry_bytes(bytes.le16(4)?, bytes.len());
    if first == bytes.len() {
        return (bytes.le32(0)? == 0).then_some(NODE_INDEX_AT);
    }
    let second = entry_bytes(bytes.le16(12 + 4)?, bytes.len());
    // Four zero bytes, a hash version, and 8 as its own length follow the entries of the directory and its parent.
    let is_root = first == 12 && second == bytes.len() - 12 && bytes.le32(24)? == 0 && bytes.u8(29)? == 8;
    is_root.then_some(ROOT_INDEX_AT)
}

/// Encodes an encrypted name without bytes that are invalid in names: base64 with `-` and `_`, without padding.
fn encoded(name: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digit = |bits: u32| DIGITS[(bits & 63) as usize];
    name.chunks(3)
        .flat_map(|part| {
            let bits = part.iter().enumerate().fold(0, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
            [18, 12, 6, 0].into_iter().take(part.len() + 1).map(move |shift| digit(bits >> shift))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_name_becomes_base64() {
        assert_eq!(encoded(b"foob"), b"Zm9vYg");
        assert_eq!(encoded(&[0xff, 0xfe, 0xfd, b'/', 0]), b"__79LwA");
    }

    #[test]
    fn numbers_are_those_of_all_entries_up_to_one_that_cannot_be_followed() {
        let entry = |inode: u32, length: u16| {
            let mut entry = [inode.to_le_bytes(), [0; 4], [0; 4]].concat();
            entry[4..6].copy_from_slice(&length.to_le_bytes());
            entry
        };
        let found = |entries: &[(u32, u16)]| {
            let bytes: Vec<u8> = entries.iter().flat_map(|(inode, length)| entry(*inode, *length)).collect();
            let mut numbers = Vec::new();
            let is_whole = each_number(Bytes(&bytes), &mut |inode| numbers.push(inode));
            (is_whole, numbers)
        };
        assert_eq!(found(&[]), (true, vec![]));
        assert_eq!(found(&[(7, 12), (0, 12), (u32::MAX, 12)]), (true, vec![7, u32::MAX]));
        assert_eq!(found(&[(0, 36), (8, 12), (9, 12)]), (true, vec![]), "a block of an index");
        assert_eq!(found(&[(7, 24), (8, 12), (9, 12)]), (true, vec![7, 9]));
        for length in [0, 4, 10, 13, 28, 0xffff] {
            assert_eq!(found(&[(7, 12), (8, length), (9, 12)]), (false, vec![7]), "{length}");
        }
    }

    #[test]
    fn long_blocks_have_longer_entries_than_sixteen_bits() {
        assert_eq!(entry_bytes(0xffff, 1 << 16), 1 << 16);
        assert_eq!(entry_bytes(0, 1 << 16), 1 << 16);
        assert_eq!(entry_bytes(0xfff4, 1 << 16), 0xfff4);
        assert_eq!(entry_bytes(0xfff4, 1 << 12), 0xfff4);
    }
}
