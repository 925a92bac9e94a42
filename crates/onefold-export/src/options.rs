//! Options of a mount.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use onefold_block::clock::SystemClock;
use onefold_block::{Clock, Processors};

use crate::below::FileBelow;
use crate::log::{FailureLog, StderrLog};
use crate::place::PoolPlace;

/// Extended attribute of the mount's root directory with the path of its control socket. It is neither listed nor
/// stored.
pub const CONTROL_XATTR: &str = "user.onefold.control";

/// The users of a mounted file system; the kernel checks file permissions in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountAccess {
    /// Only the user of the mount (the kernel's default for FUSE).
    Owner,
    /// All users (`allow_other`). Without root this needs `user_allow_other` in `/etc/fuse.conf`.
    Everyone,
}

/// When a read updates the access time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTimes {
    /// If it is not newer than the last change, or a day old (`relatime`), at most once for each opening of the file.
    Relative,
    /// With the first read of each opening of the file (`strictatime`). The kernel then keeps no pages from one opening
    /// to the next.
    Strict,
    /// Never (`noatime`).
    Never,
}

/// The blocks that `st_blocks` of a regular file counts (`docs/decisions/0007-st-blocks.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StBlocks {
    /// The whole length if that saves `cp` much copying (64 MiB), otherwise the mapped blocks.
    Auto,
    /// The whole length, and mapped blocks beyond it: `cp` then sees no sparse file and requests a clone.
    Length,
    /// Mapped or reserved blocks: `du` then shows holes.
    Mapped,
}

/// Options that the kernel itself implements for any file system (mount(8)), except for what it leaves to the daemon:
/// that changes of names are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelOption {
    /// Each write and each change of a name is durable when it returns.
    Sync,
    /// Each change of a name is durable when it returns.
    Dirsync,
    /// Times are kept in memory for longer before they are stored.
    Lazytime,
    /// Symbolic links are not followed.
    Nosymfollow,
}

/// Options of a mount.
#[derive(Clone)]
pub struct MountOptions {
    /// The source in `/proc/mounts`: usually the pool's path.
    pub source_name: String,
    /// The users of the mount.
    pub access: MountAccess,
    /// The kernel refuses every change. The pool itself should be open read-only too.
    pub read_only: bool,
    /// When a read updates the access time.
    pub access_times: AccessTimes,
    /// Options that the kernel implements.
    pub kernel_options: Vec<KernelOption>,
    /// The blocks that `st_blocks` counts, for files without a setting of their own (`user.onefold.st_blocks`).
    pub st_blocks: StBlocks,
    /// Whether the kernel may collect buffered writes before it hands them over. That is faster for small buffered
    /// writes; but a full pool is then reported by `fsync` instead of `write`.
    pub writeback_cache: bool,
    /// Number of threads that answer the kernel, at most [`MountOptions::THREADS_MAX`].
    pub threads: NonZeroUsize,
    /// Reports whether a processor is idle: a thread that has answered a request from memory then polls for the next
    /// one for a moment before it sleeps. With `None` it sleeps at once.
    pub processors: Option<Arc<dyn Processors>>,
    /// The file that holds the pool, whose file system limits the reported space; `None` for a partition.
    pub below: Option<Arc<FileBelow>>,
    /// Place of the pool, after which the control socket is named ([`crate::DaemonOptions::place`]).
    pub place: Option<PoolPlace>,
    /// Directory of the control socket ([`crate::DaemonOptions::control_directory`]).
    pub control_directory: Option<PathBuf>,
    /// The clock by which `relatime` judges the age of an access time.
    pub clock: Arc<dyn Clock>,
    /// Receives failures that the caller sees only as an errno.
    pub log: Arc<dyn FailureLog>,
}

impl MountOptions {
    /// Maximum number of threads that answer the kernel: each has its own buffer.
    pub const THREADS_MAX: usize = 64;

    /// Default number of threads: one waits for requests, the others for the device.
    const THREADS: usize = 8;
    /// Pool memory per thread, in bytes. A thread's working memory, two buffers of the largest request and as much in
    /// the pool, is a quarter of that.
    const THREAD_BYTES: u64 = 16 << 20;

    /// Returns the number of threads that suits a pool with this `memory` setting, in bytes.
    #[must_use]
    pub fn threads_within(memory_bytes: u64) -> usize {
        usize::try_from(memory_bytes / Self::THREAD_BYTES).unwrap_or(usize::MAX).clamp(1, Self::THREADS)
    }

    /// Returns the defaults for a pool called `source_name`: open to all users if root mounts it, `relatime`,
    /// `st_blocks` of the whole length where `cp` would copy much, no writeback cache, eight threads.
    #[must_use]
    pub fn new(source_name: impl Into<String>) -> MountOptions {
        let access = if rustix::process::geteuid().is_root() { MountAccess::Everyone } else { MountAccess::Owner };
        MountOptions {
            source_name: source_name.into(),
            access,
            read_only: false,
            access_times: AccessTimes::Relative,
            kernel_options: Vec::new(),
            st_blocks: StBlocks::Auto,
            writeback_cache: false,
            threads: NonZeroUsize::new(Self::THREADS).expect("eight is not zero"),
            processors: None,
            below: None,
            place: None,
            control_directory: None,
            clock: Arc::new(SystemClock),
            log: Arc::new(StderrLog),
        }
    }
}

impl std::fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountOptions")
            .field("source_name", &self.source_name)
            .field("access", &self.access)
            .field("read_only", &self.read_only)
            .field("access_times", &self.access_times)
            .field("kernel_options", &self.kernel_options)
            .field("st_blocks", &self.st_blocks)
            .field("writeback_cache", &self.writeback_cache)
            .field("threads", &self.threads)
            .field("processors", &self.processors)
            .field("below", &self.below)
            .field("place", &self.place)
            .field("control_directory", &self.control_directory)
            .finish_non_exhaustive()
    }
}
