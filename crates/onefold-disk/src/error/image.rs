//! Why an image cannot be read or written in its format.

use std::io;
use std::path::PathBuf;

use onefold_block::Show;
use onefold_block::shown::ShownOutput;
use onefold_block::size::human;

use super::ChainError;
use crate::vmdk::DescriptorError;

/// Why an image cannot be read or written in its format.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A further file that it names is not followed.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// Its bytes are invalid in that format, or a call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Its disk is longer than [`SIZE_BYTES_MAX`](crate::SIZE_BYTES_MAX).
    #[error("file too large")]
    TooLarge,
    /// Its disk is empty, which the format cannot express.
    #[error("the disk is empty, and an image of this format holds at least one sector")]
    Empty,
    /// An image that must be one file has a backing file or a data file.
    #[error("it has a backing file or a data file")]
    OtherFiles,
    /// A qcow2 image has a data file but no name for it.
    #[error("its data file has no name")]
    DataFileUnnamed,
    /// A backing file of a qcow2 image has a format that is not supported there.
    #[error("its backing file `{}` has the format {}", path.shown(), format.shown())]
    BackingFormat {
        /// The backing file.
        path: PathBuf,
        /// Its format, as the image says or its first bytes show.
        format: String,
    },
    /// It holds only the differences from another disk.
    #[error("it holds only what differs from its parent, {}", parent.shown())]
    Differencing {
        /// The known name or identity of that other disk.
        parent: String,
    },
    /// The descriptor of a VMDK disk is not followed.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// A sparse header of VMDK refers to a descriptor in the same file, which QEMU would obey.
    #[error("the header of `{}` leads to a descriptor inside the file", .0.shown())]
    InnerDescriptor(PathBuf),
    /// A file changed between two readings.
    #[error("`{}` changed while it was read", .0.shown())]
    Changed(PathBuf),
    /// `qemu-img` cannot be started.
    #[error("cannot start qemu-img: {0}")]
    NotStarted(#[source] io::Error),
    /// `qemu-img` took too long to read the headers.
    #[error("qemu-img did not come to an end with it")]
    Endless,
    /// `qemu-img` failed and printed this message, which may be empty.
    #[error("{}", ShownOutput(.0.as_bytes()))]
    Complaint(String),
    /// The answer of `qemu-img` about the image cannot be parsed.
    #[error(transparent)]
    Answer(#[from] serde_json::Error),
}

/// Why a temporary copy cannot grow.
#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    /// The free room is unknown.
    #[error(transparent)]
    Unknown(io::Error),
    /// There is too little room.
    #[error("{} are free there, and {} stay free", human(*free_bytes), human(*kept_bytes))]
    TooLittle {
        /// Free bytes.
        free_bytes: u64,
        /// Bytes that stay reserved for other users of the file system.
        kept_bytes: u64,
    },
}
