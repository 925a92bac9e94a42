//! Which files are meant: images and devices as they are named, folders by what is in them.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use onefold_block::Show;

/// Files of a folder that are shorter are taken for something else than images.
const IMAGE_BYTES_MIN: u64 = 1 << 20;
/// Folders in folders are followed so far.
const DEPTH_MAX: usize = 32;

/// An image to analyse.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) metadata: Metadata,
}

/// Something that was named, or lies in a folder that was, and cannot be analysed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) path: PathBuf,
    pub(super) why: String,
}

/// What was found, in the order of the paths given and by name within folders.
#[derive(Debug, Default)]
pub(super) struct Finding {
    pub(super) images: Vec<Found>,
    pub(super) unfit: Vec<Unfit>,
    /// Files that count already by another name: nothing is wrong with them.
    pub(super) repeated: Vec<Unfit>,
    /// Paths by device and inode, to see a file that is there twice.
    seen: HashMap<(u64, u64), PathBuf>,
}

/// Returns the images at `paths`.
pub(super) fn find(paths: &[PathBuf]) -> Finding {
    let mut finding = Finding::default();
    for path in paths {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => finding.folder(path, 0),
            Ok(metadata) => finding.named(path, metadata),
            Err(error) => finding.leave_out(path, error.to_string()),
        }
    }
    finding
}

impl Finding {
    fn leave_out(&mut self, path: &Path, why: impl Into<String>) {
        self.unfit.push(Unfit { path: path.to_owned(), why: why.into() });
    }

    fn named(&mut self, path: &Path, metadata: Metadata) {
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return self.leave_out(path, "it is neither a file, nor a block device, nor a folder");
        }
        // All block devices of a machine are inodes of one file system; what they lead to is told by their numbers.
        let id = if kind.is_file() { (metadata.dev(), metadata.ino()) } else { (u64::MAX, metadata.rdev()) };
        if let Some(first) = self.seen.get(&id) {
            let why = format!("it is the same as `{}`, which counts already", first.shown());
            return self.repeated.push(Unfit { path: path.to_owned(), why });
        }
        self.seen.insert(id, path.to_owned());
        self.images.push(Found { path: path.to_owned(), metadata });
    }

    fn folder(&mut self, folder: &Path, depth: usize) {
        if depth > DEPTH_MAX {
            return self.leave_out(folder, format!("it is more than {DEPTH_MAX} folders deep"));
        }
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return self.leave_out(folder, error.to_string()),
        };
        let mut paths = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => paths.push(entry.path()),
                Err(error) => self.leave_out(folder, error.to_string()),
            }
        }
        paths.sort_unstable();
        for path in paths {
            // Links are not followed: they lead to files that count where they are, or out of the folder.
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_dir() => self.folder(&path, depth + 1),
                Ok(metadata) if metadata.is_file() && metadata.len() >= IMAGE_BYTES_MIN => self.named(&path, metadata),
                Ok(_) => {}
                Err(error) => self.leave_out(&path, error.to_string()),
            }
        }
    }
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
        let found: Vec<&Path> = finding.images.iter().map(|found| found.path.as_path()).collect();
        assert_eq!(found, [path("a.raw"), path("b/x.raw"), path("c.raw"), path("notes.txt")]);
        let paths = |of: &[Unfit]| -> Vec<PathBuf> { of.iter().map(|unfit| unfit.path.clone()).collect() };
        assert_eq!(paths(&finding.unfit), [path("gone")]);
        assert_eq!(paths(&finding.repeated), [path("d.raw"), path("a.raw")]);
        assert!(finding.repeated[0].why.contains("the same as"), "{:?}", finding.repeated);
    }

    #[test]
    fn what_can_hold_no_disk_is_left_out() {
        let finding = find(&[PathBuf::from("/dev/null")]);
        assert!(finding.images.is_empty());
        assert!(finding.unfit[0].why.contains("neither"), "{:?}", finding.unfit);
    }
}
