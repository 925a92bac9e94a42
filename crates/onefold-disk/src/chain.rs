//! The chain of files to which an image leads.
//!
//! An image names its own backing files, parents, data files and extents. A hostile image could name any file of this
//! machine, whose content would become part of the disk. [`ImageFolders`] decides which names are followed. The length
//! of a chain is bounded, and a chain that returns to one of its own files is an error.

use std::path::{Path, PathBuf};

use crate::error::{ChainError, DiskError};
use crate::folders::{ImageFolders, ImageMember};
use crate::image_file::{FileIdentity, ImageFile, NamedFile};

/// Maximum number of files in a chain, including the image itself.
const CHAIN_LENGTH_MAX: usize = 64;

/// The files of one image, as far as they have been opened.
#[derive(Debug)]
pub(crate) struct ImageChain {
    folders: ImageFolders,
    members: Vec<FileIdentity>,
    named: Vec<NamedFile>,
}

impl ImageChain {
    /// Begins the chain with the image itself; `further` are folders that it may refer to besides its own.
    pub(crate) fn start(image: &ImageFile, further: &[PathBuf]) -> Result<ImageChain, DiskError> {
        Ok(ImageChain {
            folders: ImageFolders::of(image, further)?,
            members: vec![image.identity()],
            named: Vec::new(),
        })
    }

    /// Returns the folder that names in the image itself are relative to.
    pub(crate) fn image_folder(&self) -> PathBuf {
        self.folders.image_folder().to_owned()
    }

    /// Opens the next file of the chain, which a file in `folder` calls `name`.
    ///
    /// # Errors
    /// Those of [`ImageChain::open`]; also if the chain is a loop or too long.
    pub(crate) fn follow(&mut self, name: &str, folder: &Path) -> Result<ImageMember, ChainError> {
        let member = self.open(name, folder)?;
        let identity = member.file.identity();
        if self.members.contains(&identity) {
            return Err(ChainError::Loop(member.file.path));
        }
        if self.members.len() >= CHAIN_LENGTH_MAX {
            return Err(ChainError::TooLong { length_max: CHAIN_LENGTH_MAX });
        }
        self.members.push(identity);
        Ok(member)
    }

    /// Opens a data file. One image may name it several times, and it leads to no further file.
    ///
    /// # Errors
    /// If the name is not allowed, or the file cannot be opened.
    pub(crate) fn open(&mut self, name: &str, folder: &Path) -> Result<ImageMember, ChainError> {
        if names_protocol(name) {
            return Err(ChainError::Protocol(name.to_owned()));
        }
        let member = self.folders.open(Path::new(name), folder)?;
        self.named.push(NamedFile { path: member.file.path.clone(), metadata: member.file.metadata().clone() });
        Ok(member)
    }

    /// Returns all files that were opened besides the image itself.
    pub(crate) fn into_named(self) -> Vec<NamedFile> {
        self.named
    }
}

/// Returns whether QEMU takes `name` for a protocol (`nbd:`, `ssh://`, `json:`, even `file:`) instead of a path,
/// because a colon comes before the first slash.
fn names_protocol(name: &str) -> bool {
    name.find([':', '/']).is_some_and(|at| name[at..].starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_told_from_paths_as_qemu_does() {
        for name in
            ["nbd:localhost:10809", "ssh://host/a", "json:{}", "file:a.raw", "file:///a", "fat:/etc", ":", "a:b"]
        {
            assert!(names_protocol(name), "{name}");
        }
        for name in ["a.raw", "/a:b", "./a:b", "a/b:c", "", "/"] {
            assert!(!names_protocol(name), "{name}");
        }
    }

    #[test]
    fn a_protocol_is_refused_though_a_file_of_that_name_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, "").unwrap();
        std::fs::write(folder.path().join("file:base.raw"), "").unwrap();
        let image = ImageFile::named(&image).unwrap();
        let mut chain = ImageChain::start(&image, &[]).unwrap();
        let opened = chain.open("file:base.raw", &chain.image_folder());
        assert!(matches!(opened, Err(ChainError::Protocol(_))), "{opened:?}");
        assert!(chain.open("./file:base.raw", &chain.image_folder()).is_ok());
    }

    #[test]
    fn a_chain_is_bounded_and_no_loop() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for number in 0..=CHAIN_LENGTH_MAX {
            std::fs::write(path(&number.to_string()), "").unwrap();
        }
        std::fs::hard_link(path("0"), path("other")).unwrap();
        let image = ImageFile::named(&path("0")).unwrap();
        let mut chain = ImageChain::start(&image, &[]).unwrap();
        let here = chain.image_folder();
        assert!(matches!(chain.follow("0", &here), Err(ChainError::Loop(_))));
        assert!(matches!(chain.follow("other", &here), Err(ChainError::Loop(_))), "another name, the same file");
        for number in 1..CHAIN_LENGTH_MAX {
            chain.follow(&number.to_string(), &here).unwrap();
        }
        assert!(matches!(chain.follow(&CHAIN_LENGTH_MAX.to_string(), &here), Err(ChainError::TooLong { .. })));
    }
}
