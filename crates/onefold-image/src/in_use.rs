//! Finds the user of a file or a block device through `/proc` and `/sys`.
//!
//! For devices these answers only explain a refusal in advance. Only an exclusive open proves that a device is not in
//! use.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_linux::{Backing, LoopDevice};
use rustix::fs::{major, makedev, minor};

/// All mounts that this process sees.
const MOUNTS: &str = "/proc/self/mountinfo";
/// All swap space.
const SWAPS: &str = "/proc/swaps";
/// All block devices that are no partitions.
const BLOCK_DEVICES: &str = "/sys/block";
/// Maximum number of devices on a device that are looked at.
const DEVICES_MAX: usize = 4096;

/// The user of a file or a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileUser {
    /// A file system on it is mounted at this place.
    Mounted(PathBuf),
    /// It is swap space.
    Swap,
    /// Another device is on top of it: a volume, a RAID, a loop device.
    Held(PathBuf),
    /// Somebody holds a lock on it: a virtual machine, a pool, another installation.
    Locked,
    /// Somebody who does not show.
    Unknown,
    /// The kernel does not tell, as this file or device cannot be read.
    Unclear(PathBuf),
}

impl fmt::Display for FileUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileUser::Mounted(place) => write!(f, "it is mounted at `{}`", place.shown()),
            FileUser::Swap => f.write_str("it is in use as swap space"),
            FileUser::Held(device) => write!(f, "the device `{}` lies on it", device.shown()),
            FileUser::Locked => f.write_str("a virtual machine has it open, or another program has locked it"),
            FileUser::Unknown => f.write_str("another program or the kernel uses it exclusively"),
            FileUser::Unclear(path) => {
                write!(f, "it may be in use: `{}` does not tell this user whether it is", path.shown())
            }
        }
    }
}

/// Returns who is known to use an open file or device, or a partition of the device. A loop device counts, whatever the
/// path is by which it knows its file: it neither claims what lies below it nor shows among its holders.
pub(crate) fn holder(metadata: &Metadata) -> Option<FileUser> {
    find_holder(metadata).unwrap_or_else(Some)
}

fn find_holder(metadata: &Metadata) -> Result<Option<FileUser>, FileUser> {
    let (swaps, loops) = (swaps()?, loops()?);
    if !metadata.file_type().is_block_device() {
        if is_swap_file(&swaps, metadata) {
            return Ok(Some(FileUser::Swap));
        }
        return Ok(loops_over(&loops, &[Backing::of(metadata)])?.first().map(held_by));
    }
    let mounts = read(Path::new(MOUNTS))?;
    for part in parts(&folder_of(metadata)?)? {
        if let Some(user) = user_of(&number_of(&part)?, &mounts, &swaps, &|_| true) {
            return Ok(Some(user));
        }
        let holders = names_in(&part.join("holders"))?;
        if let Some(name) = holders.first().or(loops_over(&loops, &backings_of(&part)?)?.first()) {
            return Ok(Some(held_by(name)));
        }
    }
    Ok(None)
}

/// Returns who on this host may write to an open file or device now: a file system that is mounted for writing, or swap
/// space, on it, on one of its partitions, or on a device that lies on one of them.
#[must_use]
pub fn writer_of(metadata: &Metadata) -> Option<FileUser> {
    find_writer(metadata).unwrap_or_else(Some)
}

fn find_writer(metadata: &Metadata) -> Result<Option<FileUser>, FileUser> {
    let (swaps, loops, mounts) = (swaps()?, loops()?, read(Path::new(MOUNTS))?);
    let parts_of = |name: &OsString| parts(&Path::new(BLOCK_DEVICES).join(name));
    let mut waiting = Vec::new();
    if metadata.file_type().is_block_device() {
        waiting = parts(&folder_of(metadata)?)?;
    } else {
        for name in loops_over(&loops, &[Backing::of(metadata)])? {
            waiting.extend(parts_of(&name)?);
        }
    }
    // Devices lie on each other without circles, and seldom more than a few deep.
    for _ in 0..DEVICES_MAX {
        let Some(part) = waiting.pop() else { return Ok(None) };
        if let Some(user) = user_of(&number_of(&part)?, &mounts, &swaps, &is_writable) {
            return Ok(Some(user));
        }
        let above = [names_in(&part.join("holders"))?, loops_over(&loops, &backings_of(&part)?)?].concat();
        for name in above {
            waiting.extend(parts_of(&name)?);
        }
    }
    Ok(Some(FileUser::Unknown))
}

/// Returns a device that lies on an open block device or on one of its partitions, mounted or not: another machine may
/// write through it.
#[must_use]
pub fn device_above(metadata: &Metadata) -> Option<FileUser> {
    find_above(metadata).unwrap_or_else(Some)
}

fn find_above(metadata: &Metadata) -> Result<Option<FileUser>, FileUser> {
    let loops = loops()?;
    for part in parts(&folder_of(metadata)?)? {
        let holders = names_in(&part.join("holders"))?;
        if let Some(name) = holders.first().or(loops_over(&loops, &backings_of(&part)?)?.first()) {
            return Ok(Some(held_by(name)));
        }
    }
    Ok(None)
}

fn held_by(name: &OsString) -> FileUser {
    FileUser::Held(Path::new("/dev").join(name))
}

fn unclear(path: impl Into<PathBuf>) -> FileUser {
    FileUser::Unclear(path.into())
}

/// Reads a table of the kernel. Any user may have made a mount whose name is no UTF-8.
fn read(path: &Path) -> Result<String, FileUser> {
    fs::read(path).map(|table| String::from_utf8_lossy(&table).into_owned()).map_err(|_| unclear(path))
}

/// Returns what the kernel says about swap space; nothing if it has no such thing.
fn swaps() -> Result<String, FileUser> {
    match fs::read_to_string(SWAPS) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(unclear(SWAPS)),
        text => Ok(text.unwrap_or_default()),
    }
}

fn loops() -> Result<Vec<LoopDevice>, FileUser> {
    onefold_linux::loop_devices().map_err(|_| unclear(BLOCK_DEVICES))
}

/// Returns the loop devices that lie on one of these. One that does not tell counts as nobody's only if another is
/// found.
fn loops_over(loops: &[LoopDevice], backings: &[Backing]) -> Result<Vec<OsString>, FileUser> {
    let over = loops.iter().filter(|device| backings.contains(&device.backing));
    let names: Vec<OsString> = over.map(|device| device.name.clone()).collect();
    match loops.iter().find(|device| device.backing == Backing::Unknown) {
        Some(device) if names.is_empty() => Err(unclear(Path::new("/dev").join(&device.name))),
        _ => Ok(names),
    }
}

/// Returns the folder of a device in `/sys`.
fn folder_of(metadata: &Metadata) -> Result<PathBuf, FileUser> {
    let link = PathBuf::from(format!("/sys/dev/block/{}:{}", major(metadata.rdev()), minor(metadata.rdev())));
    fs::canonicalize(&link).map_err(|_| unclear(link))
}

/// Returns what a loop device may lie on that reaches into a device: itself, and the disk that it is a partition of.
fn backings_of(part: &Path) -> Result<Vec<Backing>, FileUser> {
    let disk = part.parent().filter(|_| part.join("partition").exists());
    let numbers = [Some(part), disk].into_iter().flatten().map(number_of);
    numbers.map(|number| number.map(|(major, minor)| Backing::Device(makedev(major, minor)))).collect()
}

/// Returns the mount or the swap space on a device. `counts` decides which mounts count.
fn user_of(number: &(u32, u32), mounts: &str, swaps: &str, counts: &dyn Fn(&str) -> bool) -> Option<FileUser> {
    let mounted = mounts.lines().filter(|line| counts(line)).find_map(|line| mounted_at(line, *number));
    let is_swap = || swaps.lines().skip(1).filter_map(number_of_swap).any(|swap| swap == *number);
    mounted.map(FileUser::Mounted).or_else(|| is_swap().then_some(FileUser::Swap))
}

/// Returns whether the file system in a line of `mountinfo` is mounted for writing. A dash precedes the type, the
/// source and the options of the file system; a mount may have other options.
fn is_writable(line: &str) -> bool {
    let options = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(2));
    options.is_none_or(|options| !options.split(',').any(|option| option == "ro"))
}

/// Returns the folder of a device in `/sys`, and those of its partitions.
fn parts(device: &Path) -> Result<Vec<PathBuf>, FileUser> {
    let partitions = names_in(device)?.into_iter().map(|name| device.join(name));
    let partitions = partitions.filter(|path| path.join("partition").exists());
    Ok(std::iter::once(device.to_owned()).chain(partitions).collect())
}

fn names_in(folder: &Path) -> Result<Vec<OsString>, FileUser> {
    let entries = fs::read_dir(folder).map_err(|_| unclear(folder))?;
    entries.map(|entry| entry.map(|entry| entry.file_name()).map_err(|_| unclear(folder))).collect()
}

/// Returns the number of the device that has this folder in `/sys`.
fn number_of(device: &Path) -> Result<(u32, u32), FileUser> {
    let path = device.join("dev");
    parse_number(&read(&path)?).ok_or(unclear(path))
}

fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns where a device is mounted according to a line of `mountinfo`. Fields: number, parent, device, root, place.
/// Btrfs, and other file systems that may have several devices, have a device number of their own, with 0 as its first
/// part: then the source of the mount names a device.
fn mounted_at(line: &str, device: (u32, u32)) -> Option<PathBuf> {
    let mut fields = line.split(' ');
    let number = parse_number(fields.nth(2)?)?;
    let is_mounted = number == device || number.0 == 0 && source_of(line).and_then(device_at) == Some(device);
    is_mounted.then(|| fields.nth(1).map(PathBuf::from))?
}

/// Returns the source of a mount, if that is a path.
fn source_of(line: &str) -> Option<PathBuf> {
    let source = line.split(" - ").nth(1)?.split(' ').nth(1)?;
    source.starts_with('/').then(|| PathBuf::from(OsStr::from_bytes(&unescape(source))))
}

/// Returns the number of a block device.
fn device_at(path: PathBuf) -> Option<(u32, u32)> {
    let metadata = fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| (major(metadata.rdev()), minor(metadata.rdev())))
}

/// Returns the device number of a line of `/proc/swaps`, if it is about a device.
fn number_of_swap(line: &str) -> Option<(u32, u32)> {
    let metadata = metadata_of_swap(line)?;
    metadata.file_type().is_block_device().then(|| (major(metadata.rdev()), minor(metadata.rdev())))
}

/// Returns whether a file is swap space. What cannot be found by the path that the kernel shows is no danger: the
/// kernel lets nobody write to a swap file.
fn is_swap_file(swaps: &str, file: &Metadata) -> bool {
    let found = swaps.lines().skip(1).filter_map(metadata_of_swap);
    found.into_iter().any(|swap| (swap.dev(), swap.ino()) == (file.dev(), file.ino()))
}

/// Returns the file or device of a line of `/proc/swaps`.
fn metadata_of_swap(line: &str) -> Option<Metadata> {
    fs::metadata(OsStr::from_bytes(&unescape(line.split_ascii_whitespace().next()?))).ok()
}

/// Decodes the form in which the kernel writes spaces and the like in paths: three octal digits behind a backslash.
fn unescape(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(code) if *first == b'\\' => {
                bytes.push(code);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_of_several_devices_names_one_as_its_source() {
        let line = |source: &str| format!("40 22 0:55 / /mnt/c rw shared:1 - btrfs {source} rw,subvol=/");
        assert_eq!(source_of(&line("/dev/loop\\0407")), Some(PathBuf::from("/dev/loop 7")));
        assert_eq!(source_of("22 1 0:20 / /sys rw - sysfs sysfs rw"), None);
        assert_eq!(source_of("odd"), None);
        // Neither a file nor what is missing is a device.
        for source in ["/dev/null", "/none"] {
            assert_eq!(mounted_at(&line(source), (0, 0)), None);
        }
        assert_eq!(mounted_at(&line("/none"), (0, 55)), Some(PathBuf::from("/mnt/c")));
    }

    #[test]
    fn mounts_and_swap_are_found_by_device_and_path() {
        let mounts = "22 1 0:20 / /sys rw - sysfs sysfs rw\n36 22 98:7 /sub /mnt/a rw shared:1 - ext4 /dev/x rw,acl\nodd\n\
            37 22 98:9 / /mnt/b ro - ext4 /dev/y ro,acl\n";
        let swaps = "";
        let user = |number, counts: &dyn Fn(&str) -> bool| user_of(&number, mounts, swaps, counts);
        assert_eq!(user((98, 7), &|_| true), Some(FileUser::Mounted(PathBuf::from("/mnt/a"))));
        assert_eq!(user((98, 7), &is_writable), Some(FileUser::Mounted(PathBuf::from("/mnt/a"))));
        assert_eq!(user((98, 8), &|_| true), None);
        assert_eq!(user((98, 9), &|_| true), Some(FileUser::Mounted(PathBuf::from("/mnt/b"))));
        assert_eq!(user((98, 9), &is_writable), None, "mounted read-only");
    }

    #[test]
    fn a_swap_file_is_known_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let [swap, link, other] = ["a swap", "link", "other"].map(|name| folder.path().join(name));
        fs::write(&swap, "").unwrap();
        fs::write(&other, "").unwrap();
        fs::hard_link(&swap, &link).unwrap();
        let shown = swap.to_str().unwrap().replace(' ', "\\040");
        let swaps = format!("Filename\tType\tSize\n{shown}   file  5 0 -2\n/none file 5 0 -2\n");
        let is_swap = |path: &Path| is_swap_file(&swaps, &fs::metadata(path).unwrap());
        assert!(is_swap(&swap) && is_swap(&link) && !is_swap(&other));
        assert_eq!(unescape("a\\040\\134b\\04"), b"a \\b\\04");
    }

    #[test]
    fn a_loop_device_that_does_not_tell_is_no_answer() {
        let loops = |backings: &[Backing]| -> Vec<LoopDevice> {
            let named = (0..).map(|number| OsString::from(format!("loop{number}")));
            named.zip(backings).map(|(name, backing)| LoopDevice { name, backing: *backing }).collect()
        };
        let (file, disk) = (Backing::File { device: 1, inode: 2 }, Backing::Device(3));
        assert_eq!(loops_over(&loops(&[disk, file]), &[file]), Ok(vec!["loop1".into()]));
        assert_eq!(loops_over(&loops(&[Backing::Unknown, disk]), &[disk]), Ok(vec!["loop1".into()]));
        assert_eq!(loops_over(&loops(&[disk]), &[file]), Ok(vec![]));
        let unknown = loops_over(&loops(&[disk, Backing::Unknown]), &[file]);
        assert_eq!(unknown, Err(FileUser::Unclear("/dev/loop1".into())));
    }

    /// Seen: a user's mount with such a name, and no disk of the host could be captured.
    #[test]
    fn a_table_with_names_that_are_no_text_is_read() {
        let table = tempfile::NamedTempFile::new().unwrap();
        fs::write(table.path(), b"30 1 0:9 / /home/m\xff rw - fuse.x x rw\n31 1 8:1 / /srv rw - ext4 /dev/sda1 rw\n")
            .unwrap();
        let mounts = read(table.path()).unwrap();
        assert_eq!(user_of(&(8, 1), &mounts, "", &|_| true), Some(FileUser::Mounted("/srv".into())));
    }

    #[test]
    fn the_disks_below_mounted_file_systems_are_in_use() {
        let mounts = read(Path::new(MOUNTS)).unwrap();
        for line in mounts.lines() {
            let Some(disk) = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1)) else { continue };
            let Ok(metadata) = fs::metadata(disk) else { continue };
            let number = line.split(' ').nth(2).and_then(parse_number);
            // A file system on several disks has a device number of its own.
            if number == Some((major(metadata.rdev()), minor(metadata.rdev()))) {
                assert!(matches!(holder(&metadata), Some(FileUser::Mounted(_))), "{disk}");
            }
        }
    }

    #[test]
    fn each_use_is_told_in_words() {
        for (holder, words) in [
            (FileUser::Mounted(PathBuf::from("/mnt")), "mounted at `/mnt`"),
            (FileUser::Swap, "swap"),
            (FileUser::Held(PathBuf::from("/dev/dm-0")), "`/dev/dm-0`"),
            (FileUser::Locked, "virtual machine"),
            (FileUser::Unknown, "exclusively"),
            (FileUser::Unclear(PathBuf::from("/dev/loop1")), "`/dev/loop1`"),
        ] {
            assert!(holder.to_string().contains(words), "{holder}");
        }
    }
}
