//! The places of a pool in which the engine runs: the highest folders of each sharing domain.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use onefold_pool::{Attr, FileKind, Ino, Pool, PoolError};
use onefold_share::state;

/// The engine's records in a pool. A pool has no users of its own, so this is always root's state folder.
const FOLDER: &str = ".onefold";

/// A folder with another sharing domain than the folder above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DomainFolder {
    pub(super) path: PathBuf,
    pub(super) folder: Ino,
}

/// Finds all places of a pool; its root is the first.
pub(super) fn places(pool: &Pool) -> Result<Vec<DomainFolder>, PoolError> {
    let root = DomainFolder { path: PathBuf::new(), folder: Ino::ROOT };
    let mut places = vec![root.clone()];
    let mut ahead = vec![(root, pool.attr(Ino::ROOT)?.domain)];
    while let Some((above, domain)) = ahead.pop() {
        for (name, folder) in folders_in(pool, above.folder)? {
            let found = DomainFolder { path: above.path.join(name), folder };
            let of_found = pool.attr(folder)?.domain;
            if of_found != domain {
                places.push(found.clone());
            }
            ahead.push((found, of_found));
        }
    }
    Ok(places)
}

fn folders_in(pool: &Pool, folder: Ino) -> Result<Vec<(OsString, Ino)>, PoolError> {
    let mut folders = Vec::new();
    // Skips `.` and `..`.
    pool.read_directory(folder, 2, &mut |entry| {
        if entry.kind == FileKind::Directory {
            folders.push((OsString::from_vec(entry.name.clone()), entry.ino));
        }
        ControlFlow::Continue(())
    })?;
    Ok(folders)
}

/// Returns the attributes of the file at a path below a place.
pub(super) fn attr_at(pool: &Pool, place: &DomainFolder, path: &Path) -> Result<Attr, PoolError> {
    let mut attr = pool.attr(place.folder)?;
    for name in path {
        attr = pool.lookup(attr.ino, name.as_bytes())?;
        pool.release(attr.ino, 1);
    }
    Ok(attr)
}

/// Returns the path of a file in a place that has the name of the engine's records, but is not the engine's. Users may
/// have imported a tree with such a name, and their files must not be removed.
pub(super) fn not_ours(pool: &Pool, place: &DomainFolder) -> Result<Option<PathBuf>, PoolError> {
    let path = place.path.join(FOLDER);
    let found = match pool.lookup(place.folder, FOLDER.as_bytes()) {
        Ok(found) => found,
        Err(PoolError::NotFound) => return Ok(None),
        Err(error) => return Err(error),
    };
    pool.release(found.ino, 1);
    if found.kind != FileKind::Directory {
        return Ok(Some(path));
    }
    let mut other = None;
    pool.read_directory(found.ino, 2, &mut |entry| {
        if state::is_name(&entry.name) {
            return ControlFlow::Continue(());
        }
        other = Some(path.join(OsString::from_vec(entry.name.clone())));
        ControlFlow::Break(())
    })?;
    Ok(other)
}

/// Removes the engine's records from a place, if there are any.
pub(super) fn remove_state(pool: &Pool, place: &DomainFolder) -> Result<(), PoolError> {
    match pool.lookup(place.folder, FOLDER.as_bytes()) {
        Ok(found) => {
            pool.release(found.ino, 1);
            remove(pool, place.folder, FOLDER.as_bytes(), &found)
        }
        Err(PoolError::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes a file, or a folder with everything below it.
fn remove(pool: &Pool, parent: Ino, name: &[u8], attr: &Attr) -> Result<(), PoolError> {
    if attr.kind != FileKind::Directory {
        return pool.unlink(parent, name);
    }
    let mut names = Vec::new();
    pool.read_directory(attr.ino, 2, &mut |entry| {
        names.push(entry.name.clone());
        ControlFlow::Continue(())
    })?;
    for below in names {
        let found = pool.lookup(attr.ino, &below)?;
        pool.release(found.ino, 1);
        remove(pool, attr.ino, &below, &found)?;
    }
    pool.remove_directory(parent, name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onefold_block::BlockDevice;
    use onefold_pool::{CreateOptions, Environment, NewFile, OpenOptions, XattrMode};
    use onefold_testing::device::MemoryDevice;

    use super::*;

    fn folder(pool: &Pool, parent: Ino, name: &str) -> Ino {
        let new = NewFile { kind: FileKind::Directory, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let made = pool.create_file(parent, name.as_bytes(), &new).unwrap();
        pool.release(made.ino, 1);
        made.ino
    }

    fn new_pool() -> Pool {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8192));
        Pool::create(&device, &CreateOptions::default(), &Environment::system()).unwrap();
        let options = OpenOptions { background: false, memory_bytes: 64 << 20, ..OpenOptions::default() };
        Pool::open(device, options, Environment::system()).unwrap()
    }

    #[test]
    fn each_domain_has_a_place_of_its_own() {
        let pool = new_pool();
        let set = |folder, domain: &[u8]| pool.set_xattr(folder, b"user.onefold.domain", domain, XattrMode::Either);
        let red = folder(&pool, Ino::ROOT, "red");
        set(red, b"1").unwrap();
        let inner = folder(&pool, red, "inner");
        let blue = folder(&pool, inner, "blue");
        set(blue, b"2").unwrap();
        folder(&pool, folder(&pool, Ino::ROOT, "plain"), "more");
        let mut found = places(&pool).unwrap();
        found.sort_by(|one, other| one.path.cmp(&other.path));
        let expected = [("", Ino::ROOT), ("red", red), ("red/inner/blue", blue)];
        assert_eq!(found, expected.map(|(path, folder)| DomainFolder { path: path.into(), folder }));
        assert_eq!(attr_at(&pool, &found[1], Path::new("inner/blue")).unwrap().ino, blue);
        assert!(matches!(attr_at(&pool, &found[1], Path::new("blue")), Err(PoolError::NotFound)));
    }

    #[test]
    fn only_the_records_are_removed() {
        let pool = new_pool();
        let root = places(&pool).unwrap().remove(0);
        remove_state(&pool, &root).unwrap();
        let other = folder(&pool, Ino::ROOT, "other");
        let records = folder(&pool, Ino::ROOT, FOLDER);
        folder(&pool, folder(&pool, records, "logs"), "more");
        assert_eq!(not_ours(&pool, &root).unwrap(), None);
        remove_state(&pool, &root).unwrap();
        assert_eq!(folders_in(&pool, Ino::ROOT).unwrap(), [(OsString::from("other"), other)]);
    }

    #[test]
    fn what_only_has_the_name_of_the_records_is_told_apart() {
        let pool = new_pool();
        let root = places(&pool).unwrap().remove(0);
        assert_eq!(not_ours(&pool, &root).unwrap(), None);
        let records = folder(&pool, Ino::ROOT, FOLDER);
        folder(&pool, records, "arena");
        folder(&pool, records, "photos");
        assert_eq!(not_ours(&pool, &root).unwrap(), Some(Path::new(FOLDER).join("photos")));
        remove_state(&pool, &root).unwrap();
        let new = NewFile { kind: FileKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let made = pool.create_file(Ino::ROOT, FOLDER.as_bytes(), &new).unwrap();
        pool.release(made.ino, 1);
        assert_eq!(not_ours(&pool, &root).unwrap(), Some(PathBuf::from(FOLDER)));
    }
}
