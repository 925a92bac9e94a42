//! Loop devices: which file or device each of them makes another device of.
//!
//! The kernel shows the path of a backing file, but a hard link, another mount or another mount namespace has another
//! path. So a backing file is known by its device and inode number here.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, makedev, open};

use crate::sys;

/// Where the kernel lists block devices.
const BLOCK_DEVICES: &str = "/sys/block";
/// Where their nodes are.
const NODES: &str = "/dev";

/// The file or device below a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A file, with its device and inode number as `stat` returns them.
    File {
        /// Number of the file system.
        device: u64,
        /// Number of the file.
        inode: u64,
    },
    /// A block device with this number.
    Device(u64),
    /// The kernel does not tell this user.
    Unknown,
}

impl Backing {
    /// Returns what a loop device over an open file or block device would lie on.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Backing {
        match metadata.file_type().is_block_device() {
            true => Backing::Device(metadata.rdev()),
            false => Backing::File { device: metadata.dev(), inode: metadata.ino() },
        }
    }
}

/// A loop device that is attached to something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    /// Its name in `/dev` and `/sys/block`.
    pub name: OsString,
    /// The file or device below it.
    pub backing: Backing,
}

/// Returns all attached loop devices.
///
/// # Errors
/// If the kernel does not list its block devices.
pub fn loop_devices() -> io::Result<Vec<LoopDevice>> {
    devices_in(Path::new(BLOCK_DEVICES), Path::new(NODES))
}

fn devices_in(devices: &Path, nodes: &Path) -> io::Result<Vec<LoopDevice>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(devices)? {
        let entry = entry?;
        // Only attached loop devices have this file.
        let path = match fs::read(entry.path().join("loop/backing_file")) {
            Ok(text) => PathBuf::from(OsStr::from_bytes(text.strip_suffix(b"\n").unwrap_or(&text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // Also the answer for a device that is detached at this moment.
            Err(_) if !entry.path().join("loop").exists() => continue,
            Err(_) => PathBuf::new(),
        };
        let name = entry.file_name();
        let backing = ask(&entry.path(), &nodes.join(&name))
            .or_else(|| fs::metadata(&path).ok().map(|metadata| Backing::of(&metadata)))
            .unwrap_or(Backing::Unknown);
        found.push(LoopDevice { name, backing });
    }
    Ok(found)
}

/// Asks a device itself, which needs the right to read it. `folder` is the device's in `/sys`.
fn ask(folder: &Path, node: &Path) -> Option<Backing> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    let number = makedev(major.parse().ok()?, minor.parse().ok()?);
    let device = open(node, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let device = fs::File::from(device);
    let metadata = device.metadata().ok()?;
    if !metadata.file_type().is_block_device() || metadata.rdev() != number {
        return None;
    }
    let status = sys::loops::status(&device).ok()?;
    // Some kernels give the file system's number as that of the device below, if a file lies there.
    Some(match status.device_below {
        0 => Backing::File { device: status.device, inode: status.inode },
        below if below == status.device => Backing::File { device: status.device, inode: status.inode },
        below => Backing::Device(below),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backing_file_is_known_by_its_number_whatever_its_path() {
        let (devices, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["loop0/loop", "loop1/loop", "loop2/loop", "vda"] {
            fs::create_dir_all(devices.path().join(name)).unwrap();
        }
        let file = files.path().join("a b.raw");
        fs::write(&file, "").unwrap();
        fs::hard_link(&file, files.path().join("link")).unwrap();
        let tell = |name: &str, path: &Path| {
            let text = [path.as_os_str().as_bytes(), b"\n"].concat();
            fs::write(devices.path().join(name).join("loop/backing_file"), text).unwrap();
        };
        tell("loop1", &file);
        tell("loop2", Path::new("/none/gone (deleted)"));
        let mut found = devices_in(devices.path(), files.path()).unwrap();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let of_link = Backing::of(&fs::metadata(files.path().join("link")).unwrap());
        assert!(matches!(of_link, Backing::File { .. }));
        assert_eq!(found[0], LoopDevice { name: "loop1".into(), backing: of_link });
        assert_eq!(found[1], LoopDevice { name: "loop2".into(), backing: Backing::Unknown });
        assert_eq!(found.len(), 2);
        assert!(devices_in(Path::new("/none"), files.path()).is_err());
    }

    #[test]
    fn the_devices_of_this_host_agree_with_their_paths() {
        for device in loop_devices().unwrap() {
            let path = fs::read(Path::new(BLOCK_DEVICES).join(&device.name).join("loop/backing_file"));
            let Ok(path) = path else { continue };
            let path = OsStr::from_bytes(path.strip_suffix(b"\n").unwrap_or(&path)).to_owned();
            // Another path may lead to something else, or nowhere, in another mount namespace.
            if let (Ok(metadata), Backing::File { inode, .. }) = (fs::metadata(&path), device.backing) {
                assert_eq!(inode, metadata.ino(), "{path:?}");
            }
        }
    }
}
