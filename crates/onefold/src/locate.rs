//! Decides from the kind of a path how a command reaches a pool: through its running daemon, or by opening it itself.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_export::control::{ControlClient, ControlError};
use onefold_export::{PoolPlace, RunDirectory};

use crate::dead_mount::{self, is_dead};
use crate::failure::{Failure, Outcome};
use crate::mounts::{self, PoolMount};
use crate::users;

/// How to reach a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolTarget {
    /// A daemon serves it through a mount.
    Mounted {
        /// The mount.
        mount: PoolMount,
        /// The given directory: the mount point or one below it.
        base: PathBuf,
    },
    /// A daemon serves it, without a mount that this process sees. Holds the canonical path of its file or partition.
    Served(PathBuf),
    /// No daemon serves it. Holds the canonical path of its file or partition.
    Offline(PathBuf),
    /// Its daemon has died; the mount point is still there.
    Stale(PoolMount),
}

/// Finds the pool at `target`: a mount point (or a path below it), or the pool's file or partition.
pub(crate) fn locate(target: &Path) -> Outcome<PoolTarget> {
    let cannot = || format!("cannot find a pool at `{}`", target.shown());
    let mounts = mounts::mounted().map_err(|error| Failure::of_io("cannot list the mounts", &error))?;
    // First without accessing it: behind a daemon that cannot end, that would wait for ever.
    let named = std::path::absolute(target);
    if let Some(mount) = named.ok().and_then(|path| mounts::containing(&mounts, &path))
        && mount.is_believed()
        && dead_mount::was_killed(mount)
    {
        return Ok(PoolTarget::Stale(mount.clone()));
    }
    let found = fs::canonicalize(target).and_then(|path| Ok((fs::metadata(&path)?, path)));
    let (metadata, path) = match found {
        Ok(found) => found,
        // The mount point of a dead daemon often cannot be accessed, only named.
        Err(error) => {
            let path = std::path::absolute(target).map_err(|error| Failure::of_io(cannot(), &error))?;
            return match mounts::containing(&mounts, &path) {
                Some(mount) if !mount.is_believed() => Err(not_believed(cannot(), mount)),
                Some(mount) if is_dead(mount) => Ok(PoolTarget::Stale(mount.clone())),
                Some(mount) if is_closed(mount) => behind_closed_mount(mount, cannot()),
                _ => Err(Failure::of_io(cannot(), &error)),
            };
        }
    };
    if metadata.is_dir() {
        let mount = mounts::containing(&mounts, &path).ok_or_else(|| {
            Failure::new(cannot())
                .because_of("it is a directory in which no pool is mounted")
                .hint("give the pool's file or partition, or mount it with `onefold pool mount`")
        })?;
        if !mount.is_believed() {
            return Err(not_believed(cannot(), mount));
        }
        return Ok(if is_dead(mount) {
            PoolTarget::Stale(mount.clone())
        } else {
            PoolTarget::Mounted { mount: mount.clone(), base: path }
        });
    }
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(Failure::new(cannot()).because_of("it is neither a file, a partition nor a directory"));
    }
    match mounts::of_pool(&mounts, &path) {
        None => match daemon_of(&metadata) {
            Ok(Some(_)) => Ok(PoolTarget::Served(path)),
            Ok(None) => Ok(PoolTarget::Offline(path)),
            Err(error) => Err(Failure::new(cannot()).because(&error)),
        },
        Some(mount) if is_dead(mount) => Ok(PoolTarget::Stale(mount.clone())),
        Some(mount) if is_closed(mount) => behind_closed_mount(mount, cannot()),
        Some(mount) => Ok(PoolTarget::Mounted { mount: mount.clone(), base: mount.mountpoint.clone() }),
    }
}

/// Returns whether only the user who mounted may use a mount, and this is another one. That includes root: a mount
/// without `allow_other` does not even admit root.
fn is_closed(mount: &PoolMount) -> bool {
    let is_another = mount.user != rustix::process::geteuid().as_raw();
    let looked = || fs::symlink_metadata(&mount.mountpoint).map_err(|error| error.kind());
    is_another && looked().is_err_and(|kind| kind == std::io::ErrorKind::PermissionDenied)
}

/// Finds the daemon of a closed mount by the pool's file.
fn behind_closed_mount(mount: &PoolMount, cannot: String) -> Outcome<PoolTarget> {
    let found = fs::canonicalize(&mount.source).and_then(|path| Ok((fs::metadata(&path)?, path)));
    if let Ok((metadata, path)) = found
        && let Ok(Some(_)) = daemon_of(&metadata)
    {
        return Ok(PoolTarget::Served(path));
    }
    let mountpoint = mount.mountpoint.shown();
    let failure = Failure::new(cannot)
        .because_of(format!("user {} has it mounted at `{mountpoint}`, for that user alone", users::shown(mount.user)));
    Err(match rustix::process::geteuid().is_root() {
        true => failure.hint(format!(
            "`setpriv --reuid {} --clear-groups onefold pool ...` runs the command as that user; `umount {mountpoint}` \
             unmounts the pool",
            mount.user
        )),
        false => failure.hint("run the command as that user, or as root"),
    })
}

/// Returns a connection to the daemon of a pool whose file or partition has this metadata, if there is one that this
/// user trusts.
pub(crate) fn daemon_of(metadata: &Metadata) -> Result<Option<ControlClient>, ControlError> {
    let Some(place) = PoolPlace::of(metadata) else { return Ok(None) };
    ControlClient::find(&place, &RunDirectory::of_pool_owned_by(metadata.uid()))
}

/// Returns the failure of a command that needs a pool without a daemon.
pub(crate) fn served(cannot: String, pool: &Path) -> Failure {
    Failure::new(cannot)
        .because_of("a daemon serves it")
        .hint(format!("`onefold pool umount {}` ends that daemon", pool.shown()))
}

/// Returns the failure of a command for a mount that any user could have made.
fn not_believed(cannot: String, mount: &PoolMount) -> Failure {
    let PoolMount { mountpoint, source, user, .. } = mount;
    Failure::new(cannot)
        .because_of(format!(
            "user {} mounted it and does not own `{}`, which it claims to be",
            users::shown(*user),
            source.shown()
        ))
        .hint(format!("`fusermount3 -u {}` as that user, or `umount` as root, removes it", mountpoint.shown()))
}

/// Returns the failure of a command that needs a living daemon or an unmounted pool.
pub(crate) fn stale(mount: &PoolMount) -> Failure {
    let mountpoint = mount.mountpoint.shown();
    Failure::new(format!("cannot reach the pool mounted at `{mountpoint}`")).because_of("its daemon has died").hint(
        format!(
            "`onefold pool umount {mountpoint}` removes it, and so does mounting the pool again; nothing synced is lost"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_nobody_has_mounted_is_offline() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = fs::canonicalize(file.path()).unwrap();
        assert_eq!(locate(file.path()), Ok(PoolTarget::Offline(path)));
    }

    #[test]
    fn a_directory_without_a_pool_is_refused_with_a_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let failure = locate(folder.path()).unwrap_err();
        assert!(failure.to_string().contains("no pool is mounted"), "{failure}");
        assert!(failure.hint.is_some());
    }

    #[test]
    fn what_is_no_file_at_all_is_refused() {
        assert!(locate(Path::new("/dev/null")).is_err());
        assert!(locate(Path::new("/nonexistent/images.pool")).is_err());
    }
}
