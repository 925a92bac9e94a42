//! An open file.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use onefold_block::Timestamp;
use onefold_substrate::Reader;
use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Advice, FallocateFlags, FlockOperation, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::{Errno, retry_on_intr};

use crate::sys;

/// Size of one read that brings data in. For shorter ranges, reading costs less than `sendfile`.
const READ_BYTES: usize = 16 << 10;

/// Access that a descriptor grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DescriptorAccess {
    ReadOnly,
    ReadWrite,
}

/// An open regular file. Dropping it closes the file and releases its lock.
#[derive(Debug)]
pub struct LinuxFile {
    file: Arc<std::fs::File>,
    opened: DescriptorAccess,
    /// The folder that the file was created in, until its name there is durable.
    folder: Mutex<Option<OwnedFd>>,
    /// When the lease was last seen intact.
    leased: Mutex<Option<Instant>>,
}

impl LinuxFile {
    pub(super) fn new(file: OwnedFd, opened: DescriptorAccess) -> LinuxFile {
        LinuxFile { file: Arc::new(file.into()), opened, folder: Mutex::new(None), leased: Mutex::new(None) }
    }

    pub(super) fn created(file: OwnedFd, folder: OwnedFd) -> LinuxFile {
        LinuxFile { folder: Mutex::new(Some(folder)), ..LinuxFile::new(file, DescriptorAccess::ReadWrite) }
    }

    /// Returns whether bytes can be written to the file. If not, blocks may still be shared into it.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.opened == DescriptorAccess::ReadWrite
    }

    /// Returns a reference that does not keep the file open.
    pub(super) fn weak(&self) -> Weak<std::fs::File> {
        Arc::downgrade(&self.file)
    }

    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        read_at(&self.file, offset, into)
    }

    pub(super) fn reader(&self, has_large_pages: bool) -> Arc<dyn Reader> {
        Arc::new(LinuxReader { file: Arc::clone(&self.file), has_large_pages })
    }

    pub(super) fn system_file(&self) -> io::Result<std::fs::File> {
        self.file.try_clone()
    }

    pub(super) fn prefetch(&self, offset: u64, length: u64) {
        prefetch(&self.file, offset, length);
    }

    /// Brings a range into memory. Long ranges are sent to `nowhere`: that waits for the disk as reading does, but
    /// copies nothing.
    pub(super) fn bring_in(&self, nowhere: Option<&OwnedFd>, offset: u64, length: u64) -> io::Result<()> {
        let (mut at, end) = (offset, offset + length);
        if let Some(nowhere) = nowhere.filter(|_| length > READ_BYTES as u64) {
            while at < end {
                let left = usize::try_from(end - at).unwrap_or(usize::MAX);
                match retry_on_intr(|| rustix::fs::sendfile(nowhere, &self.file, Some(&mut at), left)) {
                    Ok(0) => return Ok(()),
                    Ok(_) => {}
                    // A file system without `sendfile` is read.
                    Err(Errno::INVAL | Errno::NOSYS) => break,
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        let mut bytes = [MaybeUninit::<u8>::uninit(); READ_BYTES];
        while at < end {
            let left = usize::try_from(end - at).map_or(READ_BYTES, |left| left.min(READ_BYTES));
            let read = || rustix::io::pread(&self.file, &mut bytes[..left], at).map(|(read, _)| read.len());
            match retry_on_intr(read)? {
                0 => break,
                count => at += count as u64,
            }
        }
        Ok(())
    }

    pub(super) fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        self.file.write_all_at(from, offset).map_err(full)
    }

    pub(super) fn write_back(&self, offset: u64, length: u64) {
        begin_write_back(&self.file, offset, length);
    }

    pub(super) fn set_len(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        self.file.set_len(length).map_err(full)
    }

    pub(super) fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_writable()?;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| rustix::fs::fallocate(&self.file, punch, offset, length)).map_err(|errno| full(errno.into()))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        // Never repeated: the kernel reports an error once, and does not write the lost data again.
        rustix::fs::fsync(&self.file).map_err(|errno| full(errno.into()))?;
        let mut folder = self.folder.lock();
        if let Some(folder) = folder.as_ref() {
            rustix::fs::fsync(folder).map_err(|errno| full(errno.into()))?;
        }
        *folder = None;
        Ok(())
    }

    pub(super) fn try_lock(&self, operation: FlockOperation) -> io::Result<bool> {
        match retry_on_intr(|| rustix::fs::flock(&self.file, operation)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes the whole file system durable.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        rustix::fs::syncfs(&self.file).map_err(|errno| full(errno.into()))
    }

    /// Takes a write lease, so that no other opening of the file exists.
    pub(super) fn try_exclusive(&self) -> io::Result<bool> {
        self.check_writable()?;
        // Before the call: another process may ask for the file at once.
        let now = Instant::now();
        match sys::locks::take_lease(&self.file) {
            Ok(()) => {
                *self.leased.lock() = Some(now);
                Ok(true)
            }
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn is_exclusive_wanted(&self) -> bool {
        let now = Instant::now();
        let is_wanted = !sys::locks::has_lease(&self.file);
        if !is_wanted {
            *self.leased.lock() = Some(now);
        }
        is_wanted
    }

    /// The kernel reports a lease that is wanted and one that it has taken away in the same way. The time since the
    /// lease was last intact tells them apart.
    pub(super) fn is_exclusive_lost(&self, lasts: impl Fn() -> Duration) -> bool {
        self.is_exclusive_wanted() && self.leased.lock().is_none_or(|leased| leased.elapsed() >= lasts())
    }

    pub(super) fn leave_exclusive(&self) {
        // A lease that cannot be ended now ends when the file is closed.
        let _ = sys::locks::end_lease(&self.file);
    }

    pub(super) fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let modified = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanoseconds.into() };
        Ok(rustix::fs::futimens(&self.file, &Timestamps { last_access: omitted, last_modification: modified })?)
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.is_writable() { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl AsFd for LinuxFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// How long a lease is relied on after another process asked for the file: half of the time that the kernel lets it
/// wait, as calls take time, too.
pub(super) fn lease_lasts() -> Duration {
    let told = std::fs::read_to_string("/proc/sys/fs/lease-break-time").ok();
    let seconds = told.and_then(|told| told.trim().parse().ok()).filter(|seconds| *seconds > 0).unwrap_or(45);
    Duration::from_secs(seconds) / 2
}

/// Reads a file from any thread.
struct LinuxReader {
    file: Arc<std::fs::File>,
    /// See [`crate::LinuxSubstrate::has_large_pages`].
    has_large_pages: bool,
}

impl Reader for LinuxReader {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        read_at(&self.file, offset, into)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if !self.has_large_pages {
            prefetch(&self.file, offset, length);
        }
    }
}

fn prefetch(file: &std::fs::File, offset: u64, length: u64) {
    // If the kernel refuses, reading takes longer.
    let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(length), Advice::WillNeed);
}

fn read_at(file: &std::fs::File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match retry_on_intr(|| rustix::io::pread(file, &mut into[done..], offset + done as u64))? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Has the kernel begin to write a range to the disk, and does not wait for that.
///
/// A failure of the writing is reported by a later `fsync`, which also writes the range if the kernel refuses this.
pub fn begin_write_back(file: impl AsFd, offset: u64, length_bytes: u64) {
    let _ = sys::write_back(file, offset, length_bytes);
}

/// Reports a used-up quota as a full file system.
fn full(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => io::Error::new(io::ErrorKind::StorageFull, error),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    #[test]
    fn a_lease_that_was_wanted_for_long_is_counted_on_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let file = LinuxFile::new(file.into(), DescriptorAccess::ReadWrite);
        let (long, none) = (|| Duration::from_secs(3600), || Duration::ZERO);
        assert!(file.is_exclusive_lost(long), "it was never taken");
        assert!(file.try_exclusive().unwrap());
        assert!(!file.is_exclusive_wanted() && !file.is_exclusive_lost(none), "nobody wants it");
        let without_waiting = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(without_waiting.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(file.is_exclusive_wanted());
        assert!(!file.is_exclusive_lost(long), "the process that wants it still waits");
        assert!(file.is_exclusive_lost(none));
        assert!(lease_lasts() > Duration::ZERO && lease_lasts() < Duration::from_secs(3600));
    }
}
