//! Rename: one transaction that moves a name, replaces another, or exchanges two.

use onefold_block::Timestamp;

use super::directory::{EntryName, FoundEntry};
use crate::attr::{FileKind, Ino, NewFile, RenameMode};
use crate::error::PoolError;
use crate::format::inode::Inode;
use crate::meta::{Op, OpResult};

/// Maximum number of directories between a new parent and the root. All other operations wait while they are read, some
/// milliseconds for this many. The longest path that a call can name has 2,048.
const DEPTH_MAX: u32 = 4096;
/// Links of a directory without subdirectories: its name and its own `.`.
const LINKS_WITHOUT_DIRECTORIES: u32 = 2;

/// A rename's two places.
#[derive(Clone, Copy)]
pub(crate) struct Move<'a> {
    pub(crate) from: Ino,
    pub(crate) from_name: EntryName<'a>,
    pub(crate) to: Ino,
    pub(crate) to_name: EntryName<'a>,
}

impl Op<'_> {
    /// Renames. The two parents may be the same directory.
    pub(crate) fn rename_entry(&mut self, places: Move<'_>, mode: RenameMode, now: Timestamp) -> OpResult<()> {
        let source = self.entry_of(places.from, places.from_name)?;
        let target = self.find_entry(places.to, places.to_name)?;
        let to_directory = self.directory(places.to)?;
        if to_directory.attr.link_count == 0 {
            return Err(PoolError::NotFound.into());
        }
        match (&target, mode) {
            (Some(_), RenameMode::NoReplace) => return Err(PoolError::Exists.into()),
            (None, RenameMode::Exchange) => return Err(PoolError::NotFound.into()),
            (Some(target), _) if target.item.ino == source.item.ino => return Ok(()),
            _ => {}
        }
        let moved = self.inode(source.item.ino)?;
        let from_directory = self.directory(places.from)?;
        self.check_domain_of_move(&moved, &from_directory, &to_directory)?;
        let stays = places.from == places.to;
        if !stays {
            self.check_no_loop(&moved, places.to)?;
        }
        match (target, mode) {
            (Some(target), RenameMode::Exchange) => {
                let other = self.inode(target.item.ino)?;
                self.check_domain_of_move(&other, &to_directory, &from_directory)?;
                if !stays {
                    self.check_no_loop(&other, places.from)?;
                }
                self.take_out(places.from, &source, now)?;
                self.take_out(places.to, &target, now)?;
                self.put_in(places.to, places.to_name, moved, now)?;
                self.put_in(places.from, places.from_name, other, now)
            }
            (target, _) => {
                if let Some(target) = target {
                    self.replace_target(places.to, &moved, &target, now)?;
                }
                self.take_out(places.from, &source, now)?;
                self.put_in(places.to, places.to_name, moved, now)?;
                match mode {
                    RenameMode::Whiteout { uid, gid } => self.leave_whiteout(places, uid, gid, now),
                    RenameMode::Replace | RenameMode::NoReplace | RenameMode::Exchange => Ok(()),
                }
            }
        }
    }

    /// Puts a whiteout in place of the source: the character device 0/0, with which an overlay hides a name of its
    /// lower layer.
    fn leave_whiteout(&mut self, places: Move<'_>, uid: u32, gid: u32, now: Timestamp) -> OpResult<()> {
        let mut directory = self.directory(places.from)?;
        let new = NewFile { kind: FileKind::CharDevice, mode: 0, umask: 0, uid, gid, rdev: 0 };
        let whiteout = self.new_inode(&directory, &new, now)?;
        self.add_entry(&mut directory, places.from_name, &whiteout, now)
    }

    fn replace_target(&mut self, directory: Ino, moved: &Inode, target: &FoundEntry, now: Timestamp) -> OpResult<()> {
        let mut replaced = self.inode(target.item.ino)?;
        match (moved.attr.kind == FileKind::Directory, replaced.attr.kind == FileKind::Directory) {
            (true, false) => return Err(PoolError::NotADirectory.into()),
            (false, true) => return Err(PoolError::IsADirectory.into()),
            (true, true) if !self.is_empty_directory(replaced.attr.ino)? => return Err(PoolError::NotEmpty.into()),
            _ => {}
        }
        self.take_out(directory, target, now)?;
        self.drop_link(&mut replaced, now)
    }

    fn take_out(&mut self, directory: Ino, entry: &FoundEntry, now: Timestamp) -> OpResult<()> {
        let mut directory = self.directory(directory)?;
        self.remove_entry(&mut directory, entry, now)
    }

    fn put_in(&mut self, directory: Ino, name: EntryName<'_>, mut child: Inode, now: Timestamp) -> OpResult<()> {
        let mut parent = self.directory(directory)?;
        self.add_entry(&mut parent, name, &child, now)?;
        child.attr.changed = now;
        if child.attr.kind == FileKind::Directory {
            child.parent = directory.0;
        }
        self.put_inode(&child)
    }

    /// Checks the domain: a file's is fixed at creation, and a directory holds only files of its own domain.
    pub(crate) fn check_domain(&self, child: &Inode, directory: &Inode) -> OpResult<()> {
        if child.attr.domain == directory.attr.domain { Ok(()) } else { Err(PoolError::CrossDomain.into()) }
    }

    /// Checks the domain of a move, which changes no file's domain. The moved file must either fit its new directory's
    /// domain, or have moved between directories of one domain: so a directory that begins a domain stays where a
    /// domain can begin.
    fn check_domain_of_move(&self, child: &Inode, from: &Inode, to: &Inode) -> OpResult<()> {
        if from.attr.domain == to.attr.domain { Ok(()) } else { self.check_domain(child, to) }
    }

    /// Checks that a directory does not move below itself. Without subdirectories, that could only be into itself.
    fn check_no_loop(&mut self, moved: &Inode, to: Ino) -> OpResult<()> {
        let has_directories = moved.attr.link_count > LINKS_WITHOUT_DIRECTORIES;
        if moved.attr.kind != FileKind::Directory || (!has_directories && moved.attr.ino != to) {
            return Ok(());
        }
        let mut at = to;
        for _ in 0..DEPTH_MAX {
            if at == moved.attr.ino {
                return Err(PoolError::Invalid("a directory cannot move below itself").into());
            }
            if at == Ino::ROOT {
                return Ok(());
            }
            at = Ino(self.directory(at)?.parent);
        }
        Err(PoolError::Invalid("directories nest too deeply").into())
    }
}
