//! `onefold pool umount`

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::Show;
use onefold_block::device::{DeviceError, FileDevice, OpenMode};
use onefold_export::control::{ControlClient, ControlError};
use serde_json::json;

use crate::cli::pool::UmountArgs;
use crate::dead_mount;
use crate::failure::{Failure, Outcome};
use crate::locate::{self, Located};
use crate::mounts::{self, Mount};
use crate::output::{Report, machine_name};
use crate::store::refused;

/// How long a daemon that has closed its pool may take to end.
const END_TIME_MAX: Duration = Duration::from_secs(10);
const END_POLL: Duration = Duration::from_millis(10);

pub(super) fn run(arguments: &UmountArgs) -> Outcome<Report> {
    let target = arguments.target.as_path();
    match locate::locate(target)? {
        Located::Mounted { mount, base } => {
            if base != mount.mountpoint {
                return Err(Failure::usage(format!("`{}` is not a mount point", base.shown()))
                    .hint(format!("it lies in the pool mounted at `{}`", mount.mountpoint.shown())));
            }
            unmount(&mount)
        }
        Located::Stale(mount) => clear(&mount),
        Located::Offline(path) => {
            Err(Failure::new(format!("cannot unmount `{}`", path.shown())).because_of("it is not mounted"))
        }
    }
}

/// Lets the daemon unmount; returns when the pool is free for the next to open.
fn unmount(mount: &Mount) -> Outcome<Report> {
    let asked = ControlClient::connect(&mount.mountpoint).and_then(|mut client| client.umount());
    match asked {
        Ok(()) => {}
        Err(ControlError::Unreachable { .. }) if dead_mount::is_dead(mount) => return clear(mount),
        Err(error @ ControlError::Broken(_)) if !is_mounted(mount) => {
            return Err(Failure::new(format!(
                "`{}` is unmounted, but its daemon did not say how",
                mount.mountpoint.shown()
            ))
            .because(&error)
            .hint(format!("`onefold pool check {}` tells whether all is well", mount.source.shown())));
        }
        // The daemon has ended the mount, and tells what became of the pool.
        Err(error @ ControlError::Refused { .. }) if !is_mounted(mount) => {
            wait_until_free(&mount.source);
            let unmounted = format!("`{}` is unmounted, but something was wrong", mount.mountpoint.shown());
            return Err(Failure::new(unmounted).because(&error));
        }
        Err(error) => return Err(refused("unmount", mount, &error)),
    }
    wait_until_free(&mount.source);
    let json = json!({ "mountpoint": machine_name(&mount.mountpoint), "pool": machine_name(&mount.source), "daemon_had_died": false });
    Ok(Report::done("", json))
}

/// Waits until the daemon, which has closed the pool, has let go of its file too: the next command shall not meet it.
fn wait_until_free(pool: &Path) {
    let started = Instant::now();
    while matches!(FileDevice::open(pool, OpenMode::ReadOnly), Err(DeviceError::InUse { .. }))
        && started.elapsed() < END_TIME_MAX
    {
        thread::sleep(END_POLL);
    }
}

fn is_mounted(mount: &Mount) -> bool {
    mounts::mounted().is_ok_and(|mounts| mounts.contains(mount))
}

/// Takes away the mount of a daemon that has died.
fn clear(mount: &Mount) -> Outcome<Report> {
    let mountpoint = mount.mountpoint.as_path();
    dead_mount::clear(mount)
        .map_err(|error| Failure::of_io(format!("cannot unmount `{}`", mountpoint.shown()), &error))?;
    let text = format!(
        "the daemon of {} had died; its mount is cleared away, and the next mount recovers the pool",
        mountpoint.shown()
    );
    Ok(Report::done(
        text,
        json!({ "mountpoint": machine_name(mountpoint), "pool": machine_name(&mount.source), "daemon_had_died": true }),
    ))
}
