//! Finds the user of a file or a block device through `/proc` and `/sys`.
//!
//! For devices these answers only explain a refusal in advance. Only an exclusive open proves that a device is not in
//! use.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use onefold_block::Show;
use rustix::fs::{major, minor};

/// All mounts that this process sees.
const MOUNTS: &str = "/proc/self/mountinfo";
/// Maximum number of devices on top of a device that are examined.
const DEVICES_MAX: usize = 4096;

/// The user of a file or a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InUse {
    /// A file system on it is mounted at this place.
    Mounted(PathBuf),
    /// It is swap space.
    Swap,
    /// Another device is on top of it: a volume, a RAID, a loop device.
    Held(PathBuf),
    /// An unknown user.
    Unknown,
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InUse::Mounted(place) => write!(f, "it is mounted at `{}`", place.shown()),
            InUse::Swap => f.write_str("it is in use as swap space"),
            InUse::Held(device) => write!(f, "the device `{}` lies on it", device.shown()),
            InUse::Unknown => f.write_str("another program or the kernel uses it exclusively"),
        }
    }
}

/// Returns the known user of a file or device, or of a partition of the device.
pub(crate) fn holder(path: &Path, metadata: &Metadata) -> Option<InUse> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if !metadata.file_type().is_block_device() {
        let real = fs::canonicalize(path).ok()?;
        if is_swap_file(&swaps, &real) {
            return Some(InUse::Swap);
        }
        return loop_over(Path::new("/sys/block"), &real).map(InUse::Held);
    }
    let number = (major(metadata.rdev()), minor(metadata.rdev()));
    let device = fs::canonicalize(format!("/sys/dev/block/{}:{}", number.0, number.1)).ok()?;
    let mounts = fs::read_to_string(MOUNTS).unwrap_or_default();
    parts(&device).iter().find_map(|part| {
        let user = user_of(&number_of(part)?, &mounts, &swaps, &|_| true);
        user.or_else(|| names_in(&part.join("holders")).next().map(|name| InUse::Held(Path::new("/dev").join(name))))
    })
}

/// Returns a user on this host that may write to a file or device now: a file system that is mounted for writing, or
/// swap space. It is on the device itself, on one of its partitions, or on a device on top of these.
#[must_use]
pub fn writer_of(path: &Path, metadata: &Metadata) -> Option<InUse> {
    let device = match metadata.file_type().is_block_device() {
        true => {
            fs::canonicalize(format!("/sys/dev/block/{}:{}", major(metadata.rdev()), minor(metadata.rdev()))).ok()?
        }
        false => {
            let real = fs::canonicalize(path).ok()?;
            let name = loop_over(Path::new("/sys/block"), &real)?;
            Path::new("/sys/block").join(name.file_name()?)
        }
    };
    let mounts = fs::read_to_string(MOUNTS).unwrap_or_default();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut waiting = parts(&device);
    // Devices are stacked without circles, and seldom more than a few deep.
    for _ in 0..DEVICES_MAX {
        let part = waiting.pop()?;
        if let Some(user) = number_of(&part).and_then(|number| user_of(&number, &mounts, &swaps, &is_writable)) {
            return Some(user);
        }
        waiting.extend(names_in(&part.join("holders")).flat_map(|name| parts(&Path::new("/sys/block").join(name))));
    }
    Some(InUse::Unknown)
}

/// Returns the mount or the swap space on a device. `counts` decides which mounts count.
fn user_of(number: &(u32, u32), mounts: &str, swaps: &str, counts: &dyn Fn(&str) -> bool) -> Option<InUse> {
    let mounted = mounts.lines().filter(|line| counts(line)).find_map(|line| mounted_at(line, *number));
    let is_swap = || swaps.lines().skip(1).filter_map(number_of_swap).any(|swap| swap == *number);
    mounted.map(InUse::Mounted).or_else(|| is_swap().then_some(InUse::Swap))
}

/// Returns whether the file system in a line of `mountinfo` is mounted for writing. A dash precedes the type, the
/// source and the options of the file system; a mount may have other options.
fn is_writable(line: &str) -> bool {
    let options = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(2));
    options.is_none_or(|options| !options.split(',').any(|option| option == "ro"))
}

/// Returns the folder of a device in `/sys`, and those of its partitions.
fn parts(device: &Path) -> Vec<PathBuf> {
    let mut parts = vec![device.to_owned()];
    let entries = fs::read_dir(device).into_iter().flatten().flatten();
    parts.extend(entries.map(|entry| entry.path()).filter(|path| path.join("partition").exists()));
    parts
}

fn names_in(folder: &Path) -> impl Iterator<Item = OsString> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name())
}

/// Returns the number of the device that has this folder in `/sys`.
fn number_of(device: &Path) -> Option<(u32, u32)> {
    parse_number(&fs::read_to_string(device.join("dev")).ok()?)
}

fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns where a device is mounted according to a line of `mountinfo`. Fields: number, parent, device, root, place.
fn mounted_at(line: &str, device: (u32, u32)) -> Option<PathBuf> {
    let mut fields = line.split(' ');
    (parse_number(fields.nth(2)?)? == device).then(|| fields.nth(1).map(PathBuf::from))?
}

/// Returns the device number of a line of `/proc/swaps`, if it is about a device.
fn number_of_swap(line: &str) -> Option<(u32, u32)> {
    let metadata = fs::metadata(line.split_ascii_whitespace().next()?).ok()?;
    metadata.file_type().is_block_device().then(|| (major(metadata.rdev()), minor(metadata.rdev())))
}

fn is_swap_file(swaps: &str, path: &Path) -> bool {
    swaps.lines().skip(1).any(|line| line.split_ascii_whitespace().next().is_some_and(|name| Path::new(name) == path))
}

/// Returns the loop device whose backing file is at `path`.
fn loop_over(devices: &Path, path: &Path) -> Option<PathBuf> {
    fs::read_dir(devices).ok()?.flatten().find_map(|entry| {
        use std::os::unix::ffi::OsStrExt;
        let backing = fs::read(entry.path().join("loop/backing_file")).ok()?;
        let backing = backing.strip_suffix(b"\n").unwrap_or(&backing);
        (backing == path.as_os_str().as_bytes()).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_and_swap_are_found_by_device_and_path() {
        let mounts = "22 1 0:20 / /sys rw - sysfs sysfs rw\n36 22 98:7 /sub /mnt/a rw shared:1 - ext4 /dev/x rw,acl\nodd\n\
            37 22 98:9 / /mnt/b ro - ext4 /dev/y ro,acl\n";
        let swaps = "";
        let user = |number, counts: &dyn Fn(&str) -> bool| user_of(&number, mounts, swaps, counts);
        assert_eq!(user((98, 7), &|_| true), Some(InUse::Mounted(PathBuf::from("/mnt/a"))));
        assert_eq!(user((98, 7), &is_writable), Some(InUse::Mounted(PathBuf::from("/mnt/a"))));
        assert_eq!(user((98, 8), &|_| true), None);
        assert_eq!(user((98, 9), &|_| true), Some(InUse::Mounted(PathBuf::from("/mnt/b"))));
        assert_eq!(user((98, 9), &is_writable), None, "mounted read-only");
        let swaps = "Filename\tType\tSize\n/var/swap   file  5 0 -2\n";
        assert!(is_swap_file(swaps, Path::new("/var/swap")));
        assert!(!is_swap_file(swaps, Path::new("/var/swa")) && !is_swap_file(swaps, Path::new("Filename")));
    }

    #[test]
    fn a_file_below_a_loop_device_is_held() {
        let sys = tempfile::tempdir().unwrap();
        for name in ["loop0/loop", "loop1/loop", "vda"] {
            fs::create_dir_all(sys.path().join(name)).unwrap();
        }
        fs::write(sys.path().join("loop1/loop/backing_file"), "/srv/a b.raw\n").unwrap();
        assert_eq!(loop_over(sys.path(), Path::new("/srv/a b.raw")), Some(PathBuf::from("/dev/loop1")));
        assert_eq!(loop_over(sys.path(), Path::new("/srv/a")), None);
    }

    #[test]
    fn the_disks_below_mounted_file_systems_are_in_use() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        for line in mounts.lines() {
            let Some(disk) = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1)) else { continue };
            let Ok(metadata) = fs::metadata(disk) else { continue };
            let number = line.split(' ').nth(2).and_then(parse_number);
            // A file system on several disks has a device number of its own.
            if number == Some((major(metadata.rdev()), minor(metadata.rdev()))) {
                assert!(matches!(holder(Path::new(disk), &metadata), Some(InUse::Mounted(_))), "{disk}");
            }
        }
    }

    #[test]
    fn each_use_is_told_in_words() {
        for (holder, words) in [
            (InUse::Mounted(PathBuf::from("/mnt")), "mounted at `/mnt`"),
            (InUse::Swap, "swap"),
            (InUse::Held(PathBuf::from("/dev/dm-0")), "`/dev/dm-0`"),
            (InUse::Unknown, "exclusively"),
        ] {
            assert!(holder.to_string().contains(words), "{holder}");
        }
    }
}
