//! Decides when a file loses its set-user-id and set-group-id bits.
//!
//! The kernel could do this by itself. But then it asks for `security.capability` before *every* buffered write, and it
//! forgets direct writes. So the door negotiates `FUSE_HANDLE_KILLPRIV_V2` and does this work itself whenever the
//! kernel requests it: with each chown, and with writes and truncates of callers that lack `CAP_FSETID`. Other callers
//! keep the bits, but not `security.capability`: the kernel removes it before a cached write, the door before a direct
//! one.
//!
//! The set-group-id bit of a file that its group may not execute is no privilege by itself. It becomes one as soon as
//! the owner lets the group execute the file. So, as in the kernel since Linux 6.2, a change by a caller outside the
//! file's group removes this bit as well. A caller with `CAP_FSETID` may set the bit, so its chown leaves the bit.

use std::fs;

use onefold_pool::{FileKind, Ino, Pool, PoolError, SetAttr};

const SET_UID: u16 = 0o4000;
pub(super) const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// Number of the capability that allows setting set-user-id and set-group-id bits on any file.
const CAP_FSETID: u32 = 4;

/// Extended attribute that gives a program privileges, as the set-user-id bit does.
const CAPABILITY_XATTR: &[u8] = b"security.capability";

/// Effect of a request on the privileges that a file gives to its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Privileges {
    Kept,
    Dropped,
}

/// The process that sent a request, as far as its groups and capabilities matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Its group for new files.
    pub(super) gid: u32,
    /// Its process number; 0 if the daemon cannot see it.
    pub(super) pid: u32,
}

impl Caller {
    /// Returns whether it may set the set-group-id bit on its file of `group`: as a member, or by `CAP_FSETID`. A
    /// process that the daemon cannot inspect may not.
    fn may_give_group(self, group: u32) -> bool {
        self.gid == group || {
            onefold_pool::about_to_wait();
            let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
            supplementary_groups(&status).any(|member| member == group) || has_fsetid(&status) && self.is_at_home()
        }
    }

    /// Returns whether it is in the daemon's user namespace. In another one, its capabilities apply to other users.
    fn is_at_home(self) -> bool {
        let namespace_of = |process: &str| fs::read_link(format!("/proc/{process}/ns/user")).ok();
        let own = namespace_of("self");
        own.is_some() && namespace_of(&self.pid.to_string()) == own
    }
}

/// Returns the value of a field of proc_pid_status(5), or an empty string.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

/// Returns whether proc_pid_status(5) shows `CAP_FSETID` as effective.
fn has_fsetid(status: &str) -> bool {
    u64::from_str_radix(field(status, "CapEff:"), 16).is_ok_and(|effective| effective >> CAP_FSETID & 1 == 1)
}

/// Returns the groups that proc_pid_status(5) lists.
fn supplementary_groups(status: &str) -> impl Iterator<Item = u32> + '_ {
    field(status, "Groups:").split_whitespace().filter_map(|group| group.parse().ok())
}

/// Returns whether a request for `change` removes privileges from a file.
pub(super) fn are_lost_by(change: &SetAttr, privileges: Privileges) -> bool {
    // chmod itself says what the bits shall be. By an empty request, the kernel asks for exactly this removal.
    change.mode.is_none() && (privileges == Privileges::Dropped || *change == SetAttr::default())
}

/// Removes the privileges of a program, because a process without the right to grant them changes its content. Returns
/// whether this changed its mode. Without a `caller`, the set-group-id bit is removed in any case.
///
/// # Errors
/// The pool's error.
pub(crate) fn drop_from(pool: &Pool, ino: Ino, caller: Option<Caller>) -> onefold_pool::Result<bool> {
    // Each write of an ordinary user comes here, and hardly any file has privileges to lose.
    let (kind, mode, has_capabilities) = pool.mode_and_xattr(ino, CAPABILITY_XATTR)?;
    let mut is_changed = false;
    if may_lose(kind, mode)
        && let Some(mode) = mode_without(kind, mode, may_give_group(pool.attr(ino)?.gid, caller))
    {
        pool.set_attr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
        is_changed = true;
    }
    if has_capabilities {
        remove_capabilities(pool, ino)?;
    }
    Ok(is_changed)
}

/// Removes the capabilities of a program and leaves its mode: what a write by a process with the right to set the mode
/// does.
///
/// # Errors
/// The pool's error.
pub(super) fn drop_capabilities_from(pool: &Pool, ino: Ino) -> onefold_pool::Result<()> {
    let (_, _, has_capabilities) = pool.mode_and_xattr(ino, CAPABILITY_XATTR)?;
    if has_capabilities { remove_capabilities(pool, ino) } else { Ok(()) }
}

/// Removes capabilities that another request may have removed meanwhile.
fn remove_capabilities(pool: &Pool, ino: Ino) -> onefold_pool::Result<()> {
    match pool.remove_xattr(ino, CAPABILITY_XATTR) {
        Err(PoolError::NoAttribute) => Ok(()),
        removed => removed,
    }
}

/// Returns a function that checks whether the caller may set the set-group-id bit on a file of `group`. The function
/// reads the process's status only when it is called.
pub(super) fn may_give_group(group: u32, caller: Option<Caller>) -> impl FnOnce() -> bool {
    move || caller.is_some_and(|caller| caller.may_give_group(group))
}

fn may_lose(kind: FileKind, mode: u16) -> bool {
    kind != FileKind::Directory && mode & (SET_UID | SET_GID) != 0
}

/// Returns the mode of a file without its privileges; `None` if it has none to lose. `may_give_group` returns whether
/// the process that changes the file may set its set-group-id bit.
pub(super) fn mode_without(kind: FileKind, mode: u16, may_give_group: impl FnOnce() -> bool) -> Option<u16> {
    // On a directory, these bits control inheritance. Special files cannot be executed, but lose the bits all the same.
    if !may_lose(kind, mode) {
        return None;
    }
    let keeps_group_bit = mode & SET_GID == 0 || mode & GROUP_EXECUTE == 0 && may_give_group();
    let lost = if keeps_group_bit { SET_UID } else { SET_UID | SET_GID };
    (mode & lost != 0).then_some(mode & !lost)
}

#[cfg(test)]
mod tests {
    use onefold_pool::TimeChange;

    use super::*;

    #[test]
    fn programs_lose_both_bits_and_others_keep_the_group_bit() {
        for may_give in [true, false] {
            let mode_without = |kind, mode| mode_without(kind, mode, || may_give);
            assert_eq!(mode_without(FileKind::Regular, 0o6755), Some(0o755));
            assert_eq!(mode_without(FileKind::Regular, 0o2755), Some(0o755));
            assert_eq!(mode_without(FileKind::Regular, 0o4744), Some(0o744));
            assert_eq!(mode_without(FileKind::Regular, 0o1777), None);
            assert_eq!(mode_without(FileKind::Directory, 0o6755), None, "inheritance, no privilege");
        }
        assert_eq!(mode_without(FileKind::Regular, 0o6744, || true), Some(0o2744));
        assert_eq!(mode_without(FileKind::Regular, 0o2644, || true), None);
        // Seen: xfstests generic/683 to 685.
        assert_eq!(mode_without(FileKind::Regular, 0o6744, || false), Some(0o744));
        assert_eq!(mode_without(FileKind::Regular, 0o2644, || false), Some(0o644));
        // Seen: a user's chown of a fifo kept both bits, as pjdfstest noticed.
        for special in [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice] {
            assert_eq!(mode_without(special, 0o6555, || true), Some(0o555));
        }
    }

    #[test]
    fn a_caller_may_give_its_own_group_and_its_others() {
        let status = "Name:\tsh\nGid:\t7\t7\t7\t7\nGroups:\t4 24 1000 \nVmPeak:\t5 kB\nCapEff:\t0000000000000010\n";
        assert!(has_fsetid(status) && has_fsetid("CapEff:\t000001ffffffffff\n"));
        assert!(!has_fsetid("CapEff:\t00000000ffffffef\n") && !has_fsetid("") && !has_fsetid("CapEff:\tx\n"));
        assert_eq!(supplementary_groups(status).collect::<Vec<_>>(), [4, 24, 1000]);
        assert_eq!(supplementary_groups("Name:\tGroups:\n").count(), 0);
        let unseen = Caller { gid: 7, pid: 0 };
        assert!(unseen.may_give_group(7) && !unseen.may_give_group(8));
        let own = std::process::id();
        assert!(Caller { gid: 0, pid: own }.is_at_home() && !unseen.is_at_home());
        let groups = rustix::process::getgroups().unwrap();
        assert!(groups.iter().all(|group| Caller { gid: u32::MAX, pid: own }.may_give_group(group.as_raw())));
    }

    #[test]
    fn privileges_go_where_the_kernel_says_so_unless_chmod_sets_them() {
        let truncate = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
        assert!(are_lost_by(&truncate, Privileges::Dropped));
        assert!(!are_lost_by(&truncate, Privileges::Kept));
        let chmod = SetAttr { mode: Some(0o4755), uid: Some(7), ..SetAttr::default() };
        assert!(!are_lost_by(&chmod, Privileges::Dropped));
        assert!(!are_lost_by(&SetAttr { modified: Some(TimeChange::Now), ..SetAttr::default() }, Privileges::Kept));
        assert!(are_lost_by(&SetAttr::default(), Privileges::Kept), "an empty request means just this");
    }
}
