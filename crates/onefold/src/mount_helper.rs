//! Called as `mount.fuse.onefold` by mount(8), for `/etc/fstab` and `mount -t fuse.onefold`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use onefold_block::Show;
use onefold_block::shown::ShownText;
use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::failure::{Failure, Outcome};
use crate::mount_options;

/// The name of mount(8)'s helper for the type `fuse.onefold`.
const HELPER: &str = "mount.fuse.onefold";

/// Options that the kernel implements for any file system, and that a pool passes on.
pub(crate) const BY_KERNEL: [&str; 4] = ["sync", "dirsync", "lazytime", "nosymfollow"];

/// Returns whether mount(8) has called this program.
pub(crate) fn is_helper(arguments: &[OsString]) -> bool {
    arguments.first().is_some_and(|name| Path::new(name).file_name() == Some(OsStr::new(HELPER)))
}

/// Changes the options of a mounted pool, if mount(8) requests that (`-o remount`). Returns `None` for other calls. The
/// kernel applies the change. The daemon's own options stay as they are; mount(8) repeats them from the mount table and
/// fstab.
pub(crate) fn remount(arguments: &[OsString]) -> Option<Outcome<()>> {
    let options = arguments.windows(2).find_map(|pair| (pair[0] == "-o").then_some(&pair[1]))?;
    let options = String::from_utf8_lossy(options.as_bytes());
    if !is_helper(arguments) || !options.split(',').any(|option| option == "remount") {
        return None;
    }
    let mountpoint = arguments.get(2)?;
    // The kernel only shows `dirsync`, the daemon does it.
    let is_kept = |option: &&str| *option == "dirsync" || mount_options::is_of_daemon(option);
    let kept: Vec<_> = options.split(',').filter(is_kept).collect();
    if !kept.is_empty() {
        eprintln!(
            "note: a remount does not support {}: the running daemon keeps its own; unmount and mount the pool to change \
             that",
            ShownText::line(&kept.join(","))
        );
    }
    let remounted = rustix::mount::mount_remount(mountpoint, remount_flags(&options), "");
    Some(remounted.map_err(|errno| {
        let cannot = format!("cannot change the options of the mount at `{}`", Path::new(mountpoint).shown());
        match errno {
            Errno::INVAL => Failure::new(cannot).because_of("nothing is mounted there"),
            _ => Failure::of_io(cannot, &errno.into()),
        }
    }))
}

/// Returns the kernel's new flags. Flags that `options` does not name end, except those that every pool has.
fn remount_flags(options: &str) -> MountFlags {
    let always = MountFlags::NOSUID | MountFlags::NODEV;
    // mount(8) puts the present options of the mount first, and the requested ones after them.
    options.split(',').fold(always, |flags, option| match option {
        "ro" => flags | MountFlags::RDONLY,
        "rw" => flags - MountFlags::RDONLY,
        "noatime" => flags | MountFlags::NOATIME,
        "atime" => flags - MountFlags::NOATIME,
        "nodiratime" => flags | MountFlags::NODIRATIME,
        "diratime" => flags - MountFlags::NODIRATIME,
        "relatime" => (flags - (MountFlags::NOATIME | MountFlags::STRICTATIME)) | MountFlags::RELATIME,
        "strictatime" => (flags - (MountFlags::NOATIME | MountFlags::RELATIME)) | MountFlags::STRICTATIME,
        "lazytime" => flags | MountFlags::LAZYTIME,
        "nolazytime" => flags - MountFlags::LAZYTIME,
        "sync" => flags | MountFlags::SYNCHRONOUS,
        "async" => flags - MountFlags::SYNCHRONOUS,
        "dirsync" => flags | MountFlags::DIRSYNC,
        "noexec" => flags | MountFlags::NOEXEC,
        "exec" => flags - MountFlags::NOEXEC,
        "nosymfollow" => flags | MountFlags::NOSYMFOLLOW,
        "symfollow" => flags - MountFlags::NOSYMFOLLOW,
        "bind" => flags | MountFlags::BIND,
        _ => flags,
    })
}

/// Turns the arguments of a mount helper into those of `onefold pool mount`; returns other arguments unchanged.
///
/// mount(8) calls `mount.fuse.onefold SOURCE DIRECTORY [-sfnv] [-N namespace] [-o options] [-t type]`.
pub(crate) fn translate(arguments: Vec<OsString>) -> Outcome<Vec<OsString>> {
    if !is_helper(&arguments) {
        return Ok(arguments);
    }
    let mut translated: Vec<OsString> = ["onefold", "pool", "mount"].map(OsString::from).to_vec();
    let mut rest = arguments.into_iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            // Sloppy, no mtab, verbose: no effect here.
            Some("-s" | "-n" | "-v") => {}
            Some("-t") => drop(rest.next()),
            Some("-o") => {
                let options = rest.next().unwrap_or_default();
                for option in String::from_utf8_lossy(options.as_bytes()).split(',') {
                    // The last of several options about one thing counts.
                    if ["relatime", "nostrictatime"].contains(&option) {
                        translated.retain(|flag| flag != "--strictatime");
                    }
                    let Some(flag) = flag(option) else { continue };
                    if !BY_KERNEL.contains(&option) {
                        mount_options::check(option, &flag)?;
                    }
                    translated.push(flag);
                }
            }
            Some(option @ ("-f" | "-N")) => {
                return Err(Failure::usage(format!("`mount {option}` is not supported for `fuse.onefold`")));
            }
            _ => translated.push(argument),
        }
    }
    Ok(translated)
}

/// Turns an option of `/etc/fstab` into a flag of `onefold pool mount`: `ro` and `memory=2G` into `--read-only` and
/// `--memory=2G`. Returns `None` for options that are meant for mount(8) itself, or that every mounted pool has anyway.
fn flag(option: &str) -> Option<OsString> {
    const FOR_MOUNT: [&str; 31] = [
        "",
        "defaults",
        "rw",
        "auto",
        "noauto",
        "nofail",
        "_netdev",
        "user",
        "nouser",
        "users",
        "owner",
        "group",
        "exec",
        "async",
        "atime",
        "diratime",
        "relatime",
        "nostrictatime",
        "nolazytime",
        "norelatime",
        "nosuid",
        "nodev",
        "nodiratime",
        "silent",
        "loud",
        "symfollow",
        "noiversion",
        "nomand",
        // Every pool has this.
        "acl",
        "user_xattr",
        "default_permissions",
    ];
    // Source and type always have the names of the pool, whatever the options say.
    const FOR_MOUNT_BEGINNINGS: [&str; 6] = ["x-", "comment=", "helper=", "uhelper=", "fsname=", "subtype="];
    if FOR_MOUNT.contains(&option) || FOR_MOUNT_BEGINNINGS.iter().any(|beginning| option.starts_with(beginning)) {
        return None;
    }
    if BY_KERNEL.contains(&option) {
        return Some(format!("--kernel-option={option}").into());
    }
    if option == "ro" {
        return Some("--read-only".into());
    }
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let name = name.replace('_', "-");
    Some(if value.is_empty() { format!("--{name}") } else { format!("--{name}={value}") }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(arguments: &[&str]) -> Outcome<Vec<OsString>> {
        translate(arguments.iter().map(OsString::from).collect())
    }

    #[test]
    fn a_call_by_mount_becomes_a_pool_mount() {
        let called = ["/sbin/mount.fuse.onefold", "/data/x.pool", "/mnt", "-n", "-s", "-o", "ro,memory=2G", "-t", "x"];
        let expected =
            ["onefold", "pool", "mount", "/data/x.pool", "/mnt", "--read-only", "--memory=2G"].map(OsString::from);
        assert_eq!(translated(&called), Ok(expected.to_vec()));
    }

    #[test]
    fn every_other_call_stays_as_it_is() {
        let called = ["/usr/bin/onefold", "pool", "stat", "-n"];
        assert_eq!(translated(&called), Ok(called.map(OsString::from).to_vec()));
        assert_eq!(translated(&[]), Ok(Vec::new()));
    }

    #[test]
    fn options_for_mount_itself_are_passed_over_and_unknown_ones_are_not() {
        for option in [
            "defaults",
            "rw",
            "nofail",
            "_netdev",
            "x-systemd.requires=network.target",
            "comment=images",
            "uhelper=fuse.onefold",
            "",
            "nostrictatime",
            "acl",
            "user_xattr",
            "default_permissions",
            "fsname=x",
            "subtype=x",
        ] {
            assert_eq!(flag(option), None, "{option}");
        }
        // Seen: the helper refused all of these (xfstests generic/003).
        for option in ["sync", "dirsync", "lazytime", "nosymfollow"] {
            assert_eq!(flag(option), Some(format!("--kernel-option={option}").into()));
        }
        assert_eq!(flag("strictatime"), Some("--strictatime".into()));
        assert_eq!(flag("allow_other"), Some("--allow-other".into()));
        assert_eq!(flag("commit_interval=250ms"), Some("--commit-interval=250ms".into()));
        assert_eq!(flag("noexec"), Some("--noexec".into()), "it is refused, not forgotten");
    }

    #[test]
    fn a_remount_is_for_the_kernel_and_keeps_what_holds_for_each_pool() {
        let call = |arguments: &[&str]| remount(&arguments.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(call(&["mount.fuse.onefold", "a.pool", "/nonexistent", "-o", "ro"]).is_none());
        assert!(call(&["onefold", "a.pool", "/nonexistent", "-o", "remount,ro"]).is_none());
        let failure = call(&["mount.fuse.onefold", "a.pool", "/nonexistent", "-o", "rw,remount"]).unwrap().unwrap_err();
        assert!(failure.to_string().contains("/nonexistent"), "{failure}");
        let always = MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(remount_flags("remount,ro,memory=2G,user_id=0"), always | MountFlags::RDONLY);
        assert_eq!(remount_flags("ro,remount,rw,strictatime"), always | MountFlags::STRICTATIME);
        assert_eq!(
            remount_flags("nosymfollow,sync,noatime,remount,symfollow,async,relatime"),
            always | MountFlags::RELATIME
        );
    }

    #[test]
    fn what_can_not_be_done_is_refused() {
        assert!(translated(&["mount.fuse.onefold", "a", "b", "-f"]).is_err());
        assert!(translated(&["mount.fuse.onefold", "a", "b", "-N", "1"]).is_err());
        let failure = translated(&["mount.fuse.onefold", "a", "b", "-o", "noatime,noexec"]).unwrap_err();
        assert!(failure.error.contains("`noexec` is not an option"), "{failure}");
    }
}
