//! Why a further file that an image names is not followed.

use std::io;
use std::path::PathBuf;

use onefold_block::Show;

/// Why a further file of an image is not followed.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// Its name means a protocol to QEMU.
    #[error("`{}` is not the path of a file but names a protocol", .0.shown())]
    Protocol(String),
    /// It lies in no folder that the image may refer to.
    #[error("`{}` lies outside the folders that the image may refer to", .0.shown())]
    Outside(PathBuf),
    /// A symbolic link stands where it should be.
    #[error("a symbolic link leads to `{}`", .0.shown())]
    Link(PathBuf),
    /// It belongs to another user than the image.
    #[error("`{}` belongs to user {owner}, the image to user {image_owner}", path.shown())]
    OtherOwner {
        /// The file.
        path: PathBuf,
        /// User number of the file's owner.
        owner: u32,
        /// User number of the image's owner.
        image_owner: u32,
    },
    /// It is a block device in the image's own folder.
    #[error("`{}` is a block device beside the image", .0.shown())]
    Device(PathBuf),
    /// It is already in the chain.
    #[error("the chain of backing files comes back to `{}`: it is a loop", .0.shown())]
    Loop(PathBuf),
    /// The chain has too many files.
    #[error("the chain of backing files is longer than {length_max}")]
    TooLong {
        /// The maximum number of files, including the image itself.
        length_max: usize,
    },
    /// It is neither a regular file nor a block device.
    #[error("`{}` is neither a file nor a block device", .0.shown())]
    Unsuitable(PathBuf),
    /// There is no such file.
    #[error("cannot find `{}`", path.shown())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It cannot be opened.
    #[error("cannot open `{}`", path.shown())]
    Unopened {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}
