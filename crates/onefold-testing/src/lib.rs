//! For tests only: devices and file systems that show the worst behaviour of real ones, reproducible from a seed.
//!
//! - [`allocator`]: an allocator that measures memory use.
//! - [`device`]: block devices, and the images that a power cut may leave of them.
//! - [`simulated`]: a file system that any number of simulated hosts mount.
//!
//! This crate knows no format of Onefold: a test passes in the decoder of one.

pub mod allocator;
pub mod device;
pub mod simulated;
