//! Names, attributes and permissions of a really mounted pool.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

use common::{TestMount, can_mount, new_pool, run};
use onefold_export::AccessTimes;
use rustix::fs::{AtFlags, CWD, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap()
}

#[test]
fn files_directories_and_links_survive_a_remount() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("dir/file"), b"content").unwrap();
    fs::hard_link(mount.path("dir/file"), mount.path("second")).unwrap();
    std::os::unix::fs::symlink("dir/file", mount.path("link")).unwrap();
    let number = fs::metadata(mount.path("second")).unwrap().ino();

    let mount = mount.remount();
    assert_eq!(fs::read(mount.path("link")).unwrap(), b"content");
    assert_eq!(fs::read_link(mount.path("link")).unwrap().to_str(), Some("dir/file"));
    let second = fs::metadata(mount.path("second")).unwrap();
    assert_eq!((second.nlink(), second.ino()), (2, number), "numbers are stable");
    fs::remove_file(mount.path("dir/file")).unwrap();
    assert_eq!(fs::metadata(mount.path("second")).unwrap().nlink(), 1);
    assert_eq!(errno(&fs::remove_dir(mount.path("second")).unwrap_err()), Errno::NOTDIR);
    fs::write(mount.path("dir/other"), b"").unwrap();
    assert_eq!(errno(&fs::remove_dir(mount.path("dir")).unwrap_err()), Errno::NOTEMPTY);
    mount.end();
}

#[test]
fn a_directory_of_thousands_lists_each_name_once() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::create_dir(mount.path("many")).unwrap();
    let names: BTreeSet<String> = (0..3000).map(|number| format!("file-{number}")).collect();
    for name in &names {
        File::create(mount.path("many").join(name)).unwrap();
    }
    let mount = mount.remount();
    let list = || fs::read_dir(mount.path("many")).unwrap().map(|entry| entry.unwrap());
    let listed: Vec<String> = list().map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert_eq!(listed.len(), names.len());
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
    // With attributes, and while the directory shrinks during the listing.
    for (index, entry) in list().enumerate() {
        assert!(entry.metadata().unwrap().is_file());
        if index % 2 == 0 {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    assert_eq!(list().count(), names.len() / 2);
    mount.end();
}

#[test]
fn rename_replaces_refuses_and_exchanges() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("a"), b"a").unwrap();
    fs::write(mount.path("b"), b"b").unwrap();
    let rename = |flags| rustix::fs::renameat_with(CWD, mount.path("a"), CWD, mount.path("b"), flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(
        (fs::read(mount.path("a")).unwrap(), fs::read(mount.path("b")).unwrap()),
        (b"b".to_vec(), b"a".to_vec())
    );
    rename(RenameFlags::empty()).unwrap();
    assert!(!mount.path("a").exists());
    assert_eq!(fs::read(mount.path("b")).unwrap(), b"b");
    mount.end();
}

#[test]
fn names_that_are_too_long_are_refused() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    File::create(mount.path("x".repeat(255))).unwrap();
    let error = File::create(mount.path("x".repeat(256))).unwrap_err();
    assert_eq!(errno(&error), Errno::NAMETOOLONG);
    mount.end();
}

#[test]
fn special_files_keep_their_kind_and_number() {
    if !can_mount() {
        return;
    }
    use rustix::fs::{FileType, Mode, mknodat};
    let mount = TestMount::new();
    let device = rustix::fs::makedev(8, 300);
    let make = |name, kind| mknodat(CWD, mount.path(name), kind, Mode::from(0o600), device).unwrap();
    make("fifo", FileType::Fifo);
    make("block", FileType::BlockDevice);
    make("char", FileType::CharacterDevice);
    let mount = mount.remount();
    let kind = |name| fs::symlink_metadata(mount.path(name)).unwrap();
    assert!(kind("fifo").file_type().is_fifo());
    assert!(kind("block").file_type().is_block_device());
    assert!(kind("char").file_type().is_char_device());
    assert_eq!(kind("block").rdev(), device);
    mount.end();
}

#[test]
fn times_keep_their_nanoseconds_also_before_1970() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let file = mount.create("file");
    let times = Timestamps {
        last_access: Timespec { tv_sec: 1_700_000_000, tv_nsec: 123_456_789 },
        last_modification: Timespec { tv_sec: -2, tv_nsec: 800_000_000 },
    };
    rustix::fs::futimens(&file, &times).unwrap();
    drop(file);
    let mount = mount.remount();
    let found = fs::metadata(mount.path("file")).unwrap();
    assert_eq!((found.atime(), found.atime_nsec()), (1_700_000_000, 123_456_789));
    assert_eq!((found.mtime(), found.mtime_nsec()), (-2, 800_000_000));
    mount.end();
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let mut file = mount.create("file");
    std::io::Write::write_all(&mut file, b"still here").unwrap();
    fs::remove_file(mount.path("file")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let mut content = [0; 10];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut content, 0).unwrap();
    assert_eq!(&content, b"still here");
    drop(file);
    mount.end();
}

#[test]
fn extended_attributes_tell_their_size_and_refuse_too_little_room() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    mount.create("file");
    let path = mount.path("file");
    let set = |flags| rustix::fs::setxattr(&path, "user.note", b"0123456789", flags);
    assert_eq!(set(XattrFlags::REPLACE), Err(Errno::NODATA));
    set(XattrFlags::CREATE).unwrap();
    assert_eq!(set(XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(common::probe::xattr_bytes(&path, "user.note").unwrap(), 10);
    assert_eq!(rustix::fs::getxattr(&path, "user.note", &mut [0; 9]), Err(Errno::RANGE));
    let mut names = [0; 64];
    let bytes = rustix::fs::listxattr(&path, &mut names).unwrap();
    assert_eq!(&names[..bytes], b"user.note\0");
    rustix::fs::removexattr(&path, "user.note").unwrap();
    let gone = common::probe::xattr_bytes(&path, "user.note").unwrap_err();
    assert_eq!(errno(&gone), Errno::NODATA);
    mount.end();
}

#[test]
fn acls_are_kept_and_a_default_acl_stands_in_for_the_umask() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::create_dir(mount.path("dir")).unwrap();
    let dir = mount.path("dir");
    run("setfacl", &["-m".as_ref(), "u:1234:rwx,d:u:1234:rw,d:g::rx,d:o::-".as_ref(), dir.as_os_str()]);
    let made = dir.join("made");
    // The shell's umask would remove all permissions of the group.
    run("sh", &["-c".as_ref(), format!("umask 077; touch {}", made.to_str().unwrap()).as_ref()]);
    let acl = run("getfacl", &["-nc".as_ref(), made.as_os_str()]);
    assert!(acl.contains("user:1234:rw-"), "{acl}");
    let plain = mount.path("plain");
    run("sh", &["-c".as_ref(), format!("umask 027; touch {}", plain.to_str().unwrap()).as_ref()]);
    assert_eq!(fs::metadata(&plain).unwrap().permissions().mode() & 0o777, 0o640);
    // The mask of the ACL is what stat shows as the group's permissions.
    run("setfacl", &["-m".as_ref(), "u:1234:rwx".as_ref(), plain.as_os_str()]);
    assert_eq!(fs::metadata(&plain).unwrap().permissions().mode() & 0o777, 0o670);
    let mount = mount.remount();
    let acl = run("getfacl", &["-nc".as_ref(), mount.path("plain").as_os_str()]);
    assert!(acl.contains("user:1234:rwx"), "{acl}");
    mount.end();
}

#[test]
fn permissions_are_checked_and_a_set_group_directory_gives_its_group() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("secret"), b"x").unwrap();
    fs::set_permissions(mount.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(mount.path("shared")).unwrap();
    std::os::unix::fs::chown(mount.path("shared"), None, Some(4321)).unwrap();
    fs::set_permissions(mount.path("shared"), fs::Permissions::from_mode(0o2777)).unwrap();

    let script = format!(
        "cat {0}/secret 2>/dev/null && exit 1; touch {0}/shared/mine && mkdir {0}/shared/sub",
        mount.root().to_str().unwrap()
    );
    let nobody = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script])
        .status()
        .unwrap();
    assert!(nobody.success());
    let mine = fs::metadata(mount.path("shared/mine")).unwrap();
    assert_eq!((mine.uid(), mine.gid()), (65534, 4321));
    let sub = fs::metadata(mount.path("shared/sub")).unwrap();
    assert_eq!(sub.gid(), 4321);
    assert_eq!(sub.mode() & 0o2000, 0o2000, "and hands the bit on");
    mount.end();
}

#[test]
fn a_program_loses_its_privileges_when_others_write_to_it() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    for (number, change) in
        ["printf x >> F", "dd if=/dev/zero of=F bs=4096 count=1 oflag=direct conv=notrunc", "truncate -s 10 F"]
            .iter()
            .enumerate()
    {
        let path = mount.path(format!("program-{number}"));
        fs::write(&path, vec![1; 8192]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        let change = change.replace('F', path.to_str().unwrap());
        let status = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &format!("{change} 2>/dev/null")])
            .status()
            .unwrap();
        assert!(status.success(), "{change}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777, "{change}");
    }
    // Root keeps these bits when it writes, but not when it changes the owner.
    let path = mount.path("program");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&File::options().write(true).open(&path).unwrap(), b"y", 0).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6755);
    std::os::unix::fs::chown(&path, Some(1), None).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
    mount.end();
}

/// Seen: `stat -c %A`, which requests only the mode, showed the old one for minutes (xfstests generic/355).
#[test]
fn the_mode_that_a_direct_write_changed_is_seen_at_once() {
    if !can_mount() {
        return;
    }
    for threads in [8, 1] {
        let mount = TestMount::with(new_pool(), |options| options.threads = NonZeroUsize::new(threads).unwrap());
        let path = mount.path(format!("program-{threads}"));
        fs::write(&path, vec![1; 8192]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        let mode = || {
            let found = rustix::fs::statx(CWD, &path, AtFlags::empty(), rustix::fs::StatxFlags::MODE);
            found.unwrap().stx_mode & 0o7777
        };
        assert_eq!(mode(), 0o6777);
        let target = format!("of={}", path.to_str().unwrap());
        let words =
            ["dd", "if=/dev/zero", &target, "bs=4096", "count=1", "oflag=direct", "conv=notrunc", "status=none"];
        let status = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args(words)
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(mode(), 0o777);
        mount.end();
    }
}

/// Seen: a writer outside the file's group left the set-group-id bit on a file that the group may not execute (xfstests
/// generic/683 to 685). The owner could later make a privilege of it.
#[test]
fn a_change_by_a_stranger_to_the_group_takes_the_set_group_id_bit() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let changes = [
        "fallocate --length 4096 F",
        "fallocate --punch-hole --offset 0 --length 4096 F",
        "printf x >> F",
        "dd if=/dev/zero of=F bs=4096 count=1 oflag=direct conv=notrunc status=none",
        "truncate -s 10 F",
    ];
    let groups = [("--clear-groups", 0o666), ("--groups=77", 0o2666), ("--groups=78,79", 0o666)];
    for (number, change) in changes.iter().enumerate() {
        for (groups, expected) in groups {
            let path = mount.path(format!("file-{number}{groups}"));
            fs::write(&path, vec![1; 8192]).unwrap();
            std::os::unix::fs::chown(&path, Some(0), Some(77)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o2666)).unwrap();
            let change = change.replace('F', path.to_str().unwrap());
            let status = Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", groups, "sh", "-c", &change])
                .status()
                .unwrap();
            assert!(status.success(), "{change}");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, expected, "{change} {groups}");
        }
    }
    mount.end();
}

/// Seen: a chown by root cleared the set-group-id bit of a file that its group may not execute (xfstests generic/193),
/// because root is not a member of that group. Root may set the bit, so the kernel keeps it.
#[test]
fn a_chown_by_a_process_that_may_give_the_set_group_id_bit_leaves_it() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let chown = |mode: u32, capabilities: &str| {
        let path = mount.path(format!("file-{mode:o}{capabilities}"));
        fs::write(&path, b"program").unwrap();
        std::os::unix::fs::chown(&path, Some(77), Some(77)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        run("setpriv", &[capabilities.as_ref(), "chown".as_ref(), "78:78".as_ref(), path.as_os_str()]);
        fs::metadata(&path).unwrap().mode() & 0o7777
    };
    assert_eq!(chown(0o6644, "--bounding-set=+all"), 0o2644);
    assert_eq!(chown(0o6654, "--bounding-set=+all"), 0o654, "a program");
    assert_eq!(chown(0o6644, "--bounding-set=-fsetid"), 0o644);
    mount.end();
}

/// Seen: `df` promised 0.2 % more than `fallocate` could get (xfstests generic/103): the file's map takes blocks, too.
#[test]
fn a_file_gets_all_that_df_promises() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let file = mount.create("file");
    let space = rustix::fs::statvfs(mount.root()).unwrap();
    assert!(space.f_bavail > 200_000, "{}", space.f_bavail);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, space.f_bavail * space.f_frsize).unwrap();
    let left = rustix::fs::statvfs(mount.root()).unwrap();
    assert!(left.f_bavail <= space.f_bavail / 1000, "{}", left.f_bavail);
    drop(file);
    mount.end();
}

#[test]
fn access_times_follow_relatime() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("file"), b"content").unwrap();
    let old = Timestamps {
        last_access: Timespec { tv_sec: 1000, tv_nsec: 0 },
        last_modification: Timespec { tv_sec: 2000, tv_nsec: 0 },
    };
    let accessed = || fs::metadata(mount.path("file")).unwrap().atime();
    let drop_cache = || {
        let file = File::open(mount.path("file")).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    };
    rustix::fs::utimensat(CWD, mount.path("file"), &old, AtFlags::empty()).unwrap();
    drop_cache();
    let mut untouched = File::options().read(true).custom_flags(libc::O_NOATIME).open(mount.path("file")).unwrap();
    std::io::Read::read_to_end(&mut untouched, &mut Vec::new()).unwrap();
    assert_eq!(accessed(), 1000, "O_NOATIME");
    drop_cache();
    fs::read(mount.path("file")).unwrap();
    assert!(accessed() > 2000, "older than the last change");
    drop(untouched);
    mount.end();
}

/// Seen: a third access did not move the access time (xfstests generic/003). Relatime has no reason to move it, and the
/// page cache answers the read.
#[test]
fn a_strict_access_time_moves_with_each_opening_that_reads() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::with(new_pool(), |options| options.access_times = AccessTimes::Strict);
    let path = mount.path("file");
    fs::write(&path, b"content").unwrap();
    let accessed = || fs::metadata(&path).map(|found| (found.atime(), found.atime_nsec())).unwrap();
    let mut before = accessed();
    for round in 0..5 {
        // File systems take times from a clock that ticks.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(fs::read(&path).unwrap(), b"content");
        let after = accessed();
        assert!(after > before, "round {round}: {before:?}, then {after:?}");
        before = after;
    }
    let mut untouched = File::options().read(true).custom_flags(libc::O_NOATIME).open(&path).unwrap();
    std::io::Read::read_to_end(&mut untouched, &mut Vec::new()).unwrap();
    File::options().append(true).open(&path).unwrap();
    assert_eq!(accessed(), before, "neither O_NOATIME nor an opening for writes");
    drop(untouched);
    let mount = TestMount::with(mount.end(), |options| {
        (options.access_times, options.read_only) = (AccessTimes::Strict, true);
    });
    fs::read(mount.path("file")).unwrap();
    let found = fs::metadata(mount.path("file")).unwrap();
    assert_eq!((found.atime(), found.atime_nsec()), before);
    mount.end();
}

#[test]
fn a_read_only_mount_takes_no_change() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("file"), b"content").unwrap();
    let device = mount.end();
    let before = device.image();
    let mount = TestMount::with(device.clone(), |options| options.read_only = true);
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"content");
    assert_eq!(errno(&File::create(mount.path("new")).unwrap_err()), Errno::ROFS);
    assert_eq!(errno(&fs::remove_file(mount.path("file")).unwrap_err()), Errno::ROFS);
    mount.end();
    drop(before);
}

#[test]
fn statfs_counts_blocks_of_4_kib() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let before = rustix::fs::statvfs(mount.root()).unwrap();
    assert_eq!((before.f_bsize, before.f_frsize, before.f_namemax), (4096, 4096, 255));
    fs::write(mount.path("file"), common::noise(1, 8 << 20)).unwrap();
    File::open(mount.path("file")).unwrap().sync_all().unwrap();
    let after = rustix::fs::statvfs(mount.root()).unwrap();
    assert!(before.f_bavail - after.f_bavail >= 2048);
    mount.end();
}
