//! Looking up mounts in the kernel's own table, which asks nothing of the file systems in it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Number of the device that a mounted file system counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// Returns the device of what is mounted at exactly `mountpoint` (the topmost, if several are), or nothing.
///
/// # Errors
/// When the table can't be read.
pub(crate) fn device_at(mountpoint: &Path) -> io::Result<Option<DeviceNumber>> {
    Ok(device_in(&std::fs::read("/proc/self/mountinfo")?, mountpoint))
}

fn device_in(table: &[u8], mountpoint: &Path) -> Option<DeviceNumber> {
    // A mount on top of another comes later in the table.
    table.split(|&byte| byte == b'\n').rev().find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let device = fields.nth(2)?;
        let path = unescape(fields.nth(1)?);
        if Path::new(OsStr::from_bytes(&path)) == mountpoint { parse_device(device) } else { None }
    })
}

fn parse_device(field: &[u8]) -> Option<DeviceNumber> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Undoes the table's escapes: space, tab, newline and backslash appear as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        40 22 0:37 / /mnt/images rw shared:9 - fuse.onefold images.pool rw\n\
        41 22 0:38 / /mnt/with\\040space rw - fuse.onefold other.pool rw\n\
        42 40 0:39 / /mnt/images rw - tmpfs none rw\n\
        broken line\n";

    #[test]
    fn the_topmost_mount_at_a_path_is_found() {
        assert_eq!(device_in(TABLE, Path::new("/mnt/images")), Some(DeviceNumber { major: 0, minor: 39 }));
        assert_eq!(device_in(TABLE, Path::new("/")), Some(DeviceNumber { major: 8, minor: 1 }));
    }

    #[test]
    fn paths_with_spaces_are_found() {
        assert_eq!(device_in(TABLE, Path::new("/mnt/with space")), Some(DeviceNumber { major: 0, minor: 38 }));
    }

    #[test]
    fn a_path_inside_a_mount_is_no_mount_point() {
        assert_eq!(device_in(TABLE, Path::new("/mnt/images/sub")), None);
        assert_eq!(device_in(b"", Path::new("/")), None);
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape(br"a\134b\011c\9\07"), b"a\\b\tc\\9\\07");
    }
}
