//! Finds the images that the user means: named files and devices, images in named folders, and images of archives.

pub(super) mod archived;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_block::Show;
use onefold_disk::{FileIdentity, ImageFile};
use onefold_image::{ArchiveId, ImageVersion};
use rustix::fs::{Dir, Mode, OFlags, open, openat};

use crate::failure::{Failure, Outcome};

use archived::ArchivedImage;

/// Minimum length of an image in a folder; shorter files are assumed to be something else.
const IMAGE_BYTES_MIN: u64 = 1 << 20;
/// Maximum depth of nested folders.
const DEPTH_MAX: usize = 32;

/// An image that was found.
#[derive(Clone, Debug)]
pub(super) enum FoundImage {
    /// In a file or on a device.
    File(FoundFile),
    /// In an archive.
    Archived(ArchivedImage),
}

impl FoundImage {
    /// Returns its path, or `ARCHIVE#IMAGE`.
    pub(super) fn path(&self) -> &Path {
        match self {
            FoundImage::File(found) => &found.path,
            FoundImage::Archived(image) => image.path(),
        }
    }
}

/// A file or device that is taken for an image.
#[derive(Clone, Debug)]
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    pub(super) metadata: Metadata,
    place: ImagePath,
}

/// How to reach the file of an image.
#[derive(Clone, Debug)]
enum ImagePath {
    /// By the path that the user gave.
    Named,
    /// Below a folder that the user gave, without links.
    Beneath { folder: Arc<OwnedFd>, relative: PathBuf },
}

impl FoundFile {
    /// Opens the file, which must be the one that was found.
    ///
    /// # Errors
    /// Those of opening a file; an error if another file has taken its place.
    pub(super) fn open(&self) -> io::Result<ImageFile> {
        let file = match &self.place {
            ImagePath::Named => ImageFile::named(&self.path)?,
            ImagePath::Beneath { folder, relative } => ImageFile::beneath(folder, relative, &self.path)?,
        };
        if file.identity() != FileIdentity::of(&self.metadata) {
            return Err(io::Error::other("another file has taken its place since it was found"));
        }
        Ok(file)
    }
}

/// Metadata that changes when a process writes to a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileState {
    length: u64,
    inode: u64,
    modified: (i64, i64),
}

impl FileState {
    /// Returns the state that `metadata` describes.
    pub(super) fn of(metadata: &Metadata) -> FileState {
        FileState { length: metadata.len(), inode: metadata.ino(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

/// A file that was named, or lies in a named folder, and cannot be an image.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnfitFile {
    pub(super) path: PathBuf,
    /// Why; its first line does not name the file.
    pub(super) why: Failure,
}

/// The found files, in the order of the given paths and by name within folders.
#[derive(Debug, Default)]
pub(super) struct ImageSearch {
    pub(super) images: Vec<FoundImage>,
    pub(super) unfit: Vec<UnfitFile>,
    /// Files that are already counted under another name: nothing is wrong with them.
    pub(super) repeated: Vec<UnfitFile>,
    /// Paths by identity, to detect images that appear twice.
    seen: HashMap<Identity, PathBuf>,
}

/// Identity of an image, whichever name leads to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    /// Device and inode of a file.
    File(u64, u64),
    /// All block devices of a machine are inodes of one file system; their own device numbers identify them.
    Device(u64),
    Archived(ArchiveId, ImageVersion),
}

impl Identity {
    fn of(found: &FoundImage) -> Identity {
        match found {
            FoundImage::File(FoundFile { metadata, .. }) if metadata.is_file() => {
                Identity::File(metadata.dev(), metadata.ino())
            }
            FoundImage::File(FoundFile { metadata, .. }) => Identity::Device(metadata.rdev()),
            FoundImage::Archived(image) => Identity::Archived(image.archive_id(), image.version().clone()),
        }
    }
}

/// Returns the images at `paths`. A folder that is an archive has the newest version of each of its images.
pub(super) fn find(paths: &[PathBuf]) -> ImageSearch {
    let mut finding = ImageSearch::default();
    for path in paths {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => finding.named_folder(path),
            Ok(metadata) => finding.file(FoundFile { path: path.clone(), metadata, place: ImagePath::Named }),
            Err(error) => match archived::named(path, &error) {
                Some(Ok(image)) => finding.image(FoundImage::Archived(image)),
                Some(Err(failure)) => finding.leave_out(path, failure),
                None => finding.leave_out(path, of_io(&error)),
            },
        }
    }
    finding
}

/// Returns the one image that `path` names. The name of a file wins over that of an archived image.
///
/// # Errors
/// When there is no such image. The error does not name it.
pub(super) fn find_one(path: &Path) -> Outcome<FoundImage> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        let failure = Failure::new("it is a folder");
        return Err(match archived::is_archive(path) {
            true => failure.hint(format!("name an image of the archive, as in `{}#NAME`", path.shown())),
            false => failure,
        });
    }
    let mut finding = find(&[path.to_owned()]);
    match (finding.images.pop(), finding.unfit.pop()) {
        (Some(found), _) => Ok(found),
        (None, unfit) => Err(unfit.map_or_else(|| Failure::new("it is no image"), |unfit| unfit.why)),
    }
}

/// Returns the failure that an error of the operating system is, without further causes.
fn of_io(error: &io::Error) -> Failure {
    Failure { causes: Vec::new(), ..Failure::of_io(error.to_string(), error) }
}

impl ImageSearch {
    fn leave_out(&mut self, path: &Path, why: Failure) {
        self.unfit.push(UnfitFile { path: path.to_owned(), why });
    }

    fn file(&mut self, found: FoundFile) {
        let kind = found.metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let why = Failure::new("it is neither a file, nor a block device, nor a folder");
            return self.leave_out(&found.path, why);
        }
        self.image(FoundImage::File(found));
    }

    fn image(&mut self, found: FoundImage) {
        let path = found.path().to_owned();
        match self.seen.entry(Identity::of(&found)) {
            Entry::Occupied(first) => {
                let why = format!("it is the same as `{}`, which counts already", first.get().shown());
                self.repeated.push(UnfitFile { path, why: Failure::new(why) });
            }
            Entry::Vacant(entry) => {
                entry.insert(path);
                self.images.push(found);
            }
        }
    }

    fn named_folder(&mut self, path: &Path) {
        match archived::newest(path) {
            Some(Ok(images)) => return images.into_iter().for_each(|listed| self.listed(listed)),
            Some(Err(failure)) => return self.leave_out(path, failure),
            None => {}
        }
        match open(path, FOLDER, Mode::empty()) {
            Ok(handle) => {
                let root = NamedFolder { handle: Arc::new(handle), path: path.to_owned() };
                self.folder(&root, &root.handle, Path::new(""), 0);
            }
            Err(errno) => self.leave_out(path, of_io(&errno.into())),
        }
    }

    fn listed(&mut self, listed: archived::ListedArchive) {
        match listed {
            Ok(image) => self.image(FoundImage::Archived(image)),
            Err((path, failure)) => self.leave_out(&path, failure),
        }
    }

    /// Finds the images in the folder `handle`, which lies at `relative` beneath `root`.
    fn folder(&mut self, root: &NamedFolder, handle: &OwnedFd, relative: &Path, depth: usize) {
        let path = root.path_of(relative);
        if depth > DEPTH_MAX {
            return self.leave_out(&path, Failure::new(format!("it is more than {DEPTH_MAX} folders deep")));
        }
        let names = match names_in(handle) {
            Ok(names) => names,
            Err(error) => return self.leave_out(&path, of_io(&error)),
        };
        for name in names {
            let relative = relative.join(&name);
            let path = root.path_of(&relative);
            if let Err(error) = self.entry(root, handle, &name, relative, depth) {
                self.leave_out(&path, of_io(&error));
            }
        }
    }

    /// Examines one entry of a folder through its descriptor. Links are not followed: they lead to files that count at
    /// their own place, or out of the folder.
    fn entry(
        &mut self,
        root: &NamedFolder,
        folder: &OwnedFd,
        name: &Path,
        relative: PathBuf,
        depth: usize,
    ) -> io::Result<()> {
        let handle = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let handle = File::from(handle);
        let metadata = handle.metadata()?;
        if metadata.is_dir() {
            let inner = openat(&handle, ".", FOLDER, Mode::empty())?;
            self.folder(root, &inner, &relative, depth + 1);
        } else if metadata.is_file() && metadata.len() >= IMAGE_BYTES_MIN {
            let path = root.path_of(&relative);
            let place = ImagePath::Beneath { folder: Arc::clone(&root.handle), relative };
            self.file(FoundFile { path, metadata, place });
        }
        Ok(())
    }
}

/// Flags with which folders are opened.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A folder that the user named.
#[derive(Debug)]
struct NamedFolder {
    handle: Arc<OwnedFd>,
    path: PathBuf,
}

impl NamedFolder {
    fn path_of(&self, relative: &Path) -> PathBuf {
        if relative.as_os_str().is_empty() { self.path.clone() } else { self.path.join(relative) }
    }
}

/// Returns the names in a folder, in order.
fn names_in(folder: &OwnedFd) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(PathBuf::from(name));
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn file(path: &Path, length: u64) {
        File::create(path).unwrap().set_len(length).unwrap();
    }

    #[test]
    fn folders_give_their_large_files_by_name_and_each_file_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("b")).unwrap();
        for (name, length) in [("c.raw", 2 << 20), ("a.raw", 1 << 20), ("b/x.raw", 3 << 20), ("notes.txt", 5)] {
            file(&path(name), length);
        }
        fs::hard_link(path("c.raw"), path("d.raw")).unwrap();
        std::os::unix::fs::symlink(path("a.raw"), path("e.raw")).unwrap();

        let finding = find(&[folder.path().to_owned(), path("a.raw"), path("notes.txt"), path("gone")]);
        let found: Vec<&Path> = finding.images.iter().map(FoundImage::path).collect();
        assert_eq!(found, [path("a.raw"), path("b/x.raw"), path("c.raw"), path("notes.txt")]);
        let paths = |of: &[UnfitFile]| -> Vec<PathBuf> { of.iter().map(|unfit| unfit.path.clone()).collect() };
        assert_eq!(paths(&finding.unfit), [path("gone")]);
        assert_eq!(paths(&finding.repeated), [path("d.raw"), path("a.raw")]);
        assert!(finding.repeated[0].why.error.contains("the same as"), "{:?}", finding.repeated);
    }

    fn file_at(path: PathBuf) -> FoundFile {
        match find(&[path]).images.remove(0) {
            FoundImage::File(found) => found,
            FoundImage::Archived(image) => panic!("{image:?} is no file"),
        }
    }

    #[test]
    fn a_file_or_folder_that_was_replaced_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["in", "out"] {
            fs::create_dir(path(name)).unwrap();
            file(&path(name).join("a.raw"), 1 << 20);
        }
        let found = file_at(path("in"));
        let named = file_at(path("in/a.raw"));
        assert!(found.open().is_ok() && named.open().is_ok());

        fs::remove_file(path("in/a.raw")).unwrap();
        std::os::unix::fs::symlink(path("out/a.raw"), path("in/a.raw")).unwrap();
        assert_eq!(found.open().unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(named.open().unwrap_err().to_string().contains("another file"));

        let deep = file_at(folder.path().to_owned());
        assert_eq!(deep.path, path("out/a.raw"));
        fs::rename(path("out"), path("elsewhere")).unwrap();
        std::os::unix::fs::symlink(path("elsewhere"), path("out")).unwrap();
        assert_eq!(deep.open().unwrap_err().raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn what_can_hold_no_disk_is_left_out() {
        let finding = find(&[PathBuf::from("/dev/null")]);
        assert!(finding.images.is_empty());
        assert!(finding.unfit[0].why.error.contains("neither"), "{:?}", finding.unfit);
    }
}
