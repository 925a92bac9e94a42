//! Translates the flags of system calls into terms of the pool.

use onefold_pool::{AllocateMode, Durability, SeekTarget, XattrMode};
use rustix::io::Errno;

/// Flags of an open file, as `open(2)` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenFlags(pub(super) i32);

impl OpenFlags {
    fn has(self, flags: i32) -> bool {
        self.0 & flags == flags
    }

    /// Returns whether the opener bypasses the page cache.
    pub(super) fn is_direct(self) -> bool {
        self.has(libc::O_DIRECT)
    }

    /// Returns whether a process can map the file through this opening and write to the mapping.
    pub(super) fn allows_shared_mapping(self) -> bool {
        self.0 & libc::O_ACCMODE == libc::O_RDWR
    }

    /// Returns whether reads through this opening leave the access time alone.
    pub(super) fn keeps_access_time(self) -> bool {
        self.has(libc::O_NOATIME)
    }

    /// Returns whether a process can read the file through this opening.
    pub(super) fn allows_reads(self) -> bool {
        self.0 & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// Returns the durability that a write through this opening promises. `O_SYNC` includes the bit of `O_DSYNC`.
    pub(super) fn durability(self) -> Durability {
        if self.has(libc::O_DSYNC) { Durability::Now } else { Durability::Later }
    }
}

/// Returns the operation that `fallocate(2)` requests.
///
/// # Errors
/// `EOPNOTSUPP` for the modes that move data (which the kernel does not send to FUSE) and for unknown modes.
pub(super) fn allocate_mode(mode: i32) -> Result<AllocateMode, Errno> {
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    match mode {
        0 => Ok(AllocateMode::Extend),
        libc::FALLOC_FL_KEEP_SIZE => Ok(AllocateMode::KeepSize),
        PUNCH => Ok(AllocateMode::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Ok(AllocateMode::ZeroRange),
        ZERO_KEEP => Ok(AllocateMode::ZeroRangeKeepSize),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Returns what `lseek(2)` looks for.
///
/// # Errors
/// `EINVAL` for modes that the kernel handles itself.
pub(super) fn seek_target(whence: i32) -> Result<SeekTarget, Errno> {
    match whence {
        libc::SEEK_DATA => Ok(SeekTarget::Data),
        libc::SEEK_HOLE => Ok(SeekTarget::Hole),
        _ => Err(Errno::INVAL),
    }
}

/// Returns how `setxattr(2)` treats an existing attribute.
///
/// # Errors
/// `EINVAL` for both flags at once and for unknown flags.
pub(super) fn xattr_mode(flags: i32) -> Result<XattrMode, Errno> {
    match flags {
        0 => Ok(XattrMode::Either),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_synchronous_opening_ask_for_durability_now() {
        assert_eq!(OpenFlags(libc::O_RDWR | libc::O_SYNC).durability(), Durability::Now);
        assert_eq!(OpenFlags(libc::O_WRONLY | libc::O_DSYNC).durability(), Durability::Now);
        assert_eq!(OpenFlags(libc::O_RDWR | libc::O_DIRECT).durability(), Durability::Later);
    }

    #[test]
    fn direct_and_noatime_are_seen_among_other_flags() {
        let flags = OpenFlags(libc::O_RDWR | libc::O_DIRECT | libc::O_NOATIME);
        assert!(flags.is_direct() && flags.keeps_access_time());
        assert!(!OpenFlags(libc::O_RDWR | libc::O_SYNC).is_direct());
        assert!(flags.allows_shared_mapping());
        assert!(!OpenFlags(libc::O_WRONLY | libc::O_DIRECT).allows_shared_mapping());
        assert!(!OpenFlags(libc::O_RDONLY).allows_shared_mapping());
    }

    #[test]
    fn fallocate_modes_that_move_data_are_refused() {
        assert_eq!(allocate_mode(libc::FALLOC_FL_COLLAPSE_RANGE), Err(Errno::OPNOTSUPP));
        assert_eq!(allocate_mode(libc::FALLOC_FL_INSERT_RANGE), Err(Errno::OPNOTSUPP));
        assert_eq!(allocate_mode(libc::FALLOC_FL_PUNCH_HOLE), Err(Errno::OPNOTSUPP), "must come with KEEP_SIZE");
        assert_eq!(allocate_mode(-1), Err(Errno::OPNOTSUPP));
    }

    #[test]
    fn every_supported_fallocate_mode_has_its_meaning() {
        assert_eq!(allocate_mode(0), Ok(AllocateMode::Extend));
        assert_eq!(allocate_mode(1), Ok(AllocateMode::KeepSize));
        assert_eq!(allocate_mode(3), Ok(AllocateMode::PunchHole));
        assert_eq!(allocate_mode(0x10), Ok(AllocateMode::ZeroRange));
        assert_eq!(allocate_mode(0x11), Ok(AllocateMode::ZeroRangeKeepSize));
    }

    #[test]
    fn xattr_flags_exclude_each_other() {
        assert_eq!(xattr_mode(libc::XATTR_CREATE | libc::XATTR_REPLACE), Err(Errno::INVAL));
        assert_eq!(xattr_mode(libc::XATTR_REPLACE), Ok(XattrMode::Replace));
    }

    #[test]
    fn only_data_and_hole_are_sought() {
        assert_eq!(seek_target(libc::SEEK_HOLE), Ok(SeekTarget::Hole));
        assert_eq!(seek_target(libc::SEEK_DATA), Ok(SeekTarget::Data));
        assert_eq!(seek_target(libc::SEEK_SET), Err(Errno::INVAL));
    }
}
