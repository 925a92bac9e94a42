//! What is inside a disk image. Today that is where its partitions lie.
//!
//! Images are hostile input: every loop here is bounded, every sum is checked, and what makes no sense is no partition
//! table. Decision 10 says why the tables are read here and not by a library.

mod partition;

pub use partition::{Partition, partitions};
