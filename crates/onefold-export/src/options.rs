//! What is chosen each time a pool is mounted.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use onefold_block::clock::SystemClock;
use onefold_block::{Clock, Processors};

use crate::log::{Log, StderrLog};
use crate::place::PoolPlace;

/// Extended attribute of the mount's root directory that holds the path of its control socket. It is not listed and
/// not stored.
pub const CONTROL_XATTR: &str = "user.onefold.control";

/// Who may use the mounted file system; file permissions are checked by the kernel in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only the user who mounted it (the kernel's default for FUSE).
    Owner,
    /// Everyone (`allow_other`). Without root it needs `user_allow_other` in `/etc/fuse.conf`.
    Everyone,
}

/// When a read changes the access time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTimes {
    /// When it is not newer than the last change, or a day old (`relatime`), at most once for each opening of the file.
    Relative,
    /// Never (`noatime`).
    Never,
}

/// What `st_blocks` of a regular file covers (`docs/decisions/0007-st-blocks.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StBlocks {
    /// The whole length where that spares `cp` much data (64 MiB), otherwise what is mapped.
    Auto,
    /// The whole length, and what is mapped beyond it: `cp` then sees no sparse file and asks for a clone.
    Length,
    /// What is mapped or reserved: `du` then shows holes.
    Mapped,
}

/// What the kernel itself does for a mount, whatever file system it is (mount(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelOption {
    /// Each write is durable when it returns.
    Sync,
    /// Each change of a directory is durable when it returns.
    Dirsync,
    /// Times are kept in memory for longer.
    Lazytime,
    /// Symbolic links are not followed.
    Nosymfollow,
}

/// Chosen each time a pool is mounted.
#[derive(Clone)]
pub struct MountOptions {
    /// What `/proc/mounts` shows as the source: usually the pool's path.
    pub source_name: String,
    /// Who may use it.
    pub access: Access,
    /// The kernel refuses every change. The pool itself should be open read-only too.
    pub read_only: bool,
    /// When a read changes the access time.
    pub access_times: AccessTimes,
    /// What the kernel does beside.
    pub kernel_options: Vec<KernelOption>,
    /// What `st_blocks` covers, of files that have no setting of their own (`user.onefold.st_blocks`).
    pub st_blocks: StBlocks,
    /// Whether the kernel may collect buffered writes before it hands them on. Faster for small buffered writes; then
    /// a full pool is reported by `fsync` instead of `write`.
    pub writeback_cache: bool,
    /// Threads that answer the kernel, at most [`MountOptions::THREADS_MAX`].
    pub threads: NonZeroUsize,
    /// Tells whether a processor is idle: then a thread that has answered a request from memory looks for the next one
    /// for a moment before it sleeps. `None` has it sleep at once.
    pub processors: Option<Arc<dyn Processors>>,
    /// Where the pool lies, after which the control socket is named ([`crate::DaemonOptions::place`]).
    pub place: Option<PoolPlace>,
    /// Directory of the control socket; `None` is `/run/onefold` for root and `$XDG_RUNTIME_DIR/onefold` for others.
    pub control_directory: Option<PathBuf>,
    /// Tells `relatime` how old an access time is.
    pub clock: Arc<dyn Clock>,
    /// Receives failures that the caller sees only as an errno.
    pub log: Arc<dyn Log>,
}

impl MountOptions {
    /// The most threads that answer the kernel: each has a buffer of its own.
    pub const THREADS_MAX: usize = 64;

    /// Threads without a choice: one waits for requests, the others for the device.
    const THREADS: usize = 8;
    /// There is one for each so many bytes of the pool's memory at most: what it works with, two buffers of the largest
    /// request and as much in the pool, is a quarter of them.
    const THREAD_BYTES: u64 = 16 << 20;

    /// Returns how many threads suit a pool that is opened with this `memory` setting, in bytes.
    #[must_use]
    pub fn threads_within(memory_bytes: u64) -> usize {
        usize::try_from(memory_bytes / Self::THREAD_BYTES).unwrap_or(usize::MAX).clamp(1, Self::THREADS)
    }

    /// Returns the defaults for a pool called `source_name`: everyone may use it if root mounts it, `relatime`,
    /// `st_blocks` of the whole length where `cp` would copy much, no writeback cache, eight threads.
    #[must_use]
    pub fn new(source_name: impl Into<String>) -> MountOptions {
        let access = if rustix::process::geteuid().is_root() { Access::Everyone } else { Access::Owner };
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
            .field("place", &self.place)
            .field("control_directory", &self.control_directory)
            .finish_non_exhaustive()
    }
}
