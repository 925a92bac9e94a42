//! Names: folders and their entries.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use onefold_substrate::{Protection, UserNo};
use rustix::io::Errno;

use super::files::{AttributeMap, FileNo};
use super::host::HostNo;
use super::rights::{ENTER, Ownership};

/// Number of a folder. Numbers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FolderNo(pub(super) u32);

impl FolderNo {
    pub(super) const ROOT: FolderNo = FolderNo(0);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Name of an entry in its folder.
pub(super) type Name = Rc<[u8]>;

/// The target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameTarget {
    File(FileNo),
    Folder(FolderNo),
    /// A symbolic link, which no call follows.
    Symlink,
}

/// Folders that a mount keeps open, by the paths that they had.
pub(super) type KeptFolders = Rc<Vec<(PathBuf, FolderNo)>>;

/// The host that makes a call. Writers and tests have no caller and may do everything.
#[derive(Clone, Debug)]
pub(super) struct CallingHost {
    pub(super) user: UserNo,
    pub(super) kept: KeptFolders,
}

/// A folder, and the host whose changes of it may still be undone.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) owned: Ownership,
    pub(super) entries: BTreeMap<Name, NameTarget>,
    pub(super) attributes: AttributeMap,
    /// The only host with undurable changes of names in it.
    pub(super) changed_by: Option<HostNo>,
    /// Number of such changes.
    pub(super) changes: u32,
}

impl Folder {
    fn new(owned: Ownership) -> Folder {
        Folder { owned, entries: BTreeMap::new(), attributes: AttributeMap::new(), changed_by: None, changes: 0 }
    }
}

/// All users may create names in the root, and only owners remove theirs.
const ROOT_MODE: u32 = 0o777 | Protection::STICKY;

/// All folders. The first is the root.
#[derive(Debug)]
pub(super) struct FolderTable {
    folders: Vec<Folder>,
    /// The host that makes the present call.
    pub(super) caller: Option<CallingHost>,
}

impl FolderTable {
    pub(super) fn new() -> FolderTable {
        FolderTable { folders: vec![Folder::new(Ownership { owner: UserNo::ROOT, mode: ROOT_MODE })], caller: None }
    }

    /// Makes a folder that no name leads to yet. Folders of hosts are private; those of writers are open to all.
    pub(super) fn add_folder(&mut self) -> FolderNo {
        let owned = match &self.caller {
            Some(caller) => Ownership { owner: caller.user, mode: 0o700 },
            None => Ownership { owner: UserNo::ROOT, mode: 0o777 },
        };
        self.folders.push(Folder::new(owned));
        FolderNo(u32::try_from(self.folders.len() - 1).expect("fewer folders than steps"))
    }

    pub(super) fn folder(&self, folder: FolderNo) -> &Folder {
        &self.folders[folder.index()]
    }

    pub(super) fn folder_mut(&mut self, folder: FolderNo) -> &mut Folder {
        &mut self.folders[folder.index()]
    }

    /// Returns the target of a name in a folder.
    pub(super) fn get(&self, folder: FolderNo, name: &[u8]) -> Option<NameTarget> {
        self.folder(folder).entries.get(name).copied()
    }

    /// Returns every name, including those in folders that were undone.
    pub(super) fn all(&self) -> impl Iterator<Item = (FolderNo, &Name, NameTarget)> {
        self.folders.iter().zip(0..).flat_map(|(folder, number)| {
            folder.entries.iter().map(move |(name, entry)| (FolderNo(number), name, *entry))
        })
    }

    /// Finds the folder in which a path ends, and the name in it.
    ///
    /// # Errors
    /// As the trait says: `NotFound`, `NotADirectory`; `FilesystemLoop` at a symbolic link, `CrossesDevices` for a path
    /// that would leave the root.
    pub(super) fn resolve<'path>(&self, path: &'path Path) -> io::Result<(FolderNo, &'path [u8])> {
        // The name of a kept folder itself is looked up in its parent.
        let (mut folder, path) = self.base(path, |rest| !rest.as_os_str().is_empty());
        let mut last: Option<&[u8]> = None;
        for component in path.components() {
            let name = match component {
                Component::Normal(name) => name.as_bytes(),
                Component::CurDir => continue,
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV.into()),
            };
            if let Some(within) = last.replace(name) {
                folder = self.enter(folder, within)?;
            }
        }
        self.permit(folder, ENTER)?;
        last.map(|name| (folder, name)).ok_or_else(|| Errno::NOENT.into())
    }

    /// Finds a folder; `.` and the empty path are the root.
    pub(super) fn find_folder(&self, path: &Path) -> io::Result<FolderNo> {
        if path.components().all(|component| component == Component::CurDir) {
            return Ok(FolderNo::ROOT);
        }
        if let (kept, rest) = self.base(path, |_| true)
            && rest.as_os_str().is_empty()
        {
            return Ok(kept);
        }
        self.find_folder_by_name(path)
    }

    /// Finds a folder by its name, even if the caller keeps it.
    pub(super) fn find_folder_by_name(&self, path: &Path) -> io::Result<FolderNo> {
        let (Some(name), Some(above)) = (path.file_name(), path.parent()) else { return Ok(FolderNo::ROOT) };
        self.enter(self.find_folder(above)?, name.as_bytes())
    }

    /// Returns the innermost folder on a path that the caller keeps, if `takes` accepts the rest of the path, or else
    /// the root; and the rest.
    fn base<'path>(&self, path: &'path Path, takes: impl Fn(&Path) -> bool) -> (FolderNo, &'path Path) {
        let kept = self.caller.iter().flat_map(|caller| caller.kept.iter());
        let on_path = kept.filter_map(|(kept, folder)| Some((*folder, path.strip_prefix(kept).ok()?)));
        let taken = on_path.filter(|(_, rest)| takes(rest));
        taken.min_by_key(|(_, rest)| rest.as_os_str().len()).unwrap_or((FolderNo::ROOT, path))
    }

    /// Fails if the caller lacks these rights to a folder.
    pub(super) fn permit(&self, folder: FolderNo, rights: u32) -> io::Result<()> {
        let may = self.caller.as_ref().is_none_or(|caller| self.folder(folder).owned.permits(caller.user, rights));
        if may { Ok(()) } else { Err(Errno::ACCESS.into()) }
    }

    fn enter(&self, folder: FolderNo, name: &[u8]) -> io::Result<FolderNo> {
        self.permit(folder, ENTER)?;
        match self.get(folder, name) {
            Some(NameTarget::Folder(folder)) => Ok(folder),
            Some(NameTarget::File(_)) => Err(Errno::NOTDIR.into()),
            Some(NameTarget::Symlink) => Err(Errno::LOOP.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// Returns a path of a file, for messages.
    pub(super) fn path_of(&self, file: FileNo) -> String {
        let found = self.all().find(|(_, _, entry)| *entry == NameTarget::File(file));
        found.map_or_else(
            || format!("file #{} without a name", file.0),
            |(folder, name, _)| format!("{}{}", self.folder_path(folder), String::from_utf8_lossy(name)),
        )
    }

    fn folder_path(&self, folder: FolderNo) -> String {
        match self.all().find(|(_, _, entry)| *entry == NameTarget::Folder(folder)) {
            Some((above, name, _)) => format!("{}{}/", self.folder_path(above), String::from_utf8_lossy(name)),
            None => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_within_the_root_and_follow_no_link() {
        let mut names = FolderTable::new();
        let folder = names.add_folder();
        let put = |names: &mut FolderTable, within: FolderNo, name: &str, entry| {
            names.folder_mut(within).entries.insert(name.as_bytes().into(), entry);
        };
        put(&mut names, FolderNo::ROOT, "a", NameTarget::Folder(folder));
        put(&mut names, folder, "file", NameTarget::File(FileNo(7)));
        put(&mut names, folder, "link", NameTarget::Symlink);
        assert_eq!(names.resolve(Path::new("./a/file")).unwrap(), (folder, &b"file"[..]));
        assert_eq!(names.find_folder(Path::new("a")).unwrap(), folder);
        assert_eq!(names.find_folder(Path::new("")).unwrap(), FolderNo::ROOT);
        let error = |path| names.resolve(Path::new(path)).unwrap_err().raw_os_error();
        let expected = |errno: Errno| Some(errno.raw_os_error());
        assert_eq!(error("a/../a/file"), expected(Errno::XDEV));
        assert_eq!(error("/a/file"), expected(Errno::XDEV));
        assert_eq!(error("a/file/more"), expected(Errno::NOTDIR));
        assert_eq!(error("a/link/more"), expected(Errno::LOOP));
        assert_eq!(error("b/more"), expected(Errno::NOENT));
        assert_eq!(names.path_of(FileNo(7)), "a/file");
    }
}
