//! Which block devices have a place for each of their blocks, by what `/sys` says.
//!
//! A volume that allocates its blocks when they are first written (a thin volume) can run out of room under a write.
//! Only a SCSI disk says so in `/sys`. Volumes that are made of other devices may be thin in many ways, so none of them
//! counts, and neither does a device without hardware behind it (loop, zram, a volume of ZFS).

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Tells whether the block device with this `metadata` is a disk or a partition of one that does not say that it
/// allocates its blocks late.
pub(super) fn is_full_disk(metadata: &Metadata) -> bool {
    let number = metadata.rdev();
    let name = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    fs::canonicalize(Path::new("/sys/dev/block").join(name)).is_ok_and(|device| is_full_disk_at(&device))
}

/// As [`is_full_disk`], for the folder that describes the device.
fn is_full_disk_at(device: &Path) -> bool {
    // A partition's folder lies in that of its disk.
    let is_partition = device.join("partition").exists();
    let disk: PathBuf = if is_partition { device.join("..") } else { device.to_owned() };
    disk.join("device").exists() && is_empty(&disk.join("slaves")) && !is_thin_scsi_disk(&disk)
}

/// Tells whether a folder is known to have no entry.
fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Tells whether a SCSI disk says that it allocates its blocks late, or does not say whether it does.
fn is_thin_scsi_disk(disk: &Path) -> bool {
    let Ok(entries) = fs::read_dir(disk.join("device/scsi_disk")) else { return false };
    let is_full = |entry: fs::DirEntry| {
        fs::read_to_string(entry.path().join("thin_provisioning")).is_ok_and(|answer| answer.trim() == "0")
    };
    !entries.into_iter().all(|entry| entry.is_ok_and(is_full))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the folder of a disk, as `/sys` has it.
    fn disk(sys: &Path, name: &str) -> PathBuf {
        let disk = sys.join(name);
        for part in ["device", "slaves"] {
            fs::create_dir_all(disk.join(part)).unwrap();
        }
        disk
    }

    #[test]
    fn a_disk_and_its_partitions_have_their_room_and_what_is_made_of_others_may_not() {
        let sys = tempfile::tempdir().unwrap();
        let plain = disk(sys.path(), "vda");
        assert!(is_full_disk_at(&plain));
        let partition = plain.join("vda1");
        fs::create_dir(&partition).unwrap();
        assert!(!is_full_disk_at(&partition), "nothing says that it is a partition");
        fs::write(partition.join("partition"), "1\n").unwrap();
        assert!(is_full_disk_at(&partition));
        fs::create_dir(plain.join("slaves/vdb")).unwrap();
        assert!(!is_full_disk_at(&plain) && !is_full_disk_at(&partition), "made of another device");
        let virtual_disk = disk(sys.path(), "zram0");
        fs::remove_dir(virtual_disk.join("device")).unwrap();
        assert!(!is_full_disk_at(&virtual_disk) && !is_full_disk_at(&sys.path().join("none")));
    }

    #[test]
    fn a_scsi_disk_says_itself_whether_it_is_thin() {
        let sys = tempfile::tempdir().unwrap();
        let disk = disk(sys.path(), "sda");
        let said = disk.join("device/scsi_disk/0:0:0:0");
        fs::create_dir_all(&said).unwrap();
        assert!(!is_full_disk_at(&disk), "it has not said anything");
        for (answer, is_full) in [("1\n", false), ("0\n", true), ("", false)] {
            fs::write(said.join("thin_provisioning"), answer).unwrap();
            assert_eq!(is_full_disk_at(&disk), is_full, "{answer:?}");
        }
    }

    #[test]
    fn a_character_device_is_no_disk() {
        assert!(!is_full_disk(&fs::metadata("/dev/null").unwrap()));
    }
}
