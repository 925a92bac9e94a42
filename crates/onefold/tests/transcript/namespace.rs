//! A mount namespace of its own, in which a session sees no other mounts of pools and no other user's settings.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::common::{has, run};

/// The folder of a session in the namespace.
pub(crate) const HOME: &str = "/tmp/home";

/// The user without rights who owns [`HOME`].
const NOBODY: &str = "65534";

/// Makes an empty `/tmp` and `/run`, with a `/dev/fuse` for all users as udev makes it, and takes away all that says
/// which pools and mounts this machine has. `$1` is the program, which other users may not reach where it is. `$2` is
/// the folder of the project's scripts; `/run/scripts` gets those by which a session repeats a part of the demo.
const SETUP: &str = "
    set -e
    umount --all --lazy --types fuse.onefold
    mount -t tmpfs -o mode=755 onefold-test /run
    mkdir /run/bin
    cp \"$1\" /run/bin/onefold
    ln -s onefold /run/bin/mount.fuse.onefold
    mkdir /run/scripts
    cp \"$2/lib.sh\" \"$2/demo/pool.sh\" /run/scripts
    mount -t tmpfs -o mode=1777 onefold-test /tmp
    mknod /tmp/fuse c 10 229
    chmod 666 /tmp/fuse
    mount --bind /tmp/fuse /dev/fuse
    for file in /etc/fstab /etc/fuse.conf; do [ ! -e $file ] || mount --bind /dev/null $file; done
    mkdir -m 777 /tmp/home
    echo ready
    exec cat";

/// The namespace. Its mounts go when this is dropped.
pub(crate) struct Namespace {
    /// A process in it, which ends with its input.
    holder: Child,
}

impl Namespace {
    /// Makes a namespace. Returns `None`, and says so, where that is not possible.
    pub(crate) fn new() -> Option<Namespace> {
        if !(has("unshare", "util-linux") && has("setpriv", "util-linux") && has("fusermount3", "fuse3")) {
            return None;
        }
        if run("id", &["-u"]).trim() != "0" || std::fs::File::open("/dev/fuse").is_err() {
            eprintln!("SKIPPED: mounting needs root and /dev/fuse");
            return None;
        }
        let mut command = Command::new("unshare");
        let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts");
        let programs = [env!("CARGO_BIN_EXE_onefold"), scripts];
        command.args(["--mount", "--propagation", "private", "sh", "-c", SETUP, "sh"]).args(programs);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line != "ready\n" {
            let why = holder.wait_with_output().unwrap().stderr;
            eprintln!("SKIPPED: no mount namespace can be made here: {}", String::from_utf8_lossy(&why).trim());
            return None;
        }
        Some(Namespace { holder })
    }

    /// Returns the command that runs a line of the shell in the namespace, in [`HOME`].
    pub(crate) fn shell(&self, line: &str, is_root: bool) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id())).arg(format!("--wdns={HOME}"));
        if !is_root {
            command.args(["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        }
        let path = format!("PATH=/run/bin:{}", std::env::var("PATH").unwrap_or_default());
        command.args(["env", "--unset=XDG_RUNTIME_DIR", "LC_ALL=C", &path, "sh", "-c", line]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.shell("umount --all --lazy --types fuse.onefold", true).output();
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
