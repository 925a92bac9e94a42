//! Failures below the pool: device calls, allocations, the room of a sparse pool file.

#[path = "../common/mod.rs"]
mod common;

mod allocation;
mod device;
mod maintenance;
mod thin;
mod trial;
