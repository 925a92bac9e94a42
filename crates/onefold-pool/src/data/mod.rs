//! File data: reading it, and the way of a block to the disk.
//!
//! Where that way is decided: [`decide`], from top to bottom. [`write`] is the frame around it.

pub(crate) mod behind;
pub(crate) mod cache;
pub(crate) mod clone;
pub(crate) mod decide;
pub(crate) mod edges;
pub(crate) mod extents;
pub(crate) mod fetch;
pub(crate) mod full_counts;
pub(crate) mod quarantine;
pub(crate) mod range_lock;
pub(crate) mod read;
pub(crate) mod resize;
pub(crate) mod share;
pub(crate) mod write;
