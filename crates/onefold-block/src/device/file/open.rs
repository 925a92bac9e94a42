//! Opening a file or block device, and keeping all other processes out of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::behind::open_behind;
use super::disk::is_full_disk;
use super::ring::Rings;
use super::{BOUNCE_BLOCKS, BOUNCE_BYTES_MAX, FileDevice};
use crate::BLOCK_BYTES_U64;
use crate::buffer::BufferPool;

/// The purpose for which a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading, beside other readers; writes fail.
    ReadOnly,
    /// Reading and writing, alone.
    ReadWrite,
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Another process has it open or mounted.
    #[error("{path} is in use")]
    InUse {
        /// The device.
        path: PathBuf,
    },
    /// It is neither a regular file nor a block device.
    #[error("{path} is neither a regular file nor a block device")]
    Unsuitable {
        /// The given path.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {op} {path}")]
    Io {
        /// The operation that failed: `open`, `lock` or `measure`.
        op: &'static str,
        /// The device.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Kind of the file that holds the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceKind {
    Regular,
    BlockDevice,
}

/// Whether transfers bypass the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferMode {
    Direct,
    Buffered,
}

/// Number of attempts to lock. On a block device, udev takes the lock for a moment whenever a writer has closed it;
/// these attempts wait for that.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// Opens with the first of `cachings` that the file system supports.
pub(super) fn open(path: &Path, mode: OpenMode, cachings: &[TransferMode]) -> Result<FileDevice, DeviceError> {
    let io = |op| move |source: io::Error| DeviceError::Io { op, path: path.to_owned(), source };
    // Checked before opening: opening a pipe would wait for its other end.
    let kind = kind_of(path, &std::fs::metadata(path).map_err(io("open"))?)?;
    let (file, caching) = match open_file(path, mode, kind, cachings) {
        Ok(opened) => opened,
        Err(Errno::BUSY) => return Err(DeviceError::InUse { path: path.to_owned() }),
        Err(errno) => return Err(io("open")(errno.into())),
    };
    let metadata = file.metadata().map_err(io("open"))?;
    if kind_of(path, &metadata)? != kind {
        return Err(DeviceError::Unsuitable { path: path.to_owned() });
    }
    let behind = if kind == DeviceKind::BlockDevice { open_behind(&metadata) } else { None };
    let is_full_disk = kind == DeviceKind::BlockDevice && is_full_disk(&metadata);
    for (file, kind) in [(Some(&file), kind), (behind.as_ref(), DeviceKind::Regular)] {
        file.map_or(Ok(()), |file| lock(file, mode, kind)).map_err(|errno| match errno {
            Errno::WOULDBLOCK => DeviceError::InUse { path: path.to_owned() },
            errno => io("lock")(errno.into()),
        })?;
    }
    let bytes = size_bytes(&file, kind).map_err(io("measure"))?;
    Ok(FileDevice {
        file,
        behind,
        is_full_disk,
        path: path.to_owned(),
        kind,
        mode,
        is_direct: caching == TransferMode::Direct,
        block_count: AtomicU64::new(bytes / BLOCK_BYTES_U64),
        bounce: BufferPool::new(BOUNCE_BLOCKS, BOUNCE_BYTES_MAX),
        rings: Rings::default(),
    })
}

/// Returns the length of the file or device.
pub(super) fn size_bytes(file: &File, kind: DeviceKind) -> io::Result<u64> {
    match kind {
        DeviceKind::Regular => Ok(file.metadata()?.len()),
        // The seek moves the file position, which positioned transfers ignore.
        DeviceKind::BlockDevice => Ok(rustix::fs::seek(file, SeekFrom::End(0))?),
    }
}

fn kind_of(path: &Path, metadata: &std::fs::Metadata) -> Result<DeviceKind, DeviceError> {
    let file_type = metadata.file_type();
    if file_type.is_file() {
        Ok(DeviceKind::Regular)
    } else if file_type.is_block_device() {
        Ok(DeviceKind::BlockDevice)
    } else {
        Err(DeviceError::Unsuitable { path: path.to_owned() })
    }
}

fn open_file(
    path: &Path,
    mode: OpenMode,
    kind: DeviceKind,
    cachings: &[TransferMode],
) -> Result<(File, TransferMode), Errno> {
    let mut flags = OFlags::CLOEXEC;
    flags |= match mode {
        OpenMode::ReadOnly => OFlags::RDONLY,
        OpenMode::ReadWrite => OFlags::RDWR,
    };
    if kind == DeviceKind::BlockDevice && mode == OpenMode::ReadWrite {
        // Keeps out mounts, volume managers and other writers that use the same flag.
        flags |= OFlags::EXCL;
    }
    for &caching in cachings {
        let cache_flag = match caching {
            TransferMode::Direct => OFlags::DIRECT,
            TransferMode::Buffered => OFlags::empty(),
        };
        match rustix::fs::open(path, flags | cache_flag, Mode::empty()) {
            // A file system without O_DIRECT refuses the flag this way.
            Err(Errno::INVAL) => {}
            outcome => return outcome.map(|file| (file.into(), caching)),
        }
    }
    Err(Errno::INVAL)
}

/// Locks the open file until it is closed.
fn lock(file: &File, mode: OpenMode, kind: DeviceKind) -> Result<(), Errno> {
    let operation = match mode {
        OpenMode::ReadOnly => FlockOperation::NonBlockingLockShared,
        OpenMode::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    let attempts = match kind {
        DeviceKind::Regular => 1,
        DeviceKind::BlockDevice => LOCK_ATTEMPTS,
    };
    let mut outcome = rustix::fs::flock(file, operation);
    for _ in 1..attempts {
        if outcome != Err(Errno::WOULDBLOCK) {
            break;
        }
        thread::sleep(LOCK_WAIT);
        outcome = rustix::fs::flock(file, operation);
    }
    outcome
}
