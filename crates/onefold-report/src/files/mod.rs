//! What the blocks of images belong to: packages and folders, metadata, swap, gaps, and free blocks that are not zero.
//!
//! | module | is |
//! |---|---|
//! | `analysis` | what a user gets: sums, groups with their parts, packages in several versions |

mod analysis;

pub use analysis::*;
