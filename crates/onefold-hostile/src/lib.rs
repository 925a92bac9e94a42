//! Hostile input: bytes made to break Onefold, and what must hold of them.
//!
//! A [target](targets) is a function of bytes. From them it draws what to damage and what to do then; whatever they
//! are, it must come back: with a value or an error, soon, without a giant allocation, and with nothing written
//! where it does not belong. It panics where that does not hold. `tests/seeded.rs` runs every target on bytes that
//! seeds give; the coverage-guided fuzzers under `fuzz/` run the same functions on bytes that they breed.
//!
//! Whatever links this crate has [`onefold_testing::allocator::Watched`] as its allocator. No crate of the product
//! does.

pub mod allocation;
pub mod choices;
pub mod guard;
pub mod mutate;
pub mod samples;
pub mod targets;
pub mod usage;

pub use choices::Choices;
pub use targets::{TARGETS, Target};
