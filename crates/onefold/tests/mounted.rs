//! Pools that a daemon serves: the user guide's first page, and what can go wrong with a mount. Needs root and FUSE.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{FAILED, Folder, USAGE, equal, has, onefold, run, text};
use onefold_block::shown::is_hidden;
use serde_json::Value;

/// A pool, mounted; unmounted when dropped, so that a failed test leaves no mount behind.
struct Mount {
    folder: Folder,
    pool: PathBuf,
    mountpoint: PathBuf,
    process: u64,
}

impl Mount {
    /// Returns nothing, and says so, where this machine can't mount.
    fn new(flags: &str) -> Option<Mount> {
        if !can_mount() {
            return None;
        }
        let folder = Folder::new();
        let pool = folder.pool();
        let mountpoint = folder.path("mnt");
        fs::create_dir(&mountpoint).unwrap();
        let json = onefold(&format!("pool mount --json {flags}"), &[&pool, &mountpoint]).done().json();
        let process = json["process"].as_u64().unwrap();
        Some(Mount { folder, pool, mountpoint, process })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    fn stat(&self) -> Value {
        onefold("pool stat --json", &[&self.mountpoint]).done().json()["pool"].clone()
    }

    fn unmount_and_check(&self) {
        onefold("pool umount", &[&self.mountpoint]).done();
        let check = onefold("pool check --data", &[&self.pool]).done();
        assert!(check.out.ends_with("clean\n"), "{check:?}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", "-i"]).arg(&self.mountpoint).output();
    }
}

fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("SKIPPED: mounting needs root and /dev/fuse");
    }
    can
}

/// Waits until a daemon is gone, or is only a name that nobody has asked for its exit code.
fn wait_for_the_end_of(process: u64) {
    let started = Instant::now();
    while !has_ended(process) {
        assert!(started.elapsed() < Duration::from_secs(30), "the daemon goes on");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Tells whether a process has ended, and with it its last thread: threads share the files that are open, and the
/// locks. A process that nobody has collected yet is left with its first thread, in the state `Z`.
fn has_ended(process: u64) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    let is_zombie = || {
        let status = fs::read_to_string(format!("/proc/{process}/status"));
        status.is_ok_and(|status| status.lines().any(|line| line.starts_with("State:\tZ")))
    };
    threads.count() <= 1 && is_zombie()
}

#[test]
fn the_first_page_of_the_guide_works() {
    let Some(mount) = Mount::new("") else { return };
    let image = mount.folder.image("base.raw", 1, 1);
    run("cp", &["--sparse=always", text(&image), text(&mount.mountpoint)]);
    run("cp", &["--reflink=auto", text(&mount.file("base.raw")), text(&mount.file("vm1.raw"))]);
    assert!(equal(&image, &mount.file("vm1.raw")));
    let stat = mount.stat();
    assert_eq!(stat["distinct_bytes"], 2 << 20, "{stat}");
    let text = onefold("pool stat", &[&mount.mountpoint]).done().out;
    assert!(text.contains("saved"), "{text}");
    mount.unmount_and_check();
    assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 0);
}

#[test]
fn images_go_in_and_out_of_a_mounted_pool_by_either_name() {
    let Some(mount) = Mount::new("") else { return };
    let (one, two) = (mount.folder.image("one.raw", 1, 1), mount.folder.image("two.raw", 1, 2));
    onefold("pool import", &[&mount.mountpoint, &one]).done();
    let second = onefold("pool import --json", &[&mount.pool, &two]).done().json();
    assert_eq!(second["images"][0]["stored_bytes"], 0, "{second}");
    assert!(equal(&one, &mount.file("one.raw")) && equal(&two, &mount.file("two.raw")));
    assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 2, "no temporary file is left");
    let out = mount.folder.path("out.raw");
    onefold("pool export", &[&mount.pool, &mount.file("two.raw"), &out]).done();
    assert!(equal(&two, &out));
    onefold("pool import", &[&mount.pool, &two]).failed(FAILED, "the pool already has a file of that name");
    mount.unmount_and_check();
}

#[test]
fn clones_and_files_numbers_go_through_the_daemon() {
    let Some(mount) = Mount::new("") else { return };
    let image = mount.folder.image("base.raw", 1, 1);
    onefold("pool import", &[&mount.mountpoint, &image]).done();
    onefold("pool clone --count 30", &[&mount.mountpoint, Path::new("base.raw"), Path::new("vm-%03d.raw")]).done();
    assert!(equal(&image, &mount.file("vm-030.raw")));
    let json = onefold("pool stat --json", &[&mount.mountpoint, &mount.file("vm-001.raw")]).done().json();
    assert_eq!(json["files"][0]["name"], "vm-001.raw");
    assert_eq!(json["files"][0]["distinct_bytes"], 2 << 20);
    mount.unmount_and_check();
}

/// `pool create`, `pool mount` and `pool umount` ended with a panic where a name was not UTF-8, because of their JSON.
#[test]
fn pools_and_mount_points_may_have_any_name() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    let name = |bytes: &[u8]| folder.path("").join(OsStr::from_bytes(bytes));
    let (pool, mountpoint) = (name(b"p\x1b[31m\xff\n.pool"), name(b"m\x1b[31m\xff\n"));
    fs::create_dir(&mountpoint).unwrap();
    onefold("pool create --size 64M", &[&pool]).done();
    let mounted = onefold("pool mount --json", &[&pool, &mountpoint]);
    let again = onefold("pool mount", &[&pool, &mountpoint]);
    let unmounted = onefold("pool umount --json", &[&mountpoint]);
    assert!(mounted.done().json()["pool"].as_str().unwrap().contains("p\u{1b}[31m\u{fffd}\n.pool"));
    let again = again.failed(FAILED, r"m\x1b[31m\xff\n");
    assert!(!again.err.chars().any(|character| is_hidden(character) && character != '\n'), "{again:?}");
    assert!(unmounted.done().json()["mountpoint"].is_string());
}

/// The kernel hands the ioctl of `fstrim` to the daemon. It tells the daemon about a deleted file a moment after `rm`
/// has ended, so the first `fstrim` may come too early.
#[test]
fn fstrim_has_free_space_discarded() {
    let Some(mount) = Mount::new("--discard off") else { return };
    if !has("fstrim", "util-linux") {
        return;
    }
    let noise = mount.folder.noise("noise.raw", 16);
    let allocated = || fs::metadata(&mount.pool).unwrap().blocks() * 512;
    fs::copy(&noise, mount.file("noise.raw")).unwrap();
    File::open(mount.file("noise.raw")).unwrap().sync_all().unwrap();
    let before = allocated();
    fs::remove_file(mount.file("noise.raw")).unwrap();
    let is_smaller = (0..20).any(|_| {
        let trimmed = run("fstrim", &["-v", text(&mount.mountpoint)]);
        assert!(trimmed.contains("trimmed"), "{trimmed}");
        let is_smaller = allocated() + (12 << 20) < before;
        if !is_smaller {
            thread::sleep(Duration::from_millis(100));
        }
        is_smaller
    });
    assert!(is_smaller, "{before}, then {}", allocated());
    mount.unmount_and_check();
}

#[test]
fn names_are_relative_to_the_directory_that_was_named() {
    let Some(mount) = Mount::new("") else { return };
    let image = mount.folder.image("one.raw", 1, 1);
    fs::create_dir(mount.file("web")).unwrap();
    onefold("pool import", &[&mount.file("web"), &image]).done();
    assert!(equal(&image, &mount.file("web/one.raw")));
    onefold("pool umount", &[&mount.file("web")]).failed(USAGE, "not a mount point");
}

#[test]
fn a_mounted_pool_is_not_mounted_checked_or_created_again() {
    let Some(mount) = Mount::new("") else { return };
    let second = mount.folder.path("second");
    fs::create_dir(&second).unwrap();
    onefold("pool mount", &[&mount.pool, &second]).failed(FAILED, "mounted already");
    onefold("pool check", &[&mount.pool]).failed(FAILED, "is not in use");
    onefold("pool create --force", &[&mount.pool]).failed(FAILED, "mounted at");
    let other = mount.folder.path("other.pool");
    onefold("pool create --size 512M", &[&other]).done();
    onefold("pool mount", &[&other, &mount.mountpoint]).failed(FAILED, "is mounted there");
}

#[test]
fn a_busy_mount_stays_until_it_is_free() {
    let Some(mount) = Mount::new("") else { return };
    let file = File::create(mount.file("open")).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    let busy = onefold("pool umount", &[&mount.mountpoint]).failed(FAILED, "open");
    assert!(busy.err.contains("hint: "), "{busy:?}");
    file.write_all_at(b"KEPT", 0).unwrap();
    drop(file);
    mount.unmount_and_check();
}

#[test]
fn a_daemon_that_died_is_cleared_away_and_its_pool_recovers() {
    let Some(mount) = Mount::new("") else { return };
    let image = mount.folder.image("one.raw", 1, 1);
    onefold("pool import", &[&mount.mountpoint, &image]).done();
    run("kill", &["-9", &mount.process.to_string()]);
    wait_for_the_end_of(mount.process);
    onefold("pool stat", &[&mount.mountpoint]).failed(FAILED, "daemon has died");
    let cleared = onefold("pool umount --json", &[&mount.pool]).done().json();
    assert_eq!(cleared["daemon_had_died"], true);
    onefold("pool mount", &[&mount.pool, &mount.mountpoint]).done();
    assert!(equal(&image, &mount.file("one.raw")), "what import said is done is there");
    mount.unmount_and_check();
}

/// The next mount was refused until somebody unmounted the dead one by hand.
#[test]
fn the_next_mount_takes_the_mount_of_a_killed_daemon_away() {
    let Some(mount) = Mount::new("") else { return };
    let other = mount.folder.path("other");
    fs::create_dir(&other).unwrap();
    let mut process = mount.process;
    for place in [&mount.mountpoint, &other] {
        run("kill", &["-9", &process.to_string()]);
        wait_for_the_end_of(process);
        onefold("pool check", &[&mount.pool]).done();
        process = onefold("pool mount --json", &[&mount.pool, place]).done().json()["process"].as_u64().unwrap();
        let table = String::from_utf8_lossy(&fs::read("/proc/self/mounts").unwrap()).into_owned();
        assert_eq!(table.matches(text(&mount.pool)).count(), 1, "{table}");
    }
    onefold("pool umount", &[&other]).done();
    onefold("pool check --data", &[&mount.pool]).done();
}

/// A pool is not mounted over the dead mount of another one: its administrator may want to know.
#[test]
fn a_dead_mount_of_another_pool_is_left_alone() {
    let Some(mount) = Mount::new("") else { return };
    run("kill", &["-9", &mount.process.to_string()]);
    wait_for_the_end_of(mount.process);
    let other = mount.folder.path("other.pool");
    onefold("pool create --size 64M", &[&other]).done();
    let refused = onefold("pool mount", &[&other, &mount.mountpoint]).failed(FAILED, "as a mount point");
    assert!(refused.err.contains("cause: "), "{refused:?}");
    onefold("pool umount", &[&mount.mountpoint]).done();
}

#[test]
fn a_signal_ends_a_daemon_in_good_order() {
    let Some(mount) = Mount::new("") else { return };
    fs::write(mount.file("note"), "text").unwrap();
    run("kill", &["-TERM", &mount.process.to_string()]);
    wait_for_the_end_of(mount.process);
    onefold("pool check", &[&mount.pool]).done();
    onefold("pool mount", &[&mount.pool, &mount.mountpoint]).done();
    assert_eq!(fs::read_to_string(mount.file("note")).unwrap(), "text");
    mount.unmount_and_check();
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(mount) = Mount::new("") else { return };
    fs::write(mount.file("note"), "text").unwrap();
    mount.unmount_and_check();
    onefold("pool mount --read-only", &[&mount.pool, &mount.mountpoint]).done();
    assert_eq!(fs::read_to_string(mount.file("note")).unwrap(), "text");
    assert!(fs::write(mount.file("other"), "text").is_err());
    let scrub = onefold("pool scrub --json", &[&mount.mountpoint]).done();
    assert!(scrub.err.is_empty() && scrub.json()["clean"] == true, "{scrub:?}");
    // A mount that is in use is not ended, and there is nothing to make durable.
    let open = File::open(mount.file("note")).unwrap();
    let busy = onefold("pool umount", &[&mount.pool]).failed(FAILED, "files of the mount are open");
    assert!(!busy.err.contains("on disk:"), "{busy:?}");
    drop(open);
    onefold("pool umount", &[&mount.pool]).done();
}

#[test]
fn mount_and_fstab_reach_a_pool_through_the_helper() {
    let Some(mount) = Mount::new("") else { return };
    mount.unmount_and_check();
    let helper = mount.folder.path("mount.fuse.onefold");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_onefold"), &helper).unwrap();
    let options = ["-o", "ro,nofail,memory=128M,commit_interval=1s"];
    let output = Command::new(&helper).args([&mount.pool, &mount.mountpoint]).args(options).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(fs::write(mount.file("note"), "text").is_err(), "it is mounted read-only");
    onefold("pool umount", &[&mount.pool]).done();
}

#[test]
fn a_daemon_in_the_foreground_ends_with_its_mount() {
    let Some(mount) = Mount::new("") else { return };
    mount.unmount_and_check();
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_onefold"))
        .args(["pool", "mount", "--foreground"])
        .args([&mount.pool, &mount.mountpoint])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(daemon.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("mounted "), "{said}");
    fs::write(mount.file("note"), "text").unwrap();
    onefold("pool umount", &[&mount.mountpoint]).done();
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn a_scrub_a_trim_and_a_growth_need_no_unmount() {
    let Some(mount) = Mount::new("") else { return };
    onefold("pool import", &[&mount.mountpoint, &mount.folder.image("one.raw", 1, 1)]).done();
    let scrub = onefold("pool scrub --json", &[&mount.mountpoint]).done().json();
    assert_eq!(scrub["clean"], true, "{scrub}");
    onefold("pool trim", &[&mount.mountpoint]).done();
    let grown = onefold("pool grow --json --size 1G", &[&mount.mountpoint]).done().json();
    assert_eq!(grown["gained_bytes"], 512 << 20, "{grown}");
    mount.unmount_and_check();
}

#[test]
fn a_mount_that_can_not_be_says_why_at_once() {
    let folder = Folder::new();
    let pool = folder.pool();
    onefold("pool mount", &[&pool, &folder.path("gone")]).failed(FAILED, "as a mount point");
    onefold("pool mount", &[&pool, &pool]).failed(FAILED, "not a directory");
    onefold("pool mount", &[&pool, &folder.path("")]).failed(USAGE, "cover the pool's own file");
    let noise = folder.path("noise");
    fs::write(&noise, vec![0x5a; 8 << 20]).unwrap();
    let mountpoint = folder.path("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let failed = onefold("pool mount --json", &[&noise, &mountpoint]).failed(FAILED, "not a Onefold pool");
    assert!(failed.json()["error"].as_str().unwrap().starts_with("cannot mount"), "{failed:?}");
    onefold("pool mount --memory 1M", &[&pool, &mountpoint]).failed(USAGE, "memory");
}

#[test]
fn a_dry_run_of_dedup_says_what_a_run_then_frees() {
    let Some(mount) = Mount::new("--dedup off") else { return };
    let image = mount.folder.noise("image.raw", 8);
    for name in ["one.raw", "two.raw"] {
        run("cp", &["--reflink=never", text(&image), text(&mount.file(name))]);
    }
    mount.unmount_and_check();
    let dry = onefold("pool dedup --quiet --json --dry-run", &[&mount.pool]).done().json();
    let run = onefold("pool dedup --quiet --json", &[&mount.pool]).done().json();
    assert_eq!((&dry["freed_bytes"], &dry["shared_bytes"]), (&0.into(), &0.into()), "{dry}");
    assert_eq!((&dry["would_free_bytes"], &run["freed_bytes"]), (&(8 << 20).into(), &(8 << 20).into()), "{dry} {run}");
    assert!(run["would_free_bytes"].is_null(), "{run}");
    let text = onefold("pool dedup --quiet --dry-run", &[&mount.pool]).done().out;
    assert!(text.contains("\n0 B would come free; nothing was changed"), "{text}");
}

/// A user of the mount puts a link to another folder into the pool, and removes the reader's rights from a file.
#[test]
fn all_files_of_a_mounted_pool_are_told_one_by_one() {
    let Some(mount) = Mount::new("") else { return };
    fs::create_dir_all(mount.file("a/deep")).unwrap();
    for name in ["a/deep/2.raw", "a/1.raw", "b.raw"] {
        fs::write(mount.file(name), [7; 8192]).unwrap();
    }
    let elsewhere = mount.folder.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("secret.raw"), [8; 4096]).unwrap();
    std::os::unix::fs::symlink(&elsewhere, mount.file("link")).unwrap();
    let json = onefold("pool stat --files --json", &[&mount.mountpoint]).done().json();
    let names: Vec<&str> =
        json["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["b.raw", "a/1.raw", "a/deep/2.raw"]);
    let link = mount.file("link");
    onefold("pool ls", &[&mount.mountpoint, &link]).failed(FAILED, "cannot list");
    onefold("pool stat", &[&mount.mountpoint, &link.join("secret.raw")]).failed(FAILED, "cannot read");
    mount.unmount_and_check();
}
