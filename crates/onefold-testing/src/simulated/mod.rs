//! A simulated file system that any number of simulated hosts mount.
//!
//! One file system in memory serves many hosts, and one seed decides everything that happens. Each host's work is a
//! coroutine on its own stack, so the engine's code runs here unchanged. Every call of
//! [`Substrate`](onefold_substrate::Substrate) is one step. Before it, the scheduler may let another host make its
//! call, a writer change an image, or a host crash, be suspended or come back. After every step the invariants are
//! checked (`checks`).
//!
//! ```
//! use onefold_block::Clock;
//! use onefold_substrate::Substrate;
//! use onefold_testing::simulated::{Host, SimulationOptions, simulate};
//!
//! fn pass<S: Substrate>(substrate: &S, clock: &dyn Clock) -> std::io::Result<()> {
//!     let images = substrate.list("images".as_ref())?;
//!     clock.sleep(std::time::Duration::from_secs(1));
//!     drop(images);
//!     Ok(())
//! }
//! let work = |host: &Host<'_>| drop(pass(&host.substrate, &*host.clock));
//! for seed in onefold_testing::simulated::seeds(1, 3) {
//!     println!("{}", simulate(&SimulationOptions::drawn(seed, 5, 1000), work));
//! }
//! ```
//!
//! For a seed to replay, the work may depend only on what it is given: on no other clock, on no state kept from one
//! start to the next, and on no order of a hash table that decides about calls.
//!
//! Tests that make each call themselves, without a schedule, use [`SimulatedFileSystem`] alone.
//!
//! | part | is about |
//! |---|---|
//! | `scheduler`, `run` | the order of steps; [`Simulation`] and [`simulate`] |
//! | `host`, `clock`, `mount`, `substrate` | the seams of a host: a clock, randomness, and the trait with its faults |
//! | `options`, `outcome` | the input and the result of a simulation |
//! | `world` | the file system, of which the following are parts |
//! | `blocks`, `files`, `sparse`, `data` | blocks of the device and their counts, files, reading and writing |
//! | `names`, `namespace` | folders, and what changes them |
//! | `sharing` | compare and share, clone, map |
//! | `holes` | sharing in two steps, and the holes that a crash leaves between them |
//! | `rights` | users, owners and permission bits |
//! | `facts` | attributes, held locks, clones of files |
//! | `durability`, `locks` | what a crash undoes, and when locks expire |
//! | `writers` | the users of the images |
//! | `reference`, `checks` | the expected content of all files, and the invariants |
//!
//! Not simulated: extents that pin more space than they show (Btrfs), room for metadata, and several file systems under
//! one root. `durability` lists where it is harsher than real file systems.

mod blocks;
mod checks;
mod clock;
mod content;
mod data;
mod dice;
mod durability;
mod facts;
mod file_system;
mod files;
mod holes;
mod host;
mod locks;
mod mount;
mod names;
mod namespace;
mod options;
mod outcome;
mod reference;
mod rights;
mod run;
mod scheduler;
mod sharing;
mod sparse;
mod substrate;
mod world;
mod writers;

#[cfg(test)]
mod tests;

pub use clock::SimulatedClock;
pub use file_system::SimulatedFileSystem;
pub use host::{Host, HostNo, SeenKind, SeenWrite};
pub use mount::{Bounds, SimulatedFile, SimulatedSubstrate};
pub use options::{DeclaredRun, DeclaredShare, Faults, Habits, Mistake, SimulationOptions};
pub use outcome::{Census, Counters, Outcome, RunFailure};
pub use run::{seeds, simulate};
pub use scheduler::Simulation;
