//! Which pools are mounted where, as the kernel tells it in `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// File system type of a mounted pool.
pub(crate) const FILE_SYSTEM_TYPE: &str = "fuse.onefold";

/// A mounted pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Where it is mounted.
    pub(crate) mountpoint: PathBuf,
    /// The pool's file or partition, as the daemon named it.
    pub(crate) source: PathBuf,
}

/// Returns the pools that are mounted, in the order in which they were.
pub(crate) fn mounted() -> std::io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// Returns the mount that `path` lies in, the innermost and latest one. `path` is absolute.
pub(crate) fn containing<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .rev()
        .filter(|mount| path.starts_with(&mount.mountpoint))
        .max_by_key(|mount| mount.mountpoint.components().count())
}

/// Returns the mount of the pool at `pool`, which is a canonical path.
pub(crate) fn of_pool<'a>(mounts: &'a [Mount], pool: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| is_of_pool(mount, pool))
}

/// Tells whether a mount shows the pool at `pool`, which is a canonical path.
pub(crate) fn is_of_pool(mount: &Mount, pool: &Path) -> bool {
    let source = mount.source.as_path();
    // A relative source is relative to some other process's working directory, not to this one's.
    source == pool || source.is_absolute() && fs::canonicalize(source).is_ok_and(|source| source == pool)
}

/// Parses `mountinfo` (proc(5)): mount point in field 5; after a lone `-`, type and source.
fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mountpoint = fields.nth(4)?;
    let mut after_dash = fields.skip_while(|field| *field != b"-").skip(1);
    if after_dash.next()? != FILE_SYSTEM_TYPE.as_bytes() {
        return None;
    }
    Some(Mount { mountpoint: unescape(mountpoint), source: unescape(after_dash.next()?) })
}

/// Turns `\040` and the like back into bytes.
fn unescape(field: &[u8]) -> PathBuf {
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
        40 22 0:36 / /mnt/images rw,nosuid shared:9 master:2 - fuse.onefold /data/images.pool rw,user_id=0\n\
        41 22 0:37 / /mnt/with\\040space rw - fuse.onefold /data/b\\134c.pool rw\n\
        42 22 0:38 / /mnt/other rw - fuse.sshfs host: rw\n\
        43 40 0:39 / /mnt/images/inner rw - fuse.onefold /data/inner.pool rw\n\
        broken\n";

    fn mount(mountpoint: &str, source: &str) -> Mount {
        Mount { mountpoint: mountpoint.into(), source: source.into() }
    }

    #[test]
    fn mounted_pools_are_found_with_and_without_optional_fields() {
        let expected = vec![
            mount("/mnt/images", "/data/images.pool"),
            mount("/mnt/with space", "/data/b\\c.pool"),
            mount("/mnt/images/inner", "/data/inner.pool"),
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

    #[test]
    fn a_pool_leads_to_its_mount() {
        let mounts = parse(MOUNTINFO);
        assert_eq!(of_pool(&mounts, Path::new("/data/images.pool")), Some(&mounts[0]));
        assert_eq!(of_pool(&mounts, Path::new("/data/none.pool")), None);
    }

    /// A pool that another program had mounted by a relative name was taken for the file of that name in the working
    /// directory.
    #[test]
    fn a_relative_source_is_not_looked_for_in_the_working_directory() {
        let mounts = parse(b"40 22 0:36 / /mnt/images rw - fuse.onefold Cargo.toml rw\n");
        assert_eq!(of_pool(&mounts, &fs::canonicalize("Cargo.toml").unwrap()), None);
    }

    #[test]
    fn broken_escapes_stay_as_they_are() {
        assert_eq!(unescape(b"a\\04"), Path::new("a\\04"));
        assert_eq!(unescape(b"a\\999b"), Path::new("a\\999b"));
        assert_eq!(unescape(b"\\777"), Path::new("\\777"));
    }
}
