//! All structures of a pool by kind, found in an image of its device; and ways to damage them.

use std::collections::BTreeSet;

use onefold_block::random::SeededRandom;
use onefold_block::{BlockNo, Random};
use onefold_pool::Ino;
use onefold_pool::format::BlockBytes;
use onefold_pool::format::geometry::{HEARTBEAT, STATE, SUPERBLOCK, SUPERBLOCK_COPY};
use onefold_pool::format::header::BlockKind;
use onefold_pool::format::inode::{Inode, MapRoot};
use onefold_pool::format::items::{self, ItemKind};
use onefold_pool::format::map_node::{self, FAN_OUT_LEN, MapEntry};
use onefold_pool::tree::Key;
use onefold_testing::device::MemoryImage;

use super::common::blocks_of_kind;

/// First block of the journal in a small pool, where its header slots are.
pub(crate) const JOURNAL: BlockNo = BlockNo(200);
/// Number of blocks of the journal in pools as small as those of these tests.
pub(crate) const JOURNAL_BLOCKS: u64 = 256;
pub(crate) const JOURNAL_SLOTS: [BlockNo; 2] = [BlockNo(200), BlockNo(201)];
/// Bitmaps and fingerprint store of block group 0.
pub(crate) const BITMAPS: [BlockNo; 2] = [BlockNo(2), BlockNo(3)];
pub(crate) const STORE_FIRST: BlockNo = BlockNo(4);

/// Kind of a block, as named by the damage matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Structure {
    Superblock,
    SuperblockCopy,
    Heartbeat,
    JournalSlot,
    State,
    Bitmap,
    Store,
    MapLeaf,
    MapNode,
    TreeLeaf,
    TreeInterior,
    Data,
}

/// Kind of damage to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Damage {
    /// One bit is flipped.
    BitFlip,
    /// All of it is zero.
    Zeroed,
    /// A write of another block of the kind went here.
    Misdirected,
    /// The last write never arrived.
    Stale,
    /// Random bytes.
    Noise,
}

pub(crate) const DAMAGES: [Damage; 5] =
    [Damage::BitFlip, Damage::Zeroed, Damage::Misdirected, Damage::Stale, Damage::Noise];

/// An item of the names tree.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) key: Key,
    pub(crate) value: Vec<u8>,
}

/// Returns the items of a leaf of the names tree.
pub(crate) fn items_of(page: &BlockBytes) -> Vec<Item> {
    let number = |at: usize| usize::from(u16::from_le_bytes([page[at], page[at + 1]]));
    (0..number(18))
        .map(|slot| {
            let cell = number(24 + slot * 2);
            let wide = |at: usize| u64::from_be_bytes(page[at..at + 8].try_into().unwrap());
            let key = Key { ino: wide(cell), kind: page[cell + 8], sub: wide(cell + 9) };
            Item { key, value: page[cell + 19..cell + 19 + number(cell + 17)].to_vec() }
        })
        .collect()
}

/// A pool's structures.
pub(crate) struct Structures {
    pub(crate) all: Vec<(Structure, BlockNo)>,
    /// All items of the names tree.
    items: Vec<Item>,
    image: MemoryImage,
}

impl Structures {
    /// Finds the structures in the image of a pool whose journal needs no recovery.
    pub(crate) fn of(image: &MemoryImage) -> Structures {
        let mut all = vec![
            (Structure::Superblock, SUPERBLOCK),
            (Structure::SuperblockCopy, SUPERBLOCK_COPY),
            (Structure::Heartbeat, HEARTBEAT),
            (Structure::State, STATE),
        ];
        all.extend(JOURNAL_SLOTS.map(|at| (Structure::JournalSlot, at)));
        all.extend(BITMAPS.map(|at| (Structure::Bitmap, at)));
        let mut found = Structures { all: Vec::new(), items: Vec::new(), image: image.clone() };
        let live = found.live();
        let of_kind = |kind| blocks_of_kind(image, kind).into_iter().filter(|(at, _)| live.contains(at));
        for (at, page) in of_kind(BlockKind::TreePage) {
            if page[16] == 0 {
                found.items.extend(items_of(&page));
            }
            all.push((if page[16] == 0 { Structure::TreeLeaf } else { Structure::TreeInterior }, at));
        }
        all.extend(of_kind(BlockKind::MapNode(0)).map(|(at, _)| (Structure::MapLeaf, at)));
        all.extend(of_kind(BlockKind::MapNode(1)).map(|(at, _)| (Structure::MapNode, at)));
        let used: BTreeSet<BlockNo> = live.iter().map(|at| STORE_FIRST.plus(at.0 / 170)).collect();
        all.extend(used.into_iter().map(|at| (Structure::Store, at)));
        let inodes: Vec<Ino> = found.inodes().iter().map(|inode| inode.attr.ino).collect();
        let data: BTreeSet<BlockNo> = inodes.iter().flat_map(|ino| found.data_of(*ino)).collect();
        all.extend(data.into_iter().map(|at| (Structure::Data, at)));
        found.all = all;
        found
    }

    /// Returns the blocks that the fingerprint store of group 0 records as used.
    fn live(&self) -> BTreeSet<BlockNo> {
        let pages = blocks_of_kind(&self.image, BlockKind::StorePage);
        let entries = pages.iter().flat_map(|(at, page)| {
            let first = (at.0 - STORE_FIRST.0) * 170;
            page[16..].chunks(24).zip(first..).filter(|(entry, _)| entry[22] != 0).map(|(_, block)| BlockNo(block))
        });
        entries.collect()
    }

    pub(crate) fn inodes(&self) -> Vec<Inode> {
        let inodes = self.items.iter().filter(|item| items::item_kind(&item.key) == Some(ItemKind::Inode));
        inodes.map(|item| Inode::decode(Ino(item.key.ino), &item.value).expect("a sound inode")).collect()
    }

    /// Returns the map nodes of a file.
    pub(crate) fn nodes_of(&self, ino: Ino) -> Vec<BlockNo> {
        let mut nodes = Vec::new();
        for inode in self.inodes().iter().filter(|inode| inode.attr.ino == ino) {
            if let MapRoot::Tree { levels, root } = &inode.map {
                self.walk(*root, levels - 1, &mut |at, level| nodes.extend(level.map(|_| at)));
            }
        }
        nodes
    }

    /// Returns the data blocks of a file.
    pub(crate) fn data_of(&self, ino: Ino) -> Vec<BlockNo> {
        let mut data = Vec::new();
        for inode in self.inodes().iter().filter(|inode| inode.attr.ino == ino) {
            match &inode.map {
                MapRoot::Inline(entries) => data.extend(entries.iter().filter_map(|entry| match entry {
                    MapEntry::Block(at) => Some(*at),
                    _ => None,
                })),
                MapRoot::Tree { levels, root } => self.walk(*root, levels - 1, &mut |at, level| {
                    if level.is_none() {
                        data.push(at);
                    }
                }),
            }
        }
        data
    }

    /// Passes all nodes (with their level) and data blocks below a node to `show`.
    fn walk(&self, at: BlockNo, level: u8, show: &mut dyn FnMut(BlockNo, Option<u8>)) {
        show(at, Some(level));
        let node = self.image.get(at).expect("a node");
        for index in 0..FAN_OUT_LEN {
            match map_node::entry(node, index) {
                Some(MapEntry::Block(below)) if level == 0 => show(below, None),
                Some(MapEntry::Block(below)) => self.walk(below, level - 1, show),
                _ => {}
            }
        }
    }

    /// Returns the inodes with items in a leaf of the names tree: themselves, attributes, link target, entries.
    pub(crate) fn inodes_in(&self, leaf: BlockNo) -> BTreeSet<Ino> {
        items_of(self.image.get(leaf).expect("a leaf")).iter().map(|item| Ino(item.key.ino)).collect()
    }
}

/// Returns the content of a block after damage; `None` if the damage does not change it. `older` is the pool's image at
/// an earlier time.
pub(crate) fn damaged(
    damage: Damage,
    (structure, at): (Structure, BlockNo),
    now: &Structures,
    older: &MemoryImage,
    seed: u64,
) -> Option<BlockBytes> {
    let held = |image: &MemoryImage, at| image.get(at).map_or([0; 4096], |bytes| **bytes);
    let before = held(&now.image, at);
    let random = SeededRandom::new(seed);
    let after = match damage {
        Damage::BitFlip => {
            let mut bytes = before;
            // A superblock without its magic counts as overwritten, which zeroing already covers.
            let bit = random.below(4096 * 8 - 1024) as usize + 1024;
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        }
        Damage::Zeroed => [0; 4096],
        Damage::Misdirected => {
            let others: Vec<BlockNo> =
                now.all.iter().filter(|other| other.0 == structure && other.1 != at).map(|other| other.1).collect();
            let other = if others.is_empty() { STATE } else { others[random.below(others.len() as u64) as usize] };
            held(&now.image, if other == at { STORE_FIRST } else { other })
        }
        Damage::Stale => held(older, at),
        Damage::Noise => {
            let mut bytes = [0; 4096];
            random.fill(&mut bytes).unwrap();
            bytes
        }
    };
    (after != before).then_some(after)
}
