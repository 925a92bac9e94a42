//! Requests about names: look up, create, remove, rename.

use onefold_pool::{Attr, Ino, NewFile, PoolError, RenameMode};
use rustix::io::Errno;

use super::{PoolFilesystem, Result};

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(in crate::fuse) struct NameInDirectory<'a> {
    pub(in crate::fuse) parent: Ino,
    pub(in crate::fuse) name: &'a [u8],
}

/// Owner of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct FileOwner {
    pub(in crate::fuse) uid: u32,
    pub(in crate::fuse) gid: u32,
}

impl PoolFilesystem {
    /// Looks up a file. Like all methods here that return attributes, it takes a hold on the file.
    pub(in crate::fuse) fn lookup(&self, at: NameInDirectory<'_>) -> Result<Attr> {
        self.pool.lookup(at.parent, at.name).map_err(|error| self.failed("lookup", at.parent, &error))
    }

    pub(in crate::fuse) fn create(&self, at: NameInDirectory<'_>, new: &NewFile) -> Result<Attr> {
        let created = self.pool.create_file(at.parent, at.name, new);
        self.kept_file(created).map_err(|error| self.failed("create", at.parent, &error))
    }

    /// Makes a file without a name in the file system of `directory`. The file gets the directory's default ACL and
    /// domain.
    pub(in crate::fuse) fn create_unnamed(&self, directory: Ino, new: &NewFile) -> Result<Attr> {
        self.pool.create_unnamed(directory, new).map_err(|error| self.failed("create", directory, &error))
    }

    pub(in crate::fuse) fn create_symlink(
        &self,
        at: NameInDirectory<'_>,
        target: &[u8],
        uid: u32,
        gid: u32,
    ) -> Result<Attr> {
        let created = self.pool.create_symlink(at.parent, at.name, target, uid, gid);
        self.kept_file(created).map_err(|error| self.failed("symlink", at.parent, &error))
    }

    pub(in crate::fuse) fn read_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.pool.read_symlink(ino).map_err(|error| self.failed("readlink", ino, &error))
    }

    pub(in crate::fuse) fn link(&self, ino: Ino, to: NameInDirectory<'_>) -> Result<Attr> {
        let linked = self.pool.link(ino, to.parent, to.name);
        self.kept_file(linked).map_err(|error| self.failed("link", ino, &error))
    }

    pub(in crate::fuse) fn unlink(&self, at: NameInDirectory<'_>) -> Result<()> {
        let removed = self.pool.unlink(at.parent, at.name);
        self.kept(removed).map_err(|error| self.failed("unlink", at.parent, &error))
    }

    pub(in crate::fuse) fn remove_directory(&self, at: NameInDirectory<'_>) -> Result<()> {
        let removed = self.pool.remove_directory(at.parent, at.name);
        self.kept(removed).map_err(|error| self.failed("rmdir", at.parent, &error))
    }

    /// Renames. A whiteout that stays behind belongs to `caller`.
    pub(in crate::fuse) fn rename(
        &self,
        from: NameInDirectory<'_>,
        to: NameInDirectory<'_>,
        flags: u32,
        caller: FileOwner,
    ) -> Result<()> {
        let mode = rename_mode(flags, caller)?;
        let renamed = self.pool.rename(from.parent, from.name, to.parent, to.name, mode);
        self.kept(renamed).map_err(|error| self.failed("rename", from.parent, &error))
    }

    /// Does the same as [`PoolFilesystem::kept`] for a change that took a hold on a file. After a failure the kernel
    /// does not know of the hold, so it is released.
    fn kept_file(&self, changed: std::result::Result<Attr, PoolError>) -> std::result::Result<Attr, PoolError> {
        let attr = changed?;
        self.kept(Ok(())).inspect_err(|_| self.forget(attr.ino, 1))?;
        Ok(attr)
    }

    /// Makes a change of a name durable if the mount's options `sync` or `dirsync` promise that. The kernel leaves it
    /// to the daemon. The change stays where this fails for want of room below: the next commit makes it durable.
    fn kept<T>(&self, changed: std::result::Result<T, PoolError>) -> std::result::Result<T, PoolError> {
        let changed = changed?;
        if self.syncs_names {
            self.pool.sync()?;
        }
        Ok(changed)
    }
}

/// Returns the mode of a `renameat2(2)` by `caller`.
///
/// # Errors
/// `EINVAL` for combinations of flags and for unknown flags.
fn rename_mode(flags: u32, caller: FileOwner) -> Result<RenameMode> {
    match flags {
        0 => Ok(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        libc::RENAME_WHITEOUT => Ok(RenameMode::Whiteout { uid: caller.uid, gid: caller.gid }),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rename_flags_exclude_each_other() {
        let caller = FileOwner { uid: 7, gid: 8 };
        assert_eq!(rename_mode(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE, caller), Err(Errno::INVAL));
        assert_eq!(rename_mode(libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT, caller), Err(Errno::INVAL));
        assert_eq!(rename_mode(libc::RENAME_EXCHANGE, caller), Ok(RenameMode::Exchange));
        assert_eq!(rename_mode(libc::RENAME_WHITEOUT, caller), Ok(RenameMode::Whiteout { uid: 7, gid: 8 }));
    }
}
