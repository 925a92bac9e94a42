//! Abilities and room of a file system that shares blocks.

use std::fmt;

/// Abilities of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// The kind of file system.
    pub kind: SubstrateKind,
    /// Unit of sharing, in bytes.
    pub block_bytes: u32,
    /// The longest range that one call of [`Sharing::share`](crate::Sharing::share) takes, in bytes.
    pub share_bytes_max: u64,
    /// Whether a map shows that nothing else refers to an extent
    /// ([`MappedExtent::is_shared`](crate::MappedExtent::is_shared)).
    pub tells_last_reference: bool,
    /// Whether an extent's blocks are freed only when none of them is referred to any more.
    pub frees_whole_extents: bool,
    /// Whether other hosts may have the file system mounted.
    pub is_clustered: bool,
    /// Whether a share may leave a hole if its host dies during it.
    pub shares_in_two_steps: bool,
    /// Whether the file system has sharing domains of its own, and never shares a block across them.
    pub has_own_domains: bool,
}

/// Kinds of file systems that differ in how they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubstrateKind {
    /// XFS with reflinks.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// OCFS2 with reflinks.
    Ocfs2,
    /// A pool, in process.
    Pool,
    /// The simulated file system of the tests.
    Simulated,
}

impl fmt::Display for SubstrateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SubstrateKind::Xfs => "XFS",
            SubstrateKind::Btrfs => "Btrfs",
            SubstrateKind::Ocfs2 => "OCFS2",
            SubstrateKind::Pool => "a pool",
            SubstrateKind::Simulated => "a simulated file system",
        })
    }
}

/// How much room a file system has, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Total size.
    pub total: u64,
    /// Free part.
    pub free: u64,
}
