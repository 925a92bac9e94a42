//! For tests only: devices and file systems that do what real ones do at their worst, from a seed.
//!
//! - [`allocator`]: an allocator that tells how much memory was taken.
//! - [`device`]: block devices, and the images that a power cut may leave of them.
//! - [`simulated`]: a file system that any number of simulated hosts have mounted.
//!
//! Nothing here knows a format of Onefold: a test hands in what reads one.

pub mod allocator;
pub mod device;
pub mod simulated;
