//! Which files an image may lead to.
//!
//! An image names its backing and data files itself, so an image from elsewhere could name any file of this machine and
//! have its content copied into the pool. Such files are therefore followed only below directories that the user
//! named; the image's own directory is always one of them.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use onefold_block::Show;

use crate::failure::{Failure, Outcome};

/// Longest chain of backing files, the image itself included.
pub(super) const CHAIN_LENGTH_MAX: usize = 64;

/// Directories that an image's further files may lie in, as canonical paths.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    directories: Vec<PathBuf>,
}

/// Why a further file of an image is not followed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChainError {
    #[error("`{}` lies outside the directories that the image may refer to", .0.shown())]
    Outside(PathBuf),
    #[error("the chain of backing files comes back to `{}`: it is a loop", .0.shown())]
    Loop(PathBuf),
    #[error("the chain of backing files is longer than {CHAIN_LENGTH_MAX}")]
    TooLong,
    #[error("`{}` is neither a file nor a block device", .0.shown())]
    Unsuitable(PathBuf),
    #[error("cannot find `{}`", path.shown())]
    Missing {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl ChainError {
    /// Returns the next step.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            ChainError::Outside(_) => {
                Some("if you trust the image, allow that directory with --backing-from (or give --format if it is raw)")
            }
            ChainError::Loop(_) | ChainError::TooLong => {
                Some("`qemu-img info --backing-chain` shows the chain; `qemu-img rebase -u` mends it")
            }
            ChainError::Missing { .. } => Some("bring the backing file back to where the image expects it"),
            ChainError::Unsuitable(_) => None,
        }
    }
}

impl Allowed {
    /// Allows the directory of the image at `path` and `further` ones.
    pub(crate) fn beside(path: &Path, further: &[PathBuf]) -> Outcome<Allowed> {
        let canonical = |path: &Path| {
            fs::canonicalize(path).map_err(|error| Failure::of_io(format!("cannot find `{}`", path.shown()), &error))
        };
        let image = canonical(path)?;
        let mut directories: Vec<PathBuf> = image.parent().map(Path::to_owned).into_iter().collect();
        for directory in further {
            directories.push(canonical(directory)?);
        }
        Ok(Allowed { directories })
    }

    /// Returns the canonical path of a file that an image names, if it may be followed.
    pub(super) fn resolve(&self, path: &Path) -> Result<PathBuf, ChainError> {
        let missing = |source| ChainError::Missing { path: path.to_owned(), source };
        let canonical = fs::canonicalize(path).map_err(missing)?;
        if !self.directories.iter().any(|directory| canonical.starts_with(directory)) {
            return Err(ChainError::Outside(canonical));
        }
        // Asked before it is opened: opening a pipe could wait for ever.
        let kind = fs::metadata(&canonical).map_err(missing)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(ChainError::Unsuitable(canonical));
        }
        Ok(canonical)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_followed_within_allowed_directories_only() {
        let home = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let image = home.path().join("image");
        let secret = other.path().join("secret");
        fs::write(&image, "").unwrap();
        fs::write(&secret, "").unwrap();
        std::os::unix::fs::symlink(&secret, home.path().join("link")).unwrap();

        let own = Allowed::beside(&image, &[]).unwrap();
        assert!(own.resolve(&image).is_ok());
        assert!(matches!(own.resolve(&secret), Err(ChainError::Outside(_))));
        assert!(matches!(own.resolve(&home.path().join("link")), Err(ChainError::Outside(_))));
        assert!(matches!(own.resolve(&home.path().join("gone")), Err(ChainError::Missing { .. })));
        assert!(matches!(own.resolve(home.path()), Err(ChainError::Unsuitable(_))));

        let both = Allowed::beside(&image, &[other.path().to_owned()]).unwrap();
        assert!(both.resolve(&secret).is_ok());
    }
}
