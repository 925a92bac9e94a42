//! A file's identity, sizes and times.

use std::io;

use onefold_block::Timestamp;
use onefold_substrate::{FileHandle, FileStat};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::sys::handles::{self, RawHandle};

/// Unit of `stx_blocks`, in bytes.
const STAT_SECTOR_BYTES: u64 = 512;

/// Handle type of a handle that is made up here: the number that no file system may use (`FILEID_INVALID`).
const MADE_UP: i32 = 0xff;

pub(super) fn stat(file: impl AsFd) -> io::Result<FileStat> {
    let file = file.as_fd();
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    Ok(FileStat {
        handle: handle(file, &stat)?,
        length: stat.stx_size,
        allocated: stat.stx_blocks.saturating_mul(STAT_SECTOR_BYTES),
        modified: timestamp(stat.stx_mtime),
        changed: timestamp(stat.stx_ctime),
        owner: stat.stx_uid,
        names: stat.stx_nlink,
    })
}

/// Returns the kernel's handle with its type in front. It holds the inode number and generation, and on Btrfs the
/// number of the subvolume, which tells files of a snapshot from their originals. XFS may change the handle type of a
/// file when it is mounted with `inode32`; such a file then looks like a new one, which costs a scan.
fn handle(file: BorrowedFd<'_>, stat: &Statx) -> io::Result<FileHandle> {
    match handles::file_handle(file) {
        Ok(handle) => Ok(encode(&handle)),
        // NOSYS, PERM: a sandbox forbids it.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => made_up(stat).ok_or_else(|| Errno::OPNOTSUPP.into()),
        Err(errno) => Err(errno.into()),
    }
}

fn encode(handle: &RawHandle) -> FileHandle {
    let bytes = [&handle.kind.to_le_bytes(), handle.bytes()].concat();
    FileHandle::new(&bytes).expect("the kernel's longest handle fits with its type")
}

/// Returns the kernel's form of a handle; `Unsupported` for a made-up one.
pub(super) fn decode(handle: &FileHandle) -> io::Result<RawHandle> {
    let (kind, bytes) = handle.as_bytes().split_first_chunk().ok_or(io::ErrorKind::InvalidInput)?;
    match i32::from_le_bytes(*kind) {
        MADE_UP => Err(io::ErrorKind::Unsupported.into()),
        kind => RawHandle::new(kind, bytes).ok_or_else(|| io::ErrorKind::InvalidInput.into()),
    }
}

/// Makes up a handle from device, inode number and time of birth: no two files ever have all three in common, even if
/// the inode number is reused. The device number may change at a restart. `None` if the file system does not report
/// births.
fn made_up(stat: &Statx) -> Option<FileHandle> {
    StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME).then_some(())?;
    let parts: [&[u8]; 6] = [
        &MADE_UP.to_le_bytes(),
        &stat.stx_dev_major.to_le_bytes(),
        &stat.stx_dev_minor.to_le_bytes(),
        &stat.stx_ino.to_le_bytes(),
        &stat.stx_btime.tv_sec.to_le_bytes(),
        &stat.stx_btime.tv_nsec.to_le_bytes(),
    ];
    FileHandle::new(&parts.concat())
}

fn timestamp(time: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

const _: () = assert!(size_of::<i32>() + handles::HANDLE_BYTES_MAX == FileHandle::BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_that_are_made_up_tell_files_apart_and_stay() {
        let made_up = |file: &tempfile::NamedTempFile| {
            let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
            made_up(&rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, mask).unwrap())
        };
        let files = [(); 2].map(|()| tempfile::NamedTempFile::new_in(".").unwrap());
        let Some(first) = made_up(&files[0]) else { return };
        files[0].as_file().set_len(5).unwrap();
        assert_eq!(made_up(&files[0]), Some(first.clone()));
        assert_ne!(made_up(&files[1]), Some(first));
    }
}
