//! Holds replies to direct writes until the kernel has dropped stale pages ([`super::cached_pages`]) or stale
//! attributes. The mode is stale if the write removed set-user-id or set-group-id bits. Dropping pages drops attributes
//! too.
//!
//! Dropping pages involves waiting. The kernel waits for each page that a read or a cached write in progress has
//! locked, and hands dirty pages over first. The requests behind these pages need threads that answer them, so a thread
//! that answers requests must not drop pages. A separate thread does that and then replies. It holds no lock meanwhile.
//!
//! One such wait would never end: the held write itself may have locked a page. That happens when the kernel falls back
//! from a direct write to a cached one, and the kernel does not report it. So a second thread replies to any write that
//! has been held for [`HELD_MAX`]; the pages of that write are dropped a moment later.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_pool::Ino;
use parking_lot::{Condvar, Mutex};

use super::cached_pages::StaleScope;
use super::device::FuseDevice;
use super::open_files::OpenFiles;
use super::protocol::{InvalidationReach, notify_inode, written};

/// Maximum time to hold a reply. Dropping pages takes microseconds, or as long as a disk read in progress.
const HELD_MAX: Duration = Duration::from_secs(1);

/// A held reply to a write that has taken effect.
#[derive(Debug)]
pub(super) struct HeldReply {
    pub(super) ino: Ino,
    /// The written range, in bytes of the file.
    pub(super) bytes: Range<u64>,
    /// The pages that the kernel has to drop first. With `None`, it drops attributes alone.
    pub(super) stale: Option<StaleScope>,
    /// The request, and the descriptor that it came from.
    pub(super) unique: u64,
    pub(super) device: FuseDevice,
}

impl HeldReply {
    fn send(&self) -> io::Result<()> {
        let bytes = self.bytes.end - self.bytes.start;
        self.device.reply(self.unique, 0, &written(u32::try_from(bytes).expect("a request is about 1 MiB at most")))
    }
}

/// The held replies. Each direct write that the kernel has in progress holds at most one.
#[derive(Debug, Default)]
pub(super) struct HeldReplies {
    state: Mutex<ReplyState>,
    /// Signals a new reply, or the end.
    came: Condvar,
    /// Signals a new reply, or the end, to the thread that sends late replies.
    began: Condvar,
}

#[derive(Debug, Default)]
struct ReplyState {
    /// Replies in order of arrival, except the current one.
    waiting: VecDeque<(Instant, HeldReply)>,
    /// The reply whose pages are being dropped, until it is sent.
    current: Option<(Instant, HeldReply)>,
    /// Ranges of writes that were replied to before their pages were dropped.
    late: VecDeque<(Ino, Range<u64>, Option<StaleScope>)>,
    is_over: bool,
}

impl HeldReplies {
    /// Holds a reply until the kernel has dropped its stale pages or attributes.
    pub(super) fn hold(&self, reply: HeldReply) {
        let mut state = self.state.lock();
        state.waiting.push_back((Instant::now() + HELD_MAX, reply));
        self.came.notify_one();
        self.began.notify_one();
    }

    /// Ends the two threads that run the methods below.
    pub(super) fn end(&self) {
        self.state.lock().is_over = true;
        self.came.notify_all();
        self.began.notify_all();
    }

    /// Drops pages and sends replies until the end. `device` is any descriptor of the connection.
    pub(super) fn serve(&self, device: &FuseDevice, open_files: &Arc<OpenFiles>) {
        loop {
            let mut state = self.state.lock();
            let (ino, bytes, stale) = loop {
                if state.is_over {
                    return;
                }
                if let Some(late) = state.late.pop_front() {
                    break late;
                }
                if let Some((until, reply)) = state.waiting.pop_front() {
                    let work = (reply.ino, reply.bytes.clone(), reply.stale);
                    state.current = Some((until, reply));
                    break work;
                }
                self.came.wait(&mut state);
            };
            drop(state);
            let reach = match stale {
                None => InvalidationReach::Attributes,
                Some(StaleScope::Range) => InvalidationReach::Range(bytes.clone()),
                Some(StaleScope::Everything) => InvalidationReach::Everything,
            };
            // The kernel refuses only if it has nothing cached of the file, or if the connection is over.
            let _ = device.notify(&notify_inode(ino.0, &reach));
            if let Some(stale) = stale {
                open_files.dropped(ino, &bytes, stale);
            }
            let current = self.state.lock().current.take();
            if let Some((_, reply)) = current {
                let _ = reply.send();
            }
        }
    }

    /// Sends replies that were held for too long, until the end.
    pub(super) fn serve_late(&self) {
        let mut state = self.state.lock();
        while !state.is_over {
            let now = Instant::now();
            let mut late: Vec<HeldReply> = Vec::new();
            // The thread that drops the pages of this reply finishes doing so.
            late.extend(state.current.take_if(|(until, _)| *until <= now).map(|(_, reply)| reply));
            while let Some((_, reply)) = state.waiting.pop_front_if(|(until, _)| *until <= now) {
                state.late.push_back((reply.ino, reply.bytes.clone(), reply.stale));
                late.push(reply);
            }
            if !late.is_empty() {
                parking_lot::MutexGuard::unlocked(&mut state, || {
                    for reply in late {
                        let _ = reply.send();
                    }
                });
                continue;
            }
            let next = state.current.iter().chain(&state.waiting).map(|(until, _)| *until).min();
            match next {
                Some(until) => drop(self.began.wait_until(&mut state, until)),
                None => self.began.wait(&mut state),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::thread;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    const REPLY_BYTES: usize = 24;

    fn pipe() -> (File, FuseDevice) {
        let (reader, writer): (OwnedFd, OwnedFd) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        (reader.into(), writer.into())
    }

    fn reply_to(unique: u64, device: &FuseDevice, held: &HeldReplies) {
        let (ino, bytes, device) = (Ino(5), 0..4096, device.clone());
        held.hold(HeldReply { ino, bytes, stale: Some(StaleScope::Range), unique, device });
    }

    fn next_reply(replies: &mut File) -> u64 {
        let mut reply = [0; REPLY_BYTES];
        replies.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], [0; 4], "no error");
        assert_eq!(reply[16..20], 4096u32.to_ne_bytes());
        u64::from_ne_bytes(reply[8..16].try_into().unwrap())
    }

    fn serve(held: &HeldReplies, notices: &FuseDevice, work: impl FnOnce()) {
        let open_files = Arc::new(OpenFiles::new(64 << 20));
        thread::scope(|scope| {
            scope.spawn(|| held.serve(notices, &open_files));
            scope.spawn(|| held.serve_late());
            work();
            held.end();
        });
    }

    #[test]
    fn a_reply_follows_the_drop_of_its_pages() {
        let ((mut notices, notify), (mut replies, device)) = (pipe(), pipe());
        let held = HeldReplies::default();
        serve(&held, &notify, || {
            for unique in 1..=3 {
                reply_to(unique, &device, &held);
                assert_eq!(next_reply(&mut replies), unique);
                let mut notice = [0; 40];
                notices.read_exact(&mut notice).unwrap();
                assert_eq!(notice[16..24], 5u64.to_ne_bytes());
            }
        });
    }

    /// The kernel may wait for a page that the held write itself has locked.
    #[test]
    fn no_reply_is_held_for_ever() {
        let ((mut notices, notify), (mut replies, device)) = (pipe(), pipe());
        // Full: the next notification waits until a process reads.
        let filler = vec![0; rustix::pipe::fcntl_getpipe_size(&notices).unwrap()];
        notify.notify(&filler).unwrap();
        let held = HeldReplies::default();
        serve(&held, &notify, || {
            reply_to(1, &device, &held);
            reply_to(2, &device, &held);
            let uniques = [next_reply(&mut replies), next_reply(&mut replies)];
            assert!(uniques == [1, 2], "{uniques:?}");
            // Their pages are dropped all the same, once the notifications flow again.
            notices.read_exact(&mut vec![0; filler.len()]).unwrap();
            for _ in 0..2 {
                notices.read_exact(&mut [0; 40]).unwrap();
            }
            reply_to(3, &device, &held);
            assert_eq!(next_reply(&mut replies), 3);
        });
    }
}
