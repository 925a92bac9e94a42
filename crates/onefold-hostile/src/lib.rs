//! Hostile input: bytes made to break Onefold, and the guarantees that must hold for them.
//!
//! A [target](targets) is a function of bytes. From them it draws the damage to make and the operations to try.
//! Whatever the bytes are, it must return a value or an error, soon, without a giant allocation, and without writing
//! anything in the wrong place. It panics if that does not hold. `tests/seeded.rs` runs every target on bytes from
//! seeds; the coverage-guided fuzzers under `fuzz/` run the same functions on bytes that they generate.
//!
//! Every program that links this crate has [`onefold_testing::allocator::CountingAllocator`] as its allocator. No crate
//! of the product does.

pub mod allocation;
pub mod choices;
pub mod guard;
pub mod mutate;
pub mod samples;
pub mod targets;
pub mod usage;

pub use choices::Choices;
pub use targets::{TARGETS, Target};
