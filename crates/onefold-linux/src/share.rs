//! Comparing and sharing, cloning, and the meaning of the kernel's refusals.

use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{At, ComparisonResult, Refusal, ShareError};
use rustix::fd::AsFd;
use rustix::fs::IFlags;
use rustix::io::Errno;

use crate::file::LinuxFile;
use crate::sys::{self, DedupeOutcome};

/// The longest range of one call, in bytes. Kernels before 4.20 stop there on Btrfs; newer ones take 1 GiB. But the
/// call locks both files throughout, and a writing guest waits for it. Callers choose far less.
pub(super) const SHARE_BYTES_MAX: u64 = 16 << 20;

type LinuxPlace<'a> = At<'a, LinuxFile>;

/// # Panics
/// If offsets or length violate the rules of the trait.
pub(super) fn share(source: LinuxPlace<'_>, into: LinuxPlace<'_>, length: u64) -> Result<ComparisonResult, ShareError> {
    check_range(source, into, length);
    let mut done = 0;
    while done < length {
        match sys::dedupe_range(behind(source, done), behind(into, done), length - done) {
            Ok(DedupeOutcome::Differ) => return Ok(ComparisonResult::Differ),
            Ok(DedupeOutcome::Same(bytes)) => {
                // The kernel may report fewer bytes than requested, always whole blocks. The rest is requested again.
                let progress = bytes.min(length - done);
                let progress = progress - progress % BLOCK_BYTES_U64;
                if progress == 0 {
                    return Err(ShareError::Busy);
                }
                done += progress;
            }
            // The owner has truncated one of the files meanwhile. Like a write, this is not an error.
            Err(Errno::INVAL) if !is_within(source, length)? || !is_within(into, length)? => {
                return Ok(ComparisonResult::Differ);
            }
            Err(errno) => return Err(meaning(errno, source, into, length)),
        }
    }
    Ok(ComparisonResult::Shared)
}

/// # Panics
/// If offsets or length violate the rules of the trait.
pub(super) fn clone_range(source: LinuxPlace<'_>, into: LinuxPlace<'_>, length: u64) -> Result<(), ShareError> {
    check_range(source, into, length);
    sys::clone_range(source, into, length).map_err(|errno| meaning(errno, source, into, length))
}

/// Asserts rules whose violation the kernel does not refuse but mishandles. It reports ranges shorter than a block as
/// equal without comparing them, and a length of zero clones the whole file.
fn check_range(source: LinuxPlace<'_>, into: LinuxPlace<'_>, length: u64) {
    let is_whole = |bytes: u64| bytes.is_multiple_of(BLOCK_BYTES_U64);
    assert!(length > 0 && is_whole(length), "a range of {length} bytes is not of whole blocks");
    assert!(length <= SHARE_BYTES_MAX, "a range of {length} bytes is longer than {SHARE_BYTES_MAX}");
    for offset in [source.offset, into.offset] {
        assert!(is_whole(offset), "offset {offset} is not at a block's start");
        assert!(offset.checked_add(length).is_some(), "the range at {offset} ends beyond all offsets");
    }
}

fn behind(place: LinuxPlace<'_>, bytes: u64) -> LinuxPlace<'_> {
    At { file: place.file, offset: place.offset + bytes }
}

fn is_within(place: LinuxPlace<'_>, length: u64) -> io::Result<bool> {
    Ok(place.offset + length <= place.file.length()?)
}

/// Returns the meaning of a refusal. The kernel has one number for several causes; a look at the files tells them
/// apart.
pub(super) fn meaning(errno: Errno, source: LinuxPlace<'_>, into: LinuxPlace<'_>, length: u64) -> ShareError {
    match errno {
        Errno::PERM if has_flag(into.file, IFlags::IMMUTABLE) => ShareError::Refused(Refusal::Immutable),
        // BADF: the destination of a clone was opened for reading only.
        Errno::PERM | Errno::ACCESS | Errno::BADF => ShareError::Refused(Refusal::NotPermitted),
        Errno::TXTBSY => ShareError::Refused(Refusal::Swap),
        Errno::INVAL if has_flag(source.file, IFlags::NOCOW) != has_flag(into.file, IFlags::NOCOW) => {
            ShareError::Refused(Refusal::NoCopyOnWrite)
        }
        // A caller's mistake, or a clone from beyond the end.
        Errno::INVAL if overlap(source, into, length) || !is_within(source, length).unwrap_or(true) => {
            ShareError::Io(errno.into())
        }
        // Other incompatible pairs: with and without checksums (Btrfs), on different devices of one file system (XFS
        // with a real-time device), with different refcount trees (OCFS2).
        Errno::INVAL | Errno::XDEV | Errno::OPNOTSUPP => ShareError::Refused(Refusal::Apart),
        Errno::AGAIN | Errno::BUSY | Errno::INTR => ShareError::Busy,
        Errno::NOSPC | Errno::DQUOT => ShareError::Full,
        errno => ShareError::Io(errno.into()),
    }
}

/// Returns the meaning of a refusal to clone a whole file.
pub(super) fn meaning_of_clone(errno: Errno, source: &LinuxFile, into: &LinuxFile) -> ShareError {
    meaning(errno, At { file: source, offset: 0 }, At { file: into, offset: 0 }, 0)
}

/// Returns why the kernel would refuse a file as either end of a share with an ordinary file; `None` if no cause shows.
pub(super) fn refusal(file: &LinuxFile) -> io::Result<Option<Refusal>> {
    if has_flag(file, IFlags::IMMUTABLE) {
        return Ok(Some(Refusal::Immutable));
    }
    if is_swap(file)? {
        return Ok(Some(Refusal::Swap));
    }
    Ok(has_flag(file, IFlags::NOCOW).then_some(Refusal::NoCopyOnWrite))
}

/// Returns whether a file is in use as swap space: only the kernel's list of such files shows it.
fn is_swap(file: &LinuxFile) -> io::Result<bool> {
    // A kernel without swapping has no list.
    let Ok(list) = std::fs::read_to_string("/proc/swaps") else { return Ok(false) };
    let own = rustix::fs::fstat(file.as_fd())?;
    Ok(swap_files(&list)
        .any(|path| rustix::fs::stat(path).is_ok_and(|it| (it.st_dev, it.st_ino) == (own.st_dev, own.st_ino))))
}

/// Returns the paths in the list. White space in them is written in octal.
fn swap_files(list: &str) -> impl Iterator<Item = String> {
    list.lines().skip(1).filter_map(|line| {
        let (path, rest) = line.split_once([' ', '\t'])?;
        let is_file = rest.split_ascii_whitespace().next() == Some("file");
        is_file.then(|| path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\"))
    })
}

fn has_flag(file: &LinuxFile, flag: IFlags) -> bool {
    rustix::fs::ioctl_getflags(file).is_ok_and(|flags| flags.contains(flag))
}

fn overlap(source: LinuxPlace<'_>, into: LinuxPlace<'_>, length: u64) -> bool {
    let identity = |file: &LinuxFile| rustix::fs::fstat(file.as_fd()).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    source.offset.abs_diff(into.offset) < length && identity(source.file) == identity(into.file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_swap_files_is_understood() {
        let list =
            "Filename Type Size Used Priority\n/dev/sda2 partition 100 0 -2\n/mnt/a\\040b\\134c file\t\t1020 0 -3\n";
        assert_eq!(swap_files(list).collect::<Vec<_>>(), ["/mnt/a b\\c"]);
        assert_eq!(swap_files("").count(), 0);
    }
}
