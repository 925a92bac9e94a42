//! Requests about extended attributes.

use std::os::unix::ffi::OsStrExt;

use onefold_pool::{ACL_XATTRS, DOMAIN_XATTR, Ino, SetAttr};
use rustix::io::Errno;

use super::{PoolFilesystem, Result};
use crate::fuse::flags::xattr_mode;
use crate::fuse::privileges::SET_GID;
use crate::fuse::protocol::XattrChange;
use crate::options::CONTROL_XATTR;

impl PoolFilesystem {
    pub(in crate::fuse) fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if is_control(ino, name) {
            return Ok(self.control_path.as_os_str().as_bytes().to_vec());
        }
        check_supported(name)?;
        self.pool.xattr(ino, name).map_err(|error| self.failed("getxattr", ino, &error))
    }

    /// Returns the names, each ended by a zero byte, in the form of `listxattr(2)`.
    pub(in crate::fuse) fn xattr_names(&self, ino: Ino) -> Result<Vec<u8>> {
        let names = self.pool.xattr_names(ino).map_err(|error| self.failed("listxattr", ino, &error))?;
        let mut list = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names.iter().filter(|name| check_supported(name).is_ok()) {
            list.extend_from_slice(name);
            list.push(0);
        }
        Ok(list)
    }

    /// Sets an attribute for user `uid`, whose permission the kernel has checked.
    pub(in crate::fuse) fn set_xattr(&self, ino: Ino, change: &XattrChange<'_>, uid: u32) -> Result<()> {
        let mode = xattr_mode(change.flags)?;
        check_supported(change.name)?;
        if is_control(ino, change.name) || (change.name == DOMAIN_XATTR && !is_keeper(uid)) {
            return Err(Errno::PERM);
        }
        let set = || {
            self.pool.set_xattr(ino, change.name, change.value, mode)?;
            if change.drops_set_gid {
                let mode = Some(self.pool.attr(ino)?.mode & !SET_GID);
                self.pool.set_attr(ino, &SetAttr { mode, ..SetAttr::default() })?;
            }
            Ok(())
        };
        set().map_err(|error| self.failed("setxattr", ino, &error))
    }

    pub(in crate::fuse) fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        if is_control(ino, name) {
            return Err(Errno::PERM);
        }
        check_supported(name)?;
        self.pool.remove_xattr(ino, name).map_err(|error| self.failed("removexattr", ino, &error))
    }
}

/// Returns whether user `uid` may decide which files share: root and the daemon's user may. Any other user could put a
/// directory into another tenant's sharing domain, and learn that tenant's content from what is shared there.
fn is_keeper(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Refuses names that begin with `system.`, except the two of ACLs. The kernel leaves permissions for these names to
/// the file system, and checks none itself.
fn check_supported(name: &[u8]) -> Result<()> {
    let is_refused = name.starts_with(b"system.") && !ACL_XATTRS.contains(&name);
    if is_refused { Err(Errno::OPNOTSUPP) } else { Ok(()) }
}

fn is_control(ino: Ino, name: &[u8]) -> bool {
    ino == Ino::ROOT && name == CONTROL_XATTR.as_bytes()
}
