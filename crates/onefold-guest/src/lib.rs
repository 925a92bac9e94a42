//! The inside of a disk image: partitions, volumes, file systems, their files and their allocation maps.
//!
//! An image is hostile input: every loop here is bounded and every sum is checked. Memory is bounded by the number of
//! bytes that were really read, by a constant, or by a small part of the length of a volume. An invalid structure is
//! reported as damage with its place. Damaged parts are skipped, and the rest is read. No parser in another language
//! processes these bytes.
//!
//! Modules from the bottom up: `bytes`, `budget`, `disjoint`, `directory_owners`, `error`, `volume`, `partition`,
//! `filesystem` (the interface of all readers), then one module for each file system, and `content` (the kind of a
//! volume's content). Above them, `tree` joins file systems as the guest does, `machine` recognises the installed
//! system, `packages` reads its package database, and `guest` represents a whole disk. Decision 17 explains why Onefold
//! has its own readers.

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
