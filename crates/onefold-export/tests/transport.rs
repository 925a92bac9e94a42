//! Rare requests of the kernel over `/dev/fuse`: extreme times, nameless files, birth times, whiteouts, data that it
//! has not handed over.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use common::{TestMount, assert_clean, can_mount};
use rustix::fs::{AtFlags, CWD, RenameFlags, SeekFrom, StatxFlags, Timespec, Timestamps};
use rustix::io::Errno;

fn set_times(path: &Path, seconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: 999_999_999 };
    rustix::fs::utimensat(CWD, path, &Timestamps { last_access: time, last_modification: time }, AtFlags::empty())
        .unwrap();
}

fn unnamed(directory: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o640).open(directory).unwrap()
}

#[test]
fn the_least_and_the_greatest_times_are_kept_and_the_daemon_lives() {
    // Seen: `touch -d` with a second of -2^63, which any user may request, made the FUSE library panic while it decoded
    // the request. The thread ended, the request was never answered, and the mount hung.
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    mount.create("file");
    for seconds in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
        set_times(&mount.path("file"), seconds);
        let found = fs::metadata(mount.path("file")).unwrap();
        assert_eq!((found.atime(), found.mtime()), (seconds, seconds));
        // The kernel drops the fraction of the second at either end.
        let fraction = if seconds == i64::MIN || seconds == i64::MAX { 0 } else { 999_999_999 };
        assert_eq!((found.atime_nsec(), found.mtime_nsec()), (fraction, fraction), "at {seconds}");
    }
    let mount = mount.remount();
    assert_eq!(fs::metadata(mount.path("file")).unwrap().mtime(), i64::MAX);
    mount.end();
}

#[test]
fn a_file_without_a_name_gets_one_or_goes_with_its_last_opening() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let mut kept = unnamed(&mount.root());
    let mut lost = unnamed(&mount.root());
    for file in [&mut kept, &mut lost] {
        file.write_all(b"content").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
    }
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 0);
    assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
    let ours = format!("/proc/self/fd/{}", kept.as_raw_fd());
    rustix::fs::linkat(CWD, ours, CWD, mount.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(kept.metadata().unwrap().nlink(), 1);
    drop((kept, lost));
    let mount = mount.remount();
    assert_eq!(fs::read(mount.path("named")).unwrap(), b"content");
    mount.end();
}

#[test]
fn a_file_without_a_name_that_is_exclusive_never_gets_one() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let flags = libc::O_TMPFILE | libc::O_EXCL;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(mount.root()).unwrap();
    let ours = format!("/proc/self/fd/{}", file.as_raw_fd());
    let linked = rustix::fs::linkat(CWD, ours, CWD, mount.path("named"), AtFlags::SYMLINK_FOLLOW);
    assert_eq!(linked, Err(Errno::NOENT));
    drop(file);
    mount.end();
}

#[test]
fn a_file_tells_when_it_was_made() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    mount.create("file");
    let statx = || {
        let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        rustix::fs::statx(CWD, mount.path("file"), AtFlags::empty(), flags).unwrap()
    };
    let before = statx();
    assert_ne!(before.stx_mask & StatxFlags::BTIME.bits(), 0, "the kernel is 6.6 or later");
    set_times(&mount.path("file"), 5);
    let after = statx();
    assert_eq!((after.stx_btime.tv_sec, after.stx_btime.tv_nsec), (before.stx_btime.tv_sec, before.stx_btime.tv_nsec));
    assert_eq!(after.stx_mtime.tv_sec, 5);
    assert_eq!((after.stx_ino, after.stx_nlink, after.stx_size), (before.stx_ino, 1, 0));
    assert_ne!(before.stx_btime.tv_sec, 5);
    mount.end();
}

#[test]
fn a_rename_may_leave_a_whiteout() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("file"), b"moved").unwrap();
    fs::create_dir(mount.path("below")).unwrap();
    let rename =
        |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, mount.path(from), CWD, mount.path(to), flags);
    rename("file", "below/file", RenameFlags::WHITEOUT).unwrap();
    assert_eq!(fs::read(mount.path("below/file")).unwrap(), b"moved");
    let whiteout = fs::symlink_metadata(mount.path("file")).unwrap();
    assert!(whiteout.file_type().is_char_device());
    assert_eq!((whiteout.rdev(), whiteout.nlink()), (0, 1));
    assert_eq!(rename("below", "other", RenameFlags::WHITEOUT | RenameFlags::EXCHANGE), Err(Errno::INVAL));
    mount.end();
}

#[test]
fn a_truncate_keeps_set_user_id_only_for_those_who_may_set_it() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let program = mount.create("program");
    let mode = || program.metadata().unwrap().permissions().mode() & 0o7777;
    let set = |mode| program.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
    program.write_all_at(b"code", 0).unwrap();
    set(0o6755);
    program.set_len(2).unwrap();
    assert_eq!(mode(), 0o6755, "root has CAP_FSETID");
    // Root without CAP_FSETID: the capability counts, not the user.
    let path = mount.path("program");
    let arguments = ["--bounding-set", "-fsetid", "--inh-caps", "-fsetid", "truncate", "-s", "1"];
    let arguments: Vec<_> = arguments.iter().map(std::ffi::OsStr::new).chain([path.as_os_str()]).collect();
    common::run("setpriv", &arguments);
    assert_eq!(mode(), 0o755);
    drop(program);
    mount.end();
}

#[test]
fn an_unlinked_file_that_the_daemon_never_saw_closed_is_gone_after_the_next_start() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("named"), vec![7; 1 << 20]).unwrap();
    let mut open = File::open(mount.path("named")).unwrap();
    let nameless = unnamed(&mount.root());
    nameless.set_len(1 << 20).unwrap();
    fs::remove_file(mount.path("named")).unwrap();
    let mut content = Vec::new();
    open.read_to_end(&mut content).unwrap();
    assert_eq!(content, vec![7; 1 << 20], "it lives while it is open");
    // The daemon ends without waiting for processes that have files open.
    mount.stopper.stop().unwrap();
    let (device, ended) = mount.wait();
    ended.unwrap();
    drop((open, nameless));
    assert_clean(&device);
    let mount = TestMount::with(device, |_| ());
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 0);
    mount.end();
}

#[test]
fn data_that_the_kernel_still_holds_is_no_hole() {
    // Seen: with the writeback cache, SEEK_HOLE at the end of newly written data returned ENXIO, and SEEK_DATA saw a
    // hole: the kernel had not handed the data over. A copy that skips holes would have lost it.
    if !can_mount() {
        return;
    }
    let mount = TestMount::with(common::new_pool(), |options| options.writeback_cache = true);
    let file = mount.create("file");
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"not yet handed over", 5000).unwrap();
    file.write_all_at(b"end", (2 << 20) - 3).unwrap();
    let seek = |position| rustix::fs::seek(&file, position).unwrap();
    assert!(seek(SeekFrom::Data(0)) <= 5000);
    assert!(seek(SeekFrom::Data(1 << 20)) < 2 << 20);
    assert_eq!(seek(SeekFrom::Hole((2 << 20) - 1)), 2 << 20);
    drop(file);
    mount.end();
}
