//! The installed systems of a disk, each with its tree.
//!
//! | module | is |
//! |---|---|
//! | `fstab` | `/etc/fstab`: which volume is mounted where |
//! | `device` | the names that Linux gives volumes, and which volume has one |
//! | `release` | `/etc/os-release` |
//! | `program` | the architecture that programs were made for |
//! | `linux` | what a Linux system says of itself: release, host name, kernels |
//! | `assemble` | finds the systems, and mounts what each mounts |
//!
//! A system is recognised only by its files. The registry of Windows is not read.

mod assemble;
mod device;
mod fstab;
mod linux;
mod program;
mod release;

pub use assemble::{MissingMount, MissingReason, Mount, machines};
pub use device::VolumeName;
pub use fstab::FstabEntry;
pub use linux::Kernel;
pub use program::Architecture;
pub use release::Release;

use crate::filesystem::FileSystem;
use crate::tree::{ProblemLog, Tree};
use crate::volume::VolumeOrigin;

/// A volume of the disk whose file system can be read.
#[derive(Clone)]
pub struct MachineVolume<'a> {
    /// Its role on the disk.
    pub origin: VolumeOrigin,
    /// Its file system.
    pub system: &'a dyn FileSystem,
    /// The UUID of its partition, if it has one: see [`PartitionEntry`](crate::PartitionEntry).
    pub partition_uuid: Option<String>,
    /// The name of its partition (GPT), if it has one.
    pub partition_label: Option<Vec<u8>>,
}

/// Families of systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MachineKind {
    /// Linux, or another system with its files.
    Linux,
    /// Windows.
    Windows,
}

/// An installed system.
#[derive(Debug)]
pub struct Machine<'a> {
    /// Its family.
    pub kind: MachineKind,
    /// Its tree, with all mounts that the disk contains.
    pub tree: Tree<'a>,
    /// The mount points of its volumes. The first is the root, `/`. There is an entry for each
    /// [`SystemIndex`](crate::tree::SystemIndex) of the tree, in that order.
    pub mounts: Vec<Mount>,
    /// Its mounts that are not on this disk, or cannot be read.
    pub missing: Vec<MissingMount>,
    /// Its release, if known.
    pub release: Option<Release>,
    /// Its host name, if set. Bytes of the guest.
    pub host_name: Option<Vec<u8>>,
    /// The architecture of its programs.
    pub architecture: Option<Architecture>,
    /// Its kernels, older versions first; empty for Windows.
    pub kernels: Vec<Kernel>,
    /// Problems in reading this information.
    pub problems: ProblemLog,
}
