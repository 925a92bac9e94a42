//! Disks of virtual machines: reading, writing and copying them, whatever files they lie in.
//!
//! A [`Disk`] is the guest's view: a length, bytes, and holes between them. [`open`] opens an image as a disk. qcow2
//! goes through the library `imago`, which streams in both directions. All other formats except raw go through QEMU's
//! own `qemu-img`; of these, only VMDK is written. Images are hostile input: this crate opens the files that they name,
//! by the rules of `folders` and to a bounded depth, and passes them on as open files. Neither `imago` nor `qemu-img`
//! opens a name from a header.
//!
//! This crate knows neither the content of disks nor the command line. Long work reports its progress through a
//! callback, and errors say what failed, without advice.

#[cfg(test)]
mod again;
mod cache;
mod cache_memory;
mod cache_order;
mod chain;
mod copy;
mod disk;
mod error;
mod folders;
mod format;
mod image;
mod image_file;
mod part;
mod progress;
mod qcow2;
mod qemu;
mod raw;
mod temporary;
mod vmdk;

pub use cache::CachedDisk;
pub use cache_memory::CacheMemory;
pub use copy::{CopyResult, copy};
pub use disk::{Disk, FilePlacement, SIZE_BYTES_MAX, Sink};
pub use error::{ChainError, DiskError, FileAction, ImageAction, ImageError, LongWork, RoomError};
pub use format::ImageFormat;
pub use image::{OpenImage, format_of, head_of, open, open_alone};
pub use image_file::{FileIdentity, ImageFile, NamedFile};
pub use part::DiskPart;
pub use progress::{OnProgress, Progress};
pub use qcow2::Qcow2Sink;
pub use qemu::write_vmdk;
pub use raw::{FileDisk, FileSink};
pub use temporary::temporary_folder;
pub use vmdk::DescriptorError;
