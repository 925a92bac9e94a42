//! The lowest layer of Onefold: blocks, their fingerprints, and the seams through which every other crate reaches the
//! outside world.
//!
//! This crate knows no format, file system or network. Disk, clock and randomness are traits given at construction, so
//! that one process can simulate any power cut and replay it from a seed.

pub mod block;
pub mod buffer;
pub mod child;
pub mod clock;
pub mod device;
pub mod extent;
pub mod fiemap;
pub mod fingerprint;
pub mod polling;
pub mod processors;
pub mod random;
pub mod shown;
pub mod size;
pub mod zero;

pub use block::{BLOCK_BYTES, BLOCK_BYTES_U64, BlockNo};
pub use buffer::{AlignedBuffer, BufferPool};
pub use clock::{Clock, Timestamp};
pub use device::{BlockDevice, ReadOp, WriteOp};
pub use extent::Extent;
pub use fingerprint::{Fingerprint, FingerprintKey};
pub use polling::Polling;
pub use processors::Processors;
pub use random::Random;
pub use shown::Show;
