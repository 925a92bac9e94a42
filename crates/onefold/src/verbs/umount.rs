//! `onefold pool umount`

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::Show;
use onefold_block::device::{DeviceError, FileDevice, OpenMode};
use onefold_export::control::{ControlClient, ControlError, FailureKind};
use onefold_export::holder_after_unmount;
use rustix::mount::UnmountFlags;
use serde_json::json;

use crate::cli::pool::UmountArgs;
use crate::dead_mount;
use crate::failure::{Failure, Outcome};
use crate::locate::{self, PoolTarget};
use crate::mounts::{self, PoolMount};
use crate::output::{Report, machine_name};
use crate::store::{refused, refused_without_mount};

/// How long a daemon may take to end after it has closed its pool.
const END_TIME_MAX: Duration = Duration::from_secs(10);
/// How long mount namespaces of other processes may take to release a pool.
const HOLDERS_WAIT_MAX: Duration = Duration::from_secs(2);
const END_POLL: Duration = Duration::from_millis(10);

pub(super) fn run(arguments: &UmountArgs) -> Outcome<Report> {
    let target = arguments.target.as_path();
    if let Some(bind) = bind_mount_at(target)? {
        return unmount_bind(&bind);
    }
    match locate::locate(target)? {
        PoolTarget::Mounted { mount, base } => {
            if base != mount.mountpoint {
                return Err(Failure::usage(format!("`{}` is not a mount point", base.shown()))
                    .hint(format!("it lies in the pool mounted at `{}`", mount.mountpoint.shown())));
            }
            unmount(&mount)
        }
        PoolTarget::Stale(mount) => clear(&mount),
        PoolTarget::Served(path) => end_daemon(&path),
        PoolTarget::Offline(path) => {
            Err(Failure::new(format!("cannot unmount `{}`", path.shown())).because_of("it is not mounted"))
        }
    }
}

/// Returns the bind mount of a pool, or of a file or folder in one, that covers exactly `target`. The pool's own mount
/// does not count: it is the first of its device in the table.
fn bind_mount_at(target: &Path) -> Outcome<Option<PoolMount>> {
    let mounts = mounts::mounted().map_err(|error| Failure::of_io("cannot list the mounts", &error))?;
    // Sends no request to the mount, whose daemon may have died.
    let named = std::path::absolute(target).ok();
    let resolved = || -> Option<PathBuf> { Some(fs::canonicalize(target.parent()?).ok()?.join(target.file_name()?)) };
    let at = |path: PathBuf| mounts.iter().rposition(|mount| mount.mountpoint == path);
    let Some(position) = named.and_then(at).or_else(|| at(resolved()?)) else { return Ok(None) };
    let mount = &mounts[position];
    let is_later = mounts[..position].iter().any(|other| other.device == mount.device);
    let is_bind = is_later || mount.root != Path::new("/");
    Ok((is_bind && !dead_mount::was_killed(mount)).then(|| mount.clone()))
}

/// Makes the kernel remove a bind mount. The pool stays mounted elsewhere, unless this was its last mount.
fn unmount_bind(bind: &PoolMount) -> Outcome<Report> {
    rustix::mount::unmount(&bind.mountpoint, UnmountFlags::NOFOLLOW).map_err(|errno| {
        let failure = Failure::of_io(format!("cannot unmount `{}`", bind.mountpoint.shown()), &errno.into());
        failure.hint(format!("`fuser -vm {}` shows who uses it", bind.mountpoint.shown()))
    })?;
    let json = json!({ "mountpoint": machine_name(&bind.mountpoint), "pool": machine_name(&bind.source), "daemon_had_died": false });
    Ok(Report::done("", json))
}

/// Makes the daemon of a mount end. Returns when the next process can open the pool.
fn unmount(mount: &PoolMount) -> Outcome<Report> {
    let mut process = None;
    let asked = ControlClient::connect(&mount.mountpoint).and_then(|mut client| {
        process = client.process();
        umount_unless_held(&mut client, Some(mount))
    });
    match asked {
        Ok(()) => {}
        Err(ControlError::Unreachable { .. }) if dead_mount::is_dead(mount) => return clear(mount),
        Err(error @ ControlError::Broken(_)) if !is_mounted(mount) => {
            return Err(Failure::new(format!(
                "`{}` is unmounted, but its daemon did not say how",
                mount.mountpoint.shown()
            ))
            .because(&error)
            .hint(format!("`onefold pool check {}` shows whether the pool is sound", mount.source.shown())));
        }
        // Detached, and still served elsewhere: there is no end to wait for.
        Err(error @ ControlError::Refused { kind: FailureKind::Held, .. }) => {
            return Err(or_kill(refused("unmount", mount, &error), process));
        }
        // The mount is gone, but clients use another door. The daemon continues, so there is no end to wait for.
        Err(error @ ControlError::Refused { kind: FailureKind::Busy, .. }) if !is_mounted(mount) => {
            let unmounted =
                format!("`{}` is unmounted, but its daemon still serves the pool", mount.mountpoint.shown());
            return Err(Failure::new(unmounted).because(&error).hint(format!(
                "once its clients have gone, `onefold pool umount {}` ends the daemon; all that was written is on disk",
                mount.source.shown()
            )));
        }
        // The daemon has ended the mount, and reports the outcome for the pool.
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

/// Ends the daemon of a pool without a mount here. Returns when the next process can open the pool.
fn end_daemon(pool: &Path) -> Outcome<Report> {
    let cannot = || format!("cannot end the daemon of `{}`", pool.shown());
    let metadata = fs::metadata(pool).map_err(|error| Failure::of_io(cannot(), &error))?;
    // A mount for another user alone is in the table as well.
    let mount = mounts::mounted().ok().and_then(|mounts| mounts::of_pool(&mounts, pool).cloned());
    let mut process = None;
    let asked = locate::daemon_of(&metadata).and_then(|client| {
        client.map_or(Ok(()), |mut client| {
            process = client.process();
            umount_unless_held(&mut client, mount.as_ref())
        })
    });
    if let Err(error) = asked {
        // A daemon removes its socket before it closes the pool, and reports the outcome afterwards.
        let has_ended = || matches!(locate::daemon_of(&metadata), Ok(None));
        return Err(match error {
            ControlError::Broken(_) if has_ended() => {
                Failure::new(format!("the daemon of `{}` has ended, but did not say how", pool.shown()))
                    .because(&error)
                    .hint(format!("`onefold pool check {}` shows whether the pool is sound", pool.shown()))
            }
            ControlError::Refused { kind: FailureKind::Failed, .. } if has_ended() => {
                wait_until_free(pool);
                Failure::new(format!("the daemon of `{}` has ended, but something was wrong", pool.shown()))
                    .because(&error)
            }
            error @ ControlError::Refused { kind: FailureKind::Held, .. } => {
                or_kill(refused_without_mount("end the daemon of", pool, &error), process)
            }
            error => refused_without_mount("end the daemon of", pool, &error),
        });
    }
    wait_until_free(pool);
    let json = json!({ "mountpoint": null, "pool": machine_name(pool), "daemon_had_died": false });
    Ok(Report::done("", json))
}

/// Has the daemon unmount. The daemon of a user may see less than root does (`hidepid` of `/proc`), and would detach a
/// mount that is still held elsewhere. So root looks first, and refuses as the daemon does: earlier writes are on disk.
fn umount_unless_held(client: &mut ControlClient, mount: Option<&PoolMount>) -> Result<(), ControlError> {
    if let (Some(mount), Some(process)) = (mount, client.process())
        && mount.user != 0
        && rustix::process::geteuid().is_root()
        && let Ok(Some(holder)) = holder_after_unmount(&mount.mountpoint, process, HOLDERS_WAIT_MAX)
    {
        client.sync()?;
        return Err(ControlError::Refused { kind: FailureKind::Held, message: holder.to_string() });
    }
    client.umount()
}

/// Adds to the hint of a failure how a user ends the daemon, whatever keeps its pool in use.
fn or_kill(mut failure: Failure, process: Option<u32>) -> Failure {
    if let (Some(hint), Some(process)) = (&mut failure.hint, process) {
        hint.push_str(&format!(
            "; `kill {process}` ends the daemon (`kill -9` if it stays), and programs that use the pool get errors"
        ));
    }
    failure
}

/// Waits until the daemon, which has closed the pool, has also released its file, so that the next command does not
/// meet its lock.
fn wait_until_free(pool: &Path) {
    let started = Instant::now();
    while matches!(FileDevice::open(pool, OpenMode::ReadOnly), Err(DeviceError::InUse { .. }))
        && started.elapsed() < END_TIME_MAX
    {
        thread::sleep(END_POLL);
    }
}

fn is_mounted(mount: &PoolMount) -> bool {
    mounts::mounted().is_ok_and(|mounts| mounts.contains(mount))
}

/// Removes the mount of a daemon that has died.
fn clear(mount: &PoolMount) -> Outcome<Report> {
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
