//! A new file system on a file, mounted while a test runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Folder, has, run, text};

/// Size of the file below. `mkfs.xfs` refuses less than 300 MiB.
const BYTES: u64 = 512 << 20;

/// A mounted file system. It is unmounted when this is dropped.
pub(crate) struct FileSystem {
    mount_point: PathBuf,
}

impl FileSystem {
    /// Makes a file system of `kind` and mounts it at `name` in a folder. Returns `None`, and says so, where that is
    /// not possible.
    pub(crate) fn new(folder: &Folder, kind: &str, name: &str) -> Option<FileSystem> {
        let make = format!("mkfs.{kind}");
        if !has(&make, if kind == "xfs" { "xfsprogs" } else { "btrfs-progs" }) {
            return None;
        }
        if !run("id", &["-u"]).trim().eq("0") {
            eprintln!("SKIPPED: only root can mount");
            return None;
        }
        let (device, mount_point) = (folder.path(&format!("{name}.{kind}")), folder.path(name));
        File::create(&device).unwrap().set_len(BYTES).unwrap();
        run(&make, &["-q", text(&device)]);
        fs::create_dir(&mount_point).unwrap();
        let mounted = Command::new("mount").args(["-o", "loop", text(&device), text(&mount_point)]).output().unwrap();
        if !mounted.status.success() {
            let why = String::from_utf8_lossy(&mounted.stderr);
            eprintln!("SKIPPED: no {kind} can be mounted here: {}", why.trim());
            return None;
        }
        Some(FileSystem { mount_point })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.mount_point
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount_point).status();
    }
}
