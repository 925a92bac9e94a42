//! An open file.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use onefold_block::Timestamp;
use onefold_block::substrate::Reader;
use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Advice, FallocateFlags, FlockOperation, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::{Errno, retry_on_intr};

use super::sys;

/// Read at once to bring it in; of shorter ranges that costs less than sending them.
const READ_BYTES: usize = 16 << 10;

/// What can be done through a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    ReadOnly,
    ReadWrite,
}

/// An open regular file. Dropping it closes it, and lets go of its lock.
#[derive(Debug)]
pub struct LinuxFile {
    file: Arc<std::fs::File>,
    opened: Opened,
    /// The folder that it was created in, until its name there is durable.
    folder: Mutex<Option<OwnedFd>>,
}

impl LinuxFile {
    pub(super) fn new(file: OwnedFd, opened: Opened) -> LinuxFile {
        LinuxFile { file: Arc::new(file.into()), opened, folder: Mutex::new(None) }
    }

    pub(super) fn created(file: OwnedFd, folder: OwnedFd) -> LinuxFile {
        LinuxFile { file: Arc::new(file.into()), opened: Opened::ReadWrite, folder: Mutex::new(Some(folder)) }
    }

    /// Tells whether bytes can be written to it. Where not, it can still be what blocks are shared into.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.opened == Opened::ReadWrite
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

    pub(super) fn prefetch(&self, offset: u64, length: u64) {
        prefetch(&self.file, offset, length);
    }

    /// Sends long ranges to `nowhere`: that waits for the disk as reading does, and copies nothing.
    pub(super) fn bring_in(&self, nowhere: Option<&OwnedFd>, offset: u64, length: u64) -> io::Result<()> {
        let (mut at, end) = (offset, offset + length);
        if let Some(nowhere) = nowhere.filter(|_| length > READ_BYTES as u64) {
            while at < end {
                let left = usize::try_from(end - at).unwrap_or(usize::MAX);
                match retry_on_intr(|| rustix::fs::sendfile(nowhere, &self.file, Some(&mut at), left)) {
                    Ok(0) => return Ok(()),
                    Ok(_) => {}
                    // A file system that does not send is read.
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
        // Where the kernel will not, it is written when it is made durable. So is what failed here, which is told then.
        let _ = sys::write_back(&self.file, offset, length);
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
        // Never repeated: an error is told once, and what was lost is not tried again by the kernel.
        rustix::fs::fsync(&self.file).map_err(|errno| full(errno.into()))?;
        let mut folder = self.folder.lock();
        if let Some(folder) = folder.as_ref() {
            rustix::fs::fsync(folder).map_err(|errno| full(errno.into()))?;
        }
        *folder = None;
        Ok(())
    }

    pub(super) fn try_lock(&self) -> io::Result<bool> {
        match retry_on_intr(|| rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes all of the file system durable.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        rustix::fs::syncfs(&self.file).map_err(|errno| full(errno.into()))
    }

    /// Takes the file for this opening alone: a write lease.
    pub(super) fn try_exclusive(&self) -> io::Result<bool> {
        self.check_writable()?;
        match sys::take_lease(&self.file) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn is_exclusive_wanted(&self) -> bool {
        !sys::has_lease(&self.file)
    }

    pub(super) fn leave_exclusive(&self) {
        // What cannot be ended now ends when the file is closed.
        let _ = sys::end_lease(&self.file);
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

/// Any thread reads by it.
struct LinuxReader {
    file: Arc<std::fs::File>,
    /// As [`super::LinuxSubstrate::has_large_pages`] says.
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
    // Where the kernel will not, the reading takes longer.
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

/// A quota that is used up is no space.
fn full(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => io::Error::new(io::ErrorKind::StorageFull, error),
        _ => error,
    }
}
