//! Attributes and times between the pool and `fuser`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use onefold_block::{BLOCK_BYTES, Timestamp};
use onefold_pool::{Attr, FileKind, Ino, NewFile, SetTime};
use rustix::io::Errno;

use crate::options::StBlocks;

/// Units of `st_blocks` in a block.
const SECTORS_PER_BLOCK: u64 = (BLOCK_BYTES / 512) as u64;

/// What `st_blksize` says. `cp` looks for holes in pieces of this size, and stdio allocates as much for each open file.
const PREFERRED_IO_BYTES: u32 = 4096;
const _: () = assert!(PREFERRED_IO_BYTES as usize == BLOCK_BYTES, "a smaller write reads the rest of its block first");

/// Returns `attr` as the kernel wants it.
pub(super) fn to_kernel(attr: &Attr, st_blocks: StBlocks) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size_bytes,
        blocks: blocks(attr, st_blocks).saturating_mul(SECTORS_PER_BLOCK),
        atime: system_time(attr.accessed),
        mtime: system_time(attr.modified),
        ctime: system_time(attr.changed),
        crtime: system_time(attr.created),
        kind: file_type(attr.kind),
        perm: attr.mode & 0o7777,
        nlink: attr.link_count,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: PREFERRED_IO_BYTES,
        flags: 0,
    }
}

fn blocks(attr: &Attr, st_blocks: StBlocks) -> u64 {
    match (st_blocks, attr.kind) {
        (StBlocks::Length, FileKind::Regular) => attr.mapped_blocks.max(attr.size_bytes.div_ceil(BLOCK_BYTES as u64)),
        _ => attr.mapped_blocks,
    }
}

/// Returns `kind` as the kernel wants it.
pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// Returns what `mknod(2)` with `mode` makes.
///
/// # Errors
/// `EINVAL` for what it can't make.
pub(super) fn kind_of_node(mode: u32) -> Result<FileKind, Errno> {
    match mode & libc::S_IFMT {
        // POSIX: no type means a regular file.
        0 | libc::S_IFREG => Ok(FileKind::Regular),
        libc::S_IFIFO => Ok(FileKind::Fifo),
        libc::S_IFSOCK => Ok(FileKind::Socket),
        libc::S_IFCHR => Ok(FileKind::CharDevice),
        libc::S_IFBLK => Ok(FileKind::BlockDevice),
        _ => Err(Errno::INVAL),
    }
}

/// Returns the permission bits of `mode`.
pub(super) fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).expect("twelve bits")
}

/// Returns a file to be created for the sender of `request`.
pub(super) fn new_file(request: &fuser::Request, kind: FileKind, mode: u32, umask: u32, rdev: u32) -> NewFile {
    let (uid, gid) = (request.uid(), request.gid());
    NewFile { kind, mode: permissions(mode), umask: permissions(umask), uid, gid, rdev }
}

/// Returns the pool's number for the kernel's.
pub(super) fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

/// Returns a time to set.
pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp_of_request(time)),
    }
}

/// Returns a time that `fuser` read out of a request.
///
/// For times before 1970, fuser 0.18 subtracts the nanoseconds instead of adding them: the second before 1970 and 0.3
/// of it (-1 s + 0.3 s) arrives as -1.3 s. Seconds and nanoseconds are still both there, so they are put together anew.
fn timestamp_of_request(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => {
            Timestamp { seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX), nanoseconds: after.subsec_nanos() }
        }
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
            Timestamp { seconds, nanoseconds: before.subsec_nanos() }
        }
    }
}

/// Returns `time` for a reply. Times that the standard library can't hold become the start of 1970.
fn system_time(time: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let second = if time.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    second.and_then(|second| second.checked_add(Duration::from_nanos(time.nanoseconds.into()))).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use onefold_pool::Dedup;

    use super::*;

    fn at(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }

    #[test]
    fn blocks_are_counted_in_sectors_of_what_is_mapped_or_of_the_length() {
        let attr = Attr {
            ino: Ino(77),
            kind: FileKind::Regular,
            mode: 0o6755,
            link_count: 3,
            uid: 1,
            gid: 2,
            rdev: 0,
            size_bytes: 1 << 40,
            mapped_blocks: 5,
            accessed: at(1, 2),
            modified: at(-1, 3),
            changed: at(4, 5),
            created: at(0, 0),
            domain: 0,
            dedup: Dedup::On,
        };
        let kernel = to_kernel(&attr, StBlocks::Mapped);
        assert_eq!((kernel.ino, kernel.size, kernel.blocks), (INodeNo(77), 1 << 40, 40));
        assert_eq!((kernel.perm, kernel.nlink, kernel.uid, kernel.gid), (0o6755, 3, 1, 2));
        assert_eq!(kernel.mtime, UNIX_EPOCH - Duration::new(0, 999_999_997));

        let blocks_of = |attr: &Attr| to_kernel(attr, StBlocks::Length).blocks;
        assert_eq!(blocks_of(&attr), (1 << 40) / 512, "holes count as well");
        assert_eq!(blocks_of(&Attr { size_bytes: 1, ..attr.clone() }), 40, "reserved beyond the end");
        assert_eq!(blocks_of(&Attr { size_bytes: 20_481, ..attr.clone() }), 48, "a part of a block is a block");
        assert_eq!(blocks_of(&Attr { kind: FileKind::Directory, ..attr }), 40);
    }

    #[test]
    fn times_after_and_before_1970_are_shown_exactly() {
        assert_eq!(system_time(at(5, 7)), UNIX_EPOCH + Duration::new(5, 7));
        assert_eq!(system_time(at(-2, 800_000_000)), UNIX_EPOCH - Duration::new(1, 200_000_000));
        assert_eq!(system_time(at(i64::MIN, 0)), UNIX_EPOCH - Duration::from_secs(1 << 63));
        assert_eq!(system_time(at(i64::MAX, 999_999_999)), UNIX_EPOCH + Duration::new(i64::MAX as u64, 999_999_999));
    }

    #[test]
    fn times_before_1970_are_read_as_the_caller_meant_them() {
        // What fuser makes of -2 s + 0.8 s.
        let from_fuser = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(timestamp_of_request(from_fuser), at(-2, 800_000_000));
        assert_eq!(timestamp_of_request(UNIX_EPOCH - Duration::from_secs(3)), at(-3, 0));
        assert_eq!(timestamp_of_request(UNIX_EPOCH + Duration::new(3, 4)), at(3, 4));
        assert_eq!(timestamp_of_request(UNIX_EPOCH - Duration::from_secs(1 << 63)), at(i64::MIN, 0));
    }

    #[test]
    fn mknod_makes_everything_but_directories_and_links() {
        assert_eq!(kind_of_node(0o644), Ok(FileKind::Regular));
        assert_eq!(kind_of_node(libc::S_IFREG | 0o644), Ok(FileKind::Regular));
        assert_eq!(kind_of_node(libc::S_IFIFO), Ok(FileKind::Fifo));
        assert_eq!(kind_of_node(libc::S_IFSOCK), Ok(FileKind::Socket));
        assert_eq!(kind_of_node(libc::S_IFCHR), Ok(FileKind::CharDevice));
        assert_eq!(kind_of_node(libc::S_IFBLK), Ok(FileKind::BlockDevice));
        assert_eq!(kind_of_node(libc::S_IFDIR), Err(Errno::INVAL));
        assert_eq!(kind_of_node(libc::S_IFLNK), Err(Errno::INVAL));
    }
}
