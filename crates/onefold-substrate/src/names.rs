//! Names of files and folders, and who may use them.

use std::io;
use std::path::Path;

use crate::file::Listed;
use crate::files::Files;
use crate::protection::{Protection, UserNo};

/// Folders and names, attributes and owners.
pub trait Names: Files {
    /// Creates a folder that only its owner may enter.
    ///
    /// # Errors
    /// `AlreadyExists`; no space.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a second name. Of two hosts that try the same name, one fails.
    ///
    /// # Errors
    /// `AlreadyExists`; `NotFound`.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file another name, in place of whatever bore it.
    ///
    /// # Errors
    /// `NotFound`. `PermissionDenied` where another host renames to the same name at this moment (OCFS2): try again.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name.
    ///
    /// # Errors
    /// `NotFound`.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns what is in a folder, in no order, but for `.` and `..`.
    ///
    /// # Errors
    /// `NotFound`; `NotADirectory`.
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>>;

    /// Opens a folder and keeps it open, and returns what protects it. From then on this substrate resolves every path
    /// that begins with `folder` from the kept folder, even if another one takes the name. A folder that was kept by
    /// that path before is no longer, nor are those below it. The empty path is the root, which is kept in any case.
    ///
    /// # Errors
    /// Those of [`Files::open`], but `NotADirectory` where it is no folder.
    fn keep_folder(&self, folder: &Path) -> io::Result<Protection>;

    /// Returns whether the name of a kept folder still leads to it.
    ///
    /// # Errors
    /// Those of [`Names::keep_folder`], except that a missing name is no error.
    fn is_folder_kept(&self, folder: &Path) -> io::Result<bool>;

    /// Sets the permission bits of a kept folder.
    ///
    /// # Errors
    /// As [`Files::set_mode`]; `NotFound` for a folder that is not kept.
    fn set_folder_mode(&self, folder: &Path, mode: u32) -> io::Result<()>;

    /// Returns an extended attribute of a file or folder (`user.NAME`); none where it has none of that name, or the
    /// file system has none at all.
    ///
    /// # Errors
    /// Those of [`Files::open`], but that a folder is as good as a file.
    fn attribute(&self, path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
        let _ = (path, name);
        Ok(None)
    }

    /// Gives a file or folder an extended attribute, or takes it away.
    ///
    /// # Errors
    /// As [`Names::attribute`]; `Unsupported`; no space.
    fn set_attribute(&self, path: &Path, name: &str, value: Option<&[u8]>) -> io::Result<()> {
        let _ = (path, name, value);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns what protects the file or folder of a name. By default, that of a folder of root's that everybody may
    /// write into: such a folder guards nothing.
    ///
    /// # Errors
    /// As [`Names::attribute`].
    fn path_protection(&self, path: &Path) -> io::Result<Protection> {
        let _ = path;
        Ok(Protection { owner: UserNo::ROOT, mode: 0o777, links: 1 })
    }

    /// Returns the user number that this host knows by a name; none where it knows no such user.
    fn user_named(&self, name: &str) -> Option<u32> {
        let _ = name;
        None
    }

    /// Tells whether attributes that only root may set (`trusted.NAME`) can be read. Where not, they read as missing.
    fn reads_trusted_attributes(&self) -> bool {
        true
    }

    /// Returns the path at which this host has the file system mounted, or from which on it was opened; empty where it
    /// has none.
    fn mounted_at(&self) -> &Path {
        Path::new("")
    }
}
