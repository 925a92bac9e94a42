//! The mounted pools, from the kernel's `/proc/self/mountinfo`.
//!
//! The type and the source of a FUSE mount are chosen by the user who mounted it: with `fusermount3`, any user can
//! mount a file system that claims to be another user's pool. Only the device and the user come from the kernel itself,
//! and [`PoolMount::is_believed`] relies on these.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// File system type of a mounted pool.
pub(crate) const FILE_SYSTEM_TYPE: &str = "fuse.onefold";

const TABLE: &str = "/proc/self/mountinfo";

/// A mounted pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolMount {
    /// The mount point.
    pub(crate) mountpoint: PathBuf,
    /// The folder or file of the pool that the mount shows: `/` unless it is a bind mount of a part.
    pub(crate) root: PathBuf,
    /// The pool's file or partition, as the daemon named it.
    pub(crate) source: PathBuf,
    /// Its device number, which the kernel reuses once this mount is gone.
    pub(crate) device: DeviceNumber,
    /// User ID of the user who mounted it.
    pub(crate) user: u32,
}

/// Device number of a mounted file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl PoolMount {
    /// Returns whether the mount can be trusted to be one of the pool that it names: root mounted it, this user did, or
    /// the owner of the pool's file.
    pub(crate) fn is_believed(&self) -> bool {
        self.is_believed_by(rustix::process::geteuid().as_raw())
    }

    fn is_believed_by(&self, user: u32) -> bool {
        // A relative source is relative to the working directory of another process, not of this one.
        let owns = || self.source.is_absolute() && fs::metadata(&self.source).is_ok_and(|pool| pool.uid() == self.user);
        self.is_made_by(user) || owns()
    }

    /// Returns whether root or this user mounted it.
    pub(crate) fn is_of_root_or_this_user(&self) -> bool {
        self.is_made_by(rustix::process::geteuid().as_raw())
    }

    /// Returns whether root or `user` mounted it.
    fn is_made_by(&self, user: u32) -> bool {
        self.user == 0 || self.user == user
    }
}

/// Returns the mounted pools, in the order of the mount table, including mounts that only claim to be pools: see
/// [`PoolMount::is_believed`].
pub(crate) fn mounted() -> io::Result<Vec<PoolMount>> {
    Ok(parse(&fs::read(TABLE)?))
}

/// Returns the mount point of the file system that holds `path`, a canonical path. The file system's number changes
/// above it.
pub(crate) fn point_of(path: &Path) -> PathBuf {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let own = device(path);
    path.ancestors().take_while(|ancestor| device(ancestor) == own).last().unwrap_or(path).to_owned()
}

/// Returns the number of an open file's file system, as the kernel itself uses it. `fstat` returns another one if a
/// file system has subvolumes (Btrfs). `None` if its mount is not in this process's table.
pub(crate) fn device_of_file(file: impl AsFd) -> io::Result<Option<DeviceNumber>> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd()))?;
    let Some(id) = about.lines().find_map(|line| line.strip_prefix("mnt_id:")) else { return Ok(None) };
    Ok(device_of_mount(&fs::read(TABLE)?, id.trim()))
}

/// Returns the mount that contains `path`, an absolute path: the innermost and latest one.
pub(crate) fn containing<'a>(mounts: &'a [PoolMount], path: &Path) -> Option<&'a PoolMount> {
    mounts
        .iter()
        .rev()
        .filter(|mount| path.starts_with(&mount.mountpoint))
        .max_by_key(|mount| mount.mountpoint.components().count())
}

/// Returns the mount of the pool at `pool`, a canonical path: the latest one, and of that the original, not a bind
/// mount.
pub(crate) fn of_pool<'a>(mounts: &'a [PoolMount], pool: &Path) -> Option<&'a PoolMount> {
    let latest = mounts.iter().rev().find(|mount| is_of_pool(mount, pool))?;
    mounts.iter().find(|mount| mount.device == latest.device && is_of_pool(mount, pool))
}

/// Returns whether a mount shows the pool at `pool`, a canonical path. A mount that is not trusted does not.
pub(crate) fn is_of_pool(mount: &PoolMount, pool: &Path) -> bool {
    let source = mount.source.as_path();
    let is_named =
        source == pool || source.is_absolute() && fs::canonicalize(source).is_ok_and(|source| source == pool);
    is_named && mount.is_believed()
}

/// Parses `mountinfo` (proc(5)): the mount's number in field 1, the device in field 3, the mount point in field 5;
/// after a lone `-`, type, source and options of the file system.
fn parse(text: &[u8]) -> Vec<PoolMount> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<PoolMount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = parse_device(fields.nth(2)?)?;
    let (root, mountpoint) = (unescape(fields.next()?), fields.next()?);
    let mut after_dash = fields.skip_while(|field| *field != b"-").skip(1);
    if after_dash.next()? != FILE_SYSTEM_TYPE.as_bytes() {
        return None;
    }
    let source = unescape(after_dash.next()?);
    Some(PoolMount { mountpoint: unescape(mountpoint), root, source, device, user: parse_user(after_dash.next()?)? })
}

fn device_of_mount(table: &[u8], id: &str) -> Option<DeviceNumber> {
    table.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        if fields.next()? == id.as_bytes() { parse_device(fields.nth(1)?) } else { None }
    })
}

fn parse_device(field: &[u8]) -> Option<DeviceNumber> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Returns the user who mounted, which the kernel reports for every FUSE mount. FUSE writes the last mention; labels of
/// security modules come before it.
fn parse_user(options: &[u8]) -> Option<u32> {
    std::str::from_utf8(options).ok()?.rsplit(',').find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
}

/// Turns escapes such as `\040` back into bytes, as in fstab(5).
pub(crate) fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = if first == b'\\' { tail.first_chunk::<3>().and_then(octal) } else { None };
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    digits.iter().try_fold(0_u8, |value, &digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &[u8] = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda1 rw\n\
        40 22 0:36 / /mnt/images rw,nosuid shared:9 master:2 - fuse.onefold /data/images.pool rw,user_id=0,group_id=0\n\
        41 22 0:37 / /mnt/with\\040space rw - fuse.onefold /data/b\\134c.pool rw,user_id=1000,group_id=100\n\
        42 22 0:38 / /mnt/other rw - fuse.sshfs host: rw\n\
        43 40 0:39 / /mnt/images/inner rw - fuse.onefold /data/inner.pool rw,user_id=0\n\
        44 22 0:40 / /mnt/nobody rw - fuse.onefold /data/images.pool rw\n\
        45 22 here / /mnt/nowhere rw - fuse.onefold /data/images.pool rw,user_id=0\n\
        broken\n";

    fn mount(mountpoint: &str, source: &str, minor: u32, user: u32) -> PoolMount {
        let device = DeviceNumber { major: 0, minor };
        PoolMount { mountpoint: mountpoint.into(), root: "/".into(), source: source.into(), device, user }
    }

    /// Returns the table with a mount of the file at `source` by `user`.
    fn mounted_by(user: u32, source: &Path) -> Vec<PoolMount> {
        let source = source.to_str().unwrap();
        parse(format!("40 22 0:36 / /mnt/a rw - fuse.onefold {source} rw,user_id={user},group_id=0\n").as_bytes())
    }

    #[test]
    fn mounted_pools_are_found_with_and_without_optional_fields() {
        let expected = vec![
            mount("/mnt/images", "/data/images.pool", 36, 0),
            mount("/mnt/with space", "/data/b\\c.pool", 37, 1000),
            mount("/mnt/images/inner", "/data/inner.pool", 39, 0),
        ];
        assert_eq!(parse(MOUNTINFO), expected);
    }

    #[test]
    fn a_path_belongs_to_the_innermost_mount() {
        let mounts = parse(MOUNTINFO);
        let source = |path: &str| containing(&mounts, Path::new(path)).map(|mount| mount.source.clone());
        assert_eq!(source("/mnt/images/a.raw"), Some("/data/images.pool".into()));
        assert_eq!(source("/mnt/images/inner/x"), Some("/data/inner.pool".into()));
        assert_eq!(source("/mnt/imagesque"), None);
        assert_eq!(source("/mnt"), None);
    }

    /// Seen: `pool umount` of a pool's file reported the bind mount instead.
    #[test]
    fn a_pool_leads_to_its_own_mount_and_not_to_a_bind_mount() {
        let bind = b"50 22 0:36 /sub /mnt/bind rw - fuse.onefold /data/images.pool rw,user_id=0\n";
        let mounts = parse(&[MOUNTINFO, bind].concat());
        assert_eq!(mounts[3].root, Path::new("/sub"));
        assert_eq!(of_pool(&mounts, Path::new("/data/images.pool")), Some(&mounts[0]));
    }

    #[test]
    fn a_pool_leads_to_its_mount() {
        let mounts = parse(MOUNTINFO);
        assert_eq!(of_pool(&mounts, Path::new("/data/images.pool")), Some(&mounts[0]));
        assert_eq!(of_pool(&mounts, Path::new("/data/none.pool")), None);
    }

    /// Regression: if another program had mounted a pool by a relative name, it was taken for the file of that name in
    /// the working directory.
    #[test]
    fn a_relative_source_is_not_looked_for_in_the_working_directory() {
        let mounts = parse(b"40 22 0:36 / /mnt/images rw - fuse.onefold Cargo.toml rw,user_id=0\n");
        assert_eq!(of_pool(&mounts, &fs::canonicalize("Cargo.toml").unwrap()), None);
    }

    /// Regression: with `fusermount3`, any user could mount a file system that claimed to be root's pool. `pool mount`
    /// then took the pool for mounted, and the verbs went to that user's mount.
    #[test]
    fn another_users_mount_is_not_taken_for_the_pool_that_it_names() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pool = fs::canonicalize(file.path()).unwrap();
        let (owner, this) = (fs::metadata(&pool).unwrap().uid(), rustix::process::geteuid().as_raw());
        let foreign = owner.max(this) + 1;
        let table = mounted_by(foreign, &pool);
        assert_eq!((table.len(), of_pool(&table, &pool)), (1, None));
        for user in [0, this, owner] {
            let table = mounted_by(user, &pool);
            assert_eq!(of_pool(&table, &pool), Some(&table[0]), "mounted by {user}");
        }
    }

    #[test]
    fn mounts_of_root_of_the_user_and_of_the_files_owner_are_believed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let owner = fs::metadata(file.path()).unwrap().uid();
        let (user, other) = (owner + 1, owner + 2);
        let by = |mounting: u32| mounted_by(mounting, file.path())[0].is_believed_by(user);
        assert!(by(0) && by(user) && by(owner));
        assert!(!by(other));
        // Nobody owns a missing file, and a relative name has no meaning here.
        assert!(!mounted_by(other, Path::new("/nonexistent/pool"))[0].is_believed_by(user));
        let of_cargo = fs::metadata("Cargo.toml").unwrap().uid();
        assert!(!mounted_by(of_cargo + 1, Path::new("Cargo.toml"))[0].is_believed_by(of_cargo + 2));
    }

    #[test]
    fn who_mounted_is_what_fuse_itself_says() {
        assert_eq!(parse_user(b"rw,user_id=7,group_id=0,allow_other"), Some(7));
        assert_eq!(parse_user(b"rw,context=x,user_id=0,user_id=7,group_id=0"), Some(7));
        assert_eq!(parse_user(b"rw,user_id=,group_id=0"), None);
        assert_eq!(parse_user(b"rw"), None);
    }

    #[test]
    fn a_mounts_number_leads_to_its_device() {
        assert_eq!(device_of_mount(MOUNTINFO, "22"), Some(DeviceNumber { major: 254, minor: 0 }));
        assert_eq!(device_of_mount(MOUNTINFO, "42"), Some(DeviceNumber { major: 0, minor: 38 }));
        assert_eq!(device_of_mount(MOUNTINFO, "2"), None);
        assert_eq!(device_of_mount(MOUNTINFO, "45"), None);
    }

    #[test]
    fn an_open_files_device_is_found() {
        let file = fs::File::open("/proc/self/mountinfo").unwrap();
        let found = device_of_file(&file).unwrap().unwrap();
        assert_eq!(rustix::fs::makedev(found.major, found.minor), file.metadata().unwrap().dev());
    }

    #[test]
    fn broken_escapes_stay_as_they_are() {
        assert_eq!(unescape(b"a\\04"), Path::new("a\\04"));
        assert_eq!(unescape(b"a\\999b"), Path::new("a\\999b"));
        assert_eq!(unescape(b"\\777"), Path::new("\\777"));
    }
}
