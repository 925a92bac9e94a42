//! Sessions with `onefold pool`, and with its mount helper.

use std::fs;

use crate::common::{Folder, USAGE};
use crate::transcript::Transcript;

#[test]
fn wrong_mount_options_are_named_as_mount_options() {
    let folder = Folder::new();
    folder.pool();
    fs::create_dir(folder.path("mnt")).unwrap();
    let mut session = Transcript::in_folder(&folder.path(""));
    for options in ["memroy=2G", "memory=much", "memory", "polling=maybe", "noatime=1", "noexec"] {
        let run = session.run_as("mount.fuse.onefold", &format!("images.pool mnt -o rw,{options}"));
        assert_eq!(run.code, USAGE, "{options}");
    }
    session.assert_kept("mount-options");
}

#[test]
fn a_mount_that_cannot_be_says_what_to_do() {
    let folder = Folder::new();
    folder.pool();
    fs::write(folder.path("file"), "").unwrap();
    let mut session = Transcript::in_folder(&folder.path(""));
    session.run("pool mount images.pool mnt");
    session.run("pool mount images.pool file");
    session.run("pool mount missing.pool .");
    session.run("pool umount images.pool");
    session.assert_kept("mount-refusals");
}
