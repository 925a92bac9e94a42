//! Disks of virtual machines: reading, writing and copying them, whatever file they lie in.
//!
//! A [`Disk`] is what a guest sees: a length, bytes, and holes between them. [`open`] reads an image as one. qcow2 goes
//! through the library `imago`, which streams in both directions; all other formats but raw go through QEMU's own
//! `qemu-img`. Images are hostile input: the files that they name are opened here, by the rules of `folders` and to a
//! bounded depth, and both get them as open files. Neither opens a name out of a header.
//!
//! This crate knows nothing of what is on a disk, and nothing of a command line: long work tells how far it is through
//! a callback, and errors say what failed without advice.

#[cfg(test)]
mod again;
mod cache;
mod chain;
mod copy;
mod disk;
mod error;
mod folders;
mod format;
mod image;
mod image_file;
mod progress;
mod qcow2;
mod qemu;
mod raw;
mod temporary;
mod vmdk;

pub use cache::CachedDisk;
pub use copy::{Copied, copy};
pub use disk::{Disk, InFile, SIZE_BYTES_MAX, Sink};
pub use error::{ChainError, DiskError, FileAction, ImageAction, ImageError, RoomError, Work};
pub use format::ImageFormat;
pub use image::{OpenImage, format_of, open, open_alone};
pub use image_file::{Identity, ImageFile};
pub use progress::{OnProgress, Progress};
pub use qcow2::Qcow2Sink;
pub use raw::{FileDisk, FileSink};
pub use vmdk::DescriptorError;
