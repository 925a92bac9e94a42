//! The systems that are installed on a disk, and the tree of each as it sees itself.
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
//! A system is recognised by its files alone. No registry of Windows is read.

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
    /// What it is on the disk.
    pub origin: VolumeOrigin,
    /// Its file system.
    pub system: &'a dyn FileSystem,
    /// The UUID of its partition, if it has one: see [`PartitionEntry`](crate::PartitionEntry).
    pub partition_uuid: Option<String>,
    /// The name of its partition (GPT), if it has one.
    pub partition_label: Option<Vec<u8>>,
}

/// The families of systems that are told apart.
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
    /// Its tree, with everything mounted that the disk has.
    pub tree: Tree<'a>,
    /// Where its volumes are seen: first the root, `/`. An entry for each [`SystemIndex`](crate::tree::SystemIndex) of
    /// the tree, in that order.
    pub mounts: Vec<Mount>,
    /// What it mounts that is not on this disk, or cannot be read.
    pub missing: Vec<MissingMount>,
    /// What it says of its release, where it does.
    pub release: Option<Release>,
    /// Its host name, where it is set. Bytes of the guest.
    pub host_name: Option<Vec<u8>>,
    /// The architecture of its programs.
    pub architecture: Option<Architecture>,
    /// Its kernels, older versions first; none of Windows.
    pub kernels: Vec<Kernel>,
    /// What could not be read of all this.
    pub problems: ProblemLog,
}
