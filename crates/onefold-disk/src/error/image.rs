//! Why an image cannot be read or written as the format that it has.

use std::io;
use std::path::PathBuf;

use onefold_block::Show;
use onefold_block::shown::ShownOutput;
use onefold_block::size::human;

use super::ChainError;
use crate::vmdk::DescriptorError;

/// Why an image cannot be read or written as the format that it has.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A further file that it names is not followed.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// Its bytes make no sense as that format, or a call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Its disk is longer than [`SIZE_BYTES_MAX`](crate::SIZE_BYTES_MAX).
    #[error("file too large")]
    TooLarge,
    /// An image that has to be one file has a backing file or a data file.
    #[error("it has a backing file or a data file")]
    OtherFiles,
    /// A qcow2 image has a data file and does not say which.
    #[error("its data file has no name")]
    DataFileUnnamed,
    /// A backing file of a qcow2 image has a format that is not read there.
    #[error("its backing file `{}` has the format {}", path.shown(), format.shown())]
    BackingFormat {
        /// The backing file.
        path: PathBuf,
        /// Its format, as the image says or its first bytes show.
        format: String,
    },
    /// It holds only what differs from another disk.
    #[error("it holds only what differs from its parent, {}", parent.shown())]
    Differencing {
        /// What is known of that other disk.
        parent: String,
    },
    /// The descriptor of a VMDK disk is not followed.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// A sparse header of VMDK would have a descriptor obeyed that lies in the same file.
    #[error("the header of `{}` leads to a descriptor inside the file", .0.shown())]
    InnerDescriptor(PathBuf),
    /// A file was something else when it was looked at a second time.
    #[error("`{}` changed while it was read", .0.shown())]
    Changed(PathBuf),
    /// `qemu-img` cannot be started.
    #[error("cannot start qemu-img: {0}")]
    NotStarted(#[source] io::Error),
    /// `qemu-img` took too long to read the headers.
    #[error("qemu-img did not come to an end with it")]
    Endless,
    /// `qemu-img` failed and printed this, which may be nothing.
    #[error("{}", ShownOutput(.0.as_bytes()))]
    Complaint(String),
    /// What `qemu-img` says about the image cannot be understood.
    #[error(transparent)]
    Answer(#[from] serde_json::Error),
}

/// Why a temporary copy cannot grow.
#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    /// It is not known how much room there is.
    #[error(transparent)]
    Unknown(io::Error),
    /// There is too little room.
    #[error("{} are free there, and {} stay free", human(*free_bytes), human(*kept_bytes))]
    TooLittle {
        /// What is free.
        free_bytes: u64,
        /// What is left to others.
        kept_bytes: u64,
    },
}
