//! The files of trusted keys: `/etc/onefold/trusted-keys` for all users, and `onefold/trusted-keys` in the folder of a
//! user's settings. The keys of both are trusted. `ONEFOLD_TRUSTED_KEYS` names a file that replaces both.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_image::trust::TrustedKeys;

use super::secret::read_if_there;
use crate::failure::{Failure, Outcome};

const SYSTEM_FILE: &str = "/etc/onefold/trusted-keys";
/// The file in the folder of a user's settings.
const USER_FILE: &str = "onefold/trusted-keys";
/// Environment variable that names another file.
const VARIABLE: &str = "ONEFOLD_TRUSTED_KEYS";
/// Permissions of a new file: everybody may read which keys are trusted.
const FILE_MODE: u32 = 0o644;

/// Returns all trusted keys.
///
/// # Errors
/// When a file is wrong, or the one that the variable names does not exist: its lack must not mean that everything is
/// trusted.
pub(crate) fn all() -> Outcome<TrustedKeys> {
    if let Some(file) = variable(VARIABLE) {
        return of_named(&file);
    }
    let mut keys = TrustedKeys::default();
    for path in [Some(PathBuf::from(SYSTEM_FILE)), user_file()].into_iter().flatten() {
        keys.extend(of_file(&path)?);
    }
    Ok(keys)
}

/// Returns the keys of the file that the variable names.
fn of_named(path: &Path) -> Outcome<TrustedKeys> {
    match path.try_exists() {
        Ok(false) => Err(Failure::new(format!("cannot tell which keys are trusted by `{}`", path.shown()))
            .because_of("there is no such file")
            .hint(format!("correct {VARIABLE}; if no key is to be trusted, make the file empty"))),
        _ => of_file(path),
    }
}

/// Returns the file to which a key is added.
pub(super) fn own_file() -> Outcome<PathBuf> {
    if let Some(file) = variable(VARIABLE) {
        return Ok(file);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(SYSTEM_FILE));
    }
    user_file().ok_or_else(|| Failure::new("cannot tell where your settings are").hint("set HOME, or XDG_CONFIG_HOME"))
}

/// Returns the file of a user; root has only that of the system.
fn user_file() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let folder = variable("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute());
    let home = || variable("HOME").filter(|home| is_own(home)).map(|home| home.join(".config"));
    folder.or_else(home).map(|folder| folder.join(USER_FILE))
}

/// Returns whether a folder belongs to this user. `su` and `sudo` can leave the `HOME` of another user behind, whose
/// keys do not count, and whose folder cannot even be searched.
fn is_own(home: &Path) -> bool {
    fs::metadata(home).is_ok_and(|metadata| metadata.uid() == rustix::process::geteuid().as_raw())
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the keys of a file; none if it does not exist.
pub(super) fn of_file(path: &Path) -> Outcome<TrustedKeys> {
    let Some(text) = read_if_there(path)? else {
        return Ok(TrustedKeys::default());
    };
    TrustedKeys::parse(&text).map_err(|error| {
        Failure::new(format!("cannot tell which keys are trusted by `{}`", path.shown()))
            .because(&error)
            .hint("correct the line, or remove it")
    })
}

/// Replaces a file by one with further lines at its end, and with the same permissions. The file is whole at any time.
/// If the path is a symbolic link, it stays one. Two commands at once add the lines of both.
pub(super) fn append(path: &Path, lines: &str) -> Outcome<()> {
    let cannot = |error: &std::io::Error| Failure::of_io(format!("cannot write `{}`", path.shown()), error);
    let target = fs::canonicalize(path).ok();
    let path = target.as_deref().unwrap_or(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|error| cannot(&error))?;
    // The folder is locked, because another file takes the place of this one.
    let locked = fs::File::open(folder).map_err(|error| cannot(&error))?;
    locked.lock().map_err(|error| cannot(&error))?;
    let mode = fs::metadata(path).map_or(FILE_MODE, |metadata| metadata.permissions().mode() & 0o7777);
    let mut text = read_if_there(path)?.unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(lines);
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        locked.sync_all()
    };
    write().map_err(|error| cannot(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_exists() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trusted-keys");
        let failure = of_named(&path).unwrap_err();
        assert!(failure.hint.is_some_and(|hint| hint.contains(VARIABLE)));
        fs::write(&path, "").unwrap();
        assert!(of_named(&path).unwrap().is_empty());
    }
    #[test]
    fn lines_are_added_through_links_and_permissions_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("keys"), folder.path().join("link"));
        append(&path, "one\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, FILE_MODE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        append(&link, "two\n").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn lines_that_are_added_at_once_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || (0..5).for_each(|_| append(path, &format!("{number}\n")).unwrap()));
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 40);
    }
}
