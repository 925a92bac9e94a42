//! Answers `SEEK_DATA` and `SEEK_HOLE` for files that processes may have mapped.
//!
//! Data that a process writes to a shared mapping is only in the kernel's page cache until the kernel hands it over.
//! The kernel does not hand it over for a seek. The pool would report a hole where there is data by now, and a copy
//! that skips holes would lose the data. So, before an answer reports a hole, the door makes the kernel drop its pages
//! of that hole. The kernel hands dirty pages over first, and a second look at the file finds them. Pages over data
//! stay.
//!
//! The kernel sends these pages as writes and waits for the replies. So no thread that answers requests may wait for
//! the drop. Instead a separate thread looks for data and holes of such files; it starts with the first of these seeks.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use onefold_pool::{FILE_BYTES_MAX, Ino, SeekTarget};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::device::FuseDevice;
use super::filesystem::{PoolFilesystem, Result};
use super::flags::seek_target;
use super::protocol::{InvalidationReach, notify_inode, seek_result};

/// Maximum number of looks at a file that keeps changing. After that, the seek is answered as if the file had no holes.
const LOOKS_MAX: u32 = 32;

/// A seek in a file that may be mapped.
#[derive(Debug)]
pub(super) struct HeldSeek {
    pub(super) ino: Ino,
    pub(super) offset: i64,
    pub(super) whence: i32,
    /// The request, and the descriptor that it came from.
    pub(super) unique: u64,
    pub(super) device: FuseDevice,
}

/// Answers seeks on a thread of its own.
#[derive(Default)]
pub(super) struct SettledSeeks {
    shared: Arc<SeekQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct SeekQueue {
    state: Mutex<SeekState>,
    /// Signals a new seek, or the end.
    came: Condvar,
}

#[derive(Default)]
struct SeekState {
    /// Seeks in order of arrival: at most one per waiting thread of a process.
    waiting: VecDeque<HeldSeek>,
    is_over: bool,
}

impl SettledSeeks {
    /// Takes over a seek, and answers it a little later.
    pub(super) fn hold(&self, seek: HeldSeek, filesystem: &Arc<PoolFilesystem>) {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (shared, filesystem) = (self.shared.clone(), filesystem.clone());
            let answer = move || shared.answer_all(&filesystem);
            *thread = thread::Builder::new().name("fuse-seek".to_owned()).spawn(answer).ok();
        }
        if thread.is_none() {
            // No thread could be started. The next seek tries again.
            return seek.reply(seek.as_if_without_holes(filesystem));
        }
        self.shared.state.lock().waiting.push_back(seek);
        self.shared.came.notify_one();
    }
}

impl Drop for SettledSeeks {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.came.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic in it is already reported on standard error.
            let _ = thread.join();
        }
    }
}

impl SeekQueue {
    fn answer_all(&self, filesystem: &PoolFilesystem) {
        while let Some(seek) = self.next() {
            seek.reply(seek.answer(filesystem));
        }
    }

    fn next(&self) -> Option<HeldSeek> {
        let mut state = self.state.lock();
        while !state.is_over {
            if let Some(seek) = state.waiting.pop_front() {
                return Some(seek);
            }
            self.came.wait(&mut state);
        }
        None
    }
}

impl HeldSeek {
    fn answer(&self, filesystem: &PoolFilesystem) -> Result<i64> {
        let found = match seek_target(self.whence)? {
            SeekTarget::Data => self.data(filesystem)?,
            SeekTarget::Hole => self.hole(filesystem)?,
        };
        found.map_or_else(|| self.as_if_without_holes(filesystem), Ok)
    }

    /// Returns the next data; `None` if the file changes too fast.
    fn data(&self, filesystem: &PoolFilesystem) -> Result<Option<i64>> {
        // Up to here, holes of the pool have no dirty pages in the kernel.
        let mut settled_end = self.offset;
        for _ in 0..LOOKS_MAX {
            let found = filesystem.seek(self.ino, self.offset, libc::SEEK_DATA);
            let end = match found {
                Ok(data) => data,
                Err(Errno::NXIO) => end_of_all(),
                Err(errno) => return Err(errno),
            };
            if end <= settled_end {
                return found.map(Some);
            }
            self.drop_pages(settled_end..end);
            settled_end = end;
        }
        Ok(None)
    }

    /// Returns the next hole; `None` if the file changes too fast.
    fn hole(&self, filesystem: &PoolFilesystem) -> Result<Option<i64>> {
        let mut settled = self.offset..self.offset;
        for _ in 0..LOOKS_MAX {
            let hole = filesystem.seek(self.ino, self.offset, libc::SEEK_HOLE)?;
            if settled.contains(&hole) {
                return Ok(Some(hole));
            }
            let end = match filesystem.seek(self.ino, hole, libc::SEEK_DATA) {
                // The hole has been filled.
                Ok(data) if data == hole => continue,
                Ok(data) => data,
                Err(Errno::NXIO) => end_of_all(),
                Err(errno) => return Err(errno),
            };
            settled = hole..end;
            self.drop_pages(settled.clone());
        }
        Ok(None)
    }

    /// Makes the kernel drop its pages of a range, after it has handed dirty ones over.
    fn drop_pages(&self, bytes: Range<i64>) {
        let place = |offset: i64| u64::try_from(offset).unwrap_or(0);
        let reach = InvalidationReach::Range(place(bytes.start)..place(bytes.end));
        // The kernel refuses only if it has nothing cached of the file, or if the connection is over.
        let _ = self.device.notify(&notify_inode(self.ino.0, &reach));
    }

    /// Returns the answer for a file without holes. A copy then loses nothing.
    fn as_if_without_holes(&self, filesystem: &PoolFilesystem) -> Result<i64> {
        let size = i64::try_from(filesystem.attr(self.ino)?.size_bytes).map_err(|_| Errno::OVERFLOW)?;
        match seek_target(self.whence)? {
            _ if !(0..size).contains(&self.offset) => Err(Errno::NXIO),
            SeekTarget::Data => Ok(self.offset),
            SeekTarget::Hole => Ok(size),
        }
    }

    fn reply(&self, outcome: Result<i64>) {
        // If the kernel does not accept the reply, no process waits for it any more.
        let _ = match outcome {
            Ok(found) => self.device.reply(self.unique, 0, &seek_result(found)),
            Err(errno) => self.device.reply(self.unique, errno.raw_os_error(), &[]),
        };
    }
}

/// Returns the end of the longest possible file.
fn end_of_all() -> i64 {
    i64::try_from(FILE_BYTES_MAX).expect("16 TiB")
}
