//! Looks up mounts in the kernel's own table, without a request to the file systems in it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Device number of a mounted file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// The mounts of one mount namespace, in the order of the kernel's table.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountTable {
    pub(crate) mounts: Vec<TableMount>,
}

/// One line of the table (proc(5), `mountinfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableMount {
    pub(crate) id: u64,
    pub(crate) parent: u64,
    pub(crate) device: DeviceNumber,
    /// The folder or file of the file system that the mount shows: `/` unless it is a bind mount of a part.
    pub(crate) root: PathBuf,
    pub(crate) mountpoint: PathBuf,
    /// The group of mounts to which it sends mounts and unmounts.
    pub(crate) peer_group: Option<u64>,
    /// The group of mounts from which it receives mounts and unmounts.
    pub(crate) master_group: Option<u64>,
    /// Type of the file system, such as `fuse.onefold`.
    pub(crate) kind: OsString,
    pub(crate) source: PathBuf,
    /// The user that mounted it, which the kernel reports only for FUSE file systems.
    pub(crate) user: Option<u32>,
}

impl MountTable {
    /// Returns the table of this process's mount namespace.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn own() -> io::Result<MountTable> {
        Ok(MountTable::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    /// Returns the mounts in a table's text; invalid lines are left out.
    pub(crate) fn parse(text: &[u8]) -> MountTable {
        MountTable { mounts: text.split(|&byte| byte == b'\n').filter_map(parse_line).collect() }
    }

    /// Returns the user that mounted the FUSE file system on `device`; `None` for other file systems.
    pub(crate) fn user_of(&self, device: DeviceNumber) -> Option<u32> {
        self.mounts.iter().find(|mount| mount.device == device)?.user
    }

    /// Returns the mount at exactly `mountpoint`: the topmost one, if there are several.
    pub(crate) fn topmost_at(&self, mountpoint: &Path) -> Option<&TableMount> {
        // A mount on top of another comes later in the table.
        self.mounts.iter().rev().find(|mount| mount.mountpoint == mountpoint)
    }
}

/// Returns the device of the topmost mount at exactly `mountpoint`, or `None`.
///
/// # Errors
/// When the table cannot be read.
pub(crate) fn device_at(mountpoint: &Path) -> io::Result<Option<DeviceNumber>> {
    Ok(MountTable::own()?.topmost_at(mountpoint).map(|mount| mount.device))
}

fn parse_line(line: &[u8]) -> Option<TableMount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let (id, parent) = (parse_number(fields.next()?)?, parse_number(fields.next()?)?);
    let device = parse_device(fields.next()?)?;
    let (root, mountpoint) = (unescape(fields.next()?), unescape(fields.next()?));
    let _options = fields.next()?;
    let (mut peer_group, mut master_group) = (None, None);
    loop {
        match fields.next()? {
            b"-" => break,
            field => {
                peer_group = peer_group.or_else(|| parse_number(field.strip_prefix(b"shared:")?));
                master_group = master_group.or_else(|| parse_number(field.strip_prefix(b"master:")?));
            }
        }
    }
    let (kind, source) = (unescape(fields.next()?).into_os_string(), unescape(fields.next()?));
    // Another file system could have an option of that name.
    let is_fuse = kind.as_encoded_bytes().starts_with(b"fuse");
    let user = fields.next().filter(|_| is_fuse).and_then(parse_user);
    Some(TableMount { id, parent, device, root, mountpoint, peer_group, master_group, kind, source, user })
}

/// Returns the user in FUSE's own option, which is the last mention: labels of security modules come before it.
fn parse_user(options: &[u8]) -> Option<u32> {
    parse_number(options.rsplit(|&byte| byte == b',').find_map(|option| option.strip_prefix(b"user_id="))?)
        .and_then(|user| user.try_into().ok())
}

fn parse_number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn parse_device(field: &[u8]) -> Option<DeviceNumber> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Decodes the table's escapes: space, tab, newline and backslash appear as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
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
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        40 22 0:37 / /mnt/images rw shared:9 - fuse.onefold images.pool rw,context=user_id=7,user_id=1000,group_id=0\n\
        41 22 0:38 / /mnt/with\\040space rw - fuse.onefold other.pool rw\n\
        42 40 0:39 /sub /mnt/images rw master:7 shared:8 - tmpfs none rw\n\
        broken line\n";

    fn device_in(table: &[u8], mountpoint: &str) -> Option<DeviceNumber> {
        MountTable::parse(table).topmost_at(Path::new(mountpoint)).map(|mount| mount.device)
    }

    #[test]
    fn the_topmost_mount_at_a_path_is_found() {
        assert_eq!(device_in(TABLE, "/mnt/images"), Some(DeviceNumber { major: 0, minor: 39 }));
        assert_eq!(device_in(TABLE, "/"), Some(DeviceNumber { major: 8, minor: 1 }));
    }

    #[test]
    fn the_user_of_a_fuse_mount_is_the_one_that_the_kernel_names() {
        let table = MountTable::parse(&[TABLE, b"1 1 0:9 / /a rw - tmpfs none rw,user_id=5\n"].concat());
        let user = |minor| table.user_of(DeviceNumber { major: 0, minor });
        assert_eq!((user(37), user(38), user(9), user(99)), (Some(1000), None, None, None));
    }

    #[test]
    fn paths_with_spaces_are_found() {
        assert_eq!(device_in(TABLE, "/mnt/with space"), Some(DeviceNumber { major: 0, minor: 38 }));
    }

    #[test]
    fn a_path_inside_a_mount_is_no_mount_point() {
        assert_eq!(device_in(TABLE, "/mnt/images/sub"), None);
        assert_eq!(device_in(b"", "/"), None);
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape(br"a\134b\011c\9\07"), Path::new("a\\b\tc\\9\\07"));
    }

    #[test]
    fn a_line_is_read_with_and_without_groups() {
        let mounts = MountTable::parse(TABLE).mounts;
        let groups = |at: usize| (mounts[at].peer_group, mounts[at].master_group);
        assert_eq!(
            (mounts.len(), groups(0), groups(2), groups(3)),
            (4, (Some(1), None), (None, None), (Some(8), Some(7)))
        );
        assert_eq!((mounts[3].id, mounts[3].parent, mounts[3].root.as_path()), (42, 40, Path::new("/sub")));
        assert_eq!(
            (mounts[1].kind.as_os_str(), mounts[1].source.as_path()),
            ("fuse.onefold".as_ref(), Path::new("images.pool"))
        );
    }
}
