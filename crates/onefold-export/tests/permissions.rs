//! Permissions on a really mounted pool, and what sharing domains keep apart.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use common::{TestMount, can_mount, new_pool, noise};
use onefold_block::AlignedBuffer;
use onefold_export::MountAccess;
use onefold_export::control::{ControlClient, ControlError, FailureKind};
use onefold_testing::device::{GatedDevice, MemoryDevice};
use rustix::fs::{FallocateFlags, XattrFlags};
use rustix::io::Errno;

const MIB: usize = 1 << 20;
const NOBODY: u32 = 65534;
const DOMAIN: &str = "user.onefold.domain";

/// Runs `work` in a thread of the user nobody. The rest of the process stays root.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            rustix::thread::set_thread_groups(&[]).unwrap();
            let group = rustix::process::Gid::from_raw(NOBODY);
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            let nobody = rustix::process::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

/// Makes a directory of user nobody that begins the sharing domain `domain`.
fn new_tenant(path: &Path, domain: &str) {
    fs::create_dir(path).unwrap();
    rustix::fs::setxattr(path, DOMAIN, domain.as_bytes(), XattrFlags::empty()).unwrap();
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

fn domain_of(path: &Path) -> String {
    let mut value = [0; 16];
    let bytes = rustix::fs::getxattr(path, DOMAIN, &mut value).unwrap();
    String::from_utf8(value[..bytes].to_vec()).unwrap()
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ControlError>) -> FailureKind {
    match result {
        Err(ControlError::Refused { kind, .. }) => kind,
        other => panic!("not refused: {other:?}"),
    }
}

/// Seen in a review: the owner of an empty directory could put it into any sharing domain, write guesses there, and see
/// from the file's numbers which of them another tenant stores.
#[test]
fn a_tenant_cannot_put_himself_into_another_domain() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let own = mount.path("own");
    new_tenant(&own, "7");
    as_nobody(|| {
        let below = own.join("below");
        fs::create_dir(&below).unwrap();
        assert_eq!(domain_of(&below), "7", "inherited");
        for path in [&own, &below] {
            assert_eq!(rustix::fs::setxattr(path, DOMAIN, b"8", XattrFlags::empty()), Err(Errno::PERM));
            assert!(rustix::fs::removexattr(path, DOMAIN).is_err());
        }
        assert_eq!(domain_of(&below), "7");
    });
    let full = rustix::fs::setxattr(&own, DOMAIN, b"8", XattrFlags::empty());
    assert_eq!(full, Err(Errno::PERM), "not even root changes what files were created under");
    mount.end();
}

#[test]
fn files_of_two_domains_never_share_a_block() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let (one, two) = (mount.path("one"), mount.path("two"));
    new_tenant(&one, "1");
    new_tenant(&two, "2");
    let data = noise(1, MIB);
    fs::write(one.join("file"), &data).unwrap();
    let mut client = ControlClient::connect(&mount.root()).unwrap();
    client.sync().unwrap();
    let before = client.stat().unwrap();
    fs::write(two.join("file"), &data).unwrap();
    client.sync().unwrap();
    let after = client.stat().unwrap();
    assert_eq!(after.unique_bytes, before.unique_bytes + MIB as u64, "stored once more");
    assert_eq!((after.shared_bytes, after.activity.blocks_shared), (0, 0));
    let file = File::open(two.join("file")).unwrap();
    let stat = client.file_stat(&file, &mut |_, _| ()).unwrap();
    assert_eq!((stat.unique_bytes, stat.shared_bytes), (MIB as u64, 0), "nothing tells that another has it too");

    // Within a domain they share.
    fs::write(two.join("again"), &data).unwrap();
    client.sync().unwrap();
    assert_eq!(client.stat().unwrap().shared_bytes, MIB as u64);
    drop((file, client));
    mount.end();
}

#[test]
fn no_name_crosses_from_one_domain_into_another_and_a_clone_is_a_copy() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let (one, two) = (mount.path("one"), mount.path("two"));
    new_tenant(&one, "1");
    new_tenant(&two, "2");
    let data = noise(2, MIB);
    fs::write(one.join("file"), &data).unwrap();
    let crosses = |result: std::io::Result<()>| result.unwrap_err().kind() == ErrorKind::CrossesDevices;
    assert!(crosses(fs::hard_link(one.join("file"), two.join("link"))));
    assert!(crosses(fs::rename(one.join("file"), two.join("moved"))));
    assert!(crosses(fs::rename(one.join("file"), mount.path("moved"))));
    fs::create_dir(one.join("dir")).unwrap();
    assert!(crosses(fs::rename(one.join("dir"), two.join("dir"))));
    fs::rename(&one, mount.path("renamed")).unwrap();
    let source = File::open(mount.path("renamed").join("file")).unwrap();
    let target = File::create(two.join("clone")).unwrap();
    let mut client = ControlClient::connect(&mount.root()).unwrap();
    assert_eq!(refusal(client.clone_file(&source, &target)), FailureKind::Failed);
    let mut copied = 0;
    while copied < MIB {
        let count = rustix::fs::copy_file_range(source.as_fd(), None, target.as_fd(), None, MIB - copied).unwrap();
        assert!(count > 0, "copied {copied}");
        copied += count;
    }
    assert!(fs::read(two.join("clone")).unwrap() == data);
    client.sync().unwrap();
    let stat = client.stat().unwrap();
    assert_eq!((stat.unique_bytes, stat.shared_bytes), (2 * MIB as u64, 0));
    drop((source, target, client));
    mount.end();
}

/// Seen in a review: a file's numbers were reported to every process that could name it, although they reveal how much
/// of it others hold too.
#[test]
fn what_a_file_shares_is_told_only_to_those_who_may_read_it() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let private = mount.path("private");
    fs::write(&private, noise(3, MIB)).unwrap();
    fs::set_permissions(&private, PermissionsExt::from_mode(0o600)).unwrap();
    as_nobody(|| {
        let mut client = ControlClient::connect(&mount.root()).unwrap();
        let named = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&private).unwrap();
        assert_eq!(refusal(client.file_stat(&named, &mut |_, _| ())), FailureKind::NotPermitted);
        assert_eq!(File::open(&private).unwrap_err().kind(), ErrorKind::PermissionDenied);
        for refused in [
            refusal(client.scrub(None, &mut |_, _| ())),
            refusal(client.trim(&mut |_, _| ())),
            refusal(client.grow()),
            refusal(client.sync()),
        ] {
            assert_eq!(refused, FailureKind::NotPermitted);
        }
    });
    mount.end();
}

#[test]
fn what_one_user_hides_in_a_directory_another_does_not_see() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let hidden = mount.path("hidden");
    fs::create_dir(&hidden).unwrap();
    fs::write(hidden.join("file"), b"secret").unwrap();
    fs::set_permissions(&hidden, PermissionsExt::from_mode(0o700)).unwrap();
    as_nobody(|| {
        assert_eq!(fs::metadata(hidden.join("file")).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(fs::read_dir(&hidden).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(fs::write(mount.path("new"), b"x").unwrap_err().kind(), ErrorKind::PermissionDenied);
    });
    mount.end();
}

#[test]
fn a_mount_for_its_owner_alone_shows_others_nothing() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::with(new_pool(), |options| options.access = MountAccess::Owner);
    as_nobody(|| {
        assert_eq!(fs::metadata(mount.root()).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert!(ControlClient::connect(&mount.root()).is_err());
    });
    mount.end();
}

#[test]
fn no_mount_gives_the_rights_of_a_programs_owner_or_devices() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let mounts = String::from_utf8_lossy(&fs::read("/proc/self/mounts").unwrap()).into_owned();
    let root = mount.root();
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == root.to_str()).unwrap();
    let flags: Vec<&str> = line.split(' ').nth(3).unwrap().split(',').collect();
    assert!(flags.contains(&"nosuid") && flags.contains(&"nodev"), "{line}");
    mount.end();
}

/// Seen in a review: a clone through the control socket put new content into a set-user-id program and left the bit
/// set.
#[test]
fn a_program_that_others_change_loses_the_rights_of_its_owner() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("source"), noise(4, MIB)).unwrap();
    let changes: [fn(&Path, &Path); 3] = [
        |source, program| {
            let (source, target) = (File::open(source).unwrap(), OpenOptions::new().write(true).open(program).unwrap());
            target.set_len(0).unwrap();
            let root = program.parent().unwrap();
            ControlClient::connect(root).unwrap().clone_file(&source, &target).unwrap();
        },
        |source, program| {
            let (source, target) = (File::open(source).unwrap(), OpenOptions::new().write(true).open(program).unwrap());
            assert!(rustix::fs::copy_file_range(&source, None, &target, None, MIB).unwrap() > 0);
        },
        |_, program| {
            let target = OpenOptions::new().write(true).open(program).unwrap();
            rustix::fs::fallocate(&target, FallocateFlags::ZERO_RANGE, 0, 4096).unwrap();
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let program = mount.path(format!("program-{number}"));
        fs::write(&program, if number == 0 { Vec::new() } else { noise(5, 5000) }).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o4777)).unwrap();
        as_nobody(|| change(&mount.path("source"), &program));
        assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o777, "change {number}");
    }
    mount.end();
}

/// The kernel removes the capabilities of a program before it sends a cached write of root, and forgets writes that
/// bypass the cache.
#[test]
fn a_program_that_root_changes_keeps_its_bits_and_loses_its_capabilities() {
    type SetMode = fn(&mut OpenOptions) -> &mut OpenOptions;
    const CAPABILITY: &str = "security.capability";
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    // Version 2, `CAP_NET_RAW` permitted and effective.
    let mut capabilities = [0; 20];
    (capabilities[0], capabilities[3], capabilities[5]) = (1, 2, 0x20);
    let openings: [(&str, SetMode); 3] = [
        ("cached", |options| options.read(true).write(true)),
        ("write-only", |options| options.write(true)),
        ("direct", |options| options.write(true).custom_flags(libc::O_DIRECT)),
    ];
    for (name, opening) in openings {
        let program = mount.path(name);
        fs::write(&program, noise(5, 8192)).unwrap();
        let block = AlignedBuffer::copy_of(&noise(6, 4096));
        fs::set_permissions(&program, PermissionsExt::from_mode(0o6755)).unwrap();
        opening(&mut OpenOptions::new()).open(&program).unwrap().write_all_at(&block, 0).unwrap();
        assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o6755, "{name}");
        rustix::fs::setxattr(&program, CAPABILITY, &capabilities, XattrFlags::empty()).unwrap();
        opening(&mut OpenOptions::new()).open(&program).unwrap().write_all_at(&block, 0).unwrap();
        assert_eq!(rustix::fs::getxattr(&program, CAPABILITY, &mut [0; 20]), Err(Errno::NODATA), "{name}");
        rustix::fs::setxattr(&program, CAPABILITY, &capabilities, XattrFlags::empty()).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o6777)).unwrap();
        as_nobody(|| opening(&mut OpenOptions::new()).open(&program).unwrap().write_all_at(&block, 4096).unwrap());
        assert_eq!(rustix::fs::getxattr(&program, CAPABILITY, &mut [0; 20]), Err(Errno::NODATA), "{name}, a user");
        assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o777, "{name}, a user");
    }
    mount.end();
}

/// Seen: each write of an ordinary user waited until all accepted writes had taken effect, because the kernel requests
/// the loss of privileges with each of them. libvirt's QEMU, which does not run as root, wrote 9,900 blocks a second
/// where root wrote 74,400.
#[test]
fn writes_of_an_ordinary_user_are_accepted_before_they_take_effect() {
    const MARK: &[u8] = b"held up";
    const BLOCK: usize = 4096;
    if !can_mount() {
        return;
    }
    let device = GatedDevice::new(MemoryDevice::from(new_pool().image()), MARK);
    let mount = TestMount::with(Arc::new(device), |_| ());
    let disk = mount.create("disk");
    disk.set_len(MIB as u64).unwrap();
    disk.set_permissions(PermissionsExt::from_mode(0o666)).unwrap();
    let (sender, accepted) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            as_nobody(|| {
                let direct =
                    OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(mount.path("disk")).unwrap();
                for number in 0..8u8 {
                    let mut block = noise(number.into(), BLOCK);
                    block[..MARK.len()].copy_from_slice(MARK);
                    direct.write_all_at(&AlignedBuffer::copy_of(&block), u64::from(number) * BLOCK as u64).unwrap();
                }
                sender.send(()).unwrap();
            });
        });
        let outcome = accepted.recv_timeout(Duration::from_secs(20));
        mount.device().open();
        outcome.expect("no write waits for another one");
    });
    // A file with privileges loses them before its content changes.
    fs::set_permissions(mount.path("disk"), PermissionsExt::from_mode(0o4777)).unwrap();
    as_nobody(|| OpenOptions::new().write(true).open(mount.path("disk")).unwrap().write_all_at(b"x", 0).unwrap());
    assert_eq!(disk.metadata().unwrap().mode() & 0o7777, 0o777);
    drop(disk);
    mount.end();
}

/// Seen: any user who could reach a file could give it attributes whose names begin with `system.`, since the kernel
/// does not check these.
#[test]
fn system_attributes_are_not_for_anybody() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let path = mount.path("file");
    fs::write(&path, b"root's").unwrap();
    let refused = Err(Errno::OPNOTSUPP);
    let attempt = || {
        for name in ["system.planted", "system.", "system.posix_acl_accessory", "system.nfs4_acl"] {
            assert_eq!(rustix::fs::setxattr(&path, name, b"value", XattrFlags::empty()), refused, "{name}");
            assert_eq!(rustix::fs::getxattr(&path, name, &mut [0; 16]).map(drop), refused, "{name}");
            assert_eq!(rustix::fs::removexattr(&path, name), refused, "{name}");
        }
    };
    as_nobody(attempt);
    attempt();
    mount.end();
}
