//! Sessions with pools that are mounted: by root, by a user without rights, and on a host that has little room.

use crate::common::has;
use crate::namespace::Namespace;
use crate::transcript::Transcript;

/// Waits until a mounted pool has freed what was deleted.
const WAIT: &str = "until onefold pool stat --json mnt | grep -q '\"reclaim_pending\": *0'; do sleep 0.1; done";

#[test]
fn a_user_without_rights_mounts_a_pool() {
    let Some(namespace) = Namespace::new() else { return };
    let mut session = Transcript::in_namespace(&namespace);
    session.shell_as_nobody("onefold pool create --size 64M images.pool").done();
    session.shell_as_nobody("onefold pool mount images.pool mnt");
    session.shell_as_nobody("mkdir mnt && onefold pool mount images.pool mnt").done();
    session.shell("ls mnt");
    session.shell("onefold pool list").done();
    session.shell("onefold pool stat mnt | grep free").done();
    session.shell("onefold pool ls mnt");
    session.shell("onefold pool umount mnt").done();
    session.shell("mkdir roots");
    session.shell_as_nobody("onefold pool mount images.pool roots");
    session.shell_as_nobody("onefold pool mount --allow-other images.pool mnt");
    session.shell("chmod 600 /dev/fuse").done();
    session.shell_as_nobody("onefold pool mount images.pool mnt");
    session.shell("chmod 666 /dev/fuse").done();
    session
        .shell_as_nobody("mkdir -m 700 run && XDG_RUNTIME_DIR=/tmp/home/run onefold pool mount images.pool mnt")
        .done();
    session.shell("onefold pool stat mnt");
    session.shell("onefold pool umount mnt");
    session.shell("umount mnt").done();
    session.shell("onefold pool create --size 64M roots.pool").done();
    session.shell_as_nobody("onefold pool stat roots.pool");
    session.shell_as_nobody("onefold pool mount roots.pool mnt");
    session.assert_kept("users");
}

#[test]
fn a_host_with_little_room_below_a_sparse_pool() {
    let Some(namespace) = Namespace::new() else { return };
    let mut session = Transcript::in_namespace(&namespace);
    session.shell("mkdir small mnt && mount -t tmpfs -o size=24M small small").done();
    session.shell("onefold pool create --size 64M small/images.pool").done();
    session.shell("onefold pool mount --discard off small/images.pool mnt").done();
    session.shell("head -c 8M /dev/urandom >mnt/a.raw && sync -f mnt").done();
    session.shell("onefold pool stat mnt | sed -n '/^below/,$p'").done();
    session.shell("cat /dev/zero >small/other 2>/dev/null; onefold pool stat mnt | sed -n '/^below/,$p'").done();
    session.shell("df --output=size,avail -h small mnt").done();
    session.shell(&format!("rm mnt/a.raw && sync -f mnt && {WAIT}")).done();
    session.shell("fstrim mnt && onefold pool stat mnt | sed -n '/^below/,$p'").done();
    session.shell("head -c 4M /dev/urandom >mnt/b.raw && sync -f mnt && rm mnt/b.raw && sync -f mnt").done();
    session.shell(&format!("{WAIT}; onefold pool trim mnt")).done();
    session.shell("onefold pool umount mnt").done();
    session.assert_kept("little-room");
}

/// A remount changes what the kernel does with any file system, and says what it cannot change.
#[test]
fn a_remount_says_what_it_does_not_change() {
    let Some(namespace) = Namespace::new() else { return };
    let mut session = Transcript::in_namespace(&namespace);
    session.shell("mkdir mnt && onefold pool create --size 64M images.pool").done();
    session.shell("mount.fuse.onefold images.pool mnt -o rw").done();
    session.shell("mount.fuse.onefold images.pool mnt -o rw,memory=2G,remount,ro").done();
    session.shell("touch mnt/a.raw");
    session.shell("mount.fuse.onefold images.pool mnt -o remount,rw && touch mnt/a.raw").done();
    session.shell("mount.fuse.onefold images.pool mnt -o rw");
    session.shell("onefold pool umount mnt").done();
    session.shell("mount.fuse.onefold images.pool mnt -o remount,ro");
    session.assert_kept("remount");
}

/// The end of a day with clones, and the words of `make demo` for it: both wait for the space of deleted clones.
#[test]
fn deleted_clones_are_gone() {
    let Some(namespace) = Namespace::new() else { return };
    if !has("jq", "jq") {
        return;
    }
    let mut session = Transcript::in_namespace(&namespace);
    session.shell("mkdir mnt && onefold pool create --size 64M images.pool").done();
    session.shell("onefold pool mount images.pool mnt && mkdir mnt/clones").done();
    session.shell("head -c 4M /dev/urandom >mnt/base.raw").done();
    session.shell("onefold pool clone mnt base.raw clones/vm-%02d.raw --count 50").done();
    session.shell("onefold pool stat mnt | grep -e apparent -e saved").done();
    session
        .shell("bash -ec '. /run/scripts/lib.sh; . /run/scripts/pool.sh; onefold=onefold MNT=mnt delete_clones'")
        .done();
    session.shell("onefold pool stat mnt | grep -e apparent -e saved").done();
    session.shell("onefold pool umount mnt").done();
    session.assert_kept("deleted-clones");
}
