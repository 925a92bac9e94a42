//! Folders in which the further files of an image may lie.
//!
//! 1. A folder that the caller names, and everything below it.
//! 2. The image's own folder: only regular files directly in it that belong to the image's owner. Files further below
//!    are not allowed, because an image in a home folder would reach `.ssh`.
//!
//! Each folder is opened once. A name only chooses a folder and a path beneath it. The kernel then resolves that path
//! beneath the folder's descriptor and follows no symbolic links, so a name that is replaced meanwhile cannot lead
//! elsewhere. Mount points beneath a named folder are crossed, because an administrator made both; those in the image's
//! own folder are not.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, open, statat};
use rustix::io::Errno;

use crate::error::{ChainError, DiskError, FileAction};
use crate::image_file::{ImageFile, descriptor_path, open_beneath};

/// A further file of an image.
#[derive(Debug)]
pub(crate) struct ImageMember {
    pub(crate) file: ImageFile,
    /// Absolute path of the folder that its own names are relative to.
    pub(crate) folder: PathBuf,
}

/// The folders of one image.
#[derive(Debug)]
pub(crate) struct ImageFolders {
    /// The folders that the caller named.
    named: Vec<OpenFolder>,
    /// The image's own folder; `None` if the file no longer has its name there.
    own: Option<OpenFolder>,
    image_folder: PathBuf,
    image_owner: u32,
}

/// An open folder.
#[derive(Debug)]
struct OpenFolder {
    handle: OwnedFd,
    /// Its path without links.
    path: PathBuf,
    /// Its path as the caller gave it, made absolute.
    spelled: PathBuf,
}

impl OpenFolder {
    fn open(path: &Path) -> io::Result<OpenFolder> {
        let handle = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let real = fs::read_link(descriptor_path(&handle))?;
        Ok(OpenFolder { handle, path: real, spelled: normalised(&std::path::absolute(path)?) })
    }

    /// Returns the part of an absolute path beneath the folder; `None` if the path lies elsewhere.
    fn remainder<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let remainder = path.strip_prefix(&self.path).or_else(|_| path.strip_prefix(&self.spelled)).ok()?;
        (!remainder.as_os_str().is_empty()).then_some(remainder)
    }
}

impl ImageFolders {
    /// Returns the folders of an image: its own and `further` ones.
    pub(crate) fn of(image: &ImageFile, further: &[PathBuf]) -> Result<ImageFolders, DiskError> {
        let open = |path: &PathBuf| {
            OpenFolder::open(path).map_err(|source| DiskError::File {
                action: FileAction::OpenFolder,
                path: path.clone(),
                source,
            })
        };
        let named = further.iter().map(open).collect::<Result<Vec<OpenFolder>, DiskError>>()?;
        // The kernel's own name of the open file, whichever links led to it.
        let real = fs::read_link(descriptor_path(&image.file)).map_err(|source| DiskError::File {
            action: FileAction::Find,
            path: image.path.clone(),
            source,
        })?;
        let image_folder = real.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(ImageFolders { named, own: own_folder(image, &real), image_folder, image_owner: image.metadata().uid() })
    }

    /// Returns the absolute path of the folder in which the image lies.
    pub(crate) fn image_folder(&self) -> &Path {
        &self.image_folder
    }

    /// Opens the file that a file in the folder `from` calls `name`.
    pub(crate) fn open(&self, name: &Path, from: &Path) -> Result<ImageMember, ChainError> {
        let path = normalised(&from.join(name));
        if let Some(found) = self.open_at(&path) {
            return found;
        }
        // The name may contain a link to a folder, such as `/images` for `/srv/images`. The link only gives another
        // spelling: the file is opened beneath the folder without following links.
        let real = path.parent().zip(path.file_name()).and_then(|(parent, name)| {
            let parent = fs::canonicalize(parent).ok()?;
            Some(parent.join(name))
        });
        real.and_then(|real| self.open_at(&real)).unwrap_or(Err(ChainError::Outside(path)))
    }

    /// Opens the file at an absolute path; `None` if it lies in none of the folders.
    fn open_at(&self, path: &Path) -> Option<Result<ImageMember, ChainError>> {
        for folder in &self.named {
            if let Some(remainder) = folder.remainder(path) {
                return Some(open_in(folder, remainder, ResolveFlags::empty()));
            }
        }
        let own = self.own.as_ref()?;
        let remainder = own.remainder(path)?;
        if remainder.components().count() > 1 {
            return Some(Err(ChainError::Outside(path.to_owned())));
        }
        Some(open_in(own, remainder, ResolveFlags::NO_XDEV).and_then(|member| self.check_neighbour(member)))
    }

    /// Returns a file of the image's own folder if the image may refer to it.
    fn check_neighbour(&self, member: ImageMember) -> Result<ImageMember, ChainError> {
        let metadata = member.file.metadata();
        if !metadata.is_file() {
            return Err(ChainError::Device(member.file.path));
        }
        let owner = metadata.uid();
        if owner != self.image_owner {
            return Err(ChainError::OtherOwner { path: member.file.path, owner, image_owner: self.image_owner });
        }
        Ok(member)
    }
}

/// Returns the folder in which `image` has the last part of `real` as its name.
fn own_folder(image: &ImageFile, real: &Path) -> Option<OpenFolder> {
    let folder = OpenFolder::open(real.parent()?).ok()?;
    let entry = statat(&folder.handle, real.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let metadata = image.metadata();
    (entry.st_dev == metadata.dev() && entry.st_ino == metadata.ino()).then_some(folder)
}

fn open_in(folder: &OpenFolder, remainder: &Path, further: ResolveFlags) -> Result<ImageMember, ChainError> {
    let path = folder.path.join(remainder);
    let handle = match open_beneath(&folder.handle, remainder, further) {
        Ok(handle) => handle,
        Err(Errno::NOENT | Errno::NOTDIR) => {
            return Err(ChainError::Missing { path, source: Errno::NOENT.into() });
        }
        Err(Errno::LOOP) => return Err(ChainError::Link(path)),
        Err(Errno::XDEV) => return Err(ChainError::Outside(path)),
        Err(errno) => return Err(ChainError::Unopened { path, source: errno.into() }),
    };
    let file = ImageFile::of_handle(handle, &path).map_err(|source| match source.kind() {
        io::ErrorKind::InvalidInput => ChainError::Unsuitable(path.clone()),
        _ => ChainError::Unopened { path: path.clone(), source },
    })?;
    Ok(ImageMember { folder: path.parent().unwrap_or(Path::new("/")).to_owned(), file })
}

/// Returns an absolute path without `.` and `..`. A link before `..` makes no difference: users of the path follow no
/// links.
fn normalised(path: &Path) -> PathBuf {
    let mut parts = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests;
