//! The descriptor that carries requests and replies: `/dev/fuse`.

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
/// A clone is the same descriptor: the reply to a request must go to the descriptor that the request came from.
#[derive(Clone, Debug)]
pub(super) struct FuseDevice {
    descriptor: Arc<OwnedFd>,
}

impl FuseDevice {
    /// Opens a descriptor that belongs to no mount yet.
    ///
    /// # Errors
    /// When the kernel has no FUSE, or this process may not use it.
    pub(super) fn open() -> io::Result<FuseDevice> {
        let file = OpenOptions::new().read(true).write(true).open(PATH)?;
        Ok(FuseDevice::from(OwnedFd::from(file)))
    }

    /// Returns another descriptor of the same connection. It has its own queue of requests in progress, so threads with
    /// a descriptor each do not wait for each other.
    ///
    /// # Errors
    /// The error of the kernel.
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
    /// See [`FuseDevice::try_clone`].
    pub(super) fn try_clone_impatient(&self) -> io::Result<FuseDevice> {
        let clone = self.try_clone()?;
        let flags = rustix::fs::fcntl_getfl(&clone.descriptor)?;
        rustix::fs::fcntl_setfl(&clone.descriptor, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(clone)
    }

    /// Returns the length of a request that is already there, if any, from a descriptor that never waits. The end of
    /// the connection counts as no request: a waiting [`FuseDevice::receive`] reports it.
    ///
    /// # Errors
    /// When this descriptor can receive no more requests.
    pub(super) fn receive_more(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.descriptor, &mut *into)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Errno::NOENT | Errno::AGAIN | Errno::NODEV | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for a request and returns its length; `None` once the connection has ended. The kernel delivers whole
    /// requests only.
    ///
    /// # Errors
    /// When this descriptor can receive no more requests.
    pub(super) fn receive(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut is_over = false;
        loop {
            match rustix::io::read(&self.descriptor, &mut *into) {
                Ok(bytes) => return Ok(Some(bytes)),
                // NOENT: the kernel withdrew the request before it could be read.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                // While the kernel takes the mount down, reads fail with this error as long as requests wait, such as
                // the release of a file. Afterwards the next read tells an unmount from an abort.
                Err(Errno::CONNABORTED) if !is_over => is_over = !self.is_connected(),
                Err(Errno::NODEV) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends the reply to the request `unique`: an error (0 for none), or a body. If the kernel has withdrawn the
    /// request meanwhile, it needs no reply.
    ///
    /// # Errors
    /// When the kernel does not accept the reply.
    pub(super) fn reply(&self, unique: u64, error: i32, body: &[u8]) -> io::Result<()> {
        let header = reply_header(unique, error, body.len());
        self.send(&[IoSlice::new(&header), IoSlice::new(body)])
    }

    /// Sends a notification, which no request asked for. If the kernel does not know the subject, that is no error.
    ///
    /// # Errors
    /// When the kernel does not accept it.
    pub(super) fn notify(&self, message: &[u8]) -> io::Result<()> {
        self.send(&[IoSlice::new(message)])
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        match rustix::io::retry_on_intr(|| rustix::io::writev(&self.descriptor, parts)) {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns whether the kernel still has the mount.
    pub(super) fn is_connected(&self) -> bool {
        self.poll(PollFlags::empty()).is_ok_and(|found| !found.contains(PollFlags::ERR))
    }

    /// Returns whether requests wait to be received. If none do, each earlier request is with a thread that answers it,
    /// or on its way there.
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
