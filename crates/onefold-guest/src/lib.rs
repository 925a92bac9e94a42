//! What is inside a disk image: partitions, volumes, file systems, their files and their allocation maps.
//!
//! An image is hostile input: every loop here is bounded, every sum is checked, memory is bounded by bytes that were
//! really read, by a constant, or by a small part of the length of a volume, and a structure that makes no sense is
//! damage with a place. Damaged parts are skipped, and the rest is read. No parser of another language sees these
//! bytes.
//!
//! Modules from below: `bytes`, `budget`, `disjoint`, `directory_owners`, `error`, `volume`, `partition`, `filesystem`
//! (what all readers offer), then one module for each file system, and `content` (which of them a volume holds). Above
//! them `tree` joins file systems as the guest does, `machine` recognises the system that is installed, `packages`
//! reads its package database, and `guest` puts a whole disk together. Decision 17 says why the readers are our own.

pub mod budget;
mod bytes;
pub mod content;
mod directory_owners;
mod disjoint;
pub mod error;
pub mod ext;
pub mod fat;
pub mod filesystem;
pub mod guest;
pub mod lvm;
pub mod machine;
pub mod memory;
pub mod ntfs;
pub mod packages;
mod partition;
mod swap;
pub mod tree;
pub mod volume;
pub mod xfs;

pub use partition::{
    Guid, Partition, PartitionEntry, PartitionKind, PartitionProblem, PartitionScheme, PartitionTable, partition_table,
    partitions, volumes_of,
};
pub use swap::Swap;
