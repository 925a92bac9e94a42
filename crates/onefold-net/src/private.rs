//! Files with secrets: keys of certificates, and tokens. A file or folder that other users may read or change is
//! refused, as it has become known, or does not say what its owner wrote.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::NetError;

/// Maximum length of a file with secrets in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Permissions that nobody but the owner and readers of the file's group may have.
const OPEN: u32 = 0o027;
/// Permissions of others to change the content of a folder.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Permissions of a new folder.
const FOLDER_MODE: u32 = 0o700;

/// Overwrites a secret that is not needed any more. The compiler must assume that the zeros are read. Copies that a
/// move has left behind stay.
pub(crate) fn wipe(secret: &mut [u8]) {
    secret.fill(0);
    std::hint::black_box(&*secret);
}

/// Reads a file with secrets. It belongs to this user or to root, and is readable by at most its group besides.
///
/// # Errors
/// When the file cannot be read, is no regular file, is too long, belongs to another user, or is open to others.
pub(crate) fn read_private(path: &Path) -> Result<Vec<u8>, NetError> {
    let failed = |source| NetError::File { path: path.to_owned(), source };
    // Another kind of file may never answer.
    let at_once = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(at_once).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let content = |what: &str| NetError::Content { path: path.to_owned(), what: what.to_owned() };
    if !found.is_file() {
        return Err(content("is no regular file"));
    }
    if !is_own(found.uid()) {
        return Err(NetError::Foreign { path: path.to_owned() });
    }
    if found.mode() & OPEN != 0 {
        return Err(NetError::Open { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(content("is too long"));
    }
    Ok(bytes)
}

/// Prepares a folder that keeps secrets: makes it if it is absent. Only this user or root may change its content.
///
/// # Errors
/// When the folder cannot be made, is none, belongs to another user, or is open to others.
pub(crate) fn make_folder(path: &Path) -> Result<(), NetError> {
    let failed = |source| NetError::File { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path).map_err(failed)?;
    let found = std::fs::metadata(path).map_err(failed)?;
    if !is_own(found.uid()) {
        return Err(NetError::Foreign { path: path.to_owned() });
    }
    match found.mode() & WRITABLE_BY_OTHERS {
        0 => Ok(()),
        _ => Err(NetError::Open { path: path.to_owned() }),
    }
}

fn is_own(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn secrets_that_others_may_read_or_change_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "secret").unwrap();
        for (mode, is_accepted) in [
            (0o600, true),
            (0o400, true),
            (0o640, true),
            (0o660, false),
            (0o604, false),
            (0o602, false),
            (0o644, false),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            match read_private(&path) {
                Ok(bytes) => assert!(is_accepted && bytes == b"secret", "{mode:o}"),
                Err(error) => assert!(!is_accepted && matches!(error, NetError::Open { .. }), "{mode:o}: {error}"),
            }
        }
        assert!(matches!(read_private(folder.path()), Err(NetError::Content { .. })));
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert!(matches!(read_private(&pipe), Err(NetError::Content { .. })), "and nobody waits for a writer");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        assert!(read_private(&path).is_ok());
        fs::write(&path, vec![b'x'; (1 << 20) + 1]).unwrap();
        assert!(matches!(read_private(&path), Err(NetError::Content { .. })));
    }

    #[test]
    fn folders_that_others_may_change_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        make_folder(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        make_folder(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(make_folder(&path), Err(NetError::Open { .. })));
    }
}
