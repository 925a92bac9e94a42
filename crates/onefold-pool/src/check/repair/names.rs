//! Names and inodes: plans the repair in one pass over the whole names tree. Operations on the opened pool then carry
//! it out ([`super::settle`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onefold_block::BlockDevice;

use super::domains;
use super::each_item::each_item;
use crate::attr::{FileKind, Ino};
use crate::check::RepairFacts;
use crate::data::Data;
use crate::engine::Engine;
use crate::error::{PoolError, Result};
use crate::format::header::BlockKind;
use crate::format::inode::Inode;
use crate::format::items::{self, DirItem, FilterRun, ItemKind, ReclaimItem};
use crate::format::state::Field;
use crate::meta::{Op, OpResult, Privilege};
use crate::names::directory::EntryName;
use crate::names::inodes::blocks_spanned;
use crate::names::{NameHash, xattr};
use crate::options::{Environment, OpenOptions};
use crate::tree::Key;

/// Memory of a plan for each inode, in bytes: [`InodeRecord`] in a tree whose nodes are half full.
const KNOWN_BYTES: u64 = 112;
const _: () = assert!(2 * (size_of::<InodeRecord>() + size_of::<Ino>()) as u64 <= KNOWN_BYTES);

/// An inode and its names, as recorded in the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct InodeRecord {
    /// For a directory: the directory that names it.
    pub(super) parent: u64,
    /// For a directory: the cookie of its entry in its parent.
    cookie: u64,
    /// Bytes of the link target that exist.
    pub(super) target_bytes: u64,
    /// For a directory: numbers of entries, and of those that are directories.
    pub(super) entries: u64,
    pub(super) subdirectories: u32,
    /// Link count in the inode.
    pub(super) links: u32,
    /// Number of entries that lead to it.
    pub(super) names: u32,
    pub(super) domain: u16,
    pub(super) kind: FileKind,
}

impl InodeRecord {
    pub(super) fn new(inode: &Inode) -> InodeRecord {
        InodeRecord {
            parent: inode.parent,
            cookie: 0,
            target_bytes: 0,
            entries: 0,
            subdirectories: 0,
            links: inode.attr.link_count,
            names: 0,
            domain: inode.attr.domain,
            kind: inode.attr.kind,
        }
    }
}

/// The planned changes.
#[derive(Default)]
pub(super) struct NamesPlan {
    pub(super) inodes: BTreeMap<Ino, InodeRecord>,
    pub(super) orphans: BTreeSet<Ino>,
    pub(super) next_reclaim: u64,
    pub(super) removals: Vec<Key>,
    pub(super) puts: Vec<(Key, Vec<u8>)>,
    /// Entries that lead to a file of another sharing domain than their directory's.
    crossing: Vec<CrossingEntry>,
    /// Whether a file has changed its sharing domain.
    has_moved_domains: bool,
}

/// An entry that leads to a file of another sharing domain.
struct CrossingEntry {
    key: Key,
    child: Ino,
    /// The directory's domain.
    domain: u16,
}

/// Brings names and inodes into agreement.
///
/// # Errors
/// [`PoolError::MemoryTooSmall`] for more files than fit: all inodes are held at once.
pub(super) fn mend(
    device: &Arc<dyn BlockDevice>,
    environment: &Environment,
    facts: &RepairFacts,
    memory_bytes: u64,
) -> Result<()> {
    let options = OpenOptions { background: false, memory_bytes: crate::MEMORY_BYTES_MIN, ..OpenOptions::default() };
    let engine = Arc::new(Engine::open(Arc::clone(device), options, environment.clone())?);
    let needed = engine.meta().state(Field::Inodes).saturating_mul(KNOWN_BYTES) + crate::MEMORY_BYTES_MIN;
    if needed > memory_bytes + crate::MEMORY_BYTES_MIN {
        return Err(PoolError::MemoryTooSmall { given: memory_bytes, needed });
    }
    let mut plan = NamesPlan::default();
    plan.look_at_items(&engine)?;
    plan.look_at_entries(&engine)?;
    plan.settle_domains();
    plan.break_loops();
    let has_moved = plan.has_moved_domains;
    plan.carry_out(&engine)?;
    for ino in &facts.past_end {
        engine.run(Privilege::Freeing, |op| cut(op, *ino))?;
    }
    if facts.mixed_domains || has_moved {
        domains::mend(&Data::new(Arc::clone(&engine)))?;
    }
    engine.commit_and_close()
}

/// Removes data past its end from a file.
fn cut(op: &mut Op<'_>, ino: Ino) -> OpResult<()> {
    let Some(value) = op.item(&items::inode_key(ino))? else { return Ok(()) };
    let Some(mut inode) = Inode::decode(ino, &value) else { return Ok(()) };
    if inode.attr.kind == FileKind::Regular {
        let end = blocks_spanned(inode.attr.size_bytes);
        op.map_clear(&mut inode, end, u64::MAX)?;
        op.put_inode(&inode)?;
    }
    Ok(())
}

/// Chunks of one attribute.
#[derive(Default)]
struct Chunks {
    keys: Vec<Key>,
    bytes_missing: Option<usize>,
}

impl NamesPlan {
    /// Examines every item by itself.
    fn look_at_items(&mut self, engine: &Engine) -> Result<()> {
        let mut chunks = Chunks::default();
        each_item(engine, |key, value| {
            let kind = items::item_kind(&key);
            if chunks
                .keys
                .last()
                .is_some_and(|last| (last.ino, last.kind, last.sub >> 8) != (key.ino, key.kind, key.sub >> 8))
            {
                self.end_attribute(&mut chunks);
            }
            let owner = self.inodes.get_mut(&Ino(key.ino));
            let keep = match kind {
                None => false,
                Some(ItemKind::Orphan) => {
                    // A damaged entry is removed; an inode without links gets another one.
                    let is_sound = value.is_empty();
                    if is_sound {
                        self.orphans.insert(Ino(key.sub));
                    }
                    is_sound
                }
                Some(ItemKind::Reclaim) => {
                    self.next_reclaim = self.next_reclaim.max(key.sub.saturating_add(1));
                    ReclaimItem::decode(value).is_some_and(|item| is_readable(engine, item))
                }
                Some(ItemKind::FilterRun) => FilterRun::decode(value).is_some(),
                Some(ItemKind::Inode) => match Inode::decode(Ino(key.ino), value) {
                    Some(inode) => {
                        self.inodes.insert(Ino(key.ino), InodeRecord::new(&inode));
                        true
                    }
                    None => false,
                },
                Some(ItemKind::DirEntry) => owner.is_some_and(|known| known.kind == FileKind::Directory),
                Some(ItemKind::Xattr) => {
                    let is_owned = owner.is_some();
                    if is_owned {
                        chunks.add(key, value);
                    }
                    is_owned
                }
                Some(ItemKind::Symlink) => match owner {
                    Some(known) if known.kind == FileKind::Symlink => {
                        let follows = known.target_bytes == key.sub.saturating_mul(items::CHUNK_BYTES as u64);
                        known.target_bytes += if follows { value.len() as u64 } else { 0 };
                        follows
                    }
                    _ => false,
                },
            };
            if !keep {
                self.removals.push(key);
            }
        })?;
        self.end_attribute(&mut chunks);
        self.drop_empty_links();
        Ok(())
    }

    fn end_attribute(&mut self, chunks: &mut Chunks) {
        let ended = std::mem::take(chunks);
        if ended.bytes_missing != Some(0) {
            self.removals.extend(ended.keys);
        }
    }

    /// Plans the removal of symbolic links without a complete target.
    fn drop_empty_links(&mut self) {
        let removals = &mut self.removals;
        self.inodes.retain(|ino, known| {
            let is_lost =
                known.kind == FileKind::Symlink && !(1..=crate::SYMLINK_BYTES_MAX as u64).contains(&known.target_bytes);
            if is_lost {
                removals.push(items::inode_key(*ino));
            }
            !is_lost
        });
    }

    /// Examines the targets of entries.
    fn look_at_entries(&mut self, engine: &Engine) -> Result<()> {
        let mut seen: (Ino, u64, Vec<Vec<u8>>) = (Ino(0), 0, Vec::new());
        each_item(engine, |key, value| {
            if items::item_kind(&key) != Some(ItemKind::DirEntry) {
                return;
            }
            let directory = Ino(key.ino);
            let Some(parent) = self.inodes.get(&directory) else { return };
            if parent.kind != FileKind::Directory {
                return;
            }
            let (is_gone, domain) = (parent.links == 0, parent.domain);
            let item = DirItem::decode(value).filter(|item| is_findable(item, key.sub, &engine.name_hash));
            let hash = key.sub >> 8;
            if (seen.0, seen.1) != (directory, hash) {
                seen = (directory, hash, Vec::new());
            }
            let item = item.filter(|item| !is_gone && item.ino != Ino::ROOT && !seen.2.contains(&item.name));
            let child = item.as_ref().and_then(|item| self.inodes.get_mut(&item.ino));
            let (Some(item), Some(child)) = (item, child) else {
                self.removals.push(key);
                return;
            };
            let kind = child.kind;
            if kind == FileKind::Directory && child.names > 0 {
                self.removals.push(key);
                return;
            }
            if kind != FileKind::Directory && child.domain != domain {
                self.crossing.push(CrossingEntry { key, child: item.ino, domain });
            }
            child.names += 1;
            if kind == FileKind::Directory {
                (child.parent, child.cookie) = (directory.0, key.sub);
            }
            if item.kind != kind {
                self.puts.push((key, DirItem { kind, ..item.clone() }.encode()));
            }
            seen.2.push(item.name);
            if let Some(parent) = self.inodes.get_mut(&directory) {
                parent.entries += 1;
                parent.subdirectories += u32::from(kind == FileKind::Directory);
            }
        })
    }

    /// Brings files and the directories that name them into one sharing domain. If the file has other names, a name in
    /// another domain is removed; otherwise the file moves to that domain.
    fn settle_domains(&mut self) {
        for CrossingEntry { key, child, domain } in std::mem::take(&mut self.crossing) {
            let Some(known) = self.inodes.get_mut(&child) else { continue };
            if known.domain == domain {
                continue;
            }
            if known.names == 1 {
                known.domain = domain;
                self.has_moved_domains = true;
                continue;
            }
            known.names -= 1;
            self.removals.push(key);
            if let Some(parent) = self.inodes.get_mut(&Ino(key.ino)) {
                parent.entries = parent.entries.saturating_sub(1);
            }
        }
    }

    /// Takes one directory out of each loop, so that it can be reached again.
    fn break_loops(&mut self) {
        let directories: Vec<Ino> =
            self.inodes.iter().filter(|(_, known)| known.kind == FileKind::Directory).map(|(ino, _)| *ino).collect();
        let mut ends: BTreeSet<Ino> = BTreeSet::new();
        for start in directories {
            let mut way: BTreeSet<Ino> = BTreeSet::new();
            let mut at = start;
            while at != Ino::ROOT && !ends.contains(&at) {
                let Some(known) = self.inodes.get(&at).filter(|known| known.names > 0) else { break };
                if !way.insert(at) {
                    self.take_out(at);
                    break;
                }
                at = Ino(known.parent);
            }
            ends.extend(way);
        }
    }

    fn take_out(&mut self, ino: Ino) {
        let Some(known) = self.inodes.get_mut(&ino) else { return };
        known.names = 0;
        let parent = Ino(known.parent);
        self.removals.push(items::dir_entry_key(parent, known.cookie));
        if let Some(parent) = self.inodes.get_mut(&parent) {
            parent.entries = parent.entries.saturating_sub(1);
            parent.subdirectories = parent.subdirectories.saturating_sub(1);
        }
    }
}

impl Chunks {
    fn add(&mut self, key: Key, value: &[u8]) {
        let chunk = key.sub & 0xff;
        let follows = chunk == self.keys.len() as u64;
        self.keys.push(key);
        self.bytes_missing = if chunk == 0 {
            items::xattr_split(value)
                .filter(|(name, _, _)| xattr::hash(name) >> 16 == key.sub >> 16)
                .and_then(|(_, length, first)| length.checked_sub(first.len()))
        } else {
            self.bytes_missing.filter(|_| follows).and_then(|missing| missing.checked_sub(value.len()))
        };
    }
}

/// Returns whether an entry is valid and lies where a look-up finds it.
fn is_findable(item: &DirItem, cookie: u64, names: &NameHash) -> bool {
    let (first, last) = items::dir_cookies(names.of(&item.name));
    (first..=last).contains(&cookie) && EntryName::changeable(&item.name, names).is_ok()
}

fn is_readable(engine: &Engine, item: ReclaimItem) -> bool {
    engine.view(|op| op.block(item.node, BlockKind::MapNode(item.level)).map(|_| ())).is_ok()
}
