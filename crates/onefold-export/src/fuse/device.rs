//! The descriptor over which requests come and replies go: `/dev/fuse`.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::protocol::reply_header;

const PATH: &str = "/dev/fuse";

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, u32)`.
const CLONE: libc::Ioctl = 0x8004_e500_u32 as libc::Ioctl;

/// One descriptor of a connection to the kernel.
///
/// A clone is the same descriptor: a request is replied to by the one that it came from.
#[derive(Clone, Debug)]
pub(super) struct FuseDevice {
    descriptor: Arc<OwnedFd>,
}

impl FuseDevice {
    /// Opens a descriptor that belongs to no mount yet.
    ///
    /// # Errors
    /// Where the kernel has no FUSE, or this process may not use it.
    pub(super) fn open() -> io::Result<FuseDevice> {
        let file = OpenOptions::new().read(true).write(true).open(PATH)?;
        Ok(FuseDevice::from(OwnedFd::from(file)))
    }

    /// Returns another descriptor of the same connection, with a queue of its own for requests under way: threads that
    /// have one each do not wait for each other.
    ///
    /// # Errors
    /// Whatever the kernel says.
    #[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
    pub(super) fn try_clone(&self) -> io::Result<FuseDevice> {
        let clone = FuseDevice::open()?;
        let source = u32::try_from(self.descriptor.as_raw_fd()).expect("a descriptor is not negative");
        // SAFETY: both descriptors are open; the ioctl reads one `u32` behind the pointer, which lives until it
        // returns.
        let result = unsafe { libc::ioctl(clone.descriptor.as_raw_fd(), CLONE, &raw const source) };
        if result == 0 { Ok(clone) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns another descriptor of the same connection that never waits.
    ///
    /// # Errors
    /// As [`FuseDevice::try_clone`].
    pub(super) fn try_clone_impatient(&self) -> io::Result<FuseDevice> {
        let clone = self.try_clone()?;
        let flags = rustix::fs::fcntl_getfl(&clone.descriptor)?;
        rustix::fs::fcntl_setfl(&clone.descriptor, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(clone)
    }

    /// Returns the length of a request that is there already, if there is one, on a descriptor that never waits. The
    /// end of the connection counts as nothing: who waits hears of it.
    ///
    /// # Errors
    /// When no more requests can be received.
    pub(super) fn receive_more(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.descriptor, &mut *into)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Errno::NOENT | Errno::AGAIN | Errno::NODEV | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for a request and returns its length, or nothing once the connection has ended. The kernel hands over
    /// whole requests only.
    ///
    /// # Errors
    /// When no more requests can be received.
    pub(super) fn receive(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut is_over = false;
        loop {
            match rustix::io::read(&self.descriptor, &mut *into) {
                Ok(bytes) => return Ok(Some(bytes)),
                // NOENT: the request was taken back before it could be read.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                // While the kernel takes the mount down, it fails reads with this error as long as requests wait, such
                // as the release of a file. Afterwards the next read tells an unmount from an abort.
                Err(Errno::CONNABORTED) if !is_over => is_over = !self.is_connected(),
                Err(Errno::NODEV) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends the reply to the request `unique`: an error (0 for none), or a body. A request that was taken back
    /// meanwhile needs none.
    ///
    /// # Errors
    /// When the kernel does not take the reply.
    pub(super) fn reply(&self, unique: u64, error: i32, body: &[u8]) -> io::Result<()> {
        let header = reply_header(unique, error, body.len());
        self.send(&[IoSlice::new(&header), IoSlice::new(body)])
    }

    /// Sends a message that no request asked for. That the kernel does not know what it is about is no error.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub(super) fn notify(&self, message: &[u8]) -> io::Result<()> {
        self.send(&[IoSlice::new(message)])
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        match rustix::io::retry_on_intr(|| rustix::io::writev(&self.descriptor, parts)) {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Tells whether the kernel still has the mount.
    pub(super) fn is_connected(&self) -> bool {
        self.poll(PollFlags::empty()).is_ok_and(|found| !found.contains(PollFlags::ERR))
    }

    /// Tells whether requests wait to be received. Once there are none, each request that the kernel had sent before is
    /// with a thread that answers it, or on its way there.
    pub(super) fn has_requests(&self) -> bool {
        self.poll(PollFlags::IN).is_ok_and(|found| found.contains(PollFlags::IN))
    }

    fn poll(&self, wanted: PollFlags) -> io::Result<PollFlags> {
        let mut polled = [PollFd::new(&self.descriptor, wanted)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polled, Some(&at_once))?;
        Ok(polled[0].revents())
    }
}

impl From<OwnedFd> for FuseDevice {
    fn from(descriptor: OwnedFd) -> FuseDevice {
        FuseDevice { descriptor: Arc::new(descriptor) }
    }
}

impl AsFd for FuseDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
