//! Images for tests. Scripts make them, as root, where nobody else sees their mounts.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Runs before each script. Its own view of mounts has none of other tests, which would stay in use otherwise. The
/// table of mounts has some characters of their names as octal numbers. `umount`
/// also waits for ntfs-3g, which still runs when its mount is gone: it would be killed with the script.
const LEAVE_OTHERS: &str = r#"set -euo pipefail
export LC_ALL=C
awk -v folder="$ONEFOLD_TEST_TARGET" '$3 == "fuse.onefold" || index($2, folder) == 1 { print $2 }' /proc/self/mounts |
    tac | while read -r mount; do printf -v name %b "$mount"; umount --lazy -- "$name" 2>/dev/null || true; done
umount() {
    command umount "$@" || return
    while pgrep -x ntfs-3g >/dev/null; do sleep 0.02; done
}
"#;

/// A folder with images, which goes with it.
pub(crate) struct Images {
    folder: TempDir,
}

impl Images {
    /// Returns an empty folder; `None`, and says why, where the test cannot be root.
    pub(crate) fn new() -> Option<Images> {
        if !rustix::process::geteuid().is_root() {
            return skip("only root can mount file systems");
        }
        Some(Images { folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() })
    }

    /// Returns the path of a file in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a bash script in the folder, as root, with mounts and processes of its own, which end with it; returns what
    /// it printed. Fails the test where the script fails. A script has at most one mount of ntfs-3g at a time.
    pub(crate) fn script<A: AsRef<OsStr>>(&self, script: &str, arguments: impl IntoIterator<Item = A>) -> String {
        let output = self.try_script(script, arguments);
        assert!(output.status.success(), "{script}\nfailed: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// As [`Images::script`], and returns how it ended.
    pub(crate) fn try_script<A: AsRef<OsStr>>(&self, script: &str, arguments: impl IntoIterator<Item = A>) -> Output {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["bash", "-c"])
            .arg(format!("{LEAVE_OTHERS}{script}"))
            .arg("script")
            .args(arguments)
            .env("ONEFOLD_TEST_TARGET", target)
            .current_dir(self.folder.path())
            .output()
            .unwrap()
    }
}

/// Returns how many times as much is tried of what is drawn: `ONEFOLD_GUEST_TIMES`, or once.
pub(crate) fn times() -> u32 {
    std::env::var("ONEFOLD_GUEST_TIMES").map_or(1, |times| times.parse().expect("a number"))
}

/// Returns what a test draws from: `ONEFOLD_SEED`, or the same number in each run.
pub(crate) fn seed() -> u32 {
    std::env::var("ONEFOLD_SEED").map_or(1, |seed| seed.parse().expect("a number"))
}

/// Says on stderr, past the test harness, how much of something was tried; `make test-guest` adds it up.
pub(crate) fn tell(count: usize, what: &str) {
    let _ = writeln!(std::io::stderr(), "guests: {count} {what}");
}

/// What [`tell`] counts: file systems of a set of options each, compared with an oracle.
pub(crate) const MADE: &str = "file systems made and compared";
/// What [`tell`] counts: copies of busy images, as a power cut would leave them.
pub(crate) const BUSY_COPIES: &str = "copies of busy images compared";

/// Says on stderr, past the test harness, that a test is skipped.
pub(crate) fn skip<T>(why: &str) -> Option<T> {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {why}", thread.name().unwrap_or("a test"));
    None
}

/// Returns whether a program is there; says that the test is skipped where it is not.
pub(crate) fn has(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
    if !found {
        skip::<()>(&format!("there is no {program}"));
    }
    found
}

#[test]
fn a_script_sees_what_it_mounts_and_nobody_else_does() {
    let Some(images) = Images::new() else { return };
    if !has("mke2fs") {
        return;
    }
    let printed = images.script(
        "truncate -s 8M image; mke2fs -q -t ext4 image; mkdir mounted; mount -o loop image mounted; echo hello >mounted/file
        umount mounted; debugfs -R 'cat /file' image 2>/dev/null",
        [""; 0],
    );
    assert_eq!(printed, "hello\n");
    assert!(std::fs::read_dir(images.path("mounted")).unwrap().next().is_none());
}

/// The mount's daemon lived on where a line before `umount` failed, and kept the mount.
#[test]
fn what_a_failing_script_started_ends_with_it() {
    let Some(images) = Images::new() else { return };
    if !["mkntfs", "ntfs-3g", "fuser"].into_iter().all(has) {
        return;
    }
    let script = "truncate -s 8M image; mkntfs -q -F -Q image >/dev/null; mkdir mounted; ntfs-3g image mounted
        echo hello >mounted/file; echo mounted; false";
    let output = images.try_script(script, [""; 0]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b"mounted\n"[..]));
    let users = Command::new("fuser").arg(images.path("image")).output().unwrap();
    assert!(!users.status.success(), "{}", String::from_utf8_lossy(&users.stdout));
}
