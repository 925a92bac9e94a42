//! The engine over a pool, in process: what its writes did not find is found afterwards.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod crash;
mod finders;
mod ground;
mod names;
mod pass;
mod states;
#[path = "../common/states/mod.rs"]
mod states_walk;
