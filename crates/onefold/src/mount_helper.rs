//! Being called as `mount.fuse.onefold` by mount(8), for `/etc/fstab` and `mount -t fuse.onefold`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::failure::{Failure, Outcome};

/// The name under which mount(8) looks for a helper of type `fuse.onefold`.
const HELPER: &str = "mount.fuse.onefold";

/// Turns the arguments of a mount helper into those of `onefold pool mount`; others stay as they are.
///
/// mount(8) calls `mount.fuse.onefold SOURCE DIRECTORY [-sfnv] [-N namespace] [-o options] [-t type]`.
pub(crate) fn translate(arguments: Vec<OsString>) -> Outcome<Vec<OsString>> {
    let is_helper = arguments.first().is_some_and(|name| Path::new(name).file_name() == Some(OsStr::new(HELPER)));
    if !is_helper {
        return Ok(arguments);
    }
    let mut translated: Vec<OsString> = ["onefold", "pool", "mount"].map(OsString::from).to_vec();
    let mut rest = arguments.into_iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            // Sloppy, no mtab, verbose: nothing to do here.
            Some("-s" | "-n" | "-v") => {}
            Some("-t") => drop(rest.next()),
            Some("-o") => {
                let options = rest.next().unwrap_or_default();
                translated.extend(String::from_utf8_lossy(options.as_bytes()).split(',').filter_map(flag));
            }
            Some(option @ ("-f" | "-N")) => {
                return Err(Failure::usage(format!("{HELPER} cannot do `{option}`")));
            }
            _ => translated.push(argument),
        }
    }
    Ok(translated)
}

/// Turns an option of `/etc/fstab` into a flag of `onefold pool mount`: `ro` and `memory=2G` into `--read-only` and
/// `--memory=2G`. What is meant for mount(8) itself, or holds for every mounted pool, becomes nothing.
fn flag(option: &str) -> Option<OsString> {
    const FOR_MOUNT: [&str; 19] = [
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
        "relatime",
        "nosuid",
        "nodev",
        "nodiratime",
        "silent",
    ];
    const FOR_MOUNT_BEGINNINGS: [&str; 4] = ["x-", "comment=", "helper=", "uhelper="];
    if FOR_MOUNT.contains(&option) || FOR_MOUNT_BEGINNINGS.iter().any(|beginning| option.starts_with(beginning)) {
        return None;
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
        ] {
            assert_eq!(flag(option), None, "{option}");
        }
        assert_eq!(flag("allow_other"), Some("--allow-other".into()));
        assert_eq!(flag("commit_interval=250ms"), Some("--commit-interval=250ms".into()));
        assert_eq!(flag("noexec"), Some("--noexec".into()), "it is refused, not forgotten");
    }

    #[test]
    fn what_can_not_be_done_is_refused() {
        assert!(translated(&["mount.fuse.onefold", "a", "b", "-f"]).is_err());
        assert!(translated(&["mount.fuse.onefold", "a", "b", "-N", "1"]).is_err());
    }
}
