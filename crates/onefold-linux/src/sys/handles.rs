//! Handles of files, by which they are found without a name.

use std::io;
use std::mem::offset_of;

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Length of the longest handle (`MAX_HANDLE_SZ`), in bytes.
pub(crate) const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle`, followed by room for the longest one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawHandle {
    byte_count: u32,
    /// Layout of the bytes, as numbered by the file system.
    pub(crate) kind: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

const _: () = assert!(offset_of!(RawHandle, bytes) == 8);

impl RawHandle {
    /// Returns the bytes of the handle.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::try_from(self.byte_count).map_or(HANDLE_BYTES_MAX, |count| count.min(HANDLE_BYTES_MAX))]
    }
}

/// Returns the handle of an open file.
pub(crate) fn file_handle(file: BorrowedFd<'_>) -> Result<RawHandle, Errno> {
    let byte_count = u32::try_from(HANDLE_BYTES_MAX).expect("a small constant");
    let mut handle = RawHandle { byte_count, kind: 0, bytes: [0; HANDLE_BYTES_MAX] };
    let mut mount: libc::c_int = 0;
    let (name, handle_at, mount_at) = (c"".as_ptr(), &raw mut handle, &raw mut mount);
    let (number, file) = (libc::SYS_name_to_handle_at, file.as_raw_fd());
    // SAFETY: `name` ends with a zero, `handle` has room for as many bytes as it says, `mount` for one number; all of
    // them outlive the call.
    let outcome = unsafe { libc::syscall(number, file, name, handle_at, mount_at, libc::AT_EMPTY_PATH) };
    if outcome == 0 { Ok(handle) } else { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)) }
}

impl RawHandle {
    /// Returns the handle of this type and these bytes; `None` if there are too many.
    pub(crate) fn new(kind: i32, bytes: &[u8]) -> Option<RawHandle> {
        let mut handle = RawHandle { byte_count: u32::try_from(bytes.len()).ok()?, kind, bytes: [0; HANDLE_BYTES_MAX] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }
}

/// Opens a file by its handle, on the file system of `mount`.
pub(crate) fn open_by_handle(mount: BorrowedFd<'_>, handle: &RawHandle, flags: OFlags) -> Result<OwnedFd, Errno> {
    let (number, mount, handle) = (libc::SYS_open_by_handle_at, mount.as_raw_fd(), std::ptr::from_ref(handle));
    // SAFETY: `handle` has as many bytes as it says, and outlives the call, which only reads it.
    let opened = unsafe { libc::syscall(number, mount, handle, flags.bits()) };
    match i32::try_from(opened) {
        // SAFETY: the kernel has just opened it, for this call alone.
        Ok(file) if file >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
