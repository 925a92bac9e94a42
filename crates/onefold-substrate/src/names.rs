//! Names of files and folders, and the users who may use them.

use std::io;
use std::path::Path;

use crate::file::FolderEntry;
use crate::files::Files;
use crate::protection::{Protection, UserNo};

/// Folders and names, attributes and owners.
pub trait Names: Files {
    /// Creates a folder that only its owner may enter.
    ///
    /// # Errors
    /// `AlreadyExists`; no space.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a second name. If two hosts try the same name, one of them fails.
    ///
    /// # Errors
    /// `AlreadyExists`; `NotFound`.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames a file, replacing any file that has the new name.
    ///
    /// # Errors
    /// `NotFound`. `PermissionDenied` if another host is renaming to the same name (OCFS2): try again.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name.
    ///
    /// # Errors
    /// `NotFound`.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns the entries of a folder in no order, without `.` and `..`.
    ///
    /// # Errors
    /// `NotFound`; `NotADirectory`.
    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>>;

    /// Opens a folder, keeps it open, and returns its protection. From then on this substrate resolves every path that
    /// begins with `folder` from the kept folder, even if another one takes the name. A folder previously kept by that
    /// path is released, and so are the kept folders below it. The empty path is the root, which is always kept.
    ///
    /// # Errors
    /// Those of [`Files::open`], but `NotADirectory` if the path leads to no folder.
    fn keep_folder(&self, folder: &Path) -> io::Result<Protection>;

    /// Returns whether the name of a kept folder still leads to it.
    ///
    /// # Errors
    /// Those of [`Names::keep_folder`], except that a missing name is no error.
    fn is_folder_kept(&self, folder: &Path) -> io::Result<bool>;

    /// Sets the permission bits of a kept folder.
    ///
    /// # Errors
    /// See [`Files::set_mode`]; `NotFound` for a folder that is not kept.
    fn set_folder_mode(&self, folder: &Path, mode: u32) -> io::Result<()>;

    /// Returns an extended attribute of a file or folder (`user.NAME`); `None` if the attribute is missing or the file
    /// system has no attributes.
    ///
    /// # Errors
    /// Those of [`Files::open`], except that a folder is no error.
    fn attribute(&self, path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
        let _ = (path, name);
        Ok(None)
    }

    /// Sets or removes an extended attribute of a file or folder.
    ///
    /// # Errors
    /// See [`Names::attribute`]; `Unsupported`; no space.
    fn set_attribute(&self, path: &Path, name: &str, value: Option<&[u8]>) -> io::Result<()> {
        let _ = (path, name, value);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the protection of the file or folder with a name. By default that of a folder of root that everyone may
    /// write into: such a folder guards nothing.
    ///
    /// # Errors
    /// See [`Names::attribute`].
    fn path_protection(&self, path: &Path) -> io::Result<Protection> {
        let _ = path;
        Ok(Protection { owner: UserNo::ROOT, mode: 0o777, links: 1 })
    }

    /// Returns the number of the user with this name on this host; `None` if the host has no such user.
    fn user_named(&self, name: &str) -> Option<u32> {
        let _ = name;
        None
    }

    /// Returns whether attributes that only root may set (`trusted.NAME`) are readable. If not, they read as missing.
    fn reads_trusted_attributes(&self) -> bool {
        true
    }

    /// Returns the path at which this host mounts the file system, or at which it was opened; empty if it has none.
    fn mounted_at(&self) -> &Path {
        Path::new("")
    }
}
