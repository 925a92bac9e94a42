//! Extended attributes.

use std::io;

use rustix::fd::AsFd;
use rustix::fs::{XattrFlags, fgetxattr, fgetxattr_query, fremovexattr, fsetxattr};
use rustix::io::{Errno, retry_on_intr};

/// Maximum number of attempts to read an attribute that keeps growing.
const TRIES: usize = 10;

/// Returns an attribute; `None` if the file has no attribute of this name or the file system has no attributes.
pub(super) fn get(file: impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let file = file.as_fd();
    for _ in 0..TRIES {
        let length = match retry_on_intr(|| fgetxattr_query(file, name)) {
            Ok(length) => length,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Never empty: an empty buffer would ask for the length only.
        let mut value = vec![0_u8; length.max(1)];
        match retry_on_intr(|| fgetxattr(file, name, &mut value[..])) {
            Ok(found) => {
                value.truncate(found);
                return Ok(Some(value));
            }
            Err(Errno::RANGE) => {}
            Err(Errno::NODATA) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::RANGE.into())
}

/// Sets an attribute, or removes it. Removing a missing attribute succeeds.
pub(super) fn set(file: impl AsFd, name: &str, value: Option<&[u8]>) -> io::Result<()> {
    let file = file.as_fd();
    match value {
        Some(value) => Ok(retry_on_intr(|| fsetxattr(file, name, value, XattrFlags::empty()))?),
        None => match retry_on_intr(|| fremovexattr(file, name)) {
            Err(Errno::NODATA) => Ok(()),
            outcome => Ok(outcome?),
        },
    }
}
