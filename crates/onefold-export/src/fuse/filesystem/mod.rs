//! A pool as a POSIX file system: the meaning of each request, independent of any protocol.
//!
//! The kernel checks permissions (`default_permissions`), so this module does not. Every method returns an errno, and
//! reports a failure to the operator first if an errno does not suffice.

mod content;
mod listing;
mod names;
mod xattrs;

use std::path::PathBuf;
use std::sync::Arc;

use onefold_block::Clock;
use onefold_pool::{Attr, FsStat, Ino, NoProgress, Pool, PoolError, SetAttr};
use rustix::io::Errno;

pub(super) use self::content::FileOffset;
pub(super) use self::names::{FileOwner, NameInDirectory};
use super::access_marks::AccessMarks;
use super::failures::FailureHandler;
use super::flags::OpenFlags;
use super::open_files::OpenFiles;
use super::opened_losses::OpenedLosses;
use super::opening::{ContentCaching, OpenReply};
use super::privileges::{self, Caller, Privileges};
use crate::below::FileBelow;
use crate::options::{AccessTimes, KernelOption, MountOptions};

/// Result of a request.
pub(super) type Result<T> = std::result::Result<T, Errno>;

/// Answers requests. Shared by all threads.
pub(crate) struct PoolFilesystem {
    pool: Arc<Pool>,
    failures: FailureHandler,
    marks: AccessMarks,
    clock: Arc<dyn Clock>,
    open_files: Arc<OpenFiles>,
    losses: OpenedLosses,
    access_times: AccessTimes,
    /// Each change of a name is durable when it is answered.
    syncs_names: bool,
    control_path: PathBuf,
    below: Option<Arc<FileBelow>>,
}

impl PoolFilesystem {
    /// Refuses every change from now on.
    pub(super) fn stop(&self, cause: &str) {
        self.pool.stop(cause);
    }

    /// Returns the file system of `pool`, whose root names `control_path` as its control socket.
    pub(crate) fn new(pool: Arc<Pool>, options: &MountOptions, control_path: PathBuf) -> PoolFilesystem {
        PoolFilesystem {
            open_files: Arc::new(OpenFiles::new(pool.memory_bytes())),
            pool,
            failures: FailureHandler::new(options.log.clone()),
            marks: AccessMarks::new(),
            clock: options.clock.clone(),
            losses: OpenedLosses::default(),
            access_times: if options.read_only { AccessTimes::Never } else { options.access_times },
            syncs_names: [KernelOption::Sync, KernelOption::Dirsync]
                .iter()
                .any(|option| options.kernel_options.contains(option)),
            control_path,
            below: options.below.clone(),
        }
    }

    /// Releases `holds` that earlier answers took on `ino`.
    pub(super) fn forget(&self, ino: Ino, holds: u64) {
        // The root cannot disappear, and the kernel's count of it starts at one, which no answer took.
        if ino != Ino::ROOT {
            self.pool.release(ino, holds);
        }
    }

    pub(super) fn attr(&self, ino: Ino) -> Result<Attr> {
        self.pool.attr(ino).map_err(|error| self.failed("getattr", ino, &error))
    }

    pub(super) fn set_attr(
        &self,
        ino: Ino,
        mut change: SetAttr,
        privileges: Privileges,
        caller: Caller,
    ) -> Result<Attr> {
        let mut set = || {
            if privileges::are_lost_by(&change, privileges) {
                let attr = self.pool.attr(ino)?;
                change.mode =
                    privileges::mode_without(attr.kind, attr.mode, privileges::may_give_group(attr.gid, Some(caller)));
            }
            self.pool.set_attr(ino, &change)
        };
        set().map_err(|error| self.failed("setattr", ino, &error))
    }

    /// Makes a file or folder durable, together with everything needed to find it again. Fails once for each loss of
    /// accepted writes that the opening has not seen yet.
    pub(super) fn sync(&self, ino: Ino, handle: u64) -> Result<()> {
        // Like other file systems: a read-only pool has nothing to make durable.
        if self.pool.is_read_only() {
            return Ok(());
        }
        self.pool.fsync_opened(&self.losses.of(handle)).map_err(|error| self.failed("fsync", ino, &error))
    }

    /// Discards the pool's free blocks, and returns the number of bytes. Only root and the daemon's user may do that.
    pub(super) fn trim(&self, uid: u32) -> Result<u64> {
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            return Err(Errno::PERM);
        }
        self.pool.trim(&NoProgress).map_err(|error| self.failed("fstrim", Ino::ROOT, &error))
    }

    /// Returns the space for `df`: the reported space is what files can get, from the pool and from the file system
    /// below it.
    pub(super) fn space(&self) -> FsStat {
        let space = self.pool.fs_stat();
        let space = FsStat { blocks_available: space.blocks_for_data(), ..space };
        self.below.as_ref().map_or(space, |below| below.limit(space))
    }

    /// Opens a file. The kernel has checked the caller's permission.
    pub(super) fn open(&self, ino: Ino, flags: OpenFlags) -> OpenReply {
        // Every change of a file goes through this mount, or is a clone that the door reports to the kernel. Writes
        // through a volume are neither, so a file must not be served through both.
        let moves_access_time = flags.allows_reads() && !flags.keeps_access_time();
        self.open_files.opened(ino, flags);
        let caching = match self.access_times {
            _ if flags.is_direct() => ContentCaching::Bypass,
            AccessTimes::Strict if moves_access_time => ContentCaching::Drop,
            _ => ContentCaching::Keep,
        };
        let handle = self.marks.open();
        self.losses.opened(&self.pool, ino, handle);
        OpenReply { handle, caching }
    }

    /// Opens a folder and returns its handle.
    pub(super) fn open_folder(&self, ino: Ino) -> u64 {
        let handle = self.marks.open_folder();
        self.losses.opened(&self.pool, ino, handle);
        handle
    }

    /// Ends an opening of a file. The kernel has handed over everything that was written through it.
    pub(super) fn release(&self, ino: Ino, handle: u64) {
        self.losses.released(handle);
        self.open_files.released(ino);
    }

    /// Ends an opening of a folder.
    pub(super) fn release_folder(&self, handle: u64) {
        self.losses.released(handle);
    }

    /// Returns the register of open files.
    pub(crate) fn open_files(&self) -> Arc<OpenFiles> {
        self.open_files.clone()
    }

    fn failed(&self, operation: &'static str, ino: Ino, error: &PoolError) -> Errno {
        self.failures.handle(operation, ino, error)
    }
}
