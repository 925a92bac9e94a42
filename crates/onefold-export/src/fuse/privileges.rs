//! When set-user-id and set-group-id bits go away.
//!
//! The kernel could do this by itself, at the price of asking for `security.capability` before *every* buffered write,
//! and would forget it for direct writes. So `FUSE_HANDLE_KILLPRIV_V2` is negotiated and it is done here, where the kernel
//! says so: with each chown, and with writes and truncates of callers that lack `CAP_FSETID`.

use onefold_pool::{FileKind, Ino, Pool, PoolError, SetAttr};

const SET_UID: u16 = 0o4000;
pub(super) const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// Extended attribute that gives a program privileges, as the set-user-id bit does.
const CAPABILITY_XATTR: &[u8] = b"security.capability";

/// What a request does to the privileges that a file gives to whoever runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Privileges {
    Kept,
    Dropped,
}

/// Tells whether a request to make `change` takes privileges away from a file.
pub(super) fn are_lost_by(change: &SetAttr, privileges: Privileges) -> bool {
    // chmod says itself what the bits are to be. A request to change nothing is how the kernel asks for just this.
    change.mode.is_none() && (privileges == Privileges::Dropped || *change == SetAttr::default())
}

/// Takes the privileges of a program away, because somebody without the right to give them changes its content.
///
/// # Errors
/// What the pool reports.
pub(crate) fn drop_from(pool: &Pool, ino: Ino) -> onefold_pool::Result<()> {
    // Each write of an ordinary user comes here, and hardly any file has something to lose.
    let (kind, mode, has_capabilities) = pool.mode_and_xattr(ino, CAPABILITY_XATTR)?;
    if let Some(mode) = mode_without(kind, mode) {
        pool.set_attr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
    }
    if !has_capabilities {
        return Ok(());
    }
    match pool.remove_xattr(ino, CAPABILITY_XATTR) {
        Err(PoolError::NoAttribute) => Ok(()),
        removed => removed,
    }
}

/// Returns the mode of a file that has lost its privileges, or nothing if it has none to lose.
pub(super) fn mode_without(kind: FileKind, mode: u16) -> Option<u16> {
    // Of a directory the bits are about inheritance. Special files have nothing to run, but lose them all the same.
    if kind == FileKind::Directory {
        return None;
    }
    // Without group execution the bit means mandatory locking, not a privilege.
    let lost = if mode & GROUP_EXECUTE == 0 { SET_UID } else { SET_UID | SET_GID };
    (mode & lost != 0).then_some(mode & !lost)
}

#[cfg(test)]
mod tests {
    use onefold_pool::SetTime;

    use super::*;

    #[test]
    fn programs_lose_both_bits_and_others_keep_the_group_bit() {
        assert_eq!(mode_without(FileKind::Regular, 0o6755), Some(0o755));
        assert_eq!(mode_without(FileKind::Regular, 0o2755), Some(0o755));
        assert_eq!(mode_without(FileKind::Regular, 0o6744), Some(0o2744));
        assert_eq!(mode_without(FileKind::Regular, 0o2644), None);
        assert_eq!(mode_without(FileKind::Regular, 0o1777), None);
        assert_eq!(mode_without(FileKind::Directory, 0o6755), None, "inheritance, no privilege");
        // Seen: a user's chown of a fifo kept both bits, as pjdfstest noticed.
        for special in [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice] {
            assert_eq!(mode_without(special, 0o6555), Some(0o555));
        }
    }

    #[test]
    fn privileges_go_where_the_kernel_says_so_unless_chmod_sets_them() {
        let truncate = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
        assert!(are_lost_by(&truncate, Privileges::Dropped));
        assert!(!are_lost_by(&truncate, Privileges::Kept));
        let chmod = SetAttr { mode: Some(0o4755), uid: Some(7), ..SetAttr::default() };
        assert!(!are_lost_by(&chmod, Privileges::Dropped));
        assert!(!are_lost_by(&SetAttr { modified: Some(SetTime::Now), ..SetAttr::default() }, Privileges::Kept));
        assert!(are_lost_by(&SetAttr::default(), Privileges::Kept), "an empty request means just this");
    }
}
