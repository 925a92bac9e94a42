//! Attributes: mode, owner, times, length, extended attributes.

use super::Pool;
use crate::attr::{Attr, Dedup, FileKind, Ino, SetAttr, SpaceShown, TimeChange, XattrMode};
use crate::error::{PoolError, Result};
use crate::format::inode::Inode;
use crate::format::items;
use crate::meta::{Op, OpResult, Privilege};
use crate::names::acl::{self, Acl};
use onefold_block::Timestamp;

/// Attribute that shows and sets whether a file shares blocks: `on` or `off`.
const DEDUP: &[u8] = b"user.onefold.dedup";
/// Attribute that shows and sets the space that doors show for a file: `length`, `mapped`, or `mount` for the mount's
/// setting.
const SPACE_SHOWN: &[u8] = b"user.onefold.st_blocks";
/// Extended attribute that shows a file's sharing domain; it can be set on an empty directory. The pool does not
/// authenticate its callers: a door must let only users set it who may decide who shares with whom.
pub const DOMAIN_XATTR: &[u8] = b"user.onefold.domain";

/// Extended attributes that hold POSIX ACLs: for access, and for new files in a directory.
pub const ACL_XATTRS: [&[u8]; 2] = [acl::ACCESS, acl::DEFAULT];

impl Pool {
    /// Returns an inode's attributes.
    ///
    /// # Errors
    /// [`PoolError::NotFound`].
    pub fn attr(&self, ino: Ino) -> Result<Attr> {
        // Accepted writes change only the length and the times of their own files.
        self.data.settle_file(ino);
        self.engine.view(|op| Ok(op.inode(ino)?.door_attr()))
    }

    /// Returns an inode's kind and mode, and whether it has an extended attribute. Accepted writes change none of
    /// these, so this does not wait for them.
    ///
    /// # Errors
    /// [`PoolError::NotFound`].
    pub fn mode_and_xattr(&self, ino: Ino, name: &[u8]) -> Result<(FileKind, u16, bool)> {
        self.engine.view(|op| {
            let attr = op.inode(ino)?.attr;
            Ok((attr.kind, attr.mode, op.xattr(ino, name)?.is_some()))
        })
    }

    /// Sets the access time to the present if `wants_update` says so of the attributes. Does not wait for accepted
    /// writes: their times are compared at the next call, and their blocks may become durable after the access time, on
    /// which nothing depends.
    ///
    /// # Errors
    /// [`PoolError::NotFound`], [`PoolError::NoSpace`].
    pub fn touch(&self, ino: Ino, wants_update: impl Fn(&Attr) -> bool) -> Result<()> {
        if !self.engine.view(|op| Ok(wants_update(&op.inode(ino)?.attr)))? {
            return Ok(());
        }
        let now = self.engine.environment.clock.now();
        self.engine.run(Privilege::Shrinking, |op| {
            let mut inode = op.inode(ino)?;
            inode.attr.accessed = now;
            op.put_inode(&inode)
        })
    }

    /// Changes attributes; a changed length truncates or extends. All or nothing.
    ///
    /// # Errors
    /// [`PoolError::NotFound`], [`PoolError::FileTooLarge`], [`PoolError::IsADirectory`] for a directory's length.
    pub fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        let now = self.engine.environment.clock.now();
        let mut also = |op: &mut Op<'_>, inode: &mut Inode| set(op, inode, change, now);
        match change.size_bytes {
            Some(bytes) => {
                self.settled_data().truncate_file(ino, bytes, now, &mut also)?;
                if bytes == 0 {
                    self.data.losses.forget_file(ino);
                }
            }
            None => self.settled().run(Privilege::Shrinking, |op| {
                let mut inode = op.inode(ino)?;
                also(op, &mut inode)?;
                op.put_inode(&inode)
            })?,
        }
        self.attr(ino)
    }

    /// Returns an extended attribute's value. Accepted writes change none, so this does not wait for them: the kernel
    /// asks for one before the first write to a file.
    ///
    /// # Errors
    /// [`PoolError::NoAttribute`], [`PoolError::NotFound`].
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.engine.view(|op| {
            let inode = op.inode(ino)?;
            match name {
                DEDUP => Ok(if inode.attr.dedup == Dedup::On { b"on".to_vec() } else { b"off".to_vec() }),
                SPACE_SHOWN => Ok(space_shown_name(inode.attr.space_shown).to_vec()),
                DOMAIN_XATTR => Ok(inode.attr.domain.to_string().into_bytes()),
                _ => Ok(op.xattr(ino, name)?.ok_or(PoolError::NoAttribute)?),
            }
        })
    }

    /// Returns the names of an inode's extended attributes, without the pool's own.
    ///
    /// # Errors
    /// [`PoolError::NotFound`]; [`PoolError::TooManyAttributes`] if the names, each with a zero byte at its end, are
    /// longer than [`crate::XATTR_LIST_BYTES_MAX`].
    pub fn xattr_names(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let (mut names, mut bytes) = (Vec::new(), 0);
        let mut from = Some(items::xattr_bounds(ino).0);
        while let Some(key) = from {
            let (some, next) = self.settled().view(|op| {
                op.inode(ino)?;
                op.xattr_names(ino, key)
            })?;
            bytes += some.iter().map(|name| name.len() + 1).sum::<usize>();
            if bytes > crate::XATTR_LIST_BYTES_MAX {
                return Err(PoolError::TooManyAttributes);
            }
            names.extend(some);
            from = next;
        }
        Ok(names)
    }

    /// Sets an extended attribute. A POSIX ACL also changes the mode; `user.onefold.dedup`, `user.onefold.st_blocks`
    /// and `user.onefold.domain` are the pool's own.
    ///
    /// # Errors
    /// [`PoolError::Exists`] or [`PoolError::NoAttribute`] by `mode`, [`PoolError::AttributeTooLarge`],
    /// [`PoolError::NameTooLong`], [`PoolError::Invalid`] for a malformed ACL.
    pub fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if name.len() > crate::NAME_BYTES_MAX {
            return Err(PoolError::NameTooLong);
        }
        if value.len() > crate::XATTR_BYTES_MAX {
            return Err(PoolError::AttributeTooLarge);
        }
        if name.is_empty() {
            return Err(PoolError::Invalid("an attribute without a name"));
        }
        let now = self.engine.environment.clock.now();
        self.settled().run(Privilege::Normal, |op| {
            let mut inode = op.inode(ino)?;
            inode.attr.changed = now;
            match name {
                DEDUP => set_dedup(&mut inode, value)?,
                SPACE_SHOWN => inode.attr.space_shown = space_shown_of(value)?,
                DOMAIN_XATTR => set_domain(op, &mut inode, value)?,
                acl::ACCESS => {
                    let access = Acl::decode(value)?;
                    inode.attr.mode = inode.attr.mode & !0o777 | access.mode_bits();
                    if access.is_minimal() {
                        op.remove_xattr(ino, name)?;
                    } else {
                        op.put_xattr(ino, name, value)?;
                    }
                }
                _ => {
                    if name == acl::DEFAULT {
                        Acl::decode(value)?;
                        if inode.attr.kind != FileKind::Directory {
                            return Err(PoolError::NotPermitted("only a directory has a default ACL").into());
                        }
                    }
                    match (op.xattr(ino, name)?.is_some(), mode) {
                        (true, XattrMode::Create) => return Err(PoolError::Exists.into()),
                        (false, XattrMode::Replace) => return Err(PoolError::NoAttribute.into()),
                        _ => op.put_xattr(ino, name, value)?,
                    }
                }
            }
            op.put_inode(&inode)
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`PoolError::NoAttribute`].
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let now = self.engine.environment.clock.now();
        self.settled().run(Privilege::Freeing, |op| {
            let mut inode = op.inode(ino)?;
            let is_removed = if name == SPACE_SHOWN {
                std::mem::replace(&mut inode.attr.space_shown, SpaceShown::ByDoor) != SpaceShown::ByDoor
            } else {
                op.remove_xattr(ino, name)?
            };
            if !is_removed {
                return Err(PoolError::NoAttribute.into());
            }
            inode.attr.changed = now;
            op.put_inode(&inode)
        })
    }
}

/// Applies all parts of `change` except the length.
fn set(op: &mut Op<'_>, inode: &mut Inode, change: &SetAttr, now: Timestamp) -> OpResult<()> {
    let at = |time: TimeChange| match time {
        TimeChange::Now => now,
        TimeChange::At(time) => time,
    };
    let attr = &mut inode.attr;
    if let Some(mode) = change.mode {
        attr.mode = mode & 0o7777;
        acl::follow_mode(op, attr.ino, mode)?;
    }
    attr.uid = change.uid.unwrap_or(attr.uid);
    attr.gid = change.gid.unwrap_or(attr.gid);
    attr.accessed = change.accessed.map_or(attr.accessed, at);
    attr.modified = change.modified.map_or(attr.modified, at);
    let only_access_time = SetAttr { accessed: change.accessed, ..SetAttr::default() };
    let relative_access = *change == only_access_time && change.accessed == Some(TimeChange::Now);
    if !relative_access {
        attr.changed = now;
    }
    if attr.accessed.nanoseconds >= 1_000_000_000 || attr.modified.nanoseconds >= 1_000_000_000 {
        return Err(PoolError::Invalid("a second has 10^9 nanoseconds").into());
    }
    Ok(())
}

fn set_dedup(inode: &mut Inode, value: &[u8]) -> Result<()> {
    inode.attr.dedup = match value {
        b"on" => Dedup::On,
        b"off" => Dedup::Off,
        _ => return Err(PoolError::Invalid("dedup is `on` or `off`")),
    };
    Ok(())
}

fn space_shown_name(space_shown: SpaceShown) -> &'static [u8] {
    match space_shown {
        SpaceShown::ByDoor => b"mount",
        SpaceShown::Length => b"length",
        SpaceShown::Mapped => b"mapped",
    }
}

fn space_shown_of(name: &[u8]) -> Result<SpaceShown> {
    let all = [SpaceShown::ByDoor, SpaceShown::Length, SpaceShown::Mapped];
    let found = all.into_iter().find(|space_shown| space_shown_name(*space_shown) == name);
    found.ok_or(PoolError::Invalid("st_blocks is `length`, `mapped` or `mount`"))
}

fn set_domain(op: &mut Op<'_>, inode: &mut Inode, value: &[u8]) -> OpResult<()> {
    if inode.attr.kind != FileKind::Directory || !op.is_empty_directory(inode.attr.ino)? {
        return Err(PoolError::NotPermitted("the sharing domain can be set on an empty directory").into());
    }
    let text = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
    inode.attr.domain = text.ok_or(PoolError::Invalid("a sharing domain is a number from 0 to 65535"))?;
    Ok(())
}
