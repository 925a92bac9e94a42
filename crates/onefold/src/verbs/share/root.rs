//! Finds the file system of paths, and their names below its root.

use std::path::{Path, PathBuf};

use onefold_block::Show;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::failure::{Failure, Outcome};

/// Paths on one file system.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RootedPaths {
    /// The mount point of the file system.
    pub(crate) root: PathBuf,
    /// The paths below it.
    pub(crate) paths: Vec<PathBuf>,
}

/// Finds the file system that contains all paths.
pub(crate) fn locate(paths: &[PathBuf]) -> Outcome<RootedPaths> {
    let mut located: Option<(RootedPaths, u64)> = None;
    for path in paths {
        let cannot = |error: &std::io::Error| Failure::of_io(format!("cannot open `{}`", path.shown()), error);
        let whole = path.canonicalize().map_err(|error| cannot(&error))?;
        let mount = mount_of(&whole).map_err(|error| cannot(&error))?;
        match &mut located {
            None => {
                let root = root_of(&whole, mount).map_err(|error| cannot(&error))?;
                let below = below(&whole, &root);
                located = Some((RootedPaths { root, paths: vec![below] }, mount));
            }
            Some((first, first_mount)) if *first_mount == mount => {
                let below = below(&whole, &first.root);
                first.paths.push(below);
            }
            Some((first, _)) => {
                return Err(Failure::usage("cannot share blocks between different file systems")
                    .because_of(format!("`{}` is not on the one mounted at `{}`", path.shown(), first.root.shown()))
                    .hint("run the command once for each file system"));
            }
        }
    }
    located.map(|(located, _)| located).ok_or_else(|| Failure::usage("no path is named"))
}

fn below(path: &Path, root: &Path) -> PathBuf {
    path.strip_prefix(root).map(Path::to_owned).unwrap_or_default()
}

/// Returns the highest folder above a path on the same mount.
fn root_of(path: &Path, mount: u64) -> std::io::Result<PathBuf> {
    let mut root = path;
    while let Some(parent) = root.parent() {
        if mount_of(parent)? != mount {
            break;
        }
        root = parent;
    }
    Ok(root.to_owned())
}

/// Returns the number of the mount that contains a path.
fn mount_of(path: &Path) -> std::io::Result<u64> {
    let stat = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID)?;
    Ok(stat.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_below_the_root_of_their_file_system() {
        let located = locate(&[PathBuf::from("/proc/self/status"), PathBuf::from("/proc/")]).unwrap();
        assert_eq!(located.root, Path::new("/proc"));
        assert_eq!(located.paths[1], Path::new(""));
        assert!(located.paths[0].ends_with("status"));
    }

    #[test]
    fn different_file_systems_are_refused() {
        let failure = locate(&[PathBuf::from("/proc"), PathBuf::from("/sys")]).unwrap_err();
        assert!(failure.to_string().contains("`/sys` is not on the one mounted at `/proc`"), "{failure}");
    }
}
