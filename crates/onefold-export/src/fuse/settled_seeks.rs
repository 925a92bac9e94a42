//! Answers to `SEEK_DATA` and `SEEK_HOLE` where processes may have mapped the file.
//!
//! What a process writes to a shared mapping is in the kernel's page cache alone, until the kernel hands it over. For a
//! seek it does not: the pool would call a hole what has data by now, and a copy that skips holes would lose the data.
//! So the kernel is made to drop its pages of each hole that an answer would tell of. It hands dirty ones over before,
//! and a second look at the file finds them. Pages over data stay.
//!
//! The kernel sends these pages as writes and waits for them. So no thread that answers requests may wait for the drop:
//! a thread of its own looks for data and holes of such files, from the first of these seeks on.

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
use super::protocol::{Reach, notify_inode, seek_result};

/// Looks at a file that changes meanwhile, before a seek is answered as if there were no holes.
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
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// A seek came in, or there will be no more.
    came: Condvar,
}

#[derive(Default)]
struct State {
    /// In the order of their coming: at most as many as threads of processes wait for one.
    waiting: VecDeque<HeldSeek>,
    is_over: bool,
}

impl SettledSeeks {
    /// Answers a seek, a little later.
    pub(super) fn hold(&self, seek: HeldSeek, filesystem: &Arc<PoolFilesystem>) {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (shared, filesystem) = (self.shared.clone(), filesystem.clone());
            let answer = move || shared.answer_all(&filesystem);
            *thread = thread::Builder::new().name("fuse-seek".to_owned()).spawn(answer).ok();
        }
        if thread.is_none() {
            // No thread can be had now. The next seek tries again.
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
            // One that panicked has told so.
            let _ = thread.join();
        }
    }
}

impl Shared {
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

    /// Returns the next data, or nothing if the file changes too fast.
    fn data(&self, filesystem: &PoolFilesystem) -> Result<Option<i64>> {
        // What the pool calls holes up to here has no dirty pages.
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

    /// Returns the next hole, or nothing if the file changes too fast.
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

    /// Has the kernel drop its pages of a range, and hand dirty ones over before.
    fn drop_pages(&self, bytes: Range<i64>) {
        let place = |offset: i64| u64::try_from(offset).unwrap_or(0);
        let reach = Reach::Range(place(bytes.start)..place(bytes.end));
        // The kernel refuses only where it has nothing of the file, or the connection is over.
        let _ = self.device.notify(&notify_inode(self.ino.0, &reach));
    }

    /// Returns the answer of a file without holes, which loses nothing.
    fn as_if_without_holes(&self, filesystem: &PoolFilesystem) -> Result<i64> {
        let size = i64::try_from(filesystem.attr(self.ino)?.size_bytes).map_err(|_| Errno::OVERFLOW)?;
        match seek_target(self.whence)? {
            _ if !(0..size).contains(&self.offset) => Err(Errno::NXIO),
            SeekTarget::Data => Ok(self.offset),
            SeekTarget::Hole => Ok(size),
        }
    }

    fn reply(&self, outcome: Result<i64>) {
        // Where the kernel does not take it, nobody waits for it any more.
        let _ = match outcome {
            Ok(found) => self.device.reply(self.unique, 0, &seek_result(found)),
            Err(errno) => self.device.reply(self.unique, errno.raw_os_error(), &[]),
        };
    }
}

/// Returns the end of the longest file.
fn end_of_all() -> i64 {
    i64::try_from(FILE_BYTES_MAX).expect("16 TiB")
}
