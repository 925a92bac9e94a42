//! Queries the size of an answer.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the size of an extended attribute, queried with an empty buffer.
#[expect(unsafe_code, reason = "rustix limits the answer to the size of the buffer")]
pub fn xattr_bytes(path: &Path, name: &str) -> std::io::Result<usize> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let name = CString::new(name)?;
    // SAFETY: both strings end with a zero byte and live through the call; no bytes are written to an empty buffer.
    let size = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    usize::try_from(size).map_err(|_| std::io::Error::last_os_error())
}
