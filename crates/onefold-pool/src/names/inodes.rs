//! Inodes: reading, writing and making them, and removal after the last name.

use onefold_block::{BlockNo, Timestamp};

use super::acl;
use crate::attr::{Attr, Dedup, FileKind, Ino, NewFile, SpaceShown};
use crate::error::PoolError;
use crate::format::inode::{Inode, MapRoot};
use crate::format::items;
use crate::format::state::Field;
use crate::meta::op::damaged;
use crate::meta::{Op, OpResult};
use crate::tree;
use std::ops::ControlFlow;

/// Maximum number of items that one operation removes with an inode.
const ITEMS_PER_STEP: usize = 128;

/// Returns the number of blocks in a length.
pub(crate) fn blocks_spanned(bytes: u64) -> u64 {
    bytes.div_ceil(onefold_block::block::BLOCK_BYTES_U64)
}

impl Op<'_> {
    /// Reads an inode.
    ///
    /// # Errors
    /// [`PoolError::NotFound`]; damage.
    pub(crate) fn inode(&mut self, ino: Ino) -> OpResult<Inode> {
        let value = self.item(&items::inode_key(ino))?.ok_or(PoolError::NotFound)?;
        Inode::decode(ino, &value).ok_or_else(|| damaged("inode", BlockNo(0), format!("inode {ino} makes no sense")))
    }

    /// Reads an inode that must be a directory.
    ///
    /// # Errors
    /// [`PoolError::NotADirectory`]; [`PoolError::NotFound`].
    pub(crate) fn directory(&mut self, ino: Ino) -> OpResult<Inode> {
        let inode = self.inode(ino)?;
        if inode.attr.kind == FileKind::Directory { Ok(inode) } else { Err(PoolError::NotADirectory.into()) }
    }

    /// Writes an inode.
    pub(crate) fn put_inode(&mut self, inode: &Inode) -> OpResult<()> {
        self.put_item(&items::inode_key(inode.attr.ino), &inode.encode())
    }

    /// Changes the length of a regular file, and the pool's count with it. The caller changes the map.
    pub(crate) fn set_length(&mut self, inode: &mut Inode, bytes: u64) {
        let delta = |blocks: u64| i64::try_from(blocks).unwrap_or(i64::MAX);
        let change = delta(blocks_spanned(bytes)) - delta(blocks_spanned(inode.attr.size_bytes));
        self.count(Field::ApparentBlocks, change);
        inode.attr.size_bytes = bytes;
    }

    /// Makes an inode below `parent`, with the parent's domain and settings, and its default ACL or the umask applied.
    /// The inode has no name yet.
    pub(crate) fn new_inode(&mut self, parent: &Inode, new: &NewFile, now: Timestamp) -> OpResult<Inode> {
        if parent.attr.link_count == 0 {
            return Err(PoolError::NotFound.into());
        }
        let ino = Ino(self.state(Field::NextIno));
        self.count(Field::NextIno, 1);
        self.count(Field::Inodes, 1);
        let inherited = acl::inherit(self, parent.attr.ino, new)?;
        let is_directory = new.kind == FileKind::Directory;
        let set_gid_parent = parent.attr.mode & 0o2000 != 0;
        let mut mode = inherited.mode & 0o7777;
        if set_gid_parent && is_directory {
            mode |= 0o2000;
        }
        let attr = Attr {
            ino,
            kind: new.kind,
            mode,
            link_count: if is_directory { 2 } else { 1 },
            uid: new.uid,
            gid: if set_gid_parent { parent.attr.gid } else { new.gid },
            rdev: if matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice) { new.rdev } else { 0 },
            size_bytes: 0,
            mapped_blocks: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            domain: parent.attr.domain,
            dedup: parent.attr.dedup,
            space_shown: parent.attr.space_shown,
        };
        let inode = Inode {
            attr,
            parent: if is_directory { parent.attr.ino.0 } else { 0 },
            reserved_blocks: 0,
            mapped: 0,
            map: MapRoot::EMPTY,
        };
        self.put_inode(&inode)?;
        for (name, value) in &inherited.attributes {
            self.put_xattr(ino, name, value)?;
        }
        Ok(inode)
    }

    /// Makes the root directory of a new pool.
    pub(crate) fn new_root(&mut self, uid: u32, gid: u32, dedup: Dedup, now: Timestamp) -> OpResult<()> {
        let attr = Attr {
            ino: Ino::ROOT,
            kind: FileKind::Directory,
            mode: 0o755,
            link_count: 2,
            uid,
            gid,
            rdev: 0,
            size_bytes: 0,
            mapped_blocks: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            domain: 0,
            dedup,
            space_shown: SpaceShown::ByDoor,
        };
        let root = Inode { attr, parent: Ino::ROOT.0, reserved_blocks: 0, mapped: 0, map: MapRoot::EMPTY };
        self.count(Field::Inodes, 1);
        self.put_inode(&root)
    }

    /// Takes one hold on an inode for a door, in an operation that only reads.
    pub(crate) fn hold(&mut self, ino: Ino) {
        self.meta.orphans.hold(ino);
    }

    /// Drops a name of the inode. An inode without names becomes an orphan, which lives while doors hold it.
    pub(crate) fn drop_link(&mut self, inode: &mut Inode, now: Timestamp) -> OpResult<()> {
        inode.attr.changed = now;
        inode.attr.link_count = match inode.attr.kind {
            FileKind::Directory => 0,
            _ => inode.attr.link_count.saturating_sub(1),
        };
        if inode.attr.link_count == 0 {
            self.put_item(&items::orphan_key(inode.attr.ino), &[])?;
            self.lost_name(inode.attr.ino);
        }
        self.put_inode(inode)
    }

    /// Removes an orphan without holds, or a part of its data. Returns true when it is gone.
    pub(crate) fn reap_orphan(&mut self, ino: Ino) -> OpResult<bool> {
        let mut inode = self.inode(ino)?;
        if inode.attr.link_count != 0 {
            return Err(damaged("inode", BlockNo(0), format!("orphan {ino} has {} links", inode.attr.link_count)));
        }
        if inode.attr.kind == FileKind::Regular {
            self.map_detach_all(&mut inode)?;
            self.set_length(&mut inode, 0);
            self.put_inode(&inode)?;
        }
        if !self.remove_some_items(ino)? {
            return Ok(false);
        }
        self.remove_found_item(&items::inode_key(ino))?;
        self.remove_found_item(&items::orphan_key(ino))?;
        self.count(Field::Inodes, -1);
        Ok(true)
    }

    /// Removes attributes and link target of an inode; returns false if more are left.
    fn remove_some_items(&mut self, ino: Ino) -> OpResult<bool> {
        let mut keys = Vec::new();
        let root = self.tree_root();
        let range = items::xattr_bounds(ino).0..=items::symlink_key(ino, u64::MAX);
        let _ = tree::scan(self, root, range, |key, _| {
            keys.push(key);
            if keys.len() == ITEMS_PER_STEP { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        for key in &keys {
            self.remove_found_item(key)?;
        }
        Ok(keys.len() < ITEMS_PER_STEP)
    }
}
