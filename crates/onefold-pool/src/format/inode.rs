//! Inode: the value of the names tree's item of kind inode.
//!
//! | bytes    | field           | notes                                                       |
//! |----------|-----------------|-------------------------------------------------------------|
//! | 0        | kind            | 1 regular, 2 directory, 3 symlink, 4 fifo, 5 socket, 6 char, 7 block device |
//! | 1        | dedup           | 0 on, 1 off                                                 |
//! | 2..4     | mode            | low 12 bits of `st_mode`                                    |
//! | 4..8     | link count      |                                                             |
//! | 8..12    | owner           |                                                             |
//! | 12..16   | group           |                                                             |
//! | 16..20   | device number   |                                                             |
//! | 20..22   | sharing domain  |                                                             |
//! | 22       | map levels      | 0: the map is inline; otherwise height of the radix tree    |
//! | 23       |                 | 0                                                           |
//! | 24..32   | length          | bytes; of a directory: number of entries; of a link: target |
//! | 32..40   | mapped blocks   |                                                             |
//! | 40..48   | reserved blocks | places that are reserved, not written                       |
//! | 48..56   | parent          | of a directory                                              |
//! | 56..64   | map root        | block of the root node when map levels > 0                  |
//! | 64..112  | four times      | accessed, modified, changed, created: seconds i64, nanoseconds u32 |
//! | 112      | space shown     | 0 as a door was told, 1 length, 2 mapped; earlier versions write 0 and ignore it |
//! | 113..128 |                 | 0                                                           |
//! | 128..224 | inline map      | 12 entries as in a map node; absent when all are holes      |

use onefold_block::{BlockNo, Timestamp};

use super::map_node::MapEntry;
use super::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use crate::attr::{Attr, Dedup, FileKind, Ino, SpaceShown};

/// Entries of the inline map: files up to 48 KiB need no map node.
pub const INLINE_ENTRIES: usize = 12;
const FIXED_BYTES: usize = 128;
const INLINE_BYTES: usize = FIXED_BYTES + INLINE_ENTRIES * 8;
const TIMES_OFFSET: usize = 64;
const SPACE_SHOWN_OFFSET: usize = 112;

/// The place of a file's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapRoot {
    /// In the inode itself.
    Inline([MapEntry; INLINE_ENTRIES]),
    /// In a radix tree.
    Tree {
        /// Height, at least 1.
        levels: u8,
        /// The root node, of level `levels - 1`.
        root: BlockNo,
    },
}

impl MapRoot {
    /// The map of an empty file.
    pub const EMPTY: MapRoot = MapRoot::Inline([MapEntry::Hole; INLINE_ENTRIES]);
}

/// An inode in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// The attributes that doors see.
    pub attr: Attr,
    /// Parent of a directory; 0 otherwise.
    pub parent: u64,
    /// Places that are reserved but not written; included in `attr.mapped_blocks` for doors, but not in `mapped`.
    pub reserved_blocks: u64,
    /// Blocks that are mapped to data.
    pub mapped: u64,
    /// The file map.
    pub map: MapRoot,
}

impl Inode {
    /// Returns the attributes that a door shows.
    #[must_use]
    pub fn door_attr(&self) -> Attr {
        Attr { mapped_blocks: self.mapped + self.reserved_blocks, ..self.attr.clone() }
    }

    /// Returns the bytes of the inode.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_BYTES];
        let attr = &self.attr;
        bytes[0] = kind_code(attr.kind);
        bytes[1] = u8::from(attr.dedup == Dedup::Off);
        put_u16(&mut bytes, 2, attr.mode);
        put_u32(&mut bytes, 4, attr.link_count);
        put_u32(&mut bytes, 8, attr.uid);
        put_u32(&mut bytes, 12, attr.gid);
        put_u32(&mut bytes, 16, attr.rdev);
        put_u16(&mut bytes, 20, attr.domain);
        put_u64(&mut bytes, 24, attr.size_bytes);
        put_u64(&mut bytes, 32, self.mapped);
        put_u64(&mut bytes, 40, self.reserved_blocks);
        put_u64(&mut bytes, 48, self.parent);
        for (place, time) in [attr.accessed, attr.modified, attr.changed, attr.created].into_iter().enumerate() {
            let at = TIMES_OFFSET + place * 12;
            bytes[at..at + 8].copy_from_slice(&time.seconds.to_le_bytes());
            put_u32(&mut bytes, at + 8, time.nanoseconds);
        }
        bytes[SPACE_SHOWN_OFFSET] = match attr.space_shown {
            SpaceShown::ByDoor => 0,
            SpaceShown::Length => 1,
            SpaceShown::Mapped => 2,
        };
        match &self.map {
            MapRoot::Tree { levels, root } => {
                bytes[22] = *levels;
                put_u64(&mut bytes, 56, root.0);
            }
            MapRoot::Inline(entries) if *entries != [MapEntry::Hole; INLINE_ENTRIES] => {
                for entry in entries {
                    bytes.extend_from_slice(&entry.encode().to_le_bytes());
                }
            }
            MapRoot::Inline(_) => {}
        }
        bytes
    }

    /// Decodes the inode numbered `ino`. `None` if Onefold never writes it like this.
    #[must_use]
    pub fn decode(ino: Ino, bytes: &[u8]) -> Option<Inode> {
        if bytes.len() != FIXED_BYTES && bytes.len() != INLINE_BYTES {
            return None;
        }
        let kind = kind_of_code(bytes[0])?;
        let dedup = match bytes[1] {
            0 => Dedup::On,
            1 => Dedup::Off,
            _ => return None,
        };
        let space_shown = match bytes[SPACE_SHOWN_OFFSET] {
            0 => SpaceShown::ByDoor,
            1 => SpaceShown::Length,
            2 => SpaceShown::Mapped,
            _ => return None,
        };
        let mode = get_u16(bytes, 2);
        let size_bytes = get_u64(bytes, 24);
        let levels = bytes[22];
        let root = get_u64(bytes, 56);
        let (mapped, reserved_blocks) = (get_u64(bytes, 32), get_u64(bytes, 40));
        let counts_fit = mapped <= 1 << 48 && reserved_blocks <= 1 << 48;
        if mode & !0o7777 != 0 || size_bytes > crate::FILE_BYTES_MAX || bytes[23] != 0 || !counts_fit {
            return None;
        }
        let map = match levels {
            0 if root != 0 => return None,
            0 => MapRoot::Inline(decode_inline(bytes)?),
            1..=super::map_node::LEVELS_MAX if bytes.len() == FIXED_BYTES => match MapEntry::decode(root)? {
                MapEntry::Block(root) => MapRoot::Tree { levels, root },
                MapEntry::Hole | MapEntry::Reserved => return None,
            },
            _ => return None,
        };
        let mut times = [Timestamp::default(); 4];
        for (place, time) in times.iter_mut().enumerate() {
            let at = TIMES_OFFSET + place * 12;
            time.seconds = i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            time.nanoseconds = get_u32(bytes, at + 8);
            if time.nanoseconds >= 1_000_000_000 {
                return None;
            }
        }
        let attr = Attr {
            ino,
            kind,
            mode,
            link_count: get_u32(bytes, 4),
            uid: get_u32(bytes, 8),
            gid: get_u32(bytes, 12),
            rdev: get_u32(bytes, 16),
            size_bytes,
            mapped_blocks: mapped,
            accessed: times[0],
            modified: times[1],
            changed: times[2],
            created: times[3],
            domain: get_u16(bytes, 20),
            dedup,
            space_shown,
        };
        Some(Inode { attr, parent: get_u64(bytes, 48), reserved_blocks, mapped, map })
    }
}

fn decode_inline(bytes: &[u8]) -> Option<[MapEntry; INLINE_ENTRIES]> {
    let mut entries = [MapEntry::Hole; INLINE_ENTRIES];
    if bytes.len() == INLINE_BYTES {
        for (index, entry) in entries.iter_mut().enumerate() {
            *entry = MapEntry::decode(get_u64(bytes, FIXED_BYTES + index * 8))?;
        }
    }
    Some(entries)
}

/// Returns the code of a kind in inodes and directory entries.
#[must_use]
pub fn kind_code(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::Symlink => 3,
        FileKind::Fifo => 4,
        FileKind::Socket => 5,
        FileKind::CharDevice => 6,
        FileKind::BlockDevice => 7,
    }
}

/// Returns the kind with this code.
#[must_use]
pub fn kind_of_code(code: u8) -> Option<FileKind> {
    Some(match code {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::Symlink,
        4 => FileKind::Fifo,
        5 => FileKind::Socket,
        6 => FileKind::CharDevice,
        7 => FileKind::BlockDevice,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Inode {
        let time = |seconds| Timestamp { seconds, nanoseconds: 999_999_999 };
        Inode {
            attr: Attr {
                ino: Ino(9),
                kind: FileKind::Regular,
                mode: 0o4755,
                link_count: 3,
                uid: u32::MAX,
                gid: 1000,
                rdev: 0,
                size_bytes: crate::FILE_BYTES_MAX,
                mapped_blocks: 7,
                accessed: time(-1),
                modified: time(1 << 40),
                changed: time(5),
                created: time(i64::MIN),
                domain: 4,
                dedup: Dedup::Off,
                space_shown: SpaceShown::Mapped,
            },
            parent: 0,
            reserved_blocks: 11,
            mapped: 7,
            map: MapRoot::Tree { levels: 4, root: BlockNo(BlockNo::MAX.0) },
        }
    }

    #[test]
    fn an_inode_survives_its_encoding() {
        let tall = sample();
        let mut entries = [MapEntry::Hole; INLINE_ENTRIES];
        entries[11] = MapEntry::Block(BlockNo(77));
        entries[3] = MapEntry::Reserved;
        let inline = Inode { map: MapRoot::Inline(entries), ..sample() };
        let empty = Inode { map: MapRoot::EMPTY, ..sample() };
        let long = Inode { attr: Attr { space_shown: SpaceShown::Length, ..sample().attr }, ..sample() };
        for inode in [tall, inline, empty, long] {
            assert_eq!(Inode::decode(Ino(9), &inode.encode()), Some(inode));
        }
    }

    #[test]
    fn arbitrary_bytes_give_a_value_or_nothing() {
        let random = onefold_block::random::SeededRandom::new(1);
        for round in 0..20_000 {
            let mut bytes = sample().encode();
            for _ in 0..random.below(6) {
                let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
                bytes[at] = random.next_u64().to_le_bytes()[0];
            }
            bytes.truncate(usize::try_from(random.below(300)).unwrap().max(100 * (round % 2)));
            if let Some(inode) = Inode::decode(Ino(9), &bytes) {
                assert_eq!(Inode::decode(Ino(9), &inode.encode()), Some(inode));
            }
        }
    }
}
