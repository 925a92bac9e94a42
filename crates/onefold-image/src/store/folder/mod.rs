//! A store in a folder: each object is a file, and the parts of its name are folders.
//!
//! An object is first written to a temporary file beside it and synced. Then the file gets the object's name, by `link`
//! if the object must not exist, and the folder is synced. So the object is whole or absent, and durable once the call
//! returns. The same holds for an object that `link` finds. NFS and cluster file systems make the same promise for
//! `link`. Names of temporary files begin with a dot, so leftovers are not objects.

mod beneath;
mod files;
#[cfg(test)]
pub(crate) mod power_cut;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use onefold_block::random::{Random, SystemRandom};
use onefold_block::{Show, Timestamp};
use parking_lot::Mutex;
use rustix::io::Errno;

use self::beneath::RealFiles;
use self::files::{EntryKind, Files};
use super::{ByteRange, Creation, LIST_MAX, ListedObject, ObjectName, Store, StoreError};

/// The beginning of the names of temporary files.
const TEMPORARY: &str = ".new-";
/// Maximum number of folders that are remembered as durable.
const KNOWN_MAX: usize = 10_000;

/// A store in a folder of the host.
#[derive(Debug)]
pub struct FolderStore {
    folder: Folder<RealFiles>,
    /// Its path without links, as far as that is known.
    place: Vec<u8>,
}

impl FolderStore {
    /// Opens an existing folder.
    ///
    /// # Errors
    /// When the folder cannot be opened.
    pub fn open(path: &Path) -> Result<FolderStore, StoreError> {
        let files = RealFiles::open(path).map_err(failed("open", &path.shown()))?;
        let place = std::fs::canonicalize(path).map(|path| path.into_os_string().into_vec()).unwrap_or_default();
        Ok(FolderStore { folder: Folder::new(files, Box::new(SystemRandom)), place })
    }

    /// Opens a folder, and makes it if it does not exist. Its parent must exist.
    ///
    /// # Errors
    /// When the folder can be neither made nor opened.
    pub fn create(path: &Path) -> Result<FolderStore, StoreError> {
        let above = match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        let made = rustix::fs::mkdir(path, rustix::fs::Mode::RWXU).map_err(io::Error::from);
        let sync = || RealFiles::open(above).and_then(|above| above.sync_folder(""));
        settle(made, sync).map_err(failed("make", &path.shown()))?;
        FolderStore::open(path)
    }
}

/// Makes the name of a folder durable that was made, or was there: its maker may have died before this. A user who
/// was given a folder may lack the right to do so.
fn settle(made: io::Result<()>, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let existed = match made {
        Ok(()) => false,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => true,
        Err(error) => return Err(error),
    };
    match sync() {
        Err(error) if existed && error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

impl Store for FolderStore {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        self.folder.get(name, range)
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        self.folder.put(name, parts)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        self.folder.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        self.folder.list(prefix, after)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.folder.delete(name)
    }

    fn place(&self) -> Vec<u8> {
        self.place.clone()
    }

    fn remove_leftovers(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.folder.remove_leftovers(before)
    }
}

/// Objects as files.
struct Folder<F> {
    files: F,
    random: Box<dyn Random>,
    /// Folders whose own names are durable.
    known: Mutex<HashSet<String>>,
}

impl<F: fmt::Debug> fmt::Debug for Folder<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Folder").field(&self.files).finish()
    }
}

/// Returns a function that wraps an error of the operating system.
fn failed(action: &'static str, name: &dyn fmt::Display) -> impl Fn(io::Error) -> StoreError {
    let name = name.to_string();
    move |source| StoreError::Io { action, name: name.clone(), source }
}

/// Returns the error of a `link` that was certainly refused; `None` if it may have taken effect, as where the server of
/// a network file system does not answer.
fn refusal(error: &io::Error) -> Option<io::Error> {
    match Errno::from_io_error(error)? {
        // The file is new and its user's own, so this is the answer of a file system without links.
        Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS => {
            Some(io::Error::new(ErrorKind::Unsupported, "the file system has no hard links"))
        }
        errno @ (Errno::ACCESS | Errno::ROFS | Errno::NOSPC | Errno::DQUOT | Errno::MLINK | Errno::NAMETOOLONG) => {
            Some(errno.into())
        }
        _ => None,
    }
}

/// Returns the folder of an object, and its name in that folder.
fn split(name: &ObjectName) -> (&str, &str) {
    split_path(name.as_str())
}

fn split_path(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl<F: Files> Folder<F> {
    fn new(files: F, random: Box<dyn Random>) -> Folder<F> {
        Folder { files, random, known: Mutex::default() }
    }

    /// Writes a temporary file beside an object, makes it durable, and returns its name.
    fn write_beside(&self, name: &ObjectName, parts: &[&[u8]]) -> io::Result<String> {
        let (folder, _) = split(name);
        self.ensure_folder(folder)?;
        let mut unique = [0; 16];
        self.random.fill(&mut unique)?;
        let temporary = format!("{TEMPORARY}{:032x}", u128::from_le_bytes(unique));
        let path = if folder.is_empty() { temporary.clone() } else { format!("{folder}/{temporary}") };
        let mut file = match self.files.make_file(&path) {
            // Another host removed the folder because it was empty.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.known.lock().clear();
                self.ensure_folder(folder)?;
                self.files.make_file(&path)?
            }
            made => made?,
        };
        let written = parts.iter().try_for_each(|part| self.files.write(&mut file, part));
        match written.and_then(|()| self.files.sync_file(&mut file)) {
            Ok(()) => Ok(temporary),
            Err(error) => {
                // Removes a partially written file. If that fails, its name still does not denote an object.
                let _ = self.files.unlink(folder, &temporary);
                Err(error)
            }
        }
    }

    /// Makes a folder and its parents. An existing folder may come from another host that has not synced its name yet.
    fn ensure_folder(&self, folder: &str) -> io::Result<()> {
        if folder.is_empty() || self.known.lock().contains(folder) {
            return Ok(());
        }
        let (above, name) = split_path(folder);
        self.ensure_folder(above)?;
        match self.files.make_folder(above, name) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.files.sync_folder(above)?;
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(folder.to_owned());
        Ok(())
    }
}

impl<F: Files> Store for Folder<F> {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        match self.files.read(name.as_str(), range) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(StoreError::Foreign { name: name.to_string(), what: "it is not a regular file" }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(StoreError::Missing(name.clone())),
            Err(error) => Err(failed("read", name)(error)),
        }
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        let (folder, last) = split(name);
        let put = || {
            let temporary = self.write_beside(name, parts)?;
            if let Err(error) = self.files.rename(folder, &temporary, last) {
                let _ = self.files.unlink(folder, &temporary);
                return Err(error);
            }
            self.files.sync_folder(folder)
        };
        put().map_err(failed("write", name))
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        let (folder, last) = split(name);
        let not_made = |source| StoreError::NotMade { name: name.to_string(), source };
        // Nothing has the name of the object yet.
        let temporary = self.write_beside(name, &[bytes]).map_err(not_made)?;
        let linked = self.files.link(folder, &temporary, last);
        // If this fails, the leftover is not an object.
        let _ = self.files.unlink(folder, &temporary);
        let created = match linked {
            Ok(()) => Creation::New,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Creation::Exists,
            Err(error) => {
                return Err(match refusal(&error) {
                    Some(refusal) => not_made(refusal),
                    None => failed("write", name)(error),
                });
            }
        };
        // An existing object may come from a call that failed or is still running, or from a program that copied the
        // archive and synced nothing. Its bytes and its name must be durable before the caller relies on it.
        if created == Creation::Exists {
            match self.files.sync_named(name.as_str()) {
                // A collection has removed it since.
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed("write", name)(error)),
                _ => {}
            }
        }
        self.files.sync_folder(folder).map_err(failed("write", name))?;
        Ok(created)
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        let after = after.map_or("", ObjectName::as_str);
        let mut listing = FolderListing { files: &self.files, prefix, after, found: Vec::new() };
        listing.folder("").map_err(failed("list", &prefix))?;
        Ok(listing.found)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        let (folder, last) = split(name);
        match self.files.unlink(folder, last) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", name)(error)),
            // The removal need not be durable: an object that returns after a power cut is deleted again.
            _ => Ok(()),
        }
    }

    fn remove_leftovers(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.remove_temporary("", before).map_err(failed("remove", &"temporary files"))
    }
}

impl<F: Files> Folder<F> {
    /// Removes temporary files that were last written before a moment, in a folder and below. Returns their bytes.
    fn remove_temporary(&self, folder: &str, before: Timestamp) -> io::Result<u64> {
        let mut removed_bytes = 0_u64;
        for name in self.files.names(folder)? {
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            // No object is named like a temporary file, and none lies deeper than the folder of a writer.
            let is_temporary = name.starts_with(TEMPORARY);
            let may_be_folder = path.matches('/').count() < 2 && ObjectName::new(&path).is_some();
            if !is_temporary && !may_be_folder {
                continue;
            }
            match self.files.find(folder, &name) {
                Ok(EntryKind::File { length_bytes, modified }) if is_temporary && modified < before => {
                    match self.files.unlink(folder, &name) {
                        Ok(()) => removed_bytes = removed_bytes.saturating_add(length_bytes),
                        // Another collection was faster.
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(EntryKind::Folder) if may_be_folder => {
                    removed_bytes = removed_bytes.saturating_add(self.remove_temporary(&path, before)?);
                }
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(removed_bytes)
    }
}

/// A listing of a folder and the folders in it, as it is made.
struct FolderListing<'a, F> {
    files: &'a F,
    prefix: &'a str,
    after: &'a str,
    found: Vec<ListedObject>,
}

impl<F: Files> FolderListing<'_, F> {
    /// Adds the objects of a folder, whose path ends with `/`. Folders are sorted as if a `/` followed their names,
    /// which is how the names of their objects sort.
    fn folder(&mut self, path: &str) -> io::Result<()> {
        let folder = path.trim_end_matches('/');
        let names = match self.files.names(folder) {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let paths = names.into_iter().map(|name| format!("{path}{name}"));
        let mut entries: BTreeSet<String> = paths
            .filter(|path| ObjectName::new(path).is_some() && self.may_have(path) && self.may_follow(path))
            .collect();
        while self.found.len() < LIST_MAX
            && let Some(entry) = entries.pop_first()
        {
            if entry.ends_with('/') {
                self.folder(&entry)?;
                continue;
            }
            // Only now, as folders may have many objects that are not wanted.
            match self.files.find(folder, split_path(&entry).1) {
                Ok(EntryKind::File { length_bytes, modified })
                    if entry.starts_with(self.prefix) && entry.as_str() > self.after =>
                {
                    self.found.extend(ObjectName::new(&entry).map(|name| ListedObject {
                        name,
                        length_bytes,
                        modified,
                    }));
                }
                Ok(EntryKind::Folder) => {
                    entries.insert(entry + "/");
                }
                Ok(EntryKind::File { .. } | EntryKind::Other) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether this object, or one below it, can come after the one behind which the listing begins.
    fn may_follow(&self, path: &str) -> bool {
        let below = format!("{path}/");
        below.as_str() > self.after || self.after.starts_with(&below)
    }

    /// Returns whether this object, or one below it, can have the prefix.
    fn may_have(&self, path: &str) -> bool {
        path.starts_with(self.prefix) || self.prefix.starts_with(path)
    }
}
